"""What a leader sees of malformed records that are not compressed: Kafka refuses each of these batches with INVALID_RECORD."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.config import TopicConfig
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.log.validation import batches_for_leader
from kafkalite.record.batch import HEADER_SIZE, split_batches
from kafkalite.record.builder import RecordBatchBuilder, encode_batch
from kafkalite.record.framing import LENGTHS, check_framing
from kafkalite.record.reader import records_of
from kafkalite.record.varint import encode_varint

NOW = 1_700_000_000_000


def batch_of(payload: bytes, count: int = 1) -> bytes:
    """A batch whose header and CRC are right, whatever its records are."""
    return encode_batch(
        payload, record_count=count, base_offset=0, last_offset_delta=count - 1, leader_epoch=-1, attributes=0,
        base_timestamp=NOW, max_timestamp=NOW, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip


def framed(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def record(number: int = 0, end: bytes = b"\0") -> bytes:
    """A record with the key k and the value v; `end`: its headers."""
    return framed(b"\0\0" + encode_varint(number) + encode_varint(1) + b"k" + encode_varint(1) + b"v" + end)


def refused(payload: bytes, count: int = 1) -> ErrorCode | None:
    try:
        batches_for_leader(memoryview(batch_of(payload, count)), TopicConfig(), "client")
    except ApiError as error:
        return error.code
    return None


MALFORMED: dict[str, tuple[bytes, int]] = {
    "no records": (b"\x07" * 40, 1),
    "zeros": (b"\0" * 40, 1),
    "more than the header says": (record() + record(1), 1),
    "fewer than the header says": (record() + record(1), 3),
    "a byte behind the last record": (record() + b"\0", 1),
    "something behind the first record": (record() + b"\x07" * 30, 2),
    "a length below zero": (encode_varint(-1) + record(), 1),
    "a length of a terabyte": (encode_varint(2**40) + record(), 1),
    "a length without an end": (b"\xff" * 11 + record(), 1),
    "a key that is longer than the record": (
        framed(b"\0\0\0" + encode_varint(100) + b"k" + encode_varint(1) + b"v\0"),
        1,
    ),
    "a value that is longer than the record": (
        framed(b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(100) + b"v\0"),
        1,
    ),
    "headers below zero": (record(end=encode_varint(-1)), 1),
    "headers that are not there": (record(end=encode_varint(1000)), 1),
    "a header that is cut off": (record(end=encode_varint(1) + encode_varint(9) + b"a"), 1),
    "a header without a name": (record(end=encode_varint(1) + encode_varint(-1) + encode_varint(1) + b"x"), 1),
    "a record that is longer than its fields": (record(end=b"\0zz"), 1),
    "a header and more": (record(end=encode_varint(1) + encode_varint(1) + b"a" + encode_varint(-1) + b"zz"), 1),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records_are_refused_before_they_are_in_the_log(name: str) -> None:
    assert refused(*MALFORMED[name]) == ErrorCode.INVALID_RECORD


def test_damage_behind_many_good_records_is_found_where_lengths_are_looked_at() -> None:
    good = [record(number) for number in range(LENGTHS)]
    assert refused(b"".join(good), LENGTHS) is None
    assert refused(b"".join([*good[:-1], b"\x07" * 9]), LENGTHS) == ErrorCode.INVALID_RECORD
    # A long batch costs no more: what lies behind is left to its readers, which name the partition and the offset.
    assert refused(b"".join([*good, *good, b"\x07" * 9]), 2 * LENGTHS + 1) is None


RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=12).map(tuple),
        st.integers(-(2**40), 2**40),
    ),
    min_size=1,
    max_size=LENGTHS + 2,
)


@given(RECORDS)
@settings(max_examples=200)
def test_what_is_well_formed_passes(records: list[Any]) -> None:
    builder = RecordBatchBuilder()
    for key, value, headers, delta in records:
        builder.append(key, value, headers, NOW + delta)
    batch = builder.build()
    check_framing(memoryview(batch), HEADER_SIZE, len(batch), len(records))


@given(st.binary(max_size=60), st.integers(0, 5))
@settings(max_examples=500)
def test_a_batch_of_one_record_passes_only_if_it_can_be_read(tail: bytes, cut: int) -> None:
    """Random bytes at the end of a right record: the check and the reader say the same."""
    whole = record(end=tail)
    payload = whole[: len(whole) - cut]
    batch = batch_of(payload)
    [(position, header)] = split_batches(memoryview(batch))
    try:
        list(records_of(batch, position, header))
        is_readable = True
    except ApiError:
        is_readable = False
    try:
        check_framing(batch, HEADER_SIZE, len(batch), 1)
        passes = True
    except ApiError as error:
        assert error.code == ErrorCode.INVALID_RECORD
        passes = False
    assert passes == is_readable
