"""The source and the sink over sockets, with a broker that offers what Kafka 2.1 does, and with one of today."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pyspark_kafkalite.columns import columns_of, spark_schema
from pyspark_kafkalite.option_parsing import read_options, write_options
from pyspark_kafkalite.reader import KafkaliteReader
from pyspark_kafkalite.row_shape import row_shape
from pyspark_kafkalite.sending import WriteFailed
from pyspark_kafkalite.stream_reader import KafkaliteStreamReader
from pyspark_kafkalite.writer import KafkaliteWriter
from tests.spark.fake_log import FakeLog
from tests.spark.log_server import KAFKA_2_1, LogServer

SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS = columns_of(spark_schema(include_headers=False))


@pytest.fixture(params=[KAFKA_2_1, None], ids=["Kafka 2.1", "today"])
def server(request: pytest.FixtureRequest) -> Iterator[LogServer]:
    running = LogServer(FakeLog(), request.param)
    running.start()
    running.log.add_topic("t", 3)
    yield running
    running.stop()


def write(server: LogServer, count: int, options: Mapping[str, str] = {}) -> None:
    given = write_options({"kafka.bootstrap.servers": server.address, "topic": "t"} | dict(options))
    rows = {"key": [None if n % 5 == 0 else f"k{n}" for n in range(count)], "value": [b"%d" % n for n in range(count)]}
    batch = pa.RecordBatch.from_pydict(rows, pa.schema([("key", pa.string()), ("value", pa.binary())]))
    assert KafkaliteWriter(given, row_shape(SCHEMA, "t")).write(iter([batch])).rows == count


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_written_and_read(server: LogServer, codec: str) -> None:
    write(server, 300, {"kafka.compression.type": codec})
    given = {
        "kafka.bootstrap.servers": server.address,
        "subscribe": "t",
        "startingTimestamp": "1",
        "minPartitions": "5",
    }
    reader = KafkaliteReader(read_options(given, streaming=False), COLUMNS)
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(int(row["value"]) for row in found) == list(range(300))
    assert sum(row["key"] is None for row in found) == 60
    used = dict(server.requests)
    assert all(version <= server.versions[name][1] for name, version in used.items() if name != "ApiVersions")
    assert {"Produce", "Fetch", "ListOffsets", "Metadata", "InitProducerId"} <= used.keys()


def test_a_stream_goes_on_and_shows_where_it_is(server: LogServer) -> None:
    given = {"kafka.bootstrap.servers": server.address, "subscribe": "t", "startingOffsets": "earliest"}
    options = read_options(given | {"kafkalite.group.id": "watched"}, streaming=True)
    reader = KafkaliteStreamReader(options, COLUMNS)
    start = reader.initialOffset()
    write(server, 30)
    end = reader.latestOffset(start, None)
    found = [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(found) == 30
    assert reader.latestOffset(end, None) == end
    assert sum(server.log.committed["watched"].values()) == 30


def test_exactly_once_needs_the_extension(server: LogServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Task:
        partitionId = attemptNumber = staticmethod(lambda: 0)

    monkeypatch.setattr("pyspark.TaskContext.get", Task)
    once = {"deliveryGuarantee": "exactly-once"}
    if "Extension" in server.versions:
        write(server, 10, once)
        return
    with pytest.raises(WriteFailed, match="exactly-once needs kafkalite brokers"):
        write(server, 10, once)
    assert not any(log.batches for log in server.log.partitions.values())
