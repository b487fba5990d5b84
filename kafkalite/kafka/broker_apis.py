"""Puts the Kafka side of a node together: coordinators, handlers, listener.

Many nodes never see a group, a transaction or a request of an administrator. What serves these is loaded and made when the cluster has the
internal topic, or when a client asks (docs/adr/0079).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkalite.coordination.topic_configs import CLIENT_METRICS
from kafkalite.coordinators.services import ExtensionHandler, Services
from kafkalite.env.supervisor import Policy
from kafkalite.kafka.apis import make_apis
from kafkalite.kafka.client_metrics import ClientMetrics
from kafkalite.kafka.handlers.cluster import ClusterHandlers
from kafkalite.kafka.handlers.fetching import FetchHandlers
from kafkalite.kafka.handlers.log_offsets import LogOffsetHandlers
from kafkalite.kafka.handlers.producing import MOST_IN_PLACE, ProduceHandlers
from kafkalite.kafka.kept_metadata import KeptMetadata
from kafkalite.kafka.listener import KafkaListener
from kafkalite.kafka.request import Handler, OfferedApi
from kafkalite.model import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC, Endpoint, TopicPartition

if TYPE_CHECKING:
    from kafkalite.coordinators.groups.coordinator import GroupCoordinator
    from kafkalite.coordinators.shares.coordinator import ShareCoordinator
    from kafkalite.coordinators.shares.leading import SharedPartitions
    from kafkalite.coordinators.shares.persister import ClusterSharePersister
    from kafkalite.coordinators.transactions.coordinator import TransactionCoordinator
    from kafkalite.coordinators.transactions.groups import TransactionGroups
    from kafkalite.coordinators.transactions.markers import LocalMarkers, MarkerChannels
    from kafkalite.coordinators.transactions.verifier import TransactionVerifier
    from kafkalite.kafka.handlers.shares.fetching import ShareHandlers
    from kafkalite.rpc.messages.base import Message

#: APIs whose handlers are loaded with the first request for one of them, in groups that need the same.
_GROUPS = (
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "TxnOffsetCommit", "OffsetFetch", "OffsetDelete", "ListGroups",
    "DescribeGroups", "DeleteGroups", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "StreamsGroupHeartbeat", "StreamsGroupDescribe",
    "StreamsGroupTopologyDescriptionUpdate",
)  # fmt: skip
_TRANSACTIONS = (
    "FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "DescribeTransactions",
    "ListTransactions",
)  # fmt: skip
_SHARES = (
    "ShareFetch", "ShareAcknowledge", "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState",
    "ReadShareGroupStateSummary", "ShareGroupHeartbeat", "ShareGroupDescribe", "DescribeShareGroupOffsets", "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
)  # fmt: skip
_ADMINISTRATION = (
    "CreateTopics", "DeleteTopics", "CreatePartitions",
    "ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments", "DescribeProducers", "DescribeLogDirs",
    "AlterReplicaLogDirs", "AlterConfigs", "IncrementalAlterConfigs", "DescribeConfigs", "ListConfigResources", "UpdateFeatures",
    "UnregisterBroker", "DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeClientQuotas", "AlterClientQuotas", "CreateDelegationToken",
    "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
)  # fmt: skip
_SASL = ("SaslHandshake", "SaslAuthenticate", "DescribeUserScramCredentials", "AlterUserScramCredentials")
_TELEMETRY = ("GetTelemetrySubscriptions", "PushTelemetry")


class _Runs(Protocol):
    """What works beside requests, once this node coordinates."""

    def start(self) -> None: ...


class _Closes(Protocol):
    def close(self) -> None: ...


_Part = TypeVar("_Part", bound=_Runs)
_Channels = TypeVar("_Channels", bound=_Closes)


class KafkaSide:
    """What the node starts and stops.

    Args:
        others: internal topics whose coordinators are not of this side -> what makes them.
    """

    def __init__(self, services: Services, others: Mapping[str, Callable[[], object]] | None = None) -> None:
        self._services = services
        self._others = dict(others or {})
        #: Parts that are made; they run from `start` on.
        self._running: list[_Runs] = []
        self._closing: list[_Closes] = []
        #: What clients push about themselves (KIP-714).
        self.client_metrics = ClientMetrics(
            lambda: services.settings_of(CLIENT_METRICS), lambda: int(services.clock.monotonic() * 1000)
        )
        self.fetching = FetchHandlers(services)
        self.kept_metadata = KeptMetadata()
        #: Whether this node coordinates what it leads.
        self.is_coordinating = False
        handlers = {
            **ClusterHandlers(services, self.kept_metadata).table(),
            **ProduceHandlers(services, lambda: self.verifier).table(),
            **LogOffsetHandlers(services).table(),
            **self.fetching.table(),
            **later(_GROUPS, self._group_handlers),
            **later(_TRANSACTIONS, self._transaction_handlers),
            **later(_SHARES, self._share_handlers),
            **later(_ADMINISTRATION, self._administration_handlers),
            **later(_SASL, self._sasl_handlers),
            **later(_TELEMETRY, self._telemetry_handlers),
            **later(["Extension"], self._extension_handlers),
        }
        self.apis: dict[int, OfferedApi] = make_apis(
            handlers,
            {"Fetch": self.fetching.fetch_many},
            {"Fetch": self.fetching.recall},
            {"Produce": MOST_IN_PLACE},
        )
        self.listener = KafkaListener(services, self.apis)
        self.listener.on_closed.append(self.fetching.connection_closed)

    # --- the coordinators, made when something needs them ---

    @cached_property
    def groups(self) -> GroupCoordinator:
        from kafkalite.coordinators.groups.coordinator import GroupCoordinator

        groups = GroupCoordinator(self._services)
        groups.share_states.persister = lambda: self.share_persister
        return self._run(groups)

    @cached_property
    def shares(self) -> ShareCoordinator:
        from kafkalite.coordinators.shares.coordinator import ShareCoordinator

        return self._run(ShareCoordinator(self._services))

    @cached_property
    def share_persister(self) -> ClusterSharePersister:
        """Reaches the state of share groups, wherever it is coordinated (KIP-932)."""
        from kafkalite.coordinators.shares.persister import ClusterSharePersister

        return self._close_at_end(ClusterSharePersister(self._services, self.shares))

    @cached_property
    def shared_partitions(self) -> SharedPartitions:
        from kafkalite.coordinators.shares.leading import SharedPartitions

        return self._run(SharedPartitions(self._services, self.share_persister))

    @cached_property
    def share_fetching(self) -> ShareHandlers:
        from kafkalite.kafka.handlers.shares.fetching import ShareHandlers

        made = ShareHandlers(self._services, self.shared_partitions)
        self.listener.on_closed.append(made.connection_closed)
        return made

    @cached_property
    def markers(self) -> LocalMarkers:
        from kafkalite.coordinators.transactions.markers import LocalMarkers

        return LocalMarkers(self._services, self.groups)

    @cached_property
    def _channels(self) -> MarkerChannels:
        from kafkalite.coordinators.transactions.markers import MarkerChannels

        return self._close_at_end(MarkerChannels(self._services, self.markers))

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        from kafkalite.coordinators.transactions.coordinator import TransactionCoordinator

        return self._run(TransactionCoordinator(self._services, self._channels))

    @cached_property
    def transaction_groups(self) -> TransactionGroups:
        from kafkalite.coordinators.transactions.groups import TransactionGroups

        return TransactionGroups(self._services, self.transactions)

    @cached_property
    def verifier(self) -> TransactionVerifier:
        from kafkalite.coordinators.transactions.verifier import TransactionVerifier

        return self._close_at_end(TransactionVerifier(self._services, self.transactions))

    def _run(self, part: _Part) -> _Part:
        self._running.append(part)
        if self.is_coordinating:
            part.start()
        return part

    def _close_at_end(self, part: _Channels) -> _Channels:
        self._closing.append(part)
        return part

    def coordinated_groups(self) -> GroupCoordinator | None:
        """None: there are none, since the cluster has no topic for them. Nothing is loaded then."""
        return self.groups if "groups" in self.__dict__ or self._exists(GROUP_TOPIC) else None

    def _exists(self, topic: str) -> bool:
        return not self._services.metadata([topic]).topics[0].error

    async def _follow_topics(self) -> None:
        """Make each coordinator when the cluster has its topic: before this node leads one of its partitions, if possible."""
        make: dict[str, Callable[[], object]] = {
            GROUP_TOPIC: lambda: self.groups,
            TRANSACTION_TOPIC: lambda: self.transactions,
            SHARE_TOPIC: lambda: self.shares,
            **self._others,
        }
        while make:
            for topic in [topic for topic in make if self._exists(topic)]:
                make.pop(topic)()
            if make:
                await self._services.metadata_changed()

    # --- handlers that are made with the first request for one of them ---

    def _group_handlers(self) -> dict[str, Handler]:
        from kafkalite.kafka.handlers.groups.administration import GroupAdminHandlers
        from kafkalite.kafka.handlers.groups.classic import ClassicGroupHandlers
        from kafkalite.kafka.handlers.groups.consumer import ConsumerGroupHandlers
        from kafkalite.kafka.handlers.groups.offsets import OffsetHandlers
        from kafkalite.kafka.handlers.groups.streams import StreamsGroupHandlers

        services, groups = self._services, self.groups
        return {
            **ClassicGroupHandlers(groups).table(),
            **OffsetHandlers(services, groups, lambda: self.verifier).table(),
            **GroupAdminHandlers(services, groups).table(),
            **ConsumerGroupHandlers(services, groups).table(),
            **StreamsGroupHandlers(services, groups).table(),
        }

    def _transaction_handlers(self) -> dict[str, Handler]:
        from kafkalite.kafka.handlers.transactions import TransactionHandlers

        return TransactionHandlers(
            self._services, self.groups, self.transactions, self.markers, lambda: self.shares
        ).table()

    def _share_handlers(self) -> dict[str, Handler]:
        from kafkalite.kafka.handlers.groups.share import ShareGroupHandlers
        from kafkalite.kafka.handlers.shares.states import ShareStateHandlers

        return {
            **self.share_fetching.table(),
            **ShareStateHandlers(self._services, self.shares).table(),
            **ShareGroupHandlers(self._services, self.groups, self.share_persister).table(),
        }

    def _administration_handlers(self) -> dict[str, Handler]:
        from kafkalite.kafka.handlers.configs.altering import AlterConfigHandlers
        from kafkalite.kafka.handlers.configs.describing import DescribeConfigHandlers
        from kafkalite.kafka.handlers.features import FeatureHandlers
        from kafkalite.kafka.handlers.log_dirs import LogDirHandlers
        from kafkalite.kafka.handlers.partitions import PartitionHandlers
        from kafkalite.kafka.handlers.security import SecurityHandlers
        from kafkalite.kafka.handlers.tokens import TokenHandlers
        from kafkalite.kafka.handlers.topics import TopicHandlers

        kinds = (
            TopicHandlers,
            PartitionHandlers,
            LogDirHandlers,
            DescribeConfigHandlers,
            AlterConfigHandlers,
            FeatureHandlers,
            SecurityHandlers,
            TokenHandlers,
        )
        return {name: handler for kind in kinds for name, handler in kind(self._services).table().items()}

    def _sasl_handlers(self) -> dict[str, Handler]:
        from kafkalite.kafka.handlers.sasl import SaslHandlers

        return SaslHandlers(self._services).table()

    def _telemetry_handlers(self) -> dict[str, Handler]:
        from kafkalite.kafka.handlers.telemetry import TelemetryHandlers

        return TelemetryHandlers(self._services, self.client_metrics).table()

    def _extension_handlers(self) -> dict[str, Handler]:
        from kafkalite.kafka.handlers.extension import ExtensionHandlers

        return ExtensionHandlers(self._services, self._coordinated).table()

    def _coordinated(self) -> Mapping[type[Message], ExtensionHandler]:
        from kafkalite.coordinators.transactions.extension import TransactionExtension

        return TransactionExtension(self.transactions, self.transaction_groups, self.markers).handlers()

    # --- life ---

    async def start(self, host: str, port: int, name: str = "PLAINTEXT") -> Endpoint:
        """Bind the listener of this name, serve, and coordinate what this node leads. Raises OSError."""
        endpoint = await self.listener.start(name, host, port)
        if not self.is_coordinating:
            self.is_coordinating = True
            for part in self._running:
                part.start()
            self._services.supervisor.spawn("coordinators", self._follow_topics())
        return endpoint

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Offsets committed for them are purged, on the nodes that coordinate the groups."""
        if (groups := self.coordinated_groups()) is not None:
            self._services.supervisor.spawn("groups.purge", groups.removal.topics_deleted(topics), Policy.ISOLATED)

    def partitions_removed(self, partitions: Iterable[TopicPartition]) -> None:
        """The same for partitions that have left their topics."""
        if (groups := self.coordinated_groups()) is not None:
            self._services.supervisor.spawn(
                "groups.purge", groups.removal.partitions_removed(partitions), Policy.ISOLATED
            )

    async def close(self) -> None:
        await self.listener.close()
        for part in self._closing:
            part.close()


def later(names: Sequence[str], make: Callable[[], Mapping[str, Handler]]) -> dict[str, Handler]:
    """The handlers of these APIs; `make` makes them all at the first request for one."""
    made = cache(make)

    def handler(name: str) -> Handler:
        return lambda request, message: made()[name](request, message)

    return {name: handler(name) for name in names}
