"""Requests of the extension API that the node serves: each goes to the part that answers it. No policy here."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Protocol

from kafkalite.controller.controller import Controller
from kafkalite.coordination.broker_states import ACTIVE
from kafkalite.coordinators.services import ExtensionHandler
from kafkalite.env.loop_times import LoopTimes
from kafkalite.env.turns import result_of
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.balancing import DescribeBalanceRequest
from kafkalite.extension.messages.configs import DescribeBrokerSettingsRequest
from kafkalite.extension.messages.disks import (
    AlterStrayRequest,
    DescribeDisksRequest,
    DiskOnlineRequest,
    MoveReplicasRequest,
)
from kafkalite.extension.messages.open_transactions import (
    OpenTransactionsRequest,
    OpenTransactionsResponse,
    PartitionTransaction,
)
from kafkalite.extension.messages.rates import DescribeGroupLagRequest, DescribeTrafficRequest
from kafkalite.extension.messages.reassignment import AlterReassignmentsRequest, ListReassignmentsRequest
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    RemovePartitionsRequest,
)
from kafkalite.extension.messages.tracing import TraceRequest
from kafkalite.extension.messages.watching import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    HealthRequest,
    HealthResponse,
    HistoryRequest,
    HistoryResponse,
    StatusRequest,
    StatusResponse,
)
from kafkalite.http.overview import Overview
from kafkalite.http.sampling import Sampler
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.model import TopicPartition
from kafkalite.node.administration import Administration
from kafkalite.node.health import NodeHealth
from kafkalite.node.settings import CurrentSettings
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.base import Message

#: Of one question about the past.
MAX_SUBJECTS = 100
#: Partitions and transactions on them that are described between two yields: about a millisecond.
_STEP = 500


class ExtensionHost(Protocol):
    """What the handlers need of the node."""

    admin: Administration
    replicas: ReplicaManager
    metadata: MetadataCache
    controller: Controller
    overview: Overview
    sampler: Sampler
    kafka: KafkaSide
    started_ms: int
    local: LocalBroker
    loop_times: LoopTimes
    settings: CurrentSettings
    health: NodeHealth


class NodeExtension:
    """The handlers by class of request."""

    def __init__(self, host: ExtensionHost) -> None:
        self._host = host

    def handlers(self) -> Mapping[type[Message], ExtensionHandler]:
        host = self._host
        return {
            CreateTopicsRequest: host.admin.topics.create_topics,
            DeleteTopicsRequest: host.admin.topics.delete_topics,
            RemovePartitionsRequest: host.admin.partitions.remove,
            AlterReassignmentsRequest: host.admin.reassignments.alter,
            ListReassignmentsRequest: host.admin.reassignments.list,
            DescribeBalanceRequest: host.controller.describe_balance,
            DescribeReplicasRequest: self._describe_replicas,
            DescribeBrokerSettingsRequest: host.admin.configs.describe_broker,
            DescribeDisksRequest: host.admin.log_dirs.describe,
            DiskOnlineRequest: host.admin.log_dirs.online,
            AlterStrayRequest: host.admin.log_dirs.alter_stray,
            MoveReplicasRequest: host.admin.log_dirs.move,
            OpenTransactionsRequest: self._open_transactions,
            DescribeClusterRequest: self._describe_cluster,
            HealthRequest: self._health,
            HistoryRequest: self._history,
            StatusRequest: self._status,
            TraceRequest: lambda message: host.kafka.listener.tracer.watch(message),
            DescribeTrafficRequest: host.sampler.describe_traffic,
            DescribeGroupLagRequest: host.sampler.describe_group_lag,
        }

    def _known(self) -> MetadataCache:
        """Raises ApiError (the client asks another node): this one has just started, and would say that there is nothing."""
        if not self._host.metadata.is_complete:
            raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, "the node that answers knows no broker yet")
        return self._host.metadata

    async def _status(self, message: StatusRequest) -> StatusResponse:
        self._known()
        return await self._host.overview.answer(message)

    async def _describe_cluster(self, message: DescribeClusterRequest) -> DescribeClusterResponse:
        cache = self._known()
        return DescribeClusterResponse(
            self._host.local.cluster_id, cache.controller_id, cache.controller_epoch, cache.brokers()
        )

    async def _health(self, message: HealthRequest) -> HealthResponse:
        problems = await self._host.health.ask(message.subjects[:MAX_SUBJECTS])
        longest = self._host.loop_times.longest()
        return HealthResponse(
            self._host.local.broker_id,
            problems,
            self._host.settings.broker_states().get(self._host.local.broker_id, ACTIVE),
            longest_turn_ms=round(longest.seconds * 1000) if longest else 0,
            longest_turn=longest.culprit if longest else "",
        )

    async def _history(self, message: HistoryRequest) -> HistoryResponse:
        events = self._host.health.history(message.subjects[:MAX_SUBJECTS])
        return HistoryResponse(self._host.local.broker_id, self._host.started_ms, tuple(events))

    async def _describe_replicas(self, message: DescribeReplicasRequest) -> DescribeReplicasResponse:
        return await result_of(self._host.replicas.describing.describe(message.topics, message.partitions))

    async def _open_transactions(self, message: OpenTransactionsRequest) -> OpenTransactionsResponse:
        return await result_of(self._opened(message))

    def _opened(self, message: OpenTransactionsRequest) -> Generator[None, None, OpenTransactionsResponse]:
        """In steps: anybody may ask, and a node may have many partitions."""
        replicas = self._host.replicas
        hosted = replicas.hosted
        if message.partitions:
            named = [hosted.get(TopicPartition(*each)) for each in sorted(set(message.partitions))]
            chosen = [partition for partition in named if partition is not None]
        else:
            chosen = sorted(hosted.all(), key=lambda partition: partition.topic_partition)
        found: list[PartitionTransaction] = []
        done = 0
        for number, partition in enumerate(chosen, 1):
            if partition.leader is not None:
                found += [
                    PartitionTransaction(
                        *partition.topic_partition,
                        each.producer_id,
                        each.producer_epoch,
                        each.coordinator_epoch,
                        each.start_offset,
                        each.last_timestamp_ms,
                        each.open_ms,
                    )
                    for each in replicas.open_transactions.of(partition)
                ]
            if number + len(found) - done >= _STEP:
                done = number + len(found)
                yield
        return OpenTransactionsResponse(ErrorCode.NONE, transactions=tuple(found))
