"""Threads of a simulated disk: each function of `run_blocking` is a greenlet that stops before each of its file operations.

Between two operations of one thread everything else may run: the loop, other threads of the same disk, a fault. The seed decides
where a thread stops and for how long, so that a run can be repeated. Only file operations are switch points: what a function
does in memory between two of them happens at once, which is kinder than real threads are.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from greenlet import GreenletExit, greenlet

from kafkalite.testing.simulated.loop import SimLoop

#: Threads per disk, as kafkalite.env.real_disk has them.
_THREADS = 4
#: How probable it is that a thread stops before an operation: drawn for each. Some run through, as on an idle host.
_RESTLESS = (0.0, 0.25, 0.6, 1.0)
#: A stop is one turn of the loop, or a short time; one in this number of threads has long ones (a busy processor or disk).
_SHORT_S = 0.001
_LONG_S = 0.06
_SLOW_ONE_IN = 8


class SimThread:
    """One function in a thread. Made by `SimThreads.run`."""

    def __init__(
        self, threads: SimThreads, function: Callable[[], object], at: str, restless: float, *, is_slow: bool
    ) -> None:
        self._threads = threads
        self._function = function
        self._restless = restless
        self._is_slow = is_slow
        self.at = at
        self.future: asyncio.Future[object] = threads.loop.create_future()
        self._greenlet = greenlet(self._run)
        self._greenlet.gr_context = contextvars.copy_context()
        self._has_stopped_for = 0.0
        self._result: object = None
        self._error: BaseException | None = None

    def _run(self) -> None:
        try:
            self._result = self._function()
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the waiter's, as with a real thread
            self._error = error

    def _over(self) -> None:
        self._threads.ended(self)
        if self.future.done():
            return  # the waiter gave up
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._result)

    def step(self) -> None:
        """Run until the next stop, or to the end. A callback of the loop. It is not called after the process has died."""
        self._has_stopped_for = 0.0
        self._enter(self._greenlet.switch)
        if self._greenlet.dead:
            self._over()
        elif self._has_stopped_for > 0:
            self._threads.loop.call_later(self._has_stopped_for, self.resume)
        else:
            self._threads.loop.call_soon(self.resume)

    def resume(self) -> None:
        """Go on, unless the disk hangs: then when it answers again."""
        hanging = self._threads.hanging(self.at)
        if hanging is None:
            self.step()
            return

        async def wait() -> None:
            await hanging.wait()
            self.resume()

        self._threads.loop.create_task(wait(), name="thread")

    def _enter(self, switch: Callable[[], Any]) -> None:
        threads, loop = self._threads, self._threads.loop
        running = events._get_running_loop()
        threads.current = self
        loop.in_thread = True
        events._set_running_loop(None)  # code in a thread finds no running loop
        try:
            switch()
        finally:
            events._set_running_loop(running)
            loop.in_thread = False
            threads.current = None

    def stop(self, source: random.Random) -> None:
        """Called within the thread, before a file operation. Returns when the thread is resumed."""
        if self._threads.closed:
            raise GreenletExit
        if source.random() >= self._restless:
            return
        if self._is_slow:
            self._has_stopped_for = source.uniform(0, _LONG_S)
        elif source.randrange(3) == 0:
            self._has_stopped_for = source.uniform(0, _SHORT_S)
        assert self._greenlet.parent is not None
        self._greenlet.parent.switch()

    def dispose(self) -> None:
        """The world ends: unwind it, without letting it touch the disk."""
        if self._greenlet:
            self._enter(self._throw)

    def _throw(self) -> None:
        for _ in range(100):
            if self._greenlet.dead:
                return
            try:
                self._greenlet.throw(GreenletExit)
            except BaseException:  # noqa: BLE001 - nothing that it still says matters
                continue


class SimThreads:
    """The threads of one host's disk.

    Args:
        hanging: what work at a path has to wait for now.
    """

    def __init__(self, loop: SimLoop, source: random.Random, *, hanging: Callable[[str], asyncio.Event | None]) -> None:
        self.loop = loop
        self._random = source
        self.hanging = hanging
        #: The thread whose code is running, and no other's.
        self.current: SimThread | None = None
        #: Directory with a slash at the end ("" for all others) -> its threads under way, and those that have to wait until one ends.
        self._working: dict[str, dict[SimThread, None]] = {"": {}}
        self._waiting: dict[str, deque[SimThread]] = {"": deque()}
        #: Those of dead processes, and of disks that were given up: they are kept so that none is unwound before its time.
        self._left: list[SimThread] = []
        #: Those that were under way when the disk was given up, and got new threads.
        self._former: dict[SimThread, None] = {}
        #: A directed test sets (1.0,): each stops before each operation.
        self.restless: tuple[float, ...] = _RESTLESS
        self.closed = False
        loop.at_close(self.close)

    def separate(self, path: str) -> None:
        """New threads for work below this directory. Those before end with their next operation."""
        prefix = f"{path.rstrip('/')}/"
        self._former.update(self._working.get(prefix, {}))
        self._replace(prefix)

    def is_idle(self, path: str) -> bool:
        """Whether no work below this directory is under way, or waits for a thread."""
        prefix = self._prefix(path)
        return not self._working[prefix] and not any(not thread.future.cancelled() for thread in self._waiting[prefix])

    def process_died(self) -> None:
        """All threads are gone with it."""
        self._former.clear()
        for prefix in list(self._working):
            self._replace(prefix)

    def _replace(self, prefix: str) -> None:
        self._left += self._working.get(prefix, {})
        self._working[prefix], self._waiting[prefix] = {}, deque()

    def _prefix(self, path: str) -> str:
        for prefix in self._working:
            if prefix and (path.startswith(prefix) or path == prefix[:-1]):
                return prefix
        return ""

    def run(self, function: Callable[[], object], at: str) -> asyncio.Future[object]:
        """Begin as soon as a thread is free; a waiter that gives up does not end a function that has begun."""
        is_slow = self._random.randrange(_SLOW_ONE_IN) == 0
        thread = SimThread(self, function, at, self._random.choice(self.restless), is_slow=is_slow)
        prefix = self._prefix(at)
        if len(self._working[prefix]) < _THREADS:
            self._working[prefix][thread] = None
            thread.step()
        else:
            self._waiting[prefix].append(thread)
        return thread.future

    def ended(self, thread: SimThread) -> None:
        """Its thread is free for the next that still has a waiter."""
        self._former.pop(thread, None)
        for prefix, working in self._working.items():
            if thread in working:
                del working[thread]
                waiting = self._waiting[prefix]
                while waiting and len(working) < _THREADS:
                    following = waiting.popleft()
                    if not following.future.cancelled():
                        working[following] = None
                        self.loop.call_soon(following.resume)
                return

    def before_operation(self) -> None:
        """The seam is about to do an operation; the running thread may have to wait. Raises OSError if it was left behind."""
        thread = self.current
        if thread is not None:
            thread.stop(self._random)
            if thread in self._former:
                raise OSError(errno.ESTALE, "the disk was given up before this could begin", thread.at)

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Operations of the harness within an operation are not the thread's."""
        thread = self.current
        if thread is None:
            yield
            return
        self.current, self.loop.in_thread = None, False
        try:
            yield
        finally:
            self.current, self.loop.in_thread = thread, True

    def close(self) -> None:
        """The loop closes: end all that is left."""
        self.closed = True
        for thread in [*self._left, *(each for working in self._working.values() for each in working)]:
            thread.dispose()
        self._left.clear()
        self._working.clear()
