"""How the console's client reaches the nodes: its requests go over RPC, with the name of the user that they are for.

A node's own login opens the RPC listener, not the Kafka listeners of all configurations, and has few rights there. The node that
answers checks the user's rights as if the user had connected to it (kafkalite.kafka.forwarded).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

from kafkalite.env.seams import Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import KafkaliteError
from kafkalite.model import BrokerId, Buffer
from kafkalite.replica.peers import Peers
from kafkalite.rpc.messages.forwarding import ForwardRequest

#: Timeout of one request: that of a page.
_TIMEOUT_S = 10.0
_LENGTH_BYTES = 4


class ForwardingNetwork:
    """Dials a node's Kafka listener for one user. Only `dial` is there: the console's client listens nowhere.

    Args:
        broker_at: the broker with this address.
    """

    def __init__(
        self,
        peers: Peers,
        supervisor: Supervisor,
        broker_at: Callable[[str, int], BrokerId | None],
        principal: str,
        host: str,
    ) -> None:
        self._peers = peers
        self._supervisor = supervisor
        self._broker_at = broker_at
        self._principal = principal
        self._host = host

    def network(self) -> Network:
        """As clients take it."""
        return cast(Network, self)

    async def dial(self, host: str, port: int, tls: object = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError: there is no such node now."""
        broker = self._broker_at(host, port)
        if broker is None:
            raise OSError(f"{host}:{port} is no broker that is alive")
        reader = asyncio.StreamReader()
        tunnel = _Tunnel(reader, lambda frame: self._forward(broker, frame), self._supervisor)
        return reader, cast(asyncio.StreamWriter, _Writer(tunnel))

    async def _forward(self, broker: BrokerId, frame: bytes) -> bytes:
        """The response. Raises KafkaliteError."""
        request = ForwardRequest(self._principal, self._host)
        return (await self._peers.ask_with_body(broker, request, frame, timeout_s=_TIMEOUT_S))[1]


class _Tunnel(asyncio.Transport):
    """Cuts what is written into requests; each response is fed to the reader when it comes."""

    def __init__(self, reader: asyncio.StreamReader, forward: Callable[[bytes], Any], supervisor: Supervisor) -> None:
        super().__init__()
        self._reader = reader
        self._forward = forward
        self._supervisor = supervisor
        self._data = bytearray()
        self._is_closed = False

    def write(self, data: Buffer) -> None:
        self._data += data
        while len(self._data) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._data[:_LENGTH_BYTES])
            if len(self._data) < end:
                return
            frame = bytes(self._data[_LENGTH_BYTES:end])
            del self._data[:end]
            self._supervisor.spawn("console.forward", self._ask(frame), Policy.ISOLATED)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.write(data)

    async def _ask(self, frame: bytes) -> None:
        try:
            answer = await self._forward(frame)
        except KafkaliteError:
            self.close()  # as if the node had cut the connection: the client asks again, or another node
            return
        if not self._is_closed:
            self._reader.feed_data(len(answer).to_bytes(_LENGTH_BYTES) + answer)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._reader.feed_eof()

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closed

    def get_write_buffer_size(self) -> int:
        return 0


class _Writer:
    """What the client uses of a StreamWriter."""

    def __init__(self, transport: _Tunnel) -> None:
        self.transport = transport

    def writelines(self, data: Iterable[Any]) -> None:
        self.transport.writelines(data)

    async def drain(self) -> None:
        """Everything is sent at once."""

    def close(self) -> None:
        self.transport.close()
