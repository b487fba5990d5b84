"""Which logs may lack what was committed, after which end of a host or a process (ADR 16)."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from copy import deepcopy

import pytest

from kafkalite.config import TopicConfig
from kafkalite.log.checkpoints import DOUBTFUL
from kafkalite.log.doubts import UncertainEnds
from kafkalite.log.log_dir import dir_error
from kafkalite.log.log_manager import LogManager
from tests.support.logs import TOPIC_ID, batch
from tests.unit.log import failing_logs
from tests.unit.log.test_log_manager import CONFIG, Host, tp


async def one_log(host: Host, config: TopicConfig = CONFIG) -> LogManager:
    manager = await host.manager()
    log = manager.placing.create(tp(0), TOPIC_ID, config)
    for number in range(5):
        log.append_as_leader(batch([f"v{number}"]), 1)
    return manager


def tail_is_lost(host: Host, path: str = "/d1/t-0/00000000000000000000.log") -> None:
    data = host.disk.entries[path].data
    del data[len(data) // 2 :]


async def test_a_killed_process_leaves_no_doubt() -> None:
    host = Host("/d1")
    await one_log(host)
    host.disk.process_crash()
    manager = await host.manager()
    assert manager.pool.unclean_start and not manager.pool.lost_power
    assert manager.pool.doubtful() == []


async def test_a_clean_stop_before_the_power_goes_leaves_no_doubt() -> None:
    host = Host("/d1")
    await (await one_log(host)).close()
    host.disk.power_loss(random.Random(1))
    assert (await host.manager()).pool.doubtful() == []


async def test_a_loss_of_power_puts_every_log_in_doubt_until_it_has_caught_up() -> None:
    host = Host("/d1")
    manager = await one_log(host)
    await manager.offsets.save_offsets()
    await manager.get(tp(0)).flush()  # type: ignore[union-attr]
    host.disk.power_loss(random.Random(1))
    manager = await host.manager()
    assert manager.pool.lost_power and manager.pool.doubtful() == [tp(0)] and manager.pool.is_doubtful(tp(0))
    # It is killed, or stopped in order, before anybody has led it: the doubt stays.
    host.disk.process_crash()
    manager = await host.manager()
    assert not manager.pool.lost_power and manager.pool.doubtful() == [tp(0)]
    await manager.close()
    manager = await host.manager()
    assert not manager.pool.unclean_start and manager.pool.doubtful() == [tp(0)]
    manager.pool.doubt(tp(0), is_doubtful=False)
    manager.offsets.save_high_watermarks({tp(0): 5})
    host.disk.process_crash()
    assert (await host.manager()).pool.doubtful() == []


async def test_what_is_flushed_before_it_is_acknowledged_is_not_in_doubt() -> None:
    host = Host("/d1")
    manager = await one_log(host)
    await manager.get(tp(0)).flush()  # type: ignore[union-attr]
    host.disk.power_loss(random.Random(1))
    manager = await host.manager(t={"log.flush.before.ack": "true"})
    assert manager.pool.lost_power and manager.pool.doubtful() == []


@pytest.mark.parametrize("settings", [{}, {"log.flush.before.ack": "true"}])
async def test_a_log_that_ends_before_its_high_watermark_is_in_doubt(settings: dict[str, str]) -> None:
    host = Host("/d1")
    manager = await one_log(host)
    manager.offsets.save_high_watermarks({tp(0): 5})
    tail_is_lost(host)
    host.disk.process_crash()
    assert (await host.manager(t=settings)).pool.doubtful() == [tp(0)]


async def test_a_log_with_half_a_batch_at_its_end_is_in_doubt() -> None:
    """Nothing says how far it went: bytes that were there are gone."""
    host = Host("/d1")
    await one_log(host)
    tail_is_lost(host)
    host.disk.process_crash()
    assert (await host.manager()).pool.doubtful() == [tp(0)]


async def test_a_log_that_was_closed_and_has_lost_records_since_is_in_doubt() -> None:
    """A file system that was repaired, or somebody's hands: a marker of a clean stop does not bring them back."""
    host = Host("/d1")
    manager = await one_log(host)
    manager.offsets.save_high_watermarks({tp(0): 5})
    await manager.close()
    tail_is_lost(host)
    manager = await host.manager()
    assert manager.pool.doubtful() == [tp(0)]


