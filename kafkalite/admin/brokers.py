"""Administrators' requests about brokers, on any node: whether a broker may take another state (`broker.state`)."""

from __future__ import annotations

from kafkalite.admin.decisions.decommissioning import why_not_drained
from kafkalite.admin.reassignments import readable_topics
from kafkalite.admin.topics import TopicAdmin
from kafkalite.coordination import paths
from kafkalite.coordination.broker_states import ACTIVE, DRAINING
from kafkalite.coordination.closed_brokers import read_closed
from kafkalite.coordination.coordinator import Coordinator
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import BrokerId, Replicas, TopicPartition


class BrokerAdmin:
    """Checks; the caller writes the setting, and the controller acts on it."""

    def __init__(self, topics: TopicAdmin) -> None:
        self._topics = topics

    async def check_state(self, broker: BrokerId, state: str) -> None:
        """Whether the broker may be given this state.

        Raises:
            ApiError: INVALID_REQUEST if there is no such broker; INVALID_REPLICATION_FACTOR if its replicas cannot all move away.
        """
        await self._topics.repeating(lambda zk: self._check(zk, broker, state))

    async def _check(self, zk: Coordinator, broker: BrokerId, state: str) -> None:
        if state == ACTIVE:
            return
        live, _ = paths.broker_ids((await zk.children(paths.BROKER_IDS))[0])
        topics = await readable_topics(zk, (await zk.children(paths.TOPICS))[0])
        assignment: dict[TopicPartition, Replicas] = {}
        for name, topic in topics.items():
            for number, replicas in topic.partitions.items():
                move = topic.moves.get(number)
                assignment[TopicPartition(name, number)] = replicas if move is None else move.target
        if broker not in live and not any(broker in replicas for replicas in assignment.values()):
            raise api_error(ErrorCode.INVALID_REQUEST, f"broker {broker} is not alive and has no replicas")
        if state == DRAINING:
            closed = await read_closed(zk, live)
            if reason := why_not_drained(broker, assignment, frozenset(live), closed):
                raise api_error(ErrorCode.INVALID_REPLICATION_FACTOR, f"broker {broker} cannot be drained: {reason}")
