"""Spark jobs on a real cluster whose nodes, and drivers, are killed while the jobs run: nothing lost, nothing twice.

`python -m bench.spark_exactly_once` has every accident there is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.spark_exactly_once import SETTINGS, SHORT, create, fill
from bench.spark_exactly_once import run as run_with_accidents
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster
from kafkalite_pipelines import TopicSink, parse
from kafkalite_pipelines.backfill import Range, replay_of, run
from kafkalite_pipelines.control import own
from tests.spark.test_pipeline_ranges import Killed, die

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

ROWS = 60_000
RECORDS = 3_000


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), nodes=3, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def cluster(started: ProcessCluster) -> Iterator[ProcessCluster]:
    yield started
    for node, process in started.nodes.items():
        if not process.running:
            process.kill()  # it is dead; this takes its remains away
            started.restart(node)


async def leader(cluster: ProcessCluster, topic: str) -> int:
    """Of partition 0."""
    async with AsyncClient.connect(cluster.bootstrap) as client:
        return (await client.metadata([topic])).topics[0].partitions[0].leader


def killing(df, pid: int, at_row: int):
    """The same rows; the process is killed when the row with that number goes by."""

    def through(batches):
        for batch in batches:
            if at_row in batch["id"].to_pylist():
                os.kill(pid, signal.SIGKILL)
            yield batch

    return df.mapInArrow(through, df.schema)


def reactivate(spark) -> None:
    """Make the session this thread's active one again.

    Starting a process with `preexec_fn` from another thread forks; in the child this thread's locals are dropped, and
    with them py4j's connection, whose farewell goes over the socket that both share. The next call to the JVM then comes
    from a new thread there, which knows no active session and finds no Python data source.
    """
    spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


def source(spark, cluster: ProcessCluster):
    return spark.read.format("kafkalite").option("kafka.bootstrap.servers", ",".join(cluster.bootstrap))


@pytest.mark.checklist(94)
@pytest.mark.checklist("F27")
def test_jobs_survive_kill_9_of_the_leader(spark, cluster) -> None:
    reactivate(spark)
    asyncio.run(create(cluster, "t"))
    first = asyncio.run(leader(cluster, "t"))
    rows = killing(spark.range(0, ROWS, 1, 2), cluster.nodes[first].pid, ROWS // 4)
    sink = rows.selectExpr("cast(id % 1000 as string) key", "cast(id as string) value").write.format("kafkalite")
    sink = sink.option("kafka.bootstrap.servers", ",".join(cluster.bootstrap)).option("topic", "t")
    sink.option("kafka.buffer.memory", "100000").mode("append").save()
    assert not cluster.nodes[first].running

    numbers = "cast(cast(value as string) as long) id"
    df = source(spark, cluster).option("subscribe", "t").load()
    counted = df.selectExpr(
        "count(*) n", "count(distinct value) d", "sum(cast(cast(value as string) as long)) s"
    ).collect()
    assert counted == [(ROWS, ROWS, sum(range(ROWS)))]

    # the second death in the middle of a read; small fetches, so that most are still to come
    cluster.nodes[first].kill()  # it is dead; this takes its remains away
    cluster.restart(first)
    reactivate(spark)
    asyncio.run(wait_in_sync(cluster, "t", 3))
    second = asyncio.run(leader(cluster, "t"))
    small = source(spark, cluster).option("subscribe", "t").option("kafka.max.partition.fetch.bytes", "20000").load()
    read = killing(small.selectExpr(numbers), cluster.nodes[second].pid, 100)
    assert read.selectExpr("count(*) n", "count(distinct id) d").collect() == [(ROWS, ROWS)]
    assert not cluster.nodes[second].running


@pytest.mark.checklist(94)
@pytest.mark.checklist("F27")
@pytest.mark.timeout(3_600)  # three drivers one after the other, each with a guard of its own
def test_each_number_once_over_failed_tasks_a_killed_driver_and_a_killed_coordinator(cluster, tmp_path) -> None:
    """The records of what was aborted are in the log: the accidents did happen."""
    asyncio.run(create(cluster, "numbers", "once"))
    fill(cluster, "numbers", RECORDS)
    once = run_with_accidents(cluster, tmp_path, "numbers", "once", "exactly-once", RECORDS, 3, SHORT)
    assert (once.records, once.duplicates, once.lost) == (RECORDS, 0, 0)
    assert once.accidents == len(SHORT) and once.driver_starts == 2 and once.uncommitted_too > RECORDS


def test_a_replay_that_is_interrupted_has_each_record_once(spark, cluster, tmp_path: Path) -> None:
    asyncio.run(_fill(cluster, 30))
    values = {
        "name": "p",
        "kafka": {"bootstrap.servers": ",".join(cluster.bootstrap)},
        "source": {"topics": ["replayed"]},
        "sinks": [{"format": "iceberg", "table": "t"}],
    }
    ours = replay_of(parse(values, tmp_path), "copy", TopicSink("copies"))
    everything = Range("earliest", "latest")
    with pytest.raises(Killed):
        run(ours, spark, everything, die, max_records=12)
    # as if it had died before it noted the batch that is in the topic
    state = own(ours).read_json("backfill.json")
    before = state | {"next": state["position"], "position": state["begins"], "number": 0}
    own(ours).write("backfill.json", json.dumps(before))
    assert run(ours, spark, everything, max_records=12) == 3
    reader = spark.read.format("kafkalite").option("kafka.bootstrap.servers", ",".join(cluster.bootstrap))
    copied = reader.option("subscribe", "copies").load().selectExpr("CAST(CAST(value AS STRING) AS INT) AS n")
    assert sorted(row.n for row in copied.collect()) == list(range(30))


async def _fill(cluster: ProcessCluster, count: int) -> None:
    async with AsyncClient.connect(cluster.bootstrap) as client:
        await client.create_topics([NewTopic("replayed", 2, 1), NewTopic("copies", 2, 1)])
        await client.known_topic("replayed", timeout_s=30)
        async with Producer(client, acks="all") as producer:
            for n in range(count):
                await producer.send("replayed", b"%d" % n, b"%d" % n)
            await producer.flush()
