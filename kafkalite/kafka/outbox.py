"""Answers of one connection on their way to its transport, and their share of the listener's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.kafka.answers import AnswerMemory
from kafkalite.model import Buffer

#: Answers with a piece this large are written as a vector, others joined.
_VECTOR_BYTES = 4096


class Outbox:
    """Counts in `memory`, beside its own bytes, what lies in a transport that does not get rid of it."""

    __slots__ = (
        "_has_large",
        "_held",
        "_held_here",
        "_is_dropped",
        "_is_stuck",
        "_memory",
        "_pieces",
        "_postponed",
        "bytes",
        "transport",
        "unread_bytes",
        "unread_since",
    )  # fmt: skip

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        #: None before the connection is made, and after its end.
        self.transport: asyncio.Transport | None = None
        self._is_dropped = False
        self._pieces: list[Buffer] = []
        self._has_large = False
        #: Of what `write` would hand over; 0: there is nothing.
        self.bytes = 0
        #: Counted bytes of answers: all that the transport was not given yet; those of them in `_pieces`.
        self._held = 0
        self._held_here = 0
        #: What is counted for this connection: `_held`, and what the transport has.
        self.unread_bytes = 0
        #: Monotonic seconds since when the peer does not read what it is sent; 0 if it does.
        self.unread_since = 0.0
        self._is_stuck = False
        self._postponed: list[Callable[[], None]] = []

    def add(self, pieces: list[Buffer], counted: int) -> None:
        """One answer, of which `counted` bytes are held."""
        for piece in pieces:
            if size := len(piece):  # why: framing.encode_frame
                self._pieces.append(piece)
                self.bytes += size
                if size > _VECTOR_BYTES:
                    self._has_large = True
        self._held_here += counted

    def hold(self, size: int) -> None:
        """Bytes of a response that is to be sent; negative: they are not in memory any more."""
        if not self._is_dropped:
            self._held += size
            self._count()

    def write(self) -> None:
        """Hand everything to the transport."""
        transport = self.transport
        assert transport is not None
        out, self._pieces, self.bytes = self._pieces, [], 0
        is_vector, self._has_large = self._has_large, False
        if not out or transport.is_closing():
            return  # it broke, which `connection_lost` is about to report; uvloop's would raise RuntimeError
        if len(out) == 1:
            transport.write(out[0])
        elif is_vector:
            transport.writelines(out)
        else:
            transport.write(b"".join(out))
        if self._held_here or self._is_stuck:
            self._held -= self._held_here
            self._held_here = 0
            self._count()

    def paused(self, now: float) -> None:
        """The peer does not read."""
        self._is_stuck = True
        self.unread_since = self.unread_since or now

    def postpone(self, start: Callable[[], None]) -> None:
        """Call `start` when the peer has read what it was sent; never if it is gone by then."""
        self._postponed.append(start)

    def resumed(self) -> None:
        """The peer has read what it was sent."""
        self._is_stuck = False
        self.unread_since = 0.0
        self._count()
        postponed, self._postponed = self._postponed, []
        for start in postponed:
            start()

    def _count(self) -> None:
        """Report to the listener's memory."""
        size = self._held
        if self._is_stuck and self.transport is not None:
            size += self.transport.get_write_buffer_size()
        if size != self.unread_bytes:
            self._memory.change(size - self.unread_bytes)
            self.unread_bytes = size

    def drop(self) -> None:
        """The connection is lost."""
        self._is_dropped = True
        self.transport = None
        self._pieces, self.bytes = [], 0
        self._postponed = []
        self._held = self._held_here = 0
        self._count()
