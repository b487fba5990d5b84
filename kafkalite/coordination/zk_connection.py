"""One connection to one ZooKeeper server: frames out, answers and events in. Knows nothing of sessions."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from kafkalite.coordination import zk_codec as codec
from kafkalite.coordination.coordinator import CoordinatorError, NotSentError, OutcomeUnknownError
from kafkalite.errors import ProtocolError
from kafkalite.lazy_dataclass import dataclass

_LENGTH = struct.Struct("!i")
_READ_BYTES = 256 * 1024
#: Larger answers than this are a broken peer's (a list of 500,000 children is about 20 MB).
_MAX_ANSWER_BYTES = 64 * 1024 * 1024


@dataclass(eq=False, slots=True)
class Pending:
    """A request that waits for its answer. `on_answer` runs before anything that came later is looked at."""

    xid: int
    future: asyncio.Future[Any]
    decode: codec.Decoder
    on_answer: Callable[[Any], None] | None = None


class ZkConnection:
    """Requests are answered in order, so the waiting ones are a queue.

    Args:
        on_reply: (zxid) of every answer, errors too.
        on_event: (event type, path) of every watch event.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        on_reply: Callable[[int], None],
        on_event: Callable[[int, str], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_reply = on_reply
        self._on_event = on_event
        self._pending: deque[Pending] = deque()
        self._unwritten: list[bytes] = []
        self._unsent = 0
        self._received = bytearray()
        self.closed = False

    # --- out -------------------------------------------------------------------------------------------------

    def send(self, frame: bytes, pending: Pending) -> None:
        """Queue a request; all that is queued in one turn of the loop leaves in one write."""
        if self.closed:
            raise NotSentError("not connected")
        self._pending.append(pending)
        self._unsent += 1
        self._write(frame)

    def send_special(self, frame: bytes) -> None:
        """A frame whose answer nobody waits for (SetWatches, auth)."""
        if not self.closed:
            self._write(frame)

    def ping(self) -> None:
        """A heartbeat."""
        if not self.closed:
            self._write(codec.ping())

    def _write(self, frame: bytes) -> None:
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unwritten.append(_LENGTH.pack(len(frame)) + frame)

    def _flush(self) -> None:
        if self.closed or self._writer.transport.is_closing():
            return  # the connection broke, and its reader is about to abort it: what is here was not sent
        frames, self._unwritten = self._unwritten, []
        self._unsent = 0
        if frames:
            self._writer.write(b"".join(frames))

    # --- in --------------------------------------------------------------------------------------------------

    async def read_frame(self) -> bytes:
        """The next frame. Raises EOFError, OSError, ProtocolError."""
        while True:
            if len(self._received) >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(self._received)
                if not 0 <= size <= _MAX_ANSWER_BYTES:
                    raise ProtocolError(f"frame of {size} bytes")
                end = _LENGTH.size + size
                if len(self._received) >= end:
                    frame = bytes(memoryview(self._received)[_LENGTH.size : end])
                    del self._received[:end]
                    return frame
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise EOFError("the server closed the connection")
            self._received += data

    async def run(self) -> None:
        """Handle what comes until the connection breaks. Raises EOFError, OSError, ProtocolError."""
        while True:
            self._handle_received()
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise EOFError("the server closed the connection")
            self._received += data

    def _handle_received(self) -> None:
        received, at, total = self._received, 0, len(self._received)
        try:
            while total - at >= _LENGTH.size and not self.closed:
                (size,) = _LENGTH.unpack_from(received, at)
                if not 0 <= size <= _MAX_ANSWER_BYTES:
                    raise ProtocolError(f"frame of {size} bytes")
                end = at + _LENGTH.size + size
                if end > total:
                    break
                frame = bytes(received[at + _LENGTH.size : end])
                at = end
                self._handle(frame)
        except (struct.error, UnicodeDecodeError) as error:
            raise ProtocolError(f"cannot be decoded: {error}") from None
        finally:
            del received[:at]

    def _handle(self, frame: bytes) -> None:
        header, at = codec.decode_header(frame)
        if header.xid == codec.WATCH_XID:
            self._on_event(*codec.decode_event(frame, at))
        elif header.xid == codec.PING_XID:
            self._on_reply(header.zxid)
        elif header.xid == codec.AUTH_XID:
            if header.error:
                raise codec.error_of(-115, "credentials refused")
        elif header.xid == codec.SET_WATCHES_XID:
            if header.error:
                raise ProtocolError(f"SetWatches refused: {header.error}")
        else:
            self._answer(header, frame, at)

    def _answer(self, header: codec.ReplyHeader, frame: bytes, at: int) -> None:
        if not self._pending or self._pending[0].xid != header.xid:
            raise ProtocolError(f"response {header.xid} to no request")
        if header.error == codec.SESSION_MOVED:
            raise ProtocolError("the session has moved to another server")
        pending = self._pending[0]
        self._on_reply(header.zxid)
        result: Any = None
        refused: CoordinatorError | None = None
        try:
            if header.error:
                raise codec.error_of(header.error)
            result = pending.decode(frame, at)
        except CoordinatorError as error:
            refused = error
        self._pending.popleft()  # not before: if the answer cannot be decoded, `abort` says that the outcome is unknown
        if pending.on_answer is not None:
            pending.on_answer(result if refused is None else refused)
        if pending.future.done():
            return
        if refused is None:
            pending.future.set_result(result)
        else:
            pending.future.set_exception(refused)

    # --- the end ---------------------------------------------------------------------------------------------

    def abort(self, reason: str) -> None:
        """Close at once. What was handed to the socket has an unknown outcome; the rest was not sent."""
        if self.closed:
            return
        self.closed = True
        self._writer.transport.abort()
        unsent, self._unsent = self._unsent, 0
        self._unwritten.clear()
        while self._pending:
            pending = self._pending.popleft()
            if not pending.future.done():
                written = len(self._pending) >= unsent
                pending.future.set_exception(OutcomeUnknownError(reason) if written else NotSentError(reason))
