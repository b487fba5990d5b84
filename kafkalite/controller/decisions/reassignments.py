"""Reassignment of partitions in small steps (KIP-435 as repaired by invariants C12 to C16). Pure.

A move is requested in /admin/reassign_partitions (or KIP-455's maps), then kept per partition in the topic's znode, each
change of it in one transaction with the partition's state. One step has these phases, all of them durable:

    start   AR := TR united with CR, new leader epoch: the new replicas begin to copy. Where a member of the final
            replicas is in sync already and the leader is none of them, leadership moves right here.
    finish  when the final members of TR are in sync: AR := TR, ISR cut down to it, new leader epoch, the leader one
            of the final members. The leader of an older epoch cannot take an old replica back (invariant F20).
    drop    the replicas that left have removed their files; only then the next step begins. What is on dead brokers
            and offline disks is remembered until they return (ADR 61).

The inputs are always the target and what is in ZooKeeper, so that the next controller goes on wherever this one
stopped. A new request for a partition replaces its target; a cancel makes the target what there was before the first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from kafkalite.config import LEADER_MOVEMENTS, LIMIT_PREFIXES, PARTITIONS, REPLICAS, parse_limit
from kafkalite.controller.decisions import elections
from kafkalite.controller.decisions.commands import drop_replicas
from kafkalite.controller.decisions.effects import (
    AdvanceReassignments,
    Decision,
    Effect,
    ReadStates,
    RemoveReassignmentRequests,
    WriteTopics,
)
from kafkalite.controller.decisions.eligible import KnownReplicas, carried
from kafkalite.controller.decisions.events import (
    UNLIMITED,
    Advance,
    MovesDue,
    ReassignmentLimits,
    ReassignmentRequested,
    TopicChange,
)
from kafkalite.controller.decisions.malformed_znodes import record_malformed
from kafkalite.controller.decisions.reassignment_steps import next_step
from kafkalite.controller.decisions.state import ControllerState, Topic
from kafkalite.controller.decisions.topic_room import room_left, size_of_move
from kafkalite.coordination import paths
from kafkalite.coordination.admin_znodes import RequestLimits
from kafkalite.coordination.topic_znodes import ReassignmentProgress
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_TOPIC_ID, BrokerId, LeaderAndIsr, Replicas, TopicPartition

#: Partitions of one topic in one transaction: its operations and bytes are bounded (invariant F31).
MAX_PER_TOPIC = 200
#: Replicas that may be on offline disks: for how many of them a live broker gets the command again at a tick.
MAX_REPEATED = 100


@dataclass(slots=True)
class _Budget:
    """What may still be started: partitions, and of these leader movements."""

    partitions: int
    leader_movements: int

    def take(self, *, moves_leader: bool) -> bool:
        if self.partitions <= 0 or (moves_leader and self.leader_movements <= 0):
            return False
        self.partitions -= 1
        self.leader_movements -= moves_leader
        return True


def on_reassignment_requested(state: ControllerState, event: ReassignmentRequested) -> Decision:
    """What /admin/reassign_partitions holds now. Entries that name nothing are taken out; the rest is taken up."""
    state, effects = record_malformed(state, paths.REASSIGN_PARTITIONS, event.malformed)
    if event.malformed is not None:
        return state, effects
    throttles = {partition: event.throttles.get(partition, 0) for partition in event.targets}
    state = dataclasses.replace(state, requested=event.targets, throttles=throttles, request_limits=event.limits)
    if event.targets:
        return state, [*effects, AdvanceReassignments()]
    return state, [*effects, RemoveReassignmentRequests({})] if event.is_there else effects


def on_moves_due(state: ControllerState, event: MovesDue) -> Decision:
    """Take up what is requested, take finished entries out of the request, and let moves go on within the limits."""
    changes = _take_up(state)
    if changes:
        return state, [WriteTopics(changes)]
    effects: list[Effect] = []
    done = {partition: target for partition, target in state.requested.items() if _is_settled(state, partition)}
    if done:
        requested = {partition: target for partition, target in state.requested.items() if partition not in done}
        state = dataclasses.replace(state, requested=requested)
        effects.append(RemoveReassignmentRequests(done))
    advance = Advance(_stricter(event.limits, _limits_of_request(state.request_limits)), event.min_insync)
    known = {partition: state.partitions[partition] for partition, _ in state.moves() if partition in state.partitions}
    chosen = [partition for change in _advance(state, advance, known) for partition in change.partitions]
    if chosen:
        effects.append(ReadStates(tuple(sorted(chosen)), advance))
    return state, effects


def advance_on(state: ControllerState, advance: Advance, found: Mapping[TopicPartition, LeaderAndIsr]) -> list[Effect]:
    """The next phase of the moves whose states were read just now."""
    changes = _advance(state, advance, found)
    return [WriteTopics(changes)] if changes else []


# --- requests -------------------------------------------------------------------------------------------------------


def _take_up(state: ControllerState) -> tuple[TopicChange, ...]:
    """Requests that the topics' znodes do not know yet, as far as there is room for them."""
    room: dict[str, int] = {}
    topics: dict[str, Topic] = {}
    touched: dict[str, list[TopicPartition]] = {}
    for partition in sorted(state.requested):
        known = state.topics.get(partition.topic)
        if known is None or partition.topic in state.deletions or partition in state.removals:
            continue
        topic = topics.get(partition.topic, known)
        number = partition.partition
        replicas = topic.assignment.get(number)
        if replicas is None or len(touched.get(partition.topic, ())) >= MAX_PER_TOPIC:
            continue
        move = topic.moves.get(number)
        wanted = wanted_move(replicas, move, state.requested[partition], state.throttles.get(partition, 0))
        if wanted == move:
            continue
        if wanted is not None and move is None:
            left = room[partition.topic] if partition.topic in room else room_left(known)
            room[partition.topic] = left = left - size_of_move(wanted.origin, wanted.target)
            if left < 0:
                continue
        topics[partition.topic] = topic.with_partition(number, replicas, wanted)
        touched.setdefault(partition.topic, []).append(partition)
    return tuple(TopicChange(name, topics[name], tuple(touched[name])) for name in sorted(topics))


