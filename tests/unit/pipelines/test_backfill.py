"""What a range keeps between two runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafkalite.model import LATEST_TIMESTAMP, Offset, TopicId
from kafkalite.model import TopicPartition as Tp
from kafkalite.partition_values import ListedOffset
from kafkalite_pipelines import (
    DeltaSink,
    IcebergSink,
    ParquetSink,
    Pipeline,
    PipelineError,
    Source,
    TopicSink,
    backfill,
)
from kafkalite_pipelines.control import own
from kafkalite_pipelines.definition import Sink
from kafkalite_pipelines.sinks.sink import Batch
from tests.spark.fake_log import FakeLog


def opened(directory: Path, *sinks: Sink) -> dict[str, object]:
    source = Pipeline("p", {}, Source(("t",)), (), directory=directory)
    pipeline = backfill.backfill_of(source, "again", sinks)
    state = backfill._opened(pipeline, own(pipeline), backfill.Range("earliest", "latest"))
    own(pipeline).write(backfill._STATE, json.dumps(state))
    return state


def test_a_replay_has_no_watermark() -> None:
    """With that of its pipeline its batches were taken for rows of stateful steps: each reported 0 records."""
    pipeline = Pipeline("p", {}, Source(("t",)), (), watermark=("at", "1 minute"))
    assert backfill.replay_of(pipeline, "again", TopicSink("out")).watermark is None


def test_a_range_continues_with_new_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "_bounds", lambda *_: ({Tp("t", 0): 0}, {Tp("t", 0): 9}))

    def sinks(secret: str) -> tuple[Sink, ...]:
        iceberg = IcebergSink("i", catalog={"type": "rest", "uri": "http://h", "token": secret})
        delta = DeltaSink("s3://b/d", storage={"AWS_SECRET_ACCESS_KEY": secret})
        return iceberg, delta, ParquetSink("files"), TopicSink("out")

    first = opened(tmp_path, *sinks("secret one"))
    assert "secret" not in json.dumps(first)
    assert opened(tmp_path, *sinks("secret two")) == first
    with pytest.raises(PipelineError, match="the name of another range or target"):
        opened(tmp_path, *sinks("secret two")[:3], TopicSink("other"))


@pytest.mark.parametrize(
    ("begin", "end", "line"),
    [((5, 9), (2, 9), "the range ends before it begins"), ((5, 1), (2, 9), None), ((5, 9), (5, 9), None)],
)
def test_a_range_that_ends_before_it_begins(
    begin: tuple[int, int], end: tuple[int, int], line: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to have no records, or to be finished."""
    both = [Tp("t", 0), Tp("t", 1)]

    class Reader:
        def __init__(self, offsets: tuple[int, int]) -> None:
            self.options = self
            self.starting = dict(zip(both, offsets, strict=True))

        def partitions(self) -> list[Tp]:
            return both

        def start_offsets(self, _: list[Tp], starting: dict[Tp, int]) -> dict[Tp, int]:
            return starting

        def earliest(self, _: list[Tp]) -> dict[Tp, int]:
            return dict.fromkeys(both, 0)

        def latest(self, _: list[Tp]) -> dict[Tp, int]:
            return dict.fromkeys(both, 9)

    readers = iter([Reader(end), Reader(begin), Reader(end)])
    monkeypatch.setattr(backfill, "connected", lambda *_: next(readers))
    pipeline = Pipeline("p", {}, Source(("t",)), ())
    if line is not None:
        with pytest.raises(PipelineError, match=line):
            backfill._bounds(pipeline, backfill.Range("any", "any"))
    else:
        begins, ends = backfill._bounds(pipeline, backfill.Range("any", "any"))
        assert all(begins[tp] <= ends[tp] for tp in both)


