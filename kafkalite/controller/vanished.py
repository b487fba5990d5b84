"""Topics and states whose znodes have vanished without an order. Pure (ADR 19).

Nobody knows better than the controller what was there. If a topic comes back without its partitions' states, or only a state
has gone, the last one known is written again, in a new leader epoch: a first state would count every live replica as in sync,
and begin with epochs that the logs have behind them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from kafkalite.controller import elections
from kafkalite.controller.state import ControllerState, Vanished
from kafkalite.model import NO_LEADER, BrokerId, LeaderAndIsr, TopicPartition

#: Topics whose last states are remembered; the oldest make room.
MAX_VANISHED = 1_000


def remember(state: ControllerState, name: str) -> ControllerState:
    """A topic's znode has vanished: keep what was known of it."""
    states = {each.partition: known for each, known in state.partitions.items() if each.topic == name}
    rest = {each: known for each, known in state.vanished.items() if each != name}
    while len(rest) >= MAX_VANISHED:
        del rest[next(iter(rest))]
    return dataclasses.replace(state, vanished={**rest, name: Vanished(state.topics[name].topic_id, states)})


def last_known(state: ControllerState, partition: TopicPartition) -> LeaderAndIsr | None:
    """The state of a partition that has no state znode; None if it is new, as far as this controller knows."""
    known = state.partitions.get(partition)
    if known is not None:
        return known
    vanished, topic = state.vanished.get(partition.topic), state.topics.get(partition.topic)
    if vanished is None or topic is None or vanished.topic_id != topic.topic_id:
        return None
    return vanished.states.get(partition.partition)


def again(state: ControllerState, known: LeaderAndIsr, live: Collection[BrokerId]) -> LeaderAndIsr:
    """The state to write where `known` was."""
    able = [member for member in (known.leader, *known.isr) if member in live and member in known.isr]
    made = elections.with_epoch(known, able[0] if able else NO_LEADER, known.isr, state.epoch)
    return dataclasses.replace(made, partition_epoch=elections.NOT_CREATED)