def wanted_move(
    replicas: Replicas, move: ReassignmentProgress | None, requested: Replicas, throttle: int
) -> ReassignmentProgress | None:
    """The move after a request; `requested` empty: call it off. The same request again changes nothing: it stays until it has been taken up."""
    if move is None:
        return (
            None
            if not requested or requested == replicas
            else ReassignmentProgress(requested, replicas, throttle=throttle)
        )
    target = requested or move.origin
    if target == move.target and is_over(replicas, move):
        return move
    if target == move.target:
        return dataclasses.replace(move, throttle=throttle) if requested else move
    # A cancel goes back to the origin, also where the move has just arrived and old files are still being removed.
    origin = replicas if requested and move.target == replicas and not move.step else move.origin
    if target == replicas:
        return ReassignmentProgress(target, target, dropping=move.dropping) if move.dropping else None
    return ReassignmentProgress(target, origin, dropping=move.dropping, throttle=throttle)


def _is_settled(state: ControllerState, partition: TopicPartition) -> bool:
    """Whether an entry of the request asks for nothing any more, or names nothing."""
    if paths.topic(partition.topic) in state.malformed:
        return False
    topic = state.topics.get(partition.topic)
    if topic is None or partition.topic in state.deletions or partition in state.removals:
        return True
    if partition.partition not in topic.assignment:
        return True
    requested, replicas = state.requested[partition], topic.assignment[partition.partition]
    move = topic.moves.get(partition.partition)
    if move is not None:
        within_reach = [each for each in move.dropping if each in state.brokers and (partition, each) not in state.away]
        if within_reach or not is_over(replicas, move):
            return False
    return requested in ((), replicas)


