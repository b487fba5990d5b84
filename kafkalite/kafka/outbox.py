"""Answers of one connection on their way to its transport, and their share of the listener's memory."""

from __future__ import annotations

import asyncio

from kafkalite.kafka.answers import AnswerMemory
from kafkalite.model import Buffer

#: Answers with a piece this large are written as a vector, others joined.
_VECTOR_BYTES = 4096


class Outbox:
    """Counts in `memory`, beside its own bytes, what lies in a transport that does not get rid of it."""

    __slots__ = ("_held", "_held_here", "_memory", "_pieces", "bytes", "unread_bytes")

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        self._pieces: list[Buffer] = []
        self.bytes = 0
        #: Counted bytes of answers: all that the transport was not given yet; those of them in `_pieces`.
        self._held = 0
        self._held_here = 0
        #: What is counted for this connection: `_held`, and what the transport has.
        self.unread_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, pieces: list[Buffer], counted: int) -> None:
        """One answer, of which `counted` bytes are held."""
        for piece in pieces:
            if size := len(piece):  # why: framing.encode_frame
                self._pieces.append(piece)
                self.bytes += size
        self._held_here += counted

    def hold(self, size: int, stuck: int) -> None:
        """Bytes of a response that is to be sent; negative: they are not in memory any more. `stuck`: see `count`."""
        self._held += size
        self.count(stuck)

    def write(self, transport: asyncio.Transport) -> bool:
        """Hand everything to the transport. Whether the bytes that are held have changed."""
        out, self._pieces, self.bytes = self._pieces, [], 0
        if not out or transport.is_closing():
            return False  # it broke, which `connection_lost` is about to report; uvloop's would raise RuntimeError
        if len(out) == 1:
            transport.write(out[0])
        elif any(len(piece) > _VECTOR_BYTES for piece in out):
            transport.writelines(out)
        else:
            transport.write(b"".join(out))
        held, self._held_here = self._held_here, 0
        self._held -= held
        return bool(held)

    def count(self, stuck: int) -> None:
        """Report to the listener's memory. `stuck`: bytes in a transport whose peer does not read."""
        size = self._held + stuck
        if size != self.unread_bytes:
            self._memory.change(size - self.unread_bytes)
            self.unread_bytes = size

    def drop(self) -> None:
        """The connection is lost."""
        self._pieces = []
        self._held = self._held_here = 0
        self.count(0)
