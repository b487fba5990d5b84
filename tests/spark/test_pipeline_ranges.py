"""Backfill and replay: a range of records once more, each once, also if it is interrupted. (Into a topic: test_cluster.py.)"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalite_pipelines import IcebergSink, PipelineError
from kafkalite_pipelines.backfill import Range, Report, backfill_of, replay_of, run
from kafkalite_pipelines.control import supervise
from tests.spark.test_pipelines import described, iceberg, numbers, put

pytestmark = [pytest.mark.spark]


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


def test_records_as_they_are_in_a_table(spark, log, tmp_path: Path) -> None:
    """With the values that no step could decode, and without the key of the pipeline's own table."""
    own_table = {"format": "iceberg", "table": "t", "key": ["n"]}
    pipeline = described(log, tmp_path, own_table, decode={"schema": {"n": "long"}, "key_column": "n"})
    log.log.put("t", 0, (b"1", b'{"n": 1}'), (b"1", None), (None, b"{nope"))
    assert run(replay_of(pipeline, "raw", IcebergSink("raw")), spark, Range("earliest", "latest")) == 1
    rows = sorted(iceberg(tmp_path, "raw").scan().to_arrow().to_pylist(), key=lambda row: row["_offset"])
    assert [(row["key"], row["value"]) for row in rows] == [(b"1", b'{"n": 1}'), (b"1", None), (None, b"{nope")]
    assert set(rows[0]) == {"key", "value", "headers", "_topic", "_partition", "_offset", "_timestamp"}


class Killed(Exception):
    """Stands for the death of the process between two batches."""


def die(report: Report) -> None:
    raise Killed


def test_a_range_does_not_continue_in_another_topic(spark, log, tmp_path: Path) -> None:
    """Its offsets are those of other records: it was half the one and half the other topic."""
    ours = backfill_of(described(log, tmp_path, {"format": "iceberg", "table": "t"}), "again", (IcebergSink("copy"),))
    put(log, 0, 10)
    with pytest.raises(Killed):
        run(ours, spark, Range("earliest", "latest"), die, max_records=4)
    log.log.topic_ids["t"] = "another"
    with pytest.raises(PipelineError, match=r"topic t was deleted, or created again, after p\.again was begun"):
        run(ours, spark, Range("earliest", "latest"), max_records=4)


def test_a_range_whose_state_is_lost_is_not_written_twice(spark, log, tmp_path: Path) -> None:
    """A checkpoint that was removed took it along: the same command wrote each record once more."""
    ours = backfill_of(described(log, tmp_path, {"format": "iceberg", "table": "t"}), "again", (IcebergSink("copy"),))
    put(log, 0, 10)
    assert run(ours, spark, Range("earliest", "latest")) == 1
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(PipelineError, match=r"Iceberg table copy has batches of p\.again, .* --name"):
        run(ours, spark, Range("earliest", "latest"))
    assert numbers(iceberg(tmp_path, "copy").scan().to_arrow()) == list(range(10))


def test_a_range_has_the_columns_that_its_pipeline_found(spark, log, tmp_path: Path) -> None:
    """It looked for columns of its own: where its records have null only, a number was text, which did not fit the table."""
    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"}, decode={}, source=NEW)
    log.log.put("t", 0, (b"a", b'{"n": null, "name": 5}'))
    put(log, 2, 6)
    assert supervise(pipeline, spark) == 0
    ours = backfill_of(pipeline, "before", pipeline.sinks)
    assert run(ours, spark, Range({"t": {"0": 0, "1": 0}}, {"t": {"0": 1, "1": 0}})) == 1
    found = {row["_offset"]: row for row in iceberg(tmp_path).scan().to_arrow().to_pylist() if row["_partition"] == 0}
    assert found[0]["n"] is None and found[0]["name"] == "5" and found[1]["n"] == 2


#: After the first record.
NEW = {"topics": ["t"], "start": {"t": {"0": 1, "1": 0}}}


def test_what_fails_in_a_range_is_one_line(spark, log, tmp_path: Path) -> None:
    """It was Spark's exception, and a stack on the terminal."""
    steps = [{"sql": "SELECT *, CASE WHEN n < 5 THEN n ELSE raise_error('too large') END AS m FROM input"}]
    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"}, steps=steps)
    ours = backfill_of(pipeline, "again", (IcebergSink("copy"),))
    put(log, 0, 10)
    with pytest.raises(PipelineError, match="too large") as failed:
        run(ours, spark, Range("earliest", "latest"))
    assert "\n" not in str(failed.value)
