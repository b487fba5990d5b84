"""Index files whose bits have changed, and which still look like indexes, are found out: nothing is skipped, expired or shown by them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.log import segment as segments
from kafkalite.log.index import ABORTED_ENTRY, OFFSET_ENTRY_SIZE, TIME_ENTRY, OffsetIndex, TimeIndex
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.segment import Segment
from kafkalite.record.batch import BatchHeader, parse_header
from kafkalite.record.builder import end_transaction_marker
from tests.support.logs import PATH, batch, find_timestamp, make_log, reopen
from tests.support.memory_disk import MemoryDisk

pytestmark = pytest.mark.checklist(58)

FIRST = f"{PATH}/{0:020d}"
BATCHES = 16


async def closed_segment(disk: MemoryDisk) -> None:
    """Sixteen batches of one record, each with a later timestamp, and a second segment; everything is on the disk."""
    log = make_log(disk, index_interval_bytes=300)
    for number in range(BATCHES):
        log.append_as_leader(batch(["x" * 100], timestamp_ms=1_000_000 + number), 1)
    log.roll()
    log.append_as_leader(batch(["next"], timestamp_ms=1_000_000 + BATCHES), 1)
    await log.flush()


def opened(disk: MemoryDisk, *, clean: bool) -> PartitionLog:
    return reopen(disk, clean=clean, recovery_point=BATCHES + 1, index_interval_bytes=300)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def first_offset_read(log: PartitionLog, offset: int) -> int:
    return parse_header(b"".join(log.read(offset, 1).records)).base_offset


class Lines:
    """The log of a module."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.warnings.append((event, fields))


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    found = Lines()
    monkeypatch.setattr(segments, "_log", found)
    return found


@pytest.mark.parametrize("clean", [True, False])
async def test_no_flipped_bit_of_an_offset_index_has_a_read_skip_records(*, clean: bool) -> None:
    disk = MemoryDisk()
    await closed_segment(disk)
    name = f"{FIRST}.index"
    sound = bytes(disk.entries[name].data)
    assert len(sound) > 4 * OFFSET_ENTRY_SIZE
    still_an_index = 0
    for bit in range(8 * len(sound)):
        disk.entries[name].data[:] = flipped(sound, bit)
        still_an_index += OffsetIndex.decode(flipped(sound, bit)) is not None
        log = opened(disk, clean=clean)
        assert [first_offset_read(log, offset) for offset in range(BATCHES)] == list(range(BATCHES)), bit
        log.close()
    assert still_an_index > 20


@pytest.mark.parametrize("clean", [True, False])
async def test_no_flipped_bit_of_a_time_index_makes_a_segment_look_older(*, clean: bool) -> None:
    """Retention would remove records that are to be kept."""
    disk = MemoryDisk()
    await closed_segment(disk)
    name = f"{FIRST}.timeindex"
    sound = bytes(disk.entries[name].data)
    assert len(sound) > 4 * TIME_ENTRY.size
    still_an_index = 0
    for bit in range(8 * len(sound)):
        disk.entries[name].data[:] = flipped(sound, bit)
        still_an_index += TimeIndex.decode(flipped(sound, bit)) is not None
        log = opened(disk, clean=clean)
        assert log.segments[0].largest_timestamp() == (1_000_000 + BATCHES - 1, BATCHES - 1), bit
        log.close()
    assert still_an_index > 20


