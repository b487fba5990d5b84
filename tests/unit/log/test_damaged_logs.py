"""Damage that is met on other ways than by a read: an append, a truncation, retention, the next start."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafkalite.errors import ApiError, StorageError
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.batch import split_batches
from tests.support.log_host import manager_on
from tests.support.logs import PATH, TOPIC_ID, TP, batch, config, make_log, reopen, values
from tests.support.memory_disk import Inode, ManualClock, MemoryDisk

FIRST = f"{PATH}/{0:020d}"


def positions(disk: MemoryDisk) -> list[int]:
    return [position for position, _ in split_batches(bytes(disk.entries[f"{FIRST}.log"].data))]


def destroy(disk: MemoryDisk, number: int) -> None:
    """The length of batch `number` of the first segment is wrong: from there on no batch is found by going through them."""
    at = positions(disk)[number] + 8
    disk.entries[f"{FIRST}.log"].data[at : at + 4] = b"\x7f\xff\xff\xff"


async def damaged(disk: MemoryDisk, **settings: Any) -> PartitionLog:
    """Forty batches, stopped cleanly; then batch 20 was damaged. Timestamps decrease, so the time index has one entry."""
    log = make_log(disk, index_interval_bytes=300, **settings)
    for number in range(40):
        log.append_as_leader(batch([str(number)], timestamp_ms=1_000 - number), 1)
    await log.close_cleanly()
    log.close()
    destroy(disk, 20)
    return reopen(disk, clean=True, recovery_point=40, index_interval_bytes=300, **settings)


async def test_an_append_is_not_refused_after_it_was_written() -> None:
    """The largest timestamp was looked for after the write. The bytes stayed, and each repetition added more."""
    disk = MemoryDisk()
    log = await damaged(disk)
    info = log.append_as_leader(batch(["new"], timestamp_ms=2_000), 1)
    assert info.first_offset == 40
    assert len(disk.entries[f"{FIRST}.log"].data) == log.size_bytes
    assert b"new" in b"".join(log.read(40, 1_000).records)


async def test_a_truncation_that_meets_damage_takes_the_log_out_of_service() -> None:
    """The follower would try again for ever; out of service, it is recreated from its leader."""
    disk = MemoryDisk()
    log = await damaged(disk, segment_bytes=2_500)
    assert log.segment_count > 1
    files = set(disk.entries)
    with pytest.raises(StorageError):
        log.truncate_to(21)
    assert log.is_failed and log.damaged_at == 21
    assert set(disk.entries) == files, "nothing was removed before the place was found"


@pytest.mark.parametrize("flipped", [1 << 33, 1 << 40])
def test_recovery_cuts_at_an_offset_that_no_index_can_count(flipped: int) -> None:
    """The base offset lies outside the CRC."""
    disk = MemoryDisk()
    log = make_log(disk)
    for number in range(8):
        log.append_as_leader(batch([str(number)]), 1)
    struct.pack_into(">q", disk.entries[f"{FIRST}.log"].data, positions(disk)[6], 6 + flipped)
    assert len(values(reopen(disk, index_interval_bytes=0))) == 6


async def test_an_index_is_not_made_again_with_such_an_offset() -> None:
    disk = MemoryDisk()
    log = make_log(disk, index_interval_bytes=300)
    for number in range(1_000):
        log.append_as_leader(batch([str(number)]), 1)
    await log.close_cleanly()
    for number, position in enumerate(positions(disk)[500:600], 500):
        struct.pack_into(">q", disk.entries[f"{FIRST}.log"].data, position, number + (1 << 40))
    log = reopen(disk, clean=True, recovery_point=1_000)
    disk.remove(f"{FIRST}.index")
    with pytest.raises(ApiError, match="no batch of this segment"):
        log.read(50, 1_000)
    assert log.damaged_at == 50


def test_a_compacted_segment_that_is_damaged_at_its_end_takes_its_place_at_the_start() -> None:
    disk = MemoryDisk()
    log = make_log(disk, cleanup_policy="compact")
    for number in range(8):
        log.append_as_leader(batch([str(number)]), 1)
    swap = Inode()
    swap.data += bytes(disk.entries[f"{FIRST}.log"].data) + bytes(70)
    disk.entries[f"{FIRST}.log.swap"] = swap
    assert len(values(reopen(disk, cleanup_policy="compact"))) == 8


async def test_retention_goes_on() -> None:
    """It ended the node: no timestamp can be found in a segment whose time index is gone, too."""
    disk, clock = MemoryDisk(), ManualClock()
    disk.modified = clock.wall_ms()
    manager = await manager_on(disk, "/d", clock=clock)
    log = manager.placing.create(TP, TOPIC_ID, config(segment_bytes=1_024, retention_ms=1_000))
    for number in range(40):
        log.append_as_leader(batch([str(number)], timestamp_ms=clock.wall_ms()), 1)
    manager.offsets.save_high_watermarks({TP: log.log_end_offset})
    first = log.segments[0]
    first.close()
    data = disk.entries[first.log_path].data
    data[8:12] = b"\x7f\xff\xff\xff"
    disk.remove(first.path(".timeindex"))
    first.max_timestamp = None
    first._indexes.times = None
    assert await manager.housekeeping.retention_pass() == 0
    clock.now_ms += 1_001  # by the time of the file
    assert await manager.housekeeping.retention_pass() > 0
    assert log.log_start_offset > 0
