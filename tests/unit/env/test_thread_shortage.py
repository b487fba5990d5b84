"""No thread can be started, because others of the host have them all: what waits for a disk does then. The disk is sound."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.env.disk_threads import Workers
from kafkalite.env.real_disk import RealDisk
from tests.support.threads import no_thread

_DEADLINE_S = 150


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    made = RealDisk()
    yield made
    made.close()


def test_work_without_a_thread_is_refused_and_forgotten() -> None:
    workers = Workers(2, "test")
    done: list[str] = []
    with no_thread():
        for _ in range(5):
            with pytest.raises(OSError, match="thread") as refused:
                workers.submit(lambda: done.append("refused"))
            assert refused.value.errno == errno.EAGAIN
    assert workers.is_idle
    assert workers.submit(lambda: "done").result(_DEADLINE_S) == "done"
    assert not done, "nobody waits for it any more"
    workers.close()


def test_those_that_are_there_do_the_work_of_those_that_are_not() -> None:
    workers = Workers(4, "test")
    began, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        goes_on.wait(_DEADLINE_S)

    first = workers.submit(hold)
    assert began.wait(_DEADLINE_S)
    with no_thread():
        second = workers.submit(lambda: "second")
    third = workers.submit(lambda: "third")
    assert {second.result(_DEADLINE_S), third.result(_DEADLINE_S)} == {"second", "third"}, (
        "a new one can be started again"
    )
    goes_on.set()
    first.result(_DEADLINE_S)
    workers.close()


async def test_a_disk_works_again_as_soon_as_threads_can_be_started(disk: RealDisk, tmp_path: Path) -> None:
    directory = str(tmp_path)
    disk.separate(directory)
    file = disk.open(f"{directory}/f", create=True)
    file.append([b"abc"])
    with no_thread():
        for _ in range(10):
            with pytest.raises(OSError, match="thread"):
                await disk.run_blocking(lambda: None, directory)
            with pytest.raises(OSError, match="thread"):
                await file.sync()
            await disk.load(f"{directory}/f", 0, 3)  # raises nothing
    assert disk.outcome(directory) is not None
    async with asyncio.timeout(_DEADLINE_S):
        await disk.run_blocking(lambda: None, directory)
        await file.sync()
        await disk.load(f"{directory}/f", 0, 3)
    before = len(os.listdir("/proc/self/fd"))
    file.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1, "no sync is under way that would keep it open"


async def test_a_file_of_an_abandoned_disk_is_closed_all_the_same(disk: RealDisk, tmp_path: Path) -> None:
    directory = str(tmp_path)
    disk.separate(directory)
    file = disk.open(f"{directory}/f", create=True)
    disk.abandon(directory)
    with no_thread():
        file.close()
