"""Produce, Fetch, ListOffsets and their kin, in their versions, with Kafka's error codes."""

from __future__ import annotations

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.kafka.handlers.producing import records_error
from kafkalite.model import NO_TOPIC_ID, Buffer, TopicPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.record.builder import end_transaction_marker
from kafkalite.record.compression import Codec
from kafkalite.record.reader import read_records
from tests.support.memory_partitions import MemoryPartitions

from .conftest import Broker, batch, fetch, produce


@pytest.mark.parametrize("version", range(3, 12))
async def test_produce_in_every_version(broker: Broker, version: int) -> None:
    await broker.create("t", 2)
    client = await broker.client()
    answer = await client.ask(produce("t", (0, batch(b"a", b"b")), (1, batch(b"c"))), version)
    [topic] = answer.responses
    assert [(part.index, part.error_code, part.base_offset) for part in topic.partition_responses] == [
        (0, 0, 0),
        (1, 0, 0),
    ]


@pytest.mark.parametrize("version", range(4, 18))
async def test_fetch_in_every_version(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    await client.ask(produce("t", (0, batch(b"a", b"b"))), 9)
    request = fetch("t", 1)
    topic_id = broker.services.metadata(["t"]).topics[0].topic_id
    request.topics[0].topic_id = topic_ids.to_wire(topic_id)
    answer = await client.ask(request, version)
    [part] = answer.responses[0].partitions
    assert (part.error_code, part.high_watermark) == (0, 2)
    assert [record.value for record in read_records(part.records)] == [b"a", b"b"]  # whole batches


async def test_an_unknown_topic_id(broker: Broker) -> None:
    client = await broker.client()
    request = fetch("")
    request.topics[0].topic_id = bytes(range(16))
    answer = await client.ask(request, 13)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert answer.responses[0].topic_id == bytes(range(16))


async def test_what_a_broken_producer_is_told(broker: Broker) -> None:
    await broker.create("t", 1)
    client = await broker.client()

    async def error(
        records: Buffer | None, version: int = 9, topic: str = "t", partition: int = 0, acks: int = -1
    ) -> int:
        answer = await client.ask(produce(topic, (partition, records), acks=acks), version)
        return int(answer.responses[0].partition_responses[0].error_code)

    good = batch(b"a")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    old = bytearray(good)
    old[16] = 1
    assert await error(None) == ErrorCode.INVALID_RECORD
    assert await error(b"") == ErrorCode.INVALID_RECORD
    assert await error(good[:50]) == ErrorCode.INVALID_RECORD
    assert await error(good[:-1]) == ErrorCode.INVALID_RECORD
    assert await error(bytes(flipped)) == ErrorCode.CORRUPT_MESSAGE
    assert await error(bytes(old)) == ErrorCode.INVALID_RECORD
    assert await error(bytes(good + good)) == ErrorCode.INVALID_RECORD
    nobodys = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert await error(nobodys) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await error(end_transaction_marker(1, 0, commit=True, coordinator_epoch=0, timestamp_ms=0)) != 0
    assert await error(batch(b"a" * 500, compression=Codec.ZSTD), 6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert await error(batch(b"a" * 500, compression=Codec.ZSTD), 7) == 0
    assert await error(good, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await error(good, partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await error(good, topic="__consumer_offsets") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await error(good, acks=2) == ErrorCode.INVALID_REQUIRED_ACKS


_BATCH = bytes(batch(b"a"))


@pytest.mark.parametrize(
    ("records", "code"),
    [
        *((_BATCH[:cut], ErrorCode.INVALID_RECORD) for cut in (1, 11, 12, 16, 17, 20, 60, 61, len(_BATCH) - 1)),
        (_BATCH + _BATCH, ErrorCode.INVALID_RECORD),
        (_BATCH[:16] + b"\x00" + _BATCH[17:], ErrorCode.INVALID_RECORD),
        *((_BATCH[:16] + magic + _BATCH[17:], ErrorCode.CORRUPT_MESSAGE) for magic in (b"\x03", b"\xff")),
        *((_BATCH[:8] + size.to_bytes(4) + _BATCH[12:], ErrorCode.CORRUPT_MESSAGE) for size in (0, 13, 14, 48)),
        (_BATCH[:8] + (len(_BATCH) - 11).to_bytes(4) + _BATCH[12:], ErrorCode.INVALID_RECORD),
        (_BATCH, ErrorCode.NONE),
    ],
)
def test_a_batch_that_is_not_whole_is_refused_as_by_kafka(records: bytes, code: ErrorCode) -> None:
    """As Apache Kafka 4.4.0 does. Clients send again what gets CORRUPT_MESSAGE, and a batch that is cut short stays so."""
    assert records_error(records, 9) is code


async def test_one_bad_partition_does_not_fail_the_others(broker: Broker) -> None:
    await broker.create("t", 3)
    client = await broker.client()
    answer = await client.ask(produce("t", (0, batch(b"a")), (1, b"junk"), (2, batch(b"c"))), 9)
    codes = [part.error_code for part in answer.responses[0].partition_responses]
    assert codes == [0, ErrorCode.INVALID_RECORD, 0]
    assert broker.services.partitions.logs[TopicPartition("t", 1)].log_end_offset == 0


async def test_a_partition_named_twice_in_a_produce_is_refused(broker: Broker) -> None:
    """Each answer has one offset for the partition, so neither batch is written. (Kafka writes the second one only.)"""
    await broker.create("t", 2)
    client = await broker.client()
    answer = await client.ask(produce("t", (0, batch(b"a")), (1, batch(b"b")), (0, batch(b"c"))), 9)
    found = [(part.index, part.error_code, part.base_offset) for part in answer.responses[0].partition_responses]
    assert found == [(0, ErrorCode.INVALID_REQUEST, -1), (1, 0, 0), (0, ErrorCode.INVALID_REQUEST, -1)]
    request = produce("t", (1, batch(b"d")))
    request.topic_data = [*request.topic_data, *produce("t", (1, b"junk")).topic_data]
    answer = await client.ask(request, 9)
    assert [topic.partition_responses[0].error_code for topic in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
    ends = [broker.services.partitions.logs[TopicPartition("t", number)].log_end_offset for number in (0, 1)]
    assert ends == [0, 1]


@pytest.mark.checklist("F25")
async def test_an_idempotent_producers_retry_is_answered_with_the_first_offset(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    first = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    offsets = []
    for records in (first, first, batch(b"c", producer_id=5, producer_epoch=0, base_sequence=2)):
        answer = await client.ask(produce("t", (0, bytes(records))), 9)
        offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert offsets == [0, 0, 2]
    gap = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=9)
    answer = await client.ask(produce("t", (0, gap)), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_fetch_errors(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    beyond = await client.ask(fetch("t", 5, max_wait_ms=10_000), 12)
    assert beyond.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    unknown = await client.ask(fetch("nowhere", max_wait_ms=10_000), 12)
    assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    session = await client.ask(fetch("t", session_id=77, session_epoch=3), 12)
    assert (session.error_code, session.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    assert (await client.ask(wire.FetchRequest(), 12)).responses == []


@pytest.mark.parametrize("version", range(10))
async def test_list_offsets(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    await client.ask(produce("t", (0, batch(b"a", b"b", b"c"))), 9)
    request = wire.ListOffsetsRequest

    async def listed(timestamp: int) -> tuple[int, int]:
        part = request.ListOffsetsPartition(0, timestamp=timestamp)
        answer = await client.ask(request(-1, topics=[request.ListOffsetsTopic("t", [part])]), version)
        [part] = answer.topics[0].partitions
        return int(part.error_code), (list(part.old_style_offsets) or [-1])[0] if version == 0 else part.offset

    assert await listed(-1) == (0, 3)
    assert await listed(-2) == (0, 0)
    assert await listed(1_000) == (0, 0)
    assert await listed(1_001) == (0, -1)


@pytest.mark.parametrize("level", [-1, 2])
async def test_there_are_two_isolation_levels(broker: Broker, level: int) -> None:
    """As Kafka 4.4.0 answers."""
    await broker.create("t")
    client = await broker.client()
    for version in (11, 12):
        read = await client.ask(fetch("t", isolation_level=level), version)
        [part] = read.responses[0].partitions
        assert (read.error_code, part.error_code) == (ErrorCode.UNKNOWN_SERVER_ERROR,) * 2
    many = fetch("t", isolation_level=level)
    many.topics[0].partitions *= 1_001
    assert (await client.ask(many, 12)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    request = wire.ListOffsetsRequest
    topics = [request.ListOffsetsTopic("t", [request.ListOffsetsPartition(0, timestamp=-1)])]
    asked = await client.ask(request(-1, level, topics), 7)
    assert asked.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_leader_epoch_below_zero_is_none(broker: Broker) -> None:
    await broker.create("t")
    request = fetch("t")
    request.topics[0].partitions[0].current_leader_epoch = -2
    answer = await (await broker.client()).ask(request, 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE


async def test_what_list_offsets_names_twice_is_not_looked_up(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create("t")
    client = await broker.client()
    await client.ask(produce("t", (0, batch(b"a"))), 9)
    looked_up: list[int] = []
    monkeypatch.setattr(MemoryPartitions, "_list_one", lambda *asked: looked_up.append(1))
    request = wire.ListOffsetsRequest
    parts = [request.ListOffsetsPartition(0, timestamp=1000)] * 2
    answer = await client.ask(request(-1, topics=[request.ListOffsetsTopic("t", parts)]), 7)
    assert [part.error_code for part in answer.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2
    assert not looked_up


async def test_list_offsets_named_twice_or_unknown(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    request = wire.ListOffsetsRequest
    parts = [request.ListOffsetsPartition(0, timestamp=-1)] * 2 + [request.ListOffsetsPartition(9, timestamp=-1)]
    answer = await client.ask(request(-1, topics=[request.ListOffsetsTopic("t", parts)]), 5)
    assert [part.error_code for part in answer.topics[0].partitions] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("version", range(5))
async def test_offset_for_leader_epoch(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    await client.ask(produce("t", (0, batch(b"a"))), 9)
    request = wire.OffsetForLeaderEpochRequest
    part = request.OffsetForLeaderPartition
    topics = [request.OffsetForLeaderTopic("t", [part(0, leader_epoch=0), part(8, leader_epoch=0)])]
    answer = await client.ask(request(topics=topics), version)
    known, unknown = answer.topics[0].partitions
    assert (known.error_code, known.end_offset) == (0, 1)
    assert unknown.error_code != 0


@pytest.mark.parametrize("version", range(3))
async def test_delete_records(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    await client.ask(produce("t", (0, batch(b"a", b"b"))), 9)
    request = wire.DeleteRecordsRequest
    part = request.DeleteRecordsPartition
    answer = await client.ask(
        request([request.DeleteRecordsTopic("t", [part(0, 1), part(0, 7), part(5, 1)])], 100), version
    )
    assert [(each.error_code, each.low_watermark) for each in answer.topics[0].partitions] == [
        (0, 1),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
    ]


def test_topic_ids_have_two_forms() -> None:
    raw = bytes(range(16))
    assert topic_ids.to_wire(topic_ids.from_wire(raw)) == raw
    assert topic_ids.from_wire(bytes(16)) == NO_TOPIC_ID
    assert topic_ids.to_wire(NO_TOPIC_ID) == bytes(16)


@pytest.mark.parametrize("version", range(3, 12))
async def test_one_partitions_answer_is_what_the_codec_would_write(broker: Broker, version: int) -> None:
    """The answer to a single batch is put together from prebuilt pieces."""
    await broker.create("t", 3)
    client = await broker.client()
    for offset in range(2):
        client.send(produce("t", (2, batch(b"x"))), version)
        raw = await client.receive_raw()
        body = raw[4:] if version < 9 else raw[5:]
        answer = decode("ProduceResponse", version, body)
        [part] = answer.responses[0].partition_responses
        assert (part.index, part.error_code, part.base_offset) == (2, 0, offset)
        assert encode(answer, version) == body


async def test_a_partition_named_twice_is_answered_once(broker: Broker) -> None:
    """A small request for one partition a thousand times must not be worth gigabytes."""
    await broker.create("t", 1)
    client = await broker.client()
    await client.ask(produce("t", (0, batch(b"x" * 10_000))), 9)
    request = fetch("t")
    [topic] = request.topics
    topic.partitions = [topic.partitions[0]] * 1_000
    request.topics = [topic, topic]
    answer = await client.ask(request, 11)
    assert [len(topic.partitions) for topic in answer.responses] == [1]
    assert len(answer.responses[0].partitions[0].records) > 10_000


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9)])
async def test_a_timestamp_with_a_meaning_has_it_from_its_version_on(
    broker: Broker, timestamp: int, since: int
) -> None:
    await broker.create("t", 1)
    client = await broker.client()
    request = wire.ListOffsetsRequest
    asked = request(-1, 0, [request.ListOffsetsTopic("t", [request.ListOffsetsPartition(0, -1, timestamp)])])
    for version, code in ((since - 1, ErrorCode.UNSUPPORTED_VERSION), (since, ErrorCode.NONE)):
        answer = await client.ask(asked, version)
        assert answer.topics[0].partitions[0].error_code == code
