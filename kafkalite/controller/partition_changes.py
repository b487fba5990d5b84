"""From the state znodes as they are to the states that should be, and to the commands that tell of them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from kafkalite.controller import elections, restarts, vanished
from kafkalite.controller.commands import announce_brokers, announce_changes, initialise, pause_replicas
from kafkalite.controller.effects import (
    DropPreferredElection,
    DropRestartRequests,
    Effect,
    LookAtMoves,
    Note,
    ReadStates,
    ReplyShutdown,
    Resign,
    WriteStates,
)
from kafkalite.controller.events import (
    Advance,
    BeginDraining,
    ControlledShutdown,
    IsrsChanged,
    PreferredElection,
    PreferredElectionRequested,
    Purpose,
    Repair,
    Restart,
    StatesRead,
    StatesWritten,
    TakeOffice,
)
from kafkalite.controller.partition_notes import note_malformed
from kafkalite.controller.reassignments import advance_on
from kafkalite.controller.state import ControllerState, Replicas
from kafkalite.coordination import paths
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId, LeaderAndIsr, TopicPartition
from kafkalite.rpc.messages.control import ControlledShutdownResponse, PartitionError

Decision = tuple[ControllerState, list[Effect]]


def on_isrs_changed(state: ControllerState, event: IsrsChanged) -> Decision:
    """Read again what leaders say they have changed; `Repair` because the notice may cross a broker's death."""
    known = tuple(partition for partition in event.partitions if state.replicas(partition) is not None)
    return state, [ReadStates(known, Repair())] if known else []


def on_preferred_election(state: ControllerState, event: PreferredElectionRequested) -> Decision:
    """An order to give leadership back to the first replicas."""
    state, effects = note_malformed(state, paths.PREFERRED_REPLICA_ELECTION, event.malformed)
    if event.malformed is not None or event.version < 0:
        return state, effects
    known = tuple(sorted(partition for partition in set(event.partitions) if state.replicas(partition) is not None))
    effects += [
        Note("election.skipped", str(partition), "no such partition")
        for partition in sorted(set(event.partitions) - set(known))
    ]
    if not known:
        return state, [*effects, DropPreferredElection(event.version)]
    return state, [*effects, ReadStates(known, PreferredElection(event.version, event.unclean))]


def on_states_read(state: ControllerState, event: StatesRead) -> Decision:
    """Decide about each partition on the grounds of its znode as just read (V3 A.3)."""
    for partition in event.states:
        found = event.states[partition]
        if found is not None and found.controller_epoch > state.epoch:
            return state, [Resign(f"{partition} was written by controller epoch {found.controller_epoch}")]
    state, effects = _note_states(state, event)
    state = restarts.forget_recovered(state, event)
    adopted: dict[TopicPartition, LeaderAndIsr] = {}
    writes: dict[TopicPartition, LeaderAndIsr] = {}
    unclean = 0
    for partition in sorted(event.states):
        replicas = state.replicas(partition)
        if replicas is None:
            continue  # removed, or being deleted, since the read was decided
        found = event.states[partition]
        if found is None:
            known = vanished.last_known(state, partition)
            if known is None:
                wanted = elections.first_state(replicas, state.live(partition), state.epoch)
            else:
                effects.append(
                    Note("state.vanished", str(partition), f"written again: ISR {list(known.isr)}", is_error=True)
                )
                wanted = vanished.again(state, partition, known)
        else:
            adopted[partition] = found
            wanted = _wanted(state, partition, replicas, found, event)
            if wanted is not None and wanted.leader >= 0 and wanted.leader not in found.isr:
                unclean += 1
        if wanted is not None:
            writes[partition] = wanted
        elif found is not None and isinstance(event.purpose, PreferredElection):
            effects += _skipped(replicas, found, partition)
    # What is about to be changed is told once, when the change is durable.
    changes = {
        partition: (state.partitions.get(partition), found)
        for partition, found in adopted.items()
        if partition not in writes and state.partitions.get(partition) != found
    }
    state = dataclasses.replace(
        state, partitions={**state.partitions, **{partition: now for partition, (_, now) in changes.items()}}
    )
    # A term begins with INIT commands, which tell everything at once.
    telling = not isinstance(event.purpose, TakeOffice)
    commands = announce_changes(state, changes, type(event.purpose).__name__) if telling else []
    effects += commands
    if isinstance(event.purpose, Advance):
        settled = {partition: found for partition, found in adopted.items() if partition not in writes}
        effects += advance_on(state, event.purpose, settled)
    elif any(_is_moving(state, partition) for partition in adopted):
        effects.append(LookAtMoves())
    if writes:
        return state, [*effects, WriteStates(writes, event.purpose, event.chunk, unclean)]
    return state, effects + _finished(state, event.purpose, told=bool(commands))


def _is_moving(state: ControllerState, partition: TopicPartition) -> bool:
    topic = state.topics.get(partition.topic)
    return topic is not None and partition.partition in topic.moves


def _note_states(state: ControllerState, event: StatesRead) -> tuple[ControllerState, list[Effect]]:
    """Keep the list of malformed state znodes in line with what was read."""
    effects: list[Effect] = []
    if not state.malformed and not event.malformed:
        return state, effects
    for partition in [*event.states, *sorted(event.malformed)]:
        state, notes = note_malformed(state, paths.partition_state(partition), event.malformed.get(partition))
        effects += notes
    return state, effects


