"""How much goes into one append: a batch has a limit (max.message.bytes, 1 MiB), above which it would be refused for ever. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

#: What the records of one append may take together, if they could be cut otherwise.
APPEND_BYTES = 256 * 1024
#: What a record takes at most beside its value and the names in its key.
RECORD_BYTES = 30


def fitting(sizes: Iterable[int]) -> int:
    """How many of these, one at least, go into one append."""
    size = count = 0
    for each in sizes:
        size += each
        if count and size > APPEND_BYTES:
            break
        count += 1
    return count


def cuts(pairs: Sequence[tuple[bytes, bytes | None]]) -> Iterator[int]:
    """Where each append of these records ends; nothing if there are none."""
    end = 0
    while end < len(pairs):
        end += fitting(len(key) + len(value or b"") + RECORD_BYTES for key, value in pairs[end:])
        yield end
