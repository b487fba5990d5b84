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

from kafkalite import frames
from kafkalite.errors import ProtocolError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer
from kafkalite.rpc.codec import UNPACK_ERRORS, to_fields
from kafkalite.rpc.messages.base import Message

_PREFIX = struct.Struct(">II")
PREFIX_BYTES = _PREFIX.size

#: Size of the largest frame that a peer may send before its hello.
HELLO_FRAME_BYTES = 16 * 1024
#: What the length of a frame can be.
LARGEST_FRAME_BYTES = 0xFFFFFFFF
#: Nodes send each other whole clusters' states.
NODE_HEADER_BYTES = 64 * 1024 * 1024

_MAX_ID = 2**63 - 1


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
    if size > LARGEST_FRAME_BYTES:
        raise ValueError(f"a frame of {size} bytes does not fit into 32 bits")
    # Of an empty buffer at the end of a writelines() asyncio, since Python 3.12, never gets rid: its loop spins on it.
    return [_PREFIX.pack(size, len(header)) + header, *filter(len, body)]


class RpcFrameReader(frames.FrameReader[Frame]):
    """Cuts a byte stream into frames.

    Args:
        max_frame_bytes: refuse a larger frame, as soon as its length is known. May be changed between calls.
        max_header_bytes: the same for the packed header.
    """

    def __init__(self, *, max_frame_bytes: int, max_header_bytes: int = NODE_HEADER_BYTES) -> None:
        super().__init__(PREFIX_BYTES)
        self.max_frame_bytes = max_frame_bytes
        self.max_header_bytes = max_header_bytes

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
