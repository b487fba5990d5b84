"""What a log remembers of its producers does not depend on segments that retention has removed: the next start has a snapshot."""

from __future__ import annotations

import copy
import errno
from typing import Any

import pytest

from kafkalite.log import snapshots
from kafkalite.log.partition_log import PartitionLog
from tests.support.logs import PATH, batch, make_log, reopen
from tests.support.memory_disk import MemoryDisk

EXPIRING: dict[str, Any] = {"retention_ms": 1}


def write(log: PartitionLog, producer_id: int, sequence: int = 0) -> None:
    log.append_as_leader(batch(["v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence), 1)


def known(log: PartitionLog) -> list[int]:
    return sorted(log.active_producers())


def expire(log: PartitionLog, *, upto: int | None = None) -> None:
    """Retention by time, up to this offset."""
    end = log.log_end_offset if upto is None else upto
    log.delete_old_segments(end, 10**9)
    assert log.first_offset == end


def after_a_kill(log: PartitionLog) -> PartitionLog:
    """As the next process finds it on a copy of the disk, if this one has saved no recovery point."""
    disk = copy.deepcopy(log.disk)
    assert isinstance(disk, MemoryDisk)
    disk.process_crash()
    return reopen(disk, log_start_offset=log.log_start_offset, **EXPIRING)


@pytest.mark.checklist("F25")
@pytest.mark.parametrize("at_once", [1, 1_000])
@pytest.mark.parametrize("upto", [2, 4, None])
def test_producers_outlive_their_segments(monkeypatch: pytest.MonkeyPatch, at_once: int, upto: int | None) -> None:
    """Retention comes before the flush that writes the snapshots of many producers, and the process is killed."""
    monkeypatch.setattr(snapshots, "AT_ONCE", at_once)
    log = make_log(MemoryDisk(), **EXPIRING)
    for producer_id in range(6):
        write(log, producer_id)
        if producer_id % 2:
            log.roll()
    write(log, 6)
    expire(log, upto=upto)
    assert known(after_a_kill(log)) == known(log) == list(range(7))


@pytest.mark.checklist("F25")
def test_many_rolls_before_a_flush_keep_each_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "AT_ONCE", 1)
    log = make_log(MemoryDisk(), **EXPIRING)
    for producer_id in range(20):
        write(log, producer_id)
        log.roll()
    for upto in (3, 11, 20):
        expire(log, upto=upto)
        assert known(after_a_kill(log)) == list(range(20))


@pytest.mark.checklist("F25")
def test_a_start_that_recovers_segments_takes_their_snapshots_again() -> None:
    """It has removed those behind the recovery point. Retention, and a second kill, came before the next roll."""
    log = make_log(MemoryDisk(), **EXPIRING)
    for producer_id in range(4):
        write(log, producer_id)
        log.roll()
    write(log, 4)
    again = after_a_kill(log)
    assert list(again.snapshot_offsets) == [1, 2, 3, 4]
    for upto in (2, 4):
        expire(again, upto=upto)
        assert known(after_a_kill(again)) == list(range(5))


@pytest.mark.checklist("F25")
async def test_snapshots_taken_again_are_durable_with_the_next_flush() -> None:
    log = make_log(MemoryDisk(), **EXPIRING)
    for producer_id in range(3):
        write(log, producer_id)
        log.roll()
    again = after_a_kill(log)
    await again.flush()
    disk = again.disk
    assert isinstance(disk, MemoryDisk)
    names = [f"{PATH}/{offset:020d}.snapshot" for offset in again.snapshot_offsets]
    assert len(names) == 3
    assert all(disk.durable_entries[name].durable == disk.read_file(name) for name in names)


def test_a_full_disk_keeps_no_log_from_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(MemoryDisk(), **EXPIRING)
    for producer_id in range(3):
        write(log, producer_id)
        log.roll()

    def full(self: MemoryDisk, path: str, data: bytes, *, durable: bool = True) -> None:
        raise OSError(errno.ENOSPC, "injected", path)

    monkeypatch.setattr(MemoryDisk, "write_file_atomic", full)
    again = after_a_kill(log)
    assert (again.snapshot_offsets, known(again)) == ((), [0, 1, 2])
