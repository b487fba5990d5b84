"""Reading batches out of a log's segments, checking them on the way, and searching by timestamp. Changes nothing."""

from __future__ import annotations

from typing import NamedTuple

from kafkalite.errors import ErrorCode, api_error
from kafkalite.log.index import AbortedTransaction
from kafkalite.log.local_log import LocalLog
from kafkalite.log.segment import Segment
from kafkalite.model import LeaderEpoch, Offset
from kafkalite.record.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, crc_of
from kafkalite.record.reader import records_of


class ReadInfo(NamedTuple):
    """Whole batches from the one that holds `offset` on. `first_entry_incomplete` is never set: batches are not cut."""

    offset: int
    records: list[bytes | memoryview]
    size_bytes: int
    first_entry_incomplete: bool = False


def read_batches(local: LocalLog, offset: int, max_bytes: int, limit: int, min_one_batch: bool) -> bytes | memoryview:
    """Whole batches of one segment from the one that holds `offset`, all of them below `limit`, as they lie on the disk.

    Raises:
        ApiError: CORRUPT_MESSAGE. OSError.
    """
    try:
        return _read_once(local, offset, max_bytes, limit, min_one_batch)
    except OSError:
        # Once more with fresh handles: a stale one, or a disk that stumbled, is no reason to give up the log.
        local.close_files()
        return _read_once(local, offset, max_bytes, limit, min_one_batch)


def _read_once(local: LocalLog, offset: int, max_bytes: int, limit: int, min_one_batch: bool) -> bytes | memoryview:
    segments = local.segments
    number = local.segment_number(offset)
    while number < len(segments):
        segment = segments[number]
        start = segment.position_of(offset)
        if start < segment.size:
            return _read_segment(segment, start, max_bytes, limit, min_one_batch)
        number += 1
    return b""


def _read_segment(segment: Segment, start: int, max_bytes: int, limit: int, min_one_batch: bool) -> bytes | memoryview:
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


def sound_prefix(local: LocalLog, data: bytes | memoryview, offset: int, *, gaps: bool) -> bytes | memoryview:
    """`data` up to the first damaged batch. Raises ApiError CORRUPT_MESSAGE if that is the first one.

    The base offset lies outside the CRC: it must continue where the batch before ended, and the first batch must
    hold `offset`. (Compaction leaves `gaps`: there offsets can only be seen to go back.)
    """
    position, end = 0, len(data)
    lowest, highest = 0, offset
    while position < end:
        header = HEADER.unpack_from(data, position) if end - position >= HEADER_SIZE else None
        size = header[1] + LOG_OVERHEAD if header is not None else 0
        if (
            header is None
            or size < HEADER_SIZE
            or position + size > end
            or crc_of(data, position, size) != header[4]
            or header[0] < lowest
            or (header[0] > highest and not gaps)
            or header[0] + header[6] < offset
        ):
            if position:
                return memoryview(data)[:position]
            raise api_error(
                ErrorCode.CORRUPT_MESSAGE, f"{local.topic_partition}: damaged bytes on disk at offset {offset}"
            )
        lowest = highest = header[0] + header[6] + 1
        position += size
    return data


def offset_for_timestamp(
    segments: list[Segment], timestamp_ms: int, log_start_offset: int
) -> tuple[int, Offset, LeaderEpoch] | None:
    """(timestamp, offset, leader epoch) of the first record whose timestamp is >= `timestamp_ms`; None if none.

    Raises ApiError CORRUPT_MESSAGE, OSError.
    """
    for segment in segments:
        if segment.size and segment.largest_timestamp()[0] >= timestamp_ms:
            found = _find_timestamp(segment, timestamp_ms, log_start_offset)
            if found is not None:
                return found
    return None


def _find_timestamp(
    segment: Segment, timestamp_ms: int, log_start_offset: int
) -> tuple[int, Offset, LeaderEpoch] | None:
    for position, header in segment.headers(segment.position_for_timestamp(timestamp_ms)):
        if header.max_timestamp < timestamp_ms or header.last_offset < log_start_offset or header.is_control:
            continue
        data = segment.read_at(position, header.size)
        for record in records_of(data, 0, header):
            if record.timestamp >= timestamp_ms and record.offset >= log_start_offset:
                return record.timestamp, Offset(record.offset), LeaderEpoch(header.partition_leader_epoch)
    return None


def aborted_transactions(local: LocalLog, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """Those that overlap [from_offset, to_offset). Raises OSError."""
    found: list[AbortedTransaction] = []
    for segment in local.segments[local.segment_number(from_offset) :]:
        for entry in segment.aborted():
            if entry.last_offset >= from_offset and entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found
    return found
