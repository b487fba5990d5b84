"""A compaction reads and writes in a thread; meanwhile the loop does everything else with the same log.

Real files and real threads. The thread is held each time it opens a file, at each of these points in turn, until the loop
has done what it does: no order of the two may cost a record, a replica or a directory.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.env.real import RealClock
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.real_file import RealFile
from kafkalite.env.supervisor import Supervisor
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import TopicId
from kafkalite.record.builder import RecordBatchBuilder
from tests.support.committed import committed_state
from tests.support.log_host import fatal, host_of, log_manager
from tests.support.logs import TOPIC_ID, TP, config
from tests.support.waiting import until

SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact,delete",
    "segment_bytes": 1024,
    "min_cleanable_dirty_ratio": 0.01,
    "retention_ms": 3_600_000,
}


class HeldDisk(RealDisk):
    """Holds a thread that opens file number `at` until `go_on`; `is_held` tells the loop."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at, self._count = at, 0
        self._loop_thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self.is_armed = False
        self.is_held = asyncio.Event()
        self.go_on = threading.Event()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        if self.is_armed and threading.get_ident() != self._loop_thread and path.endswith((".log", ".cleaned")):
            self._count += 1
            if self._count == self._at:
                self._loop.call_soon_threadsafe(self.is_held.set)
                assert self.go_on.wait(30)
        return super().open(path, create=create)


class Case:
    """A manager with one log of which the first two segments are too old, and the compaction of it."""

    def __init__(self, root: Path, at: int) -> None:
        self.root = root
        self.disk = HeldDisk(at)
        self.lost: list[str] = []

        self.supervisor = Supervisor(fatal)
        self.dirs = (str(root / "d1"), str(root / "d2"))
        for path in self.dirs:
            os.makedirs(path)
        self.clock = RealClock()
        self.manager = log_manager(
            self.disk,
            *self.dirs,
            clock=self.clock,
            supervisor=self.supervisor,
            on_dir_failed=lambda directory, error: self.lost.append(f"{directory}: {error}"),
            on_log_failed=lambda tp, error: self.lost.append(f"{tp}: {error}"),
        )

    async def fill(self) -> PartitionLog:
        await self.manager.opening.start("c", 1, {TP.topic: {}})
        log = self.manager.placing.create(TP, TOPIC_ID, config(**SETTINGS), directory=self.dirs[0])
        host_of(self.manager).hw_of = lambda tp: log.log_end_offset
        now_ms = self.clock.wall_ms()
        for number in range(24):
            key, age_ms = (f"old{number}", 7_200_000) if number < 6 else (f"k{number % 5}", 1_000)
            write(log, key, f"{number}" + "." * 280, now_ms - age_ms)
        log.roll()
        return log

    async def end(self) -> None:
        self.disk.go_on.set()
        await self.supervisor.stop()
        await self.manager.close(clean=False)
        self.disk.close()


def write(log: PartitionLog, key: str, value: str, timestamp_ms: int) -> None:
    builder = RecordBatchBuilder()
    builder.append(key.encode(), value.encode(), (), timestamp_ms)
    log.append_as_leader(builder.build(), 1)


Action = Callable[[Case, PartitionLog], Awaitable[None]]


async def retention(case: Case, log: PartitionLog) -> None:
    assert await case.manager.housekeeping.retention_pass() == 0, "it is put off while the log is compacted"


async def delete_records(case: Case, log: PartitionLog) -> None:
    log.advance_log_start_offset(15)
    await case.manager.housekeeping.retention_pass()


async def truncate(case: Case, log: PartitionLog) -> None:
    """... and what comes instead is as long as what was there."""
    end, segments = log.log_end_offset, len(log.segments)
    log.truncate_to(4)
    while log.log_end_offset < end:
        write(log, f"k{log.log_end_offset % 5}", f"{log.log_end_offset}" + "," * 280, case.clock.wall_ms())
    log.roll()
    assert len(log.segments) == segments


