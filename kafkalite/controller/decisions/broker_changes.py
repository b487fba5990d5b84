"""Brokers join, fail, restart and shut down; a controller is elected. Pure (controller design A, D, E)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from kafkalite.controller.decisions import partition_requests, restarts
from kafkalite.controller.decisions.commands import announce_brokers, initialise
from kafkalite.controller.decisions.effects import (
    AdvanceReassignments,
    CloseChannel,
    Decision,
    Effect,
    Note,
    OpenChannel,
    Post,
    ReadStates,
    ReplyShutdown,
)
from kafkalite.controller.decisions.eligible import members
from kafkalite.controller.decisions.events import (
    BrokerCleared,
    BrokersChanged,
    BrokerSuspected,
    ClusterRead,
    ControlledShutdown,
    ControlledShutdownReceived,
    ControllerElected,
    DeletionsRequested,
    InitialisationDue,
    Repair,
    StatesRead,
)
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.controller.decisions.topic_changes import begin_deletions, without_leader
from kafkalite.coordination import paths
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId
from kafkalite.rpc.messages.control import ControlledShutdownResponse


def on_cluster_read(state: ControllerState, event: ClusterRead) -> Decision:
    """An elected epoch begins: whatever is to be repaired, then INIT commands with the outcome, then what is pending (controller design D.3-9).

    The states were read just now, hence what is to be repaired is decided on them without another read; only
    partitions WITHOUT a state znode are initialised (invariant F17). Repairs come first so that no broker gets a command to continue
    leading in an epoch in which it led before it restarted (ADR 8).
    """
    state = dataclasses.replace(
        state,
        brokers=event.brokers,
        suspects=event.suspects,
        topics=event.topics,
        partitions=event.states,
        malformed=event.malformed,
        leftovers=event.leftovers,
        vanished=event.vanished,
    )
    state = dataclasses.replace(state, removals=partition_requests.under_way(state, event.removals))
    effects: list[Effect] = [OpenChannel(event.brokers[broker]) for broker in sorted(event.brokers)]
    effects += [Note("broker.suspected", str(id_), "is not there") for id_ in sorted(event.suspects)]
    effects += [Note("znode.malformed", path, event.malformed[path]) for path in sorted(event.malformed)]
    # Deletions first: a half-deleted topic has partitions without a state that must not be initialised again.
    state, starting = begin_deletions(state, event.deletions, to=())
    assigned = [partition for partition, _ in state.assigned()]
    to_settle = {partition: state.partitions.get(partition) for partition in assigned}
    unreadable = [partition for partition in assigned if paths.partition_state(partition) in event.malformed]
    for partition in unreadable:
        del to_settle[partition]
    read = StatesRead(
        to_settle,
        ControllerElected(),
        modified=event.modified,
        malformed={partition: event.malformed[paths.partition_state(partition)] for partition in unreadable},
        unclean_topics=event.unclean_topics,
        min_insync=event.min_insync,
    )
    # `starting` removes znodes of topics whose replicas are gone already; their request is dropped with them.
    return state, [*effects, Post(read), *starting, Post(DeletionsRequested(event.deletions))]


def on_brokers_changed(
    state: ControllerState, event: BrokersChanged, *, cleared: Collection[BrokerId] = ()
) -> Decision:
    """Compare the live brokers with those known, by id and czxid (KAFKA-3085): first the dead, then the new.

    A bounced broker, the same id with another czxid, is both (invariant F5): it gives up its places in the ISR, if other replicas are in
    sync, and leads only in a new epoch, before it gets commands.

    `cleared`: brokers that were silent, and have not restarted. What their registrations doubt is settled.
    """
    held = {
        id_: event.brokers[id_]  # it may have other addresses
        for id_, info in state.suspects.items()
        if id_ in event.brokers and event.brokers[id_].broker_epoch == info.broker_epoch
    }
    # Suspects that are gone now, or have come back with another epoch, are brokers that died like any other.
    state = dataclasses.replace(
        state, brokers={**state.brokers, **{i: s for i, s in state.suspects.items() if i not in held}}, suspects=held
    )
    event = BrokersChanged({id_: info for id_, info in event.brokers.items() if id_ not in held})
    before, now = state.brokers, event.brokers
    if any(id_ not in now or now[id_].broker_epoch != before[id_].broker_epoch for id_ in before):
        return _on_brokers_gone(state, event)
    started = sorted(now.keys() - before.keys())
    changed = any(now[id_] != before[id_] for id_ in before)
    state = dataclasses.replace(state, brokers=dict(sorted(now.items())))
    if not started:
        return state, announce_brokers(state, state.brokers, "brokers") if changed else []
    effects: list[Effect] = [Note("broker.started", str(id_), f"epoch {now[id_].broker_epoch}") for id_ in started]
    effects += [OpenChannel(now[id_]) for id_ in started]
    effects += announce_brokers(state, before.keys(), "broker.startup")
    effects += initialise(state, started, "broker.startup")
    # A broker that has come back may lack the records that made it a member, even if other nodes write the state meanwhile, or this one did when
    # its last session ended.
    returned = [id_ for id_ in started if id_ not in cleared]
    unsure = frozenset(id_ for id_ in returned if now[id_].may_lack_records or not now[id_].keeps_elr)
    concerned = {each for each, known in state.partitions.items() if not unsure.isdisjoint(members(known))}
    waiting = tuple(sorted({*without_leader(state), *concerned}))
    if waiting:
        effects.append(ReadStates(waiting, Repair(bounced=unsure if concerned else frozenset())))
    return state, [*effects, *_advance_reassignments(state)]


def on_broker_suspected(state: ControllerState, event: BrokerSuspected) -> Decision:
    """A silent broker is as good as dead until its session ends or it answers again. That is safe: its leaderships go
    to replicas that are in sync, in a new epoch; where it is the only one in sync, it keeps them."""
    if not state.has_broker(event.broker_id, event.broker_epoch):
        return state, []
    registered = {**state.brokers, **state.suspects}
    suspects = {**state.suspects, event.broker_id: state.brokers[event.broker_id]}
    state = dataclasses.replace(state, suspects=dict(sorted(suspects.items())))
    state, effects = on_brokers_changed(state, BrokersChanged(registered))
    return state, [Note("broker.suspected", str(event.broker_id), event.reason), *effects]


def on_broker_cleared(state: ControllerState, event: BrokerCleared) -> Decision:
    """The broker answers again: it gets all commands, and returns as a follower that has to catch up."""
    info = state.suspects.get(event.broker_id)
    if info is None or info.broker_epoch != event.broker_epoch:
        return state, []
    registered = {**state.brokers, **state.suspects}
    suspects = {id_: each for id_, each in state.suspects.items() if id_ != event.broker_id}
    state = dataclasses.replace(state, suspects=suspects)
    state, effects = on_brokers_changed(state, BrokersChanged(registered), cleared=(event.broker_id,))
    # It may have restarted since it joined an ISR that nobody could take it from; where nobody leads they are read already.
    inside = tuple(
        partition
        for partition, known in state.partitions.items()
        if event.broker_id in known.isr and known.leader in state.brokers
    )
    return state, [*effects, ReadStates(inside, Repair())] if inside else effects


def _advance_reassignments(state: ControllerState) -> list[Effect]:
    """A broker that joins may be one that a reassignment waits for; for one that leaves nothing waits any more."""
    return [AdvanceReassignments()] if any(topic.moves for topic in state.topics.values()) else []


def _on_brokers_gone(state: ControllerState, event: BrokersChanged) -> Decision:
    """Some brokers have died or bounced; those that are new are left for the event's second round."""
    before, now = state.brokers, event.brokers
    bounced = {
        id_: now[id_].broker_epoch
        for id_ in sorted(before)
        if id_ in now and now[id_].broker_epoch != before[id_].broker_epoch
    }
    lost = frozenset(id_ for id_ in before if id_ not in now or id_ in bounced)
    affected = tuple(
        partition
        for partition, known in state.partitions.items()
        if known.leader in lost or not lost.isdisjoint(known.isr) or not bounced.keys().isdisjoint(known.elr)
    )
    remaining = {id_: now[id_] for id_ in sorted(before) if id_ in now}
    state = restarts.forget_brokers(state, lost)
    # One that is only silent leaves all the same when it answers again.
    leaving = state.shutting_down - (lost - state.suspects.keys())
    state = dataclasses.replace(state, brokers=remaining, shutting_down=leaving)
    if bounced:  # one that was silent before may be what a partition without a leader, or without a state, waits for
        affected = tuple(dict.fromkeys([*affected, *without_leader(state)]))
    effects: list[Effect] = [
        Note("broker.bounced" if id_ in bounced else "broker.gone", str(id_)) for id_ in sorted(lost)
    ]
    effects += [CloseChannel(id_) for id_ in sorted(lost)]
    effects += [OpenChannel(now[id_]) for id_ in bounced]
    if affected:
        effects.append(ReadStates(affected, Repair(announce=True, bounced=frozenset(bounced))))
    else:
        effects += announce_brokers(state, state.brokers.keys() - bounced.keys(), "broker.failure")
    if bounced:
        effects.append(Post(InitialisationDue(bounced, "broker.bounced")))
    if now.keys() != remaining.keys():
        effects.append(Post(BrokersChanged({**now, **state.suspects})))  # suspected brokers are registered, too
    return state, [*effects, *_advance_reassignments(state)]


