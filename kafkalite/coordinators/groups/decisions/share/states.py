"""Which partitions of a share group have a state at the share coordinator, as its records say (KIP-932). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def next_epoch(group: ShareGroup) -> list[ShareRecord]:
    return [GroupEpoch(group.epoch + 1, group.metadata_hash)]


def deleted(group: ShareGroup, doomed: SharedTopics, kept: Sequence[TopicId]) -> list[ShareRecord]:
    """The states of `doomed` are deleted, but for those of `kept`, which could not be."""
    if not doomed:
        return []
    shared = group.shared
    left = {topic_id: doomed[topic_id] for topic_id in kept}
    deleting = {topic_id: name for topic_id, name in shared.deleting.items() if topic_id not in doomed}
    # Some of their states are gone: they begin again before they are assigned.
    return [PartitionsWithState(joined(shared.initializing, left), shared.initialized, deleting)]


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
