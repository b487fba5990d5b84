"""From the state znodes as they are to the states that should be, and to the commands that announce them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from kafkalite.controller.decisions import elections, restarts, vanished
from kafkalite.controller.decisions.commands import announce_brokers, announce_changes, initialise, pause_replicas
from kafkalite.controller.decisions.effects import (
    AdvanceReassignments,
    AskLogEnds,
    CountLosses,
    Decision,
    DropRestartRequests,
    Effect,
    Note,
    ReadStates,
    RemoveAdminRequest,
    ReplyShutdown,
    Resign,
    WriteStates,
)
from kafkalite.controller.decisions.eligible import NOTHING, KnownReplicas, carried, members, without_doubtful
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
    StatesRead,
    StatesWritten,
)
from kafkalite.controller.decisions.malformed_znodes import record_malformed
from kafkalite.controller.decisions.reassignments import advance_on
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.coordination import paths
from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER, NO_LEADER_EPOCH, BrokerId, LeaderAndIsr, Replicas, TopicPartition
from kafkalite.rpc.messages.control import ControlledShutdownResponse, PartitionError


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a partition's state should be; None: as it is.

    ask: these replicas are asked for their log ends first. `accepts_loss`: the leader may lack committed records. `doubtful`: the partition
    waits for what these, which may lack committed records, have.
    """

    state: LeaderAndIsr | None = None
    ask: tuple[BrokerId, ...] = ()
    accepts_loss: bool = False
    doubtful: frozenset[BrokerId] = frozenset()


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
    claims = {}
    for partition, claim in event.claims.items():
        if not claim.is_epoch_only:
            claims[partition] = claim
        elif state.replicas(partition) is not None:
            later[partition] = max(later.get(partition, NO_LEADER_EPOCH), claim.state.leader_epoch)
    state = dataclasses.replace(state, later_epochs=later)
    return state, [ReadStates(known, Repair(claims=claims))] if known else []


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
    for partition in event.states:
        found = event.states[partition]
        if found is not None and found.controller_epoch > state.epoch:
            return state, [Resign(f"{partition} was written by controller epoch {found.controller_epoch}")]
    state, effects = _record_malformed_states(state, event)
    state = restarts.forget_recovered(state, event)
    adopted: dict[TopicPartition, LeaderAndIsr] = {}
    writes: dict[TopicPartition, LeaderAndIsr] = {}
    asking: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    accepted, doubts = dict(state.accepted_loss), dict(state.doubts)
    for partition in sorted(event.states):
        replicas = state.replicas(partition)
        if replicas is None:
            continue  # removed, or being deleted, since the read was decided
        found = event.states[partition]
        if found is None:
            known = vanished.last_known(state, partition)
            if known is None:
                choice = _Wanted(_first(state, partition, replicas, event))
            else:
                effects.append(
                    Note("state.vanished", str(partition), f"written again: ISR {list(known.isr)}", is_error=True)
                )
                minimum = event.min_insync.get(partition.topic, 1)
                choice = _Wanted(vanished.again(state, partition, known, min_insync=minimum))
        else:
            last = state.partitions.get(partition)
            base = None if last is None else vanished.put_back(last, found)
            if base is None and isinstance(event.purpose, Repair):
                base = vanished.claimed(event.purpose.claims.get(partition), found)
            later = state.later_epochs.get(partition, NO_LEADER_EPOCH)
            if (base or found).leader_epoch < later:
                earlier = dataclasses.replace(base or found, leader_epoch=later)
                choice = _of_earlier_state(state, partition, replicas, earlier, event)
                if choice.state is not None:
                    effects.append(
                        Note("state.put_back", str(partition), f"replica {choice.state.leader} has the most")
                    )
                    found = earlier
                elif base is not None:
                    continue
            else:
                if base is not None:
                    effects.append(Note("state.put_back", str(partition), f"written again: ISR {list(base.isr)}"))
                    found = base
                choice = _wanted(state, partition, replicas, found, event, is_put_back=base is not None)
            if choice.ask:
                asking[partition] = choice.ask
                continue
            adopted[partition] = found
        wanted = choice.state
        if wanted is not None:
            writes[partition] = wanted
            accepted.pop(partition, None)
            if choice.accepts_loss:
                accepted[partition] = wanted.leader_epoch
        if choice.doubtful and found is not None:
            # The state is newer than their registrations, or others may write it.
            epoch = found.leader_epoch if wanted is None else wanted.leader_epoch
            doubts[partition] = dict.fromkeys(choice.doubtful, epoch)
        if wanted is None and found is not None and isinstance(event.purpose, PreferredElection):
            effects += _skipped(replicas, found, partition)
    effects += _losses(state, adopted)
    # A pending change is announced once, when it is durable.
    changes = {
        partition: (state.partitions.get(partition), found)
        for partition, found in adopted.items()
        if partition not in writes and state.partitions.get(partition) != found
    }
    state = dataclasses.replace(
        state,
        partitions={**state.partitions, **{partition: now for partition, (_, now) in changes.items()}},
        accepted_loss=accepted,
        doubts=doubts,
    )
    # An elected epoch begins with INIT commands, which carry everything at once.
    is_announced = not isinstance(event.purpose, ControllerElected)
    commands = announce_changes(state, changes, type(event.purpose).__name__) if is_announced else []
    effects += commands
    if isinstance(event.purpose, Advance):
        settled = {partition: found for partition, found in adopted.items() if partition not in writes}
        effects += advance_on(state, event.purpose, settled)
    elif any(_is_moving(state, partition) for partition in adopted):
        effects.append(AdvanceReassignments())
    if asking:
        # The purpose is fulfilled when these are decided, too; nothing else waits for their answers.
        if writes:
            effects.append(WriteStates(writes, Repair(), event.chunk))
        return state, [*effects, AskLogEnds(asking, event.purpose, event.chunk)]
    if writes:
        return state, [*effects, WriteStates(writes, event.purpose, event.chunk)]
    return state, effects + _finished(state, event.purpose, reported=bool(commands))


