"""Topics come and go. Pure (V3 B, HA delete_topics, C19).

A deletion goes through these steps, each of which the next controller can take up again:
1. the order stands in /admin/delete_topics: clients are told that the topic is gone, every live replica is told to
   delete its files;
2. replicas answer; those on dead brokers are told when they return;
3. all have answered: the znodes go, children first, and the name leaves the order with the topic's own znode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from kafkalite.controller import partition_orders, reassignments
from kafkalite.controller.commands import (
    announce_changes,
    announce_deletion,
    announce_removal,
    delete_replicas,
    delete_unknown_topic,
    drop_replicas,
)
from kafkalite.controller.effects import DropDeletionOrders, Effect, LookAtMoves, Note, ReadStates, RemoveTopic
from kafkalite.controller.events import DeletionsRequested, Repair, ReplicasStopped, TopicRemoved, TopicsChanged
from kafkalite.controller.partition_notes import note_malformed
from kafkalite.controller.state import ControllerState, Deletion
from kafkalite.controller.topic_writes import is_told_anew
from kafkalite.coordination import paths
from kafkalite.model import BrokerId, LeaderAndIsr, TopicPartition

Decision = tuple[ControllerState, list[Effect]]


def on_topics_changed(state: ControllerState, event: TopicsChanged) -> Decision:
    """All topics as they are now: initialise the partitions that are new, let go of what has vanished."""
    effects: list[Effect] = []
    for path in sorted({path for path in state.malformed if _is_topic(path)} | event.malformed.keys()):
        state, notes = note_malformed(state, path, event.malformed.get(path))
        effects += notes
    # A znode that has become unreadable says nothing about its topic: keep what was known.
    unreadable = {name for name in state.topics if paths.topic(name) in event.malformed}
    vanished = [
        name
        for name in sorted(state.topics)
        if name not in unreadable
        and (name not in event.topics or event.topics[name].topic_id != state.topics[name].topic_id)
    ]
    for name in vanished:
        state, dropped = _drop_vanished(state, name)
        effects += dropped
    before = state.topics
    shrunk = [
        TopicPartition(name, number)
        for name in sorted(before)
        if name in event.topics and name not in unreadable
        for number in before[name].assignment
        if number not in event.topics[name].assignment
    ]
    topics = {**event.topics, **{name: before[name] for name in sorted(unreadable)}}
    state = dataclasses.replace(state, topics=topics)
    if shrunk:
        # By a removal of ours whose outcome was not known (its order tells who had them), or by hand.
        gone = frozenset(shrunk)
        rest = {each: known for each, known in state.partitions.items() if each not in gone}
        state = dataclasses.replace(state, partitions=rest)
        effects += announce_removal(state, tuple(shrunk), "partition.removal")
    fresh = tuple(
        TopicPartition(name, partition)
        for name in sorted(event.topics)
        if name not in state.deletions
        for partition in event.topics[name].assignment
        if name not in before
        or partition not in before[name].assignment
        or before[name].assignment[partition] != event.topics[name].assignment[partition]
        or before[name].moves.get(partition) != event.topics[name].moves.get(partition)
    )
    retold = {
        each: (state.partitions[each], state.partitions[each])
        for each in fresh
        if each in state.partitions
        and each.topic in before
        and is_told_anew(before[each.topic], topics[each.topic], each.partition)
    }
    effects += announce_changes(state, retold, "Reassignment")
    if fresh:
        # A partition that has changed unseen: by hand, or by a write of ours whose outcome was not known.
        effects.append(ReadStates(fresh, Repair()))
    if any(topic.moves for topic in topics.values()) or state.order:
        effects.append(LookAtMoves())
    return state, effects


def _is_topic(path: str) -> bool:
    return path.startswith(paths.TOPICS + "/") and path.count("/") == 3


def _drop_vanished(state: ControllerState, name: str) -> Decision:
    """Somebody has removed a topic's znode without an order (C19): the files go as far as brokers are alive."""
    topic = state.topics[name]
    state = _forget(state, name)
    effects: list[Effect] = [Note("topic.vanished", name, "its znode was removed by hand; deleting its replicas")]
    effects += delete_unknown_topic(state, name, topic.topic_id, topic.assignment, "topic.vanished")
    effects += announce_deletion(state, [name], "topic.vanished")
    return state, effects


def _forget(state: ControllerState, name: str) -> ControllerState:
    return dataclasses.replace(
        state,
        topics={each: topic for each, topic in state.topics.items() if each != name},
        deletions={each: deletion for each, deletion in state.deletions.items() if each != name},
        removals={each: removal for each, removal in state.removals.items() if each.topic != name},
        dropped=frozenset(each for each in state.dropped if each[0].topic != name),
        partitions=_without_topic(state, name),
        malformed={path: why for path, why in state.malformed.items() if not path.startswith(paths.topic(name) + "/")},
    )


def _without_topic(state: ControllerState, name: str) -> dict[TopicPartition, LeaderAndIsr]:
    return {partition: known for partition, known in state.partitions.items() if partition.topic != name}


