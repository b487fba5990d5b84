"""What the clients' methods return. Plain values; no I/O."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Endpoint
from kafkalite.partition_values import TopicMetadata


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A live broker, and where its listener is that we may use."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The cluster as one broker sees it."""

    cluster_id: str
    controller_id: BrokerId
    brokers: tuple[LiveBroker, ...]
    topics: tuple[TopicMetadata, ...]
