"""The RPC listener's handlers: each hands a message to the part of the node that answers it. No policy here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from kafkalite.controller.controller import Controller
from kafkalite.controller.orders import Orders
from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.env.seams import Buffer
from kafkalite.errors import ErrorCode
from kafkalite.model import NO_OFFSET, BrokerEpoch, BrokerId, ProducerId, TopicPartition
from kafkalite.node.metadata_answers import MetadataAnswers
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.messages import (
    ControlledShutdownRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeReplicasRequest,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    HealthProblem,
    HealthRequest,
    HealthResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    IsrChangedRequest,
    LeaderAndIsrRequest,
    ListOffsetsRequest,
    Message,
    MetadataRequest,
    MetadataResponse,
    NewTopic,
    ProducedPartition,
    ProduceRequest,
    ProduceResponse,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kafkalite.rpc.server import Handler, Reply, Request

#: A client that asks for an unknown topic waits at most so long for its creation to be known here.
AUTO_CREATE_WAIT_S = 5.0

R = TypeVar("R", bound=Message)


class Host(Protocol):
    """What the handlers need of the node."""

    replicas: ReplicaManager
    metadata: MetadataCache
    controller: Controller
    orders: Orders
    auto_create_topics: bool

    @property
    def cluster_id(self) -> str: ...

    def identity(self) -> tuple[BrokerId, BrokerEpoch]: ...

    def problems(self) -> tuple[HealthProblem, ...]: ...

    async def allocate_producer_id(self) -> ProducerId: ...


class Api:
    """The handlers by class of request."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._answers = MetadataAnswers(host.metadata)

    def handlers(self) -> Mapping[type[Message], Handler]:
        """For RpcServer."""
        host = self._host
        return {
            LeaderAndIsrRequest: _answer(host.replicas.leader_and_isr),
            StopReplicaRequest: _answer(host.replicas.stop_replica),
            UpdateMetadataRequest: lambda request: Reply(host.replicas.update_metadata(request.message)),  # type: ignore[arg-type]
            IsrChangedRequest: lambda request: Reply(host.controller.on_isr_changed(request.message)),  # type: ignore[arg-type]
            ControlledShutdownRequest: _answer(host.controller.controlled_shutdown),
            ReplicaFetchRequest: self._replica_fetch,
            ProduceRequest: self._produce,
            FetchRequest: self._fetch,
            ListOffsetsRequest: lambda request: Reply(host.replicas.list_offsets(request.message)),  # type: ignore[arg-type]
            MetadataRequest: self._metadata,
            InitProducerIdRequest: self._init_producer_id,
            CreateTopicsRequest: _answer(host.orders.create_topics),
            DeleteTopicsRequest: _answer(host.orders.delete_topics),
            DescribeReplicasRequest: lambda request: Reply(host.replicas.describe(request.message.topics)),  # type: ignore[attr-defined]
            DescribeClusterRequest: self._describe_cluster,
            HealthRequest: self._health,
        }

    # --- data ----------------------------------------------------------------

    def _produce(self, request: Request) -> Reply | None | Awaitable[Reply | None]:
        message = request.message
        assert isinstance(message, ProduceRequest)
        partitions: list[tuple[TopicPartition, Buffer]] = []
        offset = 0
        for entry in message.partitions:
            end = offset + entry.records_size
            if entry.records_size < 0 or end > len(request.body):
                return Reply(_refused(message, ErrorCode.CORRUPT_MESSAGE))
            partitions.append((TopicPartition(entry.topic, entry.partition), request.body[offset:end]))
            offset = end
        if message.acks not in (-1, 0, 1):
            return Reply(_refused(message, ErrorCode.INVALID_REQUIRED_ACKS))
        pending = _Pending()

        def done(results: tuple[ProducedPartition, ...]) -> None:
            pending.resolve(Reply(ProduceResponse(results)))

        self._host.replicas.produce(message.acks, message.timeout_ms, partitions, done)
        return None if message.acks == 0 else pending.outcome()

    def _fetch(self, request: Request) -> Reply | None | Awaitable[Reply | None]:
        message = request.message
        assert isinstance(message, FetchRequest)
        pending = _Pending()

        def done(results: tuple[FetchedPartition, ...], body: list[Buffer]) -> None:
            pending.resolve(Reply(FetchResponse(results), body))

        self._host.replicas.fetch(message, done)
        return pending.outcome()

    def _replica_fetch(self, request: Request) -> Reply | None | Awaitable[Reply | None]:
        message = request.message
        assert isinstance(message, ReplicaFetchRequest)
        pending = _Pending()

        def done(response: ReplicaFetchResponse, body: list[Buffer]) -> None:
            pending.resolve(Reply(response, body))

        self._host.replicas.replica_fetch(message, done)
        return pending.outcome()

    # --- metadata ------------------------------------------------------------

    def _metadata(self, request: Request) -> Reply | None | Awaitable[Reply | None]:
        message = request.message
        assert isinstance(message, MetadataRequest)
        found = self.metadata(message.topics)
        if message.allow_auto_create and self._host.auto_create_topics:
            missing = [t.topic for t in found.topics if t.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            if missing:
                return self._create_and_answer(message, missing)
        return Reply(found)

    async def _create_and_answer(self, message: MetadataRequest, missing: Sequence[str]) -> Reply:
        topics = tuple(NewTopic(topic) for topic in missing)
        await self._host.orders.create_topics(CreateTopicsRequest(topics, timeout_ms=int(AUTO_CREATE_WAIT_S * 1000)))
        return Reply(self.metadata(message.topics))

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """What this node knows of these topics (None: all)."""
        return self._answers.answer(self._host.cluster_id, topics)

    def _describe_cluster(self, request: Request) -> Reply:
        cache = self._host.metadata
        return Reply(
            DescribeClusterResponse(
                self._host.cluster_id, cache.controller_id, cache.controller_epoch, cache.brokers()
            )
        )

    async def _init_producer_id(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, InitProducerIdRequest)
        if message.transactional_id is not None:
            # Transactions are spoken on the Kafka listener.
            return Reply(InitProducerIdResponse(ErrorCode.UNSUPPORTED_VERSION, ProducerId(-1), -1))
        try:
            producer_id = await self._host.allocate_producer_id()
        except CoordinatorError:
            return Reply(InitProducerIdResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, ProducerId(-1), -1))
        return Reply(InitProducerIdResponse(ErrorCode.NONE, producer_id, 0))

    def _health(self, request: Request) -> Reply:
        return Reply(HealthResponse(self._host.identity()[0], self._host.problems()))


class _Pending:
    """An answer that may be there at once, or come later."""

    __slots__ = ("_future", "_reply")

    def __init__(self) -> None:
        self._reply: Reply | None = None
        self._future: asyncio.Future[Reply | None] | None = None

    def resolve(self, reply: Reply) -> None:
        if self._future is None:
            self._reply = reply
        elif not self._future.done():  # cancelled: the connection is gone
            self._future.set_result(reply)

    def outcome(self) -> Reply | asyncio.Future[Reply | None]:
        if self._reply is not None:
            return self._reply
        self._future = asyncio.get_running_loop().create_future()
        return self._future


def _answer(serve: Callable[[Any], Coroutine[Any, Any, Message]]) -> Handler:
    """A handler from a coroutine that takes the message and returns the answer."""

    async def handle(request: Request) -> Reply:
        return Reply(await serve(request.message))

    return handle


def _refused(message: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(tuple(ProducedPartition(p.topic, p.partition, error, NO_OFFSET) for p in message.partitions))
