"""What becomes of a log whose fsync has failed, and of what was set aside: healing never removes a sound or a last copy."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable

import pytest

from kafkalite.errors import ApiError, StorageError
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.strays import parse_name
from kafkalite.model import LeaderEpoch, TopicId, TopicPartition
from tests.support.log_host import host_of
from tests.support.logs import TOPIC_ID, batch, values
from tests.unit.log.failing_logs import CONFIG, T0, Host, an_error, filled


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    yield Host()


async def a_failed_fsync(host: Host, manager: LogManager) -> PartitionLog:
    log = filled(manager)
    host.disk.fail_sync = True
    with pytest.raises(StorageError) as caught:
        await log.flush()
    host.disk.fail_sync = False
    manager.failures.log_failed(caught.value)
    await host.verdict()
    return log


async def test_after_a_failed_fsync_only_an_order_opens_the_log(host: Host) -> None:
    manager = await host.manager()
    log = await a_failed_fsync(host, manager)
    before = values(log)
    host.clock.now_ms += 3_600_000
    manager.opening.reopen_failed()
    await asyncio.sleep(0)
    kept = manager.pool.failed(T0)
    assert manager.get(T0) is None and kept is not None and kept.needs_operator and host.names() == ["t-0"]
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 1
    again = manager.get(T0)
    assert (
        again is not None
        and values(again) == before
        and [failed for each in manager.pool.online() for failed in each.failed.values()] == []
    )


async def test_a_clean_stop_does_not_call_a_failed_log_clean(host: Host) -> None:
    manager = await host.manager()
    log = await a_failed_fsync(host, manager)
    before = values(log)
    filled(manager, tp=TopicPartition("t", 1))
    manager.offsets.save_high_watermarks({T0: 4})
    await manager.close()
    manager = await host.manager()
    again, other = manager.get(T0), manager.get(TopicPartition("t", 1))
    assert again is not None and other is not None and values(again) == before
    assert not again.clean_start and other.clean_start


async def test_its_high_watermark_and_its_start_are_remembered(host: Host) -> None:
    manager = await host.manager()
    log = filled(manager)
    log.advance_log_start_offset(1)
    manager.offsets.save_high_watermarks({T0: 4})
    host.disk.entries.pop(log.segments[1].log_path)
    manager.failures.log_failed(an_error(log, errno.ENOENT))
    await host.verdict()
    manager.offsets.save_high_watermarks({})
    await manager.offsets.save_offsets()
    assert host.disk.read_file("/d1/replication-offset-checkpoint") == b"0\n1\nt 0 4\n"
    assert host.disk.read_file("/d1/log-start-offset-checkpoint") == b"0\n1\nt 0 1\n"
    assert host.disk.read_file("/d1/recovery-point-offset-checkpoint") == b"0\n0\n", "all of it is to be checked"


async def set_aside(host: Host) -> LogManager:
    """A replica whose log failed for good has been recreated."""
    manager = await host.manager()
    await a_failed_fsync(host, manager)
    manager.placing.create(T0, TOPIC_ID, CONFIG)
    return manager


async def test_what_was_set_aside_is_kept_until_its_records_are_elsewhere(host: Host) -> None:
    manager = await set_aside(host)
    assert len(host.names()) == 2 and manager.removals.overdue() == []
    for _ in range(3):
        await host.a_day_later(manager)
    [stray] = manager.removals.overdue()
    assert stray.size_bytes > 300 and (stray.topic_partition, stray.topic_id) == (T0, TOPIC_ID)
    await manager.close()
    manager = await host.manager()
    await host.a_day_later(manager)
    [found] = manager.removals.overdue()
    assert (found.path, found.topic_id, found.since_ms) == (stray.path, TOPIC_ID, stray.since_ms), (
        "a restart forgets nothing"
    )
    host_of(manager).elsewhere = lambda each: each.is_of(T0, TOPIC_ID)
    await manager.removals.run_due()
    assert host.names() == ["t-0"] and manager.removals.strays() == []


async def test_want_of_room_removes_no_last_copy(host: Host) -> None:
    manager = await set_aside(host)
    log = manager.get(T0)
    assert log is not None
    manager.failures.log_failed(an_error(log, errno.ENOSPC))
    await host.verdict()
    assert [name for name in host.names() if name.endswith("-stray")]
    host_of(manager).elsewhere = lambda each: True
    log = manager.get(T0)
    assert log is not None
    manager.failures.log_failed(an_error(log, errno.ENOSPC))
    await host.verdict()
    assert host.names() == ["t-0"], "what is elsewhere makes room at once"


async def test_the_deletion_of_the_partition_is_an_order(host: Host) -> None:
    manager = await set_aside(host)
    manager.delete(T0, TopicId("BBBBBBBBBBBBBBBBBBBBBQ"))
    manager.placing.create(T0, TOPIC_ID, CONFIG)
    await host.a_day_later(manager)
    assert len(manager.removals.overdue()) == 1, "another topic of that name"
    manager.delete(T0, TOPIC_ID)
    await host.a_day_later(manager)
    assert host.names() == []


async def test_a_failed_log_of_a_deleted_partition_goes_with_it(host: Host) -> None:
    manager = await host.manager()
    await a_failed_fsync(host, manager)
    manager.delete(T0, TOPIC_ID)
    assert [name.rpartition("-")[2] for name in host.names()] == ["delete"] and [
        failed for each in manager.pool.online() for failed in each.failed.values()
    ] == []
    await host.a_day_later(manager)
    assert host.names() == []


async def test_what_was_set_aside_can_be_the_log_again(host: Host) -> None:
    manager = await host.manager()
    log = filled(manager)
    before = values(log)
    manager.set_stray(T0)
    [stray] = manager.removals.strays()
    await manager.failures.restore(stray, T0, CONFIG)
    again = manager.get(T0)
    assert again is not None and values(again) == before and host.names() == ["t-0"] and manager.removals.strays() == []
    manager.set_stray(T0)
    manager.placing.create(T0, TOPIC_ID, CONFIG)
    [stray] = manager.removals.strays()
    with pytest.raises(ApiError, match="has a log here"):
        await manager.failures.restore(stray, T0, CONFIG)
    manager.removals.remove_stray(stray)
    await manager.removals.run_due()
    assert host.names() == ["t-0"]


async def test_a_replica_is_not_made_again_while_its_files_are_looked_at() -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    log = filled(manager, directory="/d1")
    run_blocking, go_on, is_asked = host.disk.run_blocking, asyncio.Event(), asyncio.Event()

    async def slow(function: Callable[[], object], at: str = "") -> object:
        kept = manager.pool.failed(T0)
        if kept is not None and kept.is_under_check:
            is_asked.set()
            await go_on.wait()
        return await run_blocking(function, at)

    host.disk.run_blocking = slow  # type: ignore[method-assign]
    manager.failures.log_failed(an_error(log, errno.EIO))
    await is_asked.wait()
    assert "being checked" in manager.failures.restart_refusal(T0)
    with pytest.raises(StorageError, match="being checked"):
        manager.placing.create(T0, TOPIC_ID, CONFIG)
    go_on.set()
    await host.verdict()
    assert manager.get(T0) is not None and host.names() == ["t-0"]


def test_the_name_of_a_stray_tells_when() -> None:
    assert parse_name(f"a-b-7.{1_700_000_000_000:016x}{1:016x}-stray") == (TopicPartition("a-b", 7), 1_700_000_000_000)
    for other in ("t-0", "t-0.0000-stray", f"t-0.{1:032x}-delete", f"t.{1:032x}-stray"):
        assert parse_name(other) is None


async def test_of_unfinished_copies_one_is_kept(host: Host) -> None:
    """A leader that changed again and again while a large log was copied filled the disk with them: none is in sync before the copy ends."""
    manager = await host.manager()
    filled(manager)
    manager.set_stray(T0)
    for epoch in range(3):
        host.clock.now_ms += 1
        log = manager.placing.create(T0, TOPIC_ID, CONFIG)
        log.record_copying(LeaderEpoch(epoch))
        log.append_as_follower(batch(["copied"], leader_epoch=epoch))
        manager.set_stray(T0)
        if epoch == 1:
            await manager.close()
            manager = await host.manager()
    kept = manager.removals.of(T0, TOPIC_ID)
    assert [(stray.latest_epoch, stray.is_unfinished) for stray in kept] == [(2, True), (1, False)]
    await manager.removals.run_due()
    assert len(host.names()) == 2


async def test_of_unfinished_copies_the_most_complete_is_kept(host: Host) -> None:
    """The last one was, and it may just have begun when its leader went."""
    manager = await host.manager()
    for count in (9, 1):
        log = manager.placing.create(T0, TOPIC_ID, CONFIG)
        log.record_copying(LeaderEpoch(3))
        for offset in range(count):
            log.append_as_follower(batch(["copied"], base_offset=offset, leader_epoch=2))
        manager.set_stray(T0)
    assert [stray.log_end_offset for stray in manager.removals.of(T0, TOPIC_ID)] == [9]
    await manager.removals.run_due()
    assert len(host.names()) == 1


async def test_how_far_a_later_log_was_on_the_disk_says_nothing_of_the_one_that_is_restored(host: Host) -> None:
    """What a loss of power took from it was not looked for below the later log's recovery point: it served damaged records."""
    manager = await host.manager()
    log = filled(manager)
    path = log.segments[0].log_path
    host.disk.entries[path].data[-1] ^= 1
    manager.set_stray(T0)
    [stray] = manager.removals.strays()
    later = filled(manager)
    await later.flush()
    await manager.offsets.save_offsets()
    manager.delete(T0)
    await manager.failures.restore(stray, T0, CONFIG)
    again = manager.get(T0)
    assert again is not None and again.log_end_offset < 5 and manager.pool.doubtful() == [T0]