def _first(
    state: ControllerState, partition: TopicPartition, replicas: Replicas, event: StatesRead
) -> LeaderAndIsr | None:
    minimum = event.min_insync.get(partition.topic, 1)
    keeps_elr = {id_ for id_, broker in state.brokers.items() if broker.keeps_elr}
    live = state.live(partition)
    return elections.first_state(replicas, live, state.epoch, min_insync=minimum, keeps_elr=keeps_elr)


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


def _wanted(
    state: ControllerState,
    partition: TopicPartition,
    replicas: Replicas,
    found: LeaderAndIsr,
    event: StatesRead,
    *,
    is_put_back: bool,
) -> _Wanted:
    modified = event.modified.get(partition)
    restarted = {
        id_
        for id_, broker in state.registered()
        if (modified is not None and broker.broker_epoch > modified)
        or (isinstance(event.purpose, Repair) and id_ in event.purpose.bounced)
    }
    doubtful = {id_ for id_ in members(found) if _doubts(state, id_, partition, found, restarted)}
    known = KnownReplicas(
        min_insync=event.min_insync.get(partition.topic, 1),
        keeps_elr={id_ for id_, broker in state.registered() if broker.keeps_elr},
        log_ends=None if event.log_ends is None else event.log_ends.get(partition, {}),
        is_unclean=partition.topic in event.unclean_topics or _is_unclean(event.purpose),
    )
    # Older code does not report what it may have lost when it comes back, and makes a log on a dead disk again, empty.
    doubtful |= {id_ for id_ in found.elr if id_ in state.brokers and id_ not in known.keeps_elr}
    silent = {id_ for id_ in restarted if id_ not in known.keeps_elr}
    gone = doubtful | silent | state.offline_replicas.get(partition, frozenset())
    choice = _chosen(state, partition, replicas, found, event, restarted, doubtful, known)
    if choice.state is None and is_put_back and not choice.ask:
        # In a new leader epoch, by which all its replicas learn the znode's version.
        choice = _Wanted(elections.with_epoch(found, found.leader, found.isr, state.epoch))
    if choice.state is None or choice.doubtful:
        return choice
    return dataclasses.replace(choice, state=carried(found, choice.state, replicas, known, gone))


