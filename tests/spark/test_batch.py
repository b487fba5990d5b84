"""The batch source and sink through Spark itself, over sockets."""

from __future__ import annotations

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.datasource import DataSourceReader

from kafkalite.model import TopicPartition as Tp
from kafkalite.record.batch import parse_header
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.compression import Codec
from pyspark_kafkalite.driver import like_kafka

pytestmark = [pytest.mark.spark]


def load(spark, served, topic: str = "t", **options: str):
    reader = spark.read.format("kafkalite").option("kafka.bootstrap.servers", served.address)
    return reader.option("subscribe", topic).options(**options).load()


@pytest.fixture
def numbers(served):
    """Two partitions with 1000 numbered records each, a codec per batch."""
    served.log.add_topic("t", 2)
    for partition in (0, 1):
        for first in range(0, 1000, 100):
            batch = RecordBatchBuilder(Codec(first // 100 % 5))
            for n in range(first, first + 100):
                batch.append(b"k%d" % n, b"%d" % n, [("h", b"x")] if n % 2 else (), 1_700_000_000_000 + n)
            served.log.append(Tp("t", partition), batch.build())
    return served


def test_columns_types_and_rows(spark, numbers) -> None:
    df = load(spark, numbers, includeHeaders="true")
    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in df.schema)
    rows = df.where("partition = 1 and offset in (0, 7)").orderBy("offset").collect()
    utc = datetime.datetime(2023, 11, 14, 22, 13, 20, 7000)
    assert [(bytes(r.key), bytes(r.value), r.topic, r.partition, r.offset, r.timestampType) for r in rows] == [
        (b"k0", b"0", "t", 1, 0, 0),
        (b"k7", b"7", "t", 1, 7, 0),
    ]
    assert rows[0].headers is None and [(h.key, bytes(h.value)) for h in rows[1].headers] == [("h", b"x")]
    assert df.where("offset = 7 and partition = 1").selectExpr("timestamp").collect()[0][0] == utc
    assert df.count() == 2000


@pytest.mark.checklist(94)
def test_sql_sees_every_record_once(spark, numbers) -> None:
    load(spark, numbers, minPartitions="5").createOrReplaceTempView("t")
    query = "select count(*) n, count(distinct partition, offset) d, sum(cast(cast(value as string) as int)) s from t"
    assert spark.sql(query).collect()[0] == (2000, 2000, 2 * sum(range(1000)))


def test_offsets_and_a_schema_of_one_s_own(spark, numbers) -> None:
    reader = spark.read.format("kafkalite").option("kafka.bootstrap.servers", numbers.address).option("subscribe", "t")
    df = reader.schema("offset long, value binary").option("startingOffsets", '{"t":{"0":990,"1":-2}}')
    rows = df.option("endingOffsets", '{"t":{"0":-1,"1":1}}').load().orderBy("offset").collect()
    assert [(r.offset, bytes(r.value)) for r in rows] == [(0, b"0"), *((n, b"%d" % n) for n in range(990, 1000))]


@pytest.mark.parametrize("enabled", ["true", "false"])
@pytest.mark.parametrize("asked", ["auto", "always", "never"])
def test_filters_are_pushed_when_spark_allows_it_and_right_anyway(spark, numbers, enabled: str, asked: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
    try:
        df = load(spark, numbers, filterPushdown=asked)
        df = df.where("partition = 1 and timestamp >= timestamp '2023-11-14 22:13:20.900'")
        assert df.count() == 100
        # Before pushLimit Spark mixes up the plans of a DataFrame (next test): nothing is narrowed unless it is asked for.
        can_push = hasattr(DataSourceReader, "pushFilters")
        narrows = can_push and (asked == "always" or (asked == "auto" and hasattr(DataSourceReader, "pushLimit")))
        assert df.rdd.getNumPartitions() == (1 if enabled == "true" and narrows else 2)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_dataframe_may_be_filtered_in_two_ways(spark, numbers) -> None:
    """Up to 4.3 Spark reads all of a DataFrame by the plan that its last pushed filters led to."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        df = load(spark, numbers)
        assert [df.where("offset < 5").count(), df.where("partition = 1").count(), df.count()] == [10, 1000, 2000]
        assert df.where("offset >= 990").union(df.where("offset < 10")).count() == 40
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_an_empty_topic(spark, served) -> None:
    served.log.add_topic("t", 2)
    assert load(spark, served).count() == 0


@pytest.mark.checklist(94)
def test_what_is_written_is_read_back(spark, served) -> None:
    served.log.add_topic("out", 3)
    df = spark.range(0, 5000, 1, 2).selectExpr(
        "cast(id % 100 as string) key",
        "concat('value-', id) value",
        "case when id % 2 = 0 then array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) end headers",
    )
    df.write.format("kafkalite").option("kafka.bootstrap.servers", served.address).option("topic", "out").mode(
        "append"
    ).save()
    back = load(spark, served, "out", includeHeaders="true")
    expected = df.selectExpr("key", "value", "headers").collect()
    found = back.selectExpr("cast(key as string) key", "cast(value as string) value", "headers").collect()
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert back.groupBy("key").agg({"partition": "min"}).count() == 100
    spread = {bytes(r.key): r.partition for r in back.select("key", "partition").collect()}
    assert len(spread) == back.select("key", "partition").distinct().count() == 100


def test_the_topic_column_and_a_temporary_view(spark, served) -> None:
    served.log.add_topic("a", 1)
    served.log.add_topic("b", 1)
    df = spark.range(10).selectExpr("case when id % 2 = 0 then 'a' else 'b' end topic", "cast(id as string) value")
    df.write.format("kafkalite").option("kafka.bootstrap.servers", served.address).mode("append").save()
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW ab USING kafkalite OPTIONS "
        f"(`kafka.bootstrap.servers` '{served.address}', subscribePattern '[ab]')"
    )
    assert spark.sql("select topic, count(*) n from ab group by topic order by topic").collect() == [("a", 5), ("b", 5)]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s, a: s.read.format("kafkalite").option("kafka.bootstrap.servers", a).load().count(), "exactly one of assign"),
        (lambda s, a: s.read.format("kafkalite").option("subscribe", "t").load().count(), "kafka.bootstrap.servers is missing"),
        (
            lambda s, a: s.read.format("kafkalite").option("kafka.bootstrap.servers", a).option("subscribe", "x").load().count(),
            "x: no such topic",
        ),
        (
            lambda s, a: s.range(1).write.format("kafkalite").option("kafka.bootstrap.servers", a).mode("append").save(),
            "no column value",
        ),
        (
            lambda s, a: s.sql("select 'v' value, 'nope' topic").write.format("kafkalite")
            .option("kafka.bootstrap.servers", a).mode("append").save(),
            "create-topic nope",
        ),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(spark, served, make, says: str) -> None:
    with pytest.raises(Exception, match=says):
        make(spark, served.address)


def in_a_thread(work) -> None:
    """Raises what the work raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def test_a_thread_writes_when_it_has_an_active_session(spark, served) -> None:
    served.log.add_topic("t", 1)
    rows = spark.range(10).selectExpr("cast(id as string) value")
    writer = rows.write.format("kafkalite").option("kafka.bootstrap.servers", served.address).option("topic", "t")

    def work() -> None:
        spark.createDataFrame([], "x int")  # makes the session active
        writer.mode("append").save()

    in_a_thread(work)
    assert load(spark, served).count() == 10


def test_like_kafka_a_write_needs_neither_mode_nor_main_thread(spark, served, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.readwriter import DataFrameWriter

    monkeypatch.setattr(DataFrameWriter, "save", DataFrameWriter.save)  # put back afterwards
    served.log.add_topic("t", 1)
    rows = spark.range(10).selectExpr("cast(id as string) value").write
    like_kafka()
    like_kafka()
    writer = rows.format("kafkalite").option("kafka.bootstrap.servers", served.address).option("topic", "t")
    writer.save()
    in_a_thread(writer.save)
    assert load(spark, served).count() == 20
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.mode("overwrite").save()


def test_the_tasks_of_a_worker_share_a_producer(spark, served) -> None:
    """Else each would leave its id on the brokers for a day."""
    served.log.add_topic("many", 2)
    for n in range(5):
        frame = spark.range(n * 10, n * 10 + 10, 1, 4).selectExpr("CAST(id AS STRING) AS value")
        writer = frame.write.format("kafkalite").mode("append").option("kafka.bootstrap.servers", served.address)
        writer.option("topic", "many").save()
    batches = [batch for tp, log in served.log.partitions.items() if tp.topic == "many" for batch in log.batches]
    ids = {parse_header(batch).producer_id for batch in batches}
    written = sorted(int(r.value) for p in range(2) for r in served.log.records("many", p))
    assert written == list(range(50))
    assert 1 <= len(ids) <= 8 < 20, "tasks"
