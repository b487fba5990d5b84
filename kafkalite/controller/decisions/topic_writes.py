"""The outcome of writes to topics' znodes: durable changes are announced. Pure."""

from __future__ import annotations

import dataclasses

from kafkalite.controller.decisions import vanished
from kafkalite.controller.decisions.commands import announce_changes, announce_throttles, drop_replicas
from kafkalite.controller.decisions.effects import (
    AdvanceReassignments,
    Decision,
    Effect,
    Note,
    ReadStates,
    RereadTopics,
)
from kafkalite.controller.decisions.events import Repair, TopicsWritten
from kafkalite.controller.decisions.partition_requests import on_change_written
from kafkalite.controller.decisions.state import ControllerState, Topic
from kafkalite.model import BrokerId, LeaderAndIsr, Replicas, TopicPartition


def is_announced_again(before: Topic, now: Topic, number: int) -> bool:
    """Whether brokers need an update for a partition with the same state, because other replicas are being added.

    Replicas that are being added do not count as missing (KIP-455), so a stale list would hide missing ones.
    """
    replicas = frozenset(now.assignment.get(number, ()))
    return not replicas.isdisjoint(frozenset(before.adding.get(number, ())) ^ frozenset(now.adding.get(number, ())))


def has_other_throttle(before: Topic, now: Topic, number: int) -> bool:
    """Whether a step that is under way has another throttle. The leader needs it now: no new leader epoch brings it."""
    was, move = before.moves.get(number), now.moves.get(number)
    return was is not None and move is not None and bool(move.step) and was.throttle != move.throttle


def on_topics_written(state: ControllerState, event: TopicsWritten) -> Decision:
    """Durable changes are announced; topics whose write failed are read and decided again."""
    effects: list[Effect] = []
    changes: dict[TopicPartition, tuple[LeaderAndIsr | None, LeaderAndIsr]] = {}
    drops: list[tuple[TopicPartition, BrokerId]] = []
    partitions = dict(state.partitions)
    topics = dict(state.topics)
    renewed: set[tuple[TopicPartition, BrokerId]] = set()
    fresh: list[TopicPartition] = []
    throttled: list[TopicPartition] = []
    for change in event.written:
        before, now = topics.get(change.name), change.topic
        if before is None or before.topic_id != now.topic_id or change.name in state.deletions:
            continue
        topics[change.name] = now
        for partition, written in change.states.items():
            changes[partition] = (partitions.get(partition), written)
            partitions[partition] = written
        for partition in change.partitions:
            already, wanted = dropping(before, partition), dropping(now, partition)
            drops += [(partition, broker) for broker in wanted if broker not in already]
            renewed |= {(partition, broker) for broker in {*already} ^ {*wanted}}
            if partition in change.removed or partition in change.added:
                continue
            effects += _progress(partition, before, now)
            if partition in change.states:
                continue
            if (known := partitions.get(partition)) is not None:
                if _has_grown(before, now, partition.partition):
                    changes[partition] = (None, known)  # those that have the records take their logs into service
                elif is_announced_again(before, now, partition.partition):
                    changes.setdefault(partition, (known, known))
            if has_other_throttle(before, now, partition.partition):
                throttled.append(partition)
        fresh += [partition for partition in change.added if partition not in partitions]
    state = dataclasses.replace(
        state,
        topics=topics,
        partitions=partitions,
        later_epochs=vanished.later_epochs(state, {each: now for each, (_, now) in changes.items()}),
        dropped=state.dropped - renewed,
        away=state.away - renewed,
    )
    for change in event.written:
        if change.added or change.removed:
            state, more = on_change_written(state, change)
            effects += more
    effects += announce_changes(state, changes, "Reassignment")
    effects += announce_throttles(state, throttled, "Reassignment")
    effects += drop_replicas(state, drops, "Reassignment")
    if fresh:
        effects.append(ReadStates(tuple(sorted(fresh)), Repair()))
    if event.failed:
        effects.append(RereadTopics(event.failed))
    return state, [*effects, AdvanceReassignments()]


def _has_grown(before: Topic, now: Topic, number: int) -> bool:
    return not set(now.assignment.get(number, ())).issubset(before.assignment.get(number, ()))


def dropping(topic: Topic, partition: TopicPartition) -> Replicas:
    """The replicas whose files its move wants gone."""
    move = topic.moves.get(partition.partition)
    return () if move is None else move.dropping


def _progress(partition: TopicPartition, before: Topic, topic: Topic) -> list[Effect]:
    """A line for the log at the beginning, at each step and at the end."""
    was, now = before.moves.get(partition.partition), topic.moves.get(partition.partition)
    replicas = topic.assignment.get(partition.partition, ())
    if now is None:
        return [Note("reassignment.done", str(partition), f"replicas {list(replicas)}")]
    if was is None or was.target != now.target:
        return [Note("reassignment.requested", str(partition), f"{list(now.origin)} -> {list(now.target)}")]
    if now.step and now.step != was.step:
        return [Note("reassignment.step", str(partition), f"{list(replicas)} -> {list(now.step)}")]
    return []