def _of_earlier_state(
    state: ControllerState, partition: TopicPartition, replicas: Replicas, found: LeaderAndIsr, event: StatesRead
) -> _Wanted:
    """The znode was put back from an earlier time, and nobody leads who knows which replicas were in sync later. `found`: with the later
    epoch. It stays as it is until enough replicas say where their logs end."""
    live = state.live(partition)
    unclean = partition.topic in event.unclean_topics or _is_unclean(event.purpose)
    if event.log_ends is None or partition not in event.log_ends:
        return _Wanted(ask=tuple(replica for replica in replicas if replica in live))
    if event.leading.get(partition, NO_LEADER_EPOCH) >= found.leader_epoch:
        return _Wanted()  # it reports what it knows
    if any(replica in event.unanswered for replica in replicas) and not unclean:
        return _Wanted()  # it may be leading; either it answers the next time, or its session ends
    wanted, is_lossy = vanished.most_complete(
        replicas,
        found,
        state.epoch,
        {id_: end for id_, end in event.log_ends[partition].items() if id_ in live},
        doubtful={
            *(id_ for id_, broker in state.registered() if broker.doubts(partition)),
            *event.doubtful.get(partition, ()),  # since it registered: a log was cut, or came back with less
        },
        min_insync=event.min_insync.get(partition.topic, 1),
        unclean=unclean,
    )
    return _Wanted(wanted, accepts_loss=is_lossy)


def _chosen(
    state: ControllerState,
    partition: TopicPartition,
    replicas: Replicas,
    found: LeaderAndIsr,
    event: StatesRead,
    restarted: set[BrokerId],
    doubtful: set[BrokerId],
    known: KnownReplicas,
) -> _Wanted:
    """Leader and ISR; the ELR follows from them."""
    live, leaving = state.live(partition), state.shutting_down
    unclean = partition.topic in event.unclean_topics or _is_unclean(event.purpose)
    kept = without_doubtful(found, doubtful)
    if kept is found and doubtful:  # no replica is left that surely has every committed record
        complete_once = elections.known_members(replicas, found)
        candidates = tuple(id_ for id_ in complete_once if id_ in live)
        asked = tuple(id_ for id_ in complete_once if id_ in state.brokers)
        if known.log_ends is None and len(asked) > 1:
            return _Wanted(ask=asked)
        # A replica that is offline for the controller may be back with more than it is chosen by; or it knows that it has nothing.
        ends = dict.fromkeys(candidates, NOTHING) if known.log_ends is None else known.log_ends
        said = [id_ for id_, end in ends.items() if id_ in live or end == NOTHING]
        if not unclean and _unknown(state, partition, {*doubtful, *complete_once}, said):
            return _Wanted(elections.without_leader(found, state.epoch), doubtful=frozenset(doubtful))
        if candidates:
            return _Wanted(
                elections.after_loss(replicas, found, live, leaving, state.epoch, known.log_ends), accepts_loss=True
            )
    if kept is not found:
        dropped = set(members(found)) - set(members(kept))
        restarted = restarted - dropped
        if not _is_unclean(event.purpose):
            lost = {id_ for id_ in dropped if not unclean or _lacks(state, id_, partition)}
            live = [id_ for id_ in live if id_ not in lost]
    silent = _silent_members(state, partition, kept, live)
    if silent:
        # Nobody is elected: neither those that may not be there, nor anybody without what they have. A silent leader stays.
        unclean = False
        live = silent if kept.leader in silent else ()
        restarted = set(silent) if kept.leader in restarted else set()
    eligible = replicas if unclean else ()
    alive = tuple(id_ for id_ in eligible if id_ in live)
    if len(alive) > 1 and known.log_ends is None and not any(id_ in live for id_ in members(kept)):
        return _Wanted(ask=alive)
    repaired = elections.repair(
        replicas,
        kept,
        live,
        leaving,
        state.epoch,
        restarted=restarted,
        unclean=unclean,
        log_ends=known.log_ends,
    )
    if repaired is None and kept is not found:
        repaired = elections.with_epoch(found, kept.leader, kept.isr, state.epoch)
    if repaired is not None:
        is_preferred = isinstance(event.purpose, PreferredElection) and replicas[0] in repaired.isr
        if is_preferred and replicas[0] in live and replicas[0] not in restarted and not silent:
            repaired = dataclasses.replace(repaired, leader=replicas[0])
        if isinstance(event.purpose, ControlledShutdown) and len(replicas) > 1 and not silent:
            able = [id_ for id_ in live if id_ not in restarted]  # where nobody else surely has more, the lead stays
            stopped = elections.shut_down(replicas, repaired, able, leaving, state.epoch) or repaired
            repaired = dataclasses.replace(repaired, leader=stopped.leader, isr=stopped.isr)
        lossy = repaired.leader != NO_LEADER and repaired.leader not in members(kept)
        return _Wanted(repaired, accepts_loss=lossy)
    if silent:
        live = [id_ for id_ in live if id_ == found.leader]
    return _Wanted(_as_ordered(state, partition, replicas, found, event, live))


