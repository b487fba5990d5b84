"""Stream readers that hand on what the socket gave, uncopied.

asyncio's StreamReader copies every byte three times (into its bytearray, out of it, and along in it), which for frames
of 1 MiB costs more than all the rest of the receiving. This one keeps the chunks as they came.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from kafkalite.model import Buffer

if TYPE_CHECKING:
    from ssl import SSLContext

#: Time in seconds that a peer has to answer the end of TLS.
_SHUTDOWN_S = 5.0
#: Time in seconds that a peer has to read the last bytes.
LINGER_S = 30.0
#: SO_LINGER, on, for 0 s: closing resets the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


class ChunkReader(asyncio.StreamReader):
    """A StreamReader for one reader that takes what is there: `read(n)` returns at most one chunk.

    `read`, `readexactly` and the feeding side work as asyncio's; `readuntil` and `readline` are not offered. What is
    not read is bounded: beyond twice `limit` bytes the transport is paused.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit)
        self._high_bytes = 2 * limit
        self._low_bytes = limit
        self._chunks: deque[bytes | memoryview] = deque()
        self._size = 0
        self._ended = False
        self._error: Exception | None = None
        self._wake: asyncio.Future[None] | None = None
        self._source: asyncio.ReadTransport | None = None
        self._is_paused = False

    # --- fed by the protocol ---------------------------------------------------------------------

    def set_transport(self, transport: asyncio.BaseTransport) -> None:
        super().set_transport(transport)
        self._source = cast(asyncio.ReadTransport, transport)  # uvloop's has another class

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]
        if not data:
            return
        self._chunks.append(data)
        self._size += len(data)
        self._notify()
        if self._size > self._high_bytes and not self._is_paused and self._source is not None:
            self._is_paused = True
            self._source.pause_reading()

    def feed_eof(self) -> None:
        self._ended = True
        self._notify()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self._error = exc
        self._notify()

    def _notify(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)

    # --- read by the owner -----------------------------------------------------------------------

    def at_eof(self) -> bool:
        return self._ended and not self._chunks

    async def read(self, n: int = -1) -> bytes:
        """What came next, at most `n` bytes; b"" at the end of the stream. Raises OSError when the connection broke."""
        if n < 0:
            parts = []
            while part := await self.read(self._high_bytes):
                parts.append(part)
            return b"".join(parts)
        if n == 0:
            return b""
        if self._error is not None:
            raise self._error
        while not self._chunks and not self._ended:
            await self._wait()
        if not self._chunks:
            return b""
        chunk = self._chunks.popleft()
        if len(chunk) > n:
            view = memoryview(chunk)
            self._chunks.appendleft(view[n:])
            chunk = view[:n]
        self._size -= len(chunk)
        if self._is_paused and self._size <= self._low_bytes and self._source is not None:
            self._is_paused = False
            self._source.resume_reading()
        return chunk if isinstance(chunk, bytes) else bytes(chunk)

    async def readexactly(self, n: int) -> bytes:
        """Raises IncompleteReadError, with what there was, if the stream ends before."""
        parts: list[bytes] = []
        left = n
        while left:
            part = await self.read(left)
            if not part:
                raise asyncio.IncompleteReadError(b"".join(parts), n)
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def readuntil(self, separator: object = b"\n") -> bytes:
        raise NotImplementedError("not offered: frames are cut by their owners")

    async def _wait(self) -> None:
        assert self._wake is None, "two readers on one stream"
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None
        if self._error is not None:
            raise self._error


class LateWriter(asyncio.StreamWriter):
    """A StreamWriter to which may be written, on uvloop too, when its connection has broken and nobody has noticed yet.

    What is written then is lost, as it is with asyncio's own transports: `drain` and the reader raise. uvloop's raise
    RuntimeError.
    """

    def write(self, data: Buffer) -> None:
        if not self.transport.is_closing():
            super().write(data)

    def writelines(self, data: Iterable[Buffer]) -> None:
        if not self.transport.is_closing():
            super().writelines(data)


StreamsAccepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


async def open_stream(
    host: str, port: int, limit: int, context: SSLContext | None = None
) -> tuple[ChunkReader, asyncio.StreamWriter]:
    """As asyncio.open_connection; TLS with a context. Raises OSError."""
    loop = asyncio.get_running_loop()
    reader = ChunkReader(limit)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        if context is None:
            transport, _ = await loop.create_connection(lambda: protocol, host, port)
        else:
            transport, _ = await loop.create_connection(
                lambda: protocol, host, port, ssl=context, server_hostname=host, ssl_shutdown_timeout=_SHUTDOWN_S
            )
    except OSError:  # before ValueError: a certificate that is refused is both
        raise
    except ValueError as error:  # UnicodeError is one
        raise OSError(f"{host!r} is not a host's name: {error}") from None
    return reader, LateWriter(transport, protocol, reader, loop)


class _AcceptedProtocol(asyncio.StreamReaderProtocol):
    def __init__(self, accepted: StreamsAccepted, limit: int) -> None:
        reader = ChunkReader(limit)
        super().__init__(reader)
        #: Until the connection is made; afterwards its owner keeps the reader, and nothing here refers back to us.
        self._owed: tuple[StreamsAccepted, ChunkReader] | None = (accepted, reader)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._owed is not None, "a protocol is of one connection"
        (accepted, reader), self._owed = self._owed, None
        # Not through asyncio's client_connected_cb: since Python 3.13 its writer closes the connection when nobody keeps it.
        accepted(reader, LateWriter(cast(asyncio.WriteTransport, transport), self, reader, asyncio.get_running_loop()))


def stream_protocol(accepted: StreamsAccepted, limit: int) -> asyncio.StreamReaderProtocol:
    """A connection's protocol, as asyncio.start_server makes them."""
    return _AcceptedProtocol(accepted, limit)


def close_when_written(transport: asyncio.WriteTransport) -> None:
    """Close; what is not read after LINGER_S is dropped, and the connection reset.

    A transport's own close() keeps what it could not write yet, and the socket, for as long as the peer likes.
    """
    if transport.is_closing():
        return  # asyncio's over TLS may be closed once only
    transport.close()
    if transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(LINGER_S, transport.abort)


def cut(transport: asyncio.WriteTransport) -> None:
    """Close at once; what the peer has not got by now never arrives.

    After a transport's own abort() the kernel still delivers what it has taken, after a partition of the network minutes later.
    """
    raw = transport.get_extra_info("socket")
    if raw is not None:
        # Closed already; uvloop's socket has no descriptor then, which is a ValueError.
        with contextlib.suppress(OSError, ValueError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def hung_up(transports: Iterable[asyncio.Transport]) -> list[asyncio.Transport]:
    """Those of sockets whose peers have closed them, also while their reading is paused. Transports without a socket are never."""
    waiting = select.poll()
    by_number: dict[int, asyncio.Transport] = {}
    for each in transports:
        raw = each.get_extra_info("socket")
        if raw is not None and not each.is_closing() and (number := raw.fileno()) >= 0:
            by_number[number] = each
            waiting.register(number, select.POLLRDHUP)
    if not by_number:
        return []
    return [by_number[number] for number, _ in waiting.poll(0)]
