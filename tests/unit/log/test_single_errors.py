"""One error of a file, and errors that are nobody's (no descriptor, no memory): the log goes on."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import AsyncIterator

import pytest

from kafkalite.config import TopicConfig
from kafkalite.errors import StorageError
from kafkalite.log.cleaner import compact
from kafkalite.log.loader import SWAP
from kafkalite.log.log_dir import STRAY_SUFFIX
from tests.support.logs import TOPIC_ID, batch, values
from tests.support.memory_disk import MemoryFile
from tests.unit.log.failing_logs import CONFIG, ERRNOS, T0, Host, an_error, filled


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    yield Host()


@pytest.mark.parametrize("number", ERRNOS, ids=lambda number: errno.errorcode[number])
async def test_one_error_of_one_file_costs_nothing(host: Host, number: int) -> None:
    """It was set aside and deleted a minute later, also if no other replica had the records."""
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


async def test_one_error_while_a_compacted_segment_is_put_in_place_costs_nothing(host: Host) -> None:
    """The second check finished the compaction, found other segments than before, and the log stayed offline."""
    manager = await host.manager()
    log = filled(manager)
    log.config = dataclasses.replace(log.config, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    await log.flush()
    before = values(log)
    sync_dir = host.disk.sync_dir

    def fail(path: str) -> None:
        if manager.get(T0) is log and any(name.endswith(SWAP) for name in host.disk.listdir(log.path)):
            manager.failures.log_failed(an_error(log, errno.EIO))
        sync_dir(path)

    host.disk.sync_dir = fail  # type: ignore[method-assign]
    end = log.log_end_offset
    assert await compact(log, host.disk, first_dirty_offset=0, high_watermark=end, now_ms=10**13) == 0
    await host.verdict()
    again = manager.get(T0)
    assert again is not None and again is not log and values(again) == before


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
    assert manager.failures.restart_refusal(T0) == "", "where another replica is in sync, it may be recreated"
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
    assert manager.get(T0) is None and manager.failures.restart_refusal(T0) == "", "it may be recreated meanwhile"
    manager.opening.reopen_failed()
    assert manager.get(T0) is None
    host.clock.now_ms += 11_000
    manager.opening.reopen_failed()
    await host.verdict()
    again = manager.get(T0)
    assert again is not None and again.log_end_offset == log.log_end_offset
    assert len(manager.pool.dirs["/d1"].failures.at) == 1, "one bad place says nothing new of the disk"


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


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
async def test_a_compaction_that_gets_no_descriptor_leaves_the_log_for_the_next_pass(host: Host, number: int) -> None:
    """The node stopped: what is known of segments after a start is looked up when the pass is planned, and that error ended the cleaner."""
    manager = await host.manager()
    await filled(manager).flush()
    await manager.close()
    manager = await host.manager()
    log = manager.get(T0)
    assert log is not None
    log.config = TopicConfig(segment_bytes=200, cleanup_policy="compact")
    host.disk.refuse = lambda kind, path: number if path.endswith(".log") else 0
    assert await manager.housekeeping.cleaning_pass() == 0
    assert manager.get(T0) is log


async def test_a_log_that_could_not_be_opened_leaves_no_file_open_for_the_next_one_in_its_place(host: Host) -> None:
    """The recreated replica wrote to the first segments of the log that was set aside: its own had no files."""
    manager = await host.manager()
    segments = [segment.log_path for segment in filled(manager).segments]
    host.disk.process_crash()
    unreadable = host.disk.entries[segments[2]]
    read_at = MemoryFile.read_at

    def fail(file: MemoryFile, offset: int, size: int) -> bytes:
        if file._inode is unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_at(file, offset, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFile, "read_at", fail)
        manager = await host.manager()
        assert manager.pool.failed(T0) is not None
    manager.failures.take_failed_away(T0, STRAY_SUFFIX)
    again = manager.placing.create(T0, TOPIC_ID, CONFIG)
    again.append_as_leader(batch(["new"]), 1)
    assert host.disk.entries[again.segments[0].log_path].data, "its own file"
    assert values(again) == [(0, b"new")]
