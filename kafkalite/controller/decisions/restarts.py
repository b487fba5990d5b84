"""Replicas on dead disks (KIP-18): out of the ISR and out of the lead, as if their broker were dead for those partitions.

A broker asks through /restart_partitions/req-N. Each request ends in a new leader epoch in which the broker is not in
the ISR: what it needs to restart empty (invariant F28). A broker also says so when it refuses a command with
KAFKA_STORAGE_ERROR, which is how a new controller learns. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from kafkalite.controller.decisions import elections
from kafkalite.controller.decisions.effects import Decision, DropRestartRequests, Effect, Note, ReadStates
from kafkalite.controller.decisions.events import ReplicasFailed, Restart, RestartsRequested, StatesRead
from kafkalite.controller.decisions.malformed_znodes import record_malformed
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.coordination import paths
from kafkalite.model import NO_LEADER, BrokerId, LeaderAndIsr, TopicPartition


def on_restarts_requested(state: ControllerState, event: RestartsRequested) -> Decision:
    """All requests that wait, at once. Requests of an earlier broker epoch are void: its death was handled."""
    effects: list[Effect] = []
    known = {path for path in state.malformed if path.startswith(f"{paths.RESTART_PARTITIONS}/")}
    for path in sorted(known | event.malformed.keys()):
        state, notes = record_malformed(state, path, event.malformed.get(path))
        effects += notes
    failed: dict[TopicPartition, frozenset[BrokerId]] = {}
    back: dict[TopicPartition, frozenset[BrokerId]] = {}
    for request in event.requests:
        broker = state.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch > request.made_at:
            effects.append(Note("restart.void", request.name, f"broker {request.broker_id} has restarted since"))
            continue
        for partition in request.partitions:
            replicas = state.replicas(partition)
            if replicas is None or request.broker_id not in replicas:
                effects.append(Note("restart.skipped", str(partition), f"no replica on broker {request.broker_id}"))
                continue
            add_to, take_from = (back, failed) if request.online else (failed, back)
            add_to[partition] = add_to.get(partition, frozenset()) | {request.broker_id}
            take_from[partition] = take_from.get(partition, frozenset()) - {request.broker_id}
    state = _mark(_unmark(state, back), failed)
    names = tuple(request.name for request in event.requests)
    concerned = tuple(sorted(failed.keys() | back.keys()))
    if concerned:
        return state, [*effects, ReadStates(concerned, Restart({tp: failed[tp] for tp in sorted(failed)}, names))]
    return state, [*effects, DropRestartRequests(names)] if names else effects


def on_replicas_failed(state: ControllerState, event: ReplicasFailed) -> Decision:
    """A broker has refused commands for these: their disk is dead. Only what it leads or is in sync with is to change."""
    if not state.has_broker(event.broker_id, event.broker_epoch):
        return state, []
    news = [
        partition
        for partition in event.partitions
        if event.broker_id in (state.replicas(partition) or ())
        and event.broker_id not in state.offline_replicas.get(partition, ())
    ]
    state = _mark(state, {partition: frozenset({event.broker_id}) for partition in news})
    concerned = tuple(
        partition
        for partition in sorted(news)
        if (known := state.partitions.get(partition)) is None
        or event.broker_id in (known.leader, *known.isr, *known.elr)
    )
    return state, [ReadStates(concerned, Restart({}))] if concerned else []


def restarted(
    state: ControllerState, partition: TopicPartition, found: LeaderAndIsr, purpose: Restart
) -> LeaderAndIsr | None:
    """The state for a partition whose leader and ISR are right already (KIP-18's selector has nothing left to do).

    A broker that is out of the ISR needs a new epoch, which proves that it is out. Partitions under reassignment are
    left alone (KIP-18 Restart 2) and the broker asks again, unless the move itself waits for that replica: it would
    never end.
    """
    failed = purpose.failed.get(partition, frozenset())
    topic = state.topics[partition.topic]
    number = partition.partition
    if not failed or found.leader == NO_LEADER or not failed.isdisjoint(found.isr):
        return None
    if number in topic.adding or number in topic.removing:
        going = frozenset(topic.removing.get(number, ()))
        if failed <= going:
            return None
    return elections.with_epoch(found, found.leader, found.isr, state.epoch)


def forget_recovered(state: ControllerState, event: StatesRead) -> ControllerState:
    """A leader has taken these replicas into its ISR: they are not offline any more."""
    if not state.offline_replicas or isinstance(event.purpose, Restart):
        return state
    recovered: dict[TopicPartition, frozenset[BrokerId]] = {}
    for partition, found in event.states.items():
        marked = state.offline_replicas.get(partition)
        if marked and found is not None and found.leader != NO_LEADER and found.leader not in marked:
            recovered[partition] = marked & frozenset(found.isr)
    return _unmark(state, recovered)


def forget_brokers(state: ControllerState, brokers: Iterable[BrokerId]) -> ControllerState:
    """These broker epochs are over; a broker that returns reports again what it lacks."""
    if not state.offline_replicas:
        return state
    gone = frozenset(brokers)
    return _unmark(state, dict.fromkeys(state.offline_replicas, gone))


def _mark(state: ControllerState, failed: Mapping[TopicPartition, frozenset[BrokerId]]) -> ControllerState:
    marks = {
        partition: marked for partition, marked in state.offline_replicas.items() if state.replicas(partition)
    }  # what was deleted meanwhile goes
    for partition, brokers in failed.items():
        if brokers:
            marks[partition] = marks.get(partition, frozenset()) | brokers
    return dataclasses.replace(state, offline_replicas=marks)


def _unmark(state: ControllerState, back: Mapping[TopicPartition, frozenset[BrokerId]]) -> ControllerState:
    if not any(brokers & state.offline_replicas.get(partition, frozenset()) for partition, brokers in back.items()):
        return state
    marks = {
        partition: left
        for partition, marked in state.offline_replicas.items()
        if (left := marked - back.get(partition, frozenset()))
    }
    return dataclasses.replace(state, offline_replicas=marks)
