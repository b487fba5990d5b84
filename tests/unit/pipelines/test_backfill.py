"""What a range keeps between two runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkalite.model import TopicPartition as Tp
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


def opened(directory: Path, *sinks: Sink) -> dict[str, object]:
    source = Pipeline("p", {}, Source(("t",)), (), directory=directory)
    pipeline = backfill.backfill_of(source, "again", sinks)
    state = backfill._opened(pipeline, own(pipeline), backfill.Range("earliest", "latest"))
    own(pipeline).write(backfill._STATE, json.dumps(state))
    return state


def test_a_replay_has_no_watermark() -> None:
    """With that of its pipeline its batches were taken for rows of stateful steps: each reported 0 records."""
    pipeline = Pipeline("p", {}, Source(("t",)), (), watermark=("at", "1 minute"))
    assert backfill.replay_of(pipeline, "again", "out", "exactly-once").watermark is None


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

    readers = iter([Reader(begin), Reader(end)])
    monkeypatch.setattr(backfill, "connected", lambda *_: next(readers))
    pipeline = Pipeline("p", {}, Source(("t",)), ())
    if line is not None:
        with pytest.raises(PipelineError, match=line):
            backfill._bounds(pipeline, backfill.Range("any", "any"))
    else:
        begins, ends = backfill._bounds(pipeline, backfill.Range("any", "any"))
        assert all(begins[tp] <= ends[tp] for tp in both)
