"""One connection of the blocking client: a plain socket, frames out and in, TLS and SASL before anything else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalite.errors import ApiError, ProtocolError
from kafkalite.model import Endpoint
from kafkalite.rpc.answers import (
    Answer,
    RpcDisconnected,
    RpcError,
    RpcNotSent,
    RpcTimeout,
    answer_of,
    check_hello,
)
from kafkalite.rpc.framing import Frame, FrameReader, encode_frame
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import HelloRequest, HelloResponse

if TYPE_CHECKING:
    from kafkalite.security.dialling import Dialling
    from kafkalite.security.tls import ClientTls

READ_BYTES = 1024 * 1024
MAX_FRAME_BYTES = 134_217_728


class BlockingConnection:
    """One connection; requests may be pipelined (`send`, then `receive` in the same order)."""

    def __init__(
        self, endpoint: Endpoint, hello: HelloRequest, timeout_s: float, dialling: Dialling | None = None
    ) -> None:
        self.endpoint = endpoint
        self.closed = False
        self._frames = FrameReader(max_frame_bytes=MAX_FRAME_BYTES)
        self._ready: list[Frame] = []
        self._next_id = 0
        self._dialling = dialling
        #: When to log in again (monotonic seconds): the session ends a while later.
        self._renew_at = float("inf")
        deadline = time.monotonic() + timeout_s
        try:
            self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
        except OSError as error:
            raise RpcNotSent(f"{endpoint}: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if dialling is not None and dialling.tls is not None:
                self._wrap(dialling.tls)
            self._log_in(deadline)
            self.peer: HelloResponse = check_hello(self.call(hello, (), deadline)[0])
        except RpcError as error:
            raise RpcNotSent(f"{endpoint}: {error}") from None
        finally:
            if not hasattr(self, "peer"):
                self.close()

    def _wrap(self, tls: ClientTls) -> None:
        """Raises RpcNotSent."""
        try:
            self._socket = tls.context().wrap_socket(self._socket, server_hostname=self.endpoint.host)
        except OSError as error:
            raise RpcNotSent(f"{self.endpoint}: {error}") from None

    def _log_in(self, deadline: float) -> None:
        """SASL, if it is used. Raises RpcError, ApiError."""
        credentials = self._dialling.credentials if self._dialling is not None else None
        if credentials is None:
            return
        from kafkalite.rpc.authenticated import SaslExchange  # only who uses it loads it
        from kafkalite.rpc.logins import RENEWED_AFTER

        exchange = SaslExchange(credentials.mechanism, credentials.client(os.urandom))
        began = time.monotonic()
        while exchange.request is not None:
            began = time.monotonic()
            try:
                exchange.answered(*self.call(exchange.request, (), deadline)[:1])
            except ProtocolError as error:
                raise RpcNotSent(f"{self.endpoint}: {error}") from None
        self._renew_at = began + exchange.lifetime_s * RENEWED_AFTER[1] if exchange.lifetime_s else float("inf")

    def renew(self, deadline: float) -> None:
        """Log in again if the session ends soon, or has ended; no answer may be outstanding. Raises RpcError, ApiError."""
        if time.monotonic() < self._renew_at:
            return
        try:
            self._log_in(deadline)
        except (RpcError, ApiError):
            self.close()
            raise

    def send(self, message: Message, body: Iterable[bytes | memoryview], deadline: float) -> int:
        """Send a request; returns its correlation id. Raises RpcNotSent, RpcDisconnected."""
        if self.closed:
            raise RpcNotSent(f"{self.endpoint}: not connected")
        self._next_id += 1
        buffers = encode_frame(self._next_id, message, list(body))
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            for buffer in _grouped(buffers):
                self._socket.sendall(buffer)
        except OSError as error:
            self.close()
            raise RpcDisconnected(f"{self.endpoint}: {error}") from None
        return self._next_id

    def receive(
        self,
        request: type[Message],
        correlation_id: int,
        deadline: float,
        *,
        wait_s: float = float("inf"),
        on_silence: Callable[[], None] = lambda: None,
    ) -> Answer:
        """The next answer, which must be the one to `correlation_id`.

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
                    raise RpcDisconnected(f"{self.endpoint}: the peer closed the connection")
            frame = self._ready.pop(0)
            if frame.correlation_id != correlation_id:
                raise ProtocolError(f"response to {frame.correlation_id} instead of {correlation_id}")
            return answer_of(request, frame)
        except TimeoutError:
            self.close()
            raise RpcTimeout(f"{self.endpoint}: {request.__name__} not answered in time") from None
        except OSError as error:
            self.close()
            raise RpcDisconnected(f"{self.endpoint}: {error}") from None
        except ProtocolError as error:
            self.close()
            raise RpcDisconnected(f"{self.endpoint}: {error}") from None
        except RpcError:
            self.close()
            raise

    def _read(self) -> int:
        """Bytes of one read; 0 at the end. The frames that they complete are ready then."""
        room = self._frames.room()
        if room is None:
            data = self._socket.recv(READ_BYTES)
            self._ready = self._frames.feed(data)
            return len(data)
        count = self._socket.recv_into(room)
        self._ready = self._frames.received(count)
        return count

    def call(self, message: Message, body: Iterable[bytes | memoryview], deadline: float) -> Answer:
        """Send and wait. Raises RpcError, ApiError."""
        return self.receive(type(message), self.send(message, body, deadline), deadline)

    def close(self) -> None:
        self.closed = True
        if hasattr(self, "_socket"):
            self._socket.close()


def _grouped(buffers: list[bytes | bytearray | memoryview]) -> list[bytes | bytearray | memoryview]:
    """Small buffers joined, large ones as they are: few system calls and no copy of what is large."""
    grouped: list[bytes | bytearray | memoryview] = []
    small: list[bytes | bytearray | memoryview] = []
    for buffer in buffers:
        if len(buffer) >= 65_536:
            if small:
                grouped.append(b"".join(small))
                small = []
            grouped.append(buffer)
        else:
            small.append(buffer)
    if small:
        grouped.append(b"".join(small))
    return grouped
