"""A disk that did not answer for a while returns without an operator, and not before all that was begun on it has ended."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.admin import disk_healing
from kafkalite.admin.disk_healing import ReplicaSelfHealing
from kafkalite.config import TopicConfig
from kafkalite.env.seams import DiskOutcome
from kafkalite.errors import ApiError, ErrorCode, StorageError, api_error
from kafkalite.log.doubts import UncertainEnds
from kafkalite.log.failures import MAX_FAILURES_PER_HOUR
from kafkalite.log.log_dir import FUTURE_SUFFIX, LogDir, dir_error, set_aside_name
from kafkalite.log.log_manager import LogManager
from kafkalite.log.returning import Awaited
from kafkalite.model import BrokerId, TopicPartition
from tests.support.logs import TOPIC_ID, batch, values
from tests.support.memory_disk import ManualClock
from tests.unit.log.failing_logs import Host

T0 = TopicPartition("t", 0)


async def hung(host: Host) -> tuple[LogManager, LogDir]:
    manager = await host.manager()
    manager.placing.create(T0, TOPIC_ID, TopicConfig()).append_as_leader(batch(["a"]), 1)
    log_dir = manager.pool.dirs["/d1"]
    manager.failures.dir_failed(dir_error(log_dir, "the probe", TimeoutError(errno.ETIMEDOUT, "no answer within 4 s")))
    return manager, log_dir


async def test_it_returns_when_everything_that_was_begun_on_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    manager, log_dir = await hung(host)
    outcome: list[DiskOutcome | None] = [None]
    monkeypatch.setattr(host.disk, "outcome", lambda path: outcome[0])
    assert log_dir.awaited is Awaited.ANSWER
    assert log_dir.awaited.describe(log_dir.offline_reason).startswith("returns when it answers: ")
    assert await manager.opening.ready_to_return() == [], "not before its time"
    host.clock.now_ms += 6_000
    assert await manager.opening.ready_to_return() == [], "a write that is under way may still arrive"
    outcome[0] = DiskOutcome(failed=False)
    assert await manager.opening.ready_to_return() == [], "it is checked every five seconds"
    host.clock.now_ms += 6_000
    assert await manager.opening.ready_to_return() == [("/d1", Awaited.ANSWER)]
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 1
    log = manager.get(T0)
    assert log is not None and values(log) == [(0, b"a")]


async def test_a_sync_that_failed_late_leaves_it_to_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    manager, log_dir = await hung(host)
    monkeypatch.setattr(host.disk, "outcome", lambda path: DiskOutcome(failed=True))
    host.clock.now_ms += 6_000
    assert await manager.opening.ready_to_return() == [] and log_dir.awaited is Awaited.OPERATOR


async def test_a_disk_that_hangs_again_and_again_stays_offline() -> None:
    host = Host()
    manager, log_dir = await hung(host)
    for _ in range(MAX_FAILURES_PER_HOUR + 1):
        log_dir.failures.record(host.clock.monotonic())
    host.clock.now_ms += 6_000
    assert await manager.opening.ready_to_return() == [] and log_dir.awaited is Awaited.OPERATOR


async def test_a_disk_that_reported_an_error_waits_for_an_operator() -> None:
    host = Host()
    manager = await host.manager()
    log_dir = manager.pool.dirs["/d1"]
    manager.failures.dir_failed(dir_error(log_dir, "the probe", OSError(errno.EIO, "Input/output error")))
    assert log_dir.awaited is Awaited.OPERATOR
    assert log_dir.awaited.describe(log_dir.offline_reason) == log_dir.offline_reason
    assert Awaited.after(StorageError("gone", directory="/d1")) is Awaited.OPERATOR


async def test_what_is_to_be_removed_waits_until_its_disk_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted log on a returning disk, whose logs took more than a second to load, kept its room until the next start."""
    host = Host()
    manager = await host.manager()
    manager.placing.create(T0, TOPIC_ID, TopicConfig()).append_as_leader(batch(["a"]), 1)
    manager.placing.create(TopicPartition("t", 1), TOPIC_ID, TopicConfig()).append_as_leader(batch(["b"]), 1)
    manager.delete(TopicPartition("t", 1))
    log_dir = manager.pool.dirs["/d1"]
    manager.failures.dir_failed(dir_error(log_dir, "a write", OSError(errno.ENOSPC, "No space left on device")))

    run = host.disk.run_blocking

    async def slowly(function: Callable[[], object], at: str = "") -> object:
        await manager.removals.run_due()
        return await run(function, at)

    with monkeypatch.context() as patched:
        patched.setattr(host.disk, "run_blocking", slowly)
        assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 1
    await manager.removals.run_due()
    assert [name for name in host.disk.listdir("/d1") if name.startswith("t-")] == ["t-0"]


