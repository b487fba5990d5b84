"""An asyncio event loop with virtual time, in which the same seed gives the same run, event for event.

Time is an integer count of nanoseconds. Ready callbacks run first in, first out, as asyncio promises; timers run
by time, ties by the order in which they were set. When nothing is ready, time jumps to the next timer. A turn of
the loop costs one microsecond, so that code that polls the clock gets somewhere. Nothing ready and no timer is
a deadlock, and reported as one. What a simulation has no use for (signals, executors, real sockets) raises
NotImplementedError.

A `Process` is one life of one simulated program. Which one a callback belongs to travels in a context variable,
so that everything a program starts is its own without its knowing. The loop can stop a process (nothing of it
runs until it is resumed, as with SIGSTOP) or kill it: then nothing of it ever runs again, also no `finally`
block, for that would be a clean stop and not a crash. Its tasks are kept until the loop closes, because a
coroutine that is garbage-collected runs its `finally` blocks too.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import zlib
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NoReturn, TypeVar

from kafkalite.testing.simulated.process import ProcessState, SimHandle, SimProcess, SimTask, SimTimerHandle, running

T = TypeVar("T")
#: What one turn of the loop costs.
TURN_NS = 1_000
#: Number of turns between garbage collections, which run at no other time: `__del__` methods must not run when they like.
_TURNS_PER_COLLECTION = 150_000
#: A task is let go when done; the list is cleaned when it has grown by this number.
_TASKS_PER_SWEEP = 4_096


class SimulationError(Exception):
    """The simulated program cannot go on, or did what a simulation cannot follow."""


class Deadlock(SimulationError):
    """Nothing is ready and no timer is set, and what we wait for is not done."""


class Spinning(SimulationError):
    """More callbacks than any sane run needs: somebody loops without waiting."""


class SimLoop(asyncio.AbstractEventLoop):
    """See the module's text.

    Args:
        max_callbacks: a run that needs more is spinning.
        record: keep each callback as a line of text too, to find where two runs part (slow).
    """

    def __init__(self, *, max_callbacks: int = 30_000_000, record: bool = False) -> None:
        self._now_ns = 0
        self._ready: deque[SimHandle | SimTimerHandle] = deque()
        self._timers: list[tuple[int, int, SimTimerHandle]] = []
        self._timers_cancelled = 0
        self._sequence = 0
        self._task_count = 0
        self._tasks: list[SimTask] = []
        self._sweep_at = _TASKS_PER_SWEEP
        self._processes: list[SimProcess] = []
        self._stopping = False
        self._running = False
        self._closed = False
        self._disposing = False
        self._at_close: list[Callable[[], None]] = []
        #: The code of a simulated thread runs (`threads`): it may set no callback but through `call_soon_threadsafe`.
        self.in_thread = False
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._trace = 0
        self._max_callbacks = max_callbacks
        self.callbacks_run = 0
        #: Calls of the default exception handler: errors that appear nowhere else.
        self.unhandled: list[dict[str, Any]] = []
        self.record: list[str] | None = [] if record else None

    # --- time and the trace ----------------------------------------------------------------------

    def time(self) -> float:
        return self._now_ns / 1e9

    @property
    def now_ns(self) -> int:
        """Virtual time since the loop was made."""
        return self._now_ns

    @property
    def trace_hash(self) -> str:
        """Of everything that has happened so far: equal runs have equal hashes."""
        return f"{self._trace & (2**64 - 1):016x}"

    def trace(self, text: str) -> None:
        """Add something that happened to the trace."""
        self._trace = hash((self._trace, self._now_ns, zlib.crc32(text.encode())))
        if self.record is not None:
            self.record.append(f"{self._now_ns} {text}")

    # --- processes -------------------------------------------------------------------------------

    def process(self, host: str) -> SimProcess:
        """A new process on `host`. Run code in it with `start`."""
        incarnation = 1 + sum(other.host == host for other in self._processes)
        process = SimProcess(len(self._processes) + 1, host, incarnation)
        self._processes.append(process)
        return process

    def start(self, process: SimProcess, coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `coro` as a task of `process`."""
        return self.create_task(coro, name=name, context=process.context.copy())

    def stop_process(self, process: SimProcess) -> None:
        """As SIGSTOP."""
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.STOPPED
            self.trace(f"stop {process}")

    def resume_process(self, process: SimProcess) -> None:
        """As SIGCONT: everything that became due in the meantime runs now, in order."""
        if process.state is ProcessState.STOPPED:
            process.state = ProcessState.RUNNING
            self.trace(f"resume {process}")
            self._ready.extend(process.held)
            process.held.clear()

    def kill_process(self, process: SimProcess) -> None:
        """As SIGKILL: nothing of it runs any more. (Its sockets and locks are the network's and the disk's to close.)"""
        if process.alive:
            process.state = ProcessState.DEAD
            self.trace(f"kill {process}")
            process.held.clear()

    # --- callbacks -------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self.in_thread:
            raise RuntimeError("a thread called call_soon: the loop would not wake up, or its state would break")
        if context is None:
            context = contextvars.copy_context()
        handle = SimHandle((callback, args, context, context.get(running)))
        if not self._disposing:
            self._ready.append(handle)
        return handle  # type: ignore[return-value]

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = SimHandle((callback, args, context, context.get(running)))
        if not self._disposing:
            self._ready.append(handle)
        return handle  # type: ignore[return-value]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at_ns(self._now_ns + round(delay * 1e9), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at_ns(round(when * 1e9), callback, *args, context=context)

    def call_at_ns(
        self, when_ns: int, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """`call_at` without floats: exact."""
        if self.in_thread:
            raise RuntimeError("a thread set a timer")
        if context is None:
            context = contextvars.copy_context()
        handle = SimTimerHandle((callback, args, context, context.get(running), when_ns, self))
        if not self._disposing:
            self._sequence += 1
            heapq.heappush(self._timers, (when_ns, self._sequence, handle))
        return handle  # type: ignore[return-value]

    def timer_cancelled(self) -> None:
        """For a handle: it stays in the heap until most of the heap are cancelled ones, as most deadlines are."""
        self._timers_cancelled += 1
        if self._timers_cancelled > 1_000 and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if entry[2][0] is not None]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        self._task_count += 1
        number = self._task_count
        # asyncio's own default names come from a counter that outlives this loop.
        task = SimTask(
            coro,  # type: ignore[arg-type]
            number,
            context.get(running) if context is not None else running.get(),
            loop=self,
            name=f"task-{number}" if name is None else str(name),
            context=context,
            **options,
        )
        if self._disposing:
            task._log_destroy_pending = False
            coro.close()
        self._tasks.append(task)
        if len(self._tasks) >= self._sweep_at:
            self._tasks = [kept for kept in self._tasks if not kept.done()]
            self._sweep_at = len(self._tasks) + _TASKS_PER_SWEEP
        return task

    # --- running ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Run what is ready now, or jump to the next timer and run that."""
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2][0] is None:
                heapq.heappop(timers)
                self._timers_cancelled -= 1
            if not timers:
                self._raise_deadlock()
            self._now_ns = max(self._now_ns, timers[0][0])
        now_ns = self._now_ns
        while timers and timers[0][0] <= now_ns:
            timer = heapq.heappop(timers)[2]
            timer[5] = None
            if timer[0] is None:
                self._timers_cancelled -= 1
            else:
                ready.append(timer)
        count = len(ready)
        is_running = ProcessState.RUNNING
        for _ in range(count):
            handle = ready.popleft()
            callback, process = handle[0], handle[3]
            if callback is None:
                continue
            number = 0
            if process is not None:
                if process.state is not is_running:
                    if process.state is ProcessState.STOPPED:
                        process.held.append(handle)
                    continue
                number = process.number
            owner = getattr(callback, "__self__", None)
            label = owner.number if type(owner) is SimTask else 0
            self._trace = hash((self._trace, now_ns, number, label))
            if self.record is not None:
                what = owner.get_name() if isinstance(owner, SimTask) else getattr(callback, "__qualname__", "")
                self.record.append(f"{now_ns} {process} {label} {what}")
            try:
                handle[2].run(callback, *handle[1])
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio's handles do
                what = getattr(callback, "__qualname__", repr(callback))
                self.call_exception_handler({"message": f"Exception in callback {what}", "exception": error})
        self.callbacks_run += count
        self._now_ns = now_ns + TURN_NS

    def _raise_deadlock(self) -> NoReturn:
        waiting = [f"{task.get_name()} in {task.process}" for task in self._tasks if not task.done()]
        raise Deadlock("nothing is ready and no timer is set; waiting: " + ", ".join(waiting[:30]))

    def run_forever(self) -> None:
        self._assert_open()
        if self._running or events._get_running_loop() is not None:
            raise RuntimeError("a loop is running already")
        collecting = gc.isenabled()
        gc.collect()
        gc.disable()
        self._running = True
        self._stopping = False
        events._set_running_loop(self)
        turns = 0
        try:
            while not self._stopping:
                self._turn()
                turns += 1
                if turns % _TURNS_PER_COLLECTION == 0:
                    gc.collect()
                if self.callbacks_run > self._max_callbacks:
                    raise Spinning(f"{self.callbacks_run} callbacks by {self.time():.3f} s of virtual time")
        finally:
            events._set_running_loop(None)
            self._running = False
            if collecting:
                gc.enable()

    def run_until_complete(self, future: Any) -> Any:
        is_new = not asyncio.isfuture(future)
        main: asyncio.Future[Any] = self.create_task(future) if is_new else future

        def done(_: asyncio.Future[Any]) -> None:
            self._stopping = True

        main.add_done_callback(done)
        try:
            self.run_forever()
        finally:
            main.remove_done_callback(done)
        if not main.done():
            raise RuntimeError("the loop was stopped before the future was done")
        return main.result()

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def at_close(self, callback: Callable[[], None]) -> None:
        """Call back when the loop closes, before what is left is disposed of."""
        self._at_close.append(callback)

    def close(self) -> None:
        """End everything that is left, also the tasks of dead processes, without letting any of it act."""
        if self._closed:
            return
        assert not self._running
        self._disposing = True
        for process in self._processes:
            process.state = ProcessState.DEAD
            process.held.clear()
        self._ready.clear()
        self._timers.clear()
        for callback in self._at_close:
            callback()
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False
                _end_coroutine(task.get_coro())
        self._tasks.clear()
        self._closed = True

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: `close` ends what is left."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    def _assert_open(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    # --- the rest of what asyncio's own code asks of a loop --------------------------------------

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio calls it
        """asyncio's debug mode measures real time."""

    def get_task_factory(self) -> None:
        return None

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        return self._exception_handler

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._disposing:
            return
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)


def _end_coroutine(coro: Any) -> None:
    """Close a coroutine whatever its `finally` blocks try."""
    for _ in range(100):
        try:
            coro.close()
        except BaseException:  # noqa: BLE001 - it is dead: nothing that it still says matters
            continue
        return