@pytest.mark.parametrize("clean", [True, False])
async def test_no_flipped_bit_of_a_time_index_hides_a_record(*, clean: bool) -> None:
    """A consumer that seeks by a timestamp would skip it."""
    disk = MemoryDisk()
    await closed_segment(disk)
    name = f"{FIRST}.timeindex"
    sound = bytes(disk.entries[name].data)
    for bit in range(8 * len(sound)):
        disk.entries[name].data[:] = flipped(sound, bit)
        log = opened(disk, clean=clean)
        for number in (1, 5, 9, 14):
            found = await find_timestamp(log, 1_000_000 + number)
            assert found is not None and found[:2] == (1_000_000 + number, number), (bit, number)
        log.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_no_flipped_bit_of_a_transaction_index_shows_an_aborted_record(*, clean: bool) -> None:
    disk = MemoryDisk()
    log = make_log(disk)
    for producer in (7, 8, 9):
        for sequence in range(2):
            made = batch(["v"], producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
            log.append_as_leader(made, 1)
            marker = end_transaction_marker(producer, 0, commit=False, coordinator_epoch=0, timestamp_ms=1000)
            log.append_as_leader(marker, 1, origin="coordinator")
    log.roll()
    log.append_as_leader(batch(["next"]), 1)
    await log.flush()
    end = log.log_end_offset
    expected = [entry[:3] for entry in log.aborted_transactions(0, end)]
    assert len(expected) == 6
    log.close()
    name = f"{FIRST}.txnindex"
    sound = bytes(disk.entries[name].data)
    assert len(sound) == 6 * ABORTED_ENTRY.size
    for bit in range(8 * len(sound)):
        disk.entries[name].data[:] = flipped(sound, bit)
        again = reopen(disk, clean=clean, recovery_point=end)
        assert [entry[:3] for entry in again.aborted_transactions(0, end)] == expected, bit
        again.close()


@pytest.mark.parametrize(("name", "byte"), [(".index", 3), (".timeindex", 7)])
async def test_an_index_that_is_built_again_is_logged_once(lines: Lines, name: str, byte: int) -> None:
    disk = MemoryDisk()
    await closed_segment(disk)
    disk.entries[FIRST + name].data[byte] ^= 1  # of the first entry
    log = opened(disk, clean=True)
    for _ in range(2):
        assert [first_offset_read(log, offset) for offset in range(BATCHES)] == list(range(BATCHES))
        for number in range(BATCHES):
            assert await find_timestamp(log, 1_000_000 + number) is not None
    assert lines.warnings == [("log.index_rebuilt", {"index": FIRST + name})]
    log.close()


@pytest.mark.parametrize("seed", range(20))
async def test_sound_indexes_are_believed_whatever_the_order_of_timestamps(lines: Lines, seed: int) -> None:
    source = random.Random(seed)
    disk = MemoryDisk()
    log = make_log(disk, index_interval_bytes=source.choice((100, 300, 1000)))
    for _ in range(60):
        values = ["x" * source.randrange(150)] * source.randrange(1, 4)
        log.append_as_leader(batch(values, timestamp_ms=1_000_000 + source.randrange(30)), 1)
        if source.random() < 0.1:
            log.roll()
    log.roll()
    await log.flush()
    end = log.log_end_offset
    log.close()
    again = reopen(disk, clean=True, recovery_point=end)
    for segment in again.segments:
        segment.largest_timestamp()
    for offset in range(end):
        first_offset_read(again, offset)
    for timestamp in range(1_000_000, 1_000_031):
        await find_timestamp(again, timestamp)
    assert lines.warnings == []
    again.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_the_check_of_a_transaction_index_reads_the_log_once(
    monkeypatch: pytest.MonkeyPatch, *, clean: bool
) -> None:
    """It read some 64 KiB for each entry: a node with many aborted transactions started late."""
    disk = MemoryDisk()
    log = make_log(disk)
    for sequence in range(300):
        made = batch(["v"], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append_as_leader(made, 1)
        marker = end_transaction_marker(7, 0, commit=False, coordinator_epoch=0, timestamp_ms=1000)
        log.append_as_leader(marker, 1, origin="coordinator")
    log.roll()
    log.append_as_leader(batch(["next"]), 1)
    await log.flush()
    end, size = log.log_end_offset, log.segments[0].size
    log.close()
    read = 0
    scan = Segment.headers

    def counted(self: Segment, *where: int) -> Iterator[tuple[int, BatchHeader]]:
        nonlocal read
        for each in scan(self, *where):
            read += each[1].size
            yield each

    monkeypatch.setattr(Segment, "headers", counted)
    reopen(disk, clean=clean, recovery_point=end).close()
    assert size <= read < 2 * size
