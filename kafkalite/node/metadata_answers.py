"""Metadata responses to clients, from the metadata cache, for both listeners."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.errors import ErrorCode
from kafkalite.model import NO_LEADER, NO_TOPIC_ID
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.requests import MetadataResponse
from kafkalite.rpc.messages.control import PartitionState


class MetadataAnswers:
    """Builds metadata answers; a topic's part is kept until the cache changes (a big topic costs once per change)."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._version = -1
        self._topics: dict[str, TopicMetadata] = {}

    def answer(self, cluster_id: str, topics: Sequence[str] | None) -> MetadataResponse:
        """Of these topics, or of all (None). Unknown ones carry UNKNOWN_TOPIC_OR_PARTITION.

        A node that has just started names no broker, so that clients ask again: they ignore such a response, as Kafka's do.
        """
        cache = self._cache
        if not cache.is_complete:
            later = (TopicMetadata(name, ErrorCode.LEADER_NOT_AVAILABLE, NO_TOPIC_ID, ()) for name in topics or ())
            return MetadataResponse(cluster_id, cache.controller_id, (), tuple(later))
        if self._version != cache.version:
            self._version = cache.version
            self._topics = {}
        names = cache.all_topics() if topics is None else topics
        return MetadataResponse(
            cluster_id, cache.controller_id, cache.brokers(), tuple(self._topic(name) for name in names)
        )

    def _topic(self, name: str) -> TopicMetadata:
        known = self._topics.get(name)
        if known is not None:
            return known
        partitions = self._cache.topic(name)
        if not partitions:
            return TopicMetadata(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC_ID, ())
        described = TopicMetadata(
            name,
            ErrorCode.NONE,
            self._cache.topic_id(name),
            tuple(self._partition(partitions[number]) for number in sorted(partitions)),
        )
        self._topics[name] = described
        return described

    def _partition(self, state: PartitionState) -> PartitionMetadata:
        # A leader that is not alive is no leader to a client: it asks again, as with Kafka.
        alive = state.leader != NO_LEADER and self._cache.broker(state.leader) is not None
        return PartitionMetadata(
            state.partition,
            ErrorCode.NONE if alive else ErrorCode.LEADER_NOT_AVAILABLE,
            state.leader if alive else NO_LEADER,
            state.leader_epoch,
            state.replicas,
            state.isr,
            state.elr,
            state.last_known_elr,
            state.adding_replicas,
        )
