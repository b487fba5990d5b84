"""The native client on asyncio: what a program can ask of the cluster. (How the node is found: `cluster_requests`.)"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkalite.client.bootstrap import parse_bootstrap
from kafkalite.client.cluster_requests import ClusterRequests, of_kind
from kafkalite.client.retry import wants_metadata
from kafkalite.env.real import RealClock, RealNetwork
from kafkalite.env.seams import Clock, Network
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code, is_retriable
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
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
from kafkalite.model import BrokerId, Offset, ProducerId, TopicPartition
from kafkalite.rpc.client import RpcError
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.data import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListedOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

if TYPE_CHECKING:
    from kafkalite.security.dialling import ClientSecurity

M = TypeVar("M", bound=Message)


class AsyncClient(ClusterRequests):
    """A client of the cluster; `async with AsyncClient.connect([...]) as client`.

    Connects when it first has to. Every method takes its deadline in seconds and, until then, follows leaders,
    passes over dead nodes and asks again.
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
        request_timeout_s: float = 30.0,
        security: ClientSecurity | None = None,
    ) -> AsyncClient:
        """A client for these "host:port"s; the real network, clock and randomness by default.

        Raises ValueError for them, ConfigError for what `security` names.
        """
        network = network or RealNetwork()
        if security is not None:
            from kafkalite.rpc.authenticated import AuthenticatedNetwork  # only who uses it loads it

            network = AuthenticatedNetwork(network, security.open(), os.urandom)
        text = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        return cls(
            parse_bootstrap(text),
            network=network,
            clock=clock or RealClock(),
            rng=rng or random.Random(),
            client_id=client_id,
            request_timeout_s=request_timeout_s,
        )

    # --- partitions --------------------------------------------------------------------------

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0, timeout_s: float = 30.0
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets for timestamps (LATEST_TIMESTAMP, ...), from the leaders. Raises ApiError, RpcError."""
        found: dict[TopicPartition, ListedOffset] = {}
        deadline = self.now() + timeout_s
        attempts = 0
        last: KafkaliteError = api_error(ErrorCode.LEADER_NOT_AVAILABLE)
        for topic in sorted({key.topic for key in wanted}):
            await self.known_topic(topic, timeout_s=timeout_s)
        while len(found) < len(wanted):
            by_node: dict[BrokerId, list[ListOffsetsPartition]] = {}
            for key in sorted(wanted.keys() - found.keys()):
                leader = self.view.leader(key)
                if leader is not None:
                    entry = ListOffsetsPartition(key.topic, key.partition, wanted[key], leader.leader_epoch)
                    by_node.setdefault(leader.broker_id, []).append(entry)
            for node, entries in by_node.items():
                try:
                    timeout = min(self.request_timeout_s, max(0.1, deadline - self.now()))
                    request = ListOffsetsRequest(tuple(entries), isolation)
                    keys = [TopicPartition(each.topic, each.partition) for each in entries]
                    answer, _ = await self.call_leader(node, request, keys, timeout_s=timeout)
                except RpcError as error:
                    last = error
                    continue
                for told in of_kind(answer, ListOffsetsResponse).partitions:
                    key = TopicPartition(told.topic, told.partition)
                    if not told.error:
                        found[key] = told
                        continue
                    code = error_code(told.error)
                    last = api_error(code, f"{key}: {code.name}")
                    if not is_retriable(code):
                        raise last
            if len(found) < len(wanted):
                attempts += 1
                await self._pause_and_refresh(attempts, deadline, last)
        return found

    async def _pause_and_refresh(self, attempts: int, deadline: float, last: KafkaliteError) -> None:
        """Before another try of something that needs leaders. Raises `last` when there is no time for one."""
        pause = self.backoff.pause_s(attempts)
        if self.now() + pause > deadline:
            raise last
        await asyncio.sleep(pause)
        await self.refresh()

    async def fetch_raw(
        self,
        key: TopicPartition,
        offset: Offset,
        max_bytes: int = 1 << 20,
        *,
        max_wait_ms: int = 500,
        isolation: int = 0,
        timeout_s: float = 30.0,
    ) -> tuple[FetchedPartition, memoryview]:
        """Committed record batches from `offset` on, from the leader; the first batch may begin below it.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE and others that asking again does not change.
            RpcError: the leader could not be reached in time.
        """
        deadline = self.now() + timeout_s
        attempts = 0
        last: KafkaliteError = api_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{key}: no leader")
        await self.known_topic(key.topic, timeout_s=timeout_s)
        while True:
            leader = self.view.leader(key)
            if leader is not None:
                entry = FetchPartition(key.topic, key.partition, offset, max_bytes, leader.leader_epoch)
                request = FetchRequest(max_wait_ms, 1, max_bytes, (entry,), isolation)
                timeout = max_wait_ms / 1000 + min(self.request_timeout_s, max(0.1, deadline - self.now()))
                try:
                    answer, body = await self.call_leader(
                        leader.broker_id, request, [key], timeout_s=timeout, wait_s=max_wait_ms / 1000
                    )
                    fetched = of_kind(answer, FetchResponse).partitions[0]
                    code = error_code(fetched.error)
                    if not fetched.error:
                        return fetched, body[: fetched.records_size]
                    last = api_error(code, f"{key}: {code.name} at offset {offset}")
                    if not (is_retriable(code) or wants_metadata(code)):
                        raise last
                except RpcError as error:
                    last = error
            attempts += 1
            await self._pause_and_refresh(attempts, deadline, last)

    async def init_producer_id(self, *, timeout_s: float = 60.0) -> tuple[ProducerId, int]:
        """A new producer id and its epoch. Raises ApiError, RpcError."""
        deadline = self.now() + timeout_s
        attempts = 0
        while True:
            left = max(0.1, deadline - self.now())
            answer = of_kind(await self.call_any(InitProducerIdRequest(), timeout_s=left), InitProducerIdResponse)
            if not answer.error:
                return answer.producer_id, answer.producer_epoch
            code = error_code(answer.error)
            attempts += 1
            pause = self.backoff.pause_s(attempts)
            if not is_retriable(code) or self.now() + pause > deadline:
                raise api_error(code, "no producer id")
            await asyncio.sleep(pause)

    # --- admin -------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_s: float = 30.0, validate_only: bool = False
    ) -> tuple[TopicResult, ...]:
        """Create topics; one result each. After a try whose outcome was lost, "exists already" is success."""
        request = CreateTopicsRequest(tuple(topics), int(timeout_s * 1000), validate_only)
        answer, again = await self._ask_around(request, timeout_s=timeout_s, node_timeout_s=timeout_s)
        results = of_kind(answer, CreateTopicsResponse).topics
        return _forgive(results, ErrorCode.TOPIC_ALREADY_EXISTS) if again else results

    async def delete_topics(
        self, topics: Sequence[str], *, timeout_s: float = 30.0, vanished: bool = False
    ) -> tuple[TopicResult, ...]:
        """Delete topics; one result each. `vanished`: also replicas that brokers keep of topics that have vanished."""
        request = DeleteTopicsRequest(tuple(topics), int(timeout_s * 1000), vanished)
        answer, again = await self._ask_around(request, timeout_s=timeout_s, node_timeout_s=timeout_s)
        results = of_kind(answer, DeleteTopicsResponse).topics
        return _forgive(results, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if again else results

    async def order(self, request: Message, answer: type[M], *, timeout_s: float = 30.0) -> M:
        """Give an order that does no harm twice to any node, and return its answer, which may be a refusal."""
        found, _ = await self._ask_around(request, timeout_s=timeout_s, node_timeout_s=timeout_s)
        return of_kind(found, answer)

    async def describe_cluster(self, *, timeout_s: float = 30.0) -> DescribeClusterResponse:
        """Brokers and controller, as one node sees them."""
        return of_kind(await self.call_any(DescribeClusterRequest(), timeout_s=timeout_s), DescribeClusterResponse)

    async def every_node(
        self, message: Message, *, timeout_s: float = 10.0
    ) -> dict[BrokerId, Message | KafkaliteError]:
        """Ask every live broker at once; an answer or an error for each, by broker id."""
        # Who lives now, and who did when we last asked: that one of them is gone is an answer, too.
        known = self.view.brokers.keys()
        await self.metadata((), timeout_s=timeout_s)
        nodes = sorted(known | self.view.brokers.keys())
        return await self.ask_nodes(dict.fromkeys(nodes, message), timeout_s=timeout_s)

    async def ask_nodes(
        self, questions: Mapping[BrokerId, Message], *, timeout_s: float = 10.0
    ) -> dict[BrokerId, Message | KafkaliteError]:
        """Ask these brokers at once, each its own question; an answer or an error for each."""
        tasks = {
            node: self.supervisor.spawn(f"client.ask[{node}]", self._ask_one(node, message, timeout_s), Policy.ISOLATED)
            for node, message in questions.items()
        }
        return {node: await task for node, task in tasks.items()}

    async def ask_node(self, node: BrokerId, message: Message, *, timeout_s: float = 10.0) -> Message | KafkaliteError:
        """Ask one live broker; an error if there is no such broker."""
        if not self.view.brokers:
            await self.metadata((), timeout_s=timeout_s)
        if node not in self.view.brokers:
            return api_error(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not alive")
        return await self._ask_one(node, message, timeout_s)

    async def _ask_one(self, node: BrokerId, message: Message, timeout_s: float) -> Message | KafkaliteError:
        try:
            return (await self.call_node(node, message, timeout_s=timeout_s))[0]
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


def _forgive(results: tuple[TopicResult, ...], code: ErrorCode) -> tuple[TopicResult, ...]:
    return tuple(TopicResult(r.topic, 0, topic_id=r.topic_id) if r.error == code else r for r in results)
