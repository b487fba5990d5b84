"""What a node remembers of its partitions through a restart: bounds, torn and damaged files, disks that fail or hang."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafkalite.env.own_time import OwnTime
from kafkalite.env.real import RealClock
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.supervisor import Supervisor
from kafkalite.log.log_dir import LogDir
from kafkalite.log.pool import LogPool
from kafkalite.node import history_file
from kafkalite.node.history_file import NAMES, HistoryFile
from kafkalite.telemetry.history import Event, History
from kafkalite.telemetry.history_lines import MAX_DETAIL, Row, from_lines, to_lines

OLD, CURRENT = NAMES


class HangingDisk(RealDisk):
    """Its threads take nothing below `hangs`, and fail below `fails`."""

    hangs = ""
    fails = ""

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        if self.hangs and at.startswith(self.hangs):
            await asyncio.Event().wait()
        if self.fails and at.startswith(self.fails):
            raise OSError(5, "Input/output error")
        return await super().run_blocking(function, at)


class Run:
    """One process: its histories on these directories."""

    def __init__(self, *directories: Path, disk: HangingDisk | None = None, max_events: int = 24) -> None:
        self.now_ms = 1_000
        self.disk = disk or HangingDisk()
        self.replica = History(lambda: self.now_ms, max_events=max_events, max_subjects=100)
        self.controller = History(lambda: self.now_ms)
        self.directories = [LogDir(self.disk, str(each), 16) for each in directories]
        histories = {"replica": self.replica, "controller": self.controller}
        clock = RealClock()
        supervisor, own_time = Supervisor(lambda error: None), OwnTime(clock)
        pool = LogPool(self.directories, disk=self.disk, clock=clock, own_time=own_time, supervisor=supervisor)
        self.file = HistoryFile(histories, pool)

    def record(self, subject: str, what: str, detail: str = "", at_ms: int | None = None) -> None:
        self.now_ms = self.now_ms + 1 if at_ms is None else at_ms
        self.replica.record(subject, what, detail)

    async def recalled(self) -> Run:
        await self.file._recall()
        return self


def told(history: History, subject: str) -> list[tuple[str, bool]]:
    return [(event.what, event.is_earlier) for event in history.of(subject)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


async def test_what_was_known_before_is_known_again_and_marked(directory: Path) -> None:
    first = Run(directory)
    first.record("t-0", "replica.leads", 'ISR [1, 2], "quoted"\n\u00fc')
    first.controller.record("t-0", "controller.elected", "leader 1")
    assert await first.file.flush()
    second = Run(directory)
    second.record("t-0", "replica.follows", at_ms=2_000)
    await second.recalled()
    assert told(second.replica, "t-0") == [("replica.leads", True), ("replica.follows", False)]
    assert told(second.controller, "t-0") == [("controller.elected", True)]
    assert second.replica.of("t-0")[0].detail == 'ISR [1, 2], "quoted"\n\u00fc'
    await second.file.close()
    third = await Run(directory).recalled()
    assert told(third.replica, "t-0") == [("replica.leads", True), ("replica.follows", True)]


async def test_the_bounds_hold_for_before_and_now_together(directory: Path) -> None:
    first = Run(directory, max_events=3)
    for number in range(5):
        first.record("t-0", f"event.{number}")
    for number in range(150):
        first.record(f"other-{number}", "event")
    await first.file.close()
    second = Run(directory, max_events=3)
    second.record("t-0", "now", at_ms=9_000)
    await second.recalled()
    assert told(second.replica, "t-0") == [("now", False)]  # 100 others have pushed its past out
    assert len(second.replica) == 100
    third = Run(directory, max_events=3)
    third.record("other-149", "now", at_ms=9_000)
    await third.recalled()
    assert told(third.replica, "other-149") == [("event", True), ("now", False)]


async def test_two_files_of_bounded_size(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_file, "MAX_FILE_BYTES", 4_000)
    run = Run(directory)
    for number in range(200):
        run.record("t-0", f"event.{number}", "x" * 50)
        assert await run.file.flush()
    assert run.disk.listdir(str(directory)) == sorted(NAMES)
    assert all(len(run.disk.read_file(f"{directory}/{name}")) <= 4_000 for name in NAMES)
    after = await Run(directory).recalled()
    assert told(after.replica, "t-0") == [(f"event.{number}", True) for number in range(176, 200)]


async def test_one_file_that_somebody_has_blown_up_is_read_from_its_end(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(directory)
    run.record("t-0", "last")
    (directory / CURRENT).write_bytes(b"\0" * 100_000)
    monkeypatch.setattr(history_file, "MAX_FILE_BYTES", 200_000)
    await run.file.close()
    monkeypatch.setattr(history_file, "MAX_FILE_BYTES", 1_000)
    after = await Run(directory).recalled()
    assert told(after.replica, "t-0") == [("last", True)]


async def test_a_torn_tail_costs_its_line(directory: Path) -> None:
    first = Run(directory)
    first.record("t-0", "one")
    first.record("t-0", "two")
    await first.file.close()
    path = directory / CURRENT
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        again = await Run(directory).recalled()
        kept = [what for what, _ in told(again.replica, "t-0")]
        assert kept == ["one", "two"][: len(kept)]
        again.record("t-0", "three", at_ms=9_000)
        await again.file.close()
        last = await Run(directory).recalled()
        assert [what for what, _ in told(last.replica, "t-0")] == [*kept, "three"]


async def test_damaged_bytes_cost_their_lines(directory: Path) -> None:
    first = Run(directory)
    for number in range(3):
        first.record("t-0", f"event.{number}")
    await first.file.close()
    path = directory / CURRENT
    whole = path.read_bytes()
    for position in range(len(whole)):
        for flipped in (whole[position] ^ 1, 0, 255, 10):
            path.write_bytes(whole[:position] + bytes([flipped]) + whole[position + 1 :])
            again = await Run(directory).recalled()
            kept = [what for what, _ in told(again.replica, "t-0")]
            assert set(kept) <= {"event.0", "event.1", "event.2"}
            assert len(kept) >= 1
    path.write_bytes(b"\xff\xfe" * 50 + whole)
    with capture_logs() as lines:
        again = await Run(directory).recalled()
    assert len(told(again.replica, "t-0")) == 3
    assert [line["lines"] for line in lines if line["event"] == "history.damaged"] == [1]


def test_lines_that_are_no_events() -> None:
    """With a sum that fits: another version's, or somebody's hand."""

    def line(text: bytes) -> bytes:
        return b"%08x %s" % (zlib.crc32(text), text)

    bad = (b"[]", b"{}", b"1", b"[1,2,3,4,5]", b'["r","t-0",true,"w","d"]', b'["r","t-0",1,"w","d",2]', b"[" * 20_000)
    assert from_lines(b"\n".join(map(line, bad))) == ([], len(bad))
    long = Row("r", "t-0", Event(1, "w", "d" * 10 * MAX_DETAIL))
    ((row,), damaged) = from_lines(to_lines([long]))
    assert (len(row.event.detail), damaged) == (MAX_DETAIL, 0)


async def test_the_first_directory_that_works_takes_it_and_all_are_read(tmp_path: Path) -> None:
    directories = [tmp_path / name for name in ("a", "b")]
    for each in directories:
        each.mkdir()
    run = Run(*directories)
    run.record("t-0", "one")
    assert await run.file.flush()
    run.directories[0].online = False
    run.record("t-0", "two")
    assert await run.file.flush()
    run.directories[1].online = False
    run.record("t-0", "three")
    assert not await run.file.flush()
    assert [[path.name for path in each.iterdir()] for each in directories] == [[CURRENT], [CURRENT]]
    after = await Run(*directories).recalled()
    assert told(after.replica, "t-0") == [("one", True), ("two", True)]


async def test_a_disk_that_fails_stops_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that hangs: what happens meanwhile is kept within bounds, and written when a disk takes it."""
    monkeypatch.setattr(history_file, "CLOSE_S", 0.05)
    disk = HangingDisk()
    run = Run(directory, disk=disk)
    disk.fails = str(directory)
    run.record("t-0", "one")
    with capture_logs() as lines:
        assert not await run.file.flush()
        assert not await run.file.flush()
    assert [line["event"] for line in lines] == ["history.not_written"]  # once
    disk.fails, disk.hangs = "", str(directory)
    run.record("t-0", "two")
    hung = asyncio.ensure_future(run.file.flush())
    await asyncio.sleep(0)
    for number in range(history_file.MAX_PENDING + 10):
        run.record("u-0", f"event.{number}")
    await run.file.close()  # gives up
    assert not hung.done()
    run.directories[0].go_offline("does not answer", 0)
    async with asyncio.timeout(150):
        assert not await hung
    assert len(run.file._pending) == history_file.MAX_PENDING
    disk.hangs = ""
    run.directories[0].online = True
    while run.file._pending:
        assert await run.file.flush()
    after = await Run(directory).recalled()
    assert told(after.replica, "u-0")[-1] == (f"event.{history_file.MAX_PENDING + 9}", True)


