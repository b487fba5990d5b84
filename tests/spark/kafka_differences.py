"""What a user of Spark's own Kafka source may try, case by case, with both sources on the same brokers: the same outcome.

`make sparks` runs it on Spark 4.2 with connector 4.2.0 (`-p kafkalite.testing.pytest_plugin` brings the cluster). An outcome is
what the case returns, or "refused" with the error. A case that differs on purpose has the reason; it fails if it no longer
differs. `DIFFERENCES=1 pytest -s` prints both outcomes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from kafkalite.client.blocking import BlockingClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition as Tp
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.reader import read_records
from kafkalite.testing.spark_kafka import CONNECTORS, connector_jars
from tests.spark.conftest import start_session

CACHE = Path(__file__).resolve().parents[2] / ".interop"
T0 = int(time.time()) * 1000 - 3_600_000
_PLACE = ("topic", "partition", "offset")


@dataclass
class Side:
    """One of the two sources, with a topic of its own for each write."""

    name: str
    spark: Any
    client: BlockingClient
    bootstrap: str
    scratch: Path
    number: int = 0

    def read(self, **options: Any) -> list[Any]:
        """Rows in the order of their places, without the time (writers choose it) unless it is asked for."""
        frame = self.frame(**options)
        return sorted((tuple(row) for row in frame.collect()), key=str)

    def frame(self, **options: Any) -> Any:
        reader = self.spark.read.format(self.name).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**options).load()

    def new_topic(self, partitions: int = 2, **configs: str) -> str:
        self.number += 1
        topic = f"w-{self.name}-{self.number}"
        create(self.client, topic, partitions, **configs)
        return topic

    def written(self, *columns: str, **options: Any) -> list[Any]:
        """What a write of these columns leaves in a new topic: {topic} in a column or an option is its name.

        Of the options, `rows`, `mode` (None: not given), `partitions` and `configs` (of the topic) are about the test, the others about
        the sink.
        """
        rows, mode, partitions = options.pop("rows", 4), options.pop("mode", "append"), options.pop("partitions", 2)
        topic = self.new_topic(partitions, **options.pop("configs", {}))
        frame = self.spark.range(0, rows, 1, 1).selectExpr(*(column.format(topic=topic) for column in columns))
        writer = frame.write.format(self.name).option("kafka.bootstrap.servers", self.bootstrap)
        writer = writer.options(**{key: str(value).format(topic=topic) for key, value in options.items()})
        (writer if mode is None else writer.mode(mode)).save()
        return self.content(topic)

    def content(self, topic: str) -> list[Any]:
        """By the reader that is not on trial: Spark's own."""
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        found = reader.option("subscribe", topic).option("includeHeaders", "true").load()
        return sorted(
            (tuple(row) for row in found.selectExpr("partition", "offset", "key", "value", "headers").collect()),
            key=str,
        )

    def stream(self, checkpoint: Path | None = None, /, **options: Any) -> Any:
        """(rows, end) of each batch with rows of a query that takes what is there and ends, from topic to nowhere."""
        query = self._started({"availableNow": True}, options, checkpoint)
        try:
            assert query.awaitTermination(120)
            return self._with_rows(query)
        finally:
            query.stop()

    def running(self, count: int, /, **options: Any) -> Any:
        """The same of a query that goes on: its first batches with rows."""
        query = self._started({"processingTime": "0 seconds"}, options)
        try:
            until = time.monotonic() + 60
            while len(self._with_rows(query)) < count and query.isActive and time.monotonic() < until:
                time.sleep(0.1)
            return self._with_rows(query)[:count]
        finally:
            query.stop()

    def restarted(self, first: str, then: str, *, again: bool = False, **options: Any) -> Any:
        """The same of two queries on one checkpoint, of topics a and b: their names without ours. `again`: between the two the topics are
        deleted and created, with fewer records; else they get more. `options`: of the second."""
        self.number += 1
        suffix = f"-{self.name}-{self.number}"
        checkpoint = self.scratch / f"restarted{suffix}"
        for topic in ("a", "b"):
            create(self.client, topic + suffix, 1)
            put(self.client, topic + suffix, 0, 5)
        found = []
        for topics, more in ((first, {}), (then, options)):
            subscribed = ",".join(topic + suffix for topic in topics)
            batches = self.stream(checkpoint, subscribe=subscribed, startingOffsets="earliest", **more)
            found.append([(rows, {name.removesuffix(suffix): at for name, at in end.items()}) for rows, end in batches])
            for topic in ("a", "b"):
                if again:
                    admin(self.bootstrap, "delete-topic", topic + suffix)
                    create(self.client, topic + suffix, 1)
                put(self.client, topic + suffix, 0, 3, 0 if again else 5)
        return found

    def _started(self, trigger: dict[str, Any], options: dict[str, Any], checkpoint: Path | None = None) -> Any:
        self.number += 1
        reader = self.spark.readStream.format(self.name).option("kafka.bootstrap.servers", self.bootstrap)
        writer = reader.options(**options).load().writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(checkpoint or self.scratch / f"{self.name}-{self.number}"))
        return writer.trigger(**trigger).start()

    def _with_rows(self, query: Any) -> list[Any]:
        import json

        found = []
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                end = progress["sources"][0]["endOffset"]
                end = json.loads(end) if isinstance(end, str) else end
                found.append((progress["numInputRows"], {k: v for k, v in end.items() if not k.startswith("#")}))
        return found


