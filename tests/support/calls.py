"""What something costs, as a count that is the same every time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls(question: Callable[[], object]) -> int:
    """How many functions it calls."""
    count = 0

    def on_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(on_call)
    try:
        question()
    finally:
        sys.setprofile(before)
    return count
