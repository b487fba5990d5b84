"""A node with two disks, between which a replica moves."""

from __future__ import annotations

from typing import Any

from kafkalite.config import TopicConfig
from kafkalite.env.supervisor import Supervisor
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import TopicPartition
from kafkalite.record.reader import read_records
from tests.support.log_host import fatal, log_manager
from tests.support.logs import TOPIC_ID, batch, config
from tests.support.memory_disk import ManualClock, MemoryDisk

T0 = TopicPartition("t", 0)


class Host:
    """A node's storage on two disks."""

    def __init__(self, **settings: Any) -> None:
        self.disk, self.clock = MemoryDisk(), ManualClock()
        self.settings = settings
        self.dead: list[str] = []

    async def start(self, overrides: dict[str, str] | None = None) -> LogManager:
        self.supervisor = Supervisor(fatal)
        self.manager = log_manager(
            self.disk,
            "/d1",
            "/d2",
            clock=self.clock,
            supervisor=self.supervisor,
            on_dir_failed=lambda directory, _: self.dead.append(directory),
            **self.settings,
        )
        await self.manager.opening.start("cluster", 1, {"t": overrides or {}})
        return self.manager

    async def restart(self, overrides: dict[str, str] | None = None) -> LogManager:
        """As after kill -9."""
        await self.supervisor.stop()
        self.disk.process_crash()
        self.disk.locks.clear()
        return await self.start(overrides)

    def create(self, topic: TopicConfig | None = None) -> PartitionLog:
        return self.manager.placing.create(T0, TOPIC_ID, topic or config(), directory="/d1")

    @property
    def log(self) -> PartitionLog:
        found = self.manager.get(T0)
        assert found is not None
        return found

    def names(self, directory: str) -> list[str]:
        return [name for name in self.disk.listdir(directory) if name.startswith("t-")]


def values(log: PartitionLog) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = int(log.log_start_offset)
    while offset < log.log_end_offset:
        for data in log.read(offset, 1 << 20).records:
            for record in read_records(data):
                if record.offset >= offset:
                    found.append((record.offset, record.value or b""))
        offset = found[-1][0] + 1
    return found


def fill(log: PartitionLog, count: int, *, epoch: int = 1, start: int = 0) -> None:
    for number in range(start, start + count):
        log.append_as_leader(batch([b"%d " % number + b"x" * 100]), epoch)
