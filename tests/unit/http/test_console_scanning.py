"""Pages that read messages cost a bounded amount, whatever the records stand for."""

from __future__ import annotations

import pytest

from kafkalite.client.consumed import ConsumedRecord, committed_records
from kafkalite.http.console.scanning import BATCH_BYTES, ScanBudget, Scanned, scan_batches
from kafkalite.model import TopicPartition
from kafkalite.record.builder import encode_batch, encode_record
from kafkalite.record.compression import Codec, compress

KEY = TopicPartition("t", 0)


def batch(base: int, *values: bytes, codec: Codec = Codec.ZSTD) -> bytes:
    payload = b"".join(encode_record(number, 0, None, value, ()) for number, value in enumerate(values))
    return bytes(
        encode_batch(
            compress(codec, payload), record_count=len(values), base_offset=base, last_offset_delta=len(values) - 1,
            leader_epoch=0, attributes=int(codec), base_timestamp=0, max_timestamp=0,
        )
    )  # fmt: skip


def scan(
    data: bytes,
    *,
    start: int = 0,
    end: int = 10**9,
    most: int = 10**9,
    text: bytes = b"",
    budget: ScanBudget | None = None,
) -> Scanned:
    def fits(record: ConsumedRecord) -> bool:
        return text in (record.value or b"")

    return scan_batches(KEY, memoryview(data), start, end, (), fits=fits, most=most, budget=budget or ScanBudget())


def test_records_that_fit_from_start_to_end() -> None:
    data = batch(0, b"a", b"b", b"ab") + batch(3, b"b", b"a")
    assert [each.offset for each in scan(data).records] == [0, 1, 2, 3, 4]
    found = scan(data, start=1, end=4, text=b"b")
    assert ([each.offset for each in found.records], found.position, found.scanned) == ([1, 2, 3], 4, 3)
    found = scan(data, most=2, text=b"b")
    assert ([each.offset for each in found.records], found.position) == ([1, 2], 3)


def test_a_batch_that_stands_for_too_much_is_passed_over_and_named() -> None:
    data = batch(0, bytes(BATCH_BYTES + 1)) + batch(1, b"a")
    found = scan(data)
    assert [each.offset for each in found.records] == [1]
    assert found.position == 2
    assert "offset 0" in found.error


def test_what_one_answer_reads_is_bounded() -> None:
    """A megabyte of such batches held gigabytes."""
    data = b"".join(batch(number, bytes(10 * 2**20)) for number in range(100))
    budget = ScanBudget()
    found = scan(data, budget=budget)
    assert len(data) < 2**20
    assert sum(len(each.value or b"") for each in found.records) <= 64 * 2**20
    assert 0 < found.position == len(found.records) < 10
    assert budget.is_spent
    assert scan(data, start=found.position, budget=budget).records == []


def test_a_batch_of_a_million_records_is_read_in_parts() -> None:
    data = batch(0, *[b""] * 1_000_000)
    assert len(data) < 2**20
    found = scan(data, text=b"x", budget=ScanBudget(records=1000))
    assert (found.position, found.scanned, found.records) == (1000, 1000, [])
    found = scan(data, start=found.position, budget=ScanBudget(records=1000))
    assert (found.position, len(found.records)) == (2000, 1000)


def test_a_consumer_reads_bombs_in_parts() -> None:
    data = memoryview(b"".join(batch(number, bytes(2**20)) for number in range(50)))
    found, position, _ = committed_records(KEY, data, 0, content_bytes=8 * 2**20)
    assert (len(found), position) == (8, 8)
    found, position, _ = committed_records(KEY, data, 8)
    assert (len(found), position) == (42, 50)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(codec: Codec) -> None:
    assert [each.value for each in scan(batch(7, b"a", b"b", codec=codec)).records] == [b"a", b"b"]
