"""What the connections to Kafka's listeners and to other nodes have in common: requests are pipelined, and what one turn of the loop sends goes
out in one system call."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from kafkalite.env.streams import close_when_written, cut
from kafkalite.errors import ProtocolError
from kafkalite.model import Buffer, Endpoint
from kafkalite.rpc.answers import RpcError, RpcNotSent, RpcRefused, dialling_error

READ_BYTES = 1024 * 1024
#: `drain` waits for the peer to take what is written if it is more than this.
WRITE_HIGH_BYTES = 8 * 1024 * 1024


class PipelinedConnection(ABC):
    """Safe for many concurrent callers of one loop. Who opens it has `_read` run as `_task`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.closed = False
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._unsent: list[Buffer] = []
        self._task: asyncio.Task[None] | None = None
        #: Renews a session that ends.
        self._keeper: asyncio.Task[None] | None = None

    @property
    def write_backlog(self) -> int:
        """Bytes that the peer has not taken yet."""
        transport = self._writer.transport
        # asyncio's transport over TLS that has ended cannot say how much it holds.
        if self.closed or transport.is_closing():
            return 0
        return int(transport.get_write_buffer_size())

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was sent. Raises RpcNotSent when the connection is over."""
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
        """Cut the connection now. What the peer has not got yet never arrives."""
        self._end(reason, abort=True)
        if self._task is not None:
            self._task.cancel()

    # --- for the two kinds ---------------------------------------------------------------------

    @property
    @abstractmethod
    def _is_held(self) -> bool:
        """Whether nothing goes out now but a login."""

    @abstractmethod
    def _feed(self, data: bytes) -> None:
        """Take what has arrived. Raises ProtocolError."""

    @abstractmethod
    def _ended(self, reason: str) -> None:
        """The connection is over: fail the requests that wait."""

    def _why_closed(self) -> str:
        return "the peer closed the connection"

    @abstractmethod
    def _log_bad(self, reason: str) -> None:
        """The peer's bytes were not understood."""

    # --- inside ----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed or self._writer.transport.is_closing():
            raise RpcNotSent(f"{self.endpoint}: not connected")

    def _queue(self, buffers: list[Buffer]) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += buffers

    def _flush(self) -> None:
        if self._unsent and not self._is_held and not self.closed and not self._writer.transport.is_closing():
            buffers, self._unsent = self._unsent, []
            self._writer.writelines(buffers)

    async def _read(self) -> None:
        reason = ""
        try:
            while data := await self._reader.read(READ_BYTES):
                self._feed(data)
            reason = self._why_closed()
        except ProtocolError as error:
            reason = str(error).removeprefix(f"{self.endpoint}: ")
            self._log_bad(reason)
        except OSError as error:
            reason = str(error)
        finally:
            self._end(reason, abort=False)

    def _end(self, reason: str, *, abort: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self._unsent.clear()
        if self._keeper is not None and self._keeper is not asyncio.current_task(self._loop):
            self._keeper.cancel()
        if abort:
            cut(self._writer.transport)
        else:
            close_when_written(self._writer.transport)
        self._ended(reason)


@contextlib.asynccontextmanager
async def opening(endpoint: Endpoint, timeout_s: float) -> AsyncIterator[None]:
    """A connection is made in here. Raises RpcNotSent if it cannot be, or not in time."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise RpcNotSent(f"{endpoint}: no connection within {timeout_s:g} s") from None
    except ConnectionRefusedError as error:
        raise RpcRefused(f"{endpoint}: {error.strerror or error}") from None
    except OSError as error:
        raise RpcNotSent(f"{endpoint}: {dialling_error(error)}") from None
    except RpcNotSent:
        raise
    except RpcError as error:
        raise RpcNotSent(str(error)) from None
