"""One queue of commands: carried out one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kafkalite.errors import ApiError, ErrorCode, api_error

T = TypeVar("T")

#: Commands that may wait; a controller has few under way at once.
MAX_QUEUED = 1_000


class CommandQueue:
    """`run` is its task."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Callable[[], Awaitable[object]], asyncio.Future[object]]] = deque()
        self._arrived = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                work, answer = self._queue.popleft()
                try:
                    result = await work()
                except ApiError as error:
                    if not answer.done():
                        answer.set_exception(error)
                        answer.exception()
                    continue
                if not answer.done():
                    answer.set_result(result)

    def place(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Take the next place, now; await the outcome. Raises ApiError THROTTLING_QUOTA_EXCEEDED."""
        if len(self._queue) >= MAX_QUEUED:
            raise api_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many commands are waiting")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append((work, answer))  # type: ignore[arg-type]
        self._arrived.set()
        return answer
