"""Heartbeats over RPC to one node, as both failure detectors send them: the controller's to brokers, a broker's to the controller."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Network
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Endpoint
from kafkalite.rpc.answers import RpcError, RpcRefused
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.connection import HeartbeatRequest, HelloRequest

#: The timeout of a node that was suspected wrongly grows up to this many times the configured one.
MAX_PATIENCE_FACTOR = 16
#: Wrong suspicions are forgotten after this many seconds.
FORGET_S = 300.0
#: A response is waited for at least this long (seconds).
MIN_WAIT_S = 0.05
#: The connection's own timeout (seconds): far beyond any timeout of a failure detector, which counts in own time.
_NEVER_S = 3600.0


class ProbeOutcome(enum.Enum):
    """What came of one heartbeat."""

    ANSWERED = enum.auto()
    #: Nothing in time, or the connection broke.
    SILENT = enum.auto()
    #: The process is surely gone: nobody listens at its address, or another node does.
    REFUSED = enum.auto()


@dataclass(frozen=True, slots=True)
class Dialler:
    """Opens connections to nodes. `hello` gives what this node says of itself."""

    network: Network
    supervisor: Supervisor
    hello: Callable[[], HelloRequest]

    async def open(self, endpoint: Endpoint) -> RpcConnection:
        """Raises RpcRefused, RpcError, ApiError."""
        return await RpcConnection.open(
            self.network, endpoint, self.hello(), supervisor=self.supervisor, timeout_s=_NEVER_S
        )


class PeerHeartbeat:
    """One node's heartbeats, one at a time, over one connection that is opened again when it is closed."""

    def __init__(self, dialler: Dialler, own_time: OwnTime, node_id: BrokerId, endpoint: Endpoint) -> None:
        self._dialler = dialler
        self._own_time = own_time
        self._node_id = node_id
        self._endpoint = endpoint
        self._connection: RpcConnection | None = None
        self._closed = asyncio.Event()

    async def beat(self, timeout_s: float) -> ProbeOutcome:
        """Send one and wait for the response, for at most `timeout_s` seconds of own time."""
        try:
            async with self._own_time.timeout(timeout_s):
                if self._connection is None or self._connection.closed:
                    self._connection = None
                    self._closed.clear()
                    connection = await self._dialler.open(self._endpoint)
                    connection.on_closed = self._closed.set
                    self._connection = connection
                    if connection.peer.node_id != self._node_id:
                        self.close("another node")
                        return ProbeOutcome.REFUSED
                await self._connection.call(HeartbeatRequest(), timeout_s=_NEVER_S)
        except RpcRefused:
            return ProbeOutcome.REFUSED
        except (RpcError, ApiError, TimeoutError):
            self.close("no heartbeat")
            return ProbeOutcome.SILENT
        return ProbeOutcome.ANSWERED

    async def pause(self, interval_s: float) -> None:
        """After a response: until the next heartbeat is due, or the connection is closed."""
        try:
            async with asyncio.timeout(interval_s):
                await self._closed.wait()
        except TimeoutError:
            return

    def close(self, reason: str) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.abort(reason)
            self._connection = None
