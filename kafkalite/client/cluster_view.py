"""What a client knows of the cluster. No I/O: metadata answers go in, leaders come out."""

from __future__ import annotations

from dataclasses import replace

from kafkalite.client.results import LiveBroker, Metadata
from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Endpoint, LeaderEpoch, TopicPartition
from kafkalite.partition_values import PartitionMetadata, TopicMetadata


@dataclass(frozen=True, slots=True)
class Leader:
    """A partition's leader, as far as known."""

    broker_id: BrokerId
    leader_epoch: LeaderEpoch


class ClusterView:
    """Brokers, topics, leaders.

    A node that lags behind may answer with an older state than is known already: a partition's entry is
    only replaced by one of the same or a later leader epoch, unless the topic is another one (topic id).
    """

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = BrokerId(-1)
        self.brokers: dict[BrokerId, LiveBroker] = {}
        self.topics: dict[str, TopicMetadata] = {}
        #: Rises with every update.
        self.version = 0
        self._leaders: dict[TopicPartition, Leader] = {}
        self._available: dict[str, list[int]] = {}

    def update(self, answer: Metadata, *, has_all_topics: bool = False) -> None:
        """Take a node's answer. `has_all_topics`: there are no others."""
        self.version += 1
        self._available.clear()
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        if answer.brokers:
            self.brokers = {broker.broker_id: broker for broker in answer.brokers}
        if has_all_topics:
            for gone in self.topics.keys() - {topic.topic for topic in answer.topics}:
                self.forget(gone)
        for topic in answer.topics:
            self._update_topic(topic)

    def forget(self, topic: str) -> None:
        """As if nobody had asked for this topic yet."""
        self._available.pop(topic, None)
        if (known := self.topics.pop(topic, None)) is not None:
            for entry in known.partitions:
                self._leaders.pop(TopicPartition(topic, entry.partition), None)

    def _update_topic(self, topic: TopicMetadata) -> None:
        if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.forget(topic.topic)
            return
        known = self.topics.get(topic.topic)
        if topic.error and known is not None:
            return
        partitions = topic.partitions
        if known is not None and known.topic_id == topic.topic_id:
            before = {entry.partition: entry for entry in known.partitions}
            partitions = tuple(_newer(before.get(entry.partition), entry) for entry in partitions)
        elif known is not None:
            for entry in known.partitions:
                self._leaders.pop(TopicPartition(topic.topic, entry.partition), None)
        self.topics[topic.topic] = replace(topic, partitions=partitions)
        for entry in partitions:
            key = TopicPartition(topic.topic, entry.partition)
            if entry.leader >= 0:
                self._leaders[key] = Leader(entry.leader, entry.leader_epoch)
            else:
                self._leaders.pop(key, None)

    def leader(self, key: TopicPartition) -> Leader | None:
        """The leader, if it is known and alive."""
        leader = self._leaders.get(key)
        return leader if leader is not None and leader.broker_id in self.brokers else None

    def endpoint(self, broker_id: BrokerId) -> Endpoint | None:
        """Where a broker listens."""
        broker = self.brokers.get(broker_id)
        return broker.endpoint if broker is not None else None

    def learn(self, broker: LiveBroker) -> None:
        """Remember the address of a broker that the metadata has not named yet, or has named with another address."""
        if self.endpoint(broker.broker_id) != broker.endpoint:
            self.brokers[broker.broker_id] = broker

    def partition_count(self, topic: str) -> int:
        """0 while the topic is not known."""
        entry = self.topics.get(topic)
        return 0 if entry is None or entry.error else len(entry.partitions)

    def available(self, topic: str) -> list[int]:
        """The partitions that have a live leader, in order; all of them while none has."""
        found = self._available.get(topic)
        if found is None:
            found = self._available[topic] = self._find_available(topic)
        return found

    def _find_available(self, topic: str) -> list[int]:
        entry = self.topics.get(topic)
        if entry is None:
            return []
        numbers = sorted(partition.partition for partition in entry.partitions)
        return [n for n in numbers if self.leader(TopicPartition(topic, n)) is not None] or numbers


def _newer(known: PartitionMetadata | None, received: PartitionMetadata) -> PartitionMetadata:
    return known if known is not None and known.leader_epoch > received.leader_epoch else received