def on_initialisation_due(state: ControllerState, event: InitialisationDue) -> Decision:
    """Everything, as to a broker that has just come; not to one that has gone, or changed, meanwhile."""
    due = [id_ for id_ in sorted(event.brokers) if state.has_broker(id_, event.brokers[id_])]
    return state, initialise(state, due, event.cause) if due else []


def on_controlled_shutdown(state: ControllerState, event: ControlledShutdownReceived) -> Decision:
    """A broker requests a controlled shutdown."""
    if not state.has_broker(event.broker_id, event.broker_epoch):
        code = ErrorCode.STALE_BROKER_EPOCH if event.broker_id in state.brokers else ErrorCode.BROKER_NOT_AVAILABLE
        return state, [ReplyShutdown(event.token, ControlledShutdownResponse(code))]
    # Asked again because something remains that it leads: its followers have joined their ISRs again by now, and would
    # as often as they are taken out.
    again = event.broker_id in state.shutting_down
    state = dataclasses.replace(state, shutting_down=state.shutting_down | {event.broker_id})
    affected = tuple(
        partition
        for partition, known in state.partitions.items()
        if known.leader == event.broker_id or (event.broker_id in known.isr and not again)
    )
    return state, [ReadStates(affected, ControlledShutdown(event.broker_id, event.broker_epoch, event.token))]
