"""A disk that did not answer for a while returns without an operator, and not before all that was begun on it has ended."""

from __future__ import annotations

import errno

import pytest

from kafkalite.config import TopicConfig
from kafkalite.env.seams import DiskOutcome
from kafkalite.errors import StorageError
from kafkalite.log.failures import MAX_FAILURES_PER_HOUR
from kafkalite.log.log_dir import LogDir, dir_error
from kafkalite.log.log_manager import LogManager
from kafkalite.log.returning import Awaited
from kafkalite.model import TopicPartition
from tests.support.logs import TOPIC_ID, batch, values
from tests.unit.log.test_lone_copies import Host

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
