"""Whether something is still under way on a disk, and whether a sync failed."""

from __future__ import annotations

import threading
from concurrent.futures import wait
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


@pytest.mark.parametrize("is_swapped", [False, True])
def test_what_hung_does_not_meet_the_next_life_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_swapped: bool
) -> None:
    """An operator brings the disk online while a thread of its former life hangs: it goes on later, and removed a new file."""
    disk, directory, lock = RealDisk(), str(tmp_path), str(tmp_path / ".lock")
    disk.separate(directory)
    release = disk.lock(lock)
    goes_on = threading.Event()

    def remove() -> None:
        goes_on.wait()
        disk.remove(f"{directory}/checkpoint")

    hanging = disk._threads(directory).works.submit(remove)
    disk.abandon(directory)
    release()
    disk.separate(directory)
    if is_swapped:
        monkeypatch.setattr(real_disk, "mount_of", lambda path: (7, "another"))
    else:
        with pytest.raises(OSError, match="has not ended yet"):
            disk.lock(lock)
        assert disk.outcome(directory) is None
        goes_on.set()
        wait([hanging])
        while disk.outcome(directory) is None:
            threading.Event().wait(0.001)
    release = disk.lock(lock)
    if is_swapped:
        assert disk.outcome(directory) is not None, "what hangs on the disk that was there before does not count"
        (tmp_path / "checkpoint").write_bytes(b"new")
        goes_on.set()
        wait([hanging])
        assert isinstance(hanging.exception(), OSError) and (tmp_path / "checkpoint").exists()
    release()
    disk.close()
