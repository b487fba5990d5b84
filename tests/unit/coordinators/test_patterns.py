"""Regular expressions of clients: which are refused because compiling them would hold the loop."""

from __future__ import annotations

import pytest

from kafkalite.coordinators.patterns import full_match, search
from kafkalite.errors import ApiError, ErrorCode


@pytest.mark.parametrize(
    "pattern",
    [
        "\\pL" * 2_000,  # 140 ms of the loop; 10,000 of them 0.8 s
        "[\\PN]" * 2_000,
        "a{0,1000}" * 3_500,  # 0.7 s and 370 MB
        "a{1000}" * 1_000,
        "a??" * 10_000,
        "t" * 32_000,
    ],
)
def test_patterns_that_are_costly_to_compile_are_refused(pattern: str) -> None:
    for compiled in (full_match, search):
        with pytest.raises(ApiError, match="at most") as raised:
            compiled(pattern)
        assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_honest_patterns_are_not() -> None:
    topics = [f"orders.region-{number:03}.events" for number in range(400)]
    matches = full_match("|".join(topics).replace(".", "\\."))
    assert matches(topics[-1]) and not matches("orders.region-400.events")
    assert full_match("([a-z]{2,3}\\.)?\\p{L}+-\\d{4}-\\d{2}")("de.käufe-2026-11")
