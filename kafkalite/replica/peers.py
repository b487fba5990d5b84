"""Requests of this node to any node, itself included, over RPC: for the console, and for changes that all nodes are to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from kafkalite.env.seams import Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.model import BrokerId, Buffer, Endpoint
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.answers import Answer, RpcError, RpcTimeout
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import HelloRequest


class Peers:
    """One connection to each node, opened with the first request to it.

    Args:
        hello: how this node introduces itself.
    """

    def __init__(
        self, network: Network, supervisor: Supervisor, metadata: MetadataCache, hello: Callable[[], HelloRequest]
    ) -> None:
        self._network = network
        self._supervisor = supervisor
        self._metadata = metadata
        self._hello = hello
        self._connections: dict[BrokerId, RpcConnection] = {}
        #: Questions that wait for an answer.
        self._asking: Counter[RpcConnection] = Counter()

    async def every_node(self, message: Message, *, timeout_s: float) -> dict[BrokerId, Message | KafkaliteError]:
        """Ask every live node at once; a response or an error for each."""
        nodes = sorted(broker.broker_id for broker in self._metadata.brokers())
        return await self.ask_nodes(dict.fromkeys(nodes, message), timeout_s=timeout_s)

    async def ask_nodes(
        self, questions: Mapping[BrokerId, Message], *, timeout_s: float
    ) -> dict[BrokerId, Message | KafkaliteError]:
        """Ask these nodes at once, each its own question; a response or an error for each."""
        tasks = {
            node: self._supervisor.spawn(f"peers.ask[{node}]", self.ask(node, message, timeout_s), Policy.ISOLATED)
            for node, message in questions.items()
        }
        return {node: await task for node, task in tasks.items()}

    async def ask(self, node: BrokerId, message: Message, timeout_s: float) -> Message | KafkaliteError:
        """One node's response, or an error."""
        try:
            return (await self._call(node, message, (), timeout_s))[0]
        except (RpcError, ApiError) as error:
            return error

    async def ask_with_body(
        self, node: BrokerId, message: Message, body: bytes, *, timeout_s: float
    ) -> tuple[Message, bytes]:
        """Ask one node with bytes beside the message: its response, and the bytes beside that. Raises RpcError, ApiError."""
        answer, data = await self._call(node, message, (body,), timeout_s)
        return answer, bytes(data)

    async def _call(self, node: BrokerId, message: Message, body: Sequence[Buffer], timeout_s: float) -> Answer:
        """After a partition of the network, TCP may let a connection wait for minutes. So the next question after one without an answer
        goes over a new one; other questions that wait over the old one may still be answered."""
        connection = await self._connection(node, timeout_s)
        self._asking[connection] += 1
        try:
            return await connection.call(message, body, timeout_s=timeout_s)
        except RpcTimeout:
            if self._connections.get(node) is connection:
                del self._connections[node]
            raise
        finally:
            self._asking[connection] -= 1
            if not self._asking[connection]:
                del self._asking[connection]
                if self._connections.get(node) is not connection:
                    connection.abort("given up")

    async def _connection(self, node: BrokerId, timeout_s: float) -> RpcConnection:
        broker = self._metadata.broker(node)
        if broker is None:
            raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not alive")
        endpoint = Endpoint(broker.rpc_host, broker.rpc_port)
        known = self._connections.get(node)
        if known is not None and not known.closed and known.endpoint == endpoint:
            return known
        opened = await RpcConnection.open(
            self._network, endpoint, self._hello(), supervisor=self._supervisor, timeout_s=timeout_s
        )
        other = self._connections.get(node)
        if other is not None and other is not known and not other.closed and other.endpoint == endpoint:
            await opened.close()  # another question was faster
            return other
        if other is not None:
            await other.close()
        self._connections[node] = opened
        return opened

    async def close(self) -> None:
        """Close every connection."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()
