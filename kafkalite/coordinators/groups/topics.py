"""What groups need to know of topics: ids, numbers of partitions, racks; what has changed since; what an expression matches."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping

from kafkalite.coordinators.groups.decisions.assignment import AssignedTopic
from kafkalite.coordinators.services import Services
from kafkalite.model import INTERNAL_TOPICS, TopicId
from kafkalite.partition_values import TopicMetadata


class GroupTopics:
    """The topics as the node knows them now."""

    def __init__(self, services: Services) -> None:
        self._services = services
        #: Name -> what it was made of, and what was made.
        self._known: dict[str, tuple[object, AssignedTopic]] = {}
        #: Goes up when any topic may have changed.
        self.version = 0

    def changed(self) -> None:
        """The metadata may be different."""
        self.version += 1

    def lookup(self, names: Iterable[str]) -> dict[str, AssignedTopic]:
        """Those of these topics that exist, by name."""
        wanted = sorted(names)
        answer = self._services.metadata(wanted)
        racks = {int(broker.broker_id): broker.rack for broker in answer.brokers if broker.rack}
        found: dict[str, AssignedTopic] = {}
        for topic in answer.topics:
            if topic.error:
                self._known.pop(topic.topic, None)
                continue
            made = self._known.get(topic.topic)
            basis = (topic, tuple(sorted(racks.items())))
            if made is None or made[0] != basis:
                made = self._known[topic.topic] = (basis, _assigned_topic(topic, racks))
            found[topic.topic] = made[1]
        return found

    def existing(self) -> frozenset[str]:
        """The names of all topics."""
        names = frozenset(topic.topic for topic in self._services.metadata(None).topics)
        for gone in self._known.keys() - names:
            del self._known[gone]
        return names

    def names(self) -> list[str]:
        """All topics but the cluster's own."""
        return sorted(
            topic.topic for topic in self._services.metadata(None).topics if topic.topic not in INTERNAL_TOPICS
        )

    def topic_id(self, name: str) -> TopicId | None:
        topic = self._services.metadata([name]).topics[0]
        return None if topic.error else topic.topic_id

    def topic_name(self, topic_id: TopicId) -> str | None:
        return self._services.topic_name(topic_id)


def _assigned_topic(topic: TopicMetadata, racks: Mapping[int, str]) -> AssignedTopic:
    near: tuple[frozenset[str], ...] = ()
    if racks:
        near = tuple(
            frozenset(racks[int(replica)] for replica in partition.replicas if int(replica) in racks)
            for partition in topic.partitions
        )
    return AssignedTopic(topic.topic_id, topic.topic, len(topic.partitions), near)


def metadata_hash(topics: Mapping[str, AssignedTopic]) -> int:
    """A hash of these topics, their partitions and the partitions' racks."""
    digest = hashlib.blake2b(digest_size=8)
    for name, topic in sorted(topics.items()):
        digest.update(f"{name}\0{topic.topic_id}\0{topic.partitions}\0".encode())
        for racks in topic.racks:
            digest.update("\0".join(sorted(racks)).encode() + b"\1")
    return int(struct.unpack(">q", digest.digest())[0])
