"""Batches of compacted topics that nobody knows the size of: looked through off the loop, in the producer's order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.config import TopicConfig
from kafkalite.errors import ErrorCode
from kafkalite.kafka.handlers import producing
from kafkalite.log.record_checks import prepare
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire
from kafkalite.record.batch import split_batches
from kafkalite.record.builder import RecordBatchBuilder, encode_batch
from kafkalite.record.compression import Codec
from kafkalite.record.reader import read_records
from tests.support.waiting import until

from .conftest import Broker, batch, fetch, produce
from .test_newer_versions import topic_id


def _zstd(*keys: bytes | None) -> bytes:
    builder = RecordBatchBuilder(Codec.ZSTD)
    for key in keys:
        builder.append(key, b"x" * 1000)
    return bytes(builder.build())


async def test_a_compressed_batch_is_checked_in_a_thread_and_those_behind_it_wait(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t")
    broker.services.partitions.configs["t"] = TopicConfig(cleanup_policy="compact")
    client = await broker.client()
    may_go_on, threads = threading.Event(), []
    real: Callable[..., Any] = prepare

    def slow(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        assert may_go_on.wait(30)
        return real(*arguments)

    monkeypatch.setattr(producing, "prepare", slow)
    client.send(produce("t", (0, _zstd(b"a", b"b"))), 9)
    client.send(produce("t", (0, batch(b"c"))), 9)
    await until(lambda: threads)
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
    broker.services.partitions.configs["t"] = TopicConfig(cleanup_policy="compact")
    client = await broker.client()
    answer = await client.ask(produce("t", (0, _zstd(b"a", None)), (1, _zstd(b"a")), (2, batch(b"v"))), 9)
    assert {part.index: part.error_code for part in answer.responses[0].partition_responses} == {
        0: ErrorCode.INVALID_RECORD,
        1: 0,
        2: 0,
    }


async def test_each_wrong_record_is_named(broker: Broker) -> None:
    """KIP-467: a client must not blame a hundred records for one."""
    await broker.create("t", 2)
    broker.services.partitions.configs["t"] = TopicConfig(cleanup_policy="compact")
    client = await broker.client()
    answer = await client.ask(produce("t", (0, _zstd(b"a", None, b"c", None)), (1, _zstd(b"a"))), 9)
    wrong, right = answer.responses[0].partition_responses
    assert [each.batch_index for each in wrong.record_errors] == [1, 3]
    assert all("without a key" in each.batch_index_error_message for each in wrong.record_errors)
    assert wrong.error_message and not right.record_errors and not right.error_code


async def test_content_that_is_not_what_the_codec_says_is_refused(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    whole = _zstd(b"a", b"b")
    torn = bytearray(encode_batch(
        whole[61:-3], record_count=2, last_offset_delta=1, attributes=int(Codec.ZSTD), base_timestamp=0, max_timestamp=0
    ))  # fmt: skip
    answer = await client.ask(produce("t", (0, torn)), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
    answer = await client.ask(produce("t", (0, whole)), 9)
    assert answer.responses[0].partition_responses[0].base_offset == 0


async def test_a_topic_chooses_the_compression(broker: Broker) -> None:
    await broker.create("t")
    broker.services.partitions.configs["t"] = TopicConfig(compression_type="gzip", compression_gzip_level=1)
    client = await broker.client()
    for records in (_zstd(b"a", b"b"), batch(b"c")):
        answer = await client.ask(produce("t", (0, records)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    fetched = (await client.ask(fetch("t"), 11)).responses[0].partitions[0].records
    headers = [header for _, header in split_batches(fetched)]
    assert [header.compression for header in headers] == [Codec.GZIP, Codec.GZIP]
    assert [record.key for record in read_records(fetched)] == [b"a", b"b", None]


async def test_a_topic_made_again_meanwhile_does_not_get_the_records_of_the_one_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer named the topic by its id. To look into a batch may take seconds."""
    await broker.create("t")
    broker.services.partitions.configs["t"] = TopicConfig(cleanup_policy="compact")
    client, other = await broker.client(), await broker.client()
    known = await topic_id(client, "t")
    may_go_on, begun = threading.Event(), threading.Event()
    real: Callable[..., Any] = prepare

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert may_go_on.wait(30)
        return real(*arguments)

    monkeypatch.setattr(producing, "prepare", slow)
    request = produce("", (0, _zstd(b"a")))
    request.topic_data[0].topic_id = known
    client.send(request, 13)
    await until(begun.is_set)
    assert (
        not (await other.ask(wire.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)).responses[0].error_code
    )
    await broker.create("t")
    assert await topic_id(other, "t") != known
    may_go_on.set()
    _, answer = await client.receive()
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert not broker.services.partitions.logs[TopicPartition("t", 0)].batches
