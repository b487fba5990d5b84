"""Our source and sink on Apache Kafka's own brokers, one of each release in KAFKA_VERSIONS. `make sparks` runs it (Maven, Java).

Topics are created, and transactions written, by Kafka's Java client in Spark's JVM: nothing of ours stands on the other side.
`kafka_connector.py` compares with Spark's connector, row by row.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.testing.apache_kafka import KAFKA_VERSION, NEWEST_VERSION, KafkaCluster, server_class_path
from tests.spark.conftest import start_session

CACHE = Path(__file__).resolve().parents[2] / ".interop"
KAFKA_VERSIONS = os.environ.get("KAFKA_VERSIONS", f"{KAFKA_VERSION} {NEWEST_VERSION}").split()
#: An hour ago, which retention spares and no broker takes for the future; records are whole milliseconds apart.
T0 = int(time.time()) * 1000 - 3_600_000
ROWS = 400


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    server_class_path(CACHE, NEWEST_VERSION)
    client = CACHE / f"kafka-server-{NEWEST_VERSION}" / "jars" / f"kafka-clients-{NEWEST_VERSION}.jar"
    session = start_session(tmp_path_factory.mktemp("spark"), jars=(client,))
    yield session
    session.stop()


class Broker:
    """One Apache Kafka broker, and Kafka's Java client for it."""

    def __init__(self, spark: Any, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._jvm = spark.sparkContext._jvm
        self._gateway = spark.sparkContext._gateway
        self._clients = self._jvm.org.apache.kafka.clients
        self._admin = self._clients.admin.AdminClient.create({"bootstrap.servers": bootstrap})

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        new = self._clients.admin.NewTopic(topic, partitions, 1)
        new = new.configs({name.replace("_", "."): value for name, value in configs.items()})
        self._admin.createTopics([new]).all().get()

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        tp = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        # a static method and another one have this name, which py4j does not tell apart
        java = self._jvm.java.lang
        loader, initialize = java.Thread.currentThread().getContextClassLoader(), True
        records = java.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete", initialize, loader)
        types = self._gateway.new_array(java.Class, 1)
        types[0] = java.Long.TYPE
        values = self._gateway.new_array(java.Object, 1)
        values[0] = java.Long(offset)
        before = records.getMethod("beforeOffset", types).invoke(None, values)
        self._admin.deleteRecords({tp: before}).all().get()

    def producer(self, **configs: str) -> Any:
        serializer = "org.apache.kafka.common.serialization.StringSerializer"
        given = {"bootstrap.servers": self.bootstrap, "key.serializer": serializer, "value.serializer": serializer}
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        return self._clients.producer.KafkaProducer(given | dotted)

    def put(self, producer: Any, topic: str, partition: int, key: str | None, value: str | None, at: int = T0) -> None:
        record = self._clients.producer.ProducerRecord
        producer.send(record(topic, partition, self._jvm.java.lang.Long(at), key, value))

    def close(self) -> None:
        self._admin.close()


@pytest.fixture(scope="module", params=KAFKA_VERSIONS)
def kafka(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    classes = server_class_path(CACHE, request.param)
    directory = tmp_path_factory.mktemp(f"kafka-{request.param}")
    with KafkaCluster(directory, classes, nodes=1) as running:
        broker = Broker(spark, running.bootstrap)
        yield broker
        broker.close()


def source(reader: Any, kafka: Broker, **options: str) -> Any:
    return reader.format("kafkalite").option("kafka.bootstrap.servers", kafka.bootstrap).options(**options).load()


def sink(writer: Any, kafka: Broker, topic: str) -> Any:
    chosen = writer.format("kafkalite").option("kafka.bootstrap.servers", kafka.bootstrap)
    return chosen.option("topic", topic)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_values_headers_and_nulls_come_back(spark: Any, kafka: Broker, codec: str) -> None:
    topic = f"written-{codec}"
    kafka.create(topic, 3)
    rows = spark.range(0, ROWS, 1, 2).selectExpr(
        "case when id % 10 = 0 then null else cast(concat('key-', id % 70) as binary) end key",
        "case when id % 11 = 0 then null else cast(repeat(concat('value-', id), 20) as binary) end value",
        "case when id % 2 = 0 then array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary)), "
        "named_struct('key', 'h', 'value', cast(null as binary))) end headers",
    )
    writer = sink(rows.write, kafka, topic).option("kafka.compression.type", codec)
    writer.option("includeHeaders", "true").mode("append").save()
    found = source(spark.read, kafka, subscribe=topic, includeHeaders="true")
    written = sorted(map(str, rows.collect()))
    assert sorted(map(str, found.select("key", "value", "headers").collect())) == written and len(written) == ROWS
    # each key in one partition, offsets without gaps, times of the writing client
    assert (
        found.where("key is not null")
        .selectExpr("count(distinct key, partition) p", "count(distinct key) k")
        .where("p = k")
        .count()
        == 1
    )
    spans = found.groupBy("partition").agg({"offset": "max", "*": "count"}).collect()
    assert all(row["max(offset)"] + 1 == row["count(1)"] for row in spans)
    assert found.where("timestampType != 0 or timestamp is null").count() == 0


def test_keys_land_where_kafka_s_own_producer_puts_them(spark: Any, kafka: Broker) -> None:
    for topic in ("by-java", "by-us"):
        kafka.create(topic, 7)
    producer = kafka.producer()
    record = spark.sparkContext._jvm.org.apache.kafka.clients.producer.ProducerRecord
    for n in range(100):
        producer.send(record("by-java", f"key-{n}", "v"))
    producer.close()
    sink(spark.range(100).selectExpr("concat('key-', id) key", "'v' value").write, kafka, "by-us").mode("append").save()
    theirs, ours = (
        {
            (bytes(r.key), r.partition)
            for r in source(spark.read, kafka, subscribe=t).select("key", "partition").collect()
        }
        for t in ("by-java", "by-us")
    )
    assert ours == theirs and len(ours) == 100


@pytest.fixture(scope="module")
def numbered(kafka: Broker) -> str:
    """Two partitions; partition 0 of 60 records, one per millisecond, partition 1 of 30 whose first 10 are deleted."""
    kafka.create("numbered", 2)
    producer = kafka.producer(batch_size="200")
    for n in range(60):
        kafka.put(producer, "numbered", 0, None, str(n), T0 + n)
    for n in range(30):
        kafka.put(producer, "numbered", 1, None, str(100 + n), T0 + n)
    producer.close()
    kafka.delete_before("numbered", 1, 10)
    return "numbered"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [*range(60), *range(110, 130)]),
        ({"startingOffsets": '{"numbered":{"0":50,"1":-2}}', "endingOffsets": '{"numbered":{"0":-1,"1":15}}'}, [*range(50, 60), *range(110, 115)]),
        ({"startingTimestamp": str(T0 + 25)}, [*range(25, 60), *range(125, 130)]),
        ({"startingTimestamp": str(T0 + 40), "startingOffsetsByTimestampStrategy": "latest"}, [*range(40, 60)]),
        ({"startingOffsetsByTimestamp": f'{{"numbered":{{"0":{T0 + 55},"1":{T0 + 28}}}}}'}, [*range(55, 60), 128, 129]),
        ({"endingTimestamp": str(T0 + 12)}, [*range(12), 110, 111]),
        ({"endingOffsetsByTimestamp": f'{{"numbered":{{"0":{T0 + 2},"1":{T0 + 99}}}}}'}, [0, 1, *range(110, 130)]),
        ({"minPartitions": "5"}, [*range(60), *range(110, 130)]),
        ({"maxRecordsPerPartition": "7"}, [*range(60), *range(110, 130)]),
        ({"kafka.max.partition.fetch.bytes": "300"}, [*range(60), *range(110, 130)]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_offsets_and_times(
    spark: Any, kafka: Broker, numbered: str, options: dict[str, str], expected: list[int]
) -> None:
    frame = source(spark.read, kafka, subscribe=numbered, **options)
    assert sorted(int(row.value) for row in frame.select("value").collect()) == expected


def test_subscriptions(spark: Any, kafka: Broker, numbered: str) -> None:
    by_pattern = source(spark.read, kafka, subscribePattern="num.*ed")
    assigned = source(spark.read, kafka, assign='{"numbered":[1]}')
    assert (by_pattern.count(), assigned.count()) == (80, 20)
    times = assigned.selectExpr("unix_millis(min(timestamp)) first", "max(timestampType) kind").first()
    assert (times.first, times.kind) == (T0 + 10, 0)
    with pytest.raises(Exception, match="nowhere: no such topic"):
        source(spark.read, kafka, subscribe="nowhere").count()
    with pytest.raises(Exception, match="offsets 10 to 30, not 3"):
        source(spark.read, kafka, subscribe=numbered, startingOffsets='{"numbered":{"0":0,"1":3}}').count()


def test_what_was_aborted_is_not_read(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    kafka.create("transacted", 1)
    producer = kafka.producer(transactional_id="test")
    producer.initTransactions()
    number = 0
    for commits in (True, False, True, False, False, True):
        producer.beginTransaction()
        for _ in range(5):
            kafka.put(producer, "transacted", 0, None, f"{number}-{'kept' if commits else 'aborted'}")
            number += 1
        producer.flush()
        (producer.commitTransaction if commits else producer.abortTransaction)()
    producer.beginTransaction()
    kafka.put(producer, "transacted", 0, None, "still open")
    producer.flush()

    def values(frame: Any) -> list[str]:
        return [bytes(row.value).decode() for row in frame.orderBy("offset").collect()]

    committed = [f"{n}-kept" for n in (*range(5), *range(10, 15), *range(25, 30))]
    assert values(source(spark.read, kafka, subscribe="transacted")) == committed
    dirty = source(spark.read, kafka, subscribe="transacted", **{"kafka.isolation.level": "read_uncommitted"})
    assert len(values(dirty)) == 31
    seen: list[str] = []

    def take(frame: Any, batch: int) -> None:
        seen.extend(values(frame))

    stream = source(spark.readStream, kafka, subscribe="transacted", startingOffsets="earliest")
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(300)
    assert seen == committed
    producer.abortTransaction()
    producer.close()


def test_a_stream_from_topic_to_topic_goes_on_where_it_was(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    kafka.create("stream-in", 2)
    kafka.create("stream-out", 2)
    for first in (0, 100):
        rows = spark.range(first, first + 100, 1, 2).selectExpr("cast(id as string) key", "cast(id as string) value")
        sink(rows.write, kafka, "stream-in").mode("append").save()
        stream = source(
            spark.readStream, kafka, subscribe="stream-in", startingOffsets="earliest", maxOffsetsPerTrigger="30"
        )
        writer = sink(stream.select("key", "value").writeStream, kafka, "stream-out")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert writer.start().awaitTermination(300)
        out = source(spark.read, kafka, subscribe="stream-out").selectExpr("cast(cast(value as string) as int) n")
        assert sorted(row.n for row in out.collect()) == list(range(first + 100))


def test_progress_is_committed_to_a_group(spark: Any, kafka: Broker, numbered: str, tmp_path: Path) -> None:
    stream = source(
        spark.readStream, kafka, subscribe=numbered, startingOffsets="earliest", **{"kafkalite.group.id": "watched"}
    )
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    for _ in range(2):  # what a run has done is committed when the next batch is planned
        assert writer.trigger(availableNow=True).start().awaitTermination(300)
    found = kafka._admin.listConsumerGroupOffsets("watched").partitionsToOffsetAndMetadata().get()
    assert {str(tp): found[tp].offset() for tp in found} == {"numbered-0": 60, "numbered-1": 30}


def test_progress_is_committed_to_a_group_named_after_the_query(
    spark: Any, kafka: Broker, numbered: str, tmp_path: Path
) -> None:
    stream = source(spark.readStream, kafka, subscribe=numbered, startingOffsets="earliest")
    writer = stream.writeStream.format("noop").queryName("copy").option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(300)
    found = kafka._admin.listConsumerGroupOffsets("spark-copy").partitionsToOffsetAndMetadata().get()
    assert {str(tp): found[tp].offset() for tp in found} == {"numbered-0": 60, "numbered-1": 30}


def test_exactly_once_says_that_it_needs_kafkalite(spark: Any, kafka: Broker) -> None:
    kafka.create("once", 1)
    writer = sink(spark.sql("select 'v' value").write, kafka, "once").option("deliveryGuarantee", "exactly-once")
    with pytest.raises(Exception, match="exactly-once needs kafkalite brokers"):
        writer.mode("append").save()
    assert source(spark.read, kafka, subscribe="once", **{"kafka.isolation.level": "read_uncommitted"}).count() == 0


def test_the_broker_s_refusals_are_told_plainly(spark: Any, kafka: Broker) -> None:
    kafka.create("small", 1, max_message_bytes="1000")
    with pytest.raises(Exception, match=r"MESSAGE_TOO_LARGE.*max\.message\.bytes"):
        sink(spark.sql("select repeat('x', 5000) value").write, kafka, "small").mode("append").save()
