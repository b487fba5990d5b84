"""The throttle of replicas that a move adds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.model import TopicPartition
from kafkalite.replica.throttle import BURST_S, PATIENCE_MS, Throttle, is_throttled

T0 = TopicPartition("t", 0)


@pytest.mark.checklist("F22")
def test_only_replicas_that_are_added_and_not_in_sync() -> None:
    assert is_throttled(100, 3, in_sync=(1, 2), adding=(3,))
    assert not is_throttled(100, 3, in_sync=(1, 3), adding=(3,))
    assert not is_throttled(100, 2, in_sync=(1,), adding=(3,))
    assert not is_throttled(0, 3, in_sync=(1,), adding=(3,))


@pytest.mark.checklist(79)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 5_000)), max_size=60), st.integers(100, 10_000))
def test_never_more_than_the_rate_a_burst_and_one_batch(asked: list[tuple[int, int]], rate: int) -> None:
    throttle = Throttle()
    now_ms = sent = largest = 0
    for pause_ms, size in asked:
        now_ms += pause_ms
        if not throttle.wait_ms(rate, now_ms):
            throttle.take(size)
            sent += size
            largest = max(largest, size)
        assert sent <= rate * (now_ms / 1000 + BURST_S) + largest


@pytest.mark.checklist("F22")
def test_a_rate_below_that_of_the_producers_is_raised() -> None:
    throttle = Throttle()
    rates = [throttle.rate(T0, 3, 100, lag=1000 + step, now_ms=step * PATIENCE_MS) for step in range(4)]
    assert rates == [100, 150, 225, 337.5]
    assert throttle.rate(T0, 3, 100, lag=10, now_ms=4 * PATIENCE_MS) == 337.5
    throttle.retain(())
    assert throttle.rate(T0, 3, 100, lag=10, now_ms=5 * PATIENCE_MS) == 100


def test_a_replica_that_never_gains_does_not_bring_the_rate_to_infinity() -> None:
    """After two hours and a half: each answer to its fetches failed with an OverflowError from then on."""
    throttle = Throttle()
    for step in range(3_000):
        now_ms = step * PATIENCE_MS
        assert throttle.wait_ms(throttle.rate(T0, 3, 1_000, lag=1_000, now_ms=now_ms), now_ms) == 0
        assert throttle.allowance >= 1_000


def test_a_rate_that_is_raised_ends_a_long_wait() -> None:
    """One batch of a megabyte at a byte per second is a debt of twelve days."""
    throttle = Throttle()
    assert throttle.wait_ms(1.0, 0) == 0
    throttle.take(1 << 20)
    now_ms = 0
    for _ in range(5):
        now_ms += throttle.wait_ms(1.0, now_ms)
    assert now_ms <= 10_000
    now_ms += throttle.wait_ms(1e9, now_ms)
    assert throttle.wait_ms(1e9, now_ms + 10) == 0
