"""Spark's own Kafka source beside ours on the same brokers, kafkalite's and Apache Kafka's: equal DataFrames. `make sparks` runs it.

On Spark 4.0, whose connector can be had; `-p kafkalite.testing.pytest_plugin` brings our cluster. BROKERS="kafkalite 4.4.0" chooses.
"""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.blocking import BlockingClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition as Tp
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.compression import Codec
from kafkalite.testing.apache_kafka import KAFKA_VERSION, NEWEST_VERSION, KafkaCluster, server_class_path
from kafkalite.testing.spark_kafka import connector_jars
from tests.spark.conftest import start_session

CACHE = Path(__file__).resolve().parents[2] / ".interop"
BROKERS = os.environ.get("BROKERS", f"kafkalite {KAFKA_VERSION} {NEWEST_VERSION}").split()
#: An hour ago, which retention spares and no broker takes for the future; records are whole milliseconds apart.
T0 = int(time.time()) * 1000 - 3_600_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_session(tmp_path_factory.mktemp("spark"), jars=connector_jars(CACHE))
    yield session
    session.stop()


@pytest.fixture(scope="module", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of both formats: Kafka listeners of kafkalite's nodes, or of one broker of an Apache Kafka release."""
    if request.param == "kafkalite":
        yield ",".join(request.getfixturevalue("kafkalite_cluster").bootstrap)
        return
    classes = server_class_path(CACHE, request.param)
    with KafkaCluster(tmp_path_factory.mktemp(f"kafka-{request.param}"), classes, nodes=1) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[BlockingClient]:
    with BlockingClient(bootstrap) as opened:
        yield opened


def create(client: BlockingClient, topic: str, partitions: int, **configs: str) -> None:
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    (result,) = client.create_topics([NewTopic(topic, partitions, 1, configs=dotted)])
    assert not result.error, result


@pytest.fixture(scope="module")
def records(client: BlockingClient) -> None:
    """Every compression, nulls, headers, both kinds of timestamp."""
    create(client, "all-kinds", 3)
    create(client, "all-appended", 1, message_timestamp_type="LogAppendTime")
    for tp in (Tp("all-kinds", 0), Tp("all-kinds", 1), Tp("all-appended", 0)):
        for codec in Codec:
            batch = RecordBatchBuilder(codec)
            for n in range(100):
                headers = [("h", b"%d" % n), ("h", None), ("g", b"")] if n % 3 == 0 else ()
                key = None if n % 5 == 0 else b"k%d" % n
                batch.append(key, None if n % 7 == 0 else b"v" * n, headers, T0 + int(codec) * 1000 + n)
            client.produce_raw(tp, batch.build())


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "all-kinds,all-appended", "includeHeaders": "true"},
        {"subscribePattern": "all-.*"},
        {"assign": '{"all-kinds":[0,2]}', "includeHeaders": "TRUE"},
        {
            "subscribe": "all-kinds",
            "startingOffsets": '{"all-kinds":{"0":17,"1":-2,"2":0}}',
            "endingOffsets": '{"all-kinds":{"0":333,"1":-1,"2":-1}}',
        },
        {"assign": '{"all-kinds":[0,1]}', "startingTimestamp": str(T0 + 2050), "endingTimestamp": str(T0 + 3001)},
        {
            "assign": '{"all-kinds":[0,1]}',
            "startingOffsetsByTimestamp": f'{{"all-kinds":{{"0":{T0 + 1001},"1":{T0}}}}}',
            "endingOffsetsByTimestamp": f'{{"all-kinds":{{"0":{T0 + 9999},"1":{T0 + 1}}}}}',
        },
        {
            "subscribe": "all-kinds",
            "startingTimestamp": str(T0 + 4050),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {"subscribe": "all-kinds", "minPartitions": "7"},
        {"subscribe": "all-kinds", "maxRecordsPerPartition": "120"},
        {"subscribe": "all-kinds", "maxRecordsPerPartition": "200", "minPartitions": "9"},
    ],
    ids=lambda options: "-".join(options),
)
def test_the_same_frame(spark, bootstrap, records, options: dict[str, str]) -> None:
    theirs, ours = (
        spark.read.format(name).option("kafka.bootstrap.servers", bootstrap).options(**options).load()
        for name in ("kafka", "kafkalite")
    )
    assert ours.schema == theirs.schema
    expected = theirs.collect()
    assert expected
    place = ("topic", "partition", "offset")
    assert sorted(ours.collect(), key=lambda r: [r[c] for c in place]) == sorted(
        expected, key=lambda r: [r[c] for c in place]
    )
    if (
        "minPartitions" in options and "maxRecordsPerPartition" not in options
    ):  # which connector 4.0.0 does not know yet
        assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()


