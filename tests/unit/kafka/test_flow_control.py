"""Why a connection starts nothing, or reads nothing."""

from __future__ import annotations

import itertools

import pytest

from kafkalite.kafka import frames
from kafkalite.kafka.flow_control import HELD, MUTED, RETIRING, STARVED, UNREAD, YIELDING, FlowControl

EACH = (UNREAD, STARVED, MUTED, HELD, YIELDING, RETIRING)


def test_it_goes_on_when_the_last_reason_is_gone() -> None:
    for first, second in itertools.permutations(EACH, 2):
        flow = FlowControl(5)
        flow.forbid(first)
        flow.forbid(second)
        flow.allow(first)
        assert not flow.may_read(0), "the other one still forbids it"
        assert flow.may_start(0) is (second == STARVED), "what has arrived needs no memory"
        flow.allow(second)
        assert flow.may_read(0)
        assert flow.may_start(4)
        assert not flow.may_start(5), "the limit of requests under way"


def test_holds_are_counted() -> None:
    flow = FlowControl(5)
    flow.hold()
    flow.hold()
    assert not flow.release()
    assert not flow.may_start(0)
    assert flow.release()
    assert flow.may_start(0)


def test_muted_for_longer_meanwhile() -> None:
    flow = FlowControl(5)
    flow.forbid(MUTED)
    flow.unmute_at = 12.0
    assert flow.left_s(10.0) == 2.0
    assert not flow.may_read(0)
    assert flow.left_s(12.0) == 0.0
    assert flow.may_read(0)


@pytest.mark.parametrize(
    ("size", "begins", "is_taken"),
    [
        (7, b"", False),
        (8, b"\0\3", True),
        (-1, b"", False),
        (2**24, b"\0\3", True),
        (2**24 + 1, b"", True),  # which API it is has not arrived
        (2**24 + 1, b"\0\0", True),
        (2**24 + 1, b"\0\3", False),
        (2**26 + 1, b"\0\0", False),
    ],
)
def test_lengths_of_frames(size: int, begins: bytes, *, is_taken: bool) -> None:
    why = frames.why_refused(memoryview(begins), size, frames.LEAST_BYTES, 2**26)
    assert (not why) is is_taken
