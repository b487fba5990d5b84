"""What a leader checks of a batch before it writes anything, and when a segment ends. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Literal

from kafkalite.config import TopicConfig
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.record.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    new_header,
    split_batches,
)
from kafkalite.record.checksum import crc32c
from kafkalite.record.framing import check_framing
from kafkalite.record.reader import EndTransactionMarker, end_transaction_marker_of, scan

#: client: everything is checked. coordinator: control batches too, no sequences (transaction markers, group offsets).
Origin = Literal["client", "coordinator"]

_MAX_CODEC = 4
_FIRST = struct.Struct(">qq")
#: Length, attributes, two deltas, two lengths of -1 or 0, number of headers: a byte each.
_MIN_RECORD_BYTES = 7
#: The keys of uncompressed batches up to this size (bytes) are checked on the loop.
CHEAP_BYTES = 16 * 1024
#: Of a record that has none.
NO_TIMESTAMP = -1
#: Records of one compressed batch. A few kB may stand for 36 million empty ones, each of which takes time wherever they are read.
#: (librdkafka's batches have a million at most.)
MAX_COMPRESSED_RECORDS = 1 << 20
#: Single records that one error names; a client blames the batch for all others.
MAX_RECORD_ERRORS = 1_000


class CheckedRecords(bytes):
    """A batch that `record_checks.prepare` has looked into; the append does not look for keys again."""


def batches_for_leader(
    view: memoryview, config: TopicConfig, origin: Origin, *, keys_checked: bool = False
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of each batch, all of them fit to be appended.

    Args:
        keys_checked: see CheckedRecords.

    Raises:
        ApiError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE.
    """
    size = len(view)
    if size >= HEADER_SIZE:
        header = new_header(HEADER.unpack_from(view))
        if header.batch_length == size - LOG_OVERHEAD and header.magic == MAGIC:  # the usual case: one batch
            _check_batch(view, 0, header, config, origin, keys_checked=keys_checked)
            return [(0, header)]
    batches = list(split_batches(view))
    if not batches:
        raise api_error(ErrorCode.INVALID_RECORD, "no record batch in it")
    for position, header in batches:
        _check_batch(view, position, header, config, origin, keys_checked=keys_checked)
    return batches


def _check_batch(
    view: memoryview,
    position: int,
    header: BatchHeader,
    config: TopicConfig,
    origin: Origin,
    *,
    keys_checked: bool,
) -> None:
    size, count, attributes = header.batch_length + LOG_OVERHEAD, header.record_count, header.attributes
    if size > config.max_message_bytes and not (origin == "coordinator" and attributes & CONTROL_FLAG):
        # A marker that is too large for its topic would keep the transaction open for ever.
        text = f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}"
        raise api_error(ErrorCode.MESSAGE_TOO_LARGE, text)
    if crc32c(view[position + CRC_START : position + size]) != header.crc:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, "the CRC is wrong")
    # From here on its CRC is right: it would be wrong again if it were sent again.
    if count <= 0 or count != header.last_offset_delta + 1:
        raise _invalid(f"record count {count}, last offset delta {header.last_offset_delta}")
    if compression := attributes & COMPRESSION_MASK:
        if compression > _MAX_CODEC:
            raise api_error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {compression}")
        if count > MAX_COMPRESSED_RECORDS:
            raise _invalid(f"a compressed batch of {count} records, at most {MAX_COMPRESSED_RECORDS}")
    elif count * _MIN_RECORD_BYTES > size - HEADER_SIZE:
        raise _invalid(f"record count {count} in {size - HEADER_SIZE} bytes of records")
    if flags := attributes & ~COMPRESSION_MASK:
        _check_flags(flags, header, config, origin)
    if header.producer_id >= 0 and header.producer_epoch < 0:
        raise _invalid("a producer id without an epoch")
    if origin == "client":
        if header.base_offset:
            raise _invalid(f"base offset {header.base_offset}; a producer's batch has 0")
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise _invalid("a producer id without a sequence")
        if not compression:
            check_framing(view, position + HEADER_SIZE, position + size, count)
        if not keys_checked and "compact" in config.cleanup_policy:
            _check_keys(view, position, header)


def _check_flags(flags: int, header: BatchHeader, config: TopicConfig, origin: Origin) -> None:
    if flags & DELETE_HORIZON_FLAG:
        raise _invalid("only compaction sets a delete horizon")
    if flags & TRANSACTIONAL_FLAG and header.producer_id < 0:
        raise _invalid("a transactional batch needs a producer id")
    if flags & CONTROL_FLAG and origin == "client":
        raise _invalid("clients may not write control batches")
    if flags & TIMESTAMP_TYPE_FLAG and origin == "client":
        if config.message_timestamp_type != "LogAppendTime" and header.max_timestamp != NO_TIMESTAMP:
            return  # the append clears the flag, as Kafka's LogValidator does
        text = "only a broker sets the timestamp type LogAppendTime"
        raise _wrong_records(ErrorCode.INVALID_TIMESTAMP, text, range(header.record_count))


def _invalid(text: str) -> ApiError:
    return api_error(ErrorCode.INVALID_RECORD, text)


def check_timestamps(batches: list[tuple[int, BatchHeader]], config: TopicConfig, now_ms: int) -> None:
    """A producer's timestamps have to be near the broker's clock: retention by time would never remove a segment with one
    record from the far future, or any later segment. Checked by the headers: the first record's, and the largest.

    Raises ApiError INVALID_TIMESTAMP.
    """
    latest, earliest = now_ms + config.message_timestamp_after_max_ms, now_ms - config.message_timestamp_before_max_ms
    for _, header in batches:
        first, largest = header.base_timestamp, header.max_timestamp
        if largest > latest or first > latest or (first < earliest and first != NO_TIMESTAMP):
            wrong = first if first < earliest else max(first, largest)
            raise api_error(
                ErrorCode.INVALID_TIMESTAMP, f"timestamp {wrong} is not within {earliest}..{latest} (milliseconds)"
            )