@pytest.mark.parametrize(
    ("options", "theirs", "ours"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest", "startingOffsets latest"),
        ({"endingOffsets": "earliest"}, "ending offset .*earliest", "endingOffsets earliest"),
        ({"startingOffsets": '{"all-kinds":{"0":1}}'}, "don't match what are assigned", "all-kinds-1, all-kinds-2 missing"),
        ({"startingTimestamp": str(T0 + 10**6)}, "No offset matched", "no record as late as the starting timestamp in all-kinds-0"),
        ({"assign": '{"all-kinds":[0]}'}, "Only one of", "assign and subscribe are given"),
        ({"kafka.enable.auto.commit": "true"}, "enable.auto.commit", "enable.auto.commit is not supported"),
        ({"kafka.key.deserializer": "x"}, "key.deserializer", "key.deserializer is not supported"),
        ({"minPartitions": "0"}, "minPartitions", "minPartitions is 0"),
    ],
)  # fmt: skip
def test_both_refuse(spark, bootstrap, records, options: dict[str, str], theirs: str, ours: str) -> None:
    for name, says in (("kafka", theirs), ("kafkalite", ours)):
        reader = (
            spark.read.format(name)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "all-kinds")
            .options(**options)
        )
        with pytest.raises(Exception, match=says):
            reader.load().collect()


def test_both_write_the_same(spark, bootstrap, client) -> None:
    """Keys land in the same partitions, with the same headers, whoever writes, and whoever reads."""
    rows = spark.range(0, 2000, 1, 2).selectExpr(
        "case when id % 10 = 0 then null else cast(concat('key-', id % 700) as binary) end key",
        "case when id % 11 = 0 then null else cast(concat('value-', id) as binary) end value",
        "case when id % 2 = 0 then array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) end headers",
    )
    found = {}
    for name in ("kafka", "kafkalite"):
        topic = f"by-{name}"
        create(client, topic, 5)
        rows.write.format(name).option("kafka.bootstrap.servers", bootstrap).option("topic", topic).option(
            "includeHeaders", "true"
        ).mode("append").save()
        for reader in ("kafka", "kafkalite"):
            read = spark.read.format(reader).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
            frame = read.option("includeHeaders", "true").load()
            found[name, reader] = frame.selectExpr("key", "value", "if(key is null, -1, partition) p", "headers")
    expected = sorted(map(str, found["kafka", "kafka"].collect()))
    assert len(expected) == 2000
    for pair in found:
        assert sorted(map(str, found[pair].collect())) == expected, pair


def test_both_stream_the_same(spark, bootstrap, client, records, tmp_path: Path) -> None:
    """One query each from topic to topic; the offsets that their progress shows are the same."""
    shown = {}
    for name in ("kafka", "kafkalite"):
        create(client, f"streamed-{name}", 3)
        frame = (
            spark.readStream.format(name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", "all-kinds")
        )
        writer = frame.option("startingOffsets", "earliest").load().select("key", "value", "partition").writeStream
        writer = writer.format(name).option("kafka.bootstrap.servers", bootstrap).option("topic", f"streamed-{name}")
        query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        end = next(p for p in query.recentProgress if p["numInputRows"])["sources"][0]["endOffset"]
        end = ast.literal_eval(end) if isinstance(end, str) else end  # Spark 4.0 shows a dict of Python as text
        shown[name] = {topic: numbers for topic, numbers in end.items() if not topic.startswith("#")}
    assert shown["kafka"] == shown["kafkalite"]
    copies = [
        spark.read.format(reader)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", f"streamed-{writer}")
        .load()
        for reader, writer in (("kafka", "kafkalite"), ("kafkalite", "kafka"))
    ]
    theirs, ours = (
        [tuple(r)[:4] for r in frame.selectExpr("partition", "offset", "key", "value").collect()] for frame in copies
    )
    assert sorted(map(str, theirs)) == sorted(map(str, ours)) and len(theirs) == 1000


def test_both_have_a_missing_topic_made(spark, bootstrap, client) -> None:
    for name in ("kafka", "kafkalite"):
        rows = spark.range(100).selectExpr(f"'made-by-{name}' topic", "cast(id as string) value")
        rows.write.format(name).option("kafka.bootstrap.servers", bootstrap).mode("append").save()
        read = (
            spark.read.format(name)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", f"made-by-{name}")
            .load()
        )
        assert read.count() == 100


def test_a_checkpoint_of_spark_s_kafka_source_is_gone_on_from(spark, bootstrap, client, tmp_path: Path) -> None:
    """Positions look the same, but tell no topic's id."""
    create(client, "moving", 2)
    found: list[Any] = []

    def put(first: int, last: int) -> None:
        for n in range(first, last):
            batch = RecordBatchBuilder()
            batch.append(None, b"%d" % n, (), T0)
            client.produce_raw(Tp("moving", n % 2), batch.build())

    def take(frame, number: int) -> None:
        found.extend(int(row.value) for row in frame.select("value").collect())

    for first, name in ((0, "kafka"), (10, "kafkalite"), (20, "kafkalite")):
        put(first, first + 10)
        frame = spark.readStream.format(name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", "moving")
        frame = frame.option("startingOffsets", "earliest").load()
        query = (
            frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        )
        assert query.start().awaitTermination(300)
    assert sorted(found) == list(range(30))
