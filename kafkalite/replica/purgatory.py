"""Operations that wait: for the high watermark, for bytes, or for their deadline.

Deadlines are kept in one wheel with one timer, whatever the number of operations: adding and removing is O(1),
and an operation that is done leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Protocol

from kafkalite.errors import ErrorCode
from kafkalite.model import NO_OFFSET, Offset
from kafkalite.partition_values import ProducedPartition

#: Takes the results of a produce request: at once, or when what it waits for has come.
ProduceDone = Callable[[tuple[ProducedPartition, ...]], None]
#: How many bytes of records a response may have, asked when they are read; 0: none, otherwise at least one batch.
ResponseLimit = Callable[[], int]

#: Produce requests that may wait at once, and long polls of consumers.
MAX_WAITING = 100_000
#: Partitions of all long polls without a session, as for fetch sessions: each is some hundred bytes, and a client may have thousands of them
#: in each of its requests.
MAX_POLLED = 500_000
#: Moments in which nothing is due any more may be kept for these and for each operation; a client names any deadline up to 24 days away.
_SPARE_BUCKETS = 4_000


class Waiting:
    """Something with a deadline. Equal only to itself."""

    __slots__ = ("bucket",)

    def __init__(self) -> None:
        #: The wheel's bucket that holds it; -1 in none.
        self.bucket = -1

    def expire(self) -> None:
        """The deadline has come."""
        raise NotImplementedError


class DeadlineWheel:
    """Calls `expire` on what was added, at its deadline or up to `grain_ms` later."""

    def __init__(self, *, grain_ms: int = 10) -> None:
        self._grain_s = grain_ms / 1000
        self._buckets: dict[int, dict[Waiting, None]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_bucket = -1
        #: What is in it.
        self.count = 0
        #: The node stops: an operation that would wait again is answered instead.
        self.is_closed = False

    def __len__(self) -> int:
        return self.count

    def add(self, waiting: Waiting, delay_ms: int) -> None:
        """From now on `waiting` has a deadline, `delay_ms` from now."""
        assert waiting.bucket == -1
        loop = asyncio.get_running_loop()
        bucket = math.ceil((loop.time() + delay_ms / 1000) / self._grain_s)
        waiting.bucket = bucket
        members = self._buckets.get(bucket)
        self.count += 1
        if members is not None:
            members[waiting] = None
            return
        if len(self._buckets) > 2 * self.count + _SPARE_BUCKETS:
            self._buckets = {moment: members for moment, members in self._buckets.items() if members}
            self._order = sorted(self._buckets)
        self._buckets[bucket] = {waiting: None}
        heapq.heappush(self._order, bucket)
        if self._timer is None or bucket < self._timer_bucket:
            self._arm(loop)

    def discard(self, waiting: Waiting) -> None:
        """`waiting` has no deadline any more."""
        if waiting.bucket != -1:
            members = self._buckets.get(waiting.bucket)
            if members is not None and waiting in members:
                del members[waiting]
                self.count -= 1
            waiting.bucket = -1

    def expire_all(self) -> None:
        """Every deadline comes now (the node stops). What is added meanwhile keeps its own."""
        self.is_closed = True
        for bucket in [heapq.heappop(self._order) for _ in range(len(self._order))]:
            self._expire_bucket(bucket)
        self._arm(asyncio.get_running_loop())

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._order and not self._buckets.get(self._order[0]):  # everybody in it is done
            self._buckets.pop(heapq.heappop(self._order), None)
        if self._order:
            self._timer_bucket = self._order[0]
            self._timer = loop.call_at(self._timer_bucket * self._grain_s, self._fire)

    def _fire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        # A loop with coarse time may call a hair too early; the bucket it was armed for is due in any case.
        due = max(self._timer_bucket, math.floor(loop.time() / self._grain_s))
        while self._order and self._order[0] <= due:
            self._expire_bucket(heapq.heappop(self._order))
        if self._timer is None:
            self._arm(loop)

    def _expire_bucket(self, bucket: int) -> None:
        members = self._buckets.pop(bucket, {})
        self.count -= len(members)
        for waiting in members:
            waiting.bucket = -1
        for waiting in members:
            waiting.expire()


class DelayedProduce(Waiting):
    """A produce request with acks=all: answered when every partition of it is settled, or at its deadline."""

    __slots__ = ("_done", "_wheel", "is_done", "pending", "results", "waiters")

    def __init__(self, wheel: DeadlineWheel, size: int, done: ProduceDone) -> None:
        self.bucket = -1  # as Waiting does; each call more is paid for by each request
        self._wheel = wheel
        self._done = done
        self.results: list[ProducedPartition | None] = [None] * size
        self.waiters: list[ProduceWaiter] = []
        self.pending = 0
        self.is_done = False

    def settle(self, index: int, result: ProducedPartition) -> None:
        """One partition's answer is known."""
        self.results[index] = result
        self.pending -= 1
        if self.pending == 0:
            self.finish()

    def finish(self) -> None:
        """All answers are known: complete the request."""
        assert not self.is_done
        self.is_done = True
        if self.bucket != -1:
            self._wheel.discard(self)
        self.waiters = []
        assert None not in self.results
        self._done(tuple(self.results))  # type: ignore[arg-type]  # no None is left

    def expire(self) -> None:
        """What is not settled has timed out; the records may yet be committed."""
        waiters = self.waiters
        for waiter in waiters:
            waiter.settle(ErrorCode.REQUEST_TIMED_OUT)
        for waiter in waiters:
            waiter.partition.prune_produce_waiters()


class ProducedTo(Protocol):
    """The replica that the records were appended to."""

    def prune_produce_waiters(self) -> None:
        """Forget the waiters that are settled."""


class ProduceWaiter:
    """One partition of a delayed produce: waits until the high watermark reaches `required_offset`."""

    __slots__ = ("index", "is_settled", "operation", "partition", "required_offset", "success")

    def __init__(
        self,
        operation: DelayedProduce,
        index: int,
        partition: ProducedTo,
        required_offset: Offset,
        success: ProducedPartition,
    ) -> None:
        self.operation = operation
        self.index = index
        self.partition = partition
        self.required_offset = required_offset
        self.success = success
        self.is_settled = False

    def settle(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Committed, or failed with `error`. Only the first call counts."""
        if self.is_settled:
            return
        self.is_settled = True
        if error is ErrorCode.NONE:
            self.operation.settle(self.index, self.success)
        else:
            done = self.success
            self.operation.settle(self.index, ProducedPartition(done.topic, done.partition, error, NO_OFFSET))
