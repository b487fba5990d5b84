"""Brokers come, go, bounce and leave in order; a controller takes office. Pure (V3 A, D, E)."""

from __future__ import annotations

import dataclasses

from kafkalite.controller.commands import announce_brokers, initialise
from kafkalite.controller.events import (
    BrokersChanged,
    CloseChannel,
    ClusterRead,
    CommandsLost,
    ControlledShutdown,
    ControlledShutdownReceived,
    DeletionsRequested,
    Effect,
    Note,
    OpenChannel,
    Post,
    ReadStates,
    Repair,
    ReplyShutdown,
    StatesRead,
)
from kafkalite.controller.state import ControllerState
from kafkalite.controller.topic_changes import begin_deletion
from kafkalite.coordination import paths
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId, BrokerInfo, TopicPartition
from kafkalite.rpc.messages import ControlledShutdownResponse

Decision = tuple[ControllerState, list[Effect]]


def on_cluster_read(state: ControllerState, event: ClusterRead) -> Decision:
    """A term begins: INIT commands for what is durable, then whatever is still to be done (V3 D.3-9).

    The states were read just now, hence what is to be repaired is decided on them without another read; only
    partitions WITHOUT a state znode are initialised (F17).
    """
    state = dataclasses.replace(
        state, brokers=event.brokers, topics=event.topics, partitions=event.states, malformed=event.malformed
    )
    effects: list[Effect] = [OpenChannel(event.brokers[broker]) for broker in sorted(event.brokers)]
    effects += [Note("znode.malformed", path, event.malformed[path]) for path in sorted(event.malformed)]
    # Deletions first: a half-deleted topic has partitions without a state that must not be initialised again.
    starting: list[Effect] = []
    for topic in event.deletions:
        if topic in state.topics and topic not in state.deletions:
            state, begun = begin_deletion(state, topic, to=())
            starting += begun
    effects += initialise(state, state.brokers.keys(), "controller.failover")
    effects += starting
    effects.append(Post(DeletionsRequested(event.deletions)))
    assigned = [partition for partition, _ in state.assigned()]
    to_settle = {partition: state.partitions.get(partition) for partition in assigned}
    unreadable = {partition for partition in assigned if paths.partition_state(partition) in event.malformed}
    for partition in unreadable:
        del to_settle[partition]
    effects.append(
        Post(
            StatesRead(
                to_settle,
                Repair(),
                unclean_topics=event.unclean_topics,
                malformed={
                    partition: event.malformed[paths.partition_state(partition)] for partition in sorted(unreadable)
                },
            )
        )
    )
    return state, effects


def on_brokers_changed(state: ControllerState, event: BrokersChanged) -> Decision:
    """Compare the live brokers with those known, by id and czxid (KAFKA-3085): dead first, then new.

    A bounced broker, the same id with another czxid, is both: it loses its leaderships and its places in
    the ISR, if others are in sync, before it is welcomed again (F5).
    """
    before, now = state.brokers, event.brokers
    bounced = {id_ for id_ in now if id_ in before and now[id_].broker_epoch != before[id_].broker_epoch}
    gone = sorted(bounced | (before.keys() - now.keys()))
    if gone:
        survivors = {id_: now[id_] for id_ in sorted(now) if id_ in before and id_ not in bounced}
        return _on_brokers_gone(state, gone, survivors, event)
    started = sorted(now.keys() - before.keys())
    changed = any(now[id_] != before[id_] for id_ in before)
    state = dataclasses.replace(state, brokers=dict(sorted(now.items())))
    if not started:
        return state, announce_brokers(state, state.brokers, "brokers") if changed else []
    effects: list[Effect] = [Note("broker.started", str(id_), f"epoch {now[id_].broker_epoch}") for id_ in started]
    effects += [OpenChannel(now[id_]) for id_ in started]
    effects += announce_brokers(state, before.keys(), "broker.startup")
    effects += initialise(state, started, "broker.startup")
    waiting = tuple(_waiting_for_broker(state))
    if waiting:
        effects.append(ReadStates(waiting, Repair()))
    return state, effects


def _on_brokers_gone(
    state: ControllerState, gone: list[BrokerId], survivors: dict[BrokerId, BrokerInfo], event: BrokersChanged
) -> Decision:
    lost = frozenset(gone)
    affected = tuple(
        partition
        for partition, known in state.partitions.items()
        if known.leader in lost or not lost.isdisjoint(known.isr)
    )
    state = dataclasses.replace(state, brokers=survivors, shutting_down=state.shutting_down - lost)
    effects: list[Effect] = [Note("broker.gone", str(id_)) for id_ in gone]
    effects += [CloseChannel(id_) for id_ in gone]
    if affected:
        effects.append(ReadStates(affected, Repair(announce=True)))
    else:
        effects += announce_brokers(state, state.brokers, "broker.failure")
    if event.brokers.keys() != survivors.keys():
        effects.append(Post(event))  # those that came (back) are new in the state that is left now
    return state, effects


def _waiting_for_broker(state: ControllerState) -> list[TopicPartition]:
    """Partitions that nobody leads, and those that have no state yet because no replica was alive."""
    return [
        partition
        for partition, _ in state.assigned()
        if (known := state.partitions.get(partition)) is None or known.leader not in state.brokers
    ]


def on_commands_lost(state: ControllerState, event: CommandsLost) -> Decision:
    """Its queue was emptied: everything again, as if it had just come."""
    if not state.has_broker(event.broker_id, event.broker_epoch):
        return state, []
    return state, initialise(state, [event.broker_id], "queue.overflow")


def on_controlled_shutdown(state: ControllerState, event: ControlledShutdownReceived) -> Decision:
    """A broker asks to be relieved before it stops."""
    if not state.has_broker(event.broker_id, event.broker_epoch):
        code = ErrorCode.STALE_BROKER_EPOCH if event.broker_id in state.brokers else ErrorCode.BROKER_NOT_AVAILABLE
        return state, [ReplyShutdown(event.token, ControlledShutdownResponse(code))]
    state = dataclasses.replace(state, shutting_down=state.shutting_down | {event.broker_id})
    affected = tuple(
        partition
        for partition, known in state.partitions.items()
        if known.leader == event.broker_id or event.broker_id in known.isr
    )
    return state, [ReadStates(affected, ControlledShutdown(event.broker_id, event.broker_epoch, event.token))]