def create(client: BlockingClient, topic: str, partitions: int, **configs: str) -> None:
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    (result,) = client.create_topics([NewTopic(topic, partitions, 1, configs=dotted)])
    assert not result.error, result


def admin(bootstrap: str, *command: str) -> None:
    """Run `kafkalite admin` and confirm."""
    whole = [sys.executable, "-m", "kafkalite_cli", "admin", "--bootstrap", bootstrap, *command, "--yes"]
    subprocess.run(whole, check=True, capture_output=True)


def put(client: BlockingClient, topic: str, partition: int, count: int, first: int = 0) -> None:
    batch = RecordBatchBuilder()
    for n in range(first, first + count):
        headers = [("h", b"%d" % n), ("e", None)] if n % 3 == 0 else ()
        batch.append(None if n % 5 == 0 else b"k%d" % n, None if n % 7 == 0 else b"v%d" % n, headers, T0 + n * 10)
    client.produce_raw(Tp(topic, partition), batch.build())


def hostile(spark: Any, client: BlockingClient, bootstrap: str) -> None:
    """Transactions by Kafka's own producer (committed, aborted, one that stays open), a topic that is compacted, odd records."""
    create(client, "tx", 2)
    producers = [_java_producer(spark, bootstrap, f"tx-{number}") for number in range(2)]

    def send(number: int, partition: int, count: int) -> None:
        record = spark._jvm.org.apache.kafka.clients.producer.ProducerRecord
        for n in range(count):
            producers[number].send(record("tx", partition, f"k{n}", f"v{n}"))
        producers[number].flush()  # else what is aborted is never sent

    for partition, count, commits in ((0, 5, True), (0, 4, False), (1, 6, False), (0, 1, True), (0, 3, False)):
        producers[0].beginTransaction()
        send(0, partition, count)
        (producers[0].commitTransaction if commits else producers[0].abortTransaction)()
        put(client, "tx", 0, 1)
    producers[1].beginTransaction()
    send(1, 0, 2)
    put(client, "tx", 0, 2)

    create(client, "odd", 2, message_timestamp_after_max_ms=str(2**63 - 1))
    odd = RecordBatchBuilder()
    times = [-1, 0, 1, -12_219_292_800_000, 253_402_300_800_000, 2**53]
    headers: list[Any] = [(), [("", b"")], [("h", b"1"), ("h", b"2"), ("h", None)], [("ü😀", b"\xff")]]
    for n, at in enumerate(times):
        odd.append(b"" if n % 2 else None, None if n % 3 else b"", headers[n % len(headers)], at)
    client.produce_raw(Tp("odd", 0), odd.build())
    early = RecordBatchBuilder()
    early.append(None, b"", (), -62_135_596_800_001)
    client.produce_raw(Tp("odd", 1), early.build())

    create(client, "compacted", 1, cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.01")
    place = Tp("compacted", 0)
    for size, keys, count in (
        (1, 3, 40),
        (700_000, 5, 3),
    ):  # large ones, for what is before them to be in closed segments
        for n in range(count):
            record = RecordBatchBuilder()
            record.append(b"%d of %d" % (n % keys, keys), None if n == 38 else b"%d" % n * size, (), T0 + n)
            client.produce_raw(place, record.build())
    until = time.monotonic() + 120
    while len(list(read_records(client.fetch_raw(place, 0, 1 << 20, 0).records))) > 10 and time.monotonic() < until:
        time.sleep(0.5)


def _java_producer(spark: Any, bootstrap: str, transactional_id: str) -> Any:
    """Kafka's own, in Spark's driver."""
    text = "org.apache.kafka.common.serialization.StringSerializer"
    settings = spark._jvm.java.util.HashMap()
    for key, value in {
        "bootstrap.servers": bootstrap, "key.serializer": text, "value.serializer": text,
        "transactional.id": transactional_id, "transaction.timeout.ms": "900000",
    }.items():  # fmt: skip
        settings.put(key, value)
    producer = spark._jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
    producer.initTransactions()
    return producer


def outcome(case: Callable[[Side], Any], side: Side) -> tuple[str, Any]:
    try:
        return "done", case(side)
    except Exception as error:  # noqa: BLE001 - what both do is what is compared
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = [line for line in lines if "Error:" in line or "Exception:" in line or "DataLoss:" in line]
        assert not any("UnboundLocalError" in line for line in said), error
        return "refused", f"{type(error).__name__}: {(said or lines or ['?'])[-1][:300]}"


@dataclass
class Case:
    name: str
    run: Callable[[Side], Any]
    #: Why the two differ on purpose.
    differs: str | None = None


def _per_partition(value: int) -> str:
    return f'{{"src":{{"0":{value},"1":{value},"2":{value}}}}}'


def _of_transactions(level: str) -> list[Case]:
    """Both sources have this setting, with another default."""
    tx: dict[str, Any] = {"subscribe": "tx", "kafka.isolation.level": level}
    first = tx | {"startingOffsets": "earliest"}
    patient = {"kafkaConsumer.pollTimeoutMs": "3000"}
    cases: dict[str, Callable[[Side], Any]] = {
        "all": lambda s: s.read(**tx),
        "headers, many tasks": lambda s: s.read(**tx, includeHeaders="true", minPartitions=11),
        "from the middle of one to the middle of another": lambda s: s.read(
            **tx, startingOffsets='{"tx":{"0":7,"1":3}}', endingOffsets='{"tx":{"0":13,"1":6}}'
        ),
        "a marker alone": lambda s: s.read(
            **tx, startingOffsets='{"tx":{"0":5,"1":6}}', endingOffsets='{"tx":{"0":6,"1":7}}'
        ),
        "into the open one": lambda s: s.read(**tx, **patient, endingOffsets='{"tx":{"0":23,"1":-1}}'),
        "by timestamp": lambda s: s.read(**tx, startingTimestamp=T0, startingOffsetsByTimestampStrategy="latest"),
        "a stream": lambda s: s.stream(**first),
        "a stream, two offsets a batch": lambda s: s.stream(**first, maxOffsetsPerTrigger=2),
        "a stream from the latest": lambda s: s.stream(**tx),
    }
    return [Case(f"transactions, {level}, {name}", run) for name, run in cases.items()]


HEADERS = "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers"
CASES = [
    # --- batch reads
    Case("everything", lambda s: s.read(subscribe="src", includeHeaders="true")),
    Case("the schema with headers", lambda s: str(s.frame(subscribe="src", includeHeaders="true").schema)),
    Case("the schema without", lambda s: str(s.frame(subscribe="src", includeHeaders="false").schema)),
    Case("by timestamp", lambda s: s.read(subscribe="src", startingOffsetsByTimestamp=_per_partition(T0 + 55))),
    Case("by timestamp, some of the partitions", lambda s: s.read(subscribe="src", startingOffsetsByTimestamp=f'{{"src":{{"0":{T0}}}}}')),
    Case("by timestamp, too late", lambda s: s.read(subscribe="src", startingOffsetsByTimestamp=_per_partition(T0 + 10**7))),
    Case("by timestamp, too late, error", lambda s: s.read(subscribe="src", startingOffsetsByTimestamp=_per_partition(T0 + 10**7), startingOffsetsByTimestampStrategy="error")),
    Case("by timestamp, too late, latest", lambda s: s.read(subscribe="src", startingOffsetsByTimestamp=_per_partition(T0 + 10**7), startingOffsetsByTimestampStrategy="latest")),
    Case("by timestamp, the strategy is wrong", lambda s: s.read(subscribe="src", startingOffsetsByTimestamp=_per_partition(T0), startingOffsetsByTimestampStrategy="newest")),
    Case("by timestamp, the end", lambda s: s.read(subscribe="src", endingOffsetsByTimestamp=_per_partition(T0 + 55))),
    Case("by timestamp, the end before the start", lambda s: s.read(subscribe="src", startingTimestamp=T0 + 200, endingTimestamp=T0 + 55)),
    Case("by timestamp, before the first", lambda s: s.read(subscribe="src", startingTimestamp=0)),
    Case("a negative timestamp", lambda s: s.read(subscribe="src", startingTimestamp=-5)),
    Case("precedence", lambda s: s.read(subscribe="src", startingTimestamp=T0 + 55, startingOffsetsByTimestamp=_per_partition(T0), startingOffsets="earliest")),
    Case("offsets", lambda s: s.read(subscribe="src", startingOffsets='{"src":{"0":3,"1":-2,"2":0}}', endingOffsets='{"src":{"0":9,"1":-1,"2":5}}')),
    Case("offsets, some of the partitions", lambda s: s.read(subscribe="src", startingOffsets='{"src":{"0":3}}')),
    Case("offsets that are not JSON", lambda s: s.read(subscribe="src", startingOffsets="{nope")),
    Case("an offset beyond the end", lambda s: s.read(subscribe="src", startingOffsets=_per_partition(1000))),
    Case("an end beyond the end", lambda s: s.read(subscribe="src", endingOffsets=_per_partition(1000), **{"kafkaConsumer.pollTimeoutMs": "3000"})),
    Case("an end beyond the end, failOnDataLoss=false", lambda s: s.read(subscribe="src", endingOffsets=_per_partition(1000), failOnDataLoss="false", **{"kafkaConsumer.pollTimeoutMs": "3000"})),
    Case("an end before the start", lambda s: s.read(subscribe="src", startingOffsets=_per_partition(9), endingOffsets=_per_partition(3))),
    Case("removed records", lambda s: s.read(subscribe="cut")),
    Case("removed records, by offset", lambda s: s.read(subscribe="cut", startingOffsets='{"cut":{"0":1}}')),
    Case("removed records, by offset, failOnDataLoss=false", lambda s: s.read(subscribe="cut", startingOffsets='{"cut":{"0":1}}', failOnDataLoss="false")),
    Case("minPartitions", lambda s: s.frame(subscribe="src", minPartitions=8).rdd.getNumPartitions()),
    Case("minPartitions, fewer than there are", lambda s: s.frame(subscribe="src", minPartitions=2).rdd.getNumPartitions()),
    Case("minPartitions, more than records", lambda s: len(s.read(subscribe="src", minPartitions=500))),
    Case("minPartitions that is no number", lambda s: s.read(subscribe="src", minPartitions="many")),
    Case("maxRecordsPerPartition", lambda s: s.frame(subscribe="src", maxRecordsPerPartition=7).rdd.getNumPartitions(),
         differs="Spark's connector counts it in batches only together with minPartitions"),
    Case("both limits of partitions", lambda s: s.frame(subscribe="src", maxRecordsPerPartition=7, minPartitions=11).rdd.getNumPartitions()),
    Case("partitions of the rows", lambda s: s.frame(subscribe="src,empty").rdd.getNumPartitions(),
         differs="a partition without records gets no task"),
    Case("a group", lambda s: s.read(subscribe="src", **{"kafka.group.id": f"mine-{s.name}"})),
    Case("a prefix of groups", lambda s: s.read(subscribe="src", groupIdPrefix="mine")),
    Case("an unknown topic", lambda s: s.read(subscribe="nowhere-1", **{"fetchOffset.numRetries": "0"})),
    Case("a known and an unknown topic", lambda s: s.read(subscribe="src,nowhere-2", **{"fetchOffset.numRetries": "0"})),
    Case("an invalid name of a topic", lambda s: s.read(subscribe="a b", **{"fetchOffset.numRetries": "0"})),
    Case("a pattern of nothing", lambda s: s.read(subscribePattern="zzz.*")),
    Case("a pattern", lambda s: s.read(subscribePattern="s[r]c")),
    Case("a pattern of a part of a name", lambda s: s.read(subscribePattern="sr")),
    Case("an empty topic", lambda s: s.read(subscribe="empty")),
    Case("spaces between topics", lambda s: s.read(subscribe=" src , empty ")),
    Case("a topic twice", lambda s: len(s.read(subscribe="src,src"))),
    Case("assign", lambda s: s.read(assign='{"src":[0,2]}')),
    Case("assign, a partition that is not there", lambda s: s.read(assign='{"src":[0,9]}', **{"fetchOffset.numRetries": "0"})),
    Case("nothing subscribed", lambda s: s.read()),
    Case("an empty subscription", lambda s: s.read(subscribe="")),
    Case("names in another case", lambda s: s.read(SUBSCRIBE="src", INCLUDEHEADERS="TRUE", StartingOffsets="EARLIEST")),
    Case("a setting of Kafka's clients without its prefix", lambda s: s.read(subscribe="src", **{"isolation.level": "read_uncommitted"}),
         differs="the connector passes over it without a word, and reads something else than was asked for"),
    Case("an option of another source", lambda s: s.read(subscribe="src", inferSchema="true")),
    Case("a protocol in front of the address", lambda s: s.read(subscribe="src", **{"kafka.bootstrap.servers": ",".join(f"PLAINTEXT://{at}" for at in s.bootstrap.split(","))})),
    Case("no servers", lambda s: s.spark.read.format(s.name).option("subscribe", "src").load().collect()),
    Case("limits per trigger in a batch", lambda s: s.read(subscribe="src", maxOffsetsPerTrigger=3)),
    Case("ids of deserializers", lambda s: s.read(subscribe="src", **{"kafka.value.deserializer": "x"})),
    Case("reset", lambda s: s.read(subscribe="src", **{"kafka.auto.offset.reset": "latest"})),
    Case("a column, filtered and counted", lambda s: [tuple(r) for r in s.frame(subscribe="src").where("partition = 1 AND offset > 4").groupBy("partition").count().collect()]),
    # --- writes
    Case("key and value", lambda s: s.written("cast(id as string) key", "concat('v', id) value", topic="{topic}")),
    Case("binary key and value", lambda s: s.written("cast(cast(id as string) as binary) key", "cast('v' as binary) value", topic="{topic}")),
    # One partition: without keys both take any.
    Case("the column topic", lambda s: s.written("'{topic}' topic", "concat('v', id) value", partitions=1)),
    Case("the option before the column topic", lambda s: s.written("'elsewhere' topic", "concat('v', id) value", topic="{topic}", partitions=1)),
    Case("no topic", lambda s: s.written("'v' value")),
    Case("null as topic", lambda s: s.written("cast(null as string) topic", "'v' value")),
    Case("null as topic in some rows", lambda s: s.written("if(id = 2, null, '{topic}') topic", "'v' value")),
    Case("a topic of numbers", lambda s: s.written("id topic", "'v' value")),
    Case("headers", lambda s: s.written("'k' key", "concat('v', id) value", HEADERS, topic="{topic}")),
    Case("headers and includeHeaders", lambda s: s.written("'k' key", "concat('v', id) value", HEADERS, topic="{topic}", includeHeaders="true")),
    Case("headers that are null", lambda s: s.written("'k' key", "'v' value", f"if(id = 1, null, {HEADERS.removesuffix(' headers')}) headers", topic="{topic}")),
    Case("a header whose value is null", lambda s: s.written("'k' key", "'v' value", "array(named_struct('key', 'h', 'value', cast(null as binary))) headers", topic="{topic}")),
    Case("a header whose key is null", lambda s: s.written("'k' key", "'v' value", "array(named_struct('key', cast(null as string), 'value', cast('x' as binary))) headers", topic="{topic}")),
    Case("headers of another type", lambda s: s.written("'k' key", "'v' value", "map('h', 'x') headers", topic="{topic}")),
    Case("headers with text as value", lambda s: s.written("'k' key", "'v' value", "array(named_struct('key', 'h', 'value', 'x')) headers", topic="{topic}")),
    Case("headers with other names of fields", lambda s: s.written("'k' key", "'v' value", "array(named_struct('a', 'h', 'b', cast('x' as binary))) headers", topic="{topic}")),
    Case("the column partition", lambda s: s.written("concat('v', id) value", "cast(id % 2 as int) partition", topic="{topic}")),
    Case("the column partition with null", lambda s: s.written("'k' key", "concat('v', id) value", "if(id = 1, 1, cast(null as int)) partition", topic="{topic}")),
    Case("a partition as long", lambda s: s.written("'v' value", "id partition", topic="{topic}")),
    Case("a partition that is not there", lambda s: s.written("'v' value", "77 partition", topic="{topic}", **{"kafka.max.block.ms": 3000, "kafka.delivery.timeout.ms": 5000, "kafka.request.timeout.ms": 2000})),
    Case("a negative partition", lambda s: s.written("'v' value", "-1 partition", topic="{topic}")),
    Case("null as key", lambda s: s.written("cast(null as string) key", "concat('v', id) value", topic="{topic}", partitions=1)),
    Case("null as value", lambda s: s.written("cast(id as string) key", "cast(null as string) value", topic="{topic}")),
    Case("null as key and value", lambda s: s.written("cast(null as binary) key", "cast(null as binary) value", topic="{topic}", partitions=1)),
    Case("no value", lambda s: s.written("cast(id as string) key", topic="{topic}")),
    Case("a number as key", lambda s: s.written("id key", "'v' value", topic="{topic}")),
    Case("a number as value", lambda s: s.written("id value", topic="{topic}")),
    Case("a struct as value", lambda s: s.written("named_struct('a', id) value", topic="{topic}")),
    Case("empty key and value", lambda s: s.written("'' key", "'' value", topic="{topic}")),
    Case("other columns", lambda s: s.written("id", "'v' value", "current_date() other", "timestamp'2020-01-01' timestamp", topic="{topic}", partitions=1)),
    Case("names of columns in capitals", lambda s: s.written("cast(id as string) KEY", "'v' VALUE", topic="{topic}"),
         differs="names of columns have no case in Spark SQL, and here neither"),
    Case("no rows", lambda s: s.written("'v' value", topic="{topic}", rows=0)),
    Case("a record of 2 MB", lambda s: s.written("repeat('x', 2000000) value", topic="{topic}", rows=1)),
    Case("a topic that takes less than a batch", lambda s: s.written("cast(id as string) key", "repeat('x', 100) value", topic="{topic}", rows=2000, configs={"max_message_bytes": "20000"})),
    Case("compression", lambda s: s.written("cast(id as string) key", "'v' value", topic="{topic}", **{"kafka.compression.type": "zstd"})),
    Case("an unknown compression", lambda s: s.written("'v' value", topic="{topic}", **{"kafka.compression.type": "brotli"})),
    Case("acks=all", lambda s: s.written("'v' value", topic="{topic}", partitions=1, **{"kafka.acks": "all"})),
    Case("acks=1", lambda s: s.written("'v' value", topic="{topic}", partitions=1, **{"kafka.acks": "1"}),
         differs="a task that Spark counts as done must be durable"),
    Case("serializers", lambda s: s.written("'v' value", topic="{topic}", **{"kafka.value.serializer": "x"})),
    Case("no mode", lambda s: s.written("'v' value", topic="{topic}", mode=None, partitions=1)),
    Case("overwrite", lambda s: s.written("'v' value", topic="{topic}", mode="overwrite")),
    Case("ignore", lambda s: s.written("'v' value", topic="{topic}", mode="ignore")),
    Case("a topic that is not there", lambda s: _made(s)),
    Case("a topic with an invalid name", lambda s: s.written("'v' value", topic="a b", **{"kafka.max.block.ms": 3000})),
    # --- streams
    Case("a stream", lambda s: s.stream(subscribe="src", startingOffsets="earliest")),
    Case("maxOffsetsPerTrigger", lambda s: s.stream(subscribe="src", startingOffsets="earliest", maxOffsetsPerTrigger=20)),
    Case("maxOffsetsPerTrigger, uneven partitions", lambda s: s.stream(subscribe="uneven", startingOffsets="earliest", maxOffsetsPerTrigger=25)),
    Case("maxOffsetsPerTrigger of 1", lambda s: s.stream(subscribe="few", startingOffsets="earliest", maxOffsetsPerTrigger=1)),
    Case("maxOffsetsPerTrigger of 0", lambda s: s.stream(subscribe="few", startingOffsets="earliest", maxOffsetsPerTrigger=0),
         differs="it would never read anything"),
    Case("maxOffsetsPerTrigger, a query that runs", lambda s: s.running(3, subscribe="src", startingOffsets="earliest", maxOffsetsPerTrigger=40)),
    Case("minOffsetsPerTrigger, available now", lambda s: s.stream(subscribe="src", startingOffsets="earliest", minOffsetsPerTrigger=10_000)),
    Case("minOffsetsPerTrigger, a query that runs", lambda s: s.running(1, subscribe="src", startingOffsets="earliest", minOffsetsPerTrigger=10_000, maxTriggerDelay="5s")),
    Case("both limits", lambda s: s.running(3, subscribe="src", startingOffsets="earliest", minOffsetsPerTrigger=10, maxOffsetsPerTrigger=40)),
    Case("least more than most", lambda s: s.stream(subscribe="src", startingOffsets="earliest", minOffsetsPerTrigger=50, maxOffsetsPerTrigger=40)),
    Case("a delay that is no time", lambda s: s.stream(subscribe="src", startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="soon")),
    Case("a limit that is no number", lambda s: s.stream(subscribe="src", startingOffsets="earliest", maxOffsetsPerTrigger="few")),
    Case("a stream from the latest", lambda s: s.stream(subscribe="src")),
    Case("a stream by timestamp", lambda s: s.stream(subscribe="src", startingOffsetsByTimestamp=_per_partition(T0 + 55))),
    Case("a stream from a timestamp", lambda s: s.stream(subscribe="src", startingTimestamp=T0 + 55)),
    Case("a stream by timestamp, too late", lambda s: s.stream(subscribe="src", startingTimestamp=T0 + 10**7)),
    Case("a stream by timestamp, too late, latest", lambda s: s.stream(subscribe="src", startingTimestamp=T0 + 10**7, startingOffsetsByTimestampStrategy="latest")),
    Case("a stream with an end", lambda s: s.stream(subscribe="src", endingOffsets="latest")),
    Case("a stream with a group", lambda s: s.stream(subscribe="src", startingOffsets="earliest", **{"kafka.group.id": f"mine-{s.name}"})),
    Case("a stream with headers", lambda s: s.stream(subscribe="src", startingOffsets="earliest", includeHeaders="true", minPartitions=7)),
    Case("a stream of removed records", lambda s: s.stream(subscribe="cut", startingOffsets='{"cut":{"0":1}}')),
    Case("a stream of removed records, failOnDataLoss=false", lambda s: s.stream(subscribe="cut", startingOffsets='{"cut":{"0":1}}', failOnDataLoss="false")),
    Case("a restart with other options", lambda s: s.restarted("a", "a", maxOffsetsPerTrigger=2, minPartitions=3, includeHeaders="true")),
    Case("a restart with one more topic", lambda s: s.restarted("a", "ab")),
    Case("a restart with one topic less", lambda s: s.restarted("ab", "a")),
    Case("a restart with one topic less, failOnDataLoss=false", lambda s: s.restarted("ab", "a", failOnDataLoss="false")),
    Case("a restart after the topic was created again", lambda s: s.restarted("a", "a", again=True)),
    Case("a restart after the topic was created again, failOnDataLoss=false", lambda s: s.restarted("a", "a", again=True, failOnDataLoss="false"),
         differs="Spark's connector begins behind as many of the new topic's records as it had read of the old one's"),
    Case("a stream of an unknown topic", lambda s: s.stream(subscribe="nowhere-3", startingOffsets="earliest", **{"fetchOffset.numRetries": "0"})),
    Case("a stream of an unknown pattern", lambda s: s.stream(subscribePattern="zzz.*", startingOffsets="earliest")),
    # --- records that are hard to read: transactions, compaction, headers and times that nothing forbids
    *[case for level in ("read_committed", "read_uncommitted") for case in _of_transactions(level)],
    Case("odd records", lambda s: _odd(s, 0)),
    Case("a time before 1582", lambda s: _odd(s, 1),
         differs="the connector counts the days of the Julian calendar as those of the Gregorian one; here it is the record's time"),
    Case("odd records, a stream", lambda s: s.stream(assign='{"odd":[0]}', startingOffsets="earliest", includeHeaders="true")),
    Case("compacted", lambda s: s.read(subscribe="compacted")),
    Case("compacted, from a record that is gone", lambda s: s.read(subscribe="compacted", startingOffsets='{"compacted":{"0":3}}', endingOffsets='{"compacted":{"0":37}}')),
    Case("compacted, a stream", lambda s: s.stream(subscribe="compacted", startingOffsets="earliest", maxOffsetsPerTrigger=7)),
    Case("compacted, many tasks", lambda s: s.read(subscribe="compacted", minPartitions=9)),
]  # fmt: skip


def _odd(side: Side, partition: int) -> list[Any]:
    """With times as numbers: Python has none after the year 9999."""
    frame = side.frame(assign=f'{{"odd":[{partition}]}}', includeHeaders="true")
    times = ("unix_micros(timestamp)", "timestampType")
    return sorted(
        (tuple(row) for row in frame.selectExpr("offset", "key", "value", "headers", *times).collect()), key=str
    )


def _made(side: Side) -> list[Any]:
    topic = f"made-by-{side.name}"
    rows = side.spark.range(3).selectExpr("'v' value")
    rows.write.format(side.name).options(**{"kafka.bootstrap.servers": side.bootstrap, "topic": topic}).mode(
        "append"
    ).save()
    return sorted(row[3] for row in side.content(topic))


@pytest.fixture(scope="module")
def sides(kafkalite_cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    from pyspark_kafkalite.driver import like_kafka

    scratch = tmp_path_factory.mktemp("spark")
    session = start_session(
        scratch,
        jars=connector_jars(CACHE, CONNECTORS[pyspark.__version__.rpartition(".")[0]]),
        settings={"spark.python.unix.domain.socket.enabled": "true"},
    )
    like_kafka()  # as an installed wheel does at Python's start
    bootstrap = ",".join(kafkalite_cluster.bootstrap)
    with BlockingClient(bootstrap) as client:
        for topic, partitions in (("src", 3), ("empty", 2), ("cut", 1), ("uneven", 3), ("few", 2)):
            create(client, topic, partitions)
        for partition in range(3):
            put(client, "src", partition, 40)
            put(client, "uneven", partition, (5, 50, 20)[partition])
        put(client, "cut", 0, 20)
        admin(bootstrap, "delete-records", "cut", "--partition", "0", "--before", "12")
        hostile(session, client, bootstrap)
        put(client, "few", 0, 2)
        put(client, "few", 1, 1)
        yield [Side(name, session, client, bootstrap, scratch) for name in ("kafka", "kafkalite")]
    session.stop()


def test_names_of_cases() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_both_do_the_same(case: Case, sides: list[Side]) -> None:
    (how, what), (our_how, ours) = (outcome(case.run, side) for side in sides)
    if os.environ.get("DIFFERENCES"):
        print(f"\n== {case.name}\n  kafka     {how} {str(what)[:400]}\n  kafkalite {our_how} {str(ours)[:400]}")
    same = how == our_how and (how == "refused" or what == ours)
    if case.differs is None:
        assert same, f"kafka: {how} {what}\nkafkalite: {our_how} {ours}"
    else:
        assert not same, f"no difference any more: {case.differs}"


def test_a_checkpoint_goes_to_kafkalite_and_back(sides: list[Side]) -> None:
    """Each of the three queries reads what came since the one before, and nothing else."""
    from pyspark_kafkalite.checkpoint import to_kafka

    theirs, ours = sides
    checkpoint = theirs.scratch / "there-and-back"
    create(theirs.client, "moving", 2)
    found: list[int] = []

    def take(frame: Any, number: int) -> None:
        found.extend(row[0] for row in frame.selectExpr("offset + 1000 * partition").collect())

    for count, side in enumerate((theirs, ours, theirs)):
        for partition in range(2):
            put(theirs.client, "moving", partition, 10)
        if count == 2:
            assert to_kafka(checkpoint) == 1
        reader = side.spark.readStream.format(side.name).option("kafka.bootstrap.servers", side.bootstrap)
        frame = reader.option("subscribe", "moving").option("startingOffsets", "earliest").load()
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
        assert sorted(found) == [n + 1000 * p for p in range(2) for n in range(10 * (count + 1))]
