"""How fast a backup copies, several partitions at a time, and how far it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from kafkalite.env.side_by_side import SideBySide
from kafkalite_cli.output import size_text

#: A line of progress is written no more often (seconds).
_EVERY_S = 0.5


class Pace:
    """A limit in bytes/s over everything that is copied, and a line on the terminal. `total` is in the unit that `done` counts."""

    def __init__(self, what: str, total: int, *, limit: int | None, is_shown: bool) -> None:
        self._what = what
        self._total = total
        self._limit = limit
        self._is_shown = is_shown and sys.stderr.isatty()
        self._began = asyncio.get_running_loop().time()
        self._free_at = self._began
        self._shown_at = float("-inf")
        self.done = 0
        self.size = 0

    async def moved(self, size: int, done: int) -> None:
        """`size` bytes were copied, and `done` of the total: waits until the limit allows more."""
        now = asyncio.get_running_loop().time()
        self.size += size
        self.done += done
        if self._is_shown and now - self._shown_at >= _EVERY_S:
            self._shown_at = now
            self._show(now)
        if self._limit is not None:
            # Unused time is not saved up: a pause must not be followed by a burst.
            self._free_at = max(self._free_at, now - 1.0) + size / self._limit
            if self._free_at > now:
                await asyncio.sleep(self._free_at - now)

    def _show(self, now: float) -> None:
        seconds = max(now - self._began, 0.001)
        share = min(1.0, self.done / self._total) if self._total else 1.0
        left = f", {seconds / share - seconds:.0f} s left" if 0 < share < 1 and seconds > 2 else ""
        text = f"{self._what}: {share:.0%}, {size_text(self.size)}, {size_text(int(self.size / seconds))}/s{left}"
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    def close(self) -> None:
        """Remove the line."""
        if self._is_shown and self._shown_at > 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


async def each_in_parallel(
    items: Iterable[Any], work: Callable[[Any], Coroutine[Any, Any, None]], *, parallel: int
) -> None:
    """`work` for each item, at most `parallel` at a time; the first error ends all others and is raised."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with SideBySide() as group:
        for _ in range(parallel):
            group.create_task(worker())