async def test_a_lock_that_came_too_late_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk hung while it was locked: the thread that locked it in the end kept it from every later attempt."""
    host = Host()
    manager, _ = await hung(host)
    late: list[Callable[[], object]] = []

    async def hangs(function: Callable[[], object], at: str = "") -> object:
        late.append(function)
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(host.disk, "run_blocking", hangs)
        with pytest.raises(ApiError, match="no answer within 15 s"):
            await manager.opening.bring_online("/d1", "cluster", 1, {})
    for function in late:
        function()
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 1


async def test_a_disk_that_cannot_come_back_has_nothing_to_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    manager, _ = await hung(host)
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 1
    manager.set_stray(T0)
    assert manager.removals.strays()
    manager.failures.dir_failed(dir_error(manager.pool.dirs["/d1"], "the probe", TimeoutError(errno.ETIMEDOUT, "")))
    assert not manager.removals.strays()

    def fails(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(UncertainEnds, "take", fails)
        with pytest.raises(ApiError, match="Input/output error"):
            await manager.opening.bring_online("/d1", "cluster", 1, {})
    assert not manager.removals.strays()


async def test_an_offline_disk_can_be_unmounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock file stayed open, so that umount said that the disk was busy."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    manager.placing.create(T0, TOPIC_ID, TopicConfig(), directory="/d1").append_as_leader(batch(["a"]), 1)
    log_dir = manager.pool.dirs["/d1"]
    manager.failures.dir_failed(dir_error(log_dir, "a write", OSError(errno.EIO, "Input/output error")))
    outcomes = iter((None, None, DiskOutcome(failed=False)))
    locked: list[bool] = []

    def outcome(path: str) -> DiskOutcome | None:
        locked.append(log_dir.is_locked)
        return next(outcomes)

    monkeypatch.setattr(host.disk, "outcome", outcome)
    await manager._failure_handler.watch(log_dir, 0)
    assert locked == [True] * 3, "not before all that was begun on it has ended"
    assert host.disk.locks == {"/d2/.lock"} and host.disk.open_files == 0
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 1


class Healing(ReplicaSelfHealing):
    def __init__(self, clock: ManualClock) -> None:
        session: Any = None
        super().__init__(session, BrokerId(1), clock.monotonic)


async def test_a_disk_whose_recovery_takes_hours_does_not_hold_up_another(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host("/d1", "/d2")
    manager = await host.manager()
    for path in host.dirs:
        error = TimeoutError(errno.ETIMEDOUT, "no answer within 4 s")
        manager.failures.dir_failed(dir_error(manager.pool.dirs[path], "the probe", error))
    host.clock.now_ms += 6_000
    began: list[str] = []
    both = asyncio.Event()

    async def bring_online(path: str) -> str:
        began.append(path)
        if len(began) == 2:
            both.set()
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(disk_healing, "_LOOK_S", 0)
    supervisor = manager._supervisor
    supervisor.spawn("returns", Healing(host.clock).run_returns(manager, bring_online, supervisor))
    async with asyncio.timeout(150):
        await both.wait()
    assert sorted(began) == ["/d1", "/d2"]
    await supervisor.stop()


async def test_moves_that_were_found_go_on_when_two_disks_return_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk that was ready first took the other one's found copies: they were neither resumed nor removed."""
    host = Host("/d1", "/d2")
    manager = await host.manager()
    future = f"/d1/{set_aside_name(T0, '0' * 32, FUTURE_SUFFIX)}"
    host.disk.makedirs(future)
    for path in host.dirs:
        manager.failures.dir_failed(dir_error(manager.pool.dirs[path], "a write", OSError(errno.EIO, "")))
    first = True

    run = host.disk.run_blocking

    async def between(function: Callable[[], object], at: str = "") -> object:
        nonlocal first
        if first and manager.opening._found_futures.get("/d1"):
            first = False
            assert await manager.opening.bring_online("/d2", "cluster", 1, {}) == 0
        return await run(function, at)

    monkeypatch.setattr(host.disk, "run_blocking", between)
    assert await manager.opening.bring_online("/d1", "cluster", 1, {}) == 0
    assert not first
    await manager.removals.run_due()
    assert not host.disk.exists(future), "its replica is not here: it is removed"


async def test_disks_are_cared_for_also_after_too_many_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """THROTTLING_QUOTA_EXCEEDED ended the task, and the node with it."""
    monkeypatch.setattr(disk_healing, "_LOOK_S", 0)
    looks = asyncio.Semaphore(0)

    def full(*_: object, **__: object) -> None:
        looks.release()
        raise api_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many commands are waiting")

    replicas: Any = SimpleNamespace(
        offline=lambda: [SimpleNamespace(topic_partition=T0)],
        commands=SimpleNamespace(retry_offline=full),
        strays=SimpleNamespace(needs_classification=True),
        session_roles=SimpleNamespace(set_aside_strays=full),
    )
    logs: Any = SimpleNamespace(opening=SimpleNamespace(reopen_failed=lambda: None))
    healing = Healing(ManualClock(1_700_000_000_000))
    healing._session = SimpleNamespace(current=object())  # type: ignore[assignment]
    care = asyncio.ensure_future(healing.run(replicas, logs))
    async with asyncio.timeout(150):
        for _ in range(6):
            acquired = asyncio.ensure_future(looks.acquire())
            await asyncio.wait([acquired, care], return_when=asyncio.FIRST_COMPLETED)
            assert not care.done(), care.exception()
    care.cancel()
