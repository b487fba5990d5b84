"""Some records of a batch, as bytes, piece by piece: for batches that stand for too much to be in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Buffer
from kafkalite.record.batch import HEADER_SIZE, BatchHeader
from kafkalite.record.compression import DEFAULT_LIMIT_BYTES
from kafkalite.record.inflating import pieces
from kafkalite.record.reader import PieceWindow
from kafkalite.record.varint import decode_varint, encode_varint

#: More than a record's length, attributes, timestamp and offset.
_HEAD_BYTES = 64
#: What is given out at a time, at least: a compressor has work to do for each piece.
_PIECE_BYTES = 64 * 1024


class Selection:
    """Numbers of a batch's records, a bit each: 250 MB may be 36 million records."""

    __slots__ = ("_bits", "count", "seen")

    def __init__(self) -> None:
        self._bits = bytearray()
        self.count = self.seen = 0

    def add(self, *, is_in: bool) -> None:
        """The next record's answer."""
        if not self.seen & 7:
            self._bits.append(0)
        if is_in:
            self._bits[-1] |= 1 << (self.seen & 7)
            self.count += 1
        self.seen += 1

    def __contains__(self, number: int) -> bool:
        return number < self.seen and bool(self._bits[number >> 3] >> (number & 7) & 1)


def selected_records(
    buffer: Buffer, position: int, header: BatchHeader, selection: Selection, base_timestamp: int
) -> Iterator[Buffer]:
    """The selected records of the batch at `position`, as they lie in a batch with the same base offset and `base_timestamp` (ms).

    Raises ApiError CORRUPT_MESSAGE.
    """
    payload = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    source = PieceWindow(pieces(header.compression, payload, limit_bytes=DEFAULT_LIMIT_BYTES))
    later_ms = header.base_timestamp - base_timestamp
    waiting, size = [b""], 0
    for number in range(header.record_count):
        source.need(_HEAD_BYTES)
        length, begin = decode_varint(source.data, source.at)
        if length < 1:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record exceeds its batch")
        if number not in selection:
            source.skip_to(begin + length)
            continue
        timestamp_delta, at = decode_varint(source.data, begin + 1)
        times = encode_varint(timestamp_delta + later_ms)
        rest = length - (at - begin)
        if rest < 0:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record exceeds its batch")
        waiting.append(encode_varint(1 + len(times) + rest) + source.data[begin : begin + 1] + times)
        source.skip_to(at)
        for part in source.take(rest):
            waiting.append(bytes(part))
            size += len(part)
            if size >= _PIECE_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
    yield b"".join(waiting)
