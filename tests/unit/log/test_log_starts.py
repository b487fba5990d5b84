"""Log starts survive a crash: deleted records do not come back, and no record is lost to the log start of another log."""

from __future__ import annotations

import asyncio

from kafkalite.config import TopicConfig
from kafkalite.log import checkpoints
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import TopicId, TopicPartition
from tests.support.log_host import manager_on
from tests.support.logs import TOPIC_ID, batch
from tests.support.memory_disk import MemoryDisk

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER_ID = TopicId("BBBBBBBBBBBBBBBBBBBBBQ")


async def after_a_crash(disk: MemoryDisk) -> LogManager:
    """Every process is killed; the page cache stays."""
    disk.process_crash()
    return await manager_on(disk)


def fill(log: PartitionLog, records: int) -> None:
    for number in range(records):
        log.append_as_leader(batch([f"value {number}"]), 1)


def start_of(manager: LogManager, topic_partition: TopicPartition) -> int:
    log = manager.get(topic_partition)
    assert log is not None
    return log.log_start_offset


async def test_a_saved_log_start_survives_a_crash_at_once() -> None:
    disk = MemoryDisk()
    manager = await manager_on(disk)
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    fill(log, 8)
    log.advance_log_start_offset(5)
    assert log.durable_start_offset == 0
    assert await manager.offsets.save_log_start(log)
    assert log.durable_start_offset == 5
    assert start_of(await after_a_crash(disk), T0) == 5


async def test_many_logs_share_a_save() -> None:
    disk = MemoryDisk()
    manager = await manager_on(disk)
    logs = [manager.placing.create(TopicPartition("t", number), TOPIC_ID, TopicConfig()) for number in range(50)]
    for log in logs:
        fill(log, 2)
        log.advance_log_start_offset(1)
    before = len(disk.calls)
    assert all(await asyncio.gather(*(manager.offsets.save_log_start(log) for log in logs)))
    writes = [path for kind, path, _ in disk.calls[before:] if kind == "write_file"]
    assert len(writes) == 1, writes
    assert all(log.durable_start_offset == 1 for log in logs)


async def test_a_log_out_of_service_has_no_log_start_to_save() -> None:
    disk = MemoryDisk()
    manager = await manager_on(disk)
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    fill(log, 2)
    log.advance_log_start_offset(1)
    manager.delete(T0)
    assert not await manager.offsets.save_log_start(log)


async def test_a_new_log_does_not_begin_where_a_deleted_topic_of_its_name_began() -> None:
    """The file had the old log start for up to a minute: a crash then cost every record of the new topic."""
    disk = MemoryDisk()
    manager = await manager_on(disk)
    old = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    fill(old, 8)
    old.advance_log_start_offset(7)
    await manager.offsets.save_offsets()
    manager.delete(T0)
    fill(manager.placing.create(T0, OTHER_ID, TopicConfig()), 3)
    manager = await after_a_crash(disk)
    log = manager.get(T0)
    assert log is not None and (log.log_start_offset, log.log_end_offset) == (0, 3)


async def test_a_save_under_way_does_not_give_a_new_log_the_old_start() -> None:
    disk = MemoryDisk()
    manager = await manager_on(disk)
    old = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    fill(old, 8)
    old.advance_log_start_offset(7)
    is_under_way, go_on = asyncio.Event(), asyncio.Event()

    async def late(function, at="") -> object:
        is_under_way.set()
        await go_on.wait()
        return function()

    disk.run_blocking = late  # type: ignore[method-assign]
    saving = asyncio.ensure_future(manager.offsets.save_log_start(old))
    await is_under_way.wait()
    manager.delete(T0)
    fill(manager.placing.create(T0, OTHER_ID, TopicConfig()), 3)
    go_on.set()
    await saving
    manager = await after_a_crash(disk)
    log = manager.get(T0)
    assert log is not None and (log.log_start_offset, log.log_end_offset) == (0, 3)


async def test_a_log_cut_below_its_start_keeps_what_comes_then() -> None:
    """An unclean election: the new leader has less than was deleted here."""
    disk = MemoryDisk()
    manager = await manager_on(disk)
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    fill(log, 8)
    log.advance_log_start_offset(7)
    assert await manager.offsets.save_log_start(log)
    log.truncate_fully_and_start_at(2)
    fill(log, 3)
    assert log.durable_start_offset <= 2
    manager = await after_a_crash(disk)
    found = manager.get(T0)
    assert found is not None and (found.log_start_offset, found.log_end_offset) == (2, 5)


async def test_segments_that_are_back_after_a_loss_of_power_are_not_served() -> None:
    """Retention has removed the segments of deleted records; the names of their files were not synced."""
    disk = MemoryDisk()
    manager = await manager_on(disk)
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig(segment_bytes=150))
    fill(log, 8)
    await log.flush()
    start = log.segments[-1].base_offset
    log.advance_log_start_offset(start)
    assert log.delete_old_segments(8, 0) and log.first_offset == start
    await manager.offsets.save_offsets()
    saved = checkpoints.decode_offsets(disk.read_file(f"/d1/{checkpoints.LOG_STARTS}"))
    assert saved == {T0: start}
