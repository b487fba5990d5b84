"""The requests of one connection that are under way, in the order in which they are to be answered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer
from kafkalite.rpc.framing import encode_frame
from kafkalite.rpc.handling import Reply
from kafkalite.telemetry.counters import Requests


@dataclass(slots=True)
class PendingResponse:
    """A request under way: its place in the order of answers."""

    correlation_id: int
    size: int
    is_fetch: bool
    done: bool = False
    reply: Reply | None = None
    waiting: asyncio.Future[Reply | None] | None = None
    #: Its handler has returned, and answers later with a LateReply.
    is_late: bool = False
    #: For the metrics: the API, when its handler was called, and when it returned (monotonic seconds).
    api: str = ""
    began: float = 0.0
    returned: float = 0.0


class PendingResponses:
    """In order of arrival.

    Args:
        requests: counts what was answered, if `monotonic` is given.
    """

    def __init__(self, requests: Requests, monotonic: Callable[[], float] | None) -> None:
        self._requests = requests
        self._monotonic = monotonic
        self._queue: deque[PendingResponse] = deque()
        #: How many of them are fetches.
        self.fetches = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, response: PendingResponse) -> None:
        """A request has come."""
        self._queue.append(response)
        self.fetches += response.is_fetch

    def take_answered(self) -> tuple[list[Buffer], int]:
        """The answers that are next in order, as frames; and the size of their requests."""
        queue = self._queue
        buffers: list[Buffer] = []
        released = 0
        while queue and queue[0].done:
            response = queue.popleft()
            released += response.size
            self.fetches -= response.is_fetch
            if response.reply is not None:
                buffers += encode_frame(response.correlation_id, response.reply.message, response.reply.body)
        return buffers, released

    def count(self, response: PendingResponse) -> None:
        """For the metrics: the answer is there."""
        if self._monotonic is not None and response.api:
            is_ready = response.waiting is None and not response.is_late
            ended = response.returned if is_ready else self._monotonic()
            self._requests.add(
                response.api.removesuffix("Request"), response.returned - response.began, ended - response.began
            )

    def drop(self) -> None:
        """The connection is gone. A coroutine is not cancelled: half a command would be worse than an answer that nobody takes."""
        for response in self._queue:
            if response.waiting is not None and not isinstance(response.waiting, asyncio.Task):
                response.waiting.cancel()
        self._queue.clear()