def is_over(replicas: Replicas, move: ReassignmentProgress) -> bool:
    """Whether nothing of a move is left but files on brokers and disks that were not there at its end."""
    return not move.step and move.target == move.origin == replicas


# --- steps -------------------------------------------------------------------------------------------------------


def _advance(
    state: ControllerState, advance: Advance, found: Mapping[TopicPartition, LeaderAndIsr]
) -> tuple[TopicChange, ...]:
    """What can be done for these partitions now; those that are under way first, then by how far they are."""
    moves = dict(state.moves())
    under_way = {
        partition
        for partition, move in moves.items()
        if move.step or any(_is_awaited(state, partition, broker) for broker in move.dropping)
    }
    limits = advance.limits
    budget = _Budget(
        limits.partitions - len(under_way),
        limits.leader_movements - sum(moves[partition].moves_leader for partition in under_way),
    )

    def urgency(partition: TopicPartition) -> tuple[bool, bool, TopicPartition]:
        is_begun = state.topics[partition.topic].assignment[partition.partition] != moves[partition].origin
        return partition not in under_way, not is_begun, partition

    topics: dict[str, Topic] = {}
    states: dict[str, dict[TopicPartition, LeaderAndIsr]] = {}
    touched: dict[str, list[TopicPartition]] = {}
    for partition in sorted((p for p in found if p in moves), key=urgency):
        name, number = partition
        topic = topics.get(name, state.topics[name])
        if len(touched.get(name, ())) >= MAX_PER_TOPIC:
            continue
        outcome = _MovingPartition(state, partition, topic.assignment[number], moves[partition], found[partition]).next(
            advance, budget
        )
        if outcome is None:
            continue
        replicas, move, changed = outcome
        topics[name] = topic.with_partition(number, replicas, move)
        touched.setdefault(name, []).append(partition)
        if changed is not None:
            states.setdefault(name, {})[partition] = changed
    return tuple(TopicChange(name, topics[name], tuple(touched[name]), states.get(name, {})) for name in sorted(topics))


Outcome = tuple[Replicas, ReassignmentProgress | None, LeaderAndIsr | None]


