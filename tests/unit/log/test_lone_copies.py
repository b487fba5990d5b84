"""What becomes of a log that has failed, and of what was set aside: healing never removes a sound or a last copy."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.env.own_time import OwnTime
from kafkalite.env.real import RealClock
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError, StorageError
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.strays import parse_name
from kafkalite.model import TopicId, TopicPartition
from tests.support.log_host import host_of, hosted
from tests.support.logs import TOPIC_ID, batch, values
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

        def fatal(error: BaseException) -> None:
            raise error

        manager = hosted(
            LogManager(
                BrokerConfig(log_dirs=self.dirs),
                self.disk,
                self.clock,
                supervisor=Supervisor(fatal),
                own_time=OwnTime(RealClock()),
            ),
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


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    yield Host()


# --- one error --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ERRNOS, ids=lambda number: errno.errorcode[number])
async def test_one_error_of_one_file_costs_nothing(host: Host, number: int) -> None:
    """It was set aside and deleted a minute later, whoever else had the records."""
    manager = await host.manager()
    log = filled(manager)
    await log.flush()
    before = values(log)
    manager.failures.log_failed(an_error(log, number))
    assert manager.get(T0) is None, "out of service at once"
    await host.verdict()
    again = manager.get(T0)
    assert again is not None and again is not log and values(again) == before
    assert (
        manager.pool.offline_partitions == {}
        and [failed for each in manager.pool.online() for failed in each.failed.values()] == []
        and host.dead == []
    )
    await host.a_day_later(manager)
    assert host.names() == ["t-0"] and values(again) == before
    again.append_as_leader(batch(["more"]), 1)
    await again.flush()
    assert again.log_end_offset == len(before) + 1


async def test_what_was_not_on_the_disk_yet_is_there_too(host: Host) -> None:
    manager = await host.manager()
    log = filled(manager)
    before = values(log)
    manager.failures.log_failed(an_error(log, errno.EIO))
    await host.verdict()
    again = manager.get(T0)
    assert again is not None and values(again) == before


async def test_a_log_that_cannot_be_opened_again_leaves_no_file_open(host: Host) -> None:
    """Each attempt kept up to eight, and there is one every five minutes."""
    manager = await host.manager()
    log = filled(manager)
    last = log.segments[-1].log_path
    opened: list[str] = []

    def refuse(kind: str, path: str) -> int:
        opened.append(path)
        # The file is there; it cannot be opened for its batches to be checked.
        return errno.EIO if path == last and opened.count(last) % 2 == 0 else 0

    host.disk.refuse = refuse
    manager.failures.log_failed(an_error(log, errno.EIO))
    await host.verdict()
    before = host.disk.open_files
    for _ in range(3):
        await manager.opening.bring_online("/d1", "cluster", 1, {})
        assert host.disk.open_files == before
    assert opened.count(last) > 3


async def test_a_log_whose_file_is_away_stays_where_it_is_and_goes_on_when_the_file_is_back(host: Host) -> None:
    manager = await host.manager()
    log = filled(manager)
    before = values(log)
    victim = log.segments[1].log_path
    away = host.disk.entries.pop(victim)
    manager.failures.log_failed(an_error(log, errno.ENOENT))
    await host.verdict()
    assert manager.get(T0) is None and host.names() == ["t-0"], "not renamed: it may be the last copy"
    kept = manager.pool.failed(T0)
    assert kept is not None and victim in kept.reason and manager.opening.may_miss_logs() == "/d1"
    assert manager.failures.restart_refusal(T0) == "", "where another replica is in sync, it may be made again"
    await host.a_day_later(manager)
    assert host.names() == ["t-0"] and manager.removals.overdue() == []
    host.disk.entries[victim] = away
    manager.opening.reopen_failed()
    await host.verdict()
    again = manager.get(T0)
    assert again is not None and values(again) == before


async def test_a_segment_that_has_become_shorter_is_not_taken_for_sound(host: Host) -> None:
    manager = await host.manager()
    log = filled(manager)
    await log.flush()
    del host.disk.entries[log.segments[0].log_path].data[-1:]
    manager.failures.log_failed(an_error(log, errno.EIO))
    await host.verdict()
    assert manager.get(T0) is None and "bytes, not" in (manager.pool.failed(T0) or pytest.fail()).reason


async def test_damage_in_what_was_not_synced_is_not_cut_off_by_the_look(host: Host) -> None:
    manager = await host.manager()
    log = filled(manager)
    path = log.segments[1].log_path
    host.disk.entries[path].data[70] ^= 1
    image = bytes(host.disk.entries[path].data)
    manager.failures.log_failed(an_error(log, errno.EIO))
    await host.verdict()
    assert manager.get(T0) is None and bytes(host.disk.entries[path].data) == image


async def test_a_log_that_fails_again_waits_before_the_next_look(host: Host) -> None:
    manager = await host.manager()
    log = filled(manager)
    for _ in range(2):
        current = manager.get(T0)
        assert current is not None
        manager.failures.log_failed(an_error(current, errno.EIO))
        await host.verdict()
    assert manager.get(T0) is None and manager.failures.restart_refusal(T0) == "", "it may be made again meanwhile"
    manager.opening.reopen_failed()
    assert manager.get(T0) is None
    host.clock.now_ms += 11_000
    manager.opening.reopen_failed()
    await host.verdict()
    again = manager.get(T0)
    assert again is not None and again.log_end_offset == log.log_end_offset
    assert len(manager.pool.dirs["/d1"].failures.at) == 1, "one bad place says nothing new of the disk"


# --- errors that are nobody's -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_an_append_that_finds_no_descriptor_fails_alone(host: Host, number: int) -> None:
    manager = await host.manager()
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    log.append_as_leader(batch(["a"]), 1)
    next(iter(manager.pool.dirs.values())).handles.close()
    host.disk.refuse = lambda kind, path: number if path.endswith(".log") else 0
    with pytest.raises(StorageError):
        log.append_as_leader(batch(["b"]), 1)
    assert not log.is_failed and log.log_end_offset == 1
    with pytest.raises(StorageError):
        await log.flush()
    assert not log.is_failed, "the fsync was not tried: the next flush does it"
    host.disk.refuse = lambda kind, path: 0
    log.append_as_leader(batch(["b"]), 1)
    assert await log.flush() == 2 and values(log) == [(0, b"a"), (1, b"b")]


async def test_an_epoch_whose_file_found_no_descriptor_is_written_before_the_next_batch(host: Host) -> None:
    """The second append took the epoch for saved: its file lacked it until the next one began."""
    manager = await host.manager()
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    log.append_as_leader(batch(["a"]), 1)
    host.disk.refuse = lambda kind, path: errno.EMFILE if path.endswith("leader-epoch-checkpoint") else 0
    with pytest.raises(StorageError):
        log.append_as_leader(batch(["b"]), 2)
    host.disk.refuse = lambda kind, path: 0
    log.append_as_leader(batch(["b"]), 2)
    assert host.disk.read_file("/d1/t-0/leader-epoch-checkpoint") == b"0\n2\n1 0\n2 1\n"


async def test_an_fsync_that_fails_is_never_taken_for_a_shortage(host: Host) -> None:
    manager = await host.manager()
    log = manager.placing.create(T0, TOPIC_ID, TopicConfig())
    log.append_as_leader(batch(["a"]), 1)

    async def refuse() -> None:
        raise OSError(errno.ENOMEM, "no memory")

    host.disk.during_sync = refuse
    with pytest.raises(StorageError) as caught:
        await log.flush()
    assert log.is_failed and log.sync_failed
    manager.failures.log_failed(caught.value)
    await host.verdict()
    kept = manager.pool.failed(T0)
    assert kept is not None and kept.needs_operator
    assert manager.failures.restart_refusal(T0) == "", (
        "found by simulation: it waited for memory that was there, for ever"
    )


async def test_housekeeping_that_finds_no_descriptor_leaves_the_log_in_service(host: Host) -> None:
    manager = await host.manager()
    log = filled(manager)
    next(iter(manager.pool.dirs.values())).handles.close()
    host.disk.refuse = lambda kind, path: errno.EMFILE if path.endswith(".log") else 0
    await manager.housekeeping.flush_pass()
    assert manager.get(T0) is log
    host.disk.refuse = lambda kind, path: 0
    await manager.housekeeping.flush_pass()
    assert log.recovery_point > 0


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_disk_stays_in_service_while_nothing_can_be_written_for_want_of_descriptors(
    host: Host, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark that a log is missing could not be written: the whole disk went offline, and came back by a restart only."""
    manager = await host.manager()
    log = filled(manager)
    before = values(log)
    manager.pool.dirs["/d1"].confirm_complete()

    def refuse(*arguments: object, **others: object) -> None:
        raise OSError(number, os.strerror(number))

    host.disk.refuse = lambda kind, path: number
    with monkeypatch.context() as patched:
        patched.setattr(host.disk, "write_file_atomic", refuse)
        manager.failures.log_failed(an_error(log, number))
        await host.verdict()
        kept = manager.pool.failed(T0)
        assert host.dead == [] and kept is not None and kept.is_shortage
    host.disk.refuse = lambda kind, path: 0
    host.clock.now_ms += 60_000
    manager.opening.reopen_failed()
    await host.verdict()
    again = manager.get(T0)
    assert again is not None and values(again) == before


