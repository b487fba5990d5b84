"""At the edges of retention: exactly as old, exactly as much, and the values 0 and -1."""

import pytest

from kafkalite.config import TopicConfig
from kafkalite.log.retention import SegmentFacts, segments_to_delete


def removed(config: TopicConfig, *, now_ms: int = 1_000, high_watermark: int = 100) -> int:
    """Of three segments of 100 bytes, whose largest timestamps are 100, 200 and 300."""
    segments = [SegmentFacts(10 * number, 100, 100 * number) for number in (1, 2, 3)]
    return segments_to_delete(segments, config, high_watermark=high_watermark, log_start_offset=0, now_ms=now_ms)


@pytest.mark.parametrize(("retention_ms", "count"), [(-1, 0), (0, 3), (1, 3), (799, 2), (800, 1), (899, 1), (900, 0)])
def test_a_segment_goes_when_it_is_older_than_may_be_kept_not_when_it_is_as_old(retention_ms: int, count: int) -> None:
    assert removed(TopicConfig(retention_ms=retention_ms)) == count


def test_nothing_is_too_old_in_the_millisecond_in_which_it_was_written() -> None:
    assert removed(TopicConfig(retention_ms=0), now_ms=100) == 0


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(-1, 0), (0, 3), (1, 2), (99, 2), (100, 2), (101, 1), (200, 1), (300, 0)]
)
def test_a_segment_goes_when_what_is_left_without_it_is_enough(retention_bytes: int, count: int) -> None:
    assert removed(TopicConfig(retention_ms=-1, retention_bytes=retention_bytes)) == count


@pytest.mark.parametrize(("high_watermark", "count"), [(9, 0), (10, 1), (29, 2), (30, 3)])
def test_nothing_goes_that_reaches_beyond_the_high_watermark(high_watermark: int, count: int) -> None:
    assert removed(TopicConfig(retention_ms=0), high_watermark=high_watermark) == count


@pytest.mark.parametrize(
    ("sizes", "count"), [((0,), 0), ((100, 0), 1), ((0, 0), 1), ((0, 100, 0), 2), ((100, 0, 0), 2)]
)
def test_an_empty_active_segment_stays_where_all_records_are_deleted(sizes: tuple[int, ...], count: int) -> None:
    segments = [SegmentFacts(10, size, 0) for size in sizes]
    config = TopicConfig(retention_ms=-1)
    assert segments_to_delete(segments, config, high_watermark=10, log_start_offset=10, now_ms=0) == count
