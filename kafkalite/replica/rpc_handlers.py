"""The RPC requests that a ReplicaManager answers, as handlers for RpcServer."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Buffer, ControllerEpoch
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.handling import Handler, LateReply, Reply, RpcRequest
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.control import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from kafkalite.rpc.messages.replication import (
    LogEndsRequest,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchWake,
)
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class LatestConnection:
    """A controller commands over one connection at a time. What comes from one that it has given up is older than what it has said
    since, and would undo it."""

    def __init__(self) -> None:
        #: Controller epoch and connection of the latest command.
        self._latest = (ControllerEpoch(-1), -1)

    def check(self, request: RpcRequest, epoch: ControllerEpoch) -> None:
        """Raises ApiError BROKER_NOT_AVAILABLE: a controller repeats the command over a new connection."""
        place = (epoch, request.peer.connection)
        if epoch == self._latest[0] and place < self._latest:
            _log.warning("replica.late_command", kind=type(request.message).__name__, controller=request.peer.node_id)
            raise api_error(
                ErrorCode.BROKER_NOT_AVAILABLE, "the controller has sent commands over a newer connection since"
            )
        self._latest = max(self._latest, place)


def handlers(manager: ReplicaManager) -> Mapping[type[Message], Handler]:
    """By class of request."""
    latest = LatestConnection()

    async def answer(outcome: Awaitable[Message]) -> Reply:
        return Reply(await outcome)

    def leader_and_isr(request: RpcRequest) -> Awaitable[Reply]:
        only_nodes(request)
        assert isinstance(request.message, LeaderAndIsrRequest)
        latest.check(request, request.message.controller_epoch)
        return answer(manager.commands.leader_and_isr(request.message))

    def stop_replica(request: RpcRequest) -> Awaitable[Reply]:
        only_nodes(request)
        assert isinstance(request.message, StopReplicaRequest)
        latest.check(request, request.message.controller_epoch)
        return answer(manager.commands.stop_replica(request.message))

    def update_metadata(request: RpcRequest) -> Reply:
        only_nodes(request)
        assert isinstance(request.message, UpdateMetadataRequest)
        latest.check(request, request.message.controller_epoch)
        return Reply(manager.commands.update_metadata(request.message))

    def replica_fetch(request: RpcRequest) -> LateReply:
        only_nodes(request)
        assert isinstance(request.message, ReplicaFetchRequest)
        if request.message.replica_id != request.peer.node_id:
            raise api_error(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "a replica fetch that names another broker as its sender"
            )
        late = LateReply()

        def fetched(response: ReplicaFetchResponse, body: list[Buffer]) -> None:
            late.give(Reply(response, body))

        manager.serving.fetch(request.message, fetched)
        return late

    def notify_replica_fetch(request: RpcRequest) -> None:
        only_nodes(request)
        assert isinstance(request.message, ReplicaFetchWake)
        manager.serving.wake(request.message)

    def log_ends(request: RpcRequest) -> Reply:
        only_nodes(request)
        assert isinstance(request.message, LogEndsRequest)
        return Reply(manager.log_ends(request.message))

    return {
        LeaderAndIsrRequest: leader_and_isr,
        StopReplicaRequest: stop_replica,
        UpdateMetadataRequest: update_metadata,
        ReplicaFetchRequest: replica_fetch,
        ReplicaFetchWake: notify_replica_fetch,
        LogEndsRequest: log_ends,
    }


def only_nodes(request: RpcRequest) -> None:
    """Raises ApiError CLUSTER_AUTHORIZATION_FAILED. (With security on, the hello was taken from a node only: rpc.admission.)"""
    if request.peer.node_id < 0:
        raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only a node of the cluster may command")