def _as_ordered(
    state: ControllerState,
    partition: TopicPartition,
    replicas: Replicas,
    found: LeaderAndIsr,
    event: StatesRead,
    live: Collection[BrokerId],
) -> LeaderAndIsr | None:
    """What the purpose asks of a state that needs no repair."""
    match event.purpose:
        case Restart():
            return restarts.restarted(state, partition, found, event.purpose)
        case PreferredElection(_, unclean) if not unclean:
            return elections.preferred(replicas, found, live, state.epoch)
        case ControlledShutdown(broker_id):
            if len(replicas) > 1 and broker_id in found.isr:
                return elections.shut_down(replicas, found, live, state.shutting_down, state.epoch)
        case BeginDraining() if found.leader in live:
            return elections.with_epoch(found, found.leader, found.isr, state.epoch)
    return None


def _doubts(
    state: ControllerState,
    broker_id: BrokerId,
    partition: TopicPartition,
    found: LeaderAndIsr,
    restarted: Collection[BrokerId],
) -> bool:
    """Whether a live broker may lack committed records that it had when it became a member: its registration says so, if that
    is newer than the state; or it has refused to lead in this epoch because of that."""
    broker = state.brokers.get(broker_id)
    if broker is None:
        return False
    if broker_id in restarted and broker.doubts(partition):
        return True
    return state.doubts.get(partition, {}).get(broker_id, -1) >= found.leader_epoch


def _unknown(
    state: ControllerState, partition: TopicPartition, asked: Collection[BrokerId], said: Collection[BrokerId]
) -> list[BrokerId]:
    """Those that have not said where their logs end, and may have more than the others: a disk that is offline can come back, and so can a
    broker that is away or does not answer. One that knows that its log is gone is not waited for."""
    return [id_ for id_ in asked if id_ not in said and not _lacks(state, id_, partition)]


def _lacks(state: ControllerState, broker_id: BrokerId, partition: TopicPartition) -> bool:
    broker = state.brokers.get(broker_id)
    return broker is not None and broker.lacks(partition)


def _silent_members(
    state: ControllerState, partition: TopicPartition, kept: LeaderAndIsr, live: Collection[BrokerId]
) -> frozenset[BrokerId]:
    """The brokers that are registered and silent, if none that is in sync or eligible is heard of: only the end of their sessions
    takes from them what nobody else has."""
    if not state.suspects or any(id_ in live for id_ in members(kept)):
        return frozenset()
    offline = state.offline_replicas.get(partition, frozenset())
    return frozenset(id_ for id_ in members(kept) if id_ in state.suspects and id_ not in offline)


def _is_unclean(purpose: Purpose) -> bool:
    return isinstance(purpose, PreferredElection) and purpose.unclean


def _skipped(replicas: Replicas, found: LeaderAndIsr, partition: TopicPartition) -> list[Effect]:
    if found.leader == replicas[0]:
        return []
    return [Note("election.skipped", str(partition), f"preferred leader {replicas[0]} is not in sync")]


def on_states_written(state: ControllerState, event: StatesWritten) -> Decision:
    """Durable changes are announced; failed writes are read and decided again (controller design A.3.3)."""
    changes: dict[TopicPartition, tuple[LeaderAndIsr | None, LeaderAndIsr]] = {
        partition: (state.partitions.get(partition), now) for partition, now in event.written.items()
    }
    losses = _losses(state, event.written)
    state = dataclasses.replace(state, partitions={**state.partitions, **event.written})
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
        if state.accepted_loss.get(partition) == now.leader_epoch
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
