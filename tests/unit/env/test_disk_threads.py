"""Whether something is still under way on a disk, and whether a sync failed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from kafkalite.env import real_disk
from kafkalite.env.disk_threads import DiskThreads, Workers
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.seams import DiskOutcome


def failing() -> None:
    raise OSError(5, "Input/output error")


def test_what_nobody_waits_for_any_more_is_still_under_way() -> None:
    threads = DiskThreads("d", sync_threads=1, read_threads=1, work_threads=1)
    assert threads.is_idle
    goes_on = threading.Event()
    first, second = threads.works.submit(goes_on.wait), threads.works.submit(lambda: None)
    assert second.cancel() and not threads.is_idle, (
        "a job in the queue counts until a thread has seen that nobody wants it"
    )
    goes_on.set()
    wait([first, last := threads.works.submit(lambda: None)])
    while not threads.is_idle:
        threading.Event().wait(0.001)
    assert last.done() and not threads.works.has_failed
    threads.close()


def test_an_error_is_kept() -> None:
    threads = DiskThreads("d", sync_threads=1, read_threads=1, work_threads=1)
    with pytest.raises(OSError, match="Input"):
        threads.syncs.submit(failing).result()
    assert threads.syncs.has_failed and not threads.works.has_failed
    threads.close()


async def test_new_threads_begin_without_a_past(tmp_path: Path) -> None:
    disk, directory = RealDisk(), str(tmp_path)
    disk.separate(directory)
    with pytest.raises(OSError, match="Input"):
        disk._threads(directory).syncs.submit(failing).result()
    while (found := disk.outcome(directory)) is None:
        await disk.run_blocking(lambda: None)
    assert found == DiskOutcome(failed=True)
    disk.separate(directory)
    assert disk.outcome(directory) == DiskOutcome(failed=False)


def test_jobs_that_come_at_once_do_not_wait_behind_each_other() -> None:
    """A thread that rested looked free until it woke up: all jobs of one turn of the loop went to it, behind the first."""
    workers = Workers(4, "test")
    workers.submit(lambda: None).result(150)
    go_on = threading.Event()
    jobs = [workers.submit(lambda: go_on.wait(150)) for _ in range(3)]
    assert workers.submit(lambda: 7).result(150) == 7
    go_on.set()
    assert all(job.result(150) for job in jobs)
    workers.close()


def test_there_are_no_more_threads_than_jobs_at_the_same_time() -> None:
    workers = Workers(8, "work")
    for _ in range(20):
        wait([workers.submit(lambda: None)])
        while not workers.is_idle:
            threading.Event().wait(0.001)
    assert len(workers._threads) == 1
    workers.close()


async def test_a_disk_that_comes_and_goes_keeps_its_threads(tmp_path: Path) -> None:
    """Each return of a disk that was full started threads beside those of the time before, which rested for ever."""
    disk, directory = RealDisk(), str(tmp_path)
    disk.separate(directory)
    await disk.run_blocking(lambda: None, directory)
    before = threading.active_count()
    for _ in range(20):
        disk.abandon(directory)
        while disk.outcome(directory) is None:
            threading.Event().wait(0.001)
        disk.separate(directory)
        assert not disk._threads(directory).is_abandoned
        await disk.run_blocking(lambda: None, directory)
    assert threading.active_count() == before
    disk.close()


async def test_threads_that_hang_are_left_behind(tmp_path: Path) -> None:
    disk, directory = RealDisk(), str(tmp_path)
    disk.separate(directory)
    before, goes_on = disk._threads(directory), threading.Event()
    hanging = before.works.submit(goes_on.wait)
    disk.separate(directory)
    assert disk._threads(directory) is not before and disk.outcome(directory) is not None
    goes_on.set()
    wait([hanging])
    before.close()
    disk.close()


def a_former_life(disk: RealDisk, directory: str, work: Callable[[], None], began: threading.Event) -> Future[None]:
    """Work that was begun on a disk before it was given up and taken into service again."""
    disk.separate(directory)
    release = disk.lock(f"{directory}/.lock")
    hanging = disk._threads(directory).works.submit(work)
    assert began.wait(150)
    disk.abandon(directory)
    release()
    disk.separate(directory)
    return hanging


def test_what_hung_begins_no_change_in_the_next_life_of_the_disk(tmp_path: Path) -> None:
    """An operator brings the disk online while a thread from before it failed hangs: it goes on later, and removed a new file."""
    disk, directory, goes_on, began = RealDisk(), str(tmp_path), threading.Event(), threading.Event()
    (tmp_path / "log").write_bytes(b"batches")
    refused: list[str | None] = []

    def work() -> None:
        file = disk.open(f"{directory}/log")
        began.set()
        goes_on.wait()
        changes: list[Callable[[], object]] = [
            lambda: disk.remove(f"{directory}/log"),
            lambda: disk.rename(f"{directory}/log", f"{directory}/other"),
            lambda: disk.write_file_atomic(f"{directory}/log", b"old"),
            lambda: file.truncate(1),
            lambda: file.append([b"old"]),
        ]
        for what in changes:
            try:
                what()
            except OSError as error:
                refused.append(error.strerror)
        file.close()

    hanging = a_former_life(disk, directory, work, began)
    disk.lock(f"{directory}/.lock")  # it does not keep an operator from bringing the disk online
    goes_on.set()
    wait([hanging])
    assert hanging.exception() is None and refused == ["the disk was given up before this could begin"] * 5
    assert (tmp_path / "log").read_bytes() == b"batches"
    disk.close()


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_change_that_hangs_is_waited_for_unless_another_disk_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_swapped: bool
) -> None:
    disk, directory, goes_on, began = RealDisk(), str(tmp_path), threading.Event(), threading.Event()

    def unlink(path: str) -> None:
        began.set()
        goes_on.wait()

    monkeypatch.setattr(os, "unlink", unlink)
    hanging = a_former_life(disk, directory, lambda: disk.remove(f"{directory}/checkpoint"), began)
    if is_swapped:
        monkeypatch.setattr(real_disk, "mount_of", lambda path: (7, "another"))
        disk.lock(f"{directory}/.lock")
    else:
        with pytest.raises(OSError, match="a write that was begun before it went offline has not ended yet"):
            disk.lock(f"{directory}/.lock")
        assert disk.outcome(directory) is None
        goes_on.set()
        wait([hanging])
        while disk.outcome(directory) is None:
            threading.Event().wait(0.001)
        disk.lock(f"{directory}/.lock")
    goes_on.set()
    disk.close()
