"""Where the markers of a prepared transaction go. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.replica.requests import MetadataResponse
from kafkalite.rpc.messages.control import Broker

#: A partition that is missing from the metadata for this long was deleted: its marker is dropped.
GONE_AFTER_S = 10.0
#: ... and if this node has not heard that its topic was deleted: the topic may have vanished by mistake and come back with all its
#: records (ADR 19). One without the marker would hold up its readers for ever.
VANISHED_AFTER_S = 600.0


@dataclass(frozen=True, slots=True)
class MarkerTargets:
    """`by_leader`: the partitions that can be sent now. `gone`: those that no longer exist. The others have no live leader."""

    by_leader: tuple[tuple[Broker, tuple[TopicPartition, ...]], ...]
    gone: tuple[TopicPartition, ...]


def marker_targets(
    known: MetadataResponse,
    remaining: Collection[TopicPartition],
    missing_since: dict[TopicPartition, float],
    now: float,
    *,
    is_deleted: Callable[[str], bool] = lambda _: True,
) -> MarkerTargets:
    """Group `remaining` by leader.

    A partition is gone when its topic is, or when the topic has no partition of that number: it was recreated with
    fewer, or partitions were removed. Metadata may also be out of date, so the partition has to be missing for a while.

    Args:
        missing_since: when each missing partition was first missed (seconds); updated.
        now: seconds that never go back.
        is_deleted: whether this node has heard that a topic was deleted.
    """
    brokers = {broker.broker_id: broker for broker in known.brokers}
    known_topics = {topic.topic for topic in known.topics if not topic.error}
    leaders = {
        TopicPartition(topic.topic, entry.partition): entry.leader
        for topic in known.topics
        if not topic.error
        for entry in topic.partitions
    }
    groups: dict[BrokerId, list[TopicPartition]] = {}
    gone: list[TopicPartition] = []
    for partition in sorted(remaining):
        leader = leaders.get(partition)
        if leader is not None:
            missing_since.pop(partition, None)
            if leader in brokers:
                groups.setdefault(leader, []).append(partition)
        else:
            is_sure = partition.topic in known_topics or is_deleted(partition.topic)
            patience_s = GONE_AFTER_S if is_sure else VANISHED_AFTER_S
            if now - missing_since.setdefault(partition, now) > patience_s:
                gone.append(partition)
    return MarkerTargets(
        tuple((brokers[leader], tuple(theirs)) for leader, theirs in sorted(groups.items())), tuple(gone)
    )
