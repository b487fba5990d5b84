"""Tasks that run beside each other within a block.

Not asyncio.TaskGroup: if one of its tasks fails, it cancels the task that waits for them, and Python 3.11 does not take all of that back. The
waiting task counts as being cancelled from then on, and with Python 3.11.2 (Debian 12's) the next asyncio.timeout that is over ends it: CancelledError in
the place of TimeoutError, which nobody reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

_T = TypeVar("_T")


class SideBySide:
    """At the end of the block all its tasks have ended.

    If one of them fails when the block is through, the others are cancelled. An error that leaves the block cancels all of them, and is raised; else
    the first error of a task, in the order in which they were created.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def create_task(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The coroutine is dropped: nothing may wait in it any more.
        is_dropped = kind is GeneratorExit
        try:
            if error is None and self._tasks:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        except GeneratorExit:
            is_dropped = True
            raise
        finally:
            for task in self._tasks:
                task.cancel()
            left = [task for task in self._tasks if not task.done()]
            if left and not is_dropped:
                await asyncio.wait(left)
        errors = self.errors()
        if error is None and errors:
            raise errors[0]

    def errors(self) -> list[BaseException]:
        """Of the tasks that have failed."""
        found = (task.exception() for task in self._tasks if task.done() and not task.cancelled())
        return [each for each in found if each is not None]
