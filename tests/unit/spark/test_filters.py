"""Filters only ever skip what they exclude."""

from __future__ import annotations

import datetime

from pyspark.sql import datasource as spark

from pyspark_kafkalite.filters import Narrowing, narrow

UTC = datetime.UTC


def test_equality_and_lists_meet() -> None:
    found = narrow(
        [
            spark.In(("topic",), ("a", "b", None)),
            spark.EqualTo(("topic",), "a"),
            spark.EqualNullSafe(("PARTITION",), 3),
            spark.EqualTo(("value",), b"x"),
            spark.IsNotNull(("topic",)),
        ]
    )
    assert found == Narrowing(topics=frozenset("a"), partitions=frozenset([3]))
    assert found.admits("a", 3) and not found.admits("a", 2) and not found.admits("b", 3)


def test_offset_bounds_take_the_narrowest() -> None:
    found = narrow(
        [spark.GreaterThan(("offset",), 9), spark.GreaterThanOrEqual(("offset",), 5), spark.LessThan(("offset",), 20)]
    )
    assert (found.first_offset, found.end_offset) == (10, 20)
    assert narrow([spark.EqualTo(("offset",), 7)]) == Narrowing(first_offset=7, end_offset=8)
    assert narrow([spark.LessThanOrEqual(("offset",), 7), spark.LessThan(("offset",), 5)]).end_offset == 5


def test_timestamps_are_lower_bounds_in_whole_milliseconds() -> None:
    exact = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    between = exact + datetime.timedelta(microseconds=1)
    assert narrow([spark.GreaterThanOrEqual(("timestamp",), exact)]).timestamp_ms == 1000
    assert narrow([spark.GreaterThan(("timestamp",), exact)]).timestamp_ms == 1001
    assert narrow([spark.GreaterThanOrEqual(("timestamp",), between)]).timestamp_ms == 1001
    assert narrow([spark.GreaterThan(("timestamp",), between)]).timestamp_ms == 1001
    assert narrow([spark.LessThan(("timestamp",), exact)]) == Narrowing()
    early = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert narrow([spark.GreaterThanOrEqual(("timestamp",), early)]) == Narrowing()  # -1: records that have no time
    assert narrow([spark.GreaterThan(("timestamp",), early)]).timestamp_ms == 0


def test_what_is_not_understood_narrows_nothing() -> None:
    assert (
        narrow(
            [
                spark.Not(spark.EqualTo(("partition",), 1)),
                spark.EqualTo(("headers", "key"), "x"),
                spark.EqualTo(("topic",), None),
            ]
        )
        == Narrowing()
    )