async def test_an_older_version_has_left_no_boot_id() -> None:
    """After its unclean end nobody knows; a new directory has nothing to doubt."""
    host = Host("/d1")
    await one_log(host)
    host.disk.remove("/d1/.kafkalite-boot")
    host.disk.process_crash()
    manager = await host.manager()
    assert manager.pool.doubtful() == [tp(0)]


async def test_a_log_that_is_made_again_is_not_in_doubt() -> None:
    host = Host("/d1")
    await one_log(host)
    host.disk.power_loss(random.Random(3))
    manager = await host.manager()
    manager.set_stray(tp(0))
    manager.placing.create(tp(0), TOPIC_ID, CONFIG)
    assert manager.pool.doubtful() == []


async def test_a_log_that_is_made_in_the_place_of_a_missing_one_is_in_doubt_from_its_beginning() -> None:
    """The process died before the doubt was written, and the next one found an empty log that nobody doubted, in sync."""
    host = Host("/d1")
    manager = await host.manager()
    manager.placing.create(tp(0), TOPIC_ID, CONFIG, is_doubtful=True)
    assert manager.pool.doubtful() == [tp(0)]
    host.disk.process_crash()
    manager = await host.manager()
    assert manager.get(tp(0)) is not None and manager.pool.doubtful() == [tp(0)]


async def test_after_a_damaged_list_of_doubts_all_are_in_doubt() -> None:
    """Nobody knows which were: it was reported, and none was."""
    host = Host("/d1")
    await one_log(host)
    host.disk.write_file_atomic("/d1/.kafkalite-doubtful", b"0\n7\n")
    host.disk.process_crash()
    manager = await host.manager()
    assert manager.get(tp(0)) is not None and manager.pool.doubtful() == [tp(0)]


async def test_a_log_that_had_failed_before_the_clean_stop_is_in_doubt_after_a_loss_of_power() -> None:
    """The marker says nothing of it: it was not flushed with the others."""
    host = failing_logs.Host("/d1")
    manager = await host.manager()
    log = manager.placing.create(tp(0), TOPIC_ID, CONFIG)
    other = manager.placing.create(tp(1), TOPIC_ID, CONFIG)
    for each in (log, other):
        each.append_as_leader(batch(["v"]), 1)
    await log.flush()
    flushed = log.size_bytes
    log.append_as_leader(batch(["v"]), 1)
    host.disk.refuse = lambda kind, path: errno.EIO if path.startswith("/d1/t-0/") else 0
    manager.failures.log_failed(log.storage_error("fetch", OSError(errno.EIO, "bad sector")))
    await host.judged.wait()
    assert manager.get(tp(0)) is None
    await manager.close()
    host.disk.power_loss(random.Random(1))
    del host.disk.entries["/d1/t-0/00000000000000000000.log"].data[flushed:]
    host.disk.refuse = lambda kind, path: 0
    manager = await host.manager()
    assert manager.get(tp(0)) is not None and manager.pool.doubtful() == [tp(0)]


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_log_that_could_not_be_opened_is_in_doubt_when_it_can_be(*, is_first: bool) -> None:
    """Its doubt was forgotten: it would have led, without what it had acknowledged. The power is lost before the start that
    cannot open it, or before the one before that."""
    host = failing_logs.Host("/d1")
    log = (await host.manager()).placing.create(tp(0), TOPIC_ID, CONFIG)
    log.append_as_leader(batch(["v"]), 1)
    await log.flush()
    host.disk.power_loss(random.Random(1))
    if not is_first:
        assert (await host.manager()).pool.doubtful() == [tp(0)]
        host.disk.process_crash()
    host.disk.refuse = lambda kind, path: errno.EMFILE if path.startswith("/d1/t-0/") else 0
    manager = await host.manager()
    assert manager.get(tp(0)) is None and manager.pool.failed(tp(0)) is not None
    host.disk.refuse = lambda kind, path: 0
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    assert manager.get(tp(0)) is not None and manager.pool.doubtful() == [tp(0)]