@pytest.mark.parametrize(
    ("begin", "end", "wanted"),
    [
        ("earliest", 40, ({Tp("t", 0): 0}, {Tp("t", 0): 4})),
        ("earliest", 50, ({Tp("t", 0): 0}, {Tp("t", 0): 5})),
        ("earliest", "latest", ({Tp("t", 0): 0}, {Tp("t", 0): 5})),
        ("earliest", 70, "t-0 is decided up to offset 5, and the time is at 7"),
        ("earliest", 990, "t-0 is decided up to offset 5, and the time is at 9"),
        (60, "latest", "t-0 is decided up to offset 5, and the time is at 6"),
    ],
)
def test_times_beyond_an_open_transaction(
    begin: str | int, end: str | int, wanted: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range ended where the transaction begins, without a word: what was committed later was left out of it for ever."""
    log = OpenTransaction()
    log.add_topic("t", 1)
    for n in range(9):
        log.put("t", 0, (b"k", b"v"), ts=n * 10_000)
    monkeypatch.setattr("pyspark_kafkalite.clients.shared", lambda _: log)
    pipeline = Pipeline("p", {"bootstrap.servers": "h:1"}, Source(("t",)), ())
    bounds = [datetime.fromtimestamp(each, UTC) if isinstance(each, int) else each for each in (begin, end)]
    if isinstance(wanted, str):
        with pytest.raises(PipelineError, match=f"beyond the beginning of an open transaction: {wanted}"):
            backfill._bounds(pipeline, backfill.Range(*bounds))
    else:
        assert backfill._bounds(pipeline, backfill.Range(*bounds)) == wanted


@pytest.mark.parametrize(
    ("begin", "end", "line"),
    [
        ("earliest", {"t": {"0": 9}}, "the end of the range: t-0 has offsets 0 to 5, not 9. .* Set source.fail_on_data_loss"),
        ({"t": {"0": 9}}, "latest", "the beginning of the range: t-0 has offsets 0 to 5, not 9"),
        ({"t": {"1": 0}}, "latest", "the beginning of the range must name every partition .*: t-0 missing, t-1 not subscribed"),
    ],
)  # fmt: skip
def test_wrong_offsets_are_those_of_the_range(
    begin: backfill.Bound, end: backfill.Bound, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both bounds it was said that startingOffsets was wrong, an option of Spark that nobody had given."""
    log = FakeLog()
    log.add_topic("t", 1)
    log.put("t", 0, *[(b"k", b"v")] * 5)
    monkeypatch.setattr("pyspark_kafkalite.clients.shared", lambda _: log)
    pipeline = Pipeline("p", {"bootstrap.servers": "h:1"}, Source(("t",)), ())
    with pytest.raises(PipelineError, match=f"^{line}"):
        backfill._bounds(pipeline, backfill.Range(begin, end))


def test_a_topic_that_is_created_again_while_a_range_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was looked for when the range was continued only: the batches that followed had the records of the other topic."""
    log = FakeLog()
    log.add_topic("t", 1)
    log.put("t", 0, *[(b"k", b"v")] * 5)
    done: list[int] = []

    class Batches:
        def __init__(self, *_: object) -> None:
            """Without Spark."""

        def process(self, _: object, batch: Batch) -> None:
            done.append(batch.number)
            log.topic_ids["t"] = TopicId("another")

    monkeypatch.setattr("pyspark_kafkalite.clients.shared", lambda _: log)
    monkeypatch.setattr(backfill, "Batches", Batches)
    monkeypatch.setattr(backfill, "_records", lambda *_: None)
    pipeline = Pipeline("p", {"bootstrap.servers": "h:1"}, Source(("t",)), (), directory=tmp_path)
    ours = backfill.backfill_of(pipeline, "again", (TopicSink("out"),))
    nothing: Any = object()  # Spark is not asked
    with pytest.raises(PipelineError, match="topic t was deleted, or created again"):
        backfill.run(ours, nothing, backfill.Range("earliest", "latest"), max_records=2)
    assert done == [0]


class OpenTransaction(FakeLog):
    """From offset 5 on."""

    def list_offsets(self, asked: Mapping[Tp, int], *, isolation: int = 0) -> dict[Tp, ListedOffset]:
        found = super().list_offsets(asked, isolation=isolation)
        if isolation == 0:
            return found
        return {
            tp: ListedOffset(*tp, error=0, timestamp=-1, offset=Offset(5 if asked[tp] == LATEST_TIMESTAMP else -1))
            if entry.offset >= 5
            else entry
            for tp, entry in found.items()
        }
