"""Backfill and replay: a range of records once more, each once, also if it is interrupted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.processes import ProcessCluster
from kafkalite_pipelines import IcebergSink, PipelineError, parse
from kafkalite_pipelines.backfill import Range, Report, backfill_of, replay_of, run
from kafkalite_pipelines.control import own
from tests.spark.test_pipelines import described, iceberg, numbers, put

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_range_into_another_table_in_limited_batches(spark, log, tmp_path: Path) -> None:
    pipeline = described(
        log, tmp_path, {"format": "iceberg", "table": "t"}, dead_letters={"topic": "dead"},
        steps=[{"sql": "SELECT n, _offset FROM input"}],
    )  # fmt: skip
    put(log, 0, 40)
    log.log.put("t", 1, (b"bad", b"{nope"))
    wanted = Range({"t": {"0": 5, "1": 0}}, {"t": {"0": 15, "1": -1}})
    ours = backfill_of(pipeline, "again", (IcebergSink("copy"),))
    waits: list[float] = []
    seen: list[Report] = []
    assert run(ours, spark, wanted, seen.append, max_records=11, records_per_s=0.5, sleep=waits.append) == 3
    put(log, 40, 50)  # after the range was fixed
    assert run(ours, spark, wanted, max_records=11) == 0
    expected = sorted([2 * n for n in range(5, 15)] + [2 * n + 1 for n in range(20)])
    assert numbers(iceberg(tmp_path, "copy").scan().to_arrow()) == expected
    assert [(each.total, each.done) for each in seen][-1] == (31, 31) and sum(each.bad for each in seen) == 1
    assert len(waits) == 3 and max(waits) > 1
    assert [record.value for record in log.log.records("dead", 0)] == [b"{nope"]
    with pytest.raises(PipelineError, match="the name of another range"):
        run(ours, spark, Range("earliest", "latest"))


class Killed(Exception):
    """Stands for the death of the process between two batches."""


def die(report: Report) -> None:
    raise Killed


@pytest.mark.cluster
def test_a_replay_that_is_interrupted_has_each_record_once(spark, tmp_path: Path) -> None:
    with ProcessCluster(tmp_path / "cluster", nodes=1) as cluster:
        asyncio.run(_fill(cluster, 30))
        values = {
            "name": "p",
            "kafka": {"bootstrap.servers": ",".join(cluster.bootstrap)},
            "source": {"topics": ["t"]},
            "sinks": [{"format": "iceberg", "table": "t"}],
        }
        ours = replay_of(parse(values, tmp_path), "copy", "out", "exactly-once")
        everything = Range("earliest", "latest")
        with pytest.raises(Killed):
            run(ours, spark, everything, die, max_records=12)
        # as if it had died before it noted the batch that is in the topic
        state = own(ours).read_json("backfill.json")
        before = state | {"next": state["position"], "position": state["begins"], "number": 0}
        own(ours).write("backfill.json", json.dumps(before))
        assert run(ours, spark, everything, max_records=12) == 3
        reader = spark.read.format("kafkalite").option("kafka.bootstrap.servers", ",".join(cluster.bootstrap))
        copied = (
            reader.option("subscribe", "out").load().selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").collect()
        )
        assert sorted(row.n for row in copied) == list(range(30))


async def _fill(cluster: ProcessCluster, count: int) -> None:
    async with AsyncClient.connect(cluster.bootstrap) as client:
        await client.create_topics([NewTopic("t", 2, 1), NewTopic("out", 2, 1)])
        await client.known_topic("t", timeout_s=30)
        async with Producer(client, acks="all") as producer:
            for n in range(count):
                await producer.send("t", b"%d" % n, b"%d" % n)
            await producer.flush()
