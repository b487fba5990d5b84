"""Going through the batches of a .log file, by their headers or byte by byte."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalite.env.seams import File
from kafkalite.errors import ErrorCode, api_error
from kafkalite.record.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, crc_of, new_header

#: Scans read this much at once; headers only.
SCAN_BYTES = 64 * 1024
#: Checked scans read this much at once, or one batch if that is larger.
_CHECK_BYTES = 1024 * 1024


def headers(file: File, path: str, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position`; reads little more than the headers of large batches.

    Raises:
        ApiError: CORRUPT_MESSAGE where there is no batch. OSError.
    """
    chunk, start = b"", position
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            start, at = position, 0
            chunk = file.read_at(position, min(SCAN_BYTES, end - position))
            if len(chunk) < HEADER_SIZE:
                raise _corrupt(path, position)
        header = new_header(HEADER.unpack_from(chunk, at))
        size = header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC or size < HEADER_SIZE or position + size > end:
            raise _corrupt(path, position)
        yield position, header
        position += size


def checked(file: File, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of each batch up to the first one that is torn or whose CRC is wrong. Raises OSError."""
    position, start, chunk = 0, 0, memoryview(b"")
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            start, at, chunk = position, 0, memoryview(file.read_at(position, _CHECK_BYTES))
            if len(chunk) < HEADER_SIZE:
                return
        header = new_header(HEADER.unpack_from(chunk, at))
        size = header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC or size < HEADER_SIZE or position + size > end:
            return
        if at + size > len(chunk):
            start, at, chunk = position, 0, memoryview(file.read_at(position, max(size, _CHECK_BYTES)))
            if len(chunk) < size:
                return
        if crc_of(chunk, at, size) != header.crc:
            return
        yield position, header, chunk[at : at + size]
        position += size


def _corrupt(path: str, position: int) -> Exception:
    return api_error(ErrorCode.CORRUPT_MESSAGE, f"{path}: no batch at byte {position}")