async def test_a_log_that_is_opened_by_order_and_was_cut_is_in_doubt() -> None:
    """Also after a restart: the doubt is on the disk before the log is in service."""
    host = failing_logs.Host("/d1")
    manager = await host.manager()
    log = manager.placing.create(tp(0), TOPIC_ID, CONFIG)
    for number in range(5):
        log.append_as_leader(batch([f"v{number}"]), 1)
    manager.failures.log_failed(log.storage_error("fetch", OSError(errno.EIO, "bad sector")))
    del host.disk.entries["/d1/t-0/00000000000000000000.log"].data[-20:]
    await host.judged.wait()
    assert manager.get(tp(0)) is None
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    again = manager.get(tp(0))
    assert again is not None and again.log_end_offset == 4 and manager.pool.doubtful() == [tp(0)]
    host.disk.process_crash()
    assert (await host.manager()).pool.doubtful() == [tp(0)]


async def test_a_process_that_dies_when_it_has_cut_a_log_does_not_forget_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start after that one found a whole log, and no doubt: it led without what it had acknowledged."""
    host = Host("/d1")
    await one_log(host)
    tail_is_lost(host)
    host.disk.process_crash()
    with monkeypatch.context() as patched:

        def dies(*_: object, **__: object) -> None:
            raise RuntimeError("killed")

        patched.setattr(UncertainEnds, "take", dies)
        with pytest.raises(RuntimeError, match="killed"):
            await host.manager()
    host.disk.process_crash()
    assert (await host.manager()).pool.doubtful() == [tp(0)]


async def test_a_log_is_not_cut_if_the_doubt_cannot_be_written() -> None:
    host = failing_logs.Host("/d1")
    manager = await host.manager()
    log = manager.placing.create(tp(0), TOPIC_ID, CONFIG)
    for number in range(5):
        log.append_as_leader(batch([f"v{number}"]), 1)
    manager.failures.log_failed(log.storage_error("fetch", OSError(errno.EIO, "bad sector")))
    data = host.disk.entries["/d1/t-0/00000000000000000000.log"].data
    del data[-20:]
    await host.judged.wait()
    left = len(data)
    host.disk.refuse = lambda kind, path: errno.EMFILE if ".kafkalite-doubtful" in path else 0
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    assert manager.get(tp(0)) is None and len(data) == left
    host.disk.refuse = lambda kind, path: 0
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    assert manager.get(tp(0)) is not None and manager.pool.doubtful() == [tp(0)] and len(data) < left


async def test_after_a_loss_of_power_the_doubts_are_written_once() -> None:
    """All logs are in doubt then: not a file for each one that is cut."""
    host = failing_logs.Host("/d1")
    manager = await host.manager()
    for number in range(3):
        log = manager.placing.create(tp(number), TOPIC_ID, CONFIG)
        log.append_as_leader(batch(["v", "v"]), 1)
        log.append_as_leader(batch(["v", "v"]), 1)
        await log.flush()
    host.disk.power_loss(random.Random(1))
    for number in range(3):
        del host.disk.entries[f"/d1/t-{number}/00000000000000000000.log"].data[-20:]
    host.disk.calls.clear()
    assert (await host.manager()).pool.doubtful() == [tp(0), tp(1), tp(2)]
    assert sum(call[:2] == ("write_file", "/d1/.kafkalite-doubtful") for call in host.disk.calls) == 1


async def test_an_old_copy_of_a_node_that_was_stopped_is_in_doubt() -> None:
    """A directory is copied while the node is stopped, the node goes on, and the copy is put back: its marker of a clean stop proves nothing."""
    host = Host("/d1")
    await (await one_log(host)).close()
    copy = deepcopy(host.disk.entries)
    manager = await host.manager(starts=1)
    assert manager.pool.doubtful() == [] and not manager.pool.unclean_start
    await manager.close()
    host.disk.entries = copy
    manager = await host.manager(starts=2)
    assert manager.pool.doubtful() == [tp(0)] and manager.pool.unclean_start and manager.pool.lost_power
    host.disk.process_crash()
    # It has started with this directory now, but nobody has led it yet.
    assert (await host.manager(starts=2)).pool.doubtful() == [tp(0)]
    host.disk.process_crash()
    manager = await host.manager(starts=3)
    assert manager.pool.doubtful() == [tp(0)] and not manager.pool.lost_power
    assert manager.pool.is_older_copy(tp(0)), "until it has begun again, or has caught up"
    manager.pool.doubt(tp(0), is_doubtful=False)
    assert not manager.pool.is_older_copy(tp(0))


@pytest.mark.checklist("F14")
@pytest.mark.parametrize("is_recorded", [True, False])
async def test_a_copy_of_a_running_node_that_is_put_back_after_its_clean_stop_is_in_doubt(*, is_recorded: bool) -> None:
    """It has the number of the same start. Without ZooKeeper the stop has no number, and nothing is doubted in vain."""
    host = Host("/d1")
    manager = await one_log(host)
    copy = deepcopy(host.disk.entries)
    manager.get(tp(0)).append_as_leader(batch(["later"]), 1)  # type: ignore[union-attr]
    heard: list[int] = []

    async def record_stop(number: int) -> bool:
        heard.append(number)
        return is_recorded

    await manager.close(record_stop=record_stop)
    assert heard == [2]
    closed = host.disk.entries
    starts = 2 if is_recorded else 1
    host.disk.entries = deepcopy(closed)
    manager = await host.manager(starts=starts)
    assert (
        manager.pool.doubtful() == [] and not manager.pool.unclean_start and manager.opening.start_number == starts + 1
    )
    host.disk.process_crash()
    host.disk.entries = copy
    manager = await host.manager(starts=starts)
    assert manager.pool.doubtful() == ([tp(0)] if is_recorded else [])


async def test_a_stop_with_a_disk_that_is_offline_has_no_number() -> None:
    """The disk would not have it, and its logs would be in doubt when it is back."""
    host = Host("/d1", "/d2")
    manager = await one_log(host)
    away = next(path for path in host.dirs if path != manager.get(tp(0)).directory)  # type: ignore[union-attr]
    manager.failures.dir_failed(dir_error(manager.pool.dirs[away], "a write", OSError(errno.EIO, "an error")))
    heard: list[int] = []

    async def record_stop(number: int) -> bool:
        heard.append(number)
        return True

    await manager.close(record_stop=record_stop)
    assert heard == []
    assert (await host.manager(starts=1)).pool.doubtful() == []


async def test_an_old_copy_is_in_doubt_though_it_is_flushed_before_acknowledgement() -> None:
    host = Host("/d1")
    await (await one_log(host)).close()
    manager = await host.manager(starts=3, t={"log.flush.before.ack": "true"})
    assert manager.pool.doubtful() == [tp(0)]


async def test_a_node_that_dies_before_zookeeper_hears_of_its_start_is_not_behind() -> None:
    host = Host("/d1")
    await (await one_log(host)).close()
    await host.manager(starts=0)
    host.disk.process_crash()
    manager = await host.manager(starts=0)
    assert manager.pool.doubtful() == [] and not manager.pool.lost_power


async def test_a_new_directory_is_not_behind() -> None:
    host = Host("/d1")
    manager = await host.manager(starts=7)
    assert not manager.pool.lost_power and manager.pool.doubtful() == []


async def test_the_doubts_about_many_missing_logs_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk was replaced: a write for each log would hold the loop for long."""
    host = Host("/d1")
    manager = await host.manager()
    keys = [tp(number) for number in range(50)]
    manager.placing.doubt_ahead(keys)
    written: list[str] = []
    write = host.disk.write_file_atomic

    def noting(path: str, data: bytes, *, durable: bool = True) -> None:
        written.append(path)
        write(path, data, durable=durable)

    monkeypatch.setattr(host.disk, "write_file_atomic", noting)
    for key in keys:
        manager.placing.create(key, TOPIC_ID, CONFIG, is_doubtful=True)
    assert f"/d1/{DOUBTFUL}" not in written
    host.disk.process_crash()
    manager = await host.manager()
    assert manager.pool.doubtful() == keys


