"""Puts the Kafka side of a node together: coordinators, handlers, listener."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.coordination.topic_configs import CLIENT_METRICS
from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.coordinator import ShareCoordinator
from kafkalite.coordinators.shares.leading import SharedPartitions
from kafkalite.coordinators.shares.persister import ClusterSharePersister
from kafkalite.coordinators.transactions.coordinator import TransactionCoordinator
from kafkalite.coordinators.transactions.extension import TransactionExtension
from kafkalite.coordinators.transactions.groups import TransactionGroups
from kafkalite.coordinators.transactions.markers import LocalMarkers, MarkerChannels
from kafkalite.coordinators.transactions.verifier import TransactionVerifier
from kafkalite.env.supervisor import Policy
from kafkalite.kafka.apis import make_apis
from kafkalite.kafka.client_metrics import ClientMetrics
from kafkalite.kafka.handlers.cluster import ClusterHandlers
from kafkalite.kafka.handlers.configs.altering import AlterConfigHandlers
from kafkalite.kafka.handlers.configs.describing import DescribeConfigHandlers
from kafkalite.kafka.handlers.extension import ExtensionHandlers
from kafkalite.kafka.handlers.features import FeatureHandlers
from kafkalite.kafka.handlers.fetching import FetchHandlers
from kafkalite.kafka.handlers.groups.administration import GroupAdminHandlers
from kafkalite.kafka.handlers.groups.classic import ClassicGroupHandlers
from kafkalite.kafka.handlers.groups.consumer import ConsumerGroupHandlers
from kafkalite.kafka.handlers.groups.offsets import OffsetHandlers
from kafkalite.kafka.handlers.groups.share import ShareGroupHandlers
from kafkalite.kafka.handlers.groups.streams import StreamsGroupHandlers
from kafkalite.kafka.handlers.log_dirs import LogDirHandlers
from kafkalite.kafka.handlers.log_offsets import LogOffsetHandlers
from kafkalite.kafka.handlers.partitions import PartitionHandlers
from kafkalite.kafka.handlers.producing import MOST_IN_PLACE, ProduceHandlers
from kafkalite.kafka.handlers.sasl import SaslHandlers
from kafkalite.kafka.handlers.security import SecurityHandlers
from kafkalite.kafka.handlers.shares.fetching import ShareHandlers
from kafkalite.kafka.handlers.shares.states import ShareStateHandlers
from kafkalite.kafka.handlers.telemetry import TelemetryHandlers
from kafkalite.kafka.handlers.tokens import TokenHandlers
from kafkalite.kafka.handlers.topics import TopicHandlers
from kafkalite.kafka.handlers.transactions import TransactionHandlers
from kafkalite.kafka.listener import KafkaListener
from kafkalite.kafka.request import OfferedApi
from kafkalite.model import Endpoint, TopicPartition


class KafkaSide:
    """What the node starts and stops."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.groups = GroupCoordinator(services)
        self.shares = ShareCoordinator(services)
        #: Reaches the state of share groups, wherever it is coordinated (KIP-932).
        self.share_persister = ClusterSharePersister(services, self.shares)
        self.groups.share_states.persister = self.share_persister
        self.shared_partitions = SharedPartitions(services, self.share_persister)
        self.share_fetching = ShareHandlers(services, self.shared_partitions)
        self.markers = LocalMarkers(services, self.groups)
        self._channels = MarkerChannels(services, self.markers)
        self.transactions = TransactionCoordinator(services, self._channels)
        self.transaction_groups = TransactionGroups(services, self.transactions)
        self.verifier = TransactionVerifier(services, self.transactions)
        #: What clients push about themselves (KIP-714).
        self.client_metrics = ClientMetrics(
            lambda: services.settings_of(CLIENT_METRICS), lambda: int(services.clock.monotonic() * 1000)
        )
        self.fetching = FetchHandlers(services)
        #: Whether this node coordinates what it leads.
        self.is_coordinating = False
        coordinated = TransactionExtension(self.transactions, self.transaction_groups, self.markers).handlers()
        handlers = {
            **ClusterHandlers(services).table(),
            **ProduceHandlers(services, self.verifier).table(),
            **LogOffsetHandlers(services).table(),
            **self.fetching.table(),
            **self.share_fetching.table(),
            **TopicHandlers(services).table(),
            **PartitionHandlers(services).table(),
            **LogDirHandlers(services).table(),
            **DescribeConfigHandlers(services).table(),
            **AlterConfigHandlers(services).table(),
            **FeatureHandlers(services).table(),
            **SecurityHandlers(services).table(),
            **ClassicGroupHandlers(self.groups).table(),
            **OffsetHandlers(services, self.groups, self.verifier).table(),
            **GroupAdminHandlers(services, self.groups).table(),
            **ConsumerGroupHandlers(services, self.groups).table(),
            **StreamsGroupHandlers(services, self.groups).table(),
            **ExtensionHandlers(services, coordinated).table(),
            **SaslHandlers(services).table(),
            **TokenHandlers(services).table(),
            **ShareStateHandlers(services, self.shares).table(),
            **ShareGroupHandlers(services, self.groups, self.share_persister).table(),
            **TelemetryHandlers(services, self.client_metrics).table(),
            **TransactionHandlers(services, self.groups, self.transactions, self.markers, self.shares).table(),
        }
        self.apis: dict[int, OfferedApi] = make_apis(
            handlers,
            {"Fetch": self.fetching.fetch_many},
            {"Fetch": self.fetching.recall},
            {"Produce": MOST_IN_PLACE},
        )
        self.listener = KafkaListener(services, self.apis)
        self.listener.on_closed.append(self.share_fetching.connection_closed)
        self.listener.on_closed.append(self.fetching.connection_closed)

    async def start(self, host: str, port: int, name: str = "PLAINTEXT") -> Endpoint:
        """Bind the listener of this name, serve, and coordinate what this node leads. Raises OSError."""
        endpoint = await self.listener.start(name, host, port)
        if not self.is_coordinating:
            self.groups.start()
            self.transactions.start()
            self.shares.start()
            self.shared_partitions.start()
            self.is_coordinating = True
        return endpoint

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Offsets committed for them are purged, on the nodes that coordinate the groups."""
        self._services.supervisor.spawn("groups.purge", self.groups.removal.topics_deleted(topics), Policy.ISOLATED)

    def partitions_removed(self, partitions: Iterable[TopicPartition]) -> None:
        """The same for partitions that have left their topics."""
        self._services.supervisor.spawn(
            "groups.purge", self.groups.removal.partitions_removed(partitions), Policy.ISOLATED
        )

    async def close(self) -> None:
        await self.listener.close()
        self._channels.close()
        self.verifier.close()
        self.share_persister.close()
