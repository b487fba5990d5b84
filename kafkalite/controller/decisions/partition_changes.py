"""From the state znodes as they are to the states that should be, and to the commands that announce them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kafkalite.controller.decisions import restarts, vanished
from kafkalite.controller.decisions.commands import announce_brokers, announce_changes, initialise, pause_replicas
from kafkalite.controller.decisions.effects import (
    AdvanceReassignments,
    AskLogEnds,
    CountLosses,
    Decision,
    DropRestartRequests,
    Effect,
    Note,
    Post,
    ReadStates,
    RemoveAdminRequest,
    ReplyShutdown,
    RereadTopics,
    Resign,
    WriteStates,
)
from kafkalite.controller.decisions.events import (
    Advance,
    BeginDraining,
    ControlledShutdown,
    ControllerElected,
    IsrsChanged,
    PreferredElection,
    PreferredElectionRequested,
    Purpose,
    Repair,
    ReplicasDoubtful,
    Restart,
    StatesDue,
    StatesRead,
    StatesWritten,
)
from kafkalite.controller.decisions.leader_choice import Choice, LeaderChoice, first_state
from kafkalite.controller.decisions.malformed_znodes import record_malformed
from kafkalite.controller.decisions.reassignments import advance_on
from kafkalite.controller.decisions.state import ControllerState, Elsewhere
from kafkalite.coordination import paths
from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER, NO_LEADER_EPOCH, BrokerId, LeaderAndIsr, LeaderEpoch, Replicas, TopicPartition
from kafkalite.rpc.messages.control import ACCEPTS_LOSS, BEGINS_EMPTY, ControlledShutdownResponse, PartitionError


@dataclass(frozen=True, slots=True)
class _Decided:
    """What was decided about one partition. `found`: the state that this is based on; None: there is none, or it is not the latest."""

    found: LeaderAndIsr | None
    choice: Choice
    notes: tuple[Note, ...] = ()


def on_replicas_doubtful(state: ControllerState, event: ReplicasDoubtful) -> Decision:
    """A broker refuses to lead these: it knows that its logs may lack committed records, and the controller did not."""
    if not state.has_broker(event.broker_id, event.broker_epoch):
        return state, []
    doubts = {partition: marks for partition, marks in state.doubts.items() if state.replicas(partition)}
    concerned: list[TopicPartition] = []
    for partition in event.partitions:
        known = state.partitions.get(partition)
        if known is not None and state.replicas(partition) is not None:
            doubts[partition] = {**doubts.get(partition, {}), event.broker_id: known.leader_epoch}
            concerned.append(partition)
    state = dataclasses.replace(state, doubts=doubts)
    return state, [ReadStates(tuple(sorted(concerned)), Repair())] if concerned else []


def on_isrs_changed(state: ControllerState, event: IsrsChanged) -> Decision:
    """Read again what leaders say they have changed; `Repair` because the notice may cross a broker's death."""
    known = tuple(partition for partition in event.partitions if state.replicas(partition) is not None)
    later = {
        partition: epoch for partition, epoch in state.later_epochs.items() if state.replicas(partition) is not None
    }
    for partition, claim in event.claims.items():
        if claim.is_epoch_only and state.replicas(partition) is not None:
            later[partition] = max(later.get(partition, NO_LEADER_EPOCH), claim.state.leader_epoch)
    state = dataclasses.replace(state, later_epochs=later)
    return state, [ReadStates(known, Repair(claims=event.claims))] if known else []


def on_preferred_election(state: ControllerState, event: PreferredElectionRequested) -> Decision:
    """A request to give leadership back to the first replicas."""
    state, effects = record_malformed(state, paths.PREFERRED_REPLICA_ELECTION, event.malformed)
    if event.malformed is not None or event.version < 0:
        return state, effects
    known = tuple(sorted(partition for partition in set(event.partitions) if state.replicas(partition) is not None))
    effects += [
        Note("election.skipped", str(partition), "no such partition")
        for partition in sorted(set(event.partitions) - set(known))
    ]
    if not known:
        return state, [*effects, RemoveAdminRequest(paths.PREFERRED_REPLICA_ELECTION, event.version)]
    return state, [*effects, ReadStates(known, PreferredElection(event.version, event.unclean))]