async def test_a_log_is_in_doubt_in_its_own_directory_only() -> None:
    """Its name stayed in the list of the other disks, and in that of all disks if it was not made: a sound log that came there later was
    in doubt."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    manager.placing.doubt_ahead([tp(0), tp(1)])
    log = manager.placing.create(tp(0), TOPIC_ID, CONFIG, is_doubtful=True)
    manager.placing.forget_ahead()
    assert {path: log_dir.doubts.logs for path, log_dir in manager.pool.dirs.items()} == {
        log.directory: {tp(0)},
        next(path for path in host.dirs if path != log.directory): set(),
    }


async def test_only_the_loop_writes_the_list_of_a_directory_in_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed log was checked again in a thread, which wrote the list, while the loop wrote it, too: the later write of the two could be
    the older list."""
    host = failing_logs.Host("/d1")
    manager = await host.manager()
    log = failing_logs.filled(manager, 5)
    threads: list[str] = []
    written: list[str] = []
    run, write = host.disk.run_blocking, host.disk.write_file_atomic

    async def run_blocking(function: Callable[[], object], at: str = "") -> object:
        threads.append(at)
        try:
            return await run(function, at)
        finally:
            threads.pop()

    def write_file_atomic(path: str, data: bytes, *, durable: bool = True) -> None:
        assert not (threads and path.endswith(DOUBTFUL)), "in a thread"
        written.append(path)
        write(path, data, durable=durable)

    monkeypatch.setattr(host.disk, "run_blocking", run_blocking)
    monkeypatch.setattr(host.disk, "write_file_atomic", write_file_atomic)
    manager.failures.log_failed(failing_logs.an_error(log, errno.EIO))
    del host.disk.entries[log.segments[-1].log_path].data[-3:]
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    assert f"/d1/{DOUBTFUL}" in written and manager.pool.doubtful() == [failing_logs.T0]