async def start_over(case: Case, log: PartitionLog) -> None:
    log.truncate_fully_and_start_at(100)
    write(log, "k1", "new", case.clock.wall_ms())


async def delete(case: Case, log: PartitionLog) -> None:
    case.manager.delete(TP)


async def delete_and_create(case: Case, log: PartitionLog) -> None:
    case.manager.delete(TP)
    new = case.manager.placing.create(TP, TopicId("AAAAAAAAAAAAAAAAAAAAAw"), config(**SETTINGS), directory=case.dirs[0])
    host_of(case.manager).hw_of = lambda tp: new.log_end_offset
    for number in range(12):
        write(new, f"n{number % 3}", f"{number}" + "." * 280, case.clock.wall_ms())


async def change_the_policy(case: Case, log: PartitionLog) -> None:
    log.config = config(**SETTINGS | {"cleanup_policy": "delete", "retention_ms": -1})


async def flush(case: Case, log: PartitionLog) -> None:
    write(log, "k0", "flushed", case.clock.wall_ms())
    await log.flush()
    await case.manager.offsets.save_offsets()


async def move(case: Case, log: PartitionLog) -> None:
    case.manager.moves.start(TP, case.dirs[1])


async def write_more(case: Case, log: PartitionLog) -> None:
    for number in range(12):
        write(log, f"k{number % 3}", f"more {number}" + "." * 280, case.clock.wall_ms())


ACTIONS: list[Action] = [
    retention, delete_records, truncate, start_over, delete, delete_and_create, change_the_policy, flush, move, write_more,
]  # fmt: skip


@pytest.fixture(params=[1, 6, 11, 18])
def at(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
async def test_nothing_is_lost_whatever_happens_during_a_compaction(tmp_path: Path, action: Action, at: int) -> None:
    case = Case(tmp_path, at)
    try:
        log = await case.fill()
        case.disk.is_armed = True
        compaction = asyncio.create_task(case.manager.housekeeping.cleaning_pass())
        held = asyncio.create_task(case.disk.is_held.wait())
        await asyncio.wait({compaction, held}, return_when=asyncio.FIRST_COMPLETED)
        assert case.disk.is_held.is_set(), "the compaction ended before"
        await action(case, log)
        now = case.manager.get(TP)
        expected = committed_state(now) if now is not None else None
        case.disk.go_on.set()
        await compaction
        case.disk.is_armed = False
        await until(lambda: not case.manager.moves.under_way())
        assert case.lost == []
        after = case.manager.get(TP)
        names = [name for path in case.dirs for name in os.listdir(path)]
        assert not [name for name in names if name.endswith("-stray")]
        if expected is None:
            assert after is None
            return
        assert after is not None
        # A retention that was put off is made up for.
        young = {key: value for key, value in expected.items() if not key.startswith(b"old")}
        assert committed_state(after) == (young if action in (retention, delete_records) else expected)
        if action is not change_the_policy:
            expected = young
        # Nothing is left over, and the next pass finds a log that it can compact, and a restart a log that it can open.
        await case.manager.housekeeping.cleaning_pass()
        await case.manager.housekeeping.retention_pass()
        assert case.lost == []
        assert committed_state(after) == expected
        left = [name for name in os.listdir(after.path) if name.endswith((".swap", ".cleaned"))]
        # What a thread wrote there for the log that was deleted goes with the next start.
        assert left == [] or action is delete_and_create
        again = log_manager(
            case.disk,
            *case.dirs,
            clock=case.clock,
            supervisor=case.supervisor,
            on_dir_failed=lambda directory, error: case.lost.append(f"{directory}: {error}"),
        )
        await case.manager.close()
        await again.opening.start("c", 1, {TP.topic: {}})
        found = again.get(TP)
        assert found is not None and committed_state(found) == expected and case.lost == []
        await again.close()
    finally:
        await case.end()