def on_states_read(state: ControllerState, event: StatesRead) -> Decision:
    """Decide about each partition on the grounds of its znode as just read (controller design A.3)."""
    for partition, found in event.states.items():
        if found is not None and found.controller_epoch > state.epoch:
            return state, [Resign(f"{partition} was written by controller epoch {found.controller_epoch}")]
    if event.changed_topics:
        again = StatesDue(tuple(sorted({*event.states, *event.malformed})), event.purpose, event.chunk)
        return state, [RereadTopics(event.changed_topics), Post(again)]
    state, effects = _record_malformed_states(state, event)
    state = restarts.forget_recovered(state, event)
    state = dataclasses.replace(state, later_epochs=vanished.known_by_logs(state, event))
    chosen, notes = _decide_all(state, event)
    decided = {partition: one for partition, one in chosen.items() if not one.choice.ask}
    adopted = {partition: one.found for partition, one in decided.items() if one.found is not None}
    writes = {partition: one.choice.state for partition, one in decided.items() if one.choice.state is not None}
    settled = {partition: found for partition, found in adopted.items() if partition not in writes}
    effects += notes + _losses(state, adopted)
    # A pending change is announced once, when it is durable.
    changes = {
        partition: (state.partitions.get(partition), found)
        for partition, found in settled.items()
        if state.partitions.get(partition) != found
    }
    state = dataclasses.replace(
        state,
        partitions={**state.partitions, **{partition: now for partition, (_, now) in changes.items()}},
        accepted_loss=_accepted_losses(state.accepted_loss, decided),
        offline_replicas=_without_those_recreated(state, decided),
        doubts=_doubts(state, decided),
        elsewhere=_elsewhere(state, decided),
    )
    # An elected epoch begins with INIT commands, which carry everything at once.
    is_announced = not isinstance(event.purpose, ControllerElected)
    commands = announce_changes(state, changes, type(event.purpose).__name__) if is_announced else []
    effects += commands
    if isinstance(event.purpose, Advance):
        effects += advance_on(state, event.purpose, settled)
    elif any(_is_moving(state, partition) for partition in adopted):
        effects.append(AdvanceReassignments())
    if len(decided) < len(chosen):
        # The purpose is fulfilled when these are decided, too; nothing else waits for their answers.
        if writes:
            effects.append(WriteStates(writes, Repair(), event.chunk))
        return state, [*effects, _ask_log_ends(state, event, chosen)]
    if writes:
        return state, [*effects, WriteStates(writes, event.purpose, event.chunk)]
    return state, effects + _finished(state, event.purpose, reported=bool(commands))


def _decide_all(state: ControllerState, event: StatesRead) -> tuple[dict[TopicPartition, _Decided], list[Effect]]:
    """For each partition the decision, or the brokers to ask before it; and the events to record."""
    chosen: dict[TopicPartition, _Decided] = {}
    notes: list[Effect] = []
    for partition in sorted(event.states):
        replicas = state.replicas(partition)
        if replicas is None:
            continue  # removed, or being deleted, since the read was decided
        one = chosen[partition] = _decide(state, partition, replicas, event)
        notes += one.notes
        if not one.choice.ask:
            notes += _skipped(partition, replicas, one, event.purpose)
    return chosen, notes


def _ask_log_ends(state: ControllerState, event: StatesRead, chosen: Mapping[TopicPartition, _Decided]) -> AskLogEnds:
    """Of the partitions about which the state znode does not say enough."""
    asking = {partition: one.choice.ask for partition, one in chosen.items() if one.choice.ask}
    everywhere = frozenset(partition for partition in asking if chosen[partition].choice.asks_everywhere)
    topic_ids = {partition.topic: state.topics[partition.topic].topic_id for partition in asking}
    return AskLogEnds(asking, event.purpose, event.chunk, everywhere, topic_ids)