@dataclass(frozen=True, slots=True)
class _MovingPartition:
    """One partition's move and all that its next phase depends on."""

    state: ControllerState
    partition: TopicPartition
    replicas: Replicas
    move: ReassignmentProgress
    found: LeaderAndIsr

    @property
    def live(self) -> Collection[BrokerId]:
        return self.state.brokers.keys()

    @property
    def in_sync(self) -> list[BrokerId]:
        return [replica for replica in self.found.isr if replica in self.live]

    def next(self, advance: Advance, budget: _Budget) -> Outcome | None:
        """(AR, move, state or None if it stays); None while there is nothing to do but wait."""
        move = self.move
        if self.found.leader not in self.live or self.state.is_put_back(self.partition, self.found):
            return self._take_back()  # offline; KIP-435 waits while the ISR is empty
        left = tuple(self._undropped())
        if any(_is_awaited(self.state, self.partition, broker) for broker in left):
            return None
        # What is on dead brokers and offline disks is remembered until they return, and keeps nobody waiting.
        if not move.step and self.replicas == move.target:
            rest = ReassignmentProgress(move.target, move.target, dropping=left) if left else None
            return None if rest == move else (self.replicas, rest, None)
        if move.step:
            return self._finish(advance) if self._may_finish(advance) else None
        return self._start(advance, budget)

    def _take_back(self) -> Outcome | None:
        """Nobody leads because brokers that are no replicas have the records: those of them that the move names become replicas at once, and their
        logs count when a leader is chosen. Not before all brokers have said what they have: one that is away may have more."""
        elsewhere = self.state.elsewhere.get(self.partition)
        holders = () if elsewhere is None or elsewhere.awaited(self.replicas) else elsewhere.holders
        back = [each for each in self.move.target if each in holders and each not in self.replicas]
        if not back:
            return None
        # A broker takes a log that it has set aside into service only where nobody leads.
        return (*back, *self.replicas), self.move, elections.without_leader(self.found, self.state.epoch)

    def _start(self, advance: Advance, budget: _Budget) -> Outcome | None:
        move = self.move
        if not any(replica in self.live for replica in move.target):
            return None
        minimum = min(advance.min_insync.get(self.partition.topic, 1), len(move.target))
        step = next_step(
            move.target,
            self.replicas,
            self.found.isr,
            self.live,
            max_replicas=advance.limits.replicas,
            min_insync_replicas=minimum,
            most_replicas=max(len(move.origin), len(move.target)) + advance.limits.replicas,
        )
        if step == self.replicas:
            return None
        grown = (*step, *(replica for replica in self.replicas if replica not in step))
        if not any(replica in grown for replica in self.in_sync):
            return None  # a topic's znode written by hand: nobody who could lead is assigned
        moves_leader = self.found.leader not in move.target and any(replica in move.target for replica in step)
        if not budget.take(moves_leader=moves_leader):
            return None
        leader = self._leader_among(grown)
        changed = self._carried(
            elections.with_epoch(self.found, leader, self.found.isr, self.state.epoch), grown, advance
        )
        left = tuple(each for each in self._undropped() if each not in grown)
        return grown, dataclasses.replace(move, step=step, dropping=left, moves_leader=moves_leader), changed

    def _undropped(self) -> list[BrokerId]:
        return [each for each in self.move.dropping if (self.partition, each) not in self.state.dropped]

    def _leader_among(self, replicas: Collection[BrokerId]) -> BrokerId:
        """The present leader if it is a final replica; else the first final one that can lead; else the present one,
        or where that has to go, the first that can."""
        if self.found.leader in self.move.target and self.found.leader in replicas:
            return self.found.leader
        able = [each for each in self.in_sync if each in replicas]
        final = [each for each in self.move.target if each in able]
        staying = [each for each in final if each not in self.state.shutting_down]
        if staying or final:
            return (staying or final)[0]
        return self.found.leader if self.found.leader in replicas else able[0]

    def _may_finish(self, advance: Advance) -> bool:
        """Whether the replicas that stay have all that is committed, on enough of them."""
        step, target = self.move.step, self.move.target
        in_sync = self.in_sync
        staying = [replica for replica in in_sync if replica in step]
        minimum = max(1, min(advance.min_insync.get(self.partition.topic, 1), len(in_sync), len(target)))
        leaving = [replica for replica in self.replicas if replica not in step]
        if len(staying) < (minimum if leaving else 1):
            return False
        missing = [replica for replica in step if replica in target and replica not in in_sync]
        if not missing or not leaving:
            return not missing
        lost = self.state.offline_replicas.get(self.partition, frozenset())
        if target == self.move.origin and not any(each in self.live and each not in lost for each in missing):
            # Rolled back: the replicas of before have to be enough, as they were. Those that can come back are waited for: a
            # step may have taken them out, and without them there would be fewer than ever.
            return True
        # A replica of before the move that is not in sync does not hold up the removal of others that are not in sync either.
        return all(each in self.move.origin for each in missing) and not any(each in in_sync for each in leaving)

    def _carried(self, changed: LeaderAndIsr, replicas: Replicas, advance: Advance) -> LeaderAndIsr:
        """With the ELR: a step may take eligible replicas away, or raise the number of replicas that min.insync needs."""
        known = KnownReplicas(
            min_insync=advance.min_insync.get(self.partition.topic, 1),
            keeps_elr={id_ for id_, broker in self.state.registered() if broker.keeps_elr},
        )
        gone = self.state.offline_replicas.get(self.partition, frozenset())
        return carried(self.found, changed, replicas, known, gone)

    def _finish(self, advance: Advance) -> Outcome:
        step = self.move.step
        isr = [replica for replica in self.found.isr if replica in step]
        leader = self._leader_among(step)
        changed = self._carried(elections.with_epoch(self.found, leader, isr, self.state.epoch), step, advance)
        gone = [each for each in self.replicas if each not in step]
        undropped = self._undropped()
        dropping = tuple(dict.fromkeys([*undropped, *gone]))
        move: ReassignmentProgress | None = dataclasses.replace(self.move, step=(), dropping=dropping)
        awaited = [each for each in undropped if _is_awaited(self.state, self.partition, each)]
        if not awaited and not any(each in self.live for each in gone):
            move = dataclasses.replace(self.move, step=(), dropping=dropping, moves_leader=False)
            if step == self.move.target:
                move = ReassignmentProgress(step, step, dropping=dropping) if dropping else None
        return step, move, changed


