"""Partitions are added to topics and removed from them. Pure (controller design H, invariant C20).

Adding: one transaction puts the partition into the topic's znode and takes the request away; a partition without a state
is initialised, by this controller or by the next.

Removing: the last partitions of a topic only, so that what remains is numbered without a gap.
1. with drain: the leader takes no more records, until nothing is left (retention, DeleteRecords, or all groups have read it);
2. one transaction takes the partition out of the topic's znode and notes in the request who had it;
3. replicas remove their files; those on dead brokers and offline disks when they return;
4. state and request go. Until then the number is not given out again: an old replica would pass for a new one's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from kafkalite.controller.decisions.commands import announce_removal, delete_replicas
from kafkalite.controller.decisions.effects import (
    Decision,
    Effect,
    Note,
    ReadStates,
    RemovePartitionRequests,
    RemovePartitions,
    WriteTopics,
)
from kafkalite.controller.decisions.events import (
    BeginDraining,
    PartitionRequests,
    PartitionsDrained,
    PartitionsRemoved,
    TopicChange,
)
from kafkalite.controller.decisions.malformed_znodes import record_malformed
from kafkalite.controller.decisions.reassignments import MAX_PER_TOPIC
from kafkalite.controller.decisions.state import ControllerState, Removal, Topic
from kafkalite.coordination import paths
from kafkalite.coordination.admin_znodes import PartitionRemoval
from kafkalite.model import BrokerId, TopicPartition


def under_way(
    state: ControllerState, requests: Mapping[TopicPartition, PartitionRemoval]
) -> dict[TopicPartition, Removal]:
    """The removals that an earlier controller has begun: brokers are informed of them before anything else."""
    removals: dict[TopicPartition, Removal] = {}
    for partition in sorted(requests):
        request, topic = requests[partition], state.topics.get(partition.topic)
        if topic is None:
            continue
        if partition.partition not in topic.assignment:
            if request.replicas:
                removals[partition] = Removal(waiting=frozenset(request.replicas), draining=request.drain)
        elif request.drain:
            removals[partition] = Removal(drain=True)
    return removals


def on_partition_requests(state: ControllerState, event: PartitionRequests) -> Decision:
    """All requests as they stand."""
    effects: list[Effect] = []
    known = {path for path in state.malformed if path.startswith((paths.PARTITIONS_ADD, paths.PARTITIONS_REMOVE))}
    reasons = dict(event.malformed)
    changes: dict[str, TopicChange] = {}
    dropped_adds: list[TopicPartition] = []
    for partition in sorted(event.adds):
        topic = state.topics.get(partition.topic)
        if topic is None and paths.topic(partition.topic) in state.malformed:
            continue
        if topic is None or partition.topic in state.deletions or partition.partition in topic.assignment:
            dropped_adds.append(partition)
            continue
        change = changes.get(partition.topic) or TopicChange(partition.topic, topic, ())
        if any(each.topic == partition.topic for each in [*event.removals, *state.removals]):
            reasons[paths.partition_add(partition)] = "partitions of the topic are being removed"
        elif partition.partition != len(change.topic.assignment):
            reasons[paths.partition_add(partition)] = "leaves a gap in the numbers of the partitions"
        elif len(change.added) < MAX_PER_TOPIC:
            extended = change.topic.with_partition(partition.partition, event.adds[partition], None)
            changes[partition.topic] = dataclasses.replace(
                change,
                topic=extended,
                partitions=(*change.partitions, partition),
                added=(*change.added, partition),
            )
    state, dropped_removals, bad, draining = _take_removals(state, event)
    reasons |= bad
    for path in sorted(known | reasons.keys()):
        state, notes = record_malformed(state, path, reasons.get(path))
        effects += notes
    if dropped_adds or dropped_removals:
        effects.append(RemovePartitionRequests(tuple(dropped_adds), tuple(dropped_removals)))
    effects += [WriteTopics((changes[name],)) for name in sorted(changes) if changes[name].added]
    if draining:
        effects.append(ReadStates(tuple(draining), BeginDraining()))
    return _advance_removals(state, effects, "partition.removal")


def _take_removals(
    state: ControllerState, event: PartitionRequests
) -> tuple[ControllerState, list[TopicPartition], dict[str, str], list[TopicPartition]]:
    """The state with all removals; requests that ask for nothing; reasons against requests; what is to be drained now."""
    removals = {p: removal for p, removal in state.removals.items() if p in event.removals}
    dropped: list[TopicPartition] = []
    reasons: dict[str, str] = {}
    # A request that was withdrawn: the leader gets a command to accept records again.
    draining = [p for p, each in state.removals.items() if p not in removals and each.draining and each.waiting is None]
    for partition in sorted(event.removals, key=lambda each: (each.topic, -each.partition)):
        request, topic = event.removals[partition], state.topics.get(partition.topic)
        if paths.topic(partition.topic) in state.malformed:
            continue
        if topic is None or partition.topic in state.deletions:
            dropped.append(partition)
        elif partition.partition not in topic.assignment:
            if not request.replicas:
                dropped.append(partition)
            elif partition not in removals or removals[partition].waiting is None:
                removals[partition] = Removal(request.drain, frozenset(request.replicas), draining=request.drain)
        elif partition.partition == 0:
            reasons[paths.partition_remove(partition)] = "a topic keeps at least one partition; delete the topic"
        elif any(
            number > partition.partition and TopicPartition(partition.topic, number) not in removals
            for number in topic.assignment
        ):
            reasons[paths.partition_remove(partition)] = "only the last partitions of a topic can be removed"
        else:
            before = removals.get(partition)
            is_draining = request.drain and before is not None and before.draining
            if request.drain and not is_draining:
                draining.append(partition)
            removals[partition] = Removal(request.drain, draining=request.drain)
    return dataclasses.replace(state, removals=removals), dropped, reasons, sorted(draining)


def on_drained(state: ControllerState, event: PartitionsDrained) -> Decision:
    """Nothing is left: the partition leaves the topic."""
    removals = dict(state.removals)
    for partition in event.partitions:
        removal = removals.get(partition)
        if removal is not None and removal.waiting is None and removal.drain:
            removals[partition] = dataclasses.replace(removal, drain=False)
    return _advance_removals(dataclasses.replace(state, removals=removals), [], "partition.drained")


def _advance_removals(state: ControllerState, effects: list[Effect], cause: str) -> Decision:
    """Take the partitions that may go now out of their topics, and have the replicas removed of those that are out."""
    effects += _take_out(state, state.removals)
    for name in sorted({partition.topic for partition, each in state.removals.items() if each.waiting}):
        effects += retry_removals(state, name, cause)
    return _finish(state, effects)


def _take_out(state: ControllerState, removals: Iterable[TopicPartition]) -> list[Effect]:
    """The writes that take these out of their topics: the last ones first, nothing from behind one that still drains."""
    by_topic: dict[str, TopicChange] = {}
    blocked: set[str] = set()
    for partition in sorted(removals, key=lambda each: (each.topic, -each.partition)):
        removal, topic = state.removals[partition], state.topics.get(partition.topic)
        if topic is None or removal.waiting is not None:
            continue
        if removal.drain or partition.topic in blocked:
            blocked.add(partition.topic)
            continue
        change = by_topic.get(partition.topic) or TopicChange(partition.topic, topic, ())
        if len(change.removed) < MAX_PER_TOPIC:
            by_topic[partition.topic] = _removing(change, change.topic, partition, removal)
    return [WriteTopics((by_topic[name],)) for name in sorted(by_topic)]


def _removing(change: TopicChange, topic: Topic, partition: TopicPartition, removal: Removal) -> TopicChange:
    number = partition.partition
    move = topic.moves.get(number)
    hosts = (*topic.assignment[number], *(move.dropping if move is not None else ()))
    request = PartitionRemoval(removal.draining, tuple(dict.fromkeys(hosts)))
    return dataclasses.replace(
        change,
        topic=topic.without_partition(number),
        partitions=(*change.partitions, partition),
        removed={**change.removed, partition: request},
    )


def on_change_written(state: ControllerState, change: TopicChange) -> Decision:
    """Partitions have come into a topic, or have left it."""
    effects: list[Effect] = []
    if change.removed:
        removals = dict(state.removals)
        for partition, request in change.removed.items():
            removals[partition] = Removal(waiting=frozenset(request.replicas), draining=request.drain)
            effects.append(Note("partition.removed", str(partition), f"from {list(request.replicas)}"))
        rest = {each: known for each, known in state.partitions.items() if each not in change.removed}
        state = state.without_memory_of(change.removed.__contains__)
        state = dataclasses.replace(state, removals=removals, partitions=rest)
        effects += announce_removal(state, tuple(sorted(change.removed)), "partition.removal")
        effects += retry_removals(state, change.name, "partition.removal")
        effects += _take_out(state, [each for each in removals if each.topic == change.name])
    effects += [Note("partition.added", str(partition)) for partition in change.added]
    return state, effects


def retry_removals(state: ControllerState, topic: str, cause: str) -> list[Effect]:
    """StopReplica with deletion to the live brokers that have not answered yet."""
    waiting = {
        (partition.partition, broker)
        for partition, removal in state.removals.items()
        if partition.topic == topic and removal.waiting
        for broker in removal.waiting
    }
    if not waiting or topic not in state.topics:
        return []
    return delete_replicas(state, {topic: waiting}, state.brokers.keys(), cause)


def on_replicas_removed(
    state: ControllerState, stopped: tuple[TopicPartition, ...], away: Collection[TopicPartition], broker: BrokerId
) -> Decision:
    """A broker has removed replicas; when the last one is gone, the znodes go. `away`: other files of these may be on an
    offline disk."""
    removals = dict(state.removals)
    for partition in stopped:
        removal = removals.get(partition)
        if removal is None or not removal.waiting:
            continue
        if partition in away:
            removals[partition] = dataclasses.replace(removal, away=removal.away | (removal.waiting & {broker}))
        else:
            removals[partition] = dataclasses.replace(
                removal, waiting=removal.waiting - {broker}, away=removal.away - {broker}
            )
    return _finish(dataclasses.replace(state, removals=removals), [])


def _finish(state: ControllerState, effects: list[Effect]) -> Decision:
    removals = dict(state.removals)
    gone = [
        partition
        for partition in sorted(removals)
        if (removal := removals[partition]).waiting is not None and not removal.waiting and not removal.removing
    ]
    for partition in gone:
        removals[partition] = dataclasses.replace(removals[partition], removing=True)
    if gone:
        effects.append(RemovePartitions(tuple(gone)))
    return dataclasses.replace(state, removals=removals), effects


def on_partitions_removed(state: ControllerState, event: PartitionsRemoved) -> Decision:
    """The end of removals, or of an attempt at them."""
    removals = dict(state.removals)
    done = [partition for partition in event.removed if removals.pop(partition, None) is not None]
    for partition in event.failed:
        if partition in removals:
            removals[partition] = dataclasses.replace(removals[partition], removing=False)
    state = dataclasses.replace(state, removals=removals)
    return state, [Note("partition.removal_done", str(partition)) for partition in done]


def on_tick(state: ControllerState) -> Decision:
    """Try again what has not succeeded."""
    return _advance_removals(state, [], "partition.removal")
