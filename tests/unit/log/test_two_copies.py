"""A partition with logs on two disks of the node: which one stays when a disk comes back."""

from __future__ import annotations

import errno
import re

import pytest

from kafkalite.log.log_dir import dir_error
from kafkalite.log.log_manager import LogManager
from kafkalite.model import LeaderEpoch, Offset, TopicId
from tests.support.log_host import LogHostDouble
from tests.support.logs import TOPIC_ID, batch
from tests.unit.log.failing_logs import CONFIG, T0, Host, an_error, filled

PRESENT = TopicId("BAAAAAAAAAAAAAAAAAAAAA")


async def _two_copies(first: int, second: int) -> LogManager:
    """A copy of `first` records on /d2, which is away; one of `second` on /d1, which has failed and stays where it is."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    await filled(manager, first, directory="/d2").flush()
    gone = dir_error(manager.pool.dirs["/d2"], "a write", OSError(errno.EIO, "Input/output error"))
    manager.failures.dir_failed(gone)
    log = filled(manager, second, directory="/d1")
    host.disk.entries.pop(log.segments[0].log_path)
    manager.failures.log_failed(an_error(log, errno.ENOENT))
    host.judged.clear()
    await host.verdict()
    assert manager.get(T0) is None and manager.pool.failed(T0) is not None
    return manager


async def test_a_failed_log_whose_partition_came_back_from_another_disk_is_set_aside() -> None:
    """It was opened every ten seconds, and closed again, until a restart."""
    manager = await _two_copies(8, 6)
    assert await manager.opening.bring_online("/d2", "cluster", 1, {}) == 1
    log = manager.get(T0)
    assert log is not None and log.directory == "/d2" and log.log_end_offset == 8
    assert manager.pool.failed(T0) is None and manager.pool.offline_partitions == {}
    assert [(stray.directory, stray.topic_id) for stray in manager.removals.strays()] == [("/d1", TOPIC_ID)]
    assert manager.get(T0) is log


async def test_a_copy_that_was_away_does_not_take_the_place_of_one_that_got_further() -> None:
    """It would have led without the records that only the failed one has."""
    manager = await _two_copies(6, 8)
    assert await manager.opening.bring_online("/d2", "cluster", 1, {}) == 1
    assert manager.get(T0) is None and manager.pool.offline_partitions == {T0: "/d1"}
    kept = manager.pool.failed(T0)
    assert kept is not None and kept.path == "/d1/t-0"
    assert [stray.directory for stray in manager.removals.strays()] == ["/d2"]


@pytest.mark.parametrize("is_longer", [True, False])
async def test_a_copy_that_was_away_does_not_take_the_place_of_one_on_a_disk_that_is_offline_now(
    *, is_longer: bool
) -> None:
    """A replica was recreated on another disk, and joined the ISR; then that disk went offline, and the first one came back. Its log was
    taken for the replica's, and led without what was acknowledged since."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    await filled(manager, 6, directory="/d2").flush()
    manager.failures.dir_failed(
        dir_error(manager.pool.dirs["/d2"], "a write", OSError(errno.EIO, "Input/output error"))
    )
    await filled(manager, 8 if is_longer else 5, directory="/d1").flush()
    manager.failures.dir_failed(
        dir_error(manager.pool.dirs["/d1"], "a write", OSError(errno.EIO, "Input/output error"))
    )
    assert await manager.opening.bring_online("/d2", "cluster", 1, {}) == 1
    log = manager.get(T0)
    if not is_longer:
        assert log is not None and log.directory == "/d2" and manager.removals.strays() == []
        return
    assert log is None and manager.pool.offline_partitions == {T0: "/d1"}
    assert [stray.directory for stray in manager.removals.strays()] == ["/d2"]
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 1
    log = manager.get(T0)
    assert log is not None and log.directory == "/d1" and log.log_end_offset == 8 and manager.pool.doubtful() == []


