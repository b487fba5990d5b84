"""Members of a streams group (KIP-1071) in a simulated cluster: each topic is a subtopology, the first one has a state.

They live as the members of the group of consumers do (`groups`): a task is the partition that it reads. No active task has two
owners at a time, and none is assigned to two members in one epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.membership import REBALANCE_TIMEOUT_MS
from kafkalite.errors import ApiError
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire
from kafkalite.rpc.answers import RpcError
from kafkalite.testing.consumer_membership import ConsumerMembership
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.workloads.groups import SESSION_MS

GROUP = "streams"
SETTINGS: dict[str, int | str] = {
    "group.streams.session.timeout.ms": SESSION_MS,
    "group.streams.heartbeat.interval.ms": 400,
    "group.streams.initial.rebalance.delay.ms": 500,
    "group.streams.assignment.interval.ms": 200,
    "group.streams.num.standby.replicas": 1,
}
_JOIN, _LEAVE = 0, -1
_PATIENCE_S = 10.0
_REQUEST = wire.StreamsGroupHeartbeatRequest


class StreamsJoins:
    """Makes members, and remembers which tasks each was assigned in which epoch."""

    def __init__(self) -> None:
        self._owners: dict[tuple[TopicPartition, int], str] = {}

    def __call__(self, client: AsyncClient, topics: Sequence[str], name: str) -> ConsumerMembership:
        return _StreamsMembership(client, topics, name, self)

    def assigned(self, name: str, epoch: int, tasks: Sequence[TopicPartition]) -> None:
        """Raises Violation."""
        for task in tasks:
            owner = self._owners.setdefault((task, epoch), name)
            if owner != name:
                raise Violation(f"the task of {task} is assigned to {owner} and to {name} in epoch {epoch}")


class _StreamsMembership(ConsumerMembership):
    """As its base, over the streams protocol."""

    def __init__(self, client: AsyncClient, topics: Sequence[str], name: str, joins: StreamsJoins) -> None:
        super().__init__(client, Groups(client), GROUP, topics)
        self._name = name
        self._joins = joins
        #: The copies that it keeps, by subtopology.
        self._standby: dict[str, list[int]] = {}

    def _forget(self) -> None:
        super()._forget()
        self._standby = {}

    async def _heartbeat(self, epoch: int) -> None:
        active: dict[str, list[int]] = {}
        for topic, number in self.partitions:
            active.setdefault(str(self._topics.index(topic)), []).append(number)
        message = _REQUEST(
            self.group,
            self.member_id,
            epoch,
            active_tasks=_task_ids(active),
            standby_tasks=_task_ids(self._standby),
            warmup_tasks=[],
        )
        if epoch == _JOIN:
            message.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            message.process_id = self._name
            message.topology = self._topology()
        sent_s = self._client.now()
        _, answer = await self._groups.ask(self.group, message, _own_error, timeout_s=_PATIENCE_S)
        self.heard_at_s = sent_s
        self.generation = answer.member_epoch
        self._interval_s = answer.heartbeat_interval_ms / 1000
        if answer.active_tasks is not None:
            self._assigned = tuple(
                sorted(
                    TopicPartition(self._topics[int(each.subtopology_id)], number)
                    for each in answer.active_tasks
                    for number in each.partitions
                )
            )
            self._standby = {each.subtopology_id: list(each.partitions) for each in answer.standby_tasks or ()}
        self._joins.assigned(self._name, self.generation, self._assigned)

    def _topology(self) -> Any:
        info = _REQUEST.TopicInfo
        return _REQUEST.Topology(
            1,
            [
                _REQUEST.Subtopology(
                    str(number),
                    [topic],
                    [],
                    [] if number else [info(f"{GROUP}-{topic}-changelog", 0, 3, [])],
                    [],
                    [],
                    [],
                )
                for number, topic in enumerate(self._topics)
            ],
        )

    async def leave(self) -> None:
        self._stop_beating()
        if self.generation:
            request = _REQUEST(self.group, self.member_id, _LEAVE)
            with contextlib.suppress(ApiError, RpcError):  # then its session ends
                await self._groups.ask(self.group, request, _own_error, timeout_s=3)
        self._forget()
        self.partitions = ()


def _task_ids(tasks: dict[str, list[int]]) -> list[Any]:
    return [_REQUEST.TaskIds(subtopology, numbers) for subtopology, numbers in sorted(tasks.items())]


def _own_error(response: Any) -> int:
    return int(response.error_code)
