"""Reading batches out of a log's segments, checking them on the way, and searching by timestamp. Changes nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Set
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from kafkalite.env.seams import Disk, File
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.log.batch_scan import headers
from kafkalite.log.index import AbortedTxn
from kafkalite.log.local_log import LocalLog
from kafkalite.log.segment import Segment
from kafkalite.model import LeaderEpoch, Offset
from kafkalite.record.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, BatchHeader, crc_of, parse_header
from kafkalite.record.reader import ScannedRecord, scan


class ReadInfo(NamedTuple):
    """Whole batches from the one that holds `offset` on.

    `next_offset`: behind the last of them; an upper bound of that where they were not checked.
    """

    offset: int
    records: list[bytes | memoryview]
    size_bytes: int
    next_offset: int


#: Up to this size, a check costs no more than finding out whether the bytes were checked before.
_SMALL_BYTES = 4096


class Piece(NamedTuple):
    """Bytes of whole batches, and where they lie.

    `version`: of the file, before they were read; 0 if nobody asked for it.
    """

    data: bytes | memoryview
    segment: Segment
    position: int
    version: int = 0


def read_batches(
    local: LocalLog, offset: int, max_bytes: int, limit: int, *, min_one_batch: bool, verify: bool = False
) -> Piece | None:
    """Whole batches of one segment from the one that holds `offset`, all of them below `limit`, as they lie on the disk.

    `verify`: `sound_prefix` will check them.

    Raises:
        ApiError: CORRUPT_MESSAGE. OSError.
    """
    try:
        return _read_once(local, offset, max_bytes, limit, min_one_batch=min_one_batch, verify=verify)
    except OSError:
        # Once more with fresh handles: a stale one, or a disk that stumbled, is no reason to give up the log.
        local.close_files()
        return _read_once(local, offset, max_bytes, limit, min_one_batch=min_one_batch, verify=verify)


def _read_once(
    local: LocalLog, offset: int, max_bytes: int, limit: int, *, min_one_batch: bool, verify: bool
) -> Piece | None:
    segments = local.segments
    number = local.segment_number(offset)
    while number < len(segments):
        segment = segments[number]
        start = segment.position_of(offset)
        if start < segment.size:
            is_large = verify and min(segment.size - start, max_bytes) > _SMALL_BYTES
            version = segment.version() if is_large else 0
            data = _read_segment(segment, start, max_bytes, limit, min_one_batch=min_one_batch)
            return Piece(data, segment, start, version) if data else None
        number += 1
    return None


def _read_segment(
    segment: Segment, start: int, max_bytes: int, limit: int, *, min_one_batch: bool
) -> bytes | memoryview:
    """Whole batches of one segment from `start`, the start of one; all below offset `limit`."""
    end = segment.size if limit >= segment.next_offset else segment.position_of(limit)
    if end <= start:
        return b""
    if end - start <= max_bytes:
        return segment.read_at(start, end - start)
    data = segment.read_at(start, max(max_bytes, HEADER_SIZE))
    whole = _whole_batches(data, max_bytes)
    if whole:
        return memoryview(data)[:whole]
    if not min_one_batch:
        return b""
    size = HEADER.unpack_from(data)[1] + LOG_OVERHEAD
    if not HEADER_SIZE <= size <= end - start:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, f"{segment.path('.log')}: no batch at byte {start}")
    return segment.read_at(start, size)


def _whole_batches(data: bytes, limit: int) -> int:
    """Bytes of the whole batches at the beginning of `data`, at most `limit`."""
    position = 0
    end = min(len(data), limit)
    while position + LOG_OVERHEAD <= end:
        size = int.from_bytes(data[position + 8 : position + 12], "big") + LOG_OVERHEAD
        if position + size > end or size < HEADER_SIZE:
            break
        position += size
    return position


def sound_prefix(local: LocalLog, piece: Piece, offset: int, limit: int) -> tuple[bytes | memoryview, int]:
    """What was read up to the first damaged batch, and the offset behind it. Raises OSError; ApiError CORRUPT_MESSAGE if
    that is the first one.

    The base offset lies outside the CRC. Offsets may be missing anywhere (after a compaction, whatever the topic's
    policy is today). But they never decrease, the first batch holds `offset` or lies behind it, and all lie below `limit`.
    If a batch has an offset that is missing at the last gap, the batch after the gap has the wrong base offset.

    What was found sound before is not checked again while nothing but our own appends can have changed the file (ADR 47).
    """
    data = piece.data
    known_end = _known_end(local, piece, offset, limit)
    if known_end >= 0:
        return data, known_end
    position, end = 0, len(data)
    following = before_gap = offset
    at_gap: int | None = None
    while position + HEADER_SIZE <= end:
        header = HEADER.unpack_from(data, position)
        size = header[1] + LOG_OVERHEAD
        if size < HEADER_SIZE or position + size > end or crc_of(data, position, size) != header[4]:
            break
        base, last = header[0], header[0] + header[6]
        if position and base < following:
            if at_gap is not None and base >= before_gap:
                position, following = at_gap, before_gap
            break
        if last < offset or last >= limit:
            break
        if base > following:
            at_gap, before_gap = position, following
        elif position:
            at_gap = None  # there is a batch that continues behind it
        following = last + 1
        position += size
    if position == end:
        if at_gap is None or not before_gap <= _base_behind(local, piece) < following:
            if piece.version:
                piece.segment.sound.found(piece.version, piece.position, piece.position + end)
            return data, following
        position, following = at_gap, before_gap
    if position:
        return memoryview(data)[:position], following
    raise api_error(ErrorCode.CORRUPT_MESSAGE, f"{local.topic_partition}: damaged bytes on disk at offset {offset}")


def _known_end(local: LocalLog, piece: Piece, offset: int, limit: int) -> int:
    """The offset behind batches that are known to be sound; -1 if they are not, or not where the index says. Raises OSError."""
    data = piece.data
    if not piece.version or not piece.segment.sound.covers(piece.version, piece.position, piece.position + len(data)):
        return -1
    first = HEADER.unpack_from(data)
    behind = _base_behind(local, piece)
    return behind if first[0] + first[6] >= offset and offset < behind <= limit else -1


def _base_behind(local: LocalLog, piece: Piece) -> int:
    """The base offset of the batch after those that were read; the log's end if there is none. Raises OSError."""
    segment, position = piece.segment, piece.position + len(piece.data)
    if position + HEADER_SIZE <= segment.size:
        return int.from_bytes(segment.read_at(position, 8), "big", signed=True)
    return min(
        (one.base_offset for one in local.segments if one.base_offset > segment.base_offset), default=local.next_offset
    )