@pytest.mark.checklist("F14")
async def test_a_log_that_is_restored_from_a_stray_is_in_doubt() -> None:
    """It may be older than the log that the replica had."""
    host = failing_logs.Host("/d1")
    manager = await host.manager()
    log = failing_logs.filled(manager, 5)
    await log.flush()
    manager.set_stray(failing_logs.T0)
    [stray] = manager.removals.strays()
    await manager.failures.restore(stray, failing_logs.T0, failing_logs.CONFIG)
    again = manager.get(failing_logs.T0)
    assert again is not None and again.log_end_offset == 5 and manager.pool.doubtful() == [failing_logs.T0]
    host.disk.process_crash()
    assert (await host.manager()).pool.doubtful() == [failing_logs.T0]


@pytest.mark.checklist("F14")
async def test_a_log_that_is_restored_is_in_doubt_also_if_the_process_dies_before_it_is_opened() -> None:
    """It comes into service a moment later. The next process found a log under its own name, and took it for what the replica had."""
    host = failing_logs.Host("/d1")
    manager = await host.manager()
    await failing_logs.filled(manager, 5).flush()
    manager.set_stray(failing_logs.T0)
    [stray] = manager.removals.strays()
    manager.failures.put_back(stray, failing_logs.T0, failing_logs.CONFIG)
    host.disk.process_crash()
    manager = await host.manager()
    assert manager.pool.doubtful() == [failing_logs.T0] and manager.pool.is_older_copy(failing_logs.T0)


async def test_a_log_that_was_made_again_while_a_disk_is_away_does_not_know_how_far_it_goes() -> None:
    """The disk could not be read at the start. Until it is back, or the log has caught up with a leader, it may have more."""
    host = Host("/d1", "/d2")
    first = await host.manager()
    first.placing.create(tp(0), TOPIC_ID, CONFIG, directory="/d1")
    host.disk.process_crash()
    host.disk.broken = {"/d1"}
    manager = await host.manager()
    manager.pool.expect([tp(0)])
    assert manager.pool.unreadable() == {tp(0)}
    manager.placing.create(tp(0), TOPIC_ID, CONFIG, is_doubtful=True)
    manager.placing.create(tp(1), TOPIC_ID, CONFIG, is_doubtful=True)
    assert manager.pool.may_have_more(tp(0)) and not manager.pool.may_have_more(tp(1))
    host.disk.process_crash()
    manager = await host.manager()
    assert manager.pool.doubtful() == [tp(0), tp(1)]
    assert manager.pool.may_have_more(tp(0)) and not manager.pool.may_have_more(tp(1))
    manager.pool.doubt(tp(0), is_doubtful=False)
    manager.pool.doubt(tp(0), is_doubtful=True)
    assert not manager.pool.may_have_more(tp(0))


