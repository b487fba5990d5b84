"""The RPC listener's handlers: each hands a message to the part of the node that answers it. No policy here."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol, TypeVar

from kafkalite.admin.acls import AclManager
from kafkalite.admin.configs import ConfigAdmin
from kafkalite.admin.partitions import PartitionAdmin
from kafkalite.admin.topic_waits import TopicOrders
from kafkalite.admin.users import UserAdmin
from kafkalite.controller.controller import Controller
from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordinators.draining import Draining
from kafkalite.coordinators.transactions.extension import ExtensionHandler
from kafkalite.env.seams import Env
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.reassignment import (
    ElectLeadersRequest,
)
from kafkalite.extension.messages.topics import (
    AddPartitionsRequest,
    CreateTopicsRequest,
    NewTopic,
)
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.model import BrokerEpoch, BrokerId, ProducerId
from kafkalite.node.group_api import GroupApi
from kafkalite.node.metadata_answers import MetadataAnswers
from kafkalite.node.open_transactions_api import OpenTransactionsApi
from kafkalite.node.rights_api import RightsApi
from kafkalite.node.rpc_guard import RpcGuard
from kafkalite.node.rpc_quotas import RpcQuotas
from kafkalite.node.transaction_api import TransactionApi
from kafkalite.replica import rpc_handlers
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.handling import Handler, Reply, Request
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.configs import AlterConfigsRequest, DescribeConfigsRequest
from kafkalite.rpc.messages.connection import HeartbeatRequest, HeartbeatResponse
from kafkalite.rpc.messages.control import ControlledShutdownRequest, IsrChangedRequest
from kafkalite.rpc.messages.data import InitProducerIdRequest, InitProducerIdResponse, MetadataRequest, MetadataResponse
from kafkalite.rpc.messages.groups import CommittedOffsetsRequest
from kafkalite.rpc.messages.security import AlterUserRequest, DescribeUsersRequest

#: A client that asks for an unknown topic waits at most so long for its creation to be known here.
AUTO_CREATE_WAIT_S = 5.0

R = TypeVar("R", bound=Message)


class Host(Protocol):
    """What the handlers need of the node."""

    replicas: ReplicaManager
    metadata: MetadataCache
    env: Env
    controller: Controller
    orders: TopicOrders
    draining: Draining
    partition_admin: PartitionAdmin
    config_orders: ConfigAdmin
    user_orders: UserAdmin
    kafka: KafkaSide
    auto_create_topics: bool
    rights: AclManager
    extension: Mapping[type[Message], ExtensionHandler]

    @property
    def cluster_id(self) -> str: ...

    def identity(self) -> tuple[BrokerId, BrokerEpoch]: ...

    async def allocate_producer_id(self) -> ProducerId: ...


class Api:
    """The handlers by class of request."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._answers = MetadataAnswers(host.metadata)
        self._transactions = TransactionApi(lambda: host.kafka, host.metadata)
        self._groups = GroupApi(lambda: host.kafka, host.metadata, host.env.clock)

    def handlers(self) -> Mapping[type[Message], Handler]:
        """For RpcServer: behind the checks of who may, then of how fast."""
        host = self._host
        guard = RpcGuard(
            host.rights.access,
            lambda topic: not host.auto_create_topics or host.metadata.topic(topic) is not None,
        )
        quotas = RpcQuotas(host.rights.quotas, host.env.clock)
        return quotas.limited(guard.guarded(self.all_handlers()))

    def all_handlers(self) -> Mapping[type[Message], Handler]:
        """By class of request, unguarded."""
        host = self._host
        return {
            **rpc_handlers.handlers(host.replicas, lambda: host.kafka.verifier.produce),
            **self._transactions.handlers(),
            **RightsApi(host.rights).handlers(),
            **self._groups.handlers(),
            **OpenTransactionsApi(lambda: host.kafka).handlers(),
            **{cls: _answer(serve) for cls, serve in host.extension.items()},
            IsrChangedRequest: self._isr_changed,
            ControlledShutdownRequest: self._controlled_shutdown,
            MetadataRequest: self._metadata,
            InitProducerIdRequest: self._init_producer_id,
            AddPartitionsRequest: _answer(host.partition_admin.add),
            ElectLeadersRequest: _answer(host.partition_admin.elect),
            DescribeConfigsRequest: _answer(host.config_orders.describe),
            AlterConfigsRequest: _answer(host.config_orders.alter),
            DescribeUsersRequest: _answer(host.user_orders.describe),
            AlterUserRequest: _answer(host.user_orders.alter),
            CommittedOffsetsRequest: _answer(lambda request: host.draining.answer(request)),
            HeartbeatRequest: lambda request: Reply(HeartbeatResponse()),
        }

    # --- from nodes to the controller ------------------------------------------

    def _isr_changed(self, request: Request) -> Awaitable[Reply]:
        assert isinstance(request.message, IsrChangedRequest)
        _only_from(request, request.message.broker_id)
        return _replied(self._host.controller.on_isr_changed(request.message))

    def _controlled_shutdown(self, request: Request) -> Awaitable[Reply]:
        assert isinstance(request.message, ControlledShutdownRequest)
        _only_from(request, request.message.broker_id)
        return _replied(self._host.controller.controlled_shutdown(request.message))

    # --- metadata ------------------------------------------------------------

    def _metadata(self, request: Request) -> Reply | Awaitable[Reply | None] | None:
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

    async def _init_producer_id(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, InitProducerIdRequest)
        if message.transactional_id is not None:
            return await self._transactions.init_producer(message)
        try:
            producer_id = await self._host.allocate_producer_id()
        except CoordinatorError:
            return Reply(InitProducerIdResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, ProducerId(-1), -1))
        return Reply(InitProducerIdResponse(ErrorCode.NONE, producer_id, 0))


def _only_from(request: Request, broker_id: BrokerId) -> None:
    """Raises ApiError CLUSTER_AUTHORIZATION_FAILED."""
    rpc_handlers.only_nodes(request)
    if broker_id != request.peer.node_id:
        raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "a message that names another broker as its sender")


async def _replied(outcome: Awaitable[Message]) -> Reply:
    return Reply(await outcome)


def _answer(serve: ExtensionHandler) -> Handler:
    """A handler from a coroutine that takes the message and returns the answer."""

    async def handle(request: Request) -> Reply:
        return Reply(await serve(request.message))

    return handle
