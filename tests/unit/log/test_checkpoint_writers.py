"""The checkpoint files of a directory have one writer at a time, and what is older never takes the place of what is newer."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.config import TopicConfig
from kafkalite.env.real import RealClock
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import StorageError
from kafkalite.log import checkpoints
from kafkalite.model import TopicPartition
from tests.support.log_host import fatal, manager_on
from tests.support.logs import TOPIC_ID, batch
from tests.support.memory_disk import MemoryDisk

T0 = TopicPartition("t", 0)
POINTS = "recovery-point-offset-checkpoint"


class SlowDisk(MemoryDisk):
    """Work in a thread is over when the test says so; it is done at once, or (`is_late`) then."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = self.is_late = False
        self.saves = 0
        self.is_done, self.go_on = asyncio.Event(), asyncio.Event()

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        if self.is_slow and self.is_late:
            self.is_done.set()
            await self.go_on.wait()
            return function()
        before = len(self.calls)
        result = function()
        is_save = any(path.startswith(f"/d1/{POINTS}") for kind, path, _ in self.calls[before:] if kind == "write_file")
        if self.is_slow and is_save:
            self.saves += 1
            self.is_done.set()
            await self.go_on.wait()
        return result


def saved(disk: MemoryDisk) -> dict[TopicPartition, int]:
    return checkpoints.decode_offsets(disk.read_file(f"/d1/{POINTS}"))


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_save_under_way_does_not_take_the_place_of_a_lowered_recovery_point(*, is_late: bool) -> None:
    """A loss of power after that would have left records unchecked that were never synced."""
    disk = SlowDisk()
    disk.is_late = is_late
    manager = await manager_on(disk)
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig(segment_bytes=200))
    for number in range(8):
        log.append_as_leader(batch([f"value {number}"]), 1)
    await log.flush()
    assert log.recovery_point == 8
    disk.is_slow = True
    save = asyncio.ensure_future(manager.offsets.save_offsets())
    await disk.is_done.wait()
    log.truncate_to(3)
    for number in range(8):
        log.append_as_leader(batch([f"other {number}"]), 2)
    assert saved(disk)[T0] <= 3, "the roll has said so before anything relies on it"
    disk.is_slow = False
    disk.go_on.set()
    await save
    assert saved(disk)[T0] <= 3
    assert saved(disk)[T0] <= log.recovery_point


async def test_a_point_that_is_lowered_during_a_save_is_still_to_be_saved() -> None:
    disk = SlowDisk()
    manager = await manager_on(disk)
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig(segment_bytes=200))
    for number in range(8):
        log.append_as_leader(batch([f"value {number}"]), 1)
    await log.flush()
    log.truncate_to(6)
    assert log.needs_checkpoint
    disk.is_slow = True
    save = asyncio.ensure_future(manager.offsets.save_offsets())
    await disk.is_done.wait()
    assert log.needs_checkpoint, "not before it is on the disk"
    log.truncate_to(2)
    disk.go_on.set()
    await save
    assert log.needs_checkpoint
    disk.is_slow = False
    await manager.offsets.save_offsets()
    assert not log.needs_checkpoint and saved(disk)[T0] == log.recovery_point


async def test_saves_that_come_together_are_one() -> None:
    disk = SlowDisk()
    manager = await manager_on(disk)
    manager.placing.create(T0, TOPIC_ID, TopicConfig())
    disk.is_slow = True
    saves = [asyncio.ensure_future(manager.offsets.save_offsets()) for _ in range(30)]
    await disk.is_done.wait()
    disk.go_on.set()
    await asyncio.gather(*saves)
    assert disk.saves == 2, "the first, and one for all who came while it was under way"


async def test_the_points_of_a_deleted_log_do_not_count_for_the_next_one() -> None:
    disk = MemoryDisk()
    manager = await manager_on(disk)
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    for number in range(8):
        log.append_as_leader(batch([f"value {number}"]), 1)
    await log.flush()
    await manager.offsets.save_offsets()
    assert saved(disk) == {T0: 8}
    manager.delete(T0)
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig(segment_bytes=100))
    for number in range(4):
        log.append_as_leader(batch([f"value {number}"]), 1)
    assert log.segment_count > 1 and saved(disk) == {T0: 0}


async def test_a_recovery_point_that_cannot_be_written_stops_the_roll(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    manager = await manager_on(disk)
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig(segment_bytes=100))
    log.append_as_leader(batch(["value"]), 1)
    log.needs_checkpoint = True
    write = disk.write_file_atomic

    def refuse(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith(POINTS):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        write(path, data, durable=durable)

    monkeypatch.setattr(disk, "write_file_atomic", refuse)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(["a value that needs a segment of its own"]), 1)
    assert log.log_end_offset == 1 and [each.path for each in manager.pool.dirs.values() if not each.online] == []


# --- real files -------------------------------------------------------------------------------------------


async def test_thirty_moves_at_once_take_no_disk_offline(tmp_path: Path) -> None:
    """Two saves wrote one .tmp file: the second rename found nothing, and each directory went offline."""
    dirs = tuple(str(tmp_path / name) for name in ("a", "b", "c"))
    for path in dirs:
        os.mkdir(path)
    supervisor, disk = Supervisor(fatal), RealDisk()
    dead: list[str] = []
    manager = await manager_on(
        disk,
        *dirs,
        clock=RealClock(),
        supervisor=supervisor,
        on_dir_failed=lambda directory, error: dead.append(f"{directory}: {error}"),
    )
    for number in range(30):
        log = manager.placing.create(TopicPartition("t", number), TOPIC_ID, TopicConfig(), directory=dirs[0])
        log.append_as_leader(batch(["x" * 100]), 1)
    for number in range(30):
        manager.moves.start(TopicPartition("t", number), dirs[1 + number % 2])
    while manager.moves.under_way():
        await asyncio.sleep(0.005)
    assert dead == [] and [move.state for move in manager.moves.all()] == ["done"] * 30
    await manager.close()
    assert not [name for path in dirs for name in os.listdir(path) if name.endswith(".tmp")]
    await supervisor.stop()
    disk.close()


def test_two_who_write_one_file_at_the_same_time_share_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = RealDisk(), str(tmp_path / "file")
    is_writing, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow(descriptor: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            is_writing.set()
            go_on.wait()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    failures: list[OSError] = []

    def write() -> None:
        try:
            disk.write_file_atomic(path, b"first")
        except OSError as error:
            failures.append(error)

    other = threading.Thread(target=write)
    other.start()
    is_writing.wait()
    disk.write_file_atomic(path, b"second")
    assert disk.read_file(path) == b"second"
    go_on.set()
    other.join()
    assert failures == [] and os.listdir(tmp_path) == ["file"]
    disk.close()
