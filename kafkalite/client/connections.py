"""One connection to each node of the cluster, dialled when somebody asks for it; and which node to ask first."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkalite.client.bootstrap_rotation import BootstrapRotation
from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.connection import Connection
from kafkalite.client.retry import Backoff
from kafkalite.env.seams import Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, KafkaliteError
from kafkalite.model import BrokerId, Endpoint
from kafkalite.rpc.answers import RpcError, RpcNotSent

if TYPE_CHECKING:
    from kafkalite.security.dialling import Dialling

#: Of a connection attempt.
CONNECT_TIMEOUT_S = 3.0

T = TypeVar("T")


def now() -> float:
    """Seconds on the loop's clock: for deadlines."""
    return asyncio.get_running_loop().time()


async def join(task: asyncio.Task[T]) -> T | RpcNotSent:
    """Wait for a task that others wait for too. One that was cancelled: the client is being closed."""
    current = asyncio.current_task()
    before = 0 if current is None else current.cancelling()
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled() or (current is not None and current.cancelling() > before):
            raise
        return RpcNotSent("the client is closed")


class Connections:
    """The connections of one client.

    Args:
        view: where the brokers are; read, never changed.
        dialling: TLS, and who we are; None: plain text. `entropy` is for the login.
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
        dialling: Dialling | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.closed = False
        self._network = network
        self._view = view
        self._backoff = backoff
        self._supervisor = supervisor
        self._client_id = client_id
        self._dialling = dialling
        self._entropy = entropy
        self._connections: dict[Endpoint, Connection] = {}
        self._dialing: dict[Endpoint, asyncio.Task[Connection | KafkaliteError]] = {}
        self._dial_failures: dict[Endpoint, tuple[int, float, str]] = {}
        self._rotation = BootstrapRotation(bootstrap, view, rng)

    async def close(self) -> None:
        """Close them all; what waits for an answer fails."""
        self.closed = True
        for connection in list(self._connections.values()):
            await connection.close()

    def failure(self) -> str | None:
        """Why there has been no connection yet, as far as it is known; None if there has been one."""
        if self._connections or self.closed:
            return None
        return next((why for _, _, why in reversed(self._dial_failures.values())), "no response yet")

    async def at(self, endpoint: Endpoint) -> Connection:
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
                raise RpcNotSent(why)
            task = self._supervisor.spawn(f"client.dial[{endpoint}]", self._dial(endpoint), Policy.ISOLATED)
            self._dialing[endpoint] = task
        outcome = await join(task)
        if isinstance(outcome, KafkaliteError):
            raise outcome
        return outcome

    async def _dial(self, endpoint: Endpoint) -> Connection | KafkaliteError:
        try:
            connection = await Connection.open(
                self._network,
                endpoint,
                self._client_id,
                supervisor=self._supervisor,
                dialling=self._dialling,
                entropy=self._entropy,
                timeout_s=CONNECT_TIMEOUT_S,
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

    async def to(self, broker_id: BrokerId) -> Connection:
        """The connection to a broker. Raises RpcNotSent, ApiError."""
        endpoint = self._view.endpoint(broker_id)
        if endpoint is None:
            raise RpcNotSent(f"broker {broker_id}: address not known")
        return await self.at(endpoint)

    def open_to(self, broker_id: BrokerId) -> Connection | None:
        """The connection to a broker if there is one already."""
        endpoint = self._view.endpoint(broker_id)
        connection = self._connections.get(endpoint) if endpoint is not None else None
        return None if connection is None or connection.closed else connection

    def in_turn(self) -> list[Endpoint]:
        """Every address we know; see BootstrapRotation."""
        return self._rotation.in_turn(now(), self._dial_failures)

    def was_late(self, endpoints: Iterable[Endpoint]) -> None:
        """Ask these last for a while."""
        self._rotation.was_late(endpoints, now())

    def was_in_time(self, endpoint: Endpoint) -> None:
        """Ask it in its turn again."""
        self._rotation.was_in_time(endpoint)
