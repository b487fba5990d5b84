"""Metrics in OpenTelemetry's form (OTLP, MetricsData of its v1 protobuf), as Kafka's clients push them (KIP-714).

Reads the numbers of gauges and sums, which is all that these clients send; anything else is passed over. The bytes may be
anything: the numbers of points and of fields and the depth are bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_DOUBLE = struct.Struct("<d").unpack
_INT64 = struct.Struct("<q").unpack
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NUMBER_BYTES = 8
_DELTA = 1
_MOST_ATTRIBUTES = 6
_LONGEST_TEXT = 120
#: Fields that are looked at, for each point that may be read: twice as many as those of a point with all its attributes. Bytes alone
#: are no measure: 4 MB of the smallest fields, which compressed are 4 kB, took two seconds.
_FIELDS_PER_POINT = 100


class Point(NamedTuple):
    """One number. `is_delta`: it counts what happened since the client's last push."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool


def read_points(data: bytes, most: int) -> list[Point]:
    """At most `most` points. Raises ValueError: the bytes are no such message, or have too many fields."""
    found: list[Point] = []
    reader = _PushReader(most * _FIELDS_PER_POINT)
    for resource in reader.messages(memoryview(data), 1):
        for scope in reader.messages(resource, 2):
            for metric in reader.messages(scope, 2):
                for point in reader.points(metric):
                    found.append(point)
                    if len(found) >= most:
                        return found
    return found


class _PushReader:
    """Reads one push.

    Args:
        most_fields: how many fields it looks at.
    """

    def __init__(self, most_fields: int) -> None:
        self._most_fields = most_fields
        self._left = most_fields

    def points(self, metric: memoryview) -> Iterator[Point]:
        name = ""
        for number, value in self._fields(metric):
            if number == 1 and isinstance(value, memoryview):
                name = _text(value)
        for number, value in self._fields(metric):
            if number in (5, 7) and isinstance(value, memoryview):
                is_delta = number == 7 and any(n == 2 and v == _DELTA for n, v in self._fields(value))
                for point in self.messages(value, 1):
                    yield from self._point(name, point, is_delta=is_delta)

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, value in self._fields(data):
            if number == wanted and isinstance(value, memoryview):
                yield value

    def _point(self, name: str, data: memoryview, *, is_delta: bool) -> Iterator[Point]:
        number: float | None = None
        attributes: list[tuple[str, str]] = []
        for field, value in self._fields(data):
            if field == 4 and isinstance(value, memoryview) and len(value) == _NUMBER_BYTES:
                number = float(_DOUBLE(value)[0])
            elif field == 6 and isinstance(value, memoryview) and len(value) == _NUMBER_BYTES:
                number = float(_INT64(value)[0])
            elif field == 7 and isinstance(value, memoryview) and len(attributes) < _MOST_ATTRIBUTES:
                attributes.append(self._attribute(value))
        if number is not None:
            yield Point(name, tuple(sorted(attributes)), number, is_delta)

    def _attribute(self, data: memoryview) -> tuple[str, str]:
        key = text = ""
        for field, value in self._fields(data):
            if field == 1 and isinstance(value, memoryview):
                key = _text(value)
            elif field == 2 and isinstance(value, memoryview):
                for kind, inner in self._fields(value):
                    if kind == 1 and isinstance(inner, memoryview):
                        text = _text(inner)
                    elif kind in (2, 3) and isinstance(inner, int):
                        text = str(inner)
        return key, text

    def _fields(self, data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        """(number, value) of each field; numbers of fixed size as their bytes. Raises ValueError."""
        position, end = 0, len(data)
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"more than {self._most_fields:,} fields")
            tag, position = _varint(data, position)
            kind = tag & 7
            if kind == _VARINT:
                value, position = _varint(data, position)
                yield tag >> 3, value
                continue
            if kind == _BYTES:
                size, position = _varint(data, position)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise ValueError(f"a field of kind {kind}")
            if size > end - position:
                raise ValueError("a field overruns its message")
            yield tag >> 3, data[position : position + size]
            position += size


def _text(data: memoryview) -> str:
    return str(data[: 4 * _LONGEST_TEXT], "utf-8", "replace")[:_LONGEST_TEXT]


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("a number is cut off, or too long")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
