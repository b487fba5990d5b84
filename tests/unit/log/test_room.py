"""A disk that was full comes back when there is room, without anybody, and not in order to be full again at once."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Awaitable, Callable

import pytest

from kafkalite.config import TopicConfig
from kafkalite.env.own_time import OwnTime
from kafkalite.env.real import RealClock
from kafkalite.errors import StorageError
from kafkalite.log.log_manager import LogManager
from kafkalite.log.returning import Awaited, ReturnPauses
from kafkalite.log.room import MIN_ROOM_BYTES, missing_room, needed_bytes
from kafkalite.model import TopicPartition
from tests.support.logs import TOPIC_ID, batch, values
from tests.support.memory_disk import MemoryDisk
from tests.unit.log.failing_logs import Disk as FailingDisk
from tests.unit.log.failing_logs import Host

T0 = TopicPartition("t", 0)


def test_more_has_to_be_free_than_what_makes_a_disk_full() -> None:
    assert [needed_bytes(total) // MIN_ROOM_BYTES for total in (0, 10 << 20, 100 << 20, 450 << 20, 1 << 40)] == [
        2,
        2,
        2,
        2,
        4,
    ]
    assert all(needed_bytes(total) > MIN_ROOM_BYTES for total in range(0, 1 << 31, 1 << 25))


def test_a_disk_that_is_full_again_and_again_is_looked_at_less_often() -> None:
    pauses = ReturnPauses()
    found = []
    for number in range(9):
        pauses.went_offline(float(number))
        found.append(pauses.next_check - number)
    assert found == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    pauses.went_offline(5_000.0)
    assert pauses.next_check == 5_005.0 and len(pauses.offline_at) == 1
    pauses.checked(5_005.0)
    assert pauses.next_check == 5_010.0


class Quota(MemoryDisk):
    """Free bytes are those of the whole disk; what may be written is less."""

    left = MIN_ROOM_BYTES

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        if len(data) > self.left:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), path)
        super().write_file_atomic(path, data, durable=durable)


async def test_a_quota_does_not_show_in_the_free_bytes() -> None:
    disk, own_time = Quota(), OwnTime(RealClock())
    disk.makedirs("/d1")
    disk.left = MIN_ROOM_BYTES - 1
    assert "a file of 16,777,216 bytes cannot be written" in await missing_room(disk, "/d1", own_time)
    disk.left = MIN_ROOM_BYTES
    assert await missing_room(disk, "/d1", own_time) == ""
    assert disk.listdir("/d1") == [], "nothing of the probe is left"


@pytest.mark.parametrize(
    ("total", "free", "missing"),
    [
        (2 * MIN_ROOM_BYTES, 2 * MIN_ROOM_BYTES, ""),
        (1 << 40, 4 * MIN_ROOM_BYTES - 1, "67,108,864 bytes must be free, 67,108,863 are"),
        (24_000_000, 20_000_000, "33,554,432 bytes must be free, 20,000,000 are; it has 24,000,000 in all, which is too small to return"),
    ],
)  # fmt: skip
async def test_what_is_missing_is_said_in_bytes(total: int, free: int, missing: str) -> None:
    """Nobody said why a disk of 24 MB stayed offline, however much of it was free."""
    disk = MemoryDisk()
    disk.makedirs("/d1")
    disk.total_bytes = lambda path: total  # type: ignore[method-assign]
    disk.free_bytes = lambda path: free  # type: ignore[method-assign]
    assert await missing_room(disk, "/d1", OwnTime(RealClock())) == missing


async def test_what_is_deleted_anyway_makes_room_on_a_disk_that_is_offline() -> None:
    """Logs that had moved to another disk filled it; as it was offline, nobody removed them, and it stayed offline with last copies."""
    unique = f"{7:032x}"
    deleted = f"d-3.{unique}-delete"

    class Small(MemoryDisk):
        """The deleted log takes half of what is free without it."""

        def free_bytes(self, path: str) -> int:
            return needed_bytes(self.total_bytes(path)) // (1 + self.exists(f"{path}/{deleted}"))

    disk, own_time = Small(), OwnTime(RealClock())
    kept = ["a-0", f"b-1.{unique}-stray", f"c-2.{unique}-future", "checkpoint"]
    for name in (deleted, *kept):
        disk.makedirs(f"/d1/{name}")
    assert await missing_room(disk, "/d1", own_time) == ""
    assert disk.listdir("/d1") == sorted(kept)


def full(manager: LogManager, number: int) -> StorageError:
    log = manager.get(T0)
    assert log is not None
    cause = OSError(number, os.strerror(number))
    error = log.storage_error("append", cause)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_directory_that_went_offline_for_want_of_room_is_told_when_there_is_some(number: int) -> None:
    host = Host()
    manager = await host.manager()
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    log.append_as_leader(batch(["a"]), 1)
    error = full(manager, number)
    room = [1_000]
    host.disk.free_bytes = lambda path: room[0]  # type: ignore[method-assign]
    manager.failures.log_failed(error)
    await host.verdict()
    assert host.dead == ["/d1"] and next(iter(manager.pool.dirs.values())).awaited is Awaited.ROOM
    assert manager.pool.doubtful() == [T0] and not manager.opening.holds_nothing(), "what returns is not lost"
    assert await manager.opening.ready_to_return() == [], "not before its time"
    log_dir = manager.pool.dirs["/d1"]
    assert "returns when there is room: " in log_dir.describe_offline()
    host.clock.now_ms += 6_000
    assert await manager.opening.ready_to_return() == []
    assert "returns when there is room (67,108,864 bytes must be free, 1,000 are): " in log_dir.describe_offline()
    room[0] = 1 << 30
    assert await manager.opening.ready_to_return() == []
    host.clock.now_ms += 6_000
    assert await manager.opening.ready_to_return() == [("/d1", Awaited.ROOM)]
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 1
    again = manager.get(T0)
    assert again is not None and values(again) == [(0, b"a")] and manager.pool.dirs["/d1"].awaited is Awaited.OPERATOR


async def test_a_full_disk_is_looked_at_again_when_threads_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node stopped: the error ended the task that brings disks back."""
    host = Host()
    manager = await host.manager()
    manager.placing.create(T0, TOPIC_ID, TopicConfig()).append_as_leader(batch(["a"]), 1)
    manager.failures.dir_failed(full(manager, errno.ENOSPC))
    host.clock.now_ms += 6_000
    with monkeypatch.context() as patched:
        patched.setattr(host.disk, "run_blocking", without_threads)
        assert await manager.opening.ready_to_return() == []
    host.clock.now_ms += 6_000
    assert await manager.opening.ready_to_return() == [("/d1", Awaited.ROOM)]


