"""Streams through Spark itself, over sockets. Every run is Trigger.AvailableNow: nothing waits for the clock."""

from __future__ import annotations

import pytest

from kafkalite.model import TopicPartition as Tp
from pyspark_kafkalite.progress import behind

try:
    from pyspark.sql.streaming.datasource import ReadMaxRows
except ImportError:  # before 4.2
    ReadMaxRows = None

pytestmark = [pytest.mark.spark]


def stream(spark, served, topic: str = "t", **options: str):
    reader = spark.readStream.format("kafkalite").option("kafka.bootstrap.servers", served.address)
    return reader.option("subscribe", topic).options(**options).load()


def run(df, served, topic: str, checkpoint, name: str | None = None, **options: str):
    writer = df.writeStream.format("kafkalite").option("kafka.bootstrap.servers", served.address)
    writer = writer.option("topic", topic).option("checkpointLocation", str(checkpoint)).options(**options)
    writer = writer if name is None else writer.queryName(name)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    return query


def put(served, first: int, last: int) -> None:
    for n in range(first, last):
        served.log.put("t", n % 2, (b"%d" % n, b"%d" % n))


def values(served, topic: str) -> list[int]:
    return [int(r.value) for p in (0, 1) for r in served.log.records(topic, p)]


@pytest.fixture
def pair(served):
    served.log.add_topic("t", 2)
    served.log.add_topic("out", 2)
    return served


@pytest.mark.checklist(94)
def test_topic_to_topic_over_restarts(spark, pair, tmp_path) -> None:
    put(pair, 0, 50)
    limits = {"maxOffsetsPerTrigger": "20"} if ReadMaxRows is not None else {}  # refused before Spark 4.2
    df = stream(spark, pair, startingOffsets="earliest", **limits).select("key", "value")
    query = run(df, pair, "out", tmp_path / "ck")
    assert sorted(values(pair, "out")) == list(range(50))
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    # Spark 4.0 and 4.1 take all that is available in one batch
    assert len(batches) == (3 if ReadMaxRows is not None else 1) and sum(p["numInputRows"] for p in batches) == 50
    if ReadMaxRows is not None:  # nor do they report how far the topics reach
        left = behind(query.lastProgress["sources"][0])
        assert left is not None and left.max == 0
    # every tool that shows groups shows how far the query is, by its id, or by its name if it has one
    assert pair.log.committed == {f"spark-{query.id}": {Tp("t", 0): 25, Tp("t", 1): 25}}
    put(pair, 50, 60)
    run(df, pair, "out", tmp_path / "ck", name="copy it")
    assert sorted(values(pair, "out")) == list(range(60))
    assert pair.log.committed["spark-copy it"] == {Tp("t", 0): 30, Tp("t", 1): 30}
    run(df, pair, "out", tmp_path / "ck")
    assert sorted(values(pair, "out")) == list(range(60))


def test_latest_is_pinned_before_anything_arrives(spark, pair, tmp_path) -> None:
    put(pair, 0, 10)
    df = stream(spark, pair).select("key", "value")
    run(df, pair, "out", tmp_path / "ck")
    put(pair, 10, 20)
    run(df, pair, "out", tmp_path / "ck")
    assert sorted(values(pair, "out")) == list(range(10, 20))


def test_a_new_partition_is_picked_up(spark, pair, tmp_path) -> None:
    put(pair, 0, 4)
    df = stream(spark, pair, startingOffsets="earliest").select("key", "value")
    run(df, pair, "out", tmp_path / "ck")
    pair.log.partitions[Tp("t", 2)] = type(pair.log.partitions[Tp("t", 0)])()
    pair.log.put("t", 2, (b"k", b"99"))
    run(df, pair, "out", tmp_path / "ck")
    assert sorted(values(pair, "out")) == [0, 1, 2, 3, 99]


def test_lost_offsets_fail_the_query_with_the_partition_and_the_remedy(spark, pair, tmp_path) -> None:
    put(pair, 0, 10)
    df = stream(spark, pair, startingOffsets="earliest").select("key", "value")
    run(df, pair, "out", tmp_path / "ck")
    put(pair, 10, 20)
    pair.log.partitions[Tp("t", 1)].log_start_offset = 8
    with pytest.raises(Exception, match=r"t-1: offsets 5 to 8 cannot be read.*failOnDataLoss=false"):
        run(df, pair, "out", tmp_path / "ck")
    lenient = stream(spark, pair, startingOffsets="earliest", failOnDataLoss="false").select("key", "value")
    run(lenient, pair, "out", tmp_path / "ck")
    kept = set(values(pair, "out"))
    assert kept == {*range(10), 10, 12, 14, 16, 17, 18, 19}


def test_an_aggregation_in_complete_mode(spark, pair, tmp_path) -> None:
    put(pair, 0, 10)
    df = stream(spark, pair, startingOffsets="earliest")
    counts = df.groupBy("partition").count().selectExpr("cast(partition as string) key", "cast(count as string) value")
    writer = (
        counts.writeStream.outputMode("complete").format("kafkalite").option("kafka.bootstrap.servers", pair.address)
    )
    query = writer.option("topic", "out").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert sorted((r.key, r.value) for p in (0, 1) for r in pair.log.records("out", p)) == [(b"0", b"5"), (b"1", b"5")]


def test_update_mode_through_foreach_batch(spark, pair, tmp_path) -> None:
    """The recipe of docs/spark.md: Spark does not let a Python sink have this mode."""
    counts = (
        stream(spark, pair, startingOffsets="earliest")
        .selectExpr("CAST(CAST(key AS STRING) AS INT) % 3 AS third")
        .groupBy("third")
        .count()
    )

    def put_counts(rows, batch: int) -> None:
        to_topic = rows.selectExpr("CAST(third AS STRING) AS key", "CAST(count AS STRING) AS value").write.format(
            "kafkalite"
        )
        to_topic = to_topic.options(**{"kafka.bootstrap.servers": pair.address, "topic": "out"})
        to_topic.options(deliveryGuarantee="exactly-once", txnAppId="counts", txnVersion=batch).mode("append").save()

    for first, last in ((0, 6), (6, 7)):
        put(pair, first, last)
        writer = counts.writeStream.outputMode("update").foreachBatch(put_counts)
        query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
    written = [(int(r.key), int(r.value)) for p in (0, 1) for r in pair.log.records("out", p)]
    assert sorted(written) == [(0, 2), (0, 3), (1, 2), (2, 2)]
