"""Events of a History as lines of a file: `CRC32 JSON`, so that a torn or damaged line is known and costs only itself."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from kafkalite.model import NO_TOPIC_ID, TopicId
from kafkalite.telemetry.history import Event

#: Of an event's text; what is longer is cut.
MAX_DETAIL = 1_000
_CRC_DIGITS = 8


class Row(NamedTuple):
    """`source`: which of a node's histories has it."""

    source: str
    subject: str
    event: Event


def to_lines(rows: Iterable[Row]) -> bytes:
    """A line for each."""
    lines = bytearray()
    for source, subject, event in rows:
        values = (source, subject, event.at_ms, event.what, event.detail[:MAX_DETAIL], event.topic_id)
        text = json.dumps(values, separators=(",", ":")).encode()
        lines += b"%08x %s\n" % (zlib.crc32(text), text)
    return bytes(lines)


def from_lines(data: bytes) -> tuple[list[Row], int]:
    """What can be read, as events of an earlier run, and how many lines could not be."""
    rows: list[Row] = []
    damaged = 0
    for line in data.split(b"\n"):
        if not line:
            continue
        row = _row(line)
        if row is None:
            damaged += 1
        else:
            rows.append(row)
    return rows, damaged


def _row(line: bytes) -> Row | None:
    text = line[_CRC_DIGITS + 1 :]
    if line[: _CRC_DIGITS + 1] != b"%08x " % zlib.crc32(text):
        return None
    try:
        source, subject, at_ms, what, detail, *more = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    topic_id = more[0] if more else NO_TOPIC_ID  # a line of 0.1 has none
    if type(at_ms) is not int or not all(isinstance(each, str) for each in (source, subject, what, detail, topic_id)):
        return None
    return Row(source, subject, Event(at_ms, what, detail, is_earlier=True, topic_id=TopicId(topic_id)))