async def without_threads(function: Callable[[], object], at: str = "") -> object:
    raise OSError(errno.EAGAIN, "no thread can be started", at)


class OverQuota(FailingDisk):
    """No checkpoint can be written while `old-delete` is there."""

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        if "checkpoint" in path and self.exists("/d1/old-delete"):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), path)
        super().write_file_atomic(path, data, durable=durable)


async def save_high_watermarks(manager: LogManager) -> None:
    manager.offsets.save_high_watermarks({T0: 1})


async def save_high_watermarks_apart(manager: LogManager) -> None:
    await manager.offsets.save_high_watermarks_apart({T0: 1})


async def save_offsets(manager: LogManager) -> None:
    await manager.offsets.save_offsets()


async def lower_the_recovery_point(manager: LogManager) -> None:
    log = manager.get(T0)
    assert log is not None
    manager.offsets.recovery_point_lowered(log)


@pytest.mark.parametrize(
    "save", [save_high_watermarks, save_high_watermarks_apart, save_offsets, lower_the_recovery_point]
)
@pytest.mark.parametrize("removable", [True, False])
async def test_what_may_go_makes_room_for_a_checkpoint_before_the_disk_goes_offline(
    save: Callable[[LogManager], Awaitable[None]], *, removable: bool
) -> None:
    """A checkpoint took a full disk offline at once, with all its replicas, though deleted logs still waited for their removal."""
    host = Host()
    host.disk = OverQuota()
    manager = await host.manager()
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    log.append_as_leader(batch(["a"]), 1)
    host.disk.makedirs("/d1/old-delete")
    if removable:
        manager.removals.later("/d1/old-delete", 60_000, is_dir=True)
    with contextlib.nullcontext() if removable or save is not lower_the_recovery_point else pytest.raises(OSError):
        await save(manager)
    log_dir = manager.pool.dirs["/d1"]
    if removable:
        assert host.dead == [] and log_dir.online and manager.get(T0) is log
        assert not host.disk.exists("/d1/old-delete") and [name for name in host.disk.listdir("/d1") if "point" in name]
    else:
        assert host.dead == ["/d1"] and log_dir.awaited is Awaited.ROOM


async def test_a_dead_disk_waits_for_no_room() -> None:
    host = Host()
    manager = await host.manager()
    manager.placing.create(T0, TOPIC_ID, TopicConfig())
    manager.failures.dir_failed(StorageError("gone", directory="/d1"))
    assert manager.pool.doubtful() == [T0]  # an operator may bring it back
    host.clock.now_ms += 3_600_000
    assert manager.pool.dirs["/d1"].awaited is Awaited.OPERATOR and await manager.opening.ready_to_return() == []


async def test_what_cannot_be_removed_does_not_keep_the_rest_from_being_removed_later() -> None:
    """After one error the other removals of the directory were forgotten until the next start."""
    host = Host()
    manager = await host.manager()
    log_dir = manager.pool.dirs["/d1"]
    for number in range(3):
        host.disk.makedirs(f"/d1/old{number}-delete")
        manager.removals.later(f"/d1/old{number}-delete", 60_000, is_dir=True)
    host.disk.broken = {"/d1/old1-delete"}
    with pytest.raises(OSError, match="injected"):
        await manager.removals.make_room(log_dir)
    assert [name for name in host.disk.listdir("/d1") if name.startswith("old")] == ["old1-delete", "old2-delete"]
    host.disk.broken.clear()
    host.clock.now_ms += 61_000
    await manager.removals.run_due()
    assert not [name for name in host.disk.listdir("/d1") if name.startswith("old")]


async def test_a_removal_without_a_descriptor_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    manager = await host.manager()
    host.disk.makedirs("/d1/old-delete")
    manager.removals.later("/d1/old-delete", 0, is_dir=True)

    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    with monkeypatch.context() as patched:
        patched.setattr(host.disk, "remove_tree", refuse)
        await manager.removals.run_due()
    await host.verdict()
    host.clock.now_ms += 60_000
    await manager.removals.run_due()
    assert not host.disk.exists("/d1/old-delete")