# --- outcomes -------------------------------------------------------------------------------------------------------


def _is_awaited(state: ControllerState, partition: TopicPartition, broker: BrokerId) -> bool:
    """Whether a replica that a step wants gone may still be there, within reach."""
    pair = (partition, broker)
    return broker in state.brokers and pair not in state.dropped and pair not in state.away


def on_replica_dropped(
    state: ControllerState, stopped: Collection[TopicPartition], away: Collection[TopicPartition], broker: BrokerId
) -> Decision:
    """A broker has removed replicas that a step wanted gone; `away`: other files of these may be on an offline disk."""
    new = {
        (partition, broker)
        for partition in stopped
        if (topic := state.topics.get(partition.topic)) is not None
        and (move := topic.moves.get(partition.partition)) is not None
        and broker in move.dropping
    }
    if not new:
        return state, []
    kept = {pair for pair in new if pair[0] in away}
    gone = new - kept
    effects: list[Effect] = [AdvanceReassignments()]
    back: set[tuple[TopicPartition, BrokerId]] = set()
    if any(state.topics[partition.topic].topic_id != NO_TOPIC_ID for partition, _ in gone):
        # All its disks are online (without a topic id it would not have said so): nothing of it is out of reach.
        back = {pair for pair in state.away if pair[1] == broker}
        effects += drop_replicas(state, sorted(back - gone), "Reassignment")
    return dataclasses.replace(state, dropped=state.dropped | gone, away=(state.away - back) | kept), effects


def undropped(state: ControllerState) -> list[tuple[TopicPartition, BrokerId]]:
    """Replicas that live brokers were commanded to remove, without a confirmation yet. Of those that may be on an offline disk
    a few per broker: their answer says whether it is back."""
    found: list[tuple[TopicPartition, BrokerId]] = []
    away: dict[BrokerId, int] = {}
    for partition, move in state.moves():
        for broker in move.dropping:
            if (partition, broker) in state.dropped or broker not in state.brokers:
                continue
            if (partition, broker) in state.away:
                away[broker] = away.get(broker, 0) + 1
                if away[broker] > MAX_REPEATED:
                    continue
            found.append((partition, broker))
    return found


# --- limits (KIP-435, invariant C13) -----------------------------------------------------------------------------------------------


def limits_from(settings: Mapping[str, str]) -> ReassignmentLimits:
    """The limits; what is missing, or was written by hand and is no limit, limits nothing. Of a limit that is set under several names, the strictest."""

    def value(name: str) -> int:
        return min(parse_limit(settings.get(prefix + name, "")) or UNLIMITED for prefix in LIMIT_PREFIXES)

    return ReassignmentLimits(value(REPLICAS), value(PARTITIONS), value(LEADER_MOVEMENTS))


def _limits_of_request(limits: RequestLimits) -> ReassignmentLimits:
    """What a request limits itself to; 0 limits nothing."""
    return ReassignmentLimits(*(each or UNLIMITED for each in limits))


def _stricter(one: ReassignmentLimits, other: ReassignmentLimits) -> ReassignmentLimits:
    """Both hold: the cluster's, and those of the request under way."""
    return ReassignmentLimits(
        min(one.replicas, other.replicas),
        min(one.partitions, other.partitions),
        min(one.leader_movements, other.leader_movements),
    )
