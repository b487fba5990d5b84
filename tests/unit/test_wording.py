from __future__ import annotations

import pytest

from kafkalite.wording import number_of


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "partition", "0 partitions"),
        (1, "partition", "1 partition"),
        (2_000, "more topic", "2,000 more topics"),
        (1, "directory", "1 directory"),
        (2, "directory", "2 directories"),
    ],
)
def test_nouns_have_the_number_of_their_count(count: int, noun: str, text: str) -> None:
    assert number_of(count, noun) == text
