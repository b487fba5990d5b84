"""What a consumer gets, as the tests of replicas see it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from kafkalite.partition_values import FetchedPartition
from kafkalite.replica.client_fetch import FetchAnswer, FetchEntry, Steps

_T = TypeVar("_T")


def fetched(entry: FetchEntry) -> tuple[FetchedPartition, bytes]:
    """What a consumer gets of one partition."""
    head = FetchedPartition(
        *entry.key,
        entry.error,
        entry.high_watermark,
        entry.last_stable_offset,
        entry.log_start_offset,
        entry.records_size,
        entry.aborted,
    )
    return head, b"".join(map(bytes, entry.records))


def answered(then: Callable[[], object]) -> Callable[[], Steps[FetchAnswer | None]]:
    """A `FetchDone` that calls `then` when there is an answer."""

    def done() -> Steps[FetchAnswer | None]:
        then()
        yield from ()
        return FetchAnswer(lambda: None)

    return done


def run_to_end(steps: Generator[None, None, _T]) -> _T:
    """What the steps return."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: _T = stop.value
            return result
