"""Spark jobs on a real cluster whose nodes are killed while the jobs run: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.chaos import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(240)]

SETTINGS = {"zookeeper.session.timeout.ms": 2_000, "replica.lag.time.max.ms": 5_000}
ROWS = 60_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path, nodes=3, settings=SETTINGS) as running:
        yield running


async def create(cluster: ProcessCluster, topic: str) -> None:
    async with AsyncClient.connect(cluster.bootstrap) as client:
        results = await client.create_topics([NewTopic(topic, 3, 3, configs={"min.insync.replicas": "2"})])
        assert [r.error for r in results] == [0]
    await wait_in_sync(cluster, topic, 3)


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
