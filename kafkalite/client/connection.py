"""One connection to a broker on asyncio: requests pipelined, responses matched by correlation id."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from kafkalite.client.exchange import Exchange, Request, introduce
from kafkalite.env.seams import Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, KafkaliteError
from kafkalite.model import Buffer, Endpoint
from kafkalite.rpc.answers import RpcDisconnected, RpcError, RpcNotSent, RpcTimeout
from kafkalite.rpc.pipelining import PipelinedConnection, opening
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.client.session import Session
    from kafkalite.security.dialling import Dialling

_log = get_logger(__name__)

#: Timeout of a login in seconds; the connection is closed with it.
LOGIN_TIMEOUT_S = 30.0


class Connection(PipelinedConnection):
    """Made by `open`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, endpoint: Endpoint, client_id: str
    ) -> None:
        super().__init__(reader, writer, endpoint)
        self._exchange = Exchange(endpoint, client_id)
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        #: Requests whose bytes are not sent yet.
        self._unsent_numbers: set[int] = set()
        self._is_logging_in = False
        self._is_open = False
        self._session: Session | None = None

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
            async with opening(endpoint, timeout_s):
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
        finally:
            if connection is not None:
                connection.abort("the connection was not opened")

    def send_nowait(self, request: Request) -> asyncio.Future[Any]:
        """Send in the order of calls; the future fails as `call` does. Raises RpcNotSent, ApiError at once.

        If the response is not wanted any more, cancel the future: it is dropped when it comes.
        """
        number, buffers = self._encode(request, has_response=True)
        self._queue(buffers)
        self._unsent_numbers.add(number)
        return self._expect(number, request)

    def oneway(self, request: Request) -> None:
        """Send a request that has no response (acks=0). Raises RpcNotSent, ApiError."""
        self._queue(self._encode(request, has_response=False)[1])

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
            self._is_logging_in = True
            try:
                async with asyncio.timeout(LOGIN_TIMEOUT_S):
                    await self._renew(session)
            except (ApiError, RpcError, TimeoutError) as error:
                if not self.closed:
                    reason = str(error) or "no response"
                    _log.warning("client.not_logged_in_again", peer=str(self.endpoint), reason=reason)
                    self.abort(f"could not log in again: {reason}")
                return
            self._is_logging_in = False
            self._flush()

    # --- inside ------------------------------------------------------------------------------

    def _encode(self, request: Request, *, has_response: bool, version: int | None = None) -> tuple[int, list[Buffer]]:
        self._check_open()
        return self._exchange.encode(request, has_response=has_response, version=version)

    def _expect(self, number: int, request: Request) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = (type(request).__name__, future)
        return future

    @property
    def _is_held(self) -> bool:
        return self._is_logging_in or (self._session is not None and self._session.has_ended(self._loop.time()))

    def _flush(self) -> None:
        super()._flush()
        if not self._unsent:
            self._unsent_numbers.clear()

    def _feed(self, data: bytes) -> None:
        for frame in self._exchange.frames.feed(data):
            self._take(frame)

    def _why_closed(self) -> str:
        reason = "the broker closed the connection"
        if self._is_open:
            return reason
        return f"{reason} before it said its versions or took the login: not a Kafka listener, or one that wants TLS or SASL? See --client-config"

    def _log_bad(self, reason: str) -> None:
        _log.warning("client.bad_response", peer=str(self.endpoint), reason=reason)

    def _take(self, frame: memoryview) -> None:
        number, response = self._exchange.decode(frame)
        _, future = self._waiting.pop(number)
        if future.done():
            return
        if isinstance(response, KafkaliteError):
            future.set_exception(response)
        else:
            future.set_result(response)

    def _ended(self, reason: str) -> None:
        self._exchange.forget()
        waiting, self._waiting = self._waiting, {}
        for number, (name, future) in waiting.items():
            if not future.done():
                kind = RpcNotSent if number in self._unsent_numbers else RpcDisconnected
                future.set_exception(kind(f"{self.endpoint}: {name}: {reason}"))
                # Nobody may be waiting any more: that is no error.
                future.exception()
