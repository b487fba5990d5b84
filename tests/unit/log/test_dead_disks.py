"""One log or the whole disk; what is lost, what comes back, and how often a disk may stumble (KIP-18)."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.env.own_time import OwnTime
from kafkalite.env.real import RealClock
from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.log import opening
from kafkalite.log.failures import (
    MAX_FAILURES_PER_HOUR,
    PROBE_DEADLINE_S,
    FailureBudget,
    FaultScope,
    fault_scope,
    probe,
)
from kafkalite.log.log_manager import LogManager
from kafkalite.model import TopicPartition
from tests.support.failing import fails_with
from tests.support.log_host import log_manager
from tests.support.logs import TOPIC_ID, batch, values
from tests.support.memory_disk import ManualClock, MemoryDisk

CONFIG = TopicConfig()


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


class Host:
    """A node's storage, and what it told."""

    def __init__(self, *dirs: str) -> None:
        self.disk, self.clock = MemoryDisk(), ManualClock()
        self.dirs = dirs or ("/d1", "/d2", "/d3")
        self.dead: list[str] = []
        self.lost: list[TopicPartition] = []
        self.judged = asyncio.Event()

    async def manager(self, **settings: Any) -> LogManager:
        manager = log_manager(
            self.disk,
            *self.dirs,
            clock=self.clock,
            on_dir_failed=lambda directory, _: self.dead.append(directory),
            on_log_failed=lambda partition, _: self.lost.append(partition),
            on_examined=lambda _: self.judged.set(),
            **settings,
        )
        await manager.opening.start("cluster", 1, {})
        return manager

    async def verdict(self) -> None:
        await self.judged.wait()
        self.judged.clear()


def failed_append(host: Host, manager: LogManager, number: int) -> StorageError:
    log = manager.get(tp(number))
    assert log is not None
    host.disk.fail_append_after = 0
    with pytest.raises(StorageError) as caught:
        log.append_as_leader(batch(["y"]), 1)
    return caught.value


@pytest.mark.checklist(82)
async def test_where_the_probe_goes_through_only_the_log_is_lost() -> None:
    host = Host()
    manager = await host.manager()
    for number in range(6):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG).append_as_leader(batch(["x"]), 1)
    victim = next(log for log in manager.all() if log.directory == "/d2")
    error = failed_append(host, manager, victim.topic_partition.partition)
    del host.disk.entries[victim.segments[0].log_path]
    manager.failures.log_failed(error)
    assert host.lost == [victim.topic_partition], "at once, before any verdict"
    assert manager.get(victim.topic_partition) is None and len(manager.all()) == 5
    assert "being checked" in manager.failures.restart_refusal(victim.topic_partition)
    await host.verdict()
    assert host.dead == [] and [each.path for each in manager.pool.dirs.values() if not each.online] == []
    assert manager.failures.restart_refusal(victim.topic_partition) == ""
    assert host.disk.exists(victim.path), "nothing is renamed before the replica is recreated"
    again = manager.placing.create(victim.topic_partition, TOPIC_ID, CONFIG)
    assert not host.disk.exists(victim.path), "out of the way of the next start"
    assert any(name.endswith("-stray") for name in host.disk.listdir("/d2"))
    assert again.directory != "/d2" and manager.pool.offline_partitions == {}
    manager.failures.log_failed(error)
    assert len(manager.all()) == 6, "the error of a log that was replaced concerns nobody"


@pytest.mark.checklist(90)
async def test_where_the_probe_fails_the_disk_is_dead() -> None:
    host = Host()
    manager = await host.manager()
    for number in range(6):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG).append_as_leader(batch(["x"]), 1)
    victim = next(log for log in manager.all() if log.directory == "/d2")
    error = failed_append(host, manager, victim.topic_partition.partition)
    host.disk.broken = {"/d2"}
    manager.failures.log_failed(error)
    await host.verdict()
    assert host.dead == ["/d2"] and sorted(manager.pool.offline_partitions.values()) == ["/d2", "/d2"]
    assert [one.online for one in manager.pool.dirs.values()] == [True, False, True]
    assert (
        "probe" in list(manager.pool.dirs.values())[1].offline_reason
        and list(manager.pool.dirs.values())[1].offline_since_ms
    )