def on_deletions_requested(state: ControllerState, event: DeletionsRequested) -> Decision:
    """Orders to delete topics. A topic whose deletion has begun is not called off by rewriting the order."""
    state, effects = note_malformed(state, paths.DELETE_TOPICS, event.malformed)
    for name in event.topics:
        if name in state.topics and name not in state.deletions:
            state, begun = begin_deletion(state, name, to=state.brokers.keys())
            effects += begun
    strangers = tuple(
        name for name in event.topics if name not in state.topics and paths.topic(name) not in state.malformed
    )
    if strangers:
        effects.append(DropDeletionOrders(strangers))
    return state, effects


def begin_deletion(state: ControllerState, name: str, to: Collection[BrokerId]) -> Decision:
    """Take a topic out of service; `to`: the brokers to tell at once."""
    topic = state.topics[name]
    hosts = {(partition, broker) for partition, replicas in topic.assignment.items() for broker in replicas}
    # A reassignment under way, and a partition's removal, are over with this: their replicas go with the others.
    hosts |= {(partition, broker) for partition, move in topic.moves.items() for broker in move.dropping}
    hosts |= {
        (each.partition, broker)
        for each, removal in state.removals.items()
        if each.topic == name
        for broker in removal.waiting or ()
    }
    waiting = frozenset(hosts)
    state = dataclasses.replace(
        state,
        deletions={**state.deletions, name: Deletion(waiting, removing=not waiting)},
        partitions=_without_topic(state, name),
        removals={each: removal for each, removal in state.removals.items() if each.topic != name},
        dropped=frozenset(each for each in state.dropped if each[0].topic != name),
    )
    effects: list[Effect] = [Note("topic.deletion_started", name)]
    if to:
        effects += announce_deletion(state, [name], "topic.deletion")
        effects += delete_replicas(state, name, waiting, to, "topic.deletion")
    if not waiting:
        effects.append(RemoveTopic(name))
    return state, effects


def on_replicas_stopped(state: ControllerState, event: ReplicasStopped) -> Decision:
    """A broker has removed replicas; when the last one is gone, the znodes go."""
    if not state.has_broker(event.broker_id, event.broker_epoch):
        return state, []
    by_topic: dict[str, set[tuple[int, BrokerId]]] = {}
    for partition in event.stopped:
        if partition.topic in state.deletions:
            by_topic.setdefault(partition.topic, set()).add((partition.partition, event.broker_id))
    deletions = dict(state.deletions)
    effects: list[Effect] = []
    for name in sorted(by_topic):
        deletion = deletions[name]
        waiting = deletion.waiting - by_topic[name]
        finished = not waiting and not deletion.removing
        deletions[name] = Deletion(waiting, removing=deletion.removing or finished)
        if finished:
            effects.append(RemoveTopic(name))
    effects += [
        Note("replica.deletion_failed", str(partition), f"on broker {event.broker_id}") for partition in event.failed
    ]
    state = dataclasses.replace(state, deletions=deletions)
    state, dropped = reassignments.on_replica_dropped(state, event.stopped, event.broker_id)
    state, removed = partition_orders.on_replicas_removed(state, event.stopped, event.broker_id)
    return state, [*effects, *dropped, *removed]


def on_topic_removed(state: ControllerState, event: TopicRemoved) -> Decision:
    """The end of a deletion, or of an attempt at it."""
    deletion = state.deletions.get(event.topic)
    if deletion is None:
        return state, []
    if not event.removed:
        deletions = {**state.deletions, event.topic: dataclasses.replace(deletion, removing=False)}
        return dataclasses.replace(state, deletions=deletions), []
    effects: list[Effect] = [LookAtMoves()] if any(each.topic == event.topic for each in state.order) else []
    return _forget(state, event.topic), [Note("topic.deleted", event.topic), *effects]


def on_tick(state: ControllerState) -> Decision:
    """Try again what did not succeed: replicas that a live broker could not delete, znodes that could not go,
    partitions that nobody leads though a replica may be alive by now."""
    effects: list[Effect] = []
    deletions = dict(state.deletions)
    for name in sorted(state.deletions):
        deletion = state.deletions[name]
        if deletion.waiting:
            effects += delete_replicas(state, name, deletion.waiting, state.brokers.keys(), "topic.deletion")
        elif not deletion.removing:
            deletions[name] = dataclasses.replace(deletion, removing=True)
            effects.append(RemoveTopic(name))
    unled = tuple(without_leader(state))
    if unled:
        effects.append(ReadStates(unled, Repair()))
    effects += drop_replicas(state, reassignments.undropped(state, state.brokers.keys()), "Reassignment")
    if state.order or any(topic.moves for topic in state.topics.values()):
        effects.append(LookAtMoves())
    state, removals = partition_orders.on_tick(dataclasses.replace(state, deletions=deletions))
    return state, [*effects, *removals]


def without_leader(state: ControllerState) -> list[TopicPartition]:
    """Partitions that nobody leads, and those that have no state yet because no replica was alive."""
    return [
        partition
        for partition, _ in state.assigned()
        if (known := state.partitions.get(partition)) is None or known.leader not in state.brokers
    ]
