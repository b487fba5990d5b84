"""One connection to a node: requests pipelined, answers matched by correlation id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kafkalite.env.seams import Network
from kafkalite.env.streams import close_when_written, cut
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ErrorCode, KafkaliteError, ProtocolError, api_error, error_code
from kafkalite.model import Buffer, Endpoint
from kafkalite.rpc.answers import (
    Answer,
    RpcDisconnected,
    RpcError,
    RpcNotSent,
    RpcRefused,
    RpcTimeout,
    answer_of,
    check_hello,
    dialling_error,
)
from kafkalite.rpc.framing import (
    NODE_HEADER_BYTES,
    PREFIX_BYTES,
    Frame,
    RpcFrameReader,
    encode_frame,
)
from kafkalite.rpc.logins import LoginNetwork, RpcLogin, keep_logged_in
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import HelloRequest, HelloResponse
from kafkalite.telemetry.logs import get_logger

__all__ = [
    "Answer", "RpcConnection", "RpcDisconnected", "RpcError", "RpcNotSent", "RpcRefused", "RpcTimeout", "error_code",
]  # fmt: skip

_log = get_logger(__name__)

READ_BYTES = 1024 * 1024
#: `call` waits for the peer to take what is written before it adds more than this.
WRITE_HIGH_BYTES = 8 * 1024 * 1024


class _Unsendable(RpcNotSent):
    """It cannot be encoded (a number beyond 64 bits, half a character), or it is so large that the peer would cut the connection."""


class RpcConnection:
    """Made by `open`. Safe for many concurrent callers of one loop.

    Attributes:
        peer: what the other end said in its hello.
        on_closed: called once when the connection is over, whichever side ended it.
    """

    peer: HelloResponse

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        endpoint: Endpoint,
        *,
        max_frame_bytes: int,
        max_header_bytes: int = NODE_HEADER_BYTES,
    ) -> None:
        self.endpoint = endpoint
        self.closed = False
        self.on_closed: Callable[[], None] | None = None
        self._reader = reader
        self._writer = writer
        self._frames = RpcFrameReader(max_frame_bytes=max_frame_bytes)
        #: Of a request, as the peer takes it.
        self._max_header_bytes = max_header_bytes
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[type[Message], asyncio.Future[Answer]]] = {}
        #: Calls that wait: until when, for how long, and with what.
        self._deadlines: dict[asyncio.Future[Answer], tuple[float, float, Message]] = {}
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._armed_until = 0.0
        self._next_id = 0
        self._unsent: list[Buffer] = []
        self._task: asyncio.Task[None] | None = None
        #: A session that ends unless it is renewed, and the task that does so.
        self._login: RpcLogin | None = None
        self._keeper: asyncio.Task[None] | None = None

    @staticmethod
    async def open(
        network: Network,
        endpoint: Endpoint,
        hello: HelloRequest,
        *,
        supervisor: Supervisor,
        max_frame_bytes: int = 134_217_728,
        timeout_s: float = 10.0,
    ) -> RpcConnection:
        """Connect and exchange hellos.

        Raises:
            RpcNotSent: nobody answers there, or not in time.
            ApiError: the peer will not talk to us (INCONSISTENT_CLUSTER_ID, UNSUPPORTED_VERSION, BROKER_NOT_AVAILABLE).
        """
        connection: RpcConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                login: RpcLogin | None = None
                if isinstance(network, LoginNetwork):
                    reader, writer, login = await network.log_in(endpoint.host, endpoint.port)
                else:
                    reader, writer = await network.dial(endpoint.host, endpoint.port)
                connection = RpcConnection(reader, writer, endpoint, max_frame_bytes=max_frame_bytes)
                connection._task = supervisor.spawn(f"rpc.client[{endpoint}]", connection._read(), Policy.ISOLATED)
                connection.peer = check_hello((await connection.send_nowait(hello))[0])
                if login is not None:
                    connection._login = login
                    keeper = keep_logged_in(connection, login)
                    connection._keeper = supervisor.spawn(f"rpc.login[{endpoint}]", keeper, Policy.ISOLATED)
                opened, connection = connection, None
                return opened
        except TimeoutError:
            raise RpcNotSent(f"{endpoint}: no connection within {timeout_s:g} s") from None
        except ConnectionRefusedError as error:
            raise RpcRefused(f"{endpoint}: {error}") from None
        except OSError as error:
            raise RpcNotSent(f"{endpoint}: {str(error) or dialling_error(error)}") from None
        except RpcDisconnected as error:
            raise RpcNotSent(str(error)) from None
        finally:
            if connection is not None:
                connection.abort("hello failed")

    @property
    def write_backlog(self) -> int:
        """Bytes that the peer has not taken yet."""
        transport = self._writer.transport
        # asyncio's transport over TLS that has ended cannot say how much it holds.
        if self.closed or transport.is_closing():
            return 0
        return int(transport.get_write_buffer_size())

    def send_nowait(self, message: Message, body: Sequence[Buffer] = ()) -> asyncio.Future[Answer]:
        """Send in the order of calls; the future fails as `call` does. Raises RpcNotSent at once.

        If the answer is not wanted any more, cancel the future: the answer is dropped when it comes.
        """
        correlation_id = self._write(message, body)
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[correlation_id] = (type(message), future)
        return future

    def oneway(self, message: Message, body: Sequence[Buffer] = ()) -> None:
        """Send a request that has no answer (acks=0). Raises RpcNotSent."""
        self._write(message, body)

    async def call(self, message: Message, body: Sequence[Buffer] = (), *, timeout_s: float) -> Answer:
        """Send, and wait for the answer.

        Raises:
            RpcNotSent: certainly not executed.
            RpcDisconnected, RpcTimeout: not known. After a timeout the connection still stands.
            ApiError: the peer refused.
        """
        due = self._loop.time() + timeout_s
        try:
            if self.write_backlog > WRITE_HIGH_BYTES:
                async with asyncio.timeout_at(due):
                    await self._drain()
            future = self.send_nowait(message, body)
        except _Unsendable as error:
            raise api_error(ErrorCode.INVALID_REQUEST, str(error)) from None
        except TimeoutError:
            text = f"{self.endpoint}: {type(message).__name__} not answered within {timeout_s:g} s"
            raise RpcNotSent(text) from None
        self._deadlines[future] = (due, timeout_s, message)
        if self._deadline_timer is None or due < self._armed_until:
            self._arm(due)
        try:
            return await future
        finally:
            self._deadlines.pop(future, None)

    def _arm(self, due: float) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._armed_until = due
        self._deadline_timer = self._loop.call_at(due, self._expire)

    def _expire(self) -> None:
        """One timer for all calls: one for each would cost a fetch loop a tenth of its time."""
        self._deadline_timer = None
        now = self._loop.time()
        for future, (due, timeout_s, message) in list(self._deadlines.items()):
            if due <= now and not future.done():
                text = f"{self.endpoint}: {type(message).__name__} not answered within {timeout_s:g} s"
                future.set_exception(RpcTimeout(text))
        left = [due for future, (due, _, _) in self._deadlines.items() if not future.done()]
        if left:
            self._arm(min(left))

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was sent. Raises RpcNotSent when the connection is over."""
        if self.write_backlog > WRITE_HIGH_BYTES:
            await self._drain()

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise RpcNotSent(f"{self.endpoint}: {error}") from None

    def send_first(self, message: Message) -> asyncio.Future[Answer]:
        """As `send_nowait`, although the session has ended: a login. Raises RpcNotSent."""
        if self.closed or self._writer.transport.is_closing():
            raise RpcNotSent(f"{self.endpoint}: not connected")
        self._next_id += 1
        self._writer.writelines(encode_frame(self._next_id, message))
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[self._next_id] = (type(message), future)
        return future

    def resume(self) -> None:
        """The session was renewed: what waited for that goes out."""
        self._flush()

    async def close(self) -> None:
        """Send what is waiting to be sent, then close; unanswered calls fail with RpcDisconnected."""
        self._flush()
        self._end("closed", abort=False)
        if self._task is not None:
            self._task.cancel()

    def abort(self, reason: str) -> None:
        """Cut the connection now. What the peer has not got yet never arrives."""
        self._end(reason, abort=True)
        if self._task is not None:
            self._task.cancel()

    # --- inside ------------------------------------------------------------------------------

    def _write(self, message: Message, body: Sequence[Buffer]) -> int:
        if self.closed or self._writer.transport.is_closing():
            raise RpcNotSent(f"{self.endpoint}: not connected")
        self._next_id += 1
        try:
            buffers = encode_frame(self._next_id, message, body)
        except (OverflowError, UnicodeEncodeError) as error:
            raise _Unsendable(f"{type(message).__name__}: {error}") from None
        if (size := len(buffers[0]) - PREFIX_BYTES) > self._max_header_bytes:
            text = f"{type(message).__name__} has {size} bytes, nodes accept {self._max_header_bytes}"
            raise _Unsendable(text)
        if not self._unsent:
            # What one wake-up sends goes out in one system call.
            self._loop.call_soon(self._flush)
        self._unsent += buffers
        return self._next_id

    def _flush(self) -> None:
        if self._login is not None and self._login.has_ended(self._loop.time()):
            return  # its keeper logs in again first
        if self._unsent and not self.closed and not self._writer.transport.is_closing():
            buffers, self._unsent = self._unsent, []
            self._writer.writelines(buffers)

    async def _read(self) -> None:
        reason = "the peer closed the connection"
        try:
            while data := await self._reader.read(READ_BYTES):
                for frame in self._frames.feed(data):
                    self._take(frame)
        except ProtocolError as error:
            reason = str(error)
            _log.warning("rpc.bad_answer", peer=str(self.endpoint), reason=reason)
        except OSError as error:
            reason = str(error)
        finally:
            self._end(reason, abort=False)

    def _take(self, frame: Frame) -> None:
        entry = self._waiting.pop(frame.correlation_id, None)
        if entry is None:
            raise ProtocolError(f"response to {frame.correlation_id}, which was not requested")
        request, future = entry
        if future.done():
            return
        try:
            future.set_result(answer_of(request, frame))
        except ProtocolError as error:
            future.set_exception(RpcDisconnected(f"{self.endpoint}: {error}"))
            raise
        except KafkaliteError as error:
            future.set_exception(error)

    def _end(self, reason: str, *, abort: bool) -> None:
        if self.closed:
            return
        self.closed = True
        if self._keeper is not None:
            self._keeper.cancel()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        if abort:
            cut(self._writer.transport)
        else:
            close_when_written(self._writer.transport)
        waiting, self._waiting = self._waiting, {}
        for request, future in waiting.values():
            if not future.done():
                future.set_exception(RpcDisconnected(f"{self.endpoint}: {request.__name__}: {reason}"))
                # Nobody may be waiting any more: that is no error.
                future.exception()
        if self.on_closed is not None:
            self.on_closed()
