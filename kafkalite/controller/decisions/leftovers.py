"""Replicas of deleted topics on brokers that were dead at the end of the deletion, or on offline disks. Pure (ADR 19, ADR 61).

A deletion does not wait for dead brokers and disks: the topic's znodes are removed, its name is free, and the replicas that are
left are recorded by topic id in /admin/deleted_topics. A broker that returns gets the command to remove them before any other. A
live broker gets the command again from time to time, until all its disks are online. A later topic of the same name has another
id, and is not affected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from kafkalite.controller.decisions.effects import Decision, DropLeftover, Effect, Note
from kafkalite.controller.decisions.state import ControllerState, Leftover
from kafkalite.model import NO_TOPIC_ID, BrokerId, TopicId, TopicPartition

#: Deleted topics with such replicas. Beyond it a deletion waits for dead brokers, as the deletion of a topic without an id does.
MAX_LEFTOVERS = 10_000
#: ... for which live brokers get their commands again at a tick.
MAX_REPEATED = 100


def can_be_left(state: ControllerState, topic: str, beside: int = 0) -> bool:
    """Whether the deletion of a topic may end before dead brokers have removed its replicas; `beside`: topics that end with it, and leave some."""
    return state.topics[topic].topic_id != NO_TOPIC_ID and len(state.leftovers) + beside < MAX_LEFTOVERS


def leave(state: ControllerState, topics: Iterable[str]) -> ControllerState:
    """The topics' znodes are gone, and the replicas that their deletions still waited for are recorded."""
    left = dict(state.leftovers)
    for topic in topics:
        deletion, topic_id = state.deletions[topic], state.topics[topic].topic_id
        # A command without an id would delete the replicas of a later topic, too.
        if deletion.waiting and topic_id != NO_TOPIC_ID and len(left) < MAX_LEFTOVERS:
            left[topic_id] = Leftover(topic, deletion.waiting, deletion.away)
    return dataclasses.replace(state, leftovers=left)


def take_turns(state: ControllerState) -> tuple[ControllerState, tuple[TopicId, ...]]:
    """The deleted topics for which live brokers get the command again now; they are the last ones the next time."""
    concerned = [
        topic_id
        for topic_id, leftover in state.leftovers.items()
        if any(broker in state.brokers for _, broker in leftover.waiting)
    ]
    chosen = {topic_id: state.leftovers[topic_id] for topic_id in concerned[:MAX_REPEATED]}
    if len(chosen) < len(concerned):
        rest = {topic_id: each for topic_id, each in state.leftovers.items() if topic_id not in chosen}
        state = dataclasses.replace(state, leftovers={**rest, **chosen})
    return state, tuple(chosen)


def on_stopped(
    state: ControllerState,
    stopped: Mapping[TopicId, Collection[TopicPartition]],
    away: Collection[TopicPartition],
    broker: BrokerId,
) -> Decision:
    """A broker has removed replicas, by the topics they were of; `away`: other files of these may be on an offline disk."""
    effects: list[Effect] = []
    leftovers = dict(state.leftovers)
    for topic_id in sorted(stopped.keys() & leftovers.keys()):
        known = leftovers[topic_id]
        gone = {(each.partition, broker) for each in stopped[topic_id] if each not in away}
        kept = {(each.partition, broker) for each in stopped[topic_id] if each in away}
        leftovers[topic_id] = dataclasses.replace(
            known, waiting=known.waiting - gone, away=(known.away - gone) | (known.waiting & kept)
        )
        if not leftovers[topic_id].waiting:
            del leftovers[topic_id]
            effects += [Note("topic.leftovers_removed", known.topic, f"topic id {topic_id}"), DropLeftover(topic_id)]
    return dataclasses.replace(state, leftovers=leftovers), effects
