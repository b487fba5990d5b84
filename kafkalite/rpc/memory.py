"""The bound on the memory of requests under way, over all connections of a listener."""

from __future__ import annotations

import asyncio


class RequestMemory:
    """Counts bytes that were received and not yet answered; makes readers wait above the limit.

    Readers of whole requests only ever wait for answers. If incomplete frames alone fill the memory, none
    of them could ever end: then the reader that has waited longest in the middle of a frame goes on, one at
    a time, so that the limit is exceeded by at most one frame (and by what one read of each connection brought).
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        #: Bytes of `used_bytes` that belong to incomplete frames.
        self.incomplete_bytes = 0
        #: By owner, in the order in which they came; each waits once at a time. The flag: it waits in the middle of a frame.
        self._waiters: dict[object, tuple[asyncio.Future[None], bool]] = {}
        self._overdrawn_by: object | None = None

    @property
    def has_room(self) -> bool:
        """Whether anybody may read on."""
        return self.used_bytes < self.limit_bytes

    @property
    def shortage_of_incomplete(self) -> int:
        """Bytes of incomplete frames that must go so that they take half of the memory at most; 0 while nobody waits.

        What complete requests hold is given back with their answers.
        """
        return max(0, self.incomplete_bytes - self.limit_bytes // 2) if self._waiters else 0

    def take(self, size: int) -> None:
        """Count bytes that have come in."""
        self.used_bytes += size

    def give_back(self, size: int) -> None:
        """Uncount bytes whose request is answered or whose connection is gone."""
        self.used_bytes -= size
        assert self.used_bytes >= 0
        if self._waiters:
            self._wake()

    def mark_incomplete(self, change: int) -> None:
        """Report how the bytes of incomplete frames changed."""
        self.incomplete_bytes += change
        self._wake()

    def end_overdraft(self, owner: object) -> None:
        """`owner`'s frame is complete, or its connection gone: the next may exceed the limit."""
        if self._overdrawn_by is owner:
            self._overdrawn_by = None
            self._wake()

    def leave(self, owner: object, size: int, incomplete: int) -> None:
        """`owner` is closed: what it has is given back at once, also while it waits. Else connections that are closed would hold the memory for
        which they wait."""
        waiting = self._waiters.pop(owner, None)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_result(None)
        self.used_bytes -= size
        self.incomplete_bytes -= incomplete
        if self._overdrawn_by is owner:
            self._overdrawn_by = None
        assert self.used_bytes >= 0
        self._wake()

    async def wait_for_room(self, owner: object, *, in_frame: bool) -> None:
        """Return when `owner` may read on, or has left."""
        while not self.has_room and self._overdrawn_by is not owner:
            if in_frame and self._overdrawn_by is None and self.incomplete_bytes >= self.used_bytes:
                self._overdrawn_by = owner
                return
            waiter = asyncio.get_running_loop().create_future()
            self._waiters[owner] = (waiter, in_frame)
            try:
                await waiter
            finally:
                has_left = self._waiters.pop(owner, None) is None
            if has_left:
                return

    def _wake(self) -> None:
        if not self._waiters:
            return
        room = self.has_room
        stuck = self._overdrawn_by is None and self.incomplete_bytes >= self.used_bytes
        for waiter, in_frame in list(self._waiters.values()):
            if waiter.done():
                continue
            if room:
                waiter.set_result(None)
            elif stuck and in_frame:
                waiter.set_result(None)
                return


class ConnectionMemory:
    """What one connection has taken of the memory of all."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self._charged = 0
        self._released = False
        #: Bytes of the frame that is half received.
        self.incomplete_bytes = 0

    def charge(self, size: int) -> None:
        """Bytes have come in."""
        if not self._released:
            self._charged += size
            self._memory.take(size)

    def uncharge(self, size: int) -> None:
        """Their request is answered."""
        if not self._released:
            self._charged -= size
            self._memory.give_back(size)

    def set_incomplete(self, size: int) -> None:
        """The frame that is half received has this size now; 0: there is none."""
        if self._released:
            return
        change = size - self.incomplete_bytes
        if not change:  # most reads end with a frame, as the one before did
            return
        self.incomplete_bytes = size
        self._memory.mark_incomplete(change)
        if not size:
            self._memory.end_overdraft(self)

    async def wait_for_room(self) -> None:
        """Return when this connection may read on, or has released what it had."""
        if not self._released:
            await self._memory.wait_for_room(self, in_frame=self.incomplete_bytes > 0)

    def release(self) -> None:
        """The connection is closed: it has nothing more, takes nothing more, and waits for nothing."""
        if self._released:
            return
        self._released = True
        self._memory.leave(self, self._charged, self.incomplete_bytes)
        self._charged = self.incomplete_bytes = 0