class Candidate(NamedTuple):
    """A batch in which there may be a record with a timestamp, and where it lies."""

    path: str
    position: int
    header: BatchHeader


def candidate_for_timestamp(
    segments: list[Segment], timestamp_ms: int, log_start_offset: int, behind: int = -1
) -> Candidate | None:
    """The first batch behind offset `behind` that, by its header, has a record whose timestamp is >= `timestamp_ms`.

    The end of a transaction does not count. Raises ApiError CORRUPT_MESSAGE, OSError.
    """
    lowest = max(log_start_offset, behind + 1)
    for segment in segments:
        if not segment.size or segment.next_offset <= lowest or segment.largest_timestamp()[0] < timestamp_ms:
            continue
        # What DeleteRecords or an earlier look has left behind is not walked through.
        begin = max(segment.position_for_timestamp(timestamp_ms), segment.position_of(lowest))
        for position, header in segment.headers(begin):
            if header.is_control:
                continue
            if header.max_timestamp >= timestamp_ms and header.last_offset >= lowest:
                return Candidate(segment.log_path, position, header)
    return None


#: Batches that are looked into for the newest record if headers say more than records have.
_NEWEST_BATCHES = 5


class Stretch(NamedTuple):
    """The part of a segment that is still in the log."""

    path: str
    #: Where the batch with the largest timestamp is to be expected: before it there is none.
    expected: int
    start: int
    end: int
    largest_timestamp: int


def stretch_of(segment: Segment, log_start_offset: int) -> Stretch:
    """By the indexes. Raises ApiError CORRUPT_MESSAGE, OSError."""
    largest, offset = segment.largest_timestamp()
    start = segment.position_of(log_start_offset)
    # DeleteRecords may have removed the newest record: then another one is, anywhere in what is left.
    expected = max(start, segment.position_for_timestamp(largest)) if offset >= log_start_offset else start
    return Stretch(segment.log_path, expected, start, segment.size, largest)