@pytest.mark.checklist(90)
async def test_a_disk_that_does_not_answer_is_dead() -> None:
    disk = MemoryDisk()
    disk.makedirs("/d1")
    disk.write_file_atomic("/d1/meta.properties", b"")

    async def never(function: object, at: str) -> object:
        return await asyncio.Event().wait()

    own_time = OwnTime(RealClock())
    assert await probe(disk, "/d1", own_time) is None
    disk.run_blocking = never  # type: ignore[assignment]
    assert isinstance(await probe(disk, "/d1", own_time, 0.01), TimeoutError)
    # ext4 writes its journal 5 s after the last sync; from then on appends to a device that hangs wait, and the loop with them.
    assert BrokerConfig().log_dir_probe_interval_ms / 1000 + PROBE_DEADLINE_S < 4.0


@pytest.mark.checklist(90)
async def test_a_disk_that_gives_back_other_bytes_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts every write, and its device has lost them."""
    disk = MemoryDisk()
    disk.makedirs("/d1")
    disk.write_file_atomic("/d1/meta.properties", b"")
    monkeypatch.setattr(disk, "read_file", lambda path: b"\0" * 4096)
    found = await probe(disk, "/d1", OwnTime(RealClock()))
    assert found is not None and found.errno == errno.EIO


class SlowDisk(MemoryDisk):
    """Answers when the device has completed this number of operations; they are done whenever somebody asks."""

    def __init__(self, answers_after: int, *, at_work: bool) -> None:
        super().__init__()
        self._answers_after = answers_after
        self._at_work = at_work
        self.asked = 0
        self.may_answer = asyncio.Event()

    def completed(self, path: str) -> int | None:
        self.asked += 1
        if self.asked > self._answers_after:
            self.may_answer.set()
        return self.asked if self._at_work else 7

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        await self.may_answer.wait()
        return function()


@pytest.mark.parametrize(("at_work", "answers_after", "verdict"), [(True, 3, None), (False, 3, TimeoutError)])
async def test_a_disk_that_is_at_work_is_given_time(*, at_work: bool, answers_after: int, verdict: type | None) -> None:
    disk = SlowDisk(answers_after, at_work=at_work)
    disk.makedirs("/d1")
    disk.write_file_atomic("/d1/meta.properties", b"")
    found = await probe(disk, "/d1", OwnTime(RealClock()), 0.01, busy_s=60)
    assert found is None if verdict is None else isinstance(found, verdict)


async def test_a_disk_that_is_at_work_for_ever_is_dead_too() -> None:
    disk = SlowDisk(1_000_000, at_work=True)
    disk.makedirs("/d1")
    disk.write_file_atomic("/d1/meta.properties", b"")
    assert isinstance(await probe(disk, "/d1", OwnTime(RealClock()), 0.01, busy_s=0.05), TimeoutError)
    assert disk.asked == 6  # once before, then at the end of each 0.01 s


@pytest.mark.checklist(92)
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.EIO, FaultScope.UNSURE),
        (errno.ENOSPC, FaultScope.ROOM),
        (errno.EDQUOT, FaultScope.ROOM),
        (errno.EROFS, FaultScope.DISK),
        (errno.EMFILE, FaultScope.SHORTAGE),
        (errno.EAGAIN, FaultScope.SHORTAGE),
        (errno.ENOENT, FaultScope.UNSURE),
    ],
)
def test_what_an_error_number_says(code: int, expected: FaultScope) -> None:
    error = StorageError("x", directory="/d")
    error.__cause__ = OSError(code, "x")
    assert fault_scope(error) is expected


@pytest.mark.checklist(92)
async def test_running_out_of_descriptors_condemns_no_disk() -> None:
    host = Host("/d1")
    manager = await host.manager()
    manager.placing.create(tp(0), TOPIC_ID, CONFIG)
    log = manager.get(tp(0))
    assert log is not None
    error = log.storage_error("open", OSError(errno.EMFILE, "too many"))
    error.__cause__ = OSError(errno.EMFILE, "too many")
    manager.failures.log_failed(error)
    await host.verdict()
    assert host.dead == [] and host.lost == [tp(0)]


@pytest.mark.checklist(92)
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_probe_that_was_not_made_for_want_of_something_reproaches_no_disk(code: int) -> None:
    host = Host("/d1")
    manager = await host.manager()
    for number in range(MAX_FAILURES_PER_HOUR + 2):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG)
        log = manager.get(tp(number))
        assert log is not None
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(host.disk, "write_file_atomic", _fails_with(code))
            error = log.storage_error("open", OSError(code, "too many"))
            error.__cause__ = OSError(errno.EIO if number == 0 else code, "too many")
            manager.failures.log_failed(error)
            await host.verdict()
    assert host.dead == [] and len(host.lost) == MAX_FAILURES_PER_HOUR + 2


@pytest.mark.parametrize(
    ("code", "times", "dead"), [(errno.EIO, 99, ["/d1"]), (errno.EIO, 1, []), (errno.ENOMEM, 99, [])]
)
async def test_a_disk_that_does_not_say_whether_it_is_the_same_has_failed(
    code: int, times: int, dead: list[str]
) -> None:
    """One error of stat(2) took a sound disk offline until an operator came."""
    host = Host("/d1")
    manager = await host.manager()
    manager.placing.create(tp(0), TOPIC_ID, CONFIG)
    log = manager.get(tp(0))
    assert log is not None
    error = log.storage_error("read", OSError(errno.EIO, "injected"))
    error.__cause__ = OSError(errno.EIO, "injected")
    left, exists = [code] * times, host.disk.exists

    def refuse(path: str) -> bool:
        if path.endswith("meta.properties") and left:
            raise OSError(left.pop(), "injected", path)
        return exists(path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(host.disk, "exists", refuse)
        manager.failures.log_failed(error)
        await host.verdict()
    assert host.dead == dead


def _fails_with(code: int) -> Any:
    def fail(*_: object, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.checklist(92)
def test_restarts_pause_longer_and_longer_until_there_are_too_many() -> None:
    budget = FailureBudget()
    pauses = []
    for number in range(MAX_FAILURES_PER_HOUR):
        budget.record(float(number))
        pauses.append(budget.not_before(float(number)) - number)
        assert not budget.is_exhausted(float(number))
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    budget.record(10.0)
    assert budget.is_exhausted(10.0) and len(budget.at) <= MAX_FAILURES_PER_HOUR + 1
    assert not budget.is_exhausted(5_000.0) and budget.not_before(5_000.0) == 5_000.0


@pytest.mark.checklist(92)
async def test_a_flapping_disk_is_given_up() -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    for number in range(MAX_FAILURES_PER_HOUR + 1):
        log = manager.placing.create(tp(number), TOPIC_ID, CONFIG, directory="/d1")
        error = log.storage_error("read", OSError(errno.EIO, "now and then"))
        manager.failures.log_failed(error)
        await host.verdict()
    assert host.dead == ["/d1"] and "failed more than ten times" in manager.pool.dirs["/d1"].offline_reason


async def test_a_directory_that_was_removed_is_not_made_again() -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    del host.disk.entries["/d1/meta.properties"]
    for number in range(4):
        assert manager.placing.create(tp(number), TOPIC_ID, CONFIG).directory == "/d2"
    await host.verdict()
    assert host.dead == ["/d1"]


@pytest.mark.checklist(89)
async def test_nothing_is_made_anew_where_there_is_no_disk_or_no_room() -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    for number in range(2):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG).append_as_leader(batch(["x"]), 1)
    lost = manager.failures.dir_failed(StorageError("gone", directory="/d1"))[0]
    assert manager.failures.restart_refusal(lost) == ""
    host.disk.free_bytes = lambda path: 1_000  # type: ignore[method-assign]
    assert "room" in manager.failures.restart_refusal(lost)
    manager.failures.dir_failed(StorageError("gone", directory="/d2"))
    assert "no healthy disk" in manager.failures.restart_refusal(lost)


@pytest.mark.checklist(93)
async def test_a_disk_comes_back_with_what_it_had_and_what_moved_meanwhile_stays_where_it_is() -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    for number in range(4):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG).append_as_leader(batch([f"v{number}"]), 1)
    moved, kept = manager.failures.dir_failed(StorageError("gone", directory="/d1"))
    manager.placing.create(moved, TOPIC_ID, CONFIG)
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 2
    log = manager.get(kept)
    assert log is not None and values(log) == [(0, f"v{kept.partition}".encode())]
    assert manager.pool.offline_partitions == {} and [each.path for each in manager.pool.online()] == ["/d1", "/d2"]
    elsewhere = manager.get(moved)
    assert elsewhere is not None and elsewhere.directory == "/d2"
    assert any(name.endswith("-stray") for name in host.disk.listdir("/d1"))
    assert await manager.opening.bring_online("/d1/", "cluster", 1, {}) == 1, "already online"


@pytest.mark.checklist(93)
async def test_what_cannot_come_back_stays_offline() -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    manager.failures.dir_failed(StorageError("gone", directory="/d1"))
    with fails_with(ErrorCode.LOG_DIR_NOT_FOUND):
        await manager.opening.bring_online("/d9", "cluster", 1, {})
    host.disk.broken = {"/d1"}
    with pytest.raises(ApiError, match="injected"):
        await manager.opening.bring_online("/d1", "cluster", 1, {})
    host.disk.broken = set()
    with pytest.raises(ApiError, match="belongs to"):
        await manager.opening.bring_online("/d1", "another cluster", 1, {})
    assert [each.path for each in manager.pool.online()] == ["/d2"]
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 0


@pytest.mark.checklist("F28")
async def test_a_replaced_disk_is_remembered_until_all_replicas_are_there() -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    assert manager.opening.may_miss_logs() == "/d1" and manager.opening.holds_nothing(), (
        "whether it is new, ZooKeeper says"
    )
    manager.opening.confirm_complete()
    assert manager.opening.may_miss_logs() == "" and not manager.opening.holds_nothing()
    await manager.close()
    host.disk.remove_tree("/d1")
    host.disk.entries = {path: node for path, node in host.disk.entries.items() if not path.startswith("/d1/")}
    manager = await host.manager()
    assert manager.opening.may_miss_logs() == "/d1"
    await manager.close(clean=False)
    manager = await host.manager()
    assert manager.opening.may_miss_logs() == "/d1", "also after the next start"
    manager.opening.confirm_complete()
    await manager.close()
    assert (await host.manager()).opening.may_miss_logs() == ""


async def test_a_log_that_cannot_be_opened_is_lost_alone() -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    for number in range(4):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG).append_as_leader(batch(["x"]), 1)
    victim = manager.all()[0]
    await manager.close()
    host.disk.broken = {f"{victim.path}/0"}
    manager = await host.manager()
    assert host.dead == [] and len(manager.all()) == 3
    assert manager.pool.offline_partitions == {victim.topic_partition: victim.directory}
    assert manager.opening.may_miss_logs() == victim.directory


async def test_placement_follows_the_room_that_each_log_has() -> None:
    host = Host("/d1", "/d2")
    room = {"/d1": 300 << 30, "/d2": 100 << 30}
    host.disk.free_bytes = room.__getitem__  # type: ignore[assignment]
    manager = await host.manager()
    placed = [manager.placing.create(tp(number), TOPIC_ID, CONFIG).directory for number in range(12)]
    assert (placed.count("/d1"), placed.count("/d2")) == (9, 3)


@pytest.mark.checklist(90)
@pytest.mark.parametrize("at_open", [True, False])
async def test_a_directory_that_hangs_at_the_start_is_left_out(
    *, at_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a fault at every disk operation: the node waited for it for ever."""
    monkeypatch.setattr(opening, "_REOPEN_TIMEOUT_S", 0.05)
    host = Host("/d1", "/d2")
    manager = await host.manager()
    for number in range(4):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG).append_as_leader(batch(["x"]), 1)
    await manager.close()
    run_blocking = host.disk.run_blocking
    asked: list[str] = []

    async def hang(function: Callable[[], object], at: str = "") -> object:
        if at == "/d1":
            asked.append(at)
            if at_open or len(asked) > 1:
                return await asyncio.Event().wait()
        return await run_blocking(function, at)

    monkeypatch.setattr(host.disk, "run_blocking", hang)
    again = await host.manager(log_dir_probe_interval_ms=10)
    assert [each.path for each in again.pool.dirs.values() if not each.online] == [
        "/d1"
    ] and "no answer" in again.pool.dirs["/d1"].offline_reason
    assert {log.directory for log in again.all()} == {"/d2"} and len(again.all()) == 2
    assert again.opening.may_miss_logs() == "/d1"


