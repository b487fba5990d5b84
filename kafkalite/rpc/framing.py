"""Frames, without I/O: bytes in, frames out; messages in, buffers out.

    u32 frame length (of what follows) | u32 header length | header (msgpack) | body

The header is the array [kind, correlation id, [fields of the message]]. The body is raw (record batches) and
is never copied here, neither by `encode_frame` nor for a frame that arrived in one piece. All integers outside
the header are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgpack

from kafkalite.errors import ProtocolError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer
from kafkalite.rpc.codec import UNPACK_ERRORS, to_fields
from kafkalite.rpc.messages.base import Message

_PREFIX = struct.Struct(">II")
PREFIX_BYTES = _PREFIX.size

#: A stranger (no hello yet) may send no larger frame than this.
HELLO_FRAME_BYTES = 16 * 1024
#: msgpack may unpack to some sixty times its size, so what a client may send as a header is small
#: beside a frame; nodes send each other whole clusters' states.
CLIENT_HEADER_BYTES = 1024 * 1024
NODE_HEADER_BYTES = 64 * 1024 * 1024

_MAX_ID = 2**63 - 1

#: An incomplete frame that misses so much is worth a buffer of its own, see `FrameReader.room`.
ROOM_BYTES = 256 * 1024
#: One that is being used and one that is being filled.
_BUFFERS_KEPT = 2
_BUFFER_STEP = 1024 * 1024


@dataclass(slots=True)
class Frame:
    """One frame as it came; its message is still an unpacked array. `size` is all its bytes on the wire."""

    kind: int
    correlation_id: int
    fields: list[Any]
    body: memoryview
    size: int


def encode_frame(correlation_id: int, message: Message, body: Sequence[Buffer] = ()) -> list[Buffer]:
    """The buffers of one frame: prefix and header in the first, then `body` as it is, uncopied; none is empty.

    The caller must not change `body`'s buffers until they are written.
    """
    header: bytes = msgpack.packb((message.kind, correlation_id, to_fields(message)))
    size = 4 + len(header)
    for part in body:
        size += part.nbytes if isinstance(part, memoryview) else len(part)
    if size > 0xFFFFFFFF:
        raise ValueError(f"a frame of {size} bytes does not fit into 32 bits")
    # Of an empty buffer at the end of a writelines() asyncio, since Python 3.12, never gets rid: its loop spins on it.
    return [_PREFIX.pack(size, len(header)) + header, *filter(len, body)]


class FrameReader:
    """Cuts a byte stream into frames.

    Args:
        max_frame_bytes: refuse a larger frame, as soon as its length is known. May be changed between calls.
        max_header_bytes: the same for the packed header.

    Holds at most one incomplete frame. A frame that arrives within one `feed` is a view of the bytes fed.
    """

    def __init__(self, *, max_frame_bytes: int, max_header_bytes: int = NODE_HEADER_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.max_header_bytes = max_header_bytes
        self._parts: list[bytes | memoryview] = []
        #: Bytes of the incomplete frame that are here.
        self.buffered = 0
        #: Bytes that the incomplete frame needs in all, as far as known.
        self._needed = PREFIX_BYTES
        #: The incomplete frame's own buffer, once `room` has been asked for it.
        self._whole: memoryview | None = None
        self._buffers: list[bytearray] = []

    @property
    def missing(self) -> int:
        """How many bytes to the end of the incomplete frame (or of its prefix) at least."""
        return self._needed - self.buffered

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, in order.

        Raises:
            ProtocolError: what came is no frame. The reader must not be used again.
        """
        assert self._whole is None, "the rest of this frame goes into its room"
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
            if self._needed == PREFIX_BYTES:
                self._needed = self._length(head, 0)
                if self._needed > PREFIX_BYTES:
                    self._parts.append(head)
                    self.buffered = PREFIX_BYTES
                    return self.feed(data[taken:])
            frames = [self._frame(memoryview(head))]
            self._needed = PREFIX_BYTES
            self._scan(data, taken, frames)
            return frames
        frames = []
        self._scan(data, 0, frames)
        return frames

    def room(self) -> memoryview | None:
        """Where the rest of the incomplete frame may be received into, to be told by `received`; None: `feed` what comes.

        For who reads frames of some MiB: pieces are not joined, and no memory is fetched anew for each frame. A frame's
        body is a view of the buffer, which is used again when nobody has a view of it any more.
        """
        if self._whole is None:
            if self.missing < ROOM_BYTES:
                return None
            self._whole = memoryview(self._free_buffer(self._needed))[: self._needed]
            position = 0
            for part in self._parts:
                self._whole[position : position + len(part)] = part
                position += len(part)
            self._parts.clear()
        return self._whole[self.buffered :]

    def received(self, count: int) -> list[Frame]:
        """The frame, if these `count` bytes in its room completed it. Raises ProtocolError."""
        assert self._whole is not None
        self.buffered += count
        if self.buffered < self._needed:
            return []
        frame = self._frame(self._whole)
        self._whole, self.buffered, self._needed = None, 0, PREFIX_BYTES
        return [frame]

    def _free_buffer(self, size: int) -> bytearray:
        for buffer in self._buffers:
            if len(buffer) >= size and _is_unseen(buffer):
                return buffer
        buffer = bytearray(-(-size // _BUFFER_STEP) * _BUFFER_STEP)
        self._buffers = [*self._buffers, buffer][-_BUFFERS_KEPT:]
        return buffer

    def _scan(self, data: bytes, position: int, frames: list[Frame]) -> None:
        view = memoryview(data)
        end = len(data)
        while end - position >= PREFIX_BYTES:
            size = self._length(data, position)
            if end - position < size:
                self._needed = size
                break
            frames.append(self._frame(view[position : position + size]))
            position += size
            self._needed = PREFIX_BYTES
        if position < end:
            self._parts.append(data[position:])
            self.buffered = end - position

    def _length(self, data: bytes, position: int) -> int:
        """The whole size of the frame whose prefix is at `position`, checked against the limits."""
        frame_length, header_length = _PREFIX.unpack_from(data, position)
        if frame_length > self.max_frame_bytes:
            raise ProtocolError(f"frame of {frame_length} bytes, limit {self.max_frame_bytes}")
        if header_length > self.max_header_bytes:
            raise ProtocolError(f"frame header of {header_length} bytes, limit {self.max_header_bytes}")
        if header_length + 4 > frame_length:
            raise ProtocolError(f"frame header of {header_length} bytes in a frame of {frame_length}")
        return 4 + int(frame_length)

    def _frame(self, view: memoryview) -> Frame:
        header_end = PREFIX_BYTES + _PREFIX.unpack_from(view)[1]
        try:
            header = msgpack.unpackb(view[PREFIX_BYTES:header_end], strict_map_key=False)
        except UNPACK_ERRORS as error:
            raise ProtocolError(f"frame header is not msgpack: {error}") from None
        if type(header) is not list or len(header) < 3:
            raise ProtocolError("frame header is not [kind, correlation id, fields]")
        kind, correlation_id, fields = header[:3]
        if type(kind) is not int or type(correlation_id) is not int or type(fields) is not list:
            raise ProtocolError("frame header is not [kind, correlation id, fields]")
        if not (0 <= kind <= 0xFFFF and 0 <= correlation_id <= _MAX_ID):
            raise ProtocolError(f"frame header out of range: kind {kind}, correlation id {correlation_id}")
        return Frame(kind, correlation_id, fields, view[header_end:], len(view))


def _is_unseen(buffer: bytearray) -> bool:
    """Nobody has a view of it: one that is seen refuses to change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
