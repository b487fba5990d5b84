"""Producers that commit offsets of several groups within transactions, over the Kafka protocol, and readers of these offsets.

Each producer has groups of its own, which have different coordinators. It begins its next transaction when the end of the last one is
answered, while markers may still be on their way, and commits without a transaction now and then. If it does not hear what became of a
request, it asks for its next epoch. A life follows either the protocol from before KIP-890, or the one since then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.env.seams import Env
from kafkalite.protocol import wire
from kafkalite.testing.simulation.checkers.offsets import Commit, CommittedOffsets, OffsetKey
from kafkalite.testing.simulation.checkers.transactions import TransactionOutcome
from kafkalite.testing.simulation.plan import LONE, Plan
from kafkalite.testing.simulation.workloads.former import has_former_coordinator
from kafkalite.testing.simulation.workloads.kafka import (
    NONE,
    RETRIABLE,
    Refused,
    SimKafkaClient,
    Unanswered,
    read_offsets,
)
from kafkalite.testing.simulation.workloads.promise import Promise

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

SETTINGS: dict[str, int | str] = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 2}
_GROUPS = 4
_TRANSACTION_TIMEOUT_MS = 8_000
#: How often a request is sent before the client gives up.
_ATTEMPTS = 25
_PAUSE_S = 0.1
_COMMIT, _ADD, _END, _INIT = 8, 3, 3, 4
#: Versions of TxnOffsetCommit: the client names groups to the transaction's coordinator, or the group's coordinator does (KIP-890).
_TXN_COMMIT, _TXN_COMMIT_ADDS, _END_BUMPS = 3, 5, 5


class OffsetProducer:
    """One transactional id, one transaction after the other until it is stopped."""

    def __init__(self, name: str, plan: Plan, history: CommittedOffsets) -> None:
        self.name = name
        self._plan = plan
        self._history = history
        topic = next(topic for topic in plan.topics if topic != LONE)
        #: Group -> what it commits for.
        self.groups = {
            group: [OffsetKey(group, topic, number) for number in range(plan.topics[topic])]
            for group in (f"{name}-{number}" for number in range(_GROUPS))
        }
        self.stopping = asyncio.Event()
        self.done = False
        self._count = 0
        self._producer = (-1, -1)
        self._adds = False
        self._mine: list[Commit] = []

    async def run(self, env: Env) -> None:
        """The program."""
        source = env.random
        client = SimKafkaClient(self._plan, env)
        is_open = False
        while not (self.stopping.is_set() and not is_open):
            try:
                if not is_open:
                    await self._init(client)
                    self._adds = source.random() < 0.5
                    is_open = True
                if self.stopping.is_set():
                    break
                if source.random() < 0.15:
                    await self._plainly(client, source)
                else:
                    await self._transaction(client, source)
            except (Unanswered, Refused):
                is_open = False  # its next epoch: this aborts what is open, and nothing of it that arrives late counts
                await asyncio.sleep(source.uniform(0.0, 0.3))
            await asyncio.sleep(source.choice((0.0, 0.0, 0.02, 0.3)))
        self.done = True
        client.close()

    async def _init(self, client: SimKafkaClient) -> None:
        request = wire.InitProducerIdRequest(self.name, _TRANSACTION_TIMEOUT_MS)
        answer = await self._of_coordinator(client, request, _INIT)
        self._producer = (answer.producer_id, answer.producer_epoch)
        for commit in self._mine:
            if commit.outcome is TransactionOutcome.OPEN:
                commit.outcome = TransactionOutcome.ABORTED
        self._mine.clear()

    async def _of_coordinator(self, client: SimKafkaClient, request: Any, version: int) -> Any:
        """Raises Refused, Unanswered."""
        return await client.ask_transaction_coordinator(self.name, request, version, _ATTEMPTS, _PAUSE_S)

    def _begin(self, groups: list[str], source: random.Random) -> tuple[Commit, dict[str, dict[OffsetKey, int]]]:
        self._count += 1
        commit = self._history.begin(f"{self.name}.{self._count}")
        offsets = {}
        for group in groups:
            keys = self.groups[group]
            some = source.sample(keys, source.randint(1, len(keys)))
            offsets[group] = {key: self._history.next_offset(commit, key) for key in some}
        return commit, offsets

    async def _transaction(self, client: SimKafkaClient, source: random.Random) -> None:
        groups = source.sample(sorted(self.groups), source.randint(1, _GROUPS))
        commit, offsets = self._begin(groups, source)
        self._mine.append(commit)
        producer_id, epoch = self._producer
        request = wire.TxnOffsetCommitRequest
        for group, some in offsets.items():
            if not self._adds:
                add = wire.AddOffsetsToTxnRequest(self.name, producer_id, epoch, group)
                await self._of_coordinator(client, add, _ADD)
            parts = [request.TxnOffsetCommitRequestPartition(key.partition, at, -1, "") for key, at in some.items()]
            topic = request.TxnOffsetCommitRequestTopic(name=next(iter(some)).topic, partitions=parts)
            message = request(self.name, group, producer_id, epoch, -1, "", None, [topic])
            await self._of_group(client, group, message, _TXN_COMMIT_ADDS if self._adds else _TXN_COMMIT)
        if source.random() < 0.3:
            await asyncio.sleep(source.uniform(0.0, 0.4))
        is_commit = source.random() < 0.65
        if is_commit:
            commit.outcome = TransactionOutcome.UNKNOWN
        end = wire.EndTxnRequest(self.name, producer_id, epoch, is_commit)
        answer = await self._of_coordinator(client, end, _END_BUMPS if self._adds else _END)
        if self._adds:
            self._producer = (answer.producer_id, answer.producer_epoch)
        if is_commit:
            self._history.is_committed(commit, is_visible=False)
        else:
            commit.outcome = TransactionOutcome.ABORTED

    async def _plainly(self, client: SimKafkaClient, source: random.Random) -> None:
        """Without a transaction. A request without an answer may arrive later, and set back what was committed since, as in Kafka: so this
        waits for the answer to the first one, or the group gets no other."""
        group = source.choice(sorted(self.groups))
        commit, offsets = self._begin([group], source)
        commit.outcome = TransactionOutcome.UNKNOWN
        request = wire.OffsetCommitRequest
        some = offsets[group]
        parts = [request.OffsetCommitRequestPartition(key.partition, at, -1, -1, "") for key, at in some.items()]
        topic = request.OffsetCommitRequestTopic(name=next(iter(some)).topic, partitions=parts)
        message = request(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        try:
            await self._of_group(client, group, message, _COMMIT)
        except Unanswered:
            del self.groups[group]
            self._renew(group)
            raise
        self._history.is_committed(commit, is_visible=True)

    def _renew(self, group: str) -> None:
        """Another group takes the place of this one."""
        name = f"{group}'"
        topic = next(topic for topic in self._plan.topics if topic != LONE)
        self.groups[name] = [OffsetKey(name, topic, number) for number in range(self._plan.topics[topic])]

    async def _of_group(self, client: SimKafkaClient, group: str, message: Any, version: int) -> None:
        """Ask the group's coordinator until all is done. Raises Refused, Unanswered (perhaps it was done)."""
        code = 0
        for _ in range(_ATTEMPTS):
            answer = await client.ask(await client.group_coordinator(group), message, version)
            codes = {each.error_code for topic in answer.topics for each in topic.partitions} - {NONE}
            if not codes:
                return
            code = min(codes)
            if not codes <= RETRIABLE:
                raise Refused(type(message).__name__, code)
            await asyncio.sleep(_PAUSE_S)
        raise Unanswered(f"{type(message).__name__}: {code}")


