"""Where `consume` prints: stdout may be a pipe that nobody reads, and must not hold up the loop."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

#: A pipe that is ready takes this many bytes at once without blocking (POSIX: PIPE_BUF; Linux: pipe(7)).
_PIPE_BYTES = 4096
#: While nobody reads, the thread looks this often whether it is still to write.
_PAUSE_MS = 100


class Printer:
    """Writes pieces (one record each) to a file descriptor, in a thread: heartbeats and signals go on while the reader takes its time.

    The caller adds pieces only when the last ones are written. The thread is a daemon, because nothing can wake it from a write to a
    terminal that has stopped.
    """

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        #: What is left of each piece.
        self._waiting: list[bytes] = []
        #: The first of them was begun: it is never dropped, so that lines stay whole.
        self._is_begun = False
        #: The first of them was dropped when it was begun: only its end is still written.
        self._is_dropped = False

    @property
    def is_waiting(self) -> bool:
        """Whether something is not written yet."""
        return bool(self._waiting)

    def add(self, pieces: Sequence[bytes]) -> None:
        """Pieces to be written after those that wait."""
        self._waiting += pieces

    def drop(self) -> None:
        """Forget what was not begun."""
        del self._waiting[self._is_begun :]
        self._is_dropped = self._is_begun

    async def write(self, is_over: Callable[[], bool]) -> int:
        """Write what waits, in order, until `is_over` says so. The thread calls it.

        Returns:
            How many pieces are written whole now, without one that was dropped.
        Raises:
            OSError: nobody can read it any more, or the disk is full.
        """
        if not self._waiting:
            return 0
        ends = list(accumulate(map(len, self._waiting), initial=0))
        written = await self._in_a_thread(b"".join(self._waiting), ends, is_over)
        whole = bisect_right(ends, written) - 1
        self._is_begun = written > ends[whole] or (self._is_begun and not whole)
        del self._waiting[:whole]
        if self._waiting:
            self._waiting[0] = self._waiting[0][written - ends[whole] :]
        if whole and self._is_dropped:
            self._is_dropped = False
            return whole - 1
        return whole

    async def _in_a_thread(self, data: bytes, ends: Sequence[int], is_over: Callable[[], bool]) -> int:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        given_up = threading.Event()

        def settle(outcome: int | Exception) -> None:
            if done.cancelled():
                return
            if isinstance(outcome, Exception):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

        def work() -> None:
            outcome: int | Exception
            try:
                outcome = self._copy(data, ends, lambda: given_up.is_set() or is_over())
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
                outcome = error
            try:
                loop.call_soon_threadsafe(settle, outcome)
            except RuntimeError:  # the loop is closed: nobody wants it any more
                return

        threading.Thread(target=work, name="stdout", daemon=True).start()
        try:
            return await done
        finally:
            given_up.set()

    def _copy(self, data: bytes, ends: Sequence[int], is_over: Callable[[], bool]) -> int:
        """How many bytes are written. When it is over, the piece that was begun is finished if somebody reads."""
        ready = select.poll()
        ready.register(self._fd, select.POLLOUT)
        view = memoryview(data)
        at, limit = 0, len(data)
        while at < limit:
            over = is_over()
            if over:
                limit = ends[1] if self._is_begun and not at else ends[bisect_left(ends, at)]
            if not ready.poll(0 if over else _PAUSE_MS):
                if over:
                    break
                continue
            try:
                at += os.write(self._fd, view[at : min(limit, at + _PIPE_BYTES)])
            except BlockingIOError:  # somebody else writes to the same pipe, and it does not block
                if over:
                    break
        return at
