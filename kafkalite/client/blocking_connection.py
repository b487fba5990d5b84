"""One connection of the blocking client: a plain socket, frames out and in, TLS and SASL before anything else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from kafkalite.client.exchange import Exchange, Request, introduce
from kafkalite.errors import ApiError, KafkaliteError, ProtocolError
from kafkalite.model import Buffer, Endpoint
from kafkalite.rpc.answers import RpcDisconnected, RpcError, RpcNotSent, RpcTimeout

if TYPE_CHECKING:
    from kafkalite.client.session import Session
    from kafkalite.security.dialling import Dialling
    from kafkalite.security.tls import ClientTls

READ_BYTES = 1024 * 1024
#: Buffers from this size on are sent as they are; smaller ones are joined.
_LARGE_BYTES = 65_536


class NotKafka(RpcDisconnected):
    """What came is no response of a Kafka listener. The message says what it is."""


class ConnectTimeout(RpcNotSent):
    """No connection in time: the host may be busy, or a firewall may drop what is sent there."""


class BlockingConnection:
    """One connection; requests may be pipelined (`send`, then `receive` in the same order).

    Raises RpcNotSent: nobody answers there, or not in Kafka's protocol. ApiError: the broker does not believe us.
    """

    def __init__(self, endpoint: Endpoint, client_id: str, timeout_s: float, dialling: Dialling | None = None) -> None:
        self.endpoint = endpoint
        self.closed = False
        self._exchange = Exchange(endpoint, client_id)
        self._ready: list[memoryview] = []
        self._session: Session | None = None
        deadline = time.monotonic() + timeout_s
        try:
            self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
        except TimeoutError as error:
            raise ConnectTimeout(f"{endpoint}: {error}") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: no host can have this name
            raise RpcNotSent(f"{endpoint}: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        is_open = False
        try:
            if dialling is not None and dialling.tls is not None:
                self._wrap(dialling.tls)
            self._follow(introduce(self._exchange), deadline)
            if dialling is not None and dialling.credentials is not None:
                from kafkalite.client.session import Session  # only a client that uses SASL loads it

                self._session = Session(dialling, os.urandom)
                self._log_in(self._session, deadline)
            is_open = True
        except NotKafka as error:
            raise RpcNotSent(str(error)) from None
        except RpcDisconnected as error:
            hint = "not a Kafka listener, or one that wants TLS or SASL?"
            raise RpcNotSent(f"{error} before it said its versions or took the login: {hint}") from None
        except RpcTimeout as error:
            raise ConnectTimeout(str(error)) from None
        except RpcError as error:
            raise RpcNotSent(str(error)) from None
        finally:
            if not is_open:
                self.close()

    def _wrap(self, tls: ClientTls) -> None:
        """Raises RpcNotSent."""
        try:
            self._socket = tls.context().wrap_socket(self._socket, server_hostname=self.endpoint.host)
        except OSError as error:
            raise RpcNotSent(f"{self.endpoint}: {error}") from None

    def _follow(self, exchange: Generator[tuple[Any, int], Any, Any], deadline: float) -> Any:
        """Send what the exchange says; what it returns. Raises RpcError, ApiError."""
        try:
            request, version = next(exchange)
            while True:
                number = self.send(request, deadline, version=version)
                request, version = exchange.send(self.receive(request, number, deadline))
        except StopIteration as done:
            return done.value

    def _log_in(self, session: Session, deadline: float) -> None:
        began = time.monotonic()
        session.renewed(began, self._follow(session.exchange(), deadline))

    def renew(self, deadline: float) -> None:
        """Log in again if the session ends soon, or has ended; no answer may be outstanding. Raises RpcError, ApiError."""
        if self._session is None or time.monotonic() < self._session.renew_at:
            return
        try:
            self._log_in(self._session, deadline)
        except (RpcError, ApiError):
            self.close()
            raise

    def send(self, request: Request, deadline: float, *, has_response: bool = True, version: int | None = None) -> int:
        """Send a request; returns its correlation id. Raises RpcNotSent, RpcDisconnected, ApiError."""
        if self.closed:
            raise RpcNotSent(f"{self.endpoint}: not connected")
        number, buffers = self._exchange.encode(request, has_response=has_response, version=version)
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            for buffer in _grouped(buffers):
                self._socket.sendall(buffer)
        except OSError as error:
            self.close()
            raise RpcDisconnected(f"{self.endpoint}: {error}") from None
        return number

    def receive(
        self,
        request: Request,
        correlation_id: int,
        deadline: float,
        *,
        wait_s: float = float("inf"),
        on_silence: Callable[[], None] = lambda: None,
    ) -> Any:
        """The next response, which must be the one to `correlation_id`.

        Args:
            on_silence: called whenever nothing has come for `wait_s`; an RpcTimeout that it raises ends the waiting.
        Raises:
            RpcError, ApiError.
        """
        try:
            while not self._ready:
                self._socket.settimeout(max(0.001, min(wait_s, deadline - time.monotonic())))
                try:
                    came = self._read()
                except TimeoutError:
                    if time.monotonic() >= deadline:
                        raise
                    on_silence()
                    continue
                if not came:
                    raise RpcDisconnected(f"{self.endpoint}: the broker closed the connection")
            number, response = self._exchange.decode(self._ready.pop(0))
            if number != correlation_id:
                raise ProtocolError(f"{self.endpoint}: response to {number} instead of {correlation_id}")
        except TimeoutError:
            self.close()
            raise RpcTimeout(f"{self.endpoint}: {type(request).__name__} not answered in time") from None
        except OSError as error:
            self.close()
            raise RpcDisconnected(f"{self.endpoint}: {error}") from None
        except ProtocolError as error:
            self.close()
            raise NotKafka(str(error)) from None
        except RpcError:
            self.close()
            raise
        if isinstance(response, KafkaliteError):
            raise response
        return response

    def _read(self) -> int:
        """Bytes of one read; 0 at the end. The frames that they complete are ready then."""
        frames = self._exchange.frames
        room = frames.room()
        if room is None:
            data = self._socket.recv(READ_BYTES)
            self._ready = frames.feed(data)
            return len(data)
        count = self._socket.recv_into(room)
        self._ready = frames.received(count)
        return count

    def call(self, request: Request, deadline: float) -> Any:
        """Send and wait. Raises RpcError, ApiError."""
        return self.receive(request, self.send(request, deadline), deadline)

    def close(self) -> None:
        self.closed = True
        if hasattr(self, "_socket"):
            self._socket.close()


def _grouped(buffers: list[Buffer]) -> list[Buffer]:
    """Small buffers joined, large ones as they are: few system calls and no copy of what is large."""
    grouped: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) >= _LARGE_BYTES:
            if small:
                grouped.append(b"".join(small))
                small = []
            grouped.append(buffer)
        else:
            small.append(buffer)
    if small:
        grouped.append(b"".join(small))
    return grouped
