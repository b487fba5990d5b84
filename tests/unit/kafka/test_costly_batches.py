"""Batches of compacted topics that nobody knows the size of: looked through off the loop, in the producer's order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.kafka.handlers import data
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.compression import Codec

from .conftest import Broker, batch, produce


def _zstd(*keys: bytes | None) -> bytes:
    builder = RecordBatchBuilder(Codec.ZSTD)
    for key in keys:
        builder.append(key, b"x" * 1000)
    return bytes(builder.build())


async def test_a_compressed_batch_is_checked_in_a_thread_and_those_behind_it_wait(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t")
    broker.services.partitions.compacted["t"] = 1_000_000
    client = await broker.client()
    may_go_on, threads = threading.Event(), []
    real: Callable[..., None] = data.check_keys

    def slow(records: bytes, limit: int) -> None:
        threads.append(threading.current_thread())
        assert may_go_on.wait(30)
        real(records, limit)

    monkeypatch.setattr(data, "check_keys", slow)
    client.send(produce("t", (0, _zstd(b"a", b"b"))), 9)
    client.send(produce("t", (0, batch(b"c"))), 9)
    while not threads:
        await asyncio.sleep(0.001)
    # Somebody else is served meanwhile.
    other = await broker.client()
    assert (await other.ask(wire.ApiVersionsRequest("x", "1"), 3)).error_code == 0
    assert not broker.services.partitions.logs[TopicPartition("t", 0)].batches
    may_go_on.set()
    answers = [(await client.receive())[1] for _ in range(2)]
    assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == [0, 2]
    assert threads[0] is not threading.main_thread()


async def test_a_record_without_a_key_and_damage_are_refused_and_others_of_the_request_are_not(broker: Broker) -> None:
    await broker.create("t", 3)
    broker.services.partitions.compacted["t"] = 1_000_000
    client = await broker.client()
    answer = await client.ask(produce("t", (0, _zstd(b"a", None)), (1, _zstd(b"a")), (2, batch(b"v"))), 9)
    assert {part.index: part.error_code for part in answer.responses[0].partition_responses} == {
        0: ErrorCode.INVALID_RECORD,
        1: 0,
        2: 0,
    }
