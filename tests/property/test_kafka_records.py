"""What stands in logs and what clients put into batches: damaged bytes are refused by name, never by a stray exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.coordinators.groups.records import common as records
from kafkalite.coordinators.transactions import decisions, state
from kafkalite.errors import ApiError
from kafkalite.model import Offset, ProducerId, TopicPartition
from kafkalite.protocol.codec import encode
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.wire import GroupMetadataValue
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.compression import Codec
from kafkalite.record.reader import read_records

_PARTITION = TopicPartition("t", 3)
_MEMBER = GroupMetadataValue.MemberMetadata("m", None, "client", "host", 1000, 1000, b"topics", b"partitions")
_GROUP = GroupMetadataValue("consumer", 1, "range", "m", 5, [_MEMBER])
_TRANSACTION = state.Transaction(
    "txn", ProducerId(7), 1, 60_000, state.TransactionState.ONGOING, frozenset({_PARTITION}), 5, 5
)

Parse = Callable[[bytes, bytes | None], Any]


def _of_groups(key: bytes, value: bytes | None) -> Any:
    return records.parse(key, value, 9)


#: What parses it, a key, a value.
SAMPLES: dict[str, tuple[Parse, bytes, bytes]] = {
    "offset": (
        _of_groups, records.offset_key("g", _PARTITION), records.offset_value(CommittedOffset(Offset(5), 1, "meta", 77)),
    ),
    "old offset": (
        _of_groups, records.offset_key("g", _PARTITION), records.offset_value(CommittedOffset(Offset(5), 1, "", 77, 99)),
    ),
    "group": (_of_groups, records.group_key("g"), (3).to_bytes(2) + encode(_GROUP, 3)),
    "transaction": (state.parse, state.key_of("txn"), state.value_of(_TRANSACTION)),
    "decision": (
        decisions.parse, decisions.key_of("group"), decisions.value_of(decisions.Decision("group", "owner", 3, 5)),
    ),
}  # fmt: skip


def damaged(data: st.DataObject, good: bytes) -> bytes:
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(0, 3))):
        position = data.draw(st.integers(0, max(0, len(raw) - 1)))
        match data.draw(st.sampled_from(["change", "cut", "insert"])):
            case "change" if raw:
                raw[position] = data.draw(st.integers(0, 255))
            case "cut":
                del raw[position:]
            case _:
                raw[position:position] = data.draw(st.binary(min_size=1, max_size=4))
    return bytes(raw)


@pytest.mark.parametrize("what", SAMPLES)
def test_the_samples_are_sound(what: str) -> None:
    parse, key, value = SAMPLES[what]
    assert parse(key, value) is not None and parse(key, None) is not None
    if what == "transaction":
        assert parse(key, value) == ("txn", _TRANSACTION)


@given(st.sampled_from(sorted(SAMPLES)), st.data())
@settings(max_examples=400, deadline=None)
def test_a_coordinators_record_is_read_or_a_wire_error(what: str, data: st.DataObject) -> None:
    parse, key, value = SAMPLES[what]
    try:
        parse(damaged(data, key), None if data.draw(st.booleans()) else damaged(data, value))
    except WireError:
        return


@given(st.sampled_from(list(Codec)), st.data())
@settings(max_examples=400, deadline=None)
def test_a_batch_is_read_or_corrupt(compression: Codec, data: st.DataObject) -> None:
    builder = RecordBatchBuilder(compression)
    for number in range(data.draw(st.integers(1, 3))):
        builder.append(b"key", b"value" * 20, (("header", b"x"), ("empty", None)), number)
    try:
        for _ in read_records(damaged(data, builder.build()), check_crc=False, limit_bytes=1 << 20):
            pass
    except ApiError:
        return
