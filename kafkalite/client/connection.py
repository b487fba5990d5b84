"""One connection to a broker on asyncio: requests pipelined, responses matched by correlation id."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from kafkalite.client.exchange import Exchange, Request, introduce
from kafkalite.env.seams import Network
from kafkalite.env.streams import close_when_written
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, KafkaliteError, ProtocolError
from kafkalite.model import Buffer, Endpoint
from kafkalite.rpc.answers import RpcDisconnected, RpcError, RpcNotSent, RpcRefused, RpcTimeout, dialling_error
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.client.session import Session
    from kafkalite.security.dialling import Dialling

_log = get_logger(__name__)

READ_BYTES = 1024 * 1024
#: `call` waits for the broker to take what is written before it adds more than this.
WRITE_HIGH_BYTES = 8 * 1024 * 1024
#: Timeout of a login in seconds; the connection is closed with it.
LOGIN_TIMEOUT_S = 30.0


class Connection:
    """Made by `open`. Safe for many concurrent callers of one loop."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, endpoint: Endpoint, client_id: str
    ) -> None:
        self.endpoint = endpoint
        self.closed = False
        self._reader = reader
        self._writer = writer
        self._exchange = Exchange(endpoint, client_id)
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._unsent: list[Buffer] = []
        #: Whose bytes these are.
        self._unsent_numbers: set[int] = set()
        #: Nothing is sent but a login.
        self._is_held = False
        self._is_open = False
        self._task: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._keeper: asyncio.Task[None] | None = None

    @staticmethod
    async def open(
        network: Network,
        endpoint: Endpoint,
        client_id: str,
        *,
        supervisor: Supervisor,
        dialling: Dialling | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        timeout_s: float = 10.0,
    ) -> Connection:
        """Connect, learn the broker's versions, log in.

        Raises:
            RpcNotSent: nobody answers there, not in time, or not in Kafka's protocol.
            ApiError: the broker does not believe us, or we not the broker.
        """
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                tls = dialling.tls if dialling is not None else None
                reader, writer = await network.dial(endpoint.host, endpoint.port, tls)
                connection = Connection(reader, writer, endpoint, client_id)
                connection._task = supervisor.spawn(f"client.read[{endpoint}]", connection._read(), Policy.ISOLATED)
                await connection._follow(introduce(connection._exchange))
                if dialling is not None and dialling.credentials is not None:
                    from kafkalite.client.session import Session  # only a client that uses SASL loads it

                    await connection._log_in(Session(dialling, entropy), supervisor)
                connection._is_open = True
                opened, connection = connection, None
                return opened
        except TimeoutError:
            raise RpcNotSent(f"{endpoint}: no connection within {timeout_s:g} s") from None
        except ConnectionRefusedError as error:
            raise RpcRefused(f"{endpoint}: {error.strerror or error}") from None
        except OSError as error:
            raise RpcNotSent(f"{endpoint}: {dialling_error(error)}") from None
        except RpcError as error:
            raise RpcNotSent(str(error)) from None
        finally:
            if connection is not None:
                connection.abort("the connection was not opened")

    @property
    def write_backlog(self) -> int:
        """Bytes that the broker has not taken yet."""
        return 0 if self.closed else int(self._writer.transport.get_write_buffer_size())

    def send_nowait(self, request: Request) -> asyncio.Future[Any]:
        """Send in the order of calls; the future fails as `call` does. Raises RpcNotSent, ApiError at once.

        If the response is not wanted any more, cancel the future: it is dropped when it comes.
        """
        number, buffers = self._encode(request, has_response=True)
        self._write(buffers)
        self._unsent_numbers.add(number)
        return self._expect(number, request)

    def oneway(self, request: Request) -> None:
        """Send a request that has no response (acks=0). Raises RpcNotSent, ApiError."""
        self._write(self._encode(request, has_response=False)[1])

    async def call(self, request: Request, *, timeout_s: float) -> Any:
        """Send, and wait for the response.

        Raises:
            RpcNotSent: certainly not executed.
            RpcDisconnected, RpcTimeout: not known. After a timeout the connection still stands.
            ApiError: the broker does not know the request; the error of an extension response.
        """
        future: asyncio.Future[Any] | None = None
        try:
            async with asyncio.timeout(timeout_s):
                await self.drain()
                future = self.send_nowait(request)
                return await future
        except TimeoutError:
            kind = RpcNotSent if future is None else RpcTimeout
            name = type(request).__name__
            raise kind(f"{self.endpoint}: {name} not answered within {timeout_s:g} s") from None

    async def drain(self) -> None:
        """Wait until the broker has taken most of what was sent. Raises RpcNotSent when the connection is over."""
        if self.write_backlog > WRITE_HIGH_BYTES:
            try:
                await self._writer.drain()
            except OSError as error:
                raise RpcNotSent(f"{self.endpoint}: {error}") from None

    async def close(self) -> None:
        """Send what is waiting to be sent, then close; unanswered calls fail with RpcDisconnected."""
        self._flush()
        self._end("closed", abort=False)
        if self._task is not None:
            self._task.cancel()

    def abort(self, reason: str) -> None:
        """Cut the connection now."""
        self._end(reason, abort=True)
        if self._task is not None:
            self._task.cancel()

    # --- the beginning, and logging in again -----------------------------------------------------

    async def _follow(self, exchange: Generator[tuple[Any, int], Any, Any]) -> Any:
        """Send what the exchange says, at once; what it returns. Raises RpcError, ApiError."""
        try:
            request, version = next(exchange)
            while True:
                number, buffers = self._encode(request, has_response=True, version=version)
                self._writer.writelines(buffers)
                request, version = exchange.send(await self._expect(number, request))
        except StopIteration as done:
            return done.value

    async def _log_in(self, session: Session, supervisor: Supervisor) -> None:
        self._session = session
        await self._renew(session)
        if session.renew_at != float("inf"):
            keeper = self._keep_logged_in(session)
            self._keeper = supervisor.spawn(f"client.login[{self.endpoint}]", keeper, Policy.ISOLATED)

    async def _renew(self, session: Session) -> None:
        began = self._loop.time()
        session.renewed(began, await self._follow(session.exchange()))

    async def _keep_logged_in(self, session: Session) -> None:
        """Log in again before the session ends (KIP-368). A connection that cannot is cut: the next one learns why."""
        while not self.closed and session.renew_at != float("inf"):
            await asyncio.sleep(max(0.0, session.renew_at - self._loop.time()))
            # The broker takes no other request between the first and the last message of a login.
            self._flush()
            self._is_held = True
            try:
                async with asyncio.timeout(LOGIN_TIMEOUT_S):
                    await self._renew(session)
            except (ApiError, RpcError, TimeoutError) as error:
                if not self.closed:
                    reason = str(error) or "no response"
                    _log.warning("client.not_logged_in_again", peer=str(self.endpoint), reason=reason)
                    self.abort(f"could not log in again: {reason}")
                return
            self._is_held = False
            self._flush()

    # --- inside ------------------------------------------------------------------------------

    def _encode(self, request: Request, *, has_response: bool, version: int | None = None) -> tuple[int, list[Buffer]]:
        if self.closed or self._writer.transport.is_closing():
            raise RpcNotSent(f"{self.endpoint}: not connected")
        return self._exchange.encode(request, has_response=has_response, version=version)

    def _write(self, buffers: list[Buffer]) -> None:
        if not self._unsent:
            # What one wake-up sends goes out in one system call.
            self._loop.call_soon(self._flush)
        self._unsent += buffers

    def _expect(self, number: int, request: Request) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = (type(request).__name__, future)
        return future

    def _flush(self) -> None:
        if self._is_held or (self._session is not None and self._session.has_ended(self._loop.time())):
            return  # `_keep_logged_in` sends it
        if self._unsent and not self.closed and not self._writer.transport.is_closing():
            buffers, self._unsent = self._unsent, []
            self._unsent_numbers.clear()
            self._writer.writelines(buffers)

    async def _read(self) -> None:
        reason = "the broker closed the connection"
        frames = self._exchange.frames
        try:
            while data := await self._reader.read(READ_BYTES):
                for frame in frames.feed(data):
                    self._take(frame)
            if not self._is_open:
                reason += " before it said its versions or took the login: not a Kafka listener, or one that wants TLS or SASL? See --client-config"
        except ProtocolError as error:
            reason = str(error).removeprefix(f"{self.endpoint}: ")
            _log.warning("client.bad_response", peer=str(self.endpoint), reason=reason)
        except OSError as error:
            reason = str(error)
        finally:
            self._end(reason, abort=False)

    def _take(self, frame: memoryview) -> None:
        number, response = self._exchange.decode(frame)
        _, future = self._waiting.pop(number)
        if future.done():
            return
        if isinstance(response, KafkaliteError):
            future.set_exception(response)
        else:
            future.set_result(response)

    def _end(self, reason: str, *, abort: bool) -> None:
        if self.closed:
            return
        self.closed = True
        if self._keeper is not None and self._keeper is not asyncio.current_task(self._loop):
            self._keeper.cancel()
        if abort:
            self._writer.transport.abort()
        else:
            close_when_written(self._writer.transport)
        self._exchange.forget()
        self._unsent.clear()
        waiting, self._waiting = self._waiting, {}
        for number, (name, future) in waiting.items():
            if not future.done():
                kind = RpcNotSent if number in self._unsent_numbers else RpcDisconnected
                future.set_exception(kind(f"{self.endpoint}: {name}: {reason}"))
                # Nobody may be waiting any more: that is no error.
                future.exception()