async def test_a_hung_disk_does_not_hold_up_the_start(directory: Path) -> None:
    disk = HangingDisk()
    disk.hangs = str(directory)
    run = Run(directory, disk=disk)
    recalling = asyncio.ensure_future(run.file._recall())
    await asyncio.sleep(0)
    assert not recalling.done()
    run.directories[0].go_offline("does not answer", 0)
    async with asyncio.timeout(150):
        await recalling


async def test_a_directory_that_was_removed_does_not_come_back(tmp_path: Path) -> None:
    run = Run(tmp_path / "gone")
    run.record("t-0", "one")
    assert not await run.file.flush()
    assert not (tmp_path / "gone").exists()


async def test_the_task_writes_what_is_noted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_file, "FLUSH_S", 0.01)
    monkeypatch.setattr(history_file, "RETRY_S", 0.01)
    run = Run(directory)
    run.directories[0].online = False
    flush, refused = run.file.flush, asyncio.Event()

    async def flushing() -> bool:
        if not (is_written := await flush()):
            refused.set()
        return is_written

    monkeypatch.setattr(run.file, "flush", flushing)
    task: asyncio.Future[Any] = asyncio.ensure_future(run.file.run())
    try:
        run.record("t-0", "one")
        await refused.wait()
        run.directories[0].online = True
        async with asyncio.timeout(150):
            while not (directory / CURRENT).exists() or b"one" not in (directory / CURRENT).read_bytes():
                await asyncio.sleep(0.001)
    finally:
        task.cancel()
