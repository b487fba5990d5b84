"""Nodes that coordinate groups over one replicated log, in virtual time: leadership moves, appends wait, fail, or time out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkalite.config import BrokerConfig
from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.internal_log import partition_of
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.coordinators.transactions.markers import LocalMarkers, Marker
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import GROUP_TOPIC, NO_OFFSET, Buffer, LeaderEpoch, Offset, ProducerId, TopicId, TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.replica.purgatory import ProduceDone
from kafkalite.testing.simulated.clock import SimClock
from kafkalite.testing.simulated.loop import SimLoop
from tests.support.memory_partitions import MemoryLog, MemoryPartitions
from tests.support.memory_services import MemoryServices

#: Partitions of `__consumer_offsets`.
PARTITIONS = 2
SESSION_MS = 6_000
REBALANCE_MS = 10_000
_REQUEST_S = 2.0


@dataclass
class Pending:
    """An append that is not replicated yet; `done` None: its caller has its answer."""

    end: int
    base: int
    done: ProduceDone | None
    is_replicated: bool = False


class NodePartitions(MemoryPartitions):
    """What one node has of `__consumer_offsets`; all other topics are common to the nodes."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.logs = dict(world.topics)
        self.epochs: dict[int, LeaderEpoch] = {}
        self.pending: dict[int, list[Pending]] = {}
        #: Partitions that another node leads, which this one does not know yet.
        self.deposed: set[int] = set()

    def led_partitions(self, topic: str) -> Mapping[int, LeaderEpoch]:
        return dict(self.epochs) if topic == GROUP_TOPIC else {}

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        return self.epochs.get(partition.partition) if partition.topic == GROUP_TOPIC else None

    def _log(self, partition: TopicPartition) -> MemoryLog:
        if self.leader_epoch(partition) is None:
            raise api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.logs[partition]

    def append_internal(
        self,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
        transaction_version: int = 0,
    ) -> None:
        [(key, records)] = partitions
        refusal = self._world.refusal()
        if self.leader_epoch(key) is None:
            refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if refusal:
            done((ProducedPartition(key.topic, key.partition, int(refusal), NO_OFFSET),))
            return
        log = self.logs[key]
        base = log.append(records, from_client=False)
        each = Pending(log.log_end_offset, base, done)
        self.pending.setdefault(key.partition, []).append(each)
        loop = asyncio.get_running_loop()
        loop.call_later(timeout_ms / 1000, self._time_is_up, key, each)
        loop.call_later(self._world.replication_s(), self._replicated, key, each)

    def _answer(self, key: TopicPartition, each: Pending, error: ErrorCode = ErrorCode.NONE) -> None:
        done, each.done = each.done, None
        if done is not None:
            base = NO_OFFSET if error else Offset(each.base)
            done((ProducedPartition(key.topic, key.partition, int(error), base),))

    def _time_is_up(self, key: TopicPartition, each: Pending) -> None:
        self._answer(key, each, ErrorCode.REQUEST_TIMED_OUT)

    def _replicated(self, key: TopicPartition, each: Pending) -> None:
        each.is_replicated = True
        waiting = self.pending.get(key.partition, [])
        while key.partition not in self.deposed and waiting and waiting[0].is_replicated:
            first = waiting.pop(0)
            self.committed[key] = first.end
            self._answer(key, first)

    def lead(self, number: int, epoch: LeaderEpoch, log: MemoryLog, committed: int) -> None:
        key = TopicPartition(GROUP_TOPIC, number)
        self.deposed.discard(number)
        self.logs[key], self.epochs[number], self.pending[number] = log, epoch, []
        self.committed[key] = committed
        asyncio.get_running_loop().call_later(self._world.replication_s(), self._caught_up, key, epoch)
        self.tell_change()

    def _caught_up(self, key: TopicPartition, epoch: LeaderEpoch) -> None:
        """The followers have what the new leader began with."""
        if self.epochs.get(key.partition) == epoch and not self.pending[key.partition]:
            self.committed[key] = self.logs[key].log_end_offset

    def resign(self, number: int) -> None:
        self.deposed.discard(number)
        self.epochs.pop(number, None)
        for each in self.pending.pop(number, []):
            self._answer(TopicPartition(GROUP_TOPIC, number), each, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.tell_change()


class NodeServices(MemoryServices):
    def __init__(self, world: World, config: BrokerConfig, supervisor: Supervisor) -> None:
        super().__init__(config, world.clock, None, supervisor)  # type: ignore[arg-type]
        self.partitions = self.partitions_here = NodePartitions(world)
        self._ids = world.ids
        self._world = world

    @property
    def config(self) -> BrokerConfig:
        return self._config

    async def metadata_changed(self) -> None:
        await asyncio.sleep(0.1)

    async def run_blocking(self, function: Callable[[], object]) -> object:
        await asyncio.sleep(0.001)
        return function()


class States:
    """The share coordinator: which states there are, with their epochs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.epochs: dict[ShareKey, int] = {}

    async def _travel(self) -> None:
        await asyncio.sleep(self._world.source.uniform(0.001, 0.2))
        if self._world.is_faulty and self._world.source.random() < 0.1:
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: Offset) -> None:
        await self._travel()
        if state_epoch < self.epochs.get(key, 0):
            raise api_error(ErrorCode.FENCED_STATE_EPOCH)
        self.epochs[key] = state_epoch

    async def delete(self, key: ShareKey) -> None:
        await self._travel()
        self.epochs.pop(key, None)


class Node:
    """One life of a coordinator."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_alive = True
        self.supervisor = Supervisor(world.fatal.append)
        self.services = NodeServices(world, world.config, self.supervisor)
        self.partitions = self.services.partitions_here
        self.groups = GroupCoordinator(self.services)
        self.groups.share_states.persister = lambda: world.states  # type: ignore[assignment, return-value]
        self.markers = LocalMarkers(self.services, self.groups)
        self.groups.start()


class World:
    """Two nodes. `is_faulty`: appends are refused or slow, and messages are lost."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.source = random.Random(seed)
        self.loop = SimLoop(max_callbacks=50_000_000)  # type: ignore[abstract]
        self.clock = SimClock(self.loop)
        self.is_faulty = True
        self.fatal: list[BaseException] = []
        defaults: dict[str, Any] = {
            "group_initial_rebalance_delay_ms": 500,
            "group_consumer_session_timeout_ms": SESSION_MS,
            "group_consumer_heartbeat_interval_ms": 1_000,
            "group_consumer_min_session_timeout_ms": 1_000,
            "group_consumer_min_heartbeat_interval_ms": 100,
            "group_share_session_timeout_ms": SESSION_MS,
            "group_share_heartbeat_interval_ms": 1_000,
            "group_share_min_session_timeout_ms": 1_000,
            "group_share_min_heartbeat_interval_ms": 100,
            "group_streams_session_timeout_ms": SESSION_MS,
            "group_streams_heartbeat_interval_ms": 1_000,
            "group_streams_min_session_timeout_ms": 1_000,
            "group_streams_min_heartbeat_interval_ms": 100,
            "group_streams_initial_rebalance_delay_ms": 500,
            "group_consumer_migration_policy": "bidirectional",
        }
        self.config = BrokerConfig(**(defaults | settings))
        self.ids: dict[str, TopicId] = {}
        self.topics: dict[TopicPartition, MemoryLog] = {}
        self.states = States(self)
        self.nodes: list[Node] = []
        self.leaders: dict[int, int] = {}
        self._epoch = 0

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        try:
            self.loop.run_until_complete(main)
        finally:
            self.loop.close()
        assert not self.fatal, self.fatal

    async def start(self) -> None:
        self.ids[GROUP_TOPIC] = TopicId("G" * 21 + "A")
        for number in range(PARTITIONS):
            self.topics[TopicPartition(GROUP_TOPIC, number)] = MemoryLog()
        self.nodes = [Node(self), Node(self)]
        for number in range(PARTITIONS):
            self._lead(number, self.source.randrange(2), MemoryLog(), 0)

    # --- faults ---

    def refusal(self) -> ErrorCode:
        is_refused = self.is_faulty and self.source.random() < 0.03
        return ErrorCode.NOT_ENOUGH_REPLICAS if is_refused else ErrorCode.NONE

    def replication_s(self) -> float:
        if self.is_faulty and self.source.random() < 0.03:
            return self.source.uniform(0.5, 8.0)
        return self.source.uniform(0.0005, 0.02)

    def _is_lost(self) -> bool:
        return self.is_faulty and self.source.random() < 0.03

    # --- topics ---

    def create(self, name: str, count: int) -> None:
        self.ids[name] = TopicId(f"{self.source.getrandbits(84):021x}A")
        self.add(name, range(count))

    def add(self, name: str, numbers: range) -> None:
        for number in numbers:
            self.topics[TopicPartition(name, number)] = MemoryLog()
            for node in self.nodes:
                node.partitions.logs[TopicPartition(name, number)] = self.topics[TopicPartition(name, number)]

    def delete(self, name: str) -> None:
        """Delete a topic, wherever the coordinators of its groups are at this moment."""
        topic_id = self.ids.pop(name)
        for key in [key for key in self.topics if key.topic == name]:
            del self.topics[key]
            for node in self.nodes:
                node.partitions.logs.pop(key, None)
        for node in self.nodes:
            node.services.deleted.add(name, topic_id)
            node.supervisor.spawn("purge", node.groups.removal.topics_deleted([name]), Policy.ISOLATED)

    def count(self, name: str) -> int:
        return sum(key.topic == name for key in self.topics)

    # --- leadership ---

    def _lead(self, number: int, to: int, log: MemoryLog, committed: int) -> None:
        self._epoch += 1
        self.leaders[number] = to
        self.nodes[to].partitions.lead(number, LeaderEpoch(self._epoch), log, committed)

    def _copy(self, node: Node, number: int) -> tuple[MemoryLog, int]:
        """The log of a follower that becomes leader: all that is committed, and some of the rest."""
        key = TopicPartition(GROUP_TOPIC, number)
        log, committed = node.partitions.logs[key], node.partitions.committed.get(key, 0)
        ends = [header.next_offset for header, _ in log.batches if header.next_offset >= committed]
        end = self.source.choice([committed, *ends])
        batches = [each for each in log.batches if each[0].next_offset <= end]
        return MemoryLog(batches=batches, log_end_offset=end), committed

    def move(self, number: int, *, is_noticed: bool) -> None:
        """The other node leads a partition; the old leader hears of it, or (`is_noticed` False) not yet."""
        old = self.nodes[self.leaders[number]]
        copy = self._copy(old, number)
        if is_noticed:
            old.partitions.resign(number)
        else:
            old.partitions.deposed.add(number)
            self.loop.call_later(self.source.uniform(0.05, 1.5), self._notice, old, number)
        self._lead(number, 1 - self.leaders[number], *copy)

    def _notice(self, node: Node, number: int) -> None:
        if number in node.partitions.deposed:
            node.partitions.resign(number)

    async def restart(self, number: int) -> None:
        """A node dies; the other one leads, and it comes back."""
        old = self.nodes[number]
        old.is_alive = False
        led = [each for each, leader in self.leaders.items() if leader == number]
        old.partitions.deposed.update(led)
        copies = {each: self._copy(old, each) for each in led}
        await asyncio.sleep(self.source.uniform(0.01, 1.0))
        for each, copy in copies.items():
            self._lead(each, 1 - number, *copy)
        await old.supervisor.stop()
        self.nodes[number] = Node(self)

    async def stop(self) -> None:
        for node in self.nodes:
            await node.supervisor.stop()

    # --- transactions ---

    async def end_transaction(self, group_id: str, producer_id: ProducerId, *, is_commit: bool) -> None:
        """The transaction coordinator insists until the marker is there."""
        key = TopicPartition(GROUP_TOPIC, partition_of(group_id, PARTITIONS))
        while True:
            await asyncio.sleep(self.source.uniform(0.001, 0.3))
            node = self.coordinator(group_id)
            marker = Marker(producer_id, 0, is_commit, 0, (key,))
            work = node.supervisor.spawn("marker", node.markers.write(marker), Policy.ISOLATED)
            await asyncio.wait((work,))
            if not work.cancelled() and not work.result()[key]:
                return

    # --- requests ---

    def coordinator(self, group_id: str) -> Node:
        return self.nodes[self.leaders[partition_of(group_id, PARTITIONS)]]

    async def ask(
        self,
        group_id: str,
        serve: Callable[[GroupCoordinator, Callable[[Any], None]], None],
        timeout_s: float = _REQUEST_S,
    ) -> Any:
        """What `serve` passes to its second argument, or the ApiError it raises; None: nothing in time."""
        node = self.coordinator(group_id)
        if self.is_faulty and self.source.random() < 0.05:
            node = self.source.choice(self.nodes)  # the client has not heard of a move
        answer: asyncio.Future[Any] = self.loop.create_future()

        def arrive(found: Any) -> None:
            if not answer.done():
                answer.set_result(found)

        def reply(found: Any) -> None:
            if node.is_alive and not self._is_lost():
                self.loop.call_later(self.source.uniform(0.0005, 0.01), arrive, found)

        def come() -> None:
            if not node.is_alive:
                return
            try:
                serve(node.groups, reply)
            except ApiError as error:
                reply(error)

        if not self._is_lost():
            self.loop.call_later(self.source.uniform(0.0005, 0.01), come)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            return None

    async def ask_task(self, group_id: str, serve: Callable[[GroupCoordinator], Coroutine[Any, Any, Any]]) -> Any:
        """The same of a request that is served by a task."""

        def begin(groups: GroupCoordinator, reply: Callable[[Any], None]) -> None:
            async def work() -> None:
                try:
                    found = await serve(groups)
                except ApiError as error:
                    found = error
                reply(found)

            node = next(node for node in self.nodes if node.groups is groups)
            node.supervisor.spawn("request", work(), Policy.ISOLATED)

        return await self.ask(group_id, begin)
