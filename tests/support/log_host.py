"""The node of a log manager, as tests need it: it notes what it hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalite.config import BrokerConfig
from kafkalite.env.own_time import OwnTime
from kafkalite.env.real import RealClock
from kafkalite.env.seams import Clock, Disk
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import StorageError
from kafkalite.log.log_manager import LogManager, NoHost
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.strays import Stray
from kafkalite.model import TopicPartition
from tests.support.memory_disk import ManualClock


class LogHostDouble(NoHost):
    """Each attribute may be set at any time."""

    def __init__(self, manager: LogManager) -> None:
        super().__init__(manager.offsets)
        self.hw_of: Callable[[TopicPartition], int] = manager.offsets.high_watermark
        self.everywhere: Callable[[TopicPartition], bool] = lambda tp: True
        self.elsewhere: Callable[[Stray], bool] = lambda stray: False
        self.on_dir_failed: Callable[[str, StorageError], object] = lambda directory, error: None
        self.on_log_failed: Callable[[TopicPartition, StorageError], object] = lambda tp, error: None
        self.on_examined: Callable[[str], object] = lambda directory: None
        self.on_exchanged: Callable[[PartitionLog, PartitionLog], object] = lambda old, new: None
        self.giving_way: Callable[[TopicPartition], bool] = manager.pool.is_doubtful
        self.on_replaced: Callable[[PartitionLog, PartitionLog], object] = lambda old, new: None

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        return self.hw_of(topic_partition)

    def all_in_sync(self, topic_partition: TopicPartition) -> bool:
        return self.everywhere(topic_partition)

    def is_elsewhere(self, stray: Stray) -> bool:
        return self.elsewhere(stray)

    def dir_failed(self, error: StorageError) -> None:
        self.on_dir_failed(error.directory, error)

    def log_failed(self, topic_partition: TopicPartition, error: StorageError) -> None:
        self.on_log_failed(topic_partition, error)

    def examined(self, directory: str) -> None:
        self.on_examined(directory)

    def gives_way(self, topic_partition: TopicPartition) -> bool:
        return self.giving_way(topic_partition)

    def replaced(self, old: PartitionLog, new: PartitionLog) -> None:
        self.on_replaced(old, new)

    def exchanged(self, old: PartitionLog, new: PartitionLog) -> None:
        self.on_exchanged(old, new)


def fatal(error: BaseException) -> None:
    """What a supervisor does with a bug: the test fails."""
    raise error


def log_manager(
    disk: Disk,
    *dirs: str,
    clock: Clock | None = None,
    supervisor: Supervisor | None = None,
    on_dir_failed: Callable[[str, StorageError], object] | None = None,
    on_log_failed: Callable[[TopicPartition, StorageError], object] | None = None,
    on_examined: Callable[[str], object] | None = None,
    **settings: Any,
) -> LogManager:
    """The logs of these directories (/d1), not started yet, with a host that hears what happens to them."""
    manager = LogManager(
        BrokerConfig(log_dirs=dirs or ("/d1",), **settings),
        disk,
        clock or ManualClock(),
        supervisor=supervisor or Supervisor(fatal),
        own_time=OwnTime(RealClock()),
    )
    host = manager.pool.host = LogHostDouble(manager)
    host.on_dir_failed = on_dir_failed or host.on_dir_failed
    host.on_log_failed = on_log_failed or host.on_log_failed
    host.on_examined = on_examined or host.on_examined
    return manager


async def manager_on(disk: Disk, *dirs: str, **more: Any) -> LogManager:
    """As `log_manager`, as a process finds the logs when it starts; a directory that fails is an error."""
    manager = log_manager(disk, *dirs, **{"on_dir_failed": lambda directory, error: fatal(error), **more})
    await manager.opening.start("cluster", 1, {})
    return manager


def host_of(manager: LogManager) -> LogHostDouble:
    assert isinstance(manager.pool.host, LogHostDouble)
    return manager.pool.host
