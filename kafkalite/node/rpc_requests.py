"""Requests that nodes send each other over RPC: every handler, and what it takes to ask. No policy but that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite.admin.acls import AclManager
from kafkalite.controller.controller import Controller
from kafkalite.coordinators.draining import Draining
from kafkalite.coordinators.services import ExtensionHandler
from kafkalite.env.seams import Env
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.disks import DescribeDisksRequest
from kafkalite.extension.messages.rates import DescribeGroupLagRequest, DescribeTrafficRequest
from kafkalite.extension.messages.topics import DescribeReplicasRequest
from kafkalite.extension.messages.watching import HealthRequest, HistoryRequest
from kafkalite.kafka.forwarded import Forwarded
from kafkalite.log.log_manager import LogManager
from kafkalite.model import BrokerId
from kafkalite.node.catching_up import CatchingUp
from kafkalite.node.load import load_of
from kafkalite.replica import rpc_handlers
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.handling import Handler, LateReply, Reply, RpcRequest
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.changes import CatchUpRequest
from kafkalite.rpc.messages.connection import ErrorResponse, HeartbeatRequest, HeartbeatResponse
from kafkalite.rpc.messages.control import ControlledShutdownRequest, IsrChangedRequest
from kafkalite.rpc.messages.forwarding import ForwardRequest, ForwardResponse
from kafkalite.rpc.messages.groups import CommittedOffsetsRequest
from kafkalite.rpc.messages.load import LoadRequest
from kafkalite.rpc.messages.schemas import SchemaRegistryRequest
from kafkalite.security.access import Access
from kafkalite.security.requirements import REFUSALS, RPC, Need

if TYPE_CHECKING:
    from kafkalite.schemas.coordinator import SchemaRegistry

#: Of the extension API, what the status page asks all nodes.
SHARED = (
    DescribeDisksRequest,
    DescribeGroupLagRequest,
    DescribeReplicasRequest,
    DescribeTrafficRequest,
    HealthRequest,
    HistoryRequest,
)


class RpcHost(Protocol):
    """What the handlers need of the node."""

    replicas: ReplicaManager
    controller: Controller
    draining: Draining
    forwarded: Forwarded
    rights: AclManager
    catching_up: CatchingUp
    extension: Mapping[type[Message], ExtensionHandler]
    logs: LogManager
    env: Env
    local: LocalBroker

    @property
    def schemas(self) -> SchemaRegistry: ...


class RpcRequests:
    """The handlers by class of request."""

    def __init__(self, host: RpcHost) -> None:
        self._host = host

    def handlers(self) -> Mapping[type[Message], Handler]:
        """For RpcServer: called when the peer's rights were checked."""
        return guarded(self._host.rights.access, self.all_handlers())

    def all_handlers(self) -> Mapping[type[Message], Handler]:
        """By class of request, unguarded."""
        host = self._host
        return {
            **rpc_handlers.handlers(host.replicas),
            **{cls: _answer(host.extension[cls]) for cls in SHARED},
            LoadRequest: self._load,
            CatchUpRequest: _answer(host.catching_up.answer),
            IsrChangedRequest: self._isr_changed,
            ControlledShutdownRequest: self._controlled_shutdown,
            CommittedOffsetsRequest: _answer(lambda request: host.draining.answer(request)),
            SchemaRegistryRequest: _answer(lambda request: host.schemas.coordinate(request)),
            ForwardRequest: self._forward,
            HeartbeatRequest: lambda request: Reply(HeartbeatResponse()),
        }

    def _forward(self, request: RpcRequest) -> Awaitable[Reply]:
        assert isinstance(request.message, ForwardRequest)
        rpc_handlers.only_nodes(request)
        return self._forwarded(request.message, bytes(request.body))

    async def _forwarded(self, message: ForwardRequest, data: bytes) -> Reply:
        try:
            return Reply(ForwardResponse(), (await self._host.forwarded.answer(message, data),))
        except ApiError as error:  # an answer: raised, it would be logged as a task that has failed
            return Reply(ErrorResponse(int(error.code), str(error)))

    def _load(self, request: RpcRequest) -> Reply:
        rpc_handlers.only_nodes(request)
        host = self._host
        return Reply(load_of(host.local.identity(), host.replicas, host.logs, host.env.disk))

    # --- to the controller ---------------------------------------------------------

    def _isr_changed(self, request: RpcRequest) -> Awaitable[Reply]:
        assert isinstance(request.message, IsrChangedRequest)
        _only_from(request, request.message.broker_id)
        return _replied(self._host.controller.on_isr_changed(request.message))

    def _controlled_shutdown(self, request: RpcRequest) -> Awaitable[Reply]:
        assert isinstance(request.message, ControlledShutdownRequest)
        _only_from(request, request.message.broker_id)
        return _replied(self._host.controller.controlled_shutdown(request.message))


def guarded(access: Access, handlers: Mapping[type[Message], Handler]) -> dict[type[Message], Handler]:
    """The same handlers behind their rows of `requirements.RPC`; all as they are if there is no authorizer."""
    if access.authorizer is None:
        return dict(handlers)
    return {cls: _guarded(access, RPC.get(cls.__name__), handler) for cls, handler in handlers.items()}


def _guarded(access: Access, row: tuple[Need, ...] | None, handler: Handler) -> Handler:
    def handle(request: RpcRequest) -> Reply | LateReply | Awaitable[Reply | None] | None:
        if row is None:
            raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no rule for this request")
        for need in row:
            if not access.meets(request.peer, need):
                raise api_error(REFUSALS[need.resource_type], f"not allowed: {need.operation.name} on the cluster")
        return handler(request)

    return handle


def _only_from(request: RpcRequest, broker_id: BrokerId) -> None:
    """Raises ApiError CLUSTER_AUTHORIZATION_FAILED."""
    rpc_handlers.only_nodes(request)
    if broker_id != request.peer.node_id:
        raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "a message that names another broker as its sender")


async def _replied(outcome: Awaitable[Message]) -> Reply:
    return Reply(await outcome)


def _answer(serve: Callable[[Any], Awaitable[Message]]) -> Callable[[RpcRequest], Coroutine[Any, Any, Reply]]:
    """A handler from what takes the message and returns the response."""

    async def handle(request: RpcRequest) -> Reply:
        try:
            return Reply(await serve(request.message))
        except ApiError as error:  # an answer: raised, it would be logged as a task that has failed
            return Reply(ErrorResponse(int(error.code), str(error)))

    return handle