def with_unknown_epochs(state: ControllerState, states: Mapping[TopicPartition, LeaderAndIsr | None]) -> list[str]:
    """The topics with a leader epoch that this controller does not know. Leaders never raise it, so this controller has written it, and
    has got no answer. The same transaction may have changed the topic: a leader that gets the new epoch with the former replicas takes
    those that were removed into the ISR again."""
    return sorted(
        {
            partition.topic
            for partition, found in states.items()
            if found is not None
            and (known := state.partitions.get(partition)) is not None
            and found.leader_epoch > known.leader_epoch
            and partition.topic in state.topics
            and paths.topic(partition.topic) not in state.malformed
        }
    )


def _decide(state: ControllerState, partition: TopicPartition, replicas: Replicas, event: StatesRead) -> _Decided:
    """About one partition. Its znode is new, has vanished, was put back from an earlier time, or is the latest."""
    found = event.states[partition]
    if found is None:
        known = vanished.last_known(state, partition)
        if known is None:
            return _Decided(None, Choice(first_state(state, partition, replicas, event)))
        note = Note("state.vanished", str(partition), f"written again: ISR {list(known.isr)}", is_error=True)
        minimum = event.min_insync.get(partition.topic, 1)
        return _Decided(None, Choice(vanished.again(state, partition, known, min_insync=minimum)), (note,))
    base = _later_state(state, partition, found, event)
    if state.is_put_back(partition, base or found):
        earlier = dataclasses.replace(base or found, leader_epoch=state.later_epochs[partition])
        choice = LeaderChoice(state, partition, replicas, earlier, event).choose_most_complete()
        if choice.state is not None and choice.state.leader != NO_LEADER:
            note = Note("state.put_back", str(partition), f"replica {choice.state.leader} has the most")
            return _Decided(earlier, choice, (note,))
        return _Decided(found if base is None else None, choice)
    if base is not None:
        note = Note("state.put_back", str(partition), f"written again: ISR {list(base.isr)}")
        return _Decided(base, LeaderChoice(state, partition, replicas, base, event).choose(is_put_back=True), (note,))
    return _Decided(found, LeaderChoice(state, partition, replicas, found, event).choose(is_put_back=False))


def _later_state(
    state: ControllerState, partition: TopicPartition, found: LeaderAndIsr, event: StatesRead
) -> LeaderAndIsr | None:
    """What to go on with if this controller or the leader knows a later state than the znode's."""
    last = state.partitions.get(partition)
    if last is not None and (base := vanished.put_back(last, found)) is not None:
        return base
    claims = event.purpose.claims if isinstance(event.purpose, Repair) else {}
    return vanished.claimed(claims.get(partition), found)


def _accepted_losses(
    known: Mapping[TopicPartition, tuple[LeaderEpoch, int]], decided: Mapping[TopicPartition, _Decided]
) -> dict[TopicPartition, tuple[LeaderEpoch, int]]:
    accepted = dict(known)
    for partition, one in decided.items():
        if one.choice.state is not None:
            accepted.pop(partition, None)
            if one.choice.accepts_loss:
                level = BEGINS_EMPTY if one.choice.begins_empty else ACCEPTS_LOSS
                accepted[partition] = (one.choice.state.leader_epoch, level)
    return accepted


def _without_those_recreated(
    state: ControllerState, decided: Mapping[TopicPartition, _Decided]
) -> Mapping[TopicPartition, frozenset[BrokerId]]:
    """One that cannot says so, and is offline again."""
    offline = state.offline_replicas
    for partition, one in decided.items():
        if one.choice.begins_empty and one.choice.state is not None:
            offline = {**offline, partition: offline[partition] - {one.choice.state.leader}}
    return offline


def _doubts(
    state: ControllerState, decided: Mapping[TopicPartition, _Decided]
) -> dict[TopicPartition, Mapping[BrokerId, LeaderEpoch]]:
    doubts = dict(state.doubts)
    for partition, one in decided.items():
        now = one.choice.state or one.found
        if one.choice.doubtful and now is not None:
            # The state is newer than their registrations, or others may write it.
            doubts[partition] = dict.fromkeys(one.choice.doubtful, now.leader_epoch)
    return doubts