def first_record(
    disk: Disk, candidate: Candidate, timestamp_ms: int, log_start_offset: int
) -> tuple[int, Offset, LeaderEpoch] | None:
    """(timestamp, offset, leader epoch) of the first such record of the batch; None if there is none after all.

    Runs off the loop: it may have to decompress hundreds of MB. Raises ApiError CORRUPT_MESSAGE; LogMoved; OSError.
    """
    for record in _records_of(disk, candidate):
        if record.timestamp >= timestamp_ms and record.offset >= log_start_offset:
            epoch = LeaderEpoch(candidate.header.partition_leader_epoch)
            return record.timestamp, Offset(record.offset), epoch
    return None


def newest_record(disk: Disk, stretch: Stretch, log_start_offset: int) -> tuple[int, Offset, LeaderEpoch] | None:
    """(timestamp, offset, leader epoch) of the first record with the largest timestamp; None if none is left.

    The batch is chosen by the headers; the end of a transaction counts. If a header says more than the records have that are left
    (a producer wrote it, or DeleteRecords removed one), some more batches are looked into. Runs off the loop, as `first_record`:
    it may read all headers of a segment. Raises LogMoved, OSError.
    """
    newest: tuple[int, Offset, LeaderEpoch] | None = None
    known: set[int] = set()
    try:
        while len(known) < _NEWEST_BATCHES:
            batch = _newest_batch(disk, stretch, known, log_start_offset)
            if batch is None or batch.header.max_timestamp < 0:
                break
            known.add(batch.header.base_offset)
            if newest is not None and newest[0] >= batch.header.max_timestamp:
                break
            left = (record for record in _records_of(disk, batch) if record.offset >= log_start_offset)
            found = max(left, key=_timestamp, default=None)
            if found is not None and (newest is None or found.timestamp > newest[0]):
                newest = found.timestamp, Offset(found.offset), LeaderEpoch(batch.header.partition_leader_epoch)
    except ApiError:
        raise LogMoved from None  # no batch where there was one
    return newest


def _newest_batch(disk: Disk, stretch: Stretch, known: Set[int], log_start_offset: int) -> Candidate | None:
    """The first batch with the largest timestamp by the headers, without those at the `known` base offsets."""
    newest: Candidate | None = None
    for position in dict.fromkeys((stretch.start,) if known else (stretch.expected, stretch.start)):
        newest = None
        with _opened(disk, stretch.path) as file:
            for at, header in headers(file, stretch.path, position, stretch.end):
                if not header.record_count or header.last_offset < log_start_offset or header.base_offset in known:
                    continue
                if newest is None or header.max_timestamp > newest.header.max_timestamp:
                    newest = Candidate(stretch.path, at, header)
                    if header.max_timestamp >= stretch.largest_timestamp:
                        return newest
    return newest


def _timestamp(record: ScannedRecord) -> int:
    return record.timestamp


@contextmanager
def _opened(disk: Disk, path: str) -> Iterator[File]:
    """Raises LogMoved, OSError."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        raise LogMoved from None
    try:
        yield file
    finally:
        file.close()


def _records_of(disk: Disk, candidate: Candidate) -> Iterator[ScannedRecord]:
    """Raises ApiError CORRUPT_MESSAGE; LogMoved; OSError."""
    header = candidate.header
    with _opened(disk, candidate.path) as file:
        data = file.read_at(candidate.position, header.size)
    if len(data) < header.size or parse_header(data) != header:
        raise LogMoved
    yield from scan(data, 0, header)


class LogMoved(Exception):
    """Retention, compaction, a truncation or a move to another disk took the batch away meanwhile: look again."""


def aborted_transactions(local: LocalLog, from_offset: int, to_offset: int) -> list[AbortedTxn]:
    """Those that overlap [from_offset, to_offset). Raises OSError."""
    found: list[AbortedTxn] = []
    for number in range(local.segment_number(from_offset), len(local.segments)):
        entries = local.segments[number].aborted()  # in the order of their markers
        for entry in islice(entries, bisect_left(entries, from_offset, key=_last_offset), None):
            if entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found
    return found


def _last_offset(entry: AbortedTxn) -> int:
    return entry.last_offset
