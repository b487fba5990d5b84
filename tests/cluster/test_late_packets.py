"""Batches that arrive when their transaction is over, at a leader that has to ask another node: none is ever visible."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.blocking import BlockingClientConfig
from kafkalite.client.transactions import GroupVersion, TransactionalClient
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.extension.messages.transactions import TransactionMember
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire
from kafkalite.record.batch import split_batches
from kafkalite.record.reader import records_of
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster
from tests.unit.kafka.conftest import batch, fetch, produce

from .test_compacted_coordinators import _RETRY, Cluster, Transactional, until_true

pytestmark = [pytest.mark.cluster]

_SETTINGS = {"http.port": -1, "transaction.state.log.num.partitions": 1}
_TRANSACTIONS = 40


class Late(Transactional):
    """A producer of which packets are held up. `version` of Produce."""

    version = 11

    def records(self, value: bytes, sequence: int) -> Any:
        written = batch(
            value, producer_id=self.id, producer_epoch=self.epoch, base_sequence=sequence, transactional=True
        )
        return produce("t", (0, written), transactional_id=self.name)

    async def send(self, value: bytes) -> int:
        async def taken() -> list[int] | None:
            answer = await self.leader.ask(self.records(value, self.sequence), self.version)
            code = int(answer.responses[0].partition_responses[0].error_code)
            return None if code in (*_RETRY, ErrorCode.NOT_ENOUGH_REPLICAS) else [code]

        [code] = await until_true("a batch", taken)
        self.sequence += not code
        return int(code)

    async def finish(self, *, committed: bool) -> int:
        if self.version < 12:
            return await super().finish(committed=committed)

        async def end() -> Any:
            request = wire.EndTxnRequest(self.name, self.id, self.epoch, committed)
            answer = await self.client.ask(request, 5)
            return None if answer.error_code in _RETRY else answer

        answer = await until_true("the end of a transaction", end)
        if not answer.error_code:
            assert (answer.producer_id, answer.producer_epoch) == (self.id, self.epoch + 1)
            self.epoch, self.sequence = answer.producer_epoch, 0
        return int(answer.error_code)


async def committed_values(client: FrameClient) -> tuple[list[bytes], int, int]:
    """What a read_committed reader sees, the last stable offset and the high watermark."""
    values: list[bytes] = []
    aborting: set[int] = set()
    offset = 0
    while True:
        answer = await client.ask(fetch("t", offset, isolation_level=1), 11)
        [part] = answer.responses[0].partitions
        assert part.error_code == 0
        data = bytes(part.records)
        aborted = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ())
        for position, header in split_batches(data):
            if header.next_offset <= offset:
                continue
            offset = header.next_offset
            while aborted and aborted[0][0] <= header.base_offset:
                aborting.add(aborted.pop(0)[1])
            if header.is_control:
                aborting.discard(header.producer_id)
            elif header.producer_id not in aborting:
                values += [record.value or b"" for record in records_of(data, position, header)]
        if not data:
            return values, part.last_stable_offset, part.high_watermark


@pytest.mark.parametrize("version", [11, 12])
async def test_nothing_late_is_visible(tmp_path: Path, version: int) -> None:
    source = random.Random(version)
    with ProcessCluster(tmp_path, nodes=3, settings=_SETTINGS) as processes:
        cluster = Cluster(processes)
        any_node = await cluster.client(1)
        owner, transactions = await cluster.coordinator("x", 1)
        order = [owner % 3 + 1, owner]  # led by a node that does not coordinate
        request = wire.CreateTopicsRequest
        assignment = request.CreatableReplicaAssignment(0, order)
        created = await any_node.ask(request([request.CreatableTopic("t", -1, -1, [assignment])], 30_000), 4)
        assert created.topics[0].error_code == 0
        producer = Late(cluster, transactions, await cluster.leader("t"), "x")
        producer.version = version
        stray = await cluster.client(order[0])
        assert await producer.start() == 0
        wanted = []
        for number in range(_TRANSACTIONS):
            if version < 12:
                assert await producer.add() == 0
            value = b"%d" % number
            assert await producer.send(value) == 0
            held_up = producer.records(b"late " + value, producer.sequence)
            is_commit = number % 4 == 3
            ending = asyncio.ensure_future(producer.finish(committed=is_commit))
            if is_commit:
                wanted.append(value)
            else:  # on its way somewhere, and there about when the marker is, or later
                await asyncio.sleep(source.choice([0, 0, 0.001, 0.003, 0.01]))
                answer = await stray.ask(held_up, version)
                code = answer.responses[0].partition_responses[0].error_code
                # In time for the abort, or refused: nothing else.
                producer.sequence += not code
                assert code in (
                    0,
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    ErrorCode.INVALID_TXN_STATE,
                    ErrorCode.TRANSACTION_ABORTABLE,
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                )
            assert await ending == 0
            if version >= 12:
                producer.sequence = 0

        async def readable() -> list[bytes] | None:
            values, stable, end = await committed_values(producer.leader)
            return values if stable == end and values[-1:] == wanted[-1:] else None

        assert await until_true("all transactions ended", readable) == wanted
        await cluster.close()


async def test_the_native_client_is_verified_too(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=3, settings=_SETTINGS) as processes:
        async with AsyncClient.connect(processes.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 3)])
        config = BlockingClientConfig(",".join(processes.bootstrap), delivery_timeout_ms=60_000)
        await asyncio.to_thread(_native, config)


def _native(config: BlockingClientConfig) -> None:
    tp = TopicPartition("t", 0)
    with TransactionalClient(config) as client:

        def begin(version: GroupVersion) -> TransactionMember:
            begun = client.begin_transaction(version, "a", transaction_timeout_ms=60_000)
            assert isinstance(begun, TransactionMember)
            return begun

        def write(member: TransactionMember, sequence: int) -> ErrorCode:
            records = batch(
                b"v",
                producer_id=member.producer_id,
                producer_epoch=member.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
            try:
                client.produce_many({tp: bytes(records)}, transactional_id=member.transactional_id)
            except ApiError as error:
                return error.code
            return ErrorCode.NONE

        first = GroupVersion("g", "test", 0)
        member = begin(first)
        assert write(member, 0) is ErrorCode.TRANSACTION_ABORTABLE
        client.add_partitions(member, [tp])
        assert write(member, 0) is ErrorCode.NONE
        client.commit_group(first, [member], wait_ms=20_000)
        assert write(member, 1) is ErrorCode.TRANSACTION_ABORTABLE
        second = GroupVersion("g", "test", 1)
        member = begin(second)
        client.add_partitions(member, [tp])
        assert write(member, 0) is ErrorCode.NONE
        client.abort_group(second, [member])
        sequence = 1
        while (refusal := write(member, sequence)) is ErrorCode.NONE:
            sequence += 1  # the marker is on its way, and aborts this record, too
        assert refusal is ErrorCode.INVALID_PRODUCER_EPOCH
