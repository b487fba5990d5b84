"""One connection to a node: requests pipelined, answers matched by correlation id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kafkalite.env.seams import Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ErrorCode, KafkaliteError, ProtocolError, api_error
from kafkalite.model import Buffer, Endpoint
from kafkalite.rpc.answers import (
    Answer,
    RpcDisconnected,
    RpcNotSent,
    RpcTimeout,
    answer_of,
    check_hello,
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
from kafkalite.rpc.pipelining import WRITE_HIGH_BYTES, PipelinedConnection, opening
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class _Unsendable(RpcNotSent):
    """It cannot be encoded (a number beyond 64 bits, half a character), or it is so large that the peer would cut the connection."""


class RpcConnection(PipelinedConnection):
    """Made by `open`.

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
    ) -> None:
        super().__init__(reader, writer, endpoint)
        self.on_closed: Callable[[], None] | None = None
        self._frames = RpcFrameReader(max_frame_bytes=max_frame_bytes)
        self._waiting: dict[int, tuple[type[Message], asyncio.Future[Answer]]] = {}
        #: Calls that wait: until when, for how long, and with what.
        self._deadlines: dict[asyncio.Future[Answer], tuple[float, float, Message]] = {}
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._armed_until = 0.0
        self._next_id = 0
        #: A session that ends unless it is renewed.
        self._login: RpcLogin | None = None

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
            async with opening(endpoint, timeout_s):
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
        finally:
            if connection is not None:
                connection.abort("hello failed")

    def send_nowait(self, message: Message, body: Sequence[Buffer] = ()) -> asyncio.Future[Answer]:
        """Send in the order of calls; the future fails as `call` does. Raises RpcNotSent at once.

        If the answer is not wanted any more, cancel the future: the answer is dropped when it comes.
        """
        correlation_id = self._write(message, body)
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[correlation_id] = (type(message), future)
        return future

    def oneway(self, message: Message) -> None:
        """Send a request that has no answer (acks=0). Raises RpcNotSent."""
        self._write(message, ())

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
                    await self.drain()
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

    def send_first(self, message: Message) -> asyncio.Future[Answer]:
        """As `send_nowait`, although the session has ended: a login. Raises RpcNotSent."""
        self._check_open()
        self._next_id += 1
        self._writer.writelines(encode_frame(self._next_id, message))
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[self._next_id] = (type(message), future)
        return future

    def resume(self) -> None:
        """The session was renewed: what waited for that goes out."""
        self._flush()

    # --- inside ------------------------------------------------------------------------------

    def _write(self, message: Message, body: Sequence[Buffer]) -> int:
        self._check_open()
        self._next_id += 1
        try:
            buffers = encode_frame(self._next_id, message, body)
        except (OverflowError, UnicodeEncodeError) as error:
            raise _Unsendable(f"{type(message).__name__}: {error}") from None
        if (size := len(buffers[0]) - PREFIX_BYTES) > NODE_HEADER_BYTES:
            text = f"{type(message).__name__} has {size} bytes, nodes accept {NODE_HEADER_BYTES}"
            raise _Unsendable(text)
        self._queue(buffers)
        return self._next_id

    @property
    def _is_held(self) -> bool:
        return self._login is not None and self._login.has_ended(self._loop.time())  # its keeper logs in again first

    def _feed(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self._take(frame)

    def _log_bad(self, reason: str) -> None:
        _log.warning("rpc.bad_answer", peer=str(self.endpoint), reason=reason)

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

    def _ended(self, reason: str) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        waiting, self._waiting = self._waiting, {}
        for request, future in waiting.values():
            if not future.done():
                future.set_exception(RpcDisconnected(f"{self.endpoint}: {request.__name__}: {reason}"))
                # Nobody may be waiting any more: that is no error.
                future.exception()
        if self.on_closed is not None:
            self.on_closed()
