"""Records of a log that are found by their timestamps."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from kafkalite.record.builder import encode_batch, encode_record, end_transaction_marker
from kafkalite.record.compression import Codec, compress
from tests.support.logs import batch, cold_reads, find_timestamp, make_log, reopen
from tests.support.memory_disk import MemoryDisk


async def test_timestamps_are_found(disk: MemoryDisk) -> None:
    log = make_log(disk, segment_bytes=2000, index_interval_bytes=100)
    stamps = [10, 30, 20, 50, 40, 60, 60, 55]
    for number, stamp in enumerate(stamps * 5):
        log.append_as_leader(batch([f"{number}"], timestamp_ms=stamp + 100 * (number // 8)), 2)
    expected_by_offset = [stamp + 100 * (number // 8) for number, stamp in enumerate(stamps * 5)]
    for twin in (log, reopen(disk, segment_bytes=2000)):
        for wanted in range(480):
            first = next(((t, o, 2) for o, t in enumerate(expected_by_offset) if t >= wanted), None)
            assert await find_timestamp(twin, wanted) == first
        assert await twin.max_timestamp_offset(cold_reads(twin), (0, 0)) == (460, 37, 2)


async def test_the_end_of_a_transaction_can_be_the_newest_of_all(disk: MemoryDisk) -> None:
    """As in Kafka (ListOffsets with timestamp -3); a look-up of a time finds records only."""
    log = make_log(disk)
    log.append_as_leader(
        batch(["a"], timestamp_ms=10, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), 2
    )
    marker = end_transaction_marker(7, 0, commit=True, coordinator_epoch=0, timestamp_ms=50)
    log.append_as_leader(marker, 2, origin="coordinator")
    assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == (50, 1, 2)
    assert await find_timestamp(log, 20) is None


async def test_a_header_may_say_more_than_its_records_have(disk: MemoryDisk) -> None:
    """A producer writes the largest timestamp of a batch into its header. Kafka: the broker's own count of it."""
    log = make_log(disk)
    log.append_as_leader(batch(["a"], timestamp_ms=10), 2)
    log.append_as_leader(batch(["b"], timestamp_ms=30), 2)
    record = encode_record(0, 0, None, b"c", ())
    claims = encode_batch(record, record_count=1, last_offset_delta=0, base_timestamp=20, max_timestamp=90)
    log.append_as_leader(claims, 2)
    assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == (30, 1, 2)
    assert await find_timestamp(log, 25) == (30, 1, 2)
    assert await find_timestamp(log, 40) is None


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
async def test_the_newest_record_is_one_that_is_still_there(disk: MemoryDisk, segment_bytes: int) -> None:
    log = make_log(disk, segment_bytes=segment_bytes)
    for stamp in (10, 90, 40, 60, 60, 30):
        log.append_as_leader(batch(["x"], timestamp_ms=stamp), 2)
    expected = [(90, 1, 2), (90, 1, 2), (60, 3, 2), (60, 3, 2), (60, 4, 2), (30, 5, 2), None]
    for start, newest in enumerate(expected):
        log.advance_log_start_offset(start)
        assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == newest


async def test_the_newest_record_of_a_batch_was_deleted(disk: MemoryDisk) -> None:
    log = make_log(disk)
    two = encode_record(0, 80, None, b"a", ()) + encode_record(1, 0, None, b"b", ())
    log.append_as_leader(encode_batch(two, record_count=2, last_offset_delta=1, base_timestamp=10, max_timestamp=90), 2)
    log.append_as_leader(batch(["c"], timestamp_ms=50), 2)
    for start, newest in enumerate([(90, 0, 2), (50, 2, 2), (50, 2, 2)]):
        log.advance_log_start_offset(start)
        assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == newest


async def test_a_look_for_the_newest_record_does_not_hold_the_records(disk: MemoryDisk) -> None:
    """A few kB may be a million of them."""
    log = make_log(disk)
    records = b"".join(encode_record(number, number % 7, b"k" * 20, b"", ()) for number in range(20_000))
    packed = compress(Codec.GZIP, records)
    log.append_as_leader(
        encode_batch(
            packed, record_count=20_000, last_offset_delta=19_999, attributes=Codec.GZIP, base_timestamp=10, max_timestamp=16
        ),
        2,
    )  # fmt: skip
    tracemalloc.start()
    try:
        assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == (16, 6, 2)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


async def test_a_look_up_begins_again_if_the_log_changes_under_it(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(disk)
    for number in range(10):
        log.append_as_leader(batch([f"{number}"], timestamp_ms=number), 1)
    real, changes = disk.run_blocking, ["truncate", "", "remove"]

    async def racing(function: Callable[[], object], at: str = "") -> object:
        match changes.pop(0):
            case "truncate":
                log.truncate_to(5)
                log.append_as_leader(batch(["other"], timestamp_ms=50), 2)
            case "remove":
                log.truncate_fully_and_start_at(100)
        return await real(function, at)

    monkeypatch.setattr(disk, "run_blocking", racing)
    assert await find_timestamp(log, 7) == (50, 5, 2)
    assert await find_timestamp(log, 7) is None
