"""How the console asks the cluster: with a client of Kafka's protocol and the extension API for each user. Opened when first needed."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from kafkalite.client.async_client import AsyncClient
from kafkalite.config import inter_broker_listener
from kafkalite.errors import ErrorCode, api_error
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.console.forwarding import ForwardingNetwork
from kafkalite.model import BrokerId, Endpoint

if TYPE_CHECKING:
    from kafkalite.http.host import ObservedNode

#: Patience with one request; the whole page has a deadline of its own (http.server).
TIMEOUT_S = 4.0
#: Users whose client is kept; a client has no connections of its own.
_MAX_CLIENTS = 32


class ClusterAccess:
    """The clients of the cluster, one for each user and host."""

    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._clients: OrderedDict[tuple[str, str], AsyncClient] = OrderedDict()

    async def client(self, asked: AuthenticatedRequest) -> AsyncClient:
        """Raises ApiError BROKER_NOT_AVAILABLE: no node is known yet."""
        user = str(asked.principal), asked.client_host
        client = self._clients.pop(user, None)
        if client is not None and client.broken is not None:
            await client.close()
            client = None
        if client is None:
            client = self._open(*user)
        self._clients[user] = client
        while len(self._clients) > _MAX_CLIENTS:
            await self._clients.popitem(last=False)[1].close()
        return client

    def _open(self, principal: str, host: str) -> AsyncClient:
        node = self._node
        network = ForwardingNetwork(node.peers, node.supervisor, self._broker_at, principal, host)
        return AsyncClient(
            self._bootstrap(),
            network=network.network(),
            clock=node.env.clock,
            rng=node.env.random,
            client_id="kafkalite-console",
            timeout_s=TIMEOUT_S,
            request_timeout_s=TIMEOUT_S,
            entropy=node.env.entropy,
        )

    def _bootstrap(self) -> list[Endpoint]:
        """Every live node's listener for nodes, this node's first."""
        node = self._node
        found = self._addresses()
        if not found:
            raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, "this node knows no broker yet")
        return [found[key] for key in sorted(found, key=lambda each: each != node.local.broker_id)]

    def _broker_at(self, host: str, port: int) -> BrokerId | None:
        return next((key for key, each in self._addresses().items() if each == Endpoint(host, port)), None)

    def _addresses(self) -> dict[BrokerId, Endpoint]:
        name = inter_broker_listener(self._node.config).name
        brokers = self._node.metadata.brokers()
        return {each.broker_id: endpoint for each in brokers if (endpoint := each.kafka_on(name)) is not None}

    async def close(self) -> None:
        """Close them all."""
        clients, self._clients = self._clients, OrderedDict()
        for client in clients.values():
            await client.close()
