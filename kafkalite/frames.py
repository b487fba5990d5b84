"""Cuts a byte stream into frames that begin with their length. No I/O.

Subclasses define the frame: `rpc.framing` for nodes, `client.exchange` for Kafka's protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from kafkalite.large_buffer import LARGE_BYTES, large_buffer

#: Number of missing bytes from which an incomplete frame gets a buffer of its own, see `FrameReader.room`.
ROOM_BYTES = 256 * 1024
#: One that is being used and one that is being filled.
_BUFFERS_KEPT = 2
_BUFFER_STEP = 1024 * 1024

F = TypeVar("F")


class FrameReader(ABC, Generic[F]):
    """Holds at most one incomplete frame. A frame that arrives within one `feed` is a view of the bytes fed.

    Args:
        prefix_bytes: number of bytes that contain the length of the frame.
    """

    def __init__(self, prefix_bytes: int) -> None:
        self._prefix_bytes = prefix_bytes
        self._parts: list[bytes | memoryview] = []
        #: Bytes of the incomplete frame that are here.
        self.buffered = 0
        #: Bytes that the incomplete frame needs in all, as far as known.
        self._needed = prefix_bytes
        #: The incomplete frame's own buffer: a large one has it, and each for which `room` was asked.
        self._whole: memoryview | None = None
        self._buffers: list[bytearray] = []

    @abstractmethod
    def _length(self, data: bytes, position: int) -> int:
        """The whole size of the frame whose prefix is at `position`. Raises ProtocolError if it is too long."""

    @abstractmethod
    def _frame(self, view: memoryview) -> F:
        """The frame of these bytes, with its prefix. Raises ProtocolError."""

    @property
    def missing(self) -> int:
        """How many bytes to the end of the incomplete frame (or of its prefix) at least."""
        return self._needed - self.buffered

    def feed(self, data: bytes) -> list[F]:
        """The frames that `data` completes, in order.

        Raises:
            ProtocolError: what came is no frame. The reader must not be used again.
        """
        if self._whole is None and self.missing >= LARGE_BYTES:
            self._whole = self._begun(large_buffer(self._needed))
        if self._whole is not None:
            return self._feed_whole(self._whole, data)
        if self.buffered + len(data) < self._needed:
            if data:
                self._parts.append(data)
                self.buffered += len(data)
            return []
        if self._parts:
            # Only the incomplete frame's own bytes are joined: the rest of the chunk stays uncopied.
            taken = self.missing
            self._parts.append(memoryview(data)[:taken])
            head = b"".join(self._parts)
            self._parts.clear()
            self.buffered = 0
            if self._needed == self._prefix_bytes:
                self._needed = self._length(head, 0)
                if self._needed > self._prefix_bytes:
                    self._parts.append(head)
                    self.buffered = self._prefix_bytes
                    return self.feed(data[taken:])
            frames = [self._frame(memoryview(head))]
            self._needed = self._prefix_bytes
            self._scan(data, taken, frames)
            return frames
        frames = []
        self._scan(data, 0, frames)
        return frames

    def _feed_whole(self, whole: memoryview, data: bytes) -> list[F]:
        """Copied as it comes: pieces of a large frame that are joined at its end hold the loop for as long as that takes."""
        taken = min(self.missing, len(data))
        whole[self.buffered : self.buffered + taken] = memoryview(data)[:taken]
        frames = self.received(taken)
        if frames:
            self._scan(data, taken, frames)
        return frames

    def _begun(self, whole: memoryview) -> memoryview:
        """The incomplete frame's own buffer, with what is here of it."""
        position = 0
        for part in self._parts:
            whole[position : position + len(part)] = part
            position += len(part)
        self._parts.clear()
        return whole

    def room(self) -> memoryview | None:
        """Where the rest of the incomplete frame may be received into, to be confirmed by `received`; None: `feed` what comes.

        For a reader of frames of some MiB: pieces are not joined, and no memory is fetched again for each frame. A
        frame's body is a view of the buffer, which is used again when nobody has a view of it any more.
        """
        if self._whole is None:
            if self.missing < ROOM_BYTES:
                return None
            self._whole = self._begun(memoryview(self._free_buffer(self._needed))[: self._needed])
        return self._whole[self.buffered :]

    def received(self, count: int) -> list[F]:
        """The frame, if these `count` bytes in its room completed it. Raises ProtocolError."""
        assert self._whole is not None
        self.buffered += count
        if self.buffered < self._needed:
            return []
        frame = self._frame(self._whole)
        self._whole, self.buffered, self._needed = None, 0, self._prefix_bytes
        return [frame]

    def _free_buffer(self, size: int) -> bytearray:
        for buffer in self._buffers:
            if len(buffer) >= size and _is_unseen(buffer):
                return buffer
        buffer = bytearray(-(-size // _BUFFER_STEP) * _BUFFER_STEP)
        self._buffers = [*self._buffers, buffer][-_BUFFERS_KEPT:]
        return buffer

    def _scan(self, data: bytes, position: int, frames: list[F]) -> None:
        view = memoryview(data)
        end = len(data)
        while end - position >= self._prefix_bytes:
            size = self._length(data, position)
            if end - position < size:
                self._needed = size
                break
            frames.append(self._frame(view[position : position + size]))
            position += size
            self._needed = self._prefix_bytes
        if position < end:
            self._parts.append(data[position:])
            self.buffered = end - position


def _is_unseen(buffer: bytearray) -> bool:
    """Nobody has a view of it: one that is seen refuses to change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