async def test_a_truncation_that_was_cut_short_is_not_taken_for_nobodys(host: Host) -> None:
    """In memory the log's end was the old one, and some segments were gone."""
    manager = await host.manager()
    log = filled(manager)
    next(iter(manager.pool.dirs.values())).handles.close()
    cut = log.segments[2].base_offset + 1
    host.disk.refuse = lambda kind, path: errno.EMFILE if f"{log.segments[2].base_offset:020d}.log" in path else 0
    with pytest.raises(StorageError):
        log.truncate_to(cut)
    assert log.is_failed and not log.sync_failed


async def test_an_append_that_was_refused_and_cut_off_again_costs_nothing(host: Host) -> None:
    """ENOSPC or EIO from write(2): what is there is what was there."""
    manager = await host.manager()
    log = filled(manager)
    before = values(log)
    host.disk.fail_append_after = 40
    with pytest.raises(StorageError) as caught:
        log.append_as_leader(batch(["y"]), 1)
    assert log.is_failed and not log.sync_failed
    manager.failures.log_failed(caught.value)
    await host.verdict()
    again = manager.get(T0)
    assert again is not None and values(again) == before
    again.append_as_leader(batch(["y"]), 1)


# --- a failed fsync ---------------------------------------------------------------------------------------


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


# --- what was set aside -----------------------------------------------------------------------------------


async def set_aside(host: Host) -> LogManager:
    """A replica whose log failed for good has been made again."""
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
