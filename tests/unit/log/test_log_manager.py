"""Log directories: identity, placing, loading, checkpoints, deletion, failure of a disk."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.errors import StartupRefused, StorageError
from kafkalite.log.log_manager import LogManager
from kafkalite.model import TopicId, TopicPartition
from tests.support.log_host import host_of, log_manager
from tests.support.logs import TOPIC_ID, batch, values
from tests.support.memory_disk import ManualClock, MemoryDisk


class Host:
    """A node's storage: one disk object, several log directories, and the failures that were reported."""

    def __init__(self, *dirs: str) -> None:
        self.disk, self.clock = MemoryDisk(), ManualClock()
        self.dirs = dirs or ("/d1", "/d2", "/d3")
        self.failed: list[str] = []

    async def manager(
        self, cluster_id: str = "cluster", broker_id: int = 1, *, starts: int = 0, **topics: dict[str, str]
    ) -> LogManager:
        manager = log_manager(
            self.disk,
            *self.dirs,
            clock=self.clock,
            on_dir_failed=lambda directory, _: self.failed.append(directory),
            stray_delete_delay_ms=5000,
        )
        await manager.opening.start(cluster_id, broker_id, topics, starts=starts)
        return manager


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


CONFIG = TopicConfig()


@pytest.mark.checklist(39)
async def test_a_clean_stop_keeps_everything_and_says_so() -> None:
    host = Host()
    manager = await host.manager()
    for number in range(9):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG).append_as_leader(batch([f"v{number}"] * 3), 1)
    assert [sum(log.directory == path for log in manager.all()) for path in host.dirs] == [3, 3, 3]
    manager.offsets.save_high_watermarks({tp(number): 2 for number in range(9)})
    await manager.close(broker_epoch=7)
    assert host.disk.read_file("/d1/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":7}'
    assert host.disk.open_files == 0

    manager = await host.manager(t={"retention.ms": "5"})
    assert not host.disk.exists("/d1/.kafka_cleanshutdown")
    assert not manager.pool.unclean_start
    assert [log.topic_partition for log in manager.all()] == [tp(number) for number in range(9)]
    for log in manager.all():
        assert (log.log_end_offset, log.synced_offset, log.topic_id) == (3, 3, TOPIC_ID)
        assert manager.offsets.high_watermark(log.topic_partition) == 2
        assert log.config.retention_ms == 5


async def test_after_a_crash_logs_are_recovered_and_it_shows() -> None:
    host = Host("/d1")
    manager = await host.manager()
    log = manager.placing.create(tp(0), TOPIC_ID, CONFIG)
    for number in range(5):
        log.append_as_leader(batch([f"v{number}"]), 1)
    manager.offsets.save_high_watermarks({tp(0): 5})
    host.disk.entries["/d1/t-0/00000000000000000000.log"].data[-3] ^= 1
    host.disk.process_crash()
    manager = await host.manager()
    assert manager.pool.unclean_start
    kept = manager.get(tp(0))
    assert kept is not None and values(kept) == [(n, f"v{n}".encode()) for n in range(4)]
    assert manager.offsets.high_watermark(tp(0)) == 4


@pytest.mark.parametrize(("cluster", "broker"), [("other", 1), ("cluster", 2)])
async def test_foreign_directories_are_refused(cluster: str, broker: int) -> None:
    host = Host()
    await (await host.manager()).close()
    with pytest.raises(StartupRefused, match="belongs to"):
        await host.manager(cluster, broker)
    await host.manager()  # and the refusal released the locks


async def test_two_processes_on_one_directory() -> None:
    host = Host()
    await host.manager()
    with pytest.raises(StartupRefused, match="in use"):
        await host.manager()


