"""The simulated loop runs unmodified asyncio, the same way every time, and kills without a last word."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from kafkalite.testing.simulated.loop import Deadlock, SimLoop, Spinning
from kafkalite.testing.simulated.process import current_process


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()  # type: ignore[abstract]
    yield loop
    loop.close()


def test_sleep_costs_virtual_time_only(loop: SimLoop) -> None:
    async def main() -> float:
        await asyncio.sleep(3_600)
        return loop.time()

    assert loop.run_until_complete(main()) == pytest.approx(3_600, abs=1e-4)


def test_timers_tie_by_the_order_in_which_they_were_set(loop: SimLoop) -> None:
    seen: list[int] = []

    async def main() -> None:
        for number in range(20):
            loop.call_at(5.0, seen.append, number)
        loop.call_at(4.0, seen.append, -1)
        cancelled = loop.call_at(4.5, seen.append, 99)
        cancelled.cancel()
        await asyncio.sleep(6)

    loop.run_until_complete(main())
    assert seen == [-1, *range(20)]


def test_task_group_timeout_and_queue(loop: SimLoop) -> None:
    async def main() -> list[object]:
        results: list[object] = []
        queue: asyncio.Queue[int] = asyncio.Queue(2)

        async def produce() -> None:
            for number in range(6):
                await queue.put(number)

        async def take() -> None:
            for _ in range(6):
                results.append(await queue.get())

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(take())
        try:
            async with asyncio.timeout(2.5):
                await asyncio.Event().wait()
        except TimeoutError:
            results.append(round(loop.time(), 3))
        return results

    assert loop.run_until_complete(main()) == [0, 1, 2, 3, 4, 5, 2.5]


def test_a_task_group_cancels_in_the_order_of_creation(loop: SimLoop) -> None:
    cancelled: list[int] = []

    async def child(number: int) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(child(number))
            await asyncio.sleep(1)
            raise ValueError

    with pytest.raises(ExceptionGroup):
        loop.run_until_complete(main())
    assert cancelled == list(range(50))


def test_a_deadlock_is_told_with_who_waits(loop: SimLoop) -> None:
    async def main() -> None:
        loop.create_task(asyncio.Event().wait(), name="the-culprit")
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="the-culprit"):
        loop.run_until_complete(main())


def test_code_that_polls_the_clock_gets_somewhere(loop: SimLoop) -> None:
    async def main() -> None:
        until = loop.time() + 0.01
        while loop.time() < until:
            await asyncio.sleep(0)

    loop.run_until_complete(main())


def test_endless_spinning_is_an_error() -> None:
    loop = SimLoop(max_callbacks=10_000)  # type: ignore[abstract]

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Spinning):
        loop.run_until_complete(main())
    loop.close()


@pytest.mark.parametrize("what", ["run_in_executor", "add_signal_handler", "create_connection", "add_reader"])
def test_what_has_no_place_here_raises(loop: SimLoop, what: str) -> None:
    arguments = {"run_in_executor": (None, print), "create_connection": (asyncio.Protocol,)}.get(what, (1, print))
    with pytest.raises(NotImplementedError):
        result = getattr(loop, what)(*arguments)
        result.send(None)


def test_errors_that_nobody_sees_are_kept(loop: SimLoop) -> None:
    def fails() -> None:
        raise ValueError("unseen")

    async def main() -> None:
        loop.call_soon(fails)
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert [str(entry["exception"]) for entry in loop.unhandled] == ["unseen"]


def test_a_stopped_process_catches_up_in_order(loop: SimLoop) -> None:
    process = loop.process("host")
    seen: list[tuple[int, float]] = []

    async def tick() -> None:
        assert current_process() is process
        for number in range(5):
            seen.append((number, round(loop.time(), 2)))
            await asyncio.sleep(1)

    async def main() -> None:
        assert current_process() is None
        task = loop.start(process, tick(), "tick")
        await asyncio.sleep(1.5)
        loop.stop_process(process)
        await asyncio.sleep(10)
        assert len(seen) == 2
        loop.resume_process(process)
        await task

    loop.run_until_complete(main())
    assert seen == [(0, 0.0), (1, 1.0), (2, 11.5), (3, 12.5), (4, 13.5)]


def test_a_killed_process_has_no_last_word() -> None:
    loop = SimLoop()  # type: ignore[abstract]
    process = loop.process("host")
    said: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            said.append("child")

    async def program() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                loop.call_later(5, said.append, "timer")
                await asyncio.Event().wait()
        finally:
            said.append("program")
            await asyncio.sleep(1)

    async def main() -> None:
        loop.start(process, program(), "program")
        await asyncio.sleep(1)
        loop.kill_process(process)
        gc.collect()
        await asyncio.sleep(300)
        assert said == []

    loop.run_until_complete(main())
    assert said == []
    loop.close()  # disposal may run them, into the void
    gc.collect()
    assert loop.unhandled == []


def test_the_next_life_is_another_process(loop: SimLoop) -> None:
    first, other, second = loop.process("a"), loop.process("b"), loop.process("a")
    assert [repr(p) for p in (first, other, second)] == ["a#1", "b#1", "a#2"]

    async def main() -> None:
        loop.kill_process(first)
        loop.resume_process(first)
        assert not first.alive
        started = loop.start(first, asyncio.sleep(0), "never")
        await loop.start(second, asyncio.sleep(0), "lives")
        assert not started.done()

    loop.run_until_complete(main())


def test_cancelled_deadlines_are_cleared_away(loop: SimLoop) -> None:
    async def main() -> None:
        for _ in range(20_000):
            async with asyncio.timeout(1_000):
                await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert len(loop._timers) < 3_000