class OffsetReader:
    """Reads what the groups have committed, in turn, with and without waiting for transactions."""

    def __init__(self, name: str, plan: Plan, history: CommittedOffsets, has_former: Callable[[str], bool]) -> None:
        self.name = name
        self._plan = plan
        self._history = history
        self._has_former = has_former

    async def run(self, env: Env) -> None:
        """The program; it never ends."""
        client = SimKafkaClient(self._plan, env)
        while True:
            groups = sorted({key.group for key in self._history.keys})
            if groups:
                with suppress(Unanswered):
                    await self.read(client, env.random.choice(groups), is_stable=env.random.random() < 0.6)
            await asyncio.sleep(env.random.uniform(0.02, 0.2))

    async def read(self, client: SimKafkaClient, group: str, *, is_stable: bool) -> set[OffsetKey]:
        """The partitions whose offsets the group's coordinator has shown. Raises Unanswered, Violation."""
        keys = [key for key in self._history.keys if key.group == group]
        floors = {key: self._history.floor(key) for key in keys}
        is_former = self._has_former(group)
        found = await read_offsets(client, group, [key[1:] for key in keys], is_stable=is_stable)
        for key in keys:
            offset = found.get(key[1:])
            if offset is not None:
                self._history.read(key, offset, floors[key], is_stable=is_stable, may_be_former=is_former)
        return {key for key in keys if key[1:] in found}


class CommittingProducers:
    """None where the plan has none."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._plan = simulation.plan
        self.history = CommittedOffsets()
        self._has_former = partial(has_former_coordinator, simulation)
        self._producers: list[OffsetProducer] = []
        self._left: set[OffsetKey] | None = None

    def start(self) -> None:
        """Start the producers and the readers."""
        if not self._plan.commits:
            return
        world = self._simulation.world
        for number in range(1, self._plan.commits + 1):
            producer = OffsetProducer(f"offsets{number}", self._plan, self.history)
            self._producers.append(producer)
            world.start(producer.name, producer.run, self._simulation.client_ended)
        for number in (1, 2):
            reader = OffsetReader(f"offset-reader{number}", self._plan, self.history, self._has_former)
            world.start(reader.name, reader.run, self._simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: each producer ends its transaction."""
        for producer in self._producers:
            producer.stopping.set()

    def stats(self) -> dict[str, int]:
        if not self._plan.commits:
            return {}
        count = self.history.count
        return {
            "offsets_committed": count(TransactionOutcome.COMMITTED),
            "offsets_aborted": count(TransactionOutcome.ABORTED),
            "offset_reads": self.history.reads,
        }

    def promises(self) -> list[Promise]:
        return [Promise("committed offsets can be read when the faults are over", self._missing)]

    def _missing(self) -> str | None:
        """Which producer waits, or which offset has not been read by somebody who began when all of them were done."""
        for producer in self._producers:
            if not producer.done:
                return f"{producer.name} waits for the cluster"
        if self._producers and self._left is None:
            self._left = set(self.history.keys)
            self._simulation.world.start("offset-judge", self._read_twice, self._simulation.client_ended)
        return f"{min(self._left)} cannot be read" if self._left else None

    async def _read_twice(self, env: Env) -> None:
        """Read everything twice: stable, and then as it is. Both see all that was committed."""
        assert self._left is not None
        client = SimKafkaClient(self._plan, env)
        reader = OffsetReader("judge", self._plan, self.history, self._has_former)
        for group in sorted({key.group for key in self._left}):
            missing = {key for key in self._left if key.group == group}
            while missing:
                try:
                    missing -= await reader.read(client, group, is_stable=True)
                except Unanswered:
                    await asyncio.sleep(0.2)
            self._left = {key for key in self._left if key.group != group}
        client.close()
