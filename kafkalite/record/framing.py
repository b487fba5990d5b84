"""Whether records are what their batch's header says, at a cost that hardly depends on their number.

Kafka reads every record of a batch. In Python that takes longer than all else that a broker does with a batch, so only its first
record is read, and the lengths of the next ones. That finds what no client would write: bytes that are no records, a wrong number
of records. It does not find one damaged record far inside (docs/adr/0069).
"""

from __future__ import annotations

from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import Buffer
from kafkalite.record.varint import decode_varint

#: Records whose length is looked at. A batch that has no more of them is known to end where its last record does.
LENGTHS = 8
#: Headers of the first record that are looked at.
_HEADERS = 8
#: Attributes, two deltas, two lengths of -1 or 0, number of headers: a byte each.
_LEAST_RECORD = 6
#: A length of -1.
_NULL = 1
#: The end of records of which only a part is here.
_ENDLESS = 2**63


def check_framing(buffer: Buffer, at: int, end: int, count: int, *, is_whole: bool = True) -> None:
    """Look at the first of `count` records in `buffer[at:end]`, decompressed. `is_whole`: they end there; else only a part of them is here.

    Raises ApiError INVALID_RECORD. CORRUPT_MESSAGE is for damage on the way: clients send such a batch again.
    """
    if not is_whole:
        end = _ENDLESS
    try:
        at = _end_of_record(buffer, at, end)
        for number in range(1, count if count < LENGTHS else LENGTHS):
            size = buffer[at]
            if size < 128 and not size & 1:  # the usual case of small records
                size, at = size >> 1, at + 1
            else:
                size, at = decode_varint(buffer, at)
            at += size
            if size < _LEAST_RECORD or at > end:
                raise _wrong(f"record {number} has a length of {size} bytes")
        if count <= LENGTHS and at != end != _ENDLESS:
            raise _wrong("bytes after the last record of a batch")
    except IndexError:
        if is_whole:
            raise _wrong("a record exceeds its batch") from None
    except ApiError as error:
        if error.code is ErrorCode.INVALID_RECORD:
            raise
        if is_whole:  # a varint that is cut off may go on in the next part
            raise _wrong(str(error)) from None


def _end_of_record(buffer: Buffer, at: int, end: int) -> int:
    """The position behind the record at `at`, all of which is looked at."""
    size, at = decode_varint(buffer, at)
    stop = at + size
    if size < _LEAST_RECORD or stop > end:
        raise _wrong(f"record 0 has a length of {size} bytes")
    # Behind the attributes: the deltas of timestamp and offset, nearly always 0 in the first record.
    if buffer[at + 1] or buffer[at + 2]:
        _, at = decode_varint(buffer, at + 1)
        _, at = decode_varint(buffer, at)
    else:
        at += 3
    size = buffer[at]
    if size == _NULL:  # most records have no key
        at += 1
    else:
        size, at = decode_varint(buffer, at)
        if size > 0:
            at += size
        if at >= stop:
            raise _wrong("a record's field exceeds the record")
    size, at = decode_varint(buffer, at)
    if size > 0:
        at += size
    if at >= stop:
        raise _wrong("a record's field exceeds the record")
    if buffer[at]:
        return _behind_headers(buffer, at, stop)
    if at + 1 != stop:
        raise _wrong("a record's length is not that of its fields")
    return stop


def _behind_headers(buffer: Buffer, at: int, stop: int) -> int:
    """`stop`, where the record ends whose headers begin at `at`."""
    count, at = decode_varint(buffer, at)
    if not 0 <= count <= stop - at:
        raise _wrong(f"a record with {count} headers")
    for number in range(min(2 * count, 2 * _HEADERS)):
        size, at = decode_varint(buffer, at)
        if size < 0 and not number % 2:
            raise _wrong("a header without a name")
        if size > 0:
            at += size
        if at > stop:
            raise _wrong("a record's field exceeds the record")
    if count <= _HEADERS and at != stop:
        raise _wrong("a record's length is not that of its fields")
    return stop


def _wrong(text: str) -> ApiError:
    return api_error(ErrorCode.INVALID_RECORD, text)
