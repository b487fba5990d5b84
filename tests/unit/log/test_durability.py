"""What of a log is durable when: flushes, files of its metadata, the topic's id."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.errors import StorageError
from kafkalite.model import TopicId
from tests.support.logs import PATH, batch, everything, make_log, reopen
from tests.support.memory_disk import ManualClock, MemoryDisk


async def test_flush_makes_durable_what_was_there_when_it_began(disk: MemoryDisk) -> None:
    log = make_log(disk, segment_bytes=1024)
    for _ in range(20):
        log.append_as_leader(batch(["x" * 100]), 1)

    async def append_meanwhile() -> None:
        disk.during_sync = None
        log.append_as_leader(batch(["late"]), 1)

    disk.during_sync = append_meanwhile
    assert await log.flush() == 20
    assert (log.synced_offset, log.recovery_point, log.log_end_offset) == (20, 20, 21)
    assert await log.flush() == 21


async def test_concurrent_flushes_share_one_fsync(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    await log.flush()
    log.append_as_leader(batch(["b"]), 1)
    disk.calls.clear()

    async def yield_once() -> None:
        await asyncio.sleep(0)

    disk.during_sync = yield_once
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(log.flush()) for _ in range(10)]
    assert [task.result() for task in tasks] == [2] * 10
    assert [call[0] for call in disk.calls] == ["sync"]


async def test_a_flush_proves_nothing_about_what_a_truncation_replaced(disk: MemoryDisk) -> None:
    log = make_log(disk)
    for _ in range(10):
        log.append_as_leader(batch(["a"]), 1)

    async def diverge() -> None:
        disk.during_sync = None
        log.truncate_to(4)
        for _ in range(4):
            log.append_as_leader(batch(["b"]), 2)

    disk.during_sync = diverge
    await log.flush()
    assert log.log_end_offset == 8
    assert log.synced_offset in (4, 8)
    await log.flush()
    assert log.synced_offset == 8
    assert bytes(disk.entries[f"{PATH}/00000000000000000000.log"].durable) == everything(log)


async def test_a_failed_fsync_is_final(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    disk.fail_sync = True
    with pytest.raises(StorageError):
        await log.flush()
    disk.fail_sync = False
    with pytest.raises(StorageError):
        await log.flush()
    assert log.synced_offset == 0


async def test_metadata_is_durable_before_data(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    await log.flush()
    assert f"{PATH}/partition.metadata" in disk.durable_entries
    order = [path.rsplit("/", 1)[1] for call, path, _ in disk.calls if call == "sync"]
    assert order == ["partition.metadata", "leader-epoch-checkpoint", "00000000000000000000.log"]


async def test_a_new_log_is_only_a_directory(disk: MemoryDisk) -> None:
    log = make_log(disk)
    assert not disk.calls and not disk.entries
    log.append_as_leader(batch(["a"]), 1)
    written = [path.rsplit("/", 1)[1] for call, path, _ in disk.calls if call in ("write_file", "append")]
    assert written.index("partition.metadata") < written.index("00000000000000000000.log")
    assert reopen(disk).topic_id == log.topic_id


@pytest.mark.parametrize("how", ["flush", "close_cleanly", "truncate"])
async def test_a_log_without_records_has_its_topics_id_on_disk_before_anything_relies_on_it(
    disk: MemoryDisk, how: str
) -> None:
    log = make_log(disk)
    if how == "truncate":
        log.truncate_fully_and_start_at(5)
    else:
        await getattr(log, how)()
    assert f"{PATH}/partition.metadata" in (disk.entries if how == "truncate" else disk.durable_entries)
    assert reopen(disk, clean=how == "close_cleanly").topic_id == log.topic_id


async def test_a_clean_close_syncs_each_file_and_directory_once(disk: MemoryDisk) -> None:
    """The directory was synced for the records, and again for what makes the next start fast: a fifth of all syncs of a stop."""
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    disk.calls.clear()
    await log.close_cleanly()
    synced = [path for call, path, _ in disk.calls if call in ("sync", "sync_dir")]
    assert f"{PATH}/00000000000000000001.snapshot" in synced and PATH in synced
    assert sorted(synced) == sorted(set(synced))


@pytest.mark.checklist("F18")
async def test_an_empty_log_takes_the_id_of_the_topic_it_is_given_to(disk: MemoryDisk) -> None:
    make_log(disk)
    disk.process_crash()
    log = reopen(disk)
    assert log.topic_id == ""
    other = TopicId("b" * 22)
    log.take_topic_id(other)
    log.append_as_leader(batch(["a"]), 1)
    disk.process_crash()
    log = reopen(disk)
    assert log.topic_id == other
    log.take_topic_id(TopicId("c" * 22))  # it has records: they stay the other topic's
    assert log.topic_id == other


def test_a_wall_clock_that_is_put_back_does_not_put_off_the_flush(disk: MemoryDisk) -> None:
    clock = ManualClock()
    log = make_log(disk, clock=clock, flush_ms=1_000)
    log.append_as_leader(batch(["a"]), 1)
    assert not log.is_flush_due(clock.now_ms + 999)
    assert log.is_flush_due(clock.now_ms + 1_000)
    assert log.is_flush_due(clock.now_ms - 3_600_000)