async def test_an_empty_log_that_had_a_recovery_point_was_here_before_the_power_was_lost() -> None:
    """Not one that was made in the place of a lost one: that is in doubt before."""
    host = Host("/d1")
    manager = await host.manager()
    for number in range(3):
        await manager.placing.create(tp(number), TOPIC_ID, CONFIG).flush()
    manager.pool.doubt(tp(1), is_doubtful=True)
    manager.offsets.save_doubts(durable=True)
    await manager.offsets.save_offsets()
    await manager.placing.create(tp(3), TOPIC_ID, CONFIG).flush()
    host.disk.power_loss(random.Random(1))
    manager = await host.manager()
    assert {number for number in range(4) if manager.get(tp(number))} == {0, 1, 2, 3}
    assert [manager.pool.was_here(tp(number)) for number in range(4)] == [True, False, True, False]
    assert all(manager.pool.is_doubtful(tp(number)) for number in range(4))
    manager.pool.doubt(tp(0), is_doubtful=False)
    assert not manager.pool.was_here(tp(0))
    host.disk.process_crash()  # after this restart it is a log that was in doubt before
    assert not (await host.manager()).pool.was_here(tp(2))


async def _flushed_segments(host: Host, segments: int) -> list[str]:
    """The files of a log whose records are flushed before they are acknowledged."""
    config = TopicConfig(log_flush_before_ack=True, segment_bytes=1024)
    log = (await host.manager()).placing.create(tp(0), TOPIC_ID, config)
    while len(found := [each for each in host.disk.listdir("/d1/t-0") if each.endswith(".log")]) < segments:
        log.append_as_leader(batch(["v" * 300]), 1)
        await log.flush()
    return [f"/d1/t-0/{each}" for each in found]


_FLUSHES = {"log.flush.before.ack": "true", "segment.bytes": "1024"}


@pytest.mark.checklist("F14")
async def test_a_disk_that_has_lost_the_middle_of_a_log_leaves_a_doubt() -> None:
    """A disk said that it had written. The log was cut there, and led at once: what the others had behind that was undone."""
    host = Host("/d1")
    segments = await _flushed_segments(host, 4)
    host.disk.power_loss(random.Random(1))
    tail_is_lost(host, segments[1])
    assert (await host.manager(t=_FLUSHES)).pool.doubtful() == [tp(0)]
    host.disk.process_crash()
    assert (await host.manager(t=_FLUSHES)).pool.doubtful() == [tp(0)]


async def test_a_torn_end_of_a_log_that_is_flushed_leaves_no_doubt() -> None:
    """Nobody had got an answer for what was not on the disk yet."""
    host = Host("/d1")
    segments = await _flushed_segments(host, 4)
    host.disk.power_loss(random.Random(1))
    tail_is_lost(host, segments[-1])
    manager = await host.manager(t=_FLUSHES)
    assert manager.get(tp(0)) is not None and manager.pool.doubtful() == []


async def test_the_doubt_of_a_log_with_a_hole_is_on_the_disk_before_the_log_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host("/d1")
    segments = await _flushed_segments(host, 4)
    host.disk.power_loss(random.Random(1))
    tail_is_lost(host, segments[1])
    with monkeypatch.context() as patched:

        def dies(*_: object, **__: object) -> None:
            raise RuntimeError("killed")

        patched.setattr(UncertainEnds, "take", dies)
        with pytest.raises(RuntimeError, match="killed"):
            await host.manager(t=_FLUSHES)
    host.disk.process_crash()
    assert (await host.manager(t=_FLUSHES)).pool.doubtful() == [tp(0)]
