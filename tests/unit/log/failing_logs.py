"""Log directories on a disk whose operations fail when a test wants it, and a manager that heals them."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence

from kafkalite.config import TopicConfig
from kafkalite.errors import StorageError
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import TopicId, TopicPartition
from tests.support.log_host import log_manager
from tests.support.logs import TOPIC_ID, batch
from tests.support.memory_disk import ManualClock, MemoryDisk, MemoryFile

T0 = TopicPartition("t", 0)
CONFIG = TopicConfig(segment_bytes=200)
DAY_MS = 86_400_000
#: One error of one file, on a disk that is sound.
ERRNOS = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOENT, errno.EIO]


class Disk(MemoryDisk):
    """`refuse`: what an operation on a path raises, if anything."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: Callable[[str, str], int] = lambda kind, path: 0

    def ask(self, kind: str, path: str) -> None:
        number = self.refuse(kind, path)
        if number:
            raise OSError(number, os.strerror(number), path)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.ask("open", path)
        return super().open(path, create=create)

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.ask("write_file", path)
        super().write_file_atomic(path, data, durable=durable)

    def lock(self, path: str) -> Callable[[], None]:
        self.ask("lock", path)
        return super().lock(path)

    def rename(self, old: str, new: str) -> None:
        if old not in self.entries and old not in self.dirs:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        super().rename(old, new)


class Host:
    def __init__(self, *dirs: str) -> None:
        self.disk, self.clock = Disk(), ManualClock(1_700_000_000_000)
        self.dirs = dirs or ("/d1",)
        self.dead: list[str] = []
        self.judged = asyncio.Event()

    async def manager(self, **topic_ids: TopicId) -> LogManager:
        async def present(names: Sequence[str]) -> dict[str, TopicId]:
            return {name: topic_ids[name] for name in names}

        manager = log_manager(
            self.disk,
            *self.dirs,
            clock=self.clock,
            on_dir_failed=lambda directory, _: self.dead.append(directory),
            on_examined=lambda _: self.judged.set(),
        )
        await manager.opening.start("cluster", 1, {}, present)
        return manager

    async def verdict(self) -> None:
        await self.judged.wait()
        self.judged.clear()

    def names(self) -> list[str]:
        return [name for path in self.dirs for name in self.disk.listdir(path) if name.startswith("t-")]

    async def a_day_later(self, manager: LogManager) -> None:
        self.clock.now_ms += DAY_MS + 1_000
        await manager.removals.run_due()


def filled(manager: LogManager, count: int = 6, tp: TopicPartition = T0, directory: str | None = None) -> PartitionLog:
    log = manager.placing.create(tp, TOPIC_ID, CONFIG, directory=directory)
    for number in range(count):
        log.append_as_leader(batch([f"value {number}"]), 1)
    assert log.segment_count > 2
    return log


def an_error(log: PartitionLog, number: int) -> StorageError:
    cause = OSError(number, os.strerror(number))
    error = log.storage_error("read", cause)
    error.__cause__ = cause
    return error