def _elsewhere(
    state: ControllerState, decided: Mapping[TopicPartition, _Decided]
) -> Mapping[TopicPartition, Elsewhere]:
    found = {partition: one.choice.elsewhere for partition, one in decided.items() if one.choice.elsewhere is not None}
    if not found and state.elsewhere.keys().isdisjoint(decided):
        return state.elsewhere
    return {**{partition: each for partition, each in state.elsewhere.items() if partition not in decided}, **found}


def _is_moving(state: ControllerState, partition: TopicPartition) -> bool:
    topic = state.topics.get(partition.topic)
    return topic is not None and partition.partition in topic.moves


def _record_malformed_states(state: ControllerState, event: StatesRead) -> tuple[ControllerState, list[Effect]]:
    """Keep the list of malformed state znodes in line with what was read."""
    effects: list[Effect] = []
    if not state.malformed and not event.malformed:
        return state, effects
    for partition in [*event.states, *sorted(event.malformed)]:
        state, notes = record_malformed(state, paths.partition_state(partition), event.malformed.get(partition))
        effects += notes
    return state, effects


def _skipped(partition: TopicPartition, replicas: Replicas, one: _Decided, purpose: Purpose) -> list[Effect]:
    """Why a preferred election changes nothing, where it could."""
    if not isinstance(purpose, PreferredElection) or one.choice.state is not None:
        return []
    if one.found is None or one.found.leader == replicas[0]:
        return []
    return [Note("election.skipped", str(partition), f"preferred leader {replicas[0]} is not in sync")]


def on_states_written(state: ControllerState, event: StatesWritten) -> Decision:
    """Durable changes are announced; failed writes are read and decided again (controller design A.3.3)."""
    changes: dict[TopicPartition, tuple[LeaderAndIsr | None, LeaderAndIsr]] = {
        partition: (state.partitions.get(partition), now) for partition, now in event.written.items()
    }
    losses = _losses(state, event.written)
    later_epochs = vanished.later_epochs(state, event.written)
    state = dataclasses.replace(state, partitions={**state.partitions, **event.written}, later_epochs=later_epochs)
    is_announced = not isinstance(event.purpose, ControllerElected)
    effects = losses + (announce_changes(state, changes, type(event.purpose).__name__) if is_announced else [])
    if any(_is_moving(state, partition) for partition in event.written):
        effects.append(AdvanceReassignments())
    if event.conflicts:
        # Halving makes sure of progress: in the end each partition has a transaction of its own (invariant F31).
        return state, [*effects, ReadStates(tuple(sorted(event.conflicts)), event.purpose, max(1, event.chunk // 2))]
    return state, effects + _finished(state, event.purpose, reported=bool(changes))


def _losses(state: ControllerState, durable: Mapping[TopicPartition, LeaderAndIsr]) -> list[Effect]:
    """Elections of leaders that may lack committed records are counted when they are known to be durable: one that loses a race is decided
    again, and one whose write was not answered is found by the next reading."""
    lossy = tuple(
        partition
        for partition, now in durable.items()
        if state.accepts_loss(partition, now)
        and ((known := state.partitions.get(partition)) is None or known.leader_epoch < now.leader_epoch)
    )
    return [CountLosses(lossy)] if lossy else []


def _finished(state: ControllerState, purpose: Purpose, *, reported: bool) -> list[Effect]:
    """What is due when all partitions of an undertaking are settled. `reported`: metadata went out just now."""
    match purpose:
        case Repair(announce, _):
            return announce_brokers(state, state.brokers.keys(), "brokers") if announce and not reported else []
        case Restart(_, requests):
            return [DropRestartRequests(requests)] if requests else []
        case ControllerElected():
            return initialise(state, state.brokers.keys(), "controller.failover")
        case Advance() | BeginDraining():
            return []
        case PreferredElection(version, _):
            return [RemoveAdminRequest(paths.PREFERRED_REPLICA_ELECTION, version)] if version >= 0 else []
        case ControlledShutdown(broker_id, _, token):
            paused = pause_replicas(state, broker_id, "ControlledShutdown") if broker_id in state.brokers else []
            is_last = state.brokers.keys() <= state.shutting_down
            response = ControlledShutdownResponse(
                ErrorCode.NONE, still_led(state, broker_id, state.partitions), is_last=is_last
            )
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
