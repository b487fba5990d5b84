"""The client on asyncio: what a program can ask of the cluster. (How the node is found: `routing`, `cluster_requests`.)"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kafkalite.client.bootstrap import parse_bootstrap
from kafkalite.client.cluster_requests import ClusterRequests
from kafkalite.client.exchange import Request
from kafkalite.client.results import Metadata
from kafkalite.env.real import RealClock
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.seams import Clock, Network
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.topics import (
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    NewTopic,
    TopicResult,
)
from kafkalite.extension.messages.watching import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    HealthRequest,
    HealthResponse,
)
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, BrokerId, ProducerId, TopicPartition
from kafkalite.partition_values import FetchedPartition, ListedOffset
from kafkalite.rpc.answers import RpcError
from kafkalite.rpc.messages.base import Message, of_kind
from kafkalite.security.dialling import ClientSecurity

M = TypeVar("M", bound=Message)


class AsyncClient(ClusterRequests):
    """A client of the cluster; `async with AsyncClient.connect([...]) as client`.

    Connects when it first has to. Every method takes its deadline in seconds (most of them None: the client's
    `timeout_s`) and, until then, follows leaders, passes over dead nodes and asks again.
    """

    @classmethod
    def connect(
        cls,
        bootstrap: Sequence[str] | str,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        client_id: str = "kafkalite",
        timeout_s: float = 30.0,
        request_timeout_s: float = 30.0,
        security: ClientSecurity | None = None,
    ) -> AsyncClient:
        """A client for these "host:port"s; the real network, clock and randomness by default.

        Raises ValueError for them, ConfigError for what `security` names.
        """
        text = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        return cls(
            parse_bootstrap(text),
            network=network or RealNetwork(),
            clock=clock or RealClock(),
            rng=rng or random.Random(),
            client_id=client_id,
            timeout_s=timeout_s,
            request_timeout_s=request_timeout_s,
            dialling=None if security is None else security.open(),
        )

    # --- partitions --------------------------------------------------------------------------

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0, timeout_s: float | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets for timestamps (LATEST_TIMESTAMP, ...), from the leaders. Raises ApiError, RpcError."""
        return await self.run(self.routing.list_offsets(wanted, isolation, self.patience_s(timeout_s)))

    async def beginning_offsets(
        self, keys: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the first record that there still is. Raises ApiError, RpcError."""
        found = await self.list_offsets(dict.fromkeys(keys, EARLIEST_TIMESTAMP), timeout_s=timeout_s)
        return {key: int(each.offset) for key, each in found.items()}

    async def end_offsets(
        self, keys: Iterable[TopicPartition], *, isolation: int = 0, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last committed record; isolation 1: before the first open transaction. Raises ApiError, RpcError."""
        stamps = dict.fromkeys(keys, LATEST_TIMESTAMP)
        found = await self.list_offsets(stamps, isolation=isolation, timeout_s=timeout_s)
        return {key: int(each.offset) for key, each in found.items()}

    async def fetch_raw(
        self,
        key: TopicPartition,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        max_wait_ms: int = 500,
        isolation: int = 0,
        timeout_s: float | None = None,
    ) -> tuple[FetchedPartition, memoryview]:
        """Committed record batches from `offset` on, from the leader; the first batch may begin below it.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE and others that asking again does not change.
            RpcError: the leader could not be reached in time.
        """
        return await self.run(
            self.routing.fetch_raw(key, offset, max_bytes, max_wait_ms, isolation, self.patience_s(timeout_s))
        )

    async def init_producer_id(
        self,
        transactional_id: str | None = None,
        *,
        transaction_timeout_ms: int = 60_000,
        timeout_s: float = 60.0,
    ) -> tuple[ProducerId, int]:
        """A producer id and its epoch; of a transactional id, its next epoch. Raises ApiError, RpcError."""
        flow = self.routing.init_producer_id(transactional_id, transaction_timeout_ms, timeout_s)
        return await self.run(flow)

    # --- admin -------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_s: float | None = None, validate_only: bool = False
    ) -> tuple[TopicResult, ...]:
        """Create topics; one result each. After a try whose outcome was lost, "exists already" is success."""
        return await self.run(
            self.routing.create_topics(topics, self.patience_s(timeout_s), validate_only=validate_only)
        )

    async def delete_topics(
        self, topics: Sequence[str], *, timeout_s: float | None = None, vanished: bool = False
    ) -> tuple[TopicResult, ...]:
        """Delete topics; one result each. `vanished`: also replicas that brokers keep of topics that have vanished."""
        return await self.run(self.routing.delete_topics(topics, self.patience_s(timeout_s), vanished=vanished))

    async def describe_topics(self, topics: Iterable[str] | None = None, *, timeout_s: float | None = None) -> Metadata:
        """As `metadata`, and with what Kafka returns elsewhere: eligible leader replicas, and those that are being added.

        If a broker does not report them, they are empty. Raises ApiError, RpcError.
        """
        return await self.run(self.routing.describe_topics(topics, self.patience_s(timeout_s)))

    async def request(self, request: Message, answer: type[M], *, timeout_s: float | None = None) -> M:
        """Send a request that does no harm twice to any node, and return its answer, which may be a refusal."""
        return of_kind(await self.call_controller(request, timeout_s=timeout_s), answer)

    async def describe_cluster(self, *, timeout_s: float | None = None) -> DescribeClusterResponse:
        """Brokers and controller, as one node sees them."""
        return of_kind(await self.call_any(DescribeClusterRequest(), timeout_s=timeout_s), DescribeClusterResponse)

    async def every_node(self, message: Request, *, timeout_s: float = 10.0) -> dict[BrokerId, Any]:
        """Ask every live broker at once; an answer or an error for each, by broker id."""
        # The brokers that live now, and those that did when we last asked: that one of them is gone is an answer, too.
        known = self.view.brokers.keys()
        await self.metadata((), timeout_s=timeout_s)
        nodes = sorted(known | self.view.brokers.keys())
        return await self.ask_nodes(dict.fromkeys(nodes, message), timeout_s=timeout_s)

    async def ask_nodes(self, questions: Mapping[BrokerId, Request], *, timeout_s: float = 10.0) -> dict[BrokerId, Any]:
        """Ask these brokers at once, each its own question; an answer or an error for each."""
        tasks = {
            node: self.supervisor.spawn(f"client.ask[{node}]", self._ask_one(node, message, timeout_s), Policy.ISOLATED)
            for node, message in questions.items()
        }
        return {node: await task for node, task in tasks.items()}

    async def ask_node(self, node: BrokerId, message: Request, *, timeout_s: float = 10.0) -> Any:
        """Ask one live broker; an error if there is no such broker."""
        if not self.view.brokers:
            await self.metadata((), timeout_s=timeout_s)
        if node not in self.view.brokers:
            return api_error(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not alive")
        return await self._ask_one(node, message, timeout_s)

    async def _ask_one(self, node: BrokerId, message: Request, timeout_s: float) -> Any:
        try:
            return await self.call_node(node, message, timeout_s=timeout_s)
        except (RpcError, ApiError) as error:
            return error

    async def describe_replicas(
        self, topics: Sequence[str] = (), *, timeout_s: float = 10.0
    ) -> dict[BrokerId, DescribeReplicasResponse | KafkaliteError]:
        """What every node knows of the partitions it hosts."""
        answers = await self.every_node(DescribeReplicasRequest(tuple(topics)), timeout_s=timeout_s)
        return {
            n: a if isinstance(a, KafkaliteError) else of_kind(a, DescribeReplicasResponse) for n, a in answers.items()
        }

    async def health(self, *, timeout_s: float = 10.0) -> dict[BrokerId, HealthResponse | KafkaliteError]:
        """What every node sees wrong."""
        answers = await self.every_node(HealthRequest(), timeout_s=timeout_s)
        return {n: a if isinstance(a, KafkaliteError) else of_kind(a, HealthResponse) for n, a in answers.items()}
