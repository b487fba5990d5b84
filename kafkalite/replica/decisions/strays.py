"""What becomes of a log without a replica on this node, decided by the znode of its topic. Pure.

Such logs come back with a disk (`admin disk online`) after their partition was removed, moved or created again meanwhile; a
controller's complete list does not name them; or their topic's znode has vanished (ADR 19).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafkalite.coordination.topic_znodes import TopicZnode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from kafkalite.rpc.messages.control import PartitionState


@dataclass(frozen=True, slots=True)
class StrayClassification:
    """All lists are sorted. Other logs are left alone: they are ours, or their topic cannot be read."""

    #: The topic's own znode says that they are not ours: it gives the partition to others, or has no such partition (any
    #: more).
    surplus: tuple[TopicPartition, ...] = ()
    #: There is no such topic, and no request to delete it: an emptied or restored ZooKeeper looks like this. They stay where
    #: they are, not served, until the topic is back or an operator decides.
    orphans: tuple[TopicPartition, ...] = ()
    #: The same, but another topic has the name: they are kept under another name.
    replaced: tuple[TopicPartition, ...] = ()


def classify(
    broker_id: BrokerId, logs: Mapping[TopicPartition, TopicId], topics: Mapping[str, TopicZnode | None]
) -> StrayClassification:
    """Classify `logs`, none of which has a replica here.

    Args:
        topics: as read from ZooKeeper; None where there is no znode. What could not be decoded is left out.
    """
    surplus, orphans, replaced = [], [], []
    for key in sorted(logs):
        if key.topic not in topics:
            continue
        topic = topics[key.topic]
        if topic is None:
            orphans.append(key)
        elif is_other(logs[key], topic.topic_id):
            replaced.append(key)
        elif broker_id not in topic.partitions.get(key.partition, ()):
            surplus.append(key)
    return StrayClassification(tuple(surplus), tuple(orphans), tuple(replaced))


def refusal(strays: int, local: int, max_percent: int) -> str:
    """Why this number of the node's `local` logs is not set aside at once; "" if they are (invariant F19)."""
    if 100 * strays <= max_percent * local:
        return ""
    return (
        f"{strays} of {local} local replicas are not assigned to this broker: this is probably an error "
        f"(stray.max.fraction.percent={max_percent}); they are left alone"
    )


def is_elsewhere(
    broker_id: BrokerId, state: PartitionState | None, live: Collection[BrokerId], *, is_sound_here: bool
) -> bool:
    """Whether the records of a log that was set aside are known to be in sync elsewhere, so that it may be removed.

    Where this broker has a replica, that one has to be sound and in sync, with another live one. Where the partition was
    given to others, they have to be in sync among themselves. In all other cases (a topic that does not exist any
    more, a partition whose only replica is here) this cannot be known.

    Args:
        state: of the partition of that very topic, as known now; None if there is none.
        live: brokers.
        is_sound_here: the replica here is in service.
    """
    if state is None or state.leader not in live:
        return False
    others = sum(member != broker_id and member in live for member in state.isr)
    if broker_id in state.replicas:
        return is_sound_here and broker_id in state.isr and others >= 1
    return others >= min(2, len(state.replicas))


def is_later(topic_id: TopicId, latest_epoch: LeaderEpoch, state_epoch: LeaderEpoch) -> bool:
    """Whether a log that was given to other brokers has records of a later leader epoch than the partition has in ZooKeeper: that was restored from a
    time before the partition came here. Leader epochs never go back otherwise. Later elections will hide this."""
    return topic_id != NO_TOPIC_ID and latest_epoch > state_epoch


def is_other(own: str, other: str) -> bool:
    """Whether two topic ids name different topics; a topic made by an old tool has none, which matches any."""
    return own != other and NO_TOPIC_ID not in (own, other)
