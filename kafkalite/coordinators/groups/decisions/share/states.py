"""Which partitions of a share group have a state at the share coordinator, as its records say (KIP-932). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from kafkalite.coordinators.groups.decisions.members import GroupEpoch
from kafkalite.coordinators.groups.decisions.share.group import (
    PartitionsWithState,
    SharedTopic,
    SharedTopics,
    ShareGroup,
    ShareRecord,
    joined,
    partitions_of,
    without,
)
from kafkalite.model import TopicId


def initialized(group: ShareGroup, done: Mapping[TopicId, frozenset[int]]) -> list[ShareRecord]:
    """These partitions have a state now. The group gets a new epoch, so that they are assigned."""
    shared = group.shared
    begun = {
        topic_id: SharedTopic(topic.name, topic.partitions & done.get(topic_id, frozenset()))
        for topic_id, topic in shared.initializing.items()
        if topic.partitions & done.get(topic_id, frozenset())
    }
    if not begun:
        return []
    return [
        PartitionsWithState(without(shared.initializing, done), joined(shared.initialized, begun), shared.deleting),
        GroupEpoch(group.epoch + 1, group.metadata_hash),
    ]


def begun(group: ShareGroup) -> dict[TopicId, SharedTopic]:
    """The partitions that have a state, or may have one."""
    return joined(group.shared.initializing, group.shared.initialized)


def is_to_begin(group: ShareGroup, topic_id: TopicId, number: int) -> bool:
    """Whether the records name this partition, so that its state will be deleted one day, and not now."""
    shared = group.shared
    if topic_id in shared.deleting:
        return False
    return any(
        topic_id in each and number in each[topic_id].partitions for each in (shared.initializing, shared.initialized)
    )


def next_epoch(group: ShareGroup) -> list[ShareRecord]:
    return [GroupEpoch(group.epoch + 1, group.metadata_hash)]


def about_to_set(group: ShareGroup, wanted: SharedTopics) -> list[ShareRecord]:
    """An administrator sets start offsets of these partitions, under a new epoch: what the partitions' leaders may still write is fenced.

    Those that have a state keep it until then.
    """
    shared = group.shared
    fresh = without(wanted, partitions_of(begun(group)))
    noted = [replace(shared, initializing=joined(shared.initializing, fresh))] if fresh else []
    return [*noted, *next_epoch(group)]


def deleted(group: ShareGroup, doomed: SharedTopics, kept: Collection[TopicId]) -> list[ShareRecord]:
    """The states of `doomed` are deleted, but for those of `kept`, which could not be (a set: there may be thousands of both)."""
    if not doomed:
        return []
    shared = group.shared
    gone = {topic_id: topic for topic_id, topic in doomed.items() if topic_id not in kept}
    left = {topic_id: doomed[topic_id] for topic_id in kept}
    deleting = {topic_id: name for topic_id, name in shared.deleting.items() if topic_id not in doomed}
    # Some of their states are gone: they begin again before they are assigned.
    initializing = joined(without(shared.initializing, partitions_of(gone)), left)
    return [PartitionsWithState(initializing, shared.initialized, deleting)]


def beginning_again(group: ShareGroup, removed: SharedTopics) -> list[ShareRecord]:
    """Partitions were removed from their topics: they have no state any more. If one is there again, its state begins in a
    later epoch than the one before it."""
    shared = group.shared
    initialized = without(shared.initialized, partitions_of(removed))
    return [
        PartitionsWithState(joined(shared.initializing, removed), initialized, shared.deleting),
        *next_epoch(group),
    ]


def forgotten(group: ShareGroup, removed: SharedTopics) -> list[ShareRecord]:
    """The states of removed partitions are deleted."""
    shared = group.shared
    left = without(shared.initializing, partitions_of(removed))
    return [PartitionsWithState(left, shared.initialized, shared.deleting)]


def set_by_hand(group: ShareGroup, done: Mapping[TopicId, tuple[str, frozenset[int]]]) -> list[ShareRecord]:
    """An administrator has set the start offsets of these partitions."""
    begun_now = {topic_id: SharedTopic(name, numbers) for topic_id, (name, numbers) in done.items() if numbers}
    if not begun_now:
        return []
    shared = group.shared
    initializing = without(shared.initializing, partitions_of(begun_now))
    return [
        PartitionsWithState(initializing, joined(shared.initialized, begun_now), shared.deleting),
        GroupEpoch(group.epoch + 1, group.metadata_hash),
    ]
