"""What crowds leave behind is given back, and not at every visitor."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from typing import Any

import pytest

from kafkalite.env import heap
from kafkalite.env.heap import (
    CROWD,
    MANY_OBJECTS,
    MOST_FREE_BYTES,
    Crowds,
    free_bytes,
    give_back,
    give_back_regularly,
    keep_freed,
    uncollected,
)


class Timers:
    """A loop's, run by hand."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def call_later(self, delay_s: float, function: Any) -> Any:
        self.waiting.append(function)
        return self

    def cancel(self) -> None:
        self.waiting.clear()


def test_once_per_crowd() -> None:
    timers, given = Timers(), []
    crowds = Crowds(timers, lambda: given.append(1))  # type: ignore[arg-type]
    for _ in range(CROWD - 1):
        crowds.came()
    assert not timers.waiting
    for _ in range(5 * CROWD):
        crowds.came()
    assert len(timers.waiting) == 1
    timers.waiting.pop()()
    assert given == [1]
    crowds.came()
    assert not timers.waiting
    for _ in range(CROWD):
        crowds.came()
    crowds.close()
    assert not timers.waiting


def test_the_c_library_can_be_asked() -> None:
    give_back()


async def test_only_what_is_worth_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "LOOK_S", 0)
    free = iter([0, MOST_FREE_BYTES, MOST_FREE_BYTES + 1, 0, 2 * MOST_FREE_BYTES])
    given, seen = [], 0

    def counted() -> int:
        nonlocal seen
        found = next(free, None)
        if found is None:
            raise asyncio.CancelledError
        seen += 1
        return found

    with pytest.raises(asyncio.CancelledError):
        await give_back_regularly(counted, lambda: given.append(seen))
    assert given == [3, 5]


#: In a process of its own: another test's threads and memory must not count. 500 MB in blocks that malloc takes from its heap, a small
#: one between them, and then only the small ones stay.
_HOLES = """
import asyncio, ctypes
from kafkalite.env import heap
ctypes.CDLL(None).mallopt(-3, 32 * 2**20)  # M_MMAP_THRESHOLD, as it is after a block of 32 MiB was freed
large, small = [], []
for _ in range(1_000):
    large.append(bytearray(b"x" * 500_000))
    small.append(bytearray(3_000))
large.clear()
before = heap.free_bytes()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
had = resident()
async def main():
    task = asyncio.create_task(heap.give_back_regularly())
    while resident() > had / 2:
        await asyncio.sleep(0.05)
    task.cancel()
heap.LOOK_S = 0.05
asyncio.run(asyncio.wait_for(main(), 60))
print(before > heap.MOST_FREE_BYTES)
"""


async def test_the_holes_of_freed_responses_go_back_to_the_system() -> None:
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):  # not glibc: nothing is counted, nothing is given back
        assert free_bytes() == 0
        return
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _HOLES, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"True\n")


#: In a process of its own, as above: four responses of 1 MiB come and go twenty times, then a hundred of them stay for a while.
_RESPONSES = """
import resource
from kafkalite.env import heap
from kafkalite.env.real import real_env
real_env()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
def respond(count):
    return [bytearray(2**20) for _ in range(count)]
for _ in range(3):
    respond(4)
before = faults()
for _ in range(20):
    respond(4)
again = faults() - before
had = resident()
many = respond(100)
del many
print(again < 20 * 4 * 2**20 / 4096 / 10, resident() - had < 2 * heap.KEPT_BYTES)
"""


async def test_responses_that_come_and_go_find_their_memory_again() -> None:
    if not hasattr(ctypes.CDLL(None), "mallopt"):  # not glibc: nothing is changed
        keep_freed()
        return
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _RESPONSES, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"True True\n")


class Collections:
    """Which collections have begun, by their generation."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.begun.append(info["generation"])


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From a state in which nothing is young. What the freezer holds is old afterwards."""
    found = Collections()
    monkeypatch.setattr(heap, "_unseen", 0)
    gc.collect()
    gc.callbacks.append(found)
    yield found
    gc.callbacks.remove(found)


def a_cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


async def test_what_a_large_request_leaves_is_old_without_a_look(collections: Collections) -> None:
    async with uncollected():
        kept: list[list[int]] = [[] for _ in range(2 * MANY_OBJECTS)]
        a_cycle()
    young: list[list[int]] = [[] for _ in range(10)]
    assert gc.isenabled()
    assert not collections.begun
    assert gc.get_freeze_count() == 0
    assert gc.is_tracked(kept[0]) and any(each is kept[0] for each in gc.get_objects(2))
    assert any(each is young[0] for each in gc.get_objects(0))
    # Garbage among it is found by a look at everything.
    assert gc.collect() >= 1


async def test_everything_is_looked_at_when_many_objects_are_unseen(
    collections: Collections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap, "MOST_UNSEEN", 5 * MANY_OBJECTS)
    kept: list[list[list[int]]] = []
    for _ in range(3):
        assert not collections.begun
        async with uncollected():
            kept.append([[] for _ in range(2 * MANY_OBJECTS)])
    assert collections.begun == [2]


async def test_little_stays_young(collections: Collections) -> None:
    async with uncollected():
        kept: list[list[int]] = [[] for _ in range(MANY_OBJECTS // 2)]
    assert not any(each is kept[0] for each in gc.get_objects(2))