async def test_deleted_logs_go_after_their_delay_and_strays_when_their_records_are_elsewhere() -> None:
    """It was the delay alone: a log that had been set aside could be the last copy."""
    host = Host("/d1")
    manager = await host.manager()
    for number in range(2):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG).append_as_leader(batch(["x"]), 1)
    manager.delete(tp(0))
    manager.set_stray(tp(1))
    assert manager.all() == []
    names = [name for name in host.disk.listdir("/d1") if name.startswith("t-")]
    assert [name.rsplit("-", 1)[1] for name in sorted(names)] == ["delete", "stray"]
    assert all(len(name.split(".")[1].split("-")[0]) == 32 for name in names)
    # A partition of that name may be made at once, with another topic id.
    assert manager.placing.create(tp(0), TopicId("BBBBBBBBBBBBBBBBBBBBBQ"), CONFIG).log_end_offset == 0
    host.clock.now_ms += 5_000
    await manager.removals.run_due()
    assert [stray.topic_partition for stray in manager.removals.overdue()] == [tp(1)], "the delay alone is not enough"
    assert [name for name in host.disk.listdir("/d1") if name.endswith("stray")]
    host_of(manager).elsewhere = lambda stray: stray.is_of(tp(1), TOPIC_ID)
    await manager.removals.run_due()
    assert not [name for name in host.disk.listdir("/d1") if name.endswith("stray")]
    host.clock.now_ms += 60_000
    await manager.removals.run_due()
    assert [name for name in host.disk.listdir("/d1") if name.startswith("t-")] == ["t-0"]


async def test_retention_runs_over_all_logs() -> None:
    host = Host("/d1")
    manager = await host.manager()
    config = TopicConfig(segment_bytes=1024, retention_ms=10)
    log = manager.placing.create(tp(0), TOPIC_ID, config)
    for _ in range(30):
        log.append_as_leader(batch(["x" * 100], timestamp_ms=host.clock.now_ms), 1)
    host.clock.now_ms += 1000
    assert await manager.housekeeping.retention_pass() == 0, "nothing is committed"
    host_of(manager).hw_of = lambda _: 30
    assert await manager.housekeeping.retention_pass() > 0
    assert (log.log_start_offset, log.size_bytes) == (30, 0)
    assert any(name.endswith(".deleted") for name in host.disk.listdir("/d1/t-0"))
    host.clock.now_ms += 60_000
    await manager.removals.run_due()
    assert not any(name.endswith(".deleted") for name in host.disk.listdir("/d1/t-0"))


async def test_rolled_segments_are_flushed_in_the_background_and_the_recovery_point_saved() -> None:
    host = Host("/d1")
    manager = await host.manager()
    log = manager.placing.create(tp(0), TOPIC_ID, TopicConfig(segment_bytes=1024))
    for _ in range(30):
        log.append_as_leader(batch(["x" * 100]), 1)
    await manager.housekeeping.flush_pass()
    assert 0 < log.recovery_point < 30
    assert log.recovery_point == log.segments[-1].base_offset
    await manager.offsets.save_offsets()
    assert host.disk.read_file("/d1/recovery-point-offset-checkpoint") == f"0\n1\nt 0 {log.recovery_point}\n".encode()


@pytest.mark.checklist(81)
async def test_a_failed_directory_takes_only_its_own_logs_with_it() -> None:
    host = Host()
    manager = await host.manager()
    logs = [manager.placing.create(tp(number), TOPIC_ID, CONFIG) for number in range(6)]
    for log in logs:
        log.append_as_leader(batch(["x"]), 1)
    host.disk.broken = {"/d2"}
    host.disk.fail_append_after = 0
    victim = next(log for log in logs if log.directory == "/d2")
    with pytest.raises(StorageError) as error:
        victim.append_as_leader(batch(["y"]), 1)
    lost = manager.failures.dir_failed(error.value)
    assert lost == sorted(log.topic_partition for log in logs if log.directory == "/d2")
    assert manager.failures.dir_failed(error.value) == [], "reported once"
    assert host.failed == ["/d2"] and [each.path for each in manager.pool.dirs.values() if not each.online] == ["/d2"]
    assert sorted(manager.pool.offline_partitions) == lost
    assert {log.directory for log in manager.all()} == {"/d1", "/d3"}
    manager.offsets.save_high_watermarks({})
    await manager.housekeeping.retention_pass()
    again = manager.placing.create(lost[0], TOPIC_ID, CONFIG)
    assert again.directory in ("/d1", "/d3") and lost[0] not in manager.pool.offline_partitions
    await manager.close()


