"""Leaderships go back to the preferred replicas automatically (auto.leader.rebalance.enable). Pure."""

from __future__ import annotations

from kafkalite.controller.decisions.effects import Decision, ReadStates
from kafkalite.controller.decisions.events import BalanceDue, PreferredElection
from kafkalite.controller.decisions.reassignments import is_over
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.model import BrokerId, TopicPartition


def on_balance_due(state: ControllerState, event: BalanceDue) -> Decision:
    """Preferred elections for the brokers that lack more than the allowed share of the leaderships they should have.

    Left alone: partitions that are being reassigned (the move decides who leads), removed or deleted, and those whose
    preferred leader could not lead now.
    Source: Kafka 3.7 KafkaController.checkAndTriggerAutoLeaderRebalance.
    """
    preferred: dict[BrokerId, int] = {}
    elsewhere: dict[BrokerId, list[TopicPartition]] = {}
    # Of some moves only files on dead brokers are left: they may be left for ever.
    moving = {
        partition
        for partition, move in state.moves()
        if not is_over(state.topics[partition.topic].assignment[partition.partition], move)
    }
    for partition, replicas in state.assigned():
        known = state.partitions.get(partition)
        if known is None:
            continue
        first = replicas[0]
        preferred[first] = preferred.get(first, 0) + 1
        if known.leader != first:
            elsewhere.setdefault(first, []).append(partition)
    chosen: list[TopicPartition] = []
    for broker in sorted(elsewhere):
        if broker not in state.brokers or broker in state.shutting_down:
            continue
        if 100 * len(elsewhere[broker]) <= event.percentage * preferred[broker]:
            continue
        chosen += [
            partition
            for partition in elsewhere[broker]
            if partition not in moving
            and partition not in state.removals
            and partition not in state.requested
            and broker in state.partitions[partition].isr
            and broker in state.live(partition)
        ]
    return state, [ReadStates(tuple(sorted(chosen)), PreferredElection(-1))] if chosen else []
