"""What a leader checks inside a client's batch before it appends it, and how the batch is compressed again. No I/O.

Of most batches only the first records are looked at, by the append: uncompressed ones of topics without compaction. All else is done on the loop while it is
cheap, or else off the loop by `prepare`, in little memory whatever the batch stands for. Errors name the single records
that are wrong (KIP-467). Source: Kafka's LogValidator.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafkalite.config import TopicConfig
from kafkalite.errors import ApiError
from kafkalite.log.validation import (
    CHEAP_BYTES,
    MAX_COMPRESSED_RECORDS,
    NO_TIMESTAMP,
    CheckedRecords,
    check_records,
    not_to_be_repeated,
)
from kafkalite.model import Buffer
from kafkalite.record.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    new_header,
)
from kafkalite.record.builder import rebuilt_batch
from kafkalite.record.checksum import crc32c
from kafkalite.record.compression import Codec
from kafkalite.record.framing import check_framing
from kafkalite.record.inflating import PIECE_CHARGE_BYTES, pieces
from kafkalite.record.recompressing import recompressed

#: What a batch that is decompressed on the loop may stand for, in bytes.
CHEAP_CONTENT_BYTES = 256 * 1024
#: And all such batches of one request.
CHEAP_REQUEST_BYTES = 1024 * 1024
#: What a batch of one small piece counts for at least.
_LEAST_CHARGE_BYTES = 1024
#: The fields that decide about most batches: batch length, magic, attributes, base and max timestamp.
_CHECKED_FIELDS = struct.Struct(">8xi4xb4xh4xqq").unpack_from
_CODECS = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


class RecordRules(NamedTuple):
    """What a partition asks of records. Timestamps in ms, or None: they are the broker's. `codec` None: the producer's."""

    max_message_bytes: int
    needs_keys: bool
    before_max_ms: int | None
    after_max_ms: int | None
    codec: Codec | None
    level: int
    #: Whether compressed batches are looked into at all.
    checks_content: bool


def rules_of(config: TopicConfig) -> RecordRules:
    """The rules of a topic with this configuration."""
    codec = _CODECS.get(config.compression_type)
    level = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec or Codec.NONE, 0)
    is_producers = config.message_timestamp_type == "CreateTime"
    return RecordRules(
        config.max_message_bytes,
        "compact" in config.cleanup_policy,
        config.message_timestamp_before_max_ms if is_producers else None,
        config.message_timestamp_after_max_ms if is_producers else None,
        codec,
        level,
        config.compressed_content_validation_enable,
    )


class CheckBudget:
    """What may be decompressed on the loop for one request: `left`, in bytes. (A request may have thousands of batches.)"""

    left = CHEAP_REQUEST_BYTES


def is_costly(records: Buffer, rules: RecordRules, now_ms: int, budget: CheckBudget | None = None) -> bool:
    """Whether `prepare` has to check the batch, which may take long. A cheap check is made here, on the loop.

    Keys of few uncompressed records are left to the append. `budget`: of a request with several batches.

    Raises ApiError: what the cheap check has found (as `prepare`).
    """
    if len(records) < HEADER_SIZE:
        return False
    batch_length, magic, attributes, first, largest = _CHECKED_FIELDS(records)
    if magic != MAGIC or batch_length != len(records) - LOG_OVERHEAD or attributes & CONTROL_FLAG:
        return False  # the append refuses it
    compression = attributes & COMPRESSION_MASK
    if rules.codec is not None and rules.codec != compression:
        return True
    is_suspicious = _is_suspicious(first, largest, rules, now_ms)
    if not (is_suspicious or rules.needs_keys or (compression and rules.checks_content)):
        return False
    if len(records) > CHEAP_BYTES or (compression and (rules.needs_keys or is_suspicious)):
        return True
    header = new_header(HEADER.unpack_from(records))
    view = memoryview(records)
    if crc32c(view[CRC_START:]) != header.crc:
        return False  # the append refuses it
    if is_suspicious:
        _check(view, header, rules, now_ms)
    return bool(header.compression) and _is_more_than_cheap(header, view[HEADER_SIZE:], budget or CheckBudget())


def _is_more_than_cheap(header: BatchHeader, payload: memoryview, budget: CheckBudget) -> bool:
    """Decompress up to CHEAP_CONTENT_BYTES: True if there is more, or none is left. Raises ApiError."""
    if budget.left <= 0:
        return True
    size = 0
    for piece in _checked(header, payload):
        charge = max(len(piece), _LEAST_CHARGE_BYTES if not size else PIECE_CHARGE_BYTES)
        size += charge
        budget.left -= charge
        if size > CHEAP_CONTENT_BYTES:
            return True
    return False


def _checked(header: BatchHeader, payload: memoryview) -> Iterator[Buffer]:
    """The pieces of a batch whose CRC is right; the framing of the first records is checked. Raises ApiError INVALID_RECORD."""
    first: Buffer | None = None
    is_whole = True
    try:
        for piece in pieces(header.compression, payload):
            if first is None:
                first = piece
            else:
                is_whole = False
            yield piece
    except ApiError as error:
        raise not_to_be_repeated(error) from None
    check_framing(first or b"", 0, len(first or b""), header.record_count, is_whole=is_whole)


def prepare(records: Buffer, rules: RecordRules, now_ms: int) -> CheckedRecords:
    """The batch as it is to be appended: looked into, and compressed as the topic wants it. It may take seconds.

    What is wrong with a batch otherwise is the append's to say; such a batch is returned as it is.

    Raises:
        ApiError: INVALID_RECORD, INVALID_TIMESTAMP (with `record_errors`), MESSAGE_TOO_LARGE,
            UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(records)
    header = new_header(HEADER.unpack_from(view))
    is_endless = bool(header.compression) and header.record_count > MAX_COMPRESSED_RECORDS
    if is_endless or len(view) > rules.max_message_bytes or crc32c(view[CRC_START:]) != header.crc:
        return CheckedRecords(records)
    payload = view[HEADER_SIZE:]
    wants_codec = rules.codec is not None and rules.codec != header.compression
    if rules.needs_keys or wants_codec or _is_suspicious(header.base_timestamp, header.max_timestamp, rules, now_ms):
        _check(view, header, rules, now_ms)
    else:
        for _ in _checked(header, payload):
            pass
    if not wants_codec or rules.codec is None:
        return CheckedRecords(records)
    most = rules.max_message_bytes - HEADER_SIZE
    packed = recompressed(pieces(header.compression, payload), rules.codec, rules.level, most)
    return CheckedRecords(
        rebuilt_batch(
            header,
            packed,
            record_count=header.record_count,
            attributes=header.attributes & ~COMPRESSION_MASK | rules.codec,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
        )
    )


def _is_suspicious(first: int, largest: int, rules: RecordRules, now_ms: int) -> bool:
    """Whether a batch's base and largest timestamp say that some timestamp is too far from the clock."""
    if rules.before_max_ms is None or rules.after_max_ms is None:
        return False
    latest, earliest = now_ms + rules.after_max_ms, now_ms - rules.before_max_ms
    return largest > latest or first > latest or (first < earliest and first != NO_TIMESTAMP)


def _check(view: memoryview, header: BatchHeader, rules: RecordRules, now_ms: int) -> None:
    """Look at every record. Raises ApiError with `record_errors`."""
    bounds = None
    if rules.before_max_ms is not None and rules.after_max_ms is not None:
        bounds = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    check_records(view, 0, header, needs_keys=rules.needs_keys, bounds=bounds)
