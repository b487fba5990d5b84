"""Which waiting commands of one broker may become one. Pure.

A broker that does not answer makes its queue grow; what is newer supersedes what is older, as long as the order in
which one partition's commands arrive stays the same. So a queue holds one entry per kind in the common case:

- LeaderAndIsr joins an earlier one, the newer state of a partition winning, if no StopReplica stands between: the
  two kinds must not change places. An INIT with all partitions swallows what it repeats.
- StopReplica likewise, if no LeaderAndIsr stands between.
- UpdateMetadata says nothing to replicas, so it may pass the other kinds; it joins the last one waiting, unless one
  deletes a topic of which the other knows partitions: then both stand, in their order.
- A deletion and LeaderAndIsr do not change places: the broker forgets what groups have committed for the topic where it
  coordinates them, and a later leader may have commits for the next topic of that name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kafkalite.controller.decisions.effects import Command
from kafkalite.rpc.messages.control import (
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    UpdateMetadataRequest,
)


def enqueue(waiting: Sequence[Command], command: Command) -> list[Command]:
    """The queue after `command` was offered; none of `waiting` has been sent yet. All are of one controller epoch."""
    queue = list(waiting)
    for index in range(len(queue) - 1, -1, -1):
        earlier = queue[index]
        merged = _merge(earlier, command)
        if merged is not None:
            queue[index] = merged
            return queue
        if not _may_swap(command, earlier):
            break
    queue.append(command)
    return queue


def _may_swap(one: Command, other: Command) -> bool:
    for update, command in ((one, other), (other, one)):
        if isinstance(update, UpdateMetadataRequest) and not isinstance(command, UpdateMetadataRequest):
            is_deletion = bool(update.deleted_topics or update.deleted_partitions)
            return not (is_deletion and isinstance(command, LeaderAndIsrRequest))
    return False


def _merge(earlier: Command, later: Command) -> Command | None:
    if earlier.broker_epoch != later.broker_epoch or earlier.controller_epoch != later.controller_epoch:
        return None
    if isinstance(earlier, LeaderAndIsrRequest) and isinstance(later, LeaderAndIsrRequest):
        return _merge_leader_and_isr(earlier, later)
    if isinstance(earlier, StopReplicaRequest) and isinstance(later, StopReplicaRequest):
        stops = {(stop.topic, stop.partition, stop.topic_id): stop for stop in earlier.partitions}
        stops |= {(stop.topic, stop.partition, stop.topic_id): stop for stop in later.partitions}
        return dataclasses.replace(later, partitions=tuple(stops.values()))
    if isinstance(earlier, UpdateMetadataRequest) and isinstance(later, UpdateMetadataRequest):
        return _merge_metadata(earlier, later)
    return None


def _merge_leader_and_isr(earlier: LeaderAndIsrRequest, later: LeaderAndIsrRequest) -> LeaderAndIsrRequest:
    states = {} if later.is_init else _by_partition(earlier.partitions)
    # What the broker has not heard of yet stays new, whatever has happened to it since.
    new = {(entry.topic, entry.partition, entry.topic_id) for entry in earlier.partitions if entry.is_new}
    for entry in later.partitions:
        is_new = entry.is_new or (entry.topic, entry.partition, entry.topic_id) in new
        states[entry.topic, entry.partition] = dataclasses.replace(entry, is_new=True) if is_new else entry
    return dataclasses.replace(later, partitions=tuple(states.values()), is_init=earlier.is_init or later.is_init)


def _by_partition(entries: Sequence[PartitionState]) -> dict[tuple[str, int], PartitionState]:
    return {(entry.topic, entry.partition): entry for entry in entries}


def _merge_metadata(earlier: UpdateMetadataRequest, later: UpdateMetadataRequest) -> UpdateMetadataRequest | None:
    # A full request replaces what was known. What was deleted it does not say, and coordinators forget offsets only because of that.
    before = () if later.is_full else earlier.partitions
    entries = (*before, *later.partitions)
    known = {entry.topic for entry in entries}
    if not known.isdisjoint(earlier.deleted_topics) or not known.isdisjoint(later.deleted_topics):
        return None
    removed = {*earlier.deleted_partitions, *later.deleted_partitions}
    if any((entry.topic, entry.partition) in removed for entry in entries):
        return None
    states = _by_partition(entries)
    return dataclasses.replace(
        later,
        partitions=tuple(states.values()),
        is_full=earlier.is_full or later.is_full,
        deleted_topics=tuple(dict.fromkeys([*earlier.deleted_topics, *later.deleted_topics])),
        deleted_partitions=tuple(dict.fromkeys([*earlier.deleted_partitions, *later.deleted_partitions])),
    )
