"""The compiled codec: Kafka's bytes, all versions, and what it refuses."""

from __future__ import annotations

import pytest

from kafkalite.model import Buffer
from kafkalite.protocol import codec, wire
from kafkalite.protocol.compiling.source import CHUNK_BYTES
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.schema import schemas
from kafkalite.protocol.structs import classes
from kafkalite.protocol.varints import read_varint, varint


def test_a_produce_request_is_the_bytes_that_kafka_sends() -> None:
    request = wire.ProduceRequest
    message = request(
        acks=-1,
        timeout_ms=1500,
        topic_data=[request.TopicProduceData("t", partition_data=[request.PartitionProduceData(3, b"abc")])],
    )
    assert codec.encode(message, 3).hex() == "ffffffff000005dc000000010001740000000100000003" + "00000003616263"
    assert codec.encode(message, 9).hex() == "00ffff000005dc0202740200000003" + "04616263" + "000000"


def test_every_version_of_every_message_compiles_and_has_its_defaults_back() -> None:
    count = 0
    for schema in schemas().values():
        for version in schema.versions:
            message = classes(schema.name)[schema.name]()
            data = codec.encode(message, version)
            assert codec.encode(codec.decode(schema.name, version, data), version) == data
            count += 1
    assert count > 400


def test_records_are_views_of_the_frame_and_bytes_are_copies() -> None:
    frame = bytearray(codec.encode(_produce(b"x" * 100), 9))
    decoded, used = codec.decoder("ProduceRequest", 9)(memoryview(frame))
    records = decoded.topic_data[0].partition_data[0].records
    assert used == len(frame)
    position = frame.index(b"xxx")
    frame[position] = ord("y")
    assert bytes(records[:2]) == b"yx"
    join = wire.JoinGroupRequest
    frame = bytearray(codec.encode(join(protocols=[join.JoinGroupRequestProtocol("p", b"meta")]), 5))
    decoded, _ = codec.decoder("JoinGroupRequest", 5)(memoryview(frame))
    frame[:] = bytes(len(frame))
    assert decoded.protocols[0].metadata == b"meta"


def test_large_records_leave_as_chunks_of_their_own() -> None:
    response = wire.FetchResponse
    large: list[Buffer] = [b"a" * CHUNK_BYTES, memoryview(b"b" * 10)]
    partitions = [response.PartitionData(0, records=large), response.PartitionData(1, records=b"small")]
    message = response(responses=[response.FetchableTopicResponse("t", partitions=partitions)])
    chunks: list[Buffer] = []
    tail = codec.encoder("FetchResponse", 12)(message, bytearray(), chunks)
    assert chunks[1] is large[0] and chunks[2] is large[1]
    decoded = codec.decode("FetchResponse", 12, b"".join([*chunks, tail]))
    assert [bytes(part.records) for part in decoded.responses[0].partitions] == [b"".join(large), b"small"]


def test_unknown_tagged_fields_are_passed_over_and_known_ones_read() -> None:
    message = wire.FetchRequest(cluster_id="c", replica_state=wire.FetchRequest.ReplicaState(7, 9))
    data = codec.encode(message, 15)
    assert codec.decode("FetchRequest", 15, data).replica_state.replica_epoch == 9
    plain = codec.encode(wire.HeartbeatRequest("g", 1, "m"), 4)
    assert plain.endswith(b"\0")
    unknown = plain[:-1] + b"\x01\x63\x03abc"
    assert codec.decode("HeartbeatRequest", 4, unknown) == wire.HeartbeatRequest("g", 1, "m")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("", id="empty"),
        pytest.param("ffff 0001 00000000 7fffffff", id="more topics than bytes"),
        pytest.param("ffff 0001 00000000 ffffffff", id="null where null is not allowed"),
        pytest.param("ffff 0001 00000000 00000001 00ff 61", id="string overruns"),
        pytest.param("ffff 0001 00000000 00000001 0002 c328 00000000", id="not UTF-8"),
        pytest.param("ffff 0001 00000000 00000000 00", id="bytes left over"),
    ],
)
def test_what_is_no_produce_request_is_refused(data: str) -> None:
    with pytest.raises(WireError):
        codec.decode("ProduceRequest", 3, bytes.fromhex(data))


@pytest.mark.parametrize("version", [9, 12])
def test_a_string_is_at_most_as_long_as_an_int16_says_in_flexible_versions_too(version: int) -> None:
    topic = wire.MetadataRequest.MetadataRequestTopic
    longest = codec.encode(wire.MetadataRequest([topic(name="x" * 0x7FFF)]), version)
    assert codec.decode("MetadataRequest", version, longest).topics[0].name == "x" * 0x7FFF
    with pytest.raises(WireError, match="too long"):
        codec.decode(
            "MetadataRequest", version, codec.encode(wire.MetadataRequest([topic(name="x" * 0x8000)]), version)
        )


def test_the_elements_of_all_arrays_of_a_request_count_together() -> None:
    request = wire.ListOffsetsRequest
    partitions = [request.ListOffsetsPartition(0)] * 1000
    half = codec.MAX_REQUEST_ELEMENTS // 2000

    def encoded(topics: int) -> bytes:
        return codec.encode(request(topics=[request.ListOffsetsTopic("t", partitions)] * topics), 7)

    assert len(codec.decode("ListOffsetsRequest", 7, encoded(half)).topics) == half
    with pytest.raises(WireError, match="too many elements"):
        codec.decode("ListOffsetsRequest", 7, encoded(2 * half))


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(WireError):
        read_varint(memoryview(b"\x80" * 5 + b"\x01"), 0)
    assert read_varint(memoryview(varint(2**31)), 0) == (2**31, 5)


def test_versions_that_are_not_there() -> None:
    with pytest.raises(KeyError):
        codec.decoder("ProduceRequest", 99)
    with pytest.raises(AttributeError):
        _ = wire.NoSuchRequest  # type: ignore[attr-defined]


def _produce(records: bytes) -> object:
    request = wire.ProduceRequest
    return request(
        topic_data=[request.TopicProduceData("t", partition_data=[request.PartitionProduceData(0, records)])]
    )
