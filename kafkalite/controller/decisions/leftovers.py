"""Replicas of deleted topics on brokers that were dead at the end of the deletion. Pure (ADR 19).

A deletion does not wait for dead brokers: the topic's znodes are removed, its name is free, and the replicas that are left are
recorded by topic id in /admin/deleted_topics. A broker that returns gets the command to remove them before any other. A
later topic of the same name has another id, and is not affected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from kafkalite.controller.decisions.effects import Decision, DropLeftover, Effect, Note
from kafkalite.controller.decisions.state import ControllerState, Leftover
from kafkalite.model import NO_TOPIC_ID, BrokerId, TopicId, TopicPartition

#: Deleted topics with such replicas. Beyond it a deletion waits for dead brokers, as the deletion of a topic without an id does.
MAX_LEFTOVERS = 10_000


def can_be_left(state: ControllerState, topic: str) -> bool:
    """Whether the deletion of a topic may end before dead brokers have removed its replicas."""
    return state.topics[topic].topic_id != NO_TOPIC_ID and len(state.leftovers) < MAX_LEFTOVERS


def leave(state: ControllerState, topic: str) -> ControllerState:
    """The topic's znodes are gone, and the replicas that its deletion still waited for are recorded."""
    waiting, topic_id = state.deletions[topic].waiting, state.topics[topic].topic_id
    if not waiting:
        return state
    return dataclasses.replace(state, leftovers={**state.leftovers, topic_id: Leftover(topic, waiting)})


def on_stopped(
    state: ControllerState, stopped: Mapping[TopicId, Collection[TopicPartition]], broker: BrokerId
) -> Decision:
    """A broker has removed replicas, by the topics they were of."""
    effects: list[Effect] = []
    leftovers = dict(state.leftovers)
    for topic_id in sorted(stopped.keys() & leftovers.keys()):
        known = leftovers[topic_id]
        gone = {(each.partition, broker) for each in stopped[topic_id]}
        leftovers[topic_id] = dataclasses.replace(known, waiting=known.waiting - gone)
        if not leftovers[topic_id].waiting:
            del leftovers[topic_id]
            effects += [Note("topic.leftovers_removed", known.topic, f"topic id {topic_id}"), DropLeftover(topic_id)]
    return dataclasses.replace(state, leftovers=leftovers), effects
