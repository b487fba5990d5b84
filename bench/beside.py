"""What a producer feels while somebody else asks for much: its latencies before, beside and after.

    python -m bench.beside [--rows REGEX] [--nodes 3] [--tree CHECKOUT] [--python INTERPRETER] [--json FILE]

The victim is librdkafka with its defaults (acks=all, one record of 1 KiB per request, 100/s). Beside it: single legal requests with as many
elements as a frame takes, batches that expand to 250 MB, look-ups in them by timestamp, pipelined requests for all metadata, and a
reader (librdkafka) of records that are not in the page cache. `--tree` runs the brokers of another checkout.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.kafka_peer import PeerLoad, scratch_python
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.schema import schemas
from kafkalite.record.batch import HEADER_SIZE
from kafkalite.record.builder import encode_batch, encode_record
from kafkalite.record.compression import Codec, compress
from kafkalite.testing.processes import ProcessCluster

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {"log.segment.bytes": 64 * 2**20, "max.inflight.requests.per.connection": 64}
RATE_PER_S = 100.0
ELEMENTS = 190_000
BOMB_BYTES = 250 * 2**20
COLD_RECORDS, COLD_BYTES, COLD_PARTITIONS = 6_000, 64 * 1024, 6
console = Console(width=160)


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


def huge() -> dict[str, tuple[Any, int]]:
    """Requests with as many elements as are taken."""
    topic, offsets = wire.MetadataRequest.MetadataRequestTopic, wire.ListOffsetsRequest
    return {
        "CreateTopics": (wire.CreateTopicsRequest([wire.CreateTopicsRequest.CreatableTopic(n, 1, 1) for n in names()], 1000, validate_only=True), 7),
        "DeleteTopics": (wire.DeleteTopicsRequest([wire.DeleteTopicsRequest.DeleteTopicState(n) for n in names()], timeout_ms=1000), 6),
        "Metadata": (wire.MetadataRequest([topic(name=n) for n in names()], allow_auto_topic_creation=False), 12),
        "DescribeConfigs": (wire.DescribeConfigsRequest([wire.DescribeConfigsRequest.DescribeConfigsResource(2, n, None) for n in names()]), 4),
        "FindCoordinator": (wire.FindCoordinatorRequest(key_type=0, coordinator_keys=names()), 5),
        "DescribeGroups": (wire.DescribeGroupsRequest(names(), include_authorized_operations=False), 5),
        "ListOffsets": (offsets(-1, topics=[offsets.ListOffsetsTopic("t", [offsets.ListOffsetsPartition(n, -1, -1) for n in range(ELEMENTS)])]), 7),
        "DescribeProducers": (wire.DescribeProducersRequest([wire.DescribeProducersRequest.TopicRequest("t", list(range(ELEMENTS)))]), 0),
        "OffsetForLeaderEpoch": (wire.OffsetForLeaderEpochRequest(-2, [wire.OffsetForLeaderEpochRequest.OffsetForLeaderTopic("t", [wire.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(n, -1, 0) for n in range(ELEMENTS)])]), 4),
        "DescribeTransactions": (wire.DescribeTransactionsRequest(names()), 0),
        "DeleteGroups": (wire.DeleteGroupsRequest(names()), 2),
        "DeleteRecords": (wire.DeleteRecordsRequest([wire.DeleteRecordsRequest.DeleteRecordsTopic("t", [wire.DeleteRecordsRequest.DeleteRecordsPartition(n, 1) for n in range(ELEMENTS)])], 1000), 2),
        "CreatePartitions": (wire.CreatePartitionsRequest([wire.CreatePartitionsRequest.CreatePartitionsTopic(n, 2) for n in names()], 1000, validate_only=True), 3),
        "OffsetCommit": (wire.OffsetCommitRequest("g", topics=[wire.OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[wire.OffsetCommitRequest.OffsetCommitRequestPartition(n, 1) for n in range(ELEMENTS)])]), 8),
        "IncrementalAlterConfigs": (wire.IncrementalAlterConfigsRequest([wire.IncrementalAlterConfigsRequest.AlterConfigsResource(2, n, []) for n in names()], validate_only=True), 1),
        "Produce": (wire.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[wire.ProduceRequest.TopicProduceData("t", partition_data=[wire.ProduceRequest.PartitionProduceData(n, b"x") for n in range(ELEMENTS)])]), 9),
        "Fetch": (wire.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[wire.FetchRequest.FetchTopic("t", partitions=[wire.FetchRequest.FetchPartition(n, -1, 0, partition_max_bytes=1000) for n in range(ELEMENTS)])]), 12),
    }  # fmt: skip


def helper(python: Path, niceness: int = 0) -> PeerLoad:
    """A victim, or a reader beside it."""
    return PeerLoad(python, "beside_load.py", niceness=niceness)


class Bench:
    """One cluster, its victim and what happens beside it."""

    def __init__(self, cluster: ProcessCluster, python: Path) -> None:
        self.cluster = cluster
        self.bootstrap = ",".join(cluster.bootstrap)
        self._helpers = [helper(python) for _ in range(2)]
        self.leader = cluster.bootstrap[0]

    def call(self, helper: int, name: str, *arguments: object) -> Any:
        return self._helpers[helper].ask(name, *arguments)

    def create(self, topic: str, partitions: int, factor: int, configs: dict[str, str] | None = None) -> None:
        creatable = wire.CreateTopicsRequest.CreatableTopic
        made = [wire.CreateTopicsRequest.CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
        client = BesideClient(self.leader)
        answer = client.ask(wire.CreateTopicsRequest([creatable(topic, partitions, factor, configs=made)], 30_000), 7)
        assert not answer.topics[0].error_code, answer
        client.close()

    def leader_of(self, topic: str) -> str:
        client = BesideClient(self.leader)
        answer = client.ask(
            wire.MetadataRequest(
                [wire.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
            ),
            12,
        )
        client.close()
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        return addresses[answer.topics[0].partitions[0].leader_id]

    def measure(self, row: str, beside: Callable[[], object]) -> dict[str, Any]:
        """The victim alone for a while, beside it, and after it."""
        self.call(0, "take")
        time.sleep(3)
        before = self.call(0, "take")
        cpu = self._cpu()
        began = time.monotonic()
        outcome: list[object] = []

        def run() -> None:
            try:
                outcome.append(beside())
            except (OSError, ConnectionError) as error:
                outcome.append(f"{type(error).__name__}: {error}")

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        took = time.monotonic() - began
        time.sleep(0.5)
        during = self.call(0, "take")
        memory = max(node.peak_memory_bytes() for node in self.cluster.nodes.values()) >> 20
        return {
            "row": row, "before": before, "beside": during, "seconds": round(took, 2), "cpu_s": round(self._cpu() - cpu, 2),
            "peak_mb": memory, "outcome": str(outcome[0])[:60],
        }  # fmt: skip

    def _cpu(self) -> float:
        return sum(node.cpu_seconds() for node in self.cluster.nodes.values())

    def close(self) -> None:
        for helper in self._helpers:
            helper.close()


def once(bench: Bench, message: Any, version: int) -> str:
    client = BesideClient(bench.leader_of("victim"))
    client.send(message, version)
    data = client.receive()
    client.close()
    return f"response of {len(data) >> 10} kB"


def bombs(bench: Bench, count: int) -> str:
    """From several connections, each one batch."""
    data, address = bomb(), bench.leader_of("compacted")
    request = wire.ProduceRequest
    message = request(
        None,
        -1,
        30_000,
        [request.TopicProduceData("compacted", partition_data=[request.PartitionProduceData(0, data)])],
    )
    clients = [BesideClient(address) for _ in range(count)]
    for client in clients:
        client.send(message, 9)
    for client in clients:
        client.receive()
        client.close()
    return f"{count} batches of {len(data) + HEADER_SIZE} bytes"


def look_up(bench: Bench) -> str:
    """By a timestamp that every bomb of the topic may hold."""
    request = wire.ListOffsetsRequest
    client = BesideClient(bench.leader_of("compacted"))
    for _ in range(5):
        client.send(
            request(-1, topics=[request.ListOffsetsTopic("compacted", [request.ListOffsetsPartition(0, -1, 1000)])]), 7
        )
    for _ in range(5):
        client.receive()
    client.close()
    return "5 look-ups"


def all_metadata(bench: Bench, connections: int = 2, depth: int = 64) -> str:
    clients = [BesideClient(bench.leader_of("victim")) for _ in range(connections)]
    for client in clients:
        for _ in range(depth):
            client.send(wire.MetadataRequest(None, allow_auto_topic_creation=False), 12)
    size = 0
    for client in clients:
        for _ in range(depth):
            size = len(client.receive())
        client.close()
    return f"{connections * depth} responses of {size >> 10} kB"


def cold(bench: Bench) -> str:
    """A reader from the beginning."""
    took = bench.call(1, "read_all", bench.bootstrap, "old", COLD_PARTITIONS, COLD_RECORDS)
    return f"{COLD_RECORDS * COLD_BYTES / took / 1e6:.0f} MB/s"


@click.command(help=__doc__)
@click.option("--rows", default="", help="only rows that match this regular expression")
@click.option("--nodes", default=3, show_default=True)
@click.option(
    "--tree", type=click.Path(path_type=Path, exists=True), help="another checkout whose brokers are measured"
)
@click.option(
    "--python", type=click.Path(path_type=Path), help="an interpreter with confluent-kafka; otherwise one is made"
)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(rows: str, nodes: int, tree: Path | None, python: Path | None, json_path: Path | None) -> None:
    wanted = re.compile(rows)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="beside-") as directory:
        cluster = ProcessCluster(Path(directory), nodes=nodes, settings=SETTINGS)
        if tree is not None:
            cluster.trees = dict.fromkeys(range(1, nodes + 1), tree)
        with cluster:
            bench = Bench(cluster, python or scratch_python())
            try:
                _run(bench, Path(directory), wanted, results, nodes)
            finally:
                bench.close()
    table = Table(
        "beside",
        "victim alone p50 / p99 / max",
        "beside p50 / p99 / p99.9 / max",
        "failed",
        "s",
        "CPU s",
        "peak MB",
        "",
    )
    for each in results:
        before, beside = each["before"], each["beside"]
        table.add_row(
            each["row"],
            f"{before['p50']:.1f} / {before['p99']:.1f} / {before['max']:.1f}",
            f"{beside['p50']:.1f} / {beside['p99']:.1f} / {beside['p99.9']:.1f} / {beside['max']:.1f}",
            str(beside["failed"]),
            str(each["seconds"]),
            str(each["cpu_s"]),
            str(each["peak_mb"]),
            each["outcome"],
        )
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(results, indent=1))


def _run(bench: Bench, directory: Path, wanted: re.Pattern[str], results: list[dict[str, Any]], nodes: int) -> None:
    bench.create("victim", 1, nodes)
    bench.create("compacted", 1, 1, {"cleanup.policy": "compact"})
    bench.call(0, "victim", bench.bootstrap, "victim", RATE_PER_S)
    time.sleep(2)

    def row(name: str, beside: Callable[[], object]) -> None:
        if wanted.search(name):
            results.append(bench.measure(name, beside))
            console.print(results[-1])

    if wanted.search("cold reader"):
        bench.create("old", COLD_PARTITIONS, 1)
        bench.call(1, "fill", bench.bootstrap, "old", COLD_RECORDS, COLD_BYTES, COLD_PARTITIONS)
        bench.call(1, "chill", str(directory))
        time.sleep(1)
    row("cold reader", lambda: cold(bench))
    row("the same reader, hot", lambda: cold(bench))
    row("bombs", lambda: bombs(bench, 10))
    row("bombs by timestamp", lambda: look_up(bench))
    for name, (message, version) in huge().items():
        row(name, partial(once, bench, message, version))
    if wanted.search("all metadata"):
        for number in range(10):
            bench.create(f"many-{number}", 300, 1)
    row("all metadata", lambda: all_metadata(bench))


if __name__ == "__main__":
    main()
