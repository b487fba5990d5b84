"""One connection to each node of the cluster, dialled when somebody asks for it; and which node to ask first."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.retry import Backoff
from kafkalite.env.seams import Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, KafkaliteError
from kafkalite.model import NO_BROKER_EPOCH, BrokerId, Endpoint
from kafkalite.rpc.client import RpcConnection, RpcError, RpcNotSent
from kafkalite.rpc.messages.connection import HelloRequest

#: A node that was late is asked last for so long.
LATE_FOR_S = 5.0
#: Of a connection attempt.
CONNECT_TIMEOUT_S = 3.0

T = TypeVar("T")


def now() -> float:
    """Seconds on the loop's clock: for deadlines."""
    return asyncio.get_running_loop().time()


async def join(task: asyncio.Task[T]) -> T | RpcNotSent:
    """Wait for a task that others wait for too. One that was cancelled: the client is being closed."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if not task.cancelled() or (current is not None and current.cancelling()):
            raise
        return RpcNotSent("the client is closed")


class Connections:
    """The connections of one client.

    Args:
        view: where the brokers are; read, never changed.
    """

    def __init__(
        self,
        bootstrap: Sequence[Endpoint],
        *,
        network: Network,
        view: ClusterView,
        backoff: Backoff,
        supervisor: Supervisor,
        rng: random.Random,
        client_id: str,
    ) -> None:
        self.closed = False
        self._bootstrap = list(bootstrap)
        self._network = network
        self._view = view
        self._backoff = backoff
        self._supervisor = supervisor
        self._client_id = client_id
        self._connections: dict[Endpoint, RpcConnection] = {}
        self._dialing: dict[Endpoint, asyncio.Task[RpcConnection | KafkaliteError]] = {}
        self._dial_failures: dict[Endpoint, tuple[int, float, str]] = {}
        #: Nodes that were late -> until when they are asked last.
        self._late: dict[Endpoint, float] = {}
        self._rotation = rng.randrange(1 << 16)

    async def close(self) -> None:
        """Close them all; what waits for an answer fails."""
        self.closed = True
        for connection in list(self._connections.values()):
            await connection.close()

    async def at(self, endpoint: Endpoint) -> RpcConnection:
        """The one connection to this address. Raises RpcNotSent (also while a failed dial is recent), ApiError."""
        known = self._connections.get(endpoint)
        if known is not None and not known.closed:
            return known
        if self.closed:
            raise RpcNotSent("the client is closed")
        task = self._dialing.get(endpoint)
        if task is None:
            _, not_before, why = self._dial_failures.get(endpoint, (0, float("-inf"), ""))
            if now() < not_before:
                raise RpcNotSent(f"{endpoint}: could not connect ({why}); the next attempt is delayed")
            task = self._supervisor.spawn(f"client.dial[{endpoint}]", self._dial(endpoint), Policy.ISOLATED)
            self._dialing[endpoint] = task
        outcome = await join(task)
        if isinstance(outcome, KafkaliteError):
            raise outcome
        return outcome

    async def _dial(self, endpoint: Endpoint) -> RpcConnection | KafkaliteError:
        hello = HelloRequest(self._view.cluster_id, BrokerId(-1), NO_BROKER_EPOCH, client_id=self._client_id)
        try:
            connection = await RpcConnection.open(
                self._network, endpoint, hello, supervisor=self._supervisor, timeout_s=CONNECT_TIMEOUT_S
            )
        except (RpcError, ApiError) as error:
            failures = self._dial_failures.get(endpoint, (0, 0.0, ""))[0] + 1
            self._dial_failures[endpoint] = (failures, now() + self._backoff.pause_s(failures), str(error))
            return error
        finally:
            del self._dialing[endpoint]
        self._dial_failures.pop(endpoint, None)
        self._connections[endpoint] = connection
        return connection

    async def to(self, broker_id: BrokerId) -> RpcConnection:
        """The connection to a broker. Raises RpcNotSent, ApiError."""
        endpoint = self._view.endpoint(broker_id)
        if endpoint is None:
            raise RpcNotSent(f"broker {broker_id}: address not known")
        connection = await self.at(endpoint)
        if connection.peer.node_id != broker_id:
            connection.abort("another node")
            raise RpcNotSent(f"{endpoint}: is node {connection.peer.node_id}, not {broker_id}")
        return connection

    def open_to(self, broker_id: BrokerId) -> RpcConnection | None:
        """The connection to a broker if there is one already."""
        endpoint = self._view.endpoint(broker_id)
        connection = self._connections.get(endpoint) if endpoint is not None else None
        if connection is None or connection.closed or connection.peer.node_id != broker_id:
            return None
        return connection

    def in_turn(self) -> list[Endpoint]:
        """Every address we know, each time beginning with the next: a node that is cut off from the cluster, but
        not from us, must not be the only one we listen to. Those that could not be reached come last."""
        known = [Endpoint(b.rpc_host, b.rpc_port) for _, b in sorted(self._view.brokers.items())]
        known += [endpoint for endpoint in self._bootstrap if endpoint not in known]
        self._rotation += 1
        start = self._rotation % len(known)
        moment = now()
        return sorted(
            known[start:] + known[:start],
            key=lambda endpoint: endpoint in self._dial_failures or self._late.get(endpoint, moment) > moment,
        )

    def was_late(self, endpoints: Iterable[Endpoint]) -> None:
        """Ask these last for a while."""
        self._late.update(dict.fromkeys(endpoints, now() + LATE_FOR_S))

    def was_in_time(self, endpoint: Endpoint) -> None:
        """Ask it in its turn again."""
        self._late.pop(endpoint, None)