def _wanted(
    state: ControllerState, partition: TopicPartition, replicas: Replicas, found: LeaderAndIsr, event: StatesRead
) -> LeaderAndIsr | None:
    live, leaving = live_for(state, partition, found), state.shutting_down
    modified = event.modified.get(partition)
    restarted = {
        id_
        for id_ in live
        if modified is not None and id_ in state.brokers and state.brokers[id_].broker_epoch > modified
    }
    if isinstance(event.purpose, Repair):
        restarted |= event.purpose.bounced
    kept = elections.without_empty(found, {id_ for id_ in restarted if _lacks(state, id_, partition)})
    if kept is not found:
        restarted -= set(found.isr) - set(kept.isr)
        live = [id_ for id_ in live if id_ in kept.isr or id_ not in found.isr]
    repaired = elections.repair(
        replicas,
        kept,
        live,
        leaving,
        state.epoch,
        restarted=restarted,
        unclean=partition.topic in event.unclean_topics or _is_unclean(event.purpose),
    )
    if repaired is None and kept is not found:
        repaired = elections.with_epoch(found, kept.leader, kept.isr, state.epoch)
    if repaired is not None:
        return repaired
    match event.purpose:
        case Restart():
            return restarts.restarted(state, partition, found, event.purpose)
        case PreferredElection(_, unclean) if not unclean:
            return elections.preferred(replicas, found, live, state.epoch)
        case ControlledShutdown(broker_id):
            if len(replicas) > 1 and broker_id in found.isr:
                return elections.shut_down(replicas, found, live, leaving, state.epoch)
        case BeginDraining() if found.leader in live:
            return elections.with_epoch(found, found.leader, found.isr, state.epoch)
    return None


def _lacks(state: ControllerState, broker_id: BrokerId, partition: TopicPartition) -> bool:
    broker = state.brokers.get(broker_id)
    return broker is not None and broker.lacks(partition)


def live_for(state: ControllerState, partition: TopicPartition, found: LeaderAndIsr) -> Collection[BrokerId]:
    """Who may lead. Where nobody in sync is heard of, those who are registered and silent count too: only the end of
    their sessions takes from them what nobody else has."""
    live = state.live(partition)
    if state.suspects and not any(replica in live for replica in found.isr):
        return frozenset(live) | (state.suspects.keys() - state.offline_replicas.get(partition, frozenset()))
    return live


def _is_unclean(purpose: Purpose) -> bool:
    return isinstance(purpose, PreferredElection) and purpose.unclean


def _skipped(replicas: Replicas, found: LeaderAndIsr, partition: TopicPartition) -> list[Effect]:
    if found.leader == replicas[0]:
        return []
    return [Note("election.skipped", str(partition), f"preferred leader {replicas[0]} is not in sync")]


def on_states_written(state: ControllerState, event: StatesWritten) -> Decision:
    """What is durable now is told; what could not be written is read and decided again (V3 A.3.3)."""
    changes: dict[TopicPartition, tuple[LeaderAndIsr | None, LeaderAndIsr]] = {
        partition: (state.partitions.get(partition), now) for partition, now in event.written.items()
    }
    state = dataclasses.replace(state, partitions={**state.partitions, **event.written})
    telling = not isinstance(event.purpose, TakeOffice)
    effects = announce_changes(state, changes, type(event.purpose).__name__) if telling else []
    if any(_is_moving(state, partition) for partition in event.written):
        effects.append(LookAtMoves())
    if event.conflicts:
        # Halving makes sure of progress: in the end each partition has a transaction of its own (F31).
        return state, [*effects, ReadStates(tuple(sorted(event.conflicts)), event.purpose, max(1, event.chunk // 2))]
    return state, effects + _finished(state, event.purpose, told=bool(changes))


def _finished(state: ControllerState, purpose: Purpose, *, told: bool) -> list[Effect]:
    """What is due when all partitions of an undertaking are settled. `told`: metadata went out just now."""
    match purpose:
        case Repair(announce, _):
            return announce_brokers(state, state.brokers.keys(), "brokers") if announce and not told else []
        case Restart(_, requests):
            return [DropRestartRequests(requests)] if requests else []
        case TakeOffice():
            return initialise(state, state.brokers.keys(), "controller.failover")
        case Advance() | BeginDraining():
            return []
        case PreferredElection(version, _):
            return [DropPreferredElection(version)] if version >= 0 else []
        case ControlledShutdown(broker_id, _, token):
            paused = pause_replicas(state, broker_id, "ControlledShutdown") if broker_id in state.brokers else []
            response = ControlledShutdownResponse(ErrorCode.NONE, still_led(state, broker_id, state.partitions))
            return [*paused, ReplyShutdown(token, response)]


def still_led(
    state: ControllerState, broker_id: BrokerId, partitions: Mapping[TopicPartition, LeaderAndIsr]
) -> tuple[PartitionError, ...]:
    """The partitions that a leaving broker leads though they have other replicas."""
    return tuple(
        PartitionError(partition.topic, partition.partition, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        for partition in sorted(partitions)
        if partitions[partition].leader == broker_id and len(state.replicas(partition) or ()) > 1
    )
