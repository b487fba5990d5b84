"""A TCP proxy in front of a ZooKeeper server that understands frames and breaks what a test asks it to break."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.support.accepting import accepting

_LENGTH = struct.Struct("!i")
_XID_OPCODE = struct.Struct("!ii")

#: opcodes of requests; CONNECT stands for the first frame, which has none
CONNECT, CREATE2, GET, SET, PING, MULTI, MULTI_READ, SET_WATCHES = -1, 15, 4, 5, 11, 14, 22, 101

_UNKNOWN = 9_999


class Do(Enum):
    """What happens to a frame."""

    PASS = auto()
    DROP = auto()
    FIN = auto()
    RST = auto()
    #: Of a request: the server is asked for what it does not know.
    AS_UNKNOWN = auto()
    #: Of a request: the server applies it, its reply is swallowed and the connection cut.
    APPLY_THEN_FIN = auto()
    APPLY_THEN_RST = auto()
    #: Of a reply: all but its last bytes, then FIN.
    TRUNCATE = auto()


@dataclass(eq=False)
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    upstream_writer: asyncio.StreamWriter | None = None
    #: xid -> how to cut when its reply comes
    cut_at: dict[int, Do] = field(default_factory=dict)


class FaultProxy:
    """Listens on a free port and forwards frames to `upstream`."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self.port = 0
        self.accepting = True
        self.on_request: Callable[[int, bytes], Do] = lambda opcode, frame: Do.PASS
        #: (xid, frame); the reply to the first frame has the xid CONNECT
        self.on_reply: Callable[[int, bytes], Do] = lambda xid, frame: Do.PASS
        self.connections: dict[Connection, None] = {}
        self.accepted = 0
        #: How long each reply to a connect request waits.
        self.delay_connect_s = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self._ends = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> FaultProxy:
        self.port = await self._ends.enter_async_context(accepting(self._accepted))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.accepting = False
        self.cut(Do.RST)
        await self._ends.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hold(self) -> None:
        """Nothing passes in either direction until `release`; connections stay."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def cut(self, how: Do = Do.FIN) -> None:
        """End all connections."""
        for connection in list(self.connections):
            self._cut(connection, how)

    def _cut(self, connection: Connection, how: Do) -> None:
        self.connections.pop(connection, None)
        if how is Do.RST:
            raw = connection.writer.get_extra_info("socket")
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.writer.transport.abort()
        else:
            connection.writer.close()
        if connection.upstream_writer is not None:
            connection.upstream_writer.close()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self.accepted += 1
        self.connections[connection] = None
        if not self.accepting:
            self._cut(connection, Do.RST)
            return
        task = asyncio.get_running_loop().create_task(self._forward(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, connection: Connection) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
            connection.upstream_writer = up_writer
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(connection, up_writer))
                group.create_task(self._replies(connection, up_reader))
        except* (OSError, EOFError):
            pass
        finally:
            self._cut(connection, Do.FIN)

    async def _frame(self, reader: asyncio.StreamReader) -> bytes:
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        frame = await reader.readexactly(size)
        await self._open.wait()
        return frame

    async def _requests(self, connection: Connection, upstream: asyncio.StreamWriter) -> None:
        opcode = CONNECT
        while True:
            frame = await self._frame(connection.reader)
            xid = 0
            if opcode != CONNECT or upstream is None:
                xid, opcode = _XID_OPCODE.unpack_from(frame)
            act = self.on_request(opcode, frame)
            if act is Do.DROP:
                pass
            elif act in (Do.FIN, Do.RST):
                self._cut(connection, act)
                raise EOFError
            else:
                if act in (Do.APPLY_THEN_FIN, Do.APPLY_THEN_RST):
                    connection.cut_at[xid] = Do.FIN if act is Do.APPLY_THEN_FIN else Do.RST
                if act is Do.AS_UNKNOWN:
                    frame = _XID_OPCODE.pack(xid, _UNKNOWN) + frame[_XID_OPCODE.size :]
                upstream.write(_LENGTH.pack(len(frame)) + frame)
            if opcode == CONNECT:
                opcode = 0

    async def _replies(self, connection: Connection, upstream: asyncio.StreamReader) -> None:
        first = True
        while True:
            frame = await self._frame(upstream)
            xid = CONNECT if first else _LENGTH.unpack_from(frame)[0]
            act = Do.PASS
            if first and self.delay_connect_s:
                await asyncio.sleep(self.delay_connect_s)
            if not first and xid in connection.cut_at:
                act = connection.cut_at.pop(xid)
            else:
                act = self.on_reply(xid, frame)
            first = False
            if act is Do.PASS:
                connection.writer.write(_LENGTH.pack(len(frame)) + frame)
            elif act is Do.TRUNCATE:
                connection.writer.write((_LENGTH.pack(len(frame)) + frame)[:-3])
                await connection.writer.drain()
            if act not in (Do.PASS, Do.DROP):
                self._cut(connection, Do.FIN if act is Do.TRUNCATE else act)
                raise EOFError