async def test_a_directory_broken_at_the_start_is_left_out_and_none_is_an_end() -> None:
    host = Host()
    host.disk.broken = {"/d1"}
    manager = await host.manager()
    assert [each.path for each in manager.pool.online()] == ["/d2", "/d3"] and host.failed == ["/d1"]
    await manager.close()
    host.disk.broken = {"/d1", "/d2", "/d3"}
    with pytest.raises(StartupRefused, match=r"none of them can be used: /d1: opening failed: .*; /d2: .*; /d3: "):
        await host.manager()


async def test_no_healthy_directory_is_a_storage_error() -> None:
    """So that the replica is kept as an offline one, and begins when a directory is back."""
    host = Host("/d1")
    manager = await host.manager()
    manager.failures.dir_failed(StorageError("gone", directory="/d1"))
    with pytest.raises(StorageError, match="online"):
        manager.placing.create(tp(0), TOPIC_ID, CONFIG)


@pytest.mark.checklist(89)
async def test_of_two_copies_the_one_that_got_further_stays() -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    manager.placing.create(tp(0), TOPIC_ID, CONFIG).append_as_leader(batch(["old"] * 9), 1)
    manager.failures.dir_failed(StorageError("gone for a while", directory="/d1"))
    manager.placing.create(tp(0), TOPIC_ID, CONFIG).append_as_leader(batch(["new"]), 2)
    await manager.close()
    host.disk.process_crash()
    manager = await host.manager()
    log = manager.get(tp(0))
    assert log is not None and log.directory == "/d2" and values(log) == [(0, b"new")]
    assert [name for name in host.disk.listdir("/d1") if name.endswith("-stray")]


async def test_recovery_points_go_down_on_disk_before_new_records_are_trusted() -> None:
    host = Host("/d1")
    manager = await host.manager()
    log = manager.placing.create(tp(0), TOPIC_ID, TopicConfig(segment_bytes=1024))
    for _ in range(30):
        log.append_as_leader(batch(["x" * 100]), 1)
    await log.flush()
    await manager.offsets.save_offsets()
    log.truncate_to(3)
    for _ in range(30):
        log.append_as_leader(batch(["y" * 100]), 2)
    assert host.disk.read_file("/d1/recovery-point-offset-checkpoint") == b"0\n1\nt 0 0\n", (
        "the cut segment is checked as a whole"
    )


async def test_ten_thousand_partitions_are_cheap() -> None:
    host = Host("/d1")
    manager = await host.manager()
    host.disk.calls.clear()
    for number in range(2000):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG)
    assert not host.disk.calls, "a directory each, and no file"
    assert host.disk.open_files == 0
    manager.offsets.save_high_watermarks({})
    assert len(host.disk.calls) == 1


@pytest.mark.parametrize("was_clean", [True, False])
async def test_a_start_that_is_not_finished_leaves_the_directories_as_they_were(*, was_clean: bool) -> None:
    """Without the marker the next start read all active segments, because another process had the port."""
    host = Host("/d1")
    manager = await host.manager()
    manager.placing.create(tp(0), TOPIC_ID, CONFIG).append_as_leader(batch(["v"]), 1)
    if was_clean:
        await manager.close()
    else:
        host.disk.process_crash()
    manager = await host.manager()
    await manager.close(was_in_service=False)
    assert host.disk.exists("/d1/.kafka_cleanshutdown") == was_clean
    assert (await host.manager()).pool.unclean_start != was_clean


async def test_a_start_that_ends_while_logs_are_opened_marks_nothing_as_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    manager.placing.create(tp(0), TOPIC_ID, CONFIG, directory="/d2").append_as_leader(batch(["v"]), 1)
    await manager.close()
    manager = LogManager(BrokerConfig(log_dirs=host.dirs), host.disk, host.clock, supervisor=manager._supervisor)

    async def cancelled(*args: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(manager.opening, "_load_dir", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await manager.opening.start("cluster", 1, {})
    await manager.close(was_in_service=False)
    assert b"t 0" in host.disk.read_file("/d2/recovery-point-offset-checkpoint"), "the other log is not forgotten"
