"""Transactional producers and a read_committed reader in a simulated cluster, over the Kafka protocol.

The producer is an old one (no KIP-890): it names partitions to the coordinator, and its epoch goes up only when it gives up. Now
and then a network path holds up one of its batches: the client gives up on it, aborts, and the batch arrives when
the transaction is over. Or a batch that was acknowledged arrives a second time. Or the client aborts, keeps its epoch, and gives the
sequence of a batch that the log has to the next transaction.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from kafkalite.env.seams import Env
from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.record.batch import split_batches
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.reader import end_transaction_marker_of, records_of
from kafkalite.testing.simulation.checkers.transactions import KnownTransaction, TransactionHistory, TransactionOutcome
from kafkalite.testing.simulation.plan import KEYED, LEDGER, FaultKind, Plan
from kafkalite.testing.simulation.workloads.kafka import (
    NONE,
    RETRIABLE,
    Refused,
    SimKafkaClient,
    Unanswered,
    produce_request,
)

_TRANSACTION_TIMEOUT_MS = 8_000
_KEYS = 5
#: Where keys come to an end: transactions until there are others. In the second half of them they are deleted.
_LIFE = 12
_KEYS_END = frozenset({FaultKind.AWAY, FaultKind.FIRST_COPY})
#: The protocol's versions of a client before KIP-890.
_PRODUCE, _ADD, _END, _INIT, _FETCH = 9, 3, 3, 4, 11
#: The repetitions of a request before the client gives up.
_ATTEMPTS = 12
_PAUSE_S = 0.2


class _GivenUp(Exception):
    """The transaction cannot be committed any more."""


class TransactionWorkload:
    """One transactional id, one transaction after the other until it is stopped."""

    def __init__(self, name: str, plan: Plan, history: TransactionHistory) -> None:
        self.name = name
        self._plan = plan
        self._history = history
        self.stopping = asyncio.Event()
        self.done = False
        self._count = 0
        self._producer = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}
        self._late: list[tuple[KnownTransaction, str, Any]] = []

    async def run(self, env: Env) -> None:
        """The program."""
        source = env.random
        client = SimKafkaClient(self._plan, env)
        is_open = False
        while not (self.stopping.is_set() and not is_open):
            try:
                if not is_open:
                    await self._init(client)
                    is_open = True
                if self.stopping.is_set():
                    break
                await self._transaction(client, env, source)
            except (Unanswered, Refused, _GivenUp):
                is_open = False  # an epoch more, which aborts what is open
            await self._late_ones(client, source, at_most=1)
            await asyncio.sleep(source.uniform(0.02, 0.6))
        self.done = True
        await self._late_ones(client, source, at_most=100)
        client.close()

    # --- steps -----------------------------------------------------------------------------------

    async def _init(self, client: SimKafkaClient) -> None:
        request = wire.InitProducerIdRequest(self.name, _TRANSACTION_TIMEOUT_MS)
        answer = await self._of_coordinator(client, request, _INIT)
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._sequences.clear()
        for each in self._history.transactions:
            # This aborts an open transaction, unless its commit was requested.
            if each.name.startswith(f"{self.name}.") and each.outcome is TransactionOutcome.OPEN:
                each.outcome = TransactionOutcome.ABORTED

    async def _of_coordinator(self, client: SimKafkaClient, request: Any, version: int) -> Any:
        """Raises Refused, Unanswered."""
        return await client.ask_transaction_coordinator(self.name, request, version, _ATTEMPTS, _PAUSE_S)

    async def _transaction(self, client: SimKafkaClient, env: Env, source: random.Random) -> None:
        self._count += 1
        transaction = self._history.begin(f"{self.name}.{self._count}")
        where = source.sample(self._places(), source.choice((1, 1, 2)))
        await self._add(client, where)
        sent: list[tuple[str, Any]] = []
        held_up = purged = False
        for topic, partition in where:
            for _ in range(source.choice((1, 1, 2))):
                sequence = self._sequences.get((topic, partition), 0)
                request = self._batch(env, transaction, topic, partition, source)
                if source.random() < 0.08 and self._plan.late_batches:
                    # Still under way: the client gives up on it.
                    self._late.append((transaction, f"{topic}-{partition}", request))
                    held_up = True
                    break
                await self._produce(client, topic, partition, request)
                sent.append((f"{topic}-{partition}", request))
                if source.random() < 0.05:
                    # As librdkafka: the response counts as lost, the abort takes the batch out of the queue.
                    self._sequences[topic, partition] = sequence
                    purged = True
                    break
        commit = not held_up and not purged and source.random() < 0.7
        if commit:
            transaction.outcome = TransactionOutcome.UNKNOWN
        await self._end(client, commit=commit)
        transaction.outcome = TransactionOutcome.COMMITTED if commit else TransactionOutcome.ABORTED
        if sent and source.random() < 0.1 and self._plan.late_batches:
            self._late.append((transaction, *source.choice(sent)))
        if held_up:
            raise _GivenUp

    def _places(self) -> list[tuple[str, int]]:
        topics = {LEDGER: self._plan.ledger_partitions, **({KEYED: 1} if self._plan.keyed else {})}
        return [(topic, number) for topic, count in topics.items() for number in range(count)]

    async def _add(self, client: SimKafkaClient, where: list[tuple[str, int]]) -> None:
        request = wire.AddPartitionsToTxnRequest
        topics = [
            request.AddPartitionsToTxnTopic(topic, [number for name, number in where if name == topic])
            for topic in sorted({name for name, _ in where})
        ]
        message = request(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=topics,
        )
        await self._of_coordinator(client, message, _ADD)

    def _batch(
        self, env: Env, transaction: KnownTransaction, topic: str, partition: int, source: random.Random
    ) -> wire.ProduceRequest:
        sequence = self._sequences.get((topic, partition), 0)
        builder = RecordBatchBuilder(
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        count = source.choice((1, 1, 3))
        for number in range(count):
            record = f"{transaction.name}/{sequence + number}/{partition}/{topic}"
            value: bytes | None = record.encode() + b" " * source.randrange(200)
            key = None
            if topic == KEYED:
                # The record's name is in the key's place of a header, so that a deletion has one, too.
                key = f"{self.name}-{source.randrange(_KEYS)}"
                is_end = False
                if any(fault.kind in _KEYS_END for fault in self._plan.faults):
                    key, is_end = f"{self._count // _LIFE}-{key}", self._count % _LIFE >= _LIFE // 2
                if source.random() < 0.25 or is_end:
                    value = None
                self._history.writes((topic, partition), key, record, is_delete=value is None)
            self._history.sends(transaction, (topic, partition), record)
            headers = (("name", record.encode()),)
            builder.append(None if key is None else key.encode(), value, headers, env.clock.wall_ms())
        self._sequences[topic, partition] = sequence + count
        return produce_request(topic, partition, builder.build(), self.name)

    async def _produce(self, client: SimKafkaClient, topic: str, partition: int, request: Any) -> None:
        for _ in range(_ATTEMPTS):
            try:
                host = await client.leader(topic, partition)
                answer = await client.ask(host, request, _PRODUCE)
            except Unanswered:
                client.forget_leader(topic, partition)
                await asyncio.sleep(_PAUSE_S)
                continue
            code = answer.responses[0].partition_responses[0].error_code
            if code in (NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                return
            if code not in RETRIABLE:
                raise Refused("Produce", code)
            client.forget_leader(topic, partition)
            await asyncio.sleep(_PAUSE_S)
        raise _GivenUp

    async def _end(self, client: SimKafkaClient, *, commit: bool) -> None:
        request = wire.EndTxnRequest(self.name, *self._producer, commit)
        await self._of_coordinator(client, request, _END)

    async def _late_ones(self, client: SimKafkaClient, source: random.Random, *, at_most: int) -> None:
        """A delayed request arrives, on its own connection, when its transaction is over."""
        for _ in range(min(at_most, len(self._late))):
            transaction, _, request = self._late[0]
            if transaction.outcome is TransactionOutcome.OPEN or (at_most == 1 and source.random() < 0.5):
                return
            self._late.pop(0)
            topic = request.topic_data[0]
            try:
                host = await client.leader(topic.name, topic.partition_data[0].index)
                answer = await client.ask_apart(host, request, _PRODUCE)
            except Unanswered:
                client.forget_leader(topic.name, topic.partition_data[0].index)
                continue
            if answer.responses[0].partition_responses[0].error_code == NONE:
                self._history.late_taken += 1
            else:
                self._history.late_refused += 1


class CommittedReader:
    """Reads every partition of the transactional topics with read_committed, from the beginning, for ever."""

    def __init__(self, plan: Plan, history: TransactionHistory) -> None:
        self.name = "reader"
        self._plan = plan
        self._history = history

    async def run(self, env: Env) -> None:
        """The program."""
        client = SimKafkaClient(self._plan, env)
        positions = {(LEDGER, number): 0 for number in range(self._plan.ledger_partitions)}
        if self._plan.keyed:
            positions[KEYED, 0] = 0
        while True:
            for (topic, partition), position in list(positions.items()):
                if env.random.random() < 0.03:
                    position = 0  # another reader, which begins at the beginning
                try:
                    positions[topic, partition] = await self._read(client, topic, partition, position)
                except Unanswered:
                    client.forget_leader(topic, partition)
            await asyncio.sleep(env.random.uniform(0.1, 0.6))

    async def _read(self, client: SimKafkaClient, topic: str, partition: int, position: int) -> int:
        answer = await fetch_committed(client, topic, partition, position)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and topic == KEYED:
            return max(position, int(answer.log_start_offset))
        if answer.error_code != NONE:
            client.forget_leader(topic, partition)
            return position
        records, position = committed_records(answer, position)
        for offset, record in records:
            self._history.visible((topic, partition), offset, record)
        return position


async def fetch_committed(client: SimKafkaClient, topic: str, partition: int, position: int) -> Any:
    """One partition's part of the answer. Raises Unanswered."""
    request = wire.FetchRequest
    one = request.FetchPartition(partition, fetch_offset=position, partition_max_bytes=50_000)
    topics = [request.FetchTopic(topic=topic, partitions=[one])]
    message = request(max_wait_ms=10, min_bytes=0, isolation_level=1, topics=topics)
    answer = await client.ask(await client.leader(topic, partition), message, _FETCH)
    if answer.error_code != NONE:
        raise Unanswered(f"Fetch: {answer.error_code}")
    return answer.responses[0].partitions[0]


def committed_records(answer: Any, position: int) -> tuple[list[tuple[int, str]], int]:
    """(offset, name) of what a read_committed reader shows from `position` on, and its next position (KIP-98)."""
    to_come = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
    aborting: set[int] = set()
    found: list[tuple[int, str]] = []
    data = bytes(answer.records or b"")
    for at, header in split_batches(data):
        while to_come and to_come[0][0] <= header.base_offset:
            aborting.add(to_come.pop(0)[1])
        if header.next_offset <= position:
            continue
        if header.is_control:
            marker = end_transaction_marker_of(data, at, header)
            if marker is not None and not marker.commit:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            for record in records_of(data, at, header):
                if record.offset >= position:
                    found.append((record.offset, (dict(record.headers)["name"] or b"").decode()))
        position = header.next_offset
    return found, position