def _check_keys(view: memoryview, position: int, header: BatchHeader) -> None:
    """A compacted topic takes no record without a key. The one check that looks at every record, on such topics only."""
    check_records(view, position, header, needs_keys=True)


def check_records(
    view: memoryview, position: int, header: BatchHeader, *, needs_keys: bool, bounds: tuple[int, int] | None = None
) -> None:
    """Look at every record of a batch whose CRC is right. `bounds`: the earliest and latest timestamp, in ms.

    Raises ApiError INVALID_RECORD, INVALID_TIMESTAMP, with `record_errors` (KIP-467) if single records are wrong.
    """
    keyless: list[int] = []
    untimely: list[int] = []
    earliest, latest = bounds or (0, 0)
    try:
        for number, record in enumerate(scan(view, position, header)):
            if needs_keys and record.key is None:
                keyless.append(number)
            if bounds and not earliest <= record.timestamp <= latest and record.timestamp != NO_TIMESTAMP:
                untimely.append(number)
    except ApiError as error:
        raise not_to_be_repeated(error) from None
    if keyless:
        raise _wrong_records(ErrorCode.INVALID_RECORD, "a compacted topic accepts no record without a key", keyless)
    if untimely:
        text = f"a timestamp is not within {earliest}..{latest} (milliseconds)"
        raise _wrong_records(ErrorCode.INVALID_TIMESTAMP, text, untimely)


def not_to_be_repeated(error: ApiError) -> ApiError:
    """Of a batch whose CRC is right: the same bytes would be wrong again. (A client sends again what is CORRUPT_MESSAGE.)"""
    return api_error(ErrorCode.INVALID_RECORD, str(error)) if error.code is ErrorCode.CORRUPT_MESSAGE else error


def _wrong_records(code: ErrorCode, text: str, numbers: Sequence[int]) -> Exception:
    error = api_error(code, text)
    error.record_errors = tuple((number, text) for number in numbers[:MAX_RECORD_ERRORS])
    return error


def batches_for_follower(view: memoryview, log_end_offset: int) -> list[tuple[int, BatchHeader]]:
    """(position, header) of each batch that a leader sent, all of them whole and in order.

    Offsets may be missing between them: a compaction removed them, now or under an earlier cleanup.policy.

    Raises:
        ApiError: CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE when they begin before `log_end_offset`, or go back.
    """
    batches = list(split_batches(view))
    expected = log_end_offset
    for position, header in batches:
        base = header.base_offset
        if crc32c(view[position + CRC_START : position + header.batch_length + LOG_OVERHEAD]) != header.crc:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"wrong CRC of the batch at {base}")
        delta = header.last_offset_delta
        if delta < 0 or base < expected:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE, f"a batch at offset {base}, but the log ends at {expected}")
        expected = base + delta + 1
    return batches


def begins_within(view: memoryview, log_end_offset: int) -> int | None:
    """The base offset of a leader's first batch if an empty log that ends at `log_end_offset` lies within that batch.

    DeleteRecords moved the leader's log start there (Kafka's UnexpectedAppendOffsetException).
    """
    if len(view) < HEADER_SIZE:
        return None
    header = new_header(HEADER.unpack_from(view))
    base = header.base_offset
    return base if 0 <= base < log_end_offset <= base + header.last_offset_delta else None


def has_gap(batches: list[tuple[int, BatchHeader]], log_end_offset: int) -> bool:
    """Whether offsets are missing between these batches, or before them."""
    expected = log_end_offset
    for _, header in batches:
        if header.base_offset != expected:
            return True
        expected = header.base_offset + header.last_offset_delta + 1
    return False


def marker_in(view: memoryview, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """The end-of-transaction marker if the batch is one."""
    return end_transaction_marker_of(view, position, header) if header.is_control else None


def must_roll(
    config: TopicConfig,
    *,
    segment_size: int,
    index_bytes: int,
    relative_last_offset: int,
    age_ms: int,
    max_age_ms: int,
    batch_size: int,
) -> bool:
    """Whether a batch has to go into a new segment. An empty segment always takes it (a batch is never split).

    It depends on nothing but the batches and the configuration, so replicas end their segments at the same batches.

    Args:
        relative_last_offset: of the batch, counted from the segment's base offset.
        age_ms: the batch's max timestamp minus that of the segment's first batch.
        max_age_ms: `segment_age_ms` of the segment.
    """
    if segment_size == 0:
        return relative_last_offset > 2**31 - 1
    return (
        segment_size + batch_size > config.segment_bytes
        or index_bytes + 12 > config.segment_index_bytes
        or relative_last_offset > 2**31 - 1
        or age_ms > max_age_ms
    )


def segment_age_ms(config: TopicConfig, base_offset: int, first_timestamp: int) -> int:
    """How old a segment gets: records that must be compacted after a time may not stay in the active one for longer (KIP-354).

    segment.jitter.ms takes something off, so that segments of many partitions do not end at once: by the segment's first
    offset and timestamp, not at random, for replicas end their segments at the same batches.
    """
    age_ms = config.segment_ms
    if config.segment_jitter_ms and (most := min(config.segment_jitter_ms, age_ms)):
        age_ms -= crc32c(_FIRST.pack(base_offset, first_timestamp)) % most
    return min(age_ms, config.max_compaction_lag_ms) if "compact" in config.cleanup_policy else age_ms
