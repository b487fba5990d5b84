"""Threads of the simulated disk: what can come between two file operations does, and a seed is one run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from kafkalite.testing.simulated.clock import SimClock
from kafkalite.testing.simulated.disk import SimDisk
from kafkalite.testing.simulated.env import SimWorld
from kafkalite.testing.simulated.loop import SimLoop


def make(seed: int = 1, *, restless: bool = True) -> tuple[SimLoop, SimDisk]:
    loop = SimLoop()  # type: ignore[abstract]
    disk = SimDisk(loop, SimClock(loop), random.Random(seed))
    disk.makedirs("/a")
    if restless:
        disk.threads.restless = (1.0,)
    return loop, disk


def writing(disk: SimDisk, name: str, times: int = 20) -> Callable[[], None]:
    """Appends its name to the file, an operation each."""

    def work() -> None:
        for _ in range(times):
            file = disk.open("/a/f", create=True)
            file.append([name.encode()])
            file.close()

    return work


def contents(seed: int) -> bytes:
    """What two threads and the loop write at once."""
    loop, disk = make(seed, restless=False)

    async def main() -> None:
        one = loop.create_task(disk.run_blocking(writing(disk, "1"), "/a"))
        two = loop.create_task(disk.run_blocking(writing(disk, "2"), "/a"))
        source = random.Random(seed)
        while not (one.done() and two.done()):
            if disk.exists("/a/f"):
                writing(disk, "L", 1)()
            await asyncio.sleep(source.choice((0, 0.000_01, 0.000_05)))
        await one
        await two

    loop.run_until_complete(main())
    found = disk.peek("/a/f")
    loop.close()
    return found


def test_two_threads_and_the_loop_meet_in_every_order() -> None:
    seen = {contents(seed) for seed in range(1, 25)}
    for text in ("12", "21", "1L1", "2L2", "1L2", "2L1", "11111"):
        assert any(text.encode() in content for content in seen), text
    assert all(content.count(b"1") == content.count(b"2") == 20 for content in seen)


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_file_that_a_thread_and_the_loop_replace_is_what_one_of_them_wrote(seed: int) -> None:
    """As on a real disk, each has a file of its own beside it: the thread renamed one that the loop had renamed (seed 20019)."""
    loop, disk = make(seed)

    async def main() -> None:
        thread = loop.create_task(disk.run_blocking(lambda: disk.write_file_atomic("/a/f", b"thread"), "/a"))
        while not thread.done():
            disk.write_file_atomic("/a/f", b"loop", durable=False)
            await asyncio.sleep(0)
        await thread

    loop.run_until_complete(main())
    assert disk.peek("/a/f") in (b"thread", b"loop")
    assert disk.peek_names("/a") == ["f"]
    loop.close()


def test_a_waiter_that_gives_up_does_not_end_what_has_begun() -> None:
    loop, disk = make()

    async def main() -> None:
        waiter = loop.create_task(disk.run_blocking(writing(disk, "x", 200), "/a"))
        while not disk.exists("/a/f"):
            await asyncio.sleep(0.000_01)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        while len(disk.peek("/a/f")) < 200:  # the loop's deadlock detection ends this if it never comes
            await asyncio.sleep(0.001)

    loop.run_until_complete(main())
    loop.close()


def test_a_fifth_waits_for_a_thread_and_one_without_a_waiter_does_not_begin() -> None:
    loop, disk = make()
    disk.write_file_atomic("/a/f", b"x")
    began: list[int] = []

    def work(number: int) -> Callable[[], object]:
        def read() -> object:
            began.append(number)
            return disk.read_file("/a/f")

        return read

    async def main() -> None:
        futures = [disk.threads.run(work(number), "/a") for number in range(7)]
        assert began == [0, 1, 2, 3]
        futures[5].cancel()
        await asyncio.wait(futures)

    loop.run_until_complete(main())
    assert began == [0, 1, 2, 3, 4, 6]
    loop.close()


def test_a_thread_waits_in_the_middle_while_the_disk_hangs() -> None:
    loop, disk = make()

    async def main() -> None:
        work = loop.create_task(disk.run_blocking(writing(disk, "x", 300), "/a"))
        while not disk.exists("/a/f"):
            await asyncio.sleep(0.000_01)
        disk.hang("/a")
        await asyncio.sleep(60)
        assert not work.done()
        disk.repair("/a")
        await work
        assert disk.peek("/a/f") == b"x" * 300

    loop.run_until_complete(main())
    loop.close()


def test_nothing_of_a_dead_process_goes_on_also_not_its_finally_blocks() -> None:
    for seed in range(1, 9):
        world = SimWorld(seed)
        disk = world.host("node1").disk
        disk.makedirs("/a")
        disk.threads.restless = (1.0,)

        async def program(_env: object, disk: SimDisk = disk) -> None:
            def work() -> None:
                try:
                    writing(disk, "x", 500)()
                finally:
                    disk.write_file_atomic("/a/end", b"")

            await disk.run_blocking(work, "/a")

        async def main(world: SimWorld = world, disk: SimDisk = disk) -> None:
            world.start("node1", program)
            while not disk.peek("/a/f"):
                await asyncio.sleep(0.000_01)
            world.crash("node1")
            left = disk.peek("/a/f")
            await asyncio.sleep(100)
            assert disk.peek("/a/f") == left
            assert disk.peek_names("/a") == ["f"]

        world.run(main())
        world.close()


@pytest.mark.parametrize("act", [lambda loop: loop.call_soon(print), lambda loop: loop.call_later(1, print)])
def test_a_thread_that_calls_the_loop_is_a_bug(act: Callable[[SimLoop], object]) -> None:
    loop, disk = make()
    with pytest.raises(RuntimeError, match="a thread"):
        loop.run_until_complete(disk.run_blocking(lambda: act(loop)))
    with pytest.raises(RuntimeError, match="no running event loop"):
        loop.run_until_complete(disk.run_blocking(asyncio.get_running_loop))
    loop.close()


def test_its_error_is_the_waiters() -> None:
    loop, disk = make()
    with pytest.raises(FileNotFoundError):
        loop.run_until_complete(disk.run_blocking(lambda: disk.read_file("/a/no"), "/a"))
    loop.close()
