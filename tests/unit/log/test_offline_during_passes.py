"""A directory goes offline in the middle of a housekeeping pass: nothing is written there any more, and the pass goes on elsewhere."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import kafkalite
from kafkalite.config import TopicConfig
from kafkalite.errors import StorageError
from kafkalite.log.log_manager import LogManager
from kafkalite.model import TopicPartition
from tests.support.log_host import host_of, manager_on
from tests.support.logs import TOPIC_ID, batch
from tests.support.memory_disk import MemoryDisk, MemoryFile

#: More than the retention pass looks at before it lets others run.
LOGS = 66
CONFIG = TopicConfig(segment_bytes=200, retention_bytes=400, cleanup_policy="delete", file_delete_delay_ms=0)
COMPACTED = TopicConfig(segment_bytes=200, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
WRITES = {"append", "sync", "write_file", "sync_dir", "attempt"}


class YieldingDisk(MemoryDisk):
    """Everything that takes time lets others run first. Calls count whether or not the disk is alive."""

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.calls.append(("attempt", path, len(data)))
        super().write_file_atomic(path, data, durable=durable)

    def rename(self, old: str, new: str) -> None:
        self.calls.append(("attempt", old, 0))
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.calls.append(("attempt", path, 0))
        super().remove(path)

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        await asyncio.sleep(0)
        self._check(at)
        return function()


async def flush(manager: LogManager) -> None:
    await manager.housekeeping.flush_pass()


async def retain(manager: LogManager) -> None:
    await manager.housekeeping.retention_pass()


async def clean(manager: LogManager) -> None:
    await manager.housekeeping.cleaning_pass()


async def checkpoint(manager: LogManager) -> None:
    await manager.offsets.save_offsets()
    manager.offsets.save_high_watermarks({log.topic_partition: log.log_end_offset for log in manager.all()})


async def remove(manager: LogManager) -> None:
    await manager.removals.run_due()


async def filled(config: TopicConfig, logs: int) -> tuple[YieldingDisk, LogManager]:
    disk = YieldingDisk()
    manager = await manager_on(disk, "/d1", "/d2", on_dir_failed=None)
    for number in range(logs):
        log = manager.placing.create(TopicPartition("t", number), TOPIC_ID, config)
        for _ in range(6):
            log.append_as_leader(batch(["a value of some bytes"] * 3), 1)
    return disk, manager


@pytest.mark.checklist(81)
@pytest.mark.checklist(86)
@pytest.mark.parametrize("job", [flush, retain, clean, checkpoint, remove])
async def test_a_pass_leaves_a_directory_alone_that_went_offline(job: Callable[[LogManager], Awaitable[None]]) -> None:
    ended_early = False
    for turns in (1, 2, 5, 20):
        logs = LOGS if job is retain else 8
        disk, manager = await filled(COMPACTED if job is clean else CONFIG, logs)
        host_of(manager).hw_of = lambda _: 18
        on_d2 = {log.topic_partition for log in manager.all() if log.directory == "/d2"}
        assert len(on_d2) == logs // 2
        if job is remove:
            await manager.housekeeping.retention_pass()
        under_way = asyncio.ensure_future(job(manager))
        for _ in range(turns):
            await asyncio.sleep(0)
        ended_early |= not under_way.done()
        disk.broken = {"/d2"}
        error = StorageError("append", directory="/d2")
        error.__cause__ = OSError(errno.EIO, "injected")
        assert set(manager.failures.dir_failed(error)) == on_d2
        before = len(disk.calls)
        async with asyncio.timeout(150):
            await under_way
            await job(manager)
        assert [call for call in disk.calls[before:] if call[1].startswith("/d2") and call[0] in WRITES] == []
        assert {log.directory for log in manager.all()} == {"/d1"} and len(manager.all()) == logs // 2
        assert set(manager.pool.offline_partitions) == on_d2
        if job is flush:
            assert all(log.recovery_point == log.segments[-1].base_offset > 0 for log in manager.all())
        await manager.close(clean=False)
    assert ended_early, "the directory was never taken away in the middle of a pass"


@pytest.mark.checklist(91)
def test_records_are_read_by_one_call_that_can_fail() -> None:
    """`sendfile` and a file's `mmap` would meet a bad sector where nobody can say whose it is (mmap: as SIGBUS)."""
    root = Path(kafkalite.__file__).parent
    ways = re.compile(r"\bmmap\.mmap\((?!-1,)|\bimport mmap as\b|\bfrom mmap\b|sendfile\b")  # -1: memory without a file
    assert [path.name for path in root.rglob("*.py") if ways.search(path.read_text())] == []


@pytest.mark.checklist(91)
async def test_a_read_that_fails_names_its_log_and_takes_only_that_out_of_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[TopicPartition] = []
    judged = asyncio.Event()
    manager = await manager_on(
        MemoryDisk(), on_log_failed=lambda tp, _: lost.append(tp), on_examined=lambda _: judged.set()
    )
    victim, other = (
        manager.placing.create(TopicPartition("t", number), TOPIC_ID, TopicConfig()) for number in range(2)
    )
    for log in (victim, other):
        log.append_as_leader(batch(["x"] * 5), 1)
    read_at = MemoryFile.read_at

    def bad_sector(self: MemoryFile, offset: int, size: int) -> bytes:
        if self.path.startswith(victim.path):
            raise OSError(errno.EIO, "bad sector")
        return read_at(self, offset, size)

    monkeypatch.setattr(MemoryFile, "read_at", bad_sector)
    with pytest.raises(StorageError) as caught:
        victim.read(0, max_bytes=1000)
    assert (caught.value.path, caught.value.directory) == (victim.path, "/d1")
    manager.failures.log_failed(caught.value)
    async with asyncio.timeout(150):
        await judged.wait()
    assert lost == [victim.topic_partition]
    assert other.read(0, max_bytes=1000).size_bytes


@pytest.mark.checklist(92)
async def test_a_read_that_fails_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = await manager_on(MemoryDisk())
    log = manager.placing.create(TopicPartition("t", 0), TOPIC_ID, TopicConfig())
    log.append_as_leader(batch(["x"] * 5), 1)
    read_at, failures = MemoryFile.read_at, [errno.EIO]

    def stumbles(self: MemoryFile, offset: int, size: int) -> bytes:
        if failures:
            raise OSError(failures.pop(), "injected")
        return read_at(self, offset, size)

    monkeypatch.setattr(MemoryFile, "read_at", stumbles)
    assert log.read(0, max_bytes=1000).size_bytes and not failures
