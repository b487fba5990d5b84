"""What is asked of a node while a producer's acknowledgements are measured: single legal requests with as many elements as a frame takes,
batches that expand to 250 MB, and the processes of the producer and of a reader (bench/beside_load.py)."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers import PeerLoad
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.schema import schemas
from kafkalite.record.builder import encode_batch, encode_record
from kafkalite.record.compression import Codec, compress

ELEMENTS = 190_000
BOMB_BYTES = 250 * 2**20


class BesideClient:
    """A raw connection. `ask` sends one request and reads one response."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._asked = 0

    def send(self, message: Any, version: int) -> None:
        schema = schemas()[type(message).__name__]
        head = struct.pack(">hhih", schema.api_key, version, self._asked, 4) + b"load"
        body = head + (b"\0" if version in schema.flexible else b"") + encode(message, version)
        self._asked += 1
        self._socket.sendall(len(body).to_bytes(4) + body)

    def receive(self) -> bytes:
        data = bytearray()
        size = 4
        while len(data) < size:
            piece = self._socket.recv(min(1 << 20, size - len(data)))
            if not piece:
                raise ConnectionError("closed by the broker")
            data += piece
            if size == 4 and len(data) == 4:
                size = 4 + int.from_bytes(data)
        return bytes(data[4:])

    def ask(self, message: Any, version: int) -> Any:
        self.send(message, version)
        data = self.receive()
        name = type(message).__name__.removesuffix("Request") + "Response"
        return decode(name, version, data[5 if version in schemas()[name].flexible else 4 :])

    def close(self) -> None:
        self._socket.close()


def bomb() -> bytes:
    """A batch of some kB whose one record has a value of 250 MB."""
    record = encode_record(0, 0, b"k", bytes(BOMB_BYTES), ())
    now = int(time.time() * 1000)
    return encode_batch(
        compress(Codec.ZSTD, record), record_count=1, base_offset=0, last_offset_delta=0, leader_epoch=-1,
        attributes=int(Codec.ZSTD), base_timestamp=now, max_timestamp=now, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip


def names(count: int = ELEMENTS) -> list[str]:
    return [f"t{number:06d}" for number in range(count)]


#: Requests with as many elements as are taken, and their versions.
HUGE: dict[str, tuple[Callable[[], Any], int]] = {
    "CreateTopics": (lambda: wire.CreateTopicsRequest([wire.CreateTopicsRequest.CreatableTopic(n, 1, 1) for n in names()], 1000, validate_only=True), 7),
    "DeleteTopics": (lambda: wire.DeleteTopicsRequest([wire.DeleteTopicsRequest.DeleteTopicState(n) for n in names()], timeout_ms=1000), 6),
    "Metadata": (lambda: wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name=n) for n in names()], allow_auto_topic_creation=False), 12),
    "DescribeConfigs": (lambda: wire.DescribeConfigsRequest([wire.DescribeConfigsRequest.DescribeConfigsResource(2, n, None) for n in names()]), 4),
    "FindCoordinator": (lambda: wire.FindCoordinatorRequest(key_type=0, coordinator_keys=names()), 5),
    "DescribeGroups": (lambda: wire.DescribeGroupsRequest(names(), include_authorized_operations=False), 5),
    "ListOffsets": (lambda: wire.ListOffsetsRequest(-1, topics=[wire.ListOffsetsRequest.ListOffsetsTopic("t", [wire.ListOffsetsRequest.ListOffsetsPartition(n, -1, -1) for n in range(ELEMENTS)])]), 7),
    "DescribeProducers": (lambda: wire.DescribeProducersRequest([wire.DescribeProducersRequest.TopicRequest("t", list(range(ELEMENTS)))]), 0),
    "OffsetForLeaderEpoch": (lambda: wire.OffsetForLeaderEpochRequest(-2, [wire.OffsetForLeaderEpochRequest.OffsetForLeaderTopic("t", [wire.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(n, -1, 0) for n in range(ELEMENTS)])]), 4),
    "DescribeTransactions": (lambda: wire.DescribeTransactionsRequest(names()), 0),
    "DeleteGroups": (lambda: wire.DeleteGroupsRequest(names()), 2),
    "DeleteRecords": (lambda: wire.DeleteRecordsRequest([wire.DeleteRecordsRequest.DeleteRecordsTopic("t", [wire.DeleteRecordsRequest.DeleteRecordsPartition(n, 1) for n in range(ELEMENTS)])], 1000), 2),
    "CreatePartitions": (lambda: wire.CreatePartitionsRequest([wire.CreatePartitionsRequest.CreatePartitionsTopic(n, 2) for n in names()], 1000, validate_only=True), 3),
    "OffsetCommit": (lambda: wire.OffsetCommitRequest("g", topics=[wire.OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[wire.OffsetCommitRequest.OffsetCommitRequestPartition(n, 1) for n in range(ELEMENTS)])]), 8),
    "IncrementalAlterConfigs": (lambda: wire.IncrementalAlterConfigsRequest([wire.IncrementalAlterConfigsRequest.AlterConfigsResource(2, n, []) for n in names()], validate_only=True), 1),
    "Produce": (lambda: wire.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[wire.ProduceRequest.TopicProduceData("t", partition_data=[wire.ProduceRequest.PartitionProduceData(n, b"x") for n in range(ELEMENTS)])]), 9),
    "Fetch": (lambda: wire.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[wire.FetchRequest.FetchTopic("t", partitions=[wire.FetchRequest.FetchPartition(n, -1, 0, partition_max_bytes=1000) for n in range(ELEMENTS)])]), 12),
}  # fmt: skip


def helper(python: Path, niceness: int = 0) -> PeerLoad:
    """A victim, or a reader beside it."""
    return PeerLoad(python, "beside_load.py", niceness=niceness)
