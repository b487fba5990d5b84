"""Through Spark Connect: a server on this machine, a client that has no JVM. `make sparks` runs it (it needs grpcio)."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from kafkalite.model import TopicPartition as Tp
from tests.spark.conftest import PATIENCE


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from pyspark_kafkalite.java import java_home

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_HOME"] = java_home()
    os.environ["SPARK_TESTING"] = "1"  # the server takes a free port and the client learns which
    scratch = tmp_path_factory.mktemp("connect")
    builder = (
        SparkSession.builder.remote("local[2]")
        .config(map=PATIENCE)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client sets once more what the server was started with
        session = builder.getOrCreate()
    yield session
    session.stop()


def test_batch_and_stream_both_ways(remote, served, tmp_path: Path) -> None:
    assert type(remote).__module__.startswith("pyspark.sql.connect")
    for topic in ("t", "copies", "once"):
        served.log.add_topic(topic, 2)
    address = ("kafka.bootstrap.servers", served.address)
    rows = remote.range(0, 500, 1, 2).selectExpr("cast(id as string) key", "cast(id as string) value")
    rows.write.format("kafkalite").option(*address).option("topic", "t").mode("append").save()
    read = remote.read.format("kafkalite").option(*address).option("subscribe", "t").load()
    sums = read.selectExpr("count(*) n", "sum(cast(cast(value as string) as int)) s").collect()
    assert [tuple(row) for row in sums] == [(500, sum(range(500)))]

    stream = remote.readStream.format("kafkalite").option(*address).option("subscribe", "t")
    for topic, guarantee in (("copies", "at-least-once"), ("once", "exactly-once")):
        writer = stream.option("startingOffsets", "earliest").load().select("key", "value").writeStream
        writer = writer.format("kafkalite").option(*address).option("topic", topic)
        writer = writer.option("deliveryGuarantee", guarantee).option("checkpointLocation", str(tmp_path / topic))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        found = sorted(int(r.value) for partition in (0, 1) for r in served.log.records(topic, partition))
        assert found == list(range(500))


def test_errors_reach_the_client(remote, served) -> None:
    reader = remote.read.format("kafkalite").option("kafka.bootstrap.servers", served.address)
    with pytest.raises(Exception, match="x: no such topic"):
        reader.option("subscribe", "x").load().count()


@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="Spark does not pass positions on after a restart")
def test_the_lag_of_a_stream_with_for_each_batch(remote, served, tmp_path: Path) -> None:
    """Its tasks do not know their query; the group is in the query's positions, over restarts."""
    served.log.add_topic("lag", 2)

    def take(frame: Any, number: int) -> None:
        frame.write.format("noop").mode("overwrite").save()

    for count in (3, 8):
        served.log.put("lag", 1, *((None, b"%d" % n) for n in range(count - 5 if count > 5 else 0, count)))
        stream = remote.readStream.format("kafkalite").option("kafka.bootstrap.servers", served.address)
        frame = stream.option("subscribe", "lag").option("startingOffsets", "earliest").load()
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "lag"))
        assert writer.queryName("lag").trigger(availableNow=True).start().awaitTermination(300)
        [(group, offsets)] = ((name, given) for name, given in served.log.committed.items() if "spark-" in name)
        assert offsets[Tp("lag", 1)] == count, group