@pytest.mark.checklist(90)
async def test_a_disk_that_hangs_does_not_hold_the_node_when_high_watermarks_are_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were written in the event loop, which then waited for the disk: nothing was left to give the disk up."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    for number in range(2):
        manager.placing.create(tp(number), TOPIC_ID, CONFIG).append_as_leader(batch(["x"]), 1)
    run_blocking, write = host.disk.run_blocking, host.disk.write_file_atomic

    async def hang(function: Callable[[], object], at: str = "") -> object:
        return await (asyncio.Event().wait() if at == "/d1" else run_blocking(function, at))

    def not_there(path: str, data: bytes, *, durable: bool = True) -> None:
        assert not path.startswith("/d1"), "on the loop"
        write(path, data, durable=durable)

    monkeypatch.setattr(host.disk, "run_blocking", hang)
    monkeypatch.setattr(host.disk, "write_file_atomic", not_there)
    saving = asyncio.ensure_future(manager.offsets.save_high_watermarks_apart({tp(0): 1, tp(1): 1}))
    await asyncio.sleep(0)
    manager.failures.dir_failed(StorageError("no answer", directory="/d1"))
    await saving
    assert b"t 1 1" in host.disk.read_file("/d2/replication-offset-checkpoint")
    assert not host.disk.exists("/d1/replication-offset-checkpoint")