@pytest.mark.parametrize("refused", ["lock", "open"])
@pytest.mark.parametrize("case", ["gives way", "trusted", "in use", "shorter", "other topic"])
async def test_a_better_copy_that_comes_back_takes_the_place_of_one_in_doubt(case: str, refused: str) -> None:
    """The node began with a copy from before, and without the disk that has the newer one, or without this log of it. That became a stray when
    it was back: the leader was chosen by what the older one has."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    await filled(manager, 6 if case != "shorter" else 8, directory="/d1").flush()
    manager.failures.dir_failed(dir_error(manager.pool.dirs["/d1"], "a write", OSError(errno.EIO, "an error")))
    newer = manager.placing.create(T0, TOPIC_ID if case != "other topic" else PRESENT, CONFIG, directory="/d2")
    for number in range(8 if case != "shorter" else 6):
        newer.append_as_leader(batch([f"value {number}"]), 1)
    await newer.flush()
    await manager.close(clean=False)
    host.disk.refuse = lambda kind, path: errno.EIO if kind == refused and re.match(r"/d2/(\.lock|t-0/)", path) else 0
    manager = await host.manager(t=TOPIC_ID)
    older = manager.get(T0)
    assert older is not None and older.directory == "/d1"
    manager.pool.doubt(T0, is_doubtful=case != "trusted")
    double = manager.pool.host
    assert isinstance(double, LogHostDouble)
    if case == "in use":
        double.giving_way = lambda tp: False
    heard: list[tuple[object, object]] = []
    double.on_replaced = lambda old, new: heard.append((old, new))
    host.disk.refuse = lambda kind, path: 0
    await manager.opening.bring_online("/d2", "cluster", 1, {})
    manager.opening.reopen_failed()
    log = manager.get(T0)
    assert log is not None
    if case == "gives way":
        assert heard == [(older, log)] and log.directory == "/d2" and log.log_end_offset == 8
        assert manager.pool.doubtful() == []
        assert [stray.directory for stray in manager.removals.strays()] == ["/d1"]
    else:
        assert log is older and heard == [] and not manager.opening._reopening.is_due()
        assert manager.pool.doubtful() == [T0] * (case != "trusted")
        double.giving_way = lambda tp: False
        manager.opening.reopen_failed()
        assert [stray.directory for stray in manager.removals.strays()] == ["/d2"]


@pytest.mark.checklist("F14")
@pytest.mark.parametrize("is_better", [True, False])
async def test_a_copy_that_comes_back_is_served_in_doubt_where_the_other_could_never_be_opened(
    *, is_better: bool
) -> None:
    """How far that one goes is not known: what came back became a stray, though it may be the more complete one."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    await filled(manager, 6 if is_better else 8, directory="/d1").flush()
    manager.failures.dir_failed(dir_error(manager.pool.dirs["/d1"], "a write", OSError(errno.EIO, "an error")))
    await filled(manager, 8 if is_better else 6, directory="/d2").flush()
    await manager.close(clean=False)
    host.disk.refuse = lambda kind, path: (
        errno.EIO if kind in ("lock", "open") and re.match(r"/d2/\.lock|/d1/t-0/", path) else 0
    )
    manager = await host.manager(t=TOPIC_ID)
    failed = manager.pool.failed(T0)
    assert failed is not None and failed.log is None and manager.get(T0) is None
    host.disk.refuse = lambda kind, path: errno.EIO if kind == "open" and path.startswith("/d1/t-0/") else 0
    await manager.opening.bring_online("/d2", "cluster", 1, {})
    log = manager.get(T0)
    assert log is not None and log.directory == "/d2" and manager.pool.doubtful() == [T0]
    assert manager.pool.failed(T0) is failed and manager.removals.strays() == []
    # The other one can be read now.
    host.disk.refuse = lambda kind, path: 0
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    log = manager.get(T0)
    assert log is not None and log.log_end_offset == 8
    if not is_better:
        assert [stray.directory for stray in manager.removals.strays()] == ["/d2"]


