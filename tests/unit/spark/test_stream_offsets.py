"""Positions of a stream: their text, and that every record is in one batch, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.model import TopicPartition as Tp
from pyspark_kafkalite.offsets import limit
from pyspark_kafkalite.progress import Behind, ProgressLog, behind
from pyspark_kafkalite.stream_offsets import Changes, StreamOffset, changes, next_end, ranges

numbers = st.integers(0, 50)
partitions = st.builds(Tp, st.sampled_from(["a", "b"]), st.integers(0, 3))
positions = st.builds(
    StreamOffset,
    st.dictionaries(partitions, numbers),
    st.dictionaries(st.sampled_from(["a", "b"]), st.text(min_size=1, max_size=3)),
    st.booleans(),
    st.dictionaries(partitions, numbers),
)


@given(positions)
def test_the_text_tells_all(position: StreamOffset) -> None:
    text = json.dumps(position.to_json())
    assert StreamOffset.from_json(json.loads(text)) == position
    assert json.dumps(StreamOffset.from_json(json.loads(text)).to_json()) == text


def test_the_shape_is_that_of_spark_s_kafka_source() -> None:
    position = StreamOffset({Tp("t", 1): 7, Tp("t", 0): 23}, {"t": "id"})
    assert position.to_json() == {"t": {"0": 23, "1": 7}, "#kafkalite": {"ids": {"t": "id"}}}
    assert StreamOffset.from_json({"t": {"0": 23}}).offsets == {Tp("t", 0): 23}


def test_changes() -> None:
    start = StreamOffset({Tp("t", 0): 1, Tp("t", 1): 1, Tp("u", 0): 5, Tp("x", 0): 1}, {"t": "1", "u": "1", "x": "1"})
    found = {Tp("t", 0): "1", Tp("t", 2): "1", Tp("u", 0): "2"}
    assert changes(start, found) == Changes(
        kept=(Tp("t", 0),), added=(Tp("t", 2), Tp("u", 0)), gone=(Tp("t", 1), Tp("x", 0)), recreated=("u",)
    )


Limits = Callable[[Mapping[Tp, int], Mapping[Tp, int]], Mapping[Tp, int]]


def all_of_it(begins: Mapping[Tp, int], ends: Mapping[Tp, int]) -> Mapping[Tp, int]:
    return ends


def test_nothing_new_is_the_start_itself() -> None:
    start = StreamOffset({Tp("t", 0): 3}, {"t": "1"})
    assert next_end(start, start.offsets, {Tp("t", 0): 3}, {"t": "1"}, all_of_it) is start


def test_the_first_end_remembers_where_the_query_began() -> None:
    """`latest` is another place when Spark asks again at the replay of the first batch."""
    first = StreamOffset({Tp("t", 0): 30}, {"t": "1"}, initial=True)
    end = next_end(first, first.offsets, {Tp("t", 0): 30}, {"t": "1"}, all_of_it)
    assert end is not first and end.begins == {Tp("t", 0): 30}
    end = next_end(first, first.offsets, {Tp("t", 0): 45}, {"t": "1"}, all_of_it)
    asked_again = StreamOffset({Tp("t", 0): 99}, {"t": "1"}, initial=True)
    assert [(r.start, r.end) for r in ranges(asked_again, end)] == [(30, 45)]


@given(
    st.lists(st.dictionaries(partitions, st.integers(0, 20)), min_size=1, max_size=8),
    st.one_of(st.none(), st.integers(1, 15)),
)
def test_batches_follow_each_other_without_gap_or_overlap(steps: list[dict[Tp, int]], most: int | None) -> None:
    """Partitions appear and grow; each is read from its first record to what was reached, once."""
    position = StreamOffset({}, {"a": "1", "b": "1"}, initial=True)
    ends: dict[Tp, int] = {}
    read: dict[Tp, list[int]] = {}
    limits: Limits = all_of_it if most is None else lambda begins, ends: limit(begins, ends, most)
    for step in steps:
        for tp, more in step.items():
            ends[tp] = ends.get(tp, 0) + more
        begins = {tp: position.offsets.get(tp, 0) for tp in ends}
        after = next_end(position, begins, dict(ends), {"a": "1", "b": "1"}, limits)
        for part in ranges(position, after):
            read.setdefault(part.topic_partition, []).extend(range(part.start, part.end))
        position = after
    for tp, offsets in read.items():
        assert offsets == list(range(position.offsets[tp]))
    if most is None:
        assert {tp: len(read.get(tp, [])) for tp in ends} == ends


def test_how_far_behind() -> None:
    source = {
        "endOffset": {"t": {"0": 5, "1": 9}, "#kafkalite": {"ids": {}}},
        "latestOffset": '{"t":{"0":10,"1":9,"2":4}}',
    }
    assert behind(source) == Behind(min=0, max=5, avg=3.0, total=9)
    assert behind({"endOffset": None, "latestOffset": None}) is None
    assert behind({"endOffset": "x", "latestOffset": {"logOffset": 3}}) is None


def test_a_line_per_batch(caplog) -> None:
    source = SimpleNamespace(endOffset='{"t":{"0":5,"1":9}}', latestOffset='{"t":{"0":8,"1":9}}')
    foreign = SimpleNamespace(endOffset="17", latestOffset=None)
    progress = SimpleNamespace(
        name=None, id="q", batchId=4, numInputRows=14, processedRowsPerSecond=7.0, sources=[source, foreign]
    )
    with caplog.at_level("INFO", "pyspark_kafkalite"):
        ProgressLog().onQueryProgress(SimpleNamespace(progress=progress))
    assert caplog.messages == ["query q batch 4: 14 rows, 7 a second, behind by 0 to 3, 1.5 on average, 3 in all"]
