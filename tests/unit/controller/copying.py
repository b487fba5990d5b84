"""Fake leaders that let every commanded replica copy and join the ISR, as real ones do."""

from __future__ import annotations

import asyncio

from kafkalite.coordination import paths, topic_znodes
from kafkalite.coordination.coordinator import SetData
from kafkalite.model import BrokerId, LeaderAndIsr, TopicPartition
from kafkalite.rpc.messages.control import IsrChange, IsrChangedRequest
from tests.unit.controller.cluster import Cluster


class Copying:
    """While open, replicas that were commanded join; `held` brokers stay out. Records every AR and state it sees."""

    def __init__(self, cluster: Cluster, *topics: str) -> None:
        self.cluster = cluster
        self.topics = topics
        self.held: set[int] = set()
        #: Partition -> every AR that was seen, in order.
        self.assignments: dict[TopicPartition, list[tuple[int, ...]]] = {}
        self.leaders: dict[TopicPartition, list[int]] = {}
        self.most_under_way = 0
        self.most_leader_moves = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Copying:
        self._task = self.cluster.supervisor.spawn("copying", self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()

    def topic(self, name: str) -> topic_znodes.TopicZnode | None:
        found = self.cluster.zookeeper.peek(paths.topic(name))
        return None if found is None else topic_znodes.decode_topic(found[0])

    def existing(self, name: str) -> topic_znodes.TopicZnode:
        """The same of a topic that is there."""
        found = self.topic(name)
        assert found is not None
        return found

    async def _run(self) -> None:
        while True:
            under_way = leader_moves = 0
            for name in self.topics:
                value = self.topic(name)
                if value is None:
                    continue
                under_way += sum(bool(move.step or move.dropping) for move in value.moves.values())
                leader_moves += sum(move.moves_leader for move in value.moves.values())
                for number, replicas in value.partitions.items():
                    self._look(TopicPartition(name, number), replicas)
            self.most_under_way = max(self.most_under_way, under_way)
            self.most_leader_moves = max(self.most_leader_moves, leader_moves)
            await asyncio.sleep(0.001)

    def _look(self, partition: TopicPartition, replicas: tuple[int, ...]) -> None:
        seen = self.assignments.setdefault(partition, [])
        if not seen or seen[-1] != replicas:
            seen.append(replicas)
        state = self.cluster.state(partition)
        if state is None:
            return
        leaders = self.leaders.setdefault(partition, [])
        if not leaders or leaders[-1] != state.leader:
            leaders.append(state.leader)
        assert set(state.isr) <= set(replicas), "an ISR outside of the AR"
        leader = self.cluster.brokers.get(state.leader)
        role = None if leader is None else leader.roles.get(partition)
        if leader is None or role is None or role.leader_epoch != state.leader_epoch:
            return  # it has not heard that it leads, or of the new replicas
        joining = [
            each
            for each in role.replicas
            if each not in state.isr
            and each not in self.held
            and each in self.cluster.brokers
            and partition in self.cluster.brokers[each].roles
        ]
        if joining:
            self._join(partition, state, joining)

    def _join(self, partition: TopicPartition, state: LeaderAndIsr, joining: list[BrokerId]) -> None:
        value = LeaderAndIsr(
            state.leader, state.leader_epoch, (*state.isr, *joining), state.controller_epoch, state.partition_epoch
        )
        self.cluster.zookeeper.poke(
            SetData(paths.partition_state(partition), topic_znodes.encode_partition_state(value), state.partition_epoch)
        )
        change = IsrChange(partition.topic, partition.partition, state.leader_epoch, value.isr, state.partition_epoch)
        broker = self.cluster.brokers[state.leader]
        for controller in self.cluster.controllers.values():
            controller.on_isr_changed(IsrChangedRequest(broker.broker_id, broker.epoch, (change,)))