async def test_a_log_that_comes_back_with_fewer_records_than_it_had_is_in_doubt() -> None:
    """Its high watermark was saved earlier, and says nothing of them."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    log = filled(manager, 6, directory="/d1")
    log.assign_epoch_start(LeaderEpoch(5), Offset(6))
    manager.failures.dir_failed(
        dir_error(manager.pool.dirs["/d1"], "a write", OSError(errno.EIO, "Input/output error"))
    )
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    assert manager.get(T0) is not None and manager.pool.doubtful() == [], "an epoch that has no record is not lost"
    manager.failures.dir_failed(
        dir_error(manager.pool.dirs["/d1"], "a write", OSError(errno.EIO, "Input/output error"))
    )
    last = max(path for path in host.disk.entries if path.startswith("/d1/t-0/") and path.endswith(".log"))
    del host.disk.entries[last].data[:]
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    again = manager.get(T0)
    assert again is not None and again.log_end_offset < log.log_end_offset and manager.pool.doubtful() == [T0]
    host.disk.process_crash()
    assert (await host.manager()).pool.doubtful() == [T0], "also after a restart"


async def test_another_disk_may_have_a_newer_copy_if_it_is_away_or_cannot_open_its_own() -> None:
    """A log that fails on the only disk, or on another one, says nothing of the others."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    log, other = filled(manager, directory="/d1"), filled(manager, tp=T0._replace(partition=1), directory="/d2")
    assert manager.opening.may_have_newer(log), "both directories are new here"
    manager.opening.confirm_complete()
    assert not manager.opening.may_have_newer(log)
    manager.failures.log_failed(an_error(other, errno.EIO))
    assert manager.pool.failed(other.topic_partition) is not None and not manager.opening.may_have_newer(log)
    (failed,) = manager.pool.dirs["/d2"].failed.values()
    manager.pool.dirs["/d2"].failed[T0] = failed
    assert manager.opening.may_have_newer(log)
    manager.failures.dir_failed(
        dir_error(manager.pool.dirs["/d2"], "a write", OSError(errno.EIO, "Input/output error"))
    )
    assert manager.opening.may_have_newer(log)


async def _two_topics() -> tuple[Host, LogManager]:
    """/d2 is away, with a long log of a topic that was deleted since; /d1 has a short one of the next topic of that name."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    former = filled(manager, 8, directory="/d2")
    former.assign_epoch_start(LeaderEpoch(5), Offset(8))
    former.append_as_leader(batch(["the last one"]), 5)
    await former.flush()
    manager.failures.dir_failed(dir_error(manager.pool.dirs["/d2"], "a write", OSError(errno.EIO, "an error")))
    manager.delete(T0, TOPIC_ID)
    log = manager.placing.create(T0, PRESENT, CONFIG)
    log.append_as_leader(batch(["acknowledged"]), 0)
    await log.flush()
    return host, manager


async def test_a_log_of_a_former_topic_does_not_take_the_place_of_the_present_ones_at_a_start() -> None:
    """Its records were gone where nobody else had them: the former log was kept, found to be another topic's, and an empty
    one made."""
    host, manager = await _two_topics()
    await manager.close(clean=False)
    again = await host.manager(t=PRESENT)
    log = again.get(T0)
    assert log is not None and (log.topic_id, log.log_end_offset) == (PRESENT, 1)
    assert [(stray.directory, stray.topic_id) for stray in again.removals.strays()] == [("/d2", TOPIC_ID)]


async def test_a_disk_with_a_former_topics_log_does_not_take_the_place_of_a_failed_one() -> None:
    host, manager = await _two_topics()
    log = manager.get(T0)
    assert log is not None
    host.disk.entries.pop(log.segments[0].log_path)
    manager.failures.log_failed(an_error(log, errno.ENOENT))
    host.judged.clear()
    await host.verdict()
    assert await manager.opening.bring_online("/d2", "cluster", 1, {}) == 1
    assert manager.get(T0) is None
    kept = manager.pool.failed(T0)
    assert kept is not None and kept.path == "/d1/t-0"
    assert [(stray.directory, stray.topic_id) for stray in manager.removals.strays()] == [("/d2", TOPIC_ID)]
