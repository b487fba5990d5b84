"""Replicas move because of a broker that is drained or lost, because an internal topic has too few of them, or because the load is
uneven: `broker.state` and `balancer.*`. Pure.

Moves are ordinary reassignments (KIP-435), written into the topics' znodes in a transaction that only the present controller can make: they
survive every crash, wait within the cluster's limits, can be listed and called off. At most `balancer.max.moves` are under way. What is
to be done next is always computed from what is there: a new controller goes on without knowing what the last one planned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from kafkalite.controller.decisions.balance import on_balance_due
from kafkalite.controller.decisions.balance_view import BalanceMove, BalanceView, Goals
from kafkalite.controller.decisions.balancer import Balancer
from kafkalite.controller.decisions.effects import Decision, Effect, Note, WriteTopics
from kafkalite.controller.decisions.events import BalanceDue, BalancerDue, TopicChange
from kafkalite.controller.decisions.internal_topics import growth, lacks_replicas
from kafkalite.controller.decisions.reassignments import MAX_PER_TOPIC, is_over, wanted_move
from kafkalite.controller.decisions.state import ControllerState, Topic
from kafkalite.model import BrokerId, Replicas, TopicPartition
from kafkalite.wording import number_of

DRAINING = "draining"
#: The modes of `balancer.mode`.
OFF, ADVISE, ON = "off", "advise", "on"
#: Moves that are counted for an advice.
MAX_ADVISED = 100


def under_way(state: ControllerState) -> Iterator[TopicPartition]:
    """Partitions that are being moved by anybody; not those of which only files on dead brokers are left."""
    for partition, move in state.moves():
        replicas = state.replicas(partition)
        if replicas is None or not is_over(replicas, move):
            yield partition


def leaving_replicas(state: ControllerState) -> dict[BrokerId, int]:
    """How many replicas each broker still has of partitions whose move takes them away from it."""
    leaving: dict[BrokerId, int] = {}
    for partition in under_way(state):
        target = state.topics[partition.topic].moves[partition.partition].target
        for broker in state.replicas(partition) or ():
            if broker not in target:
                leaving[broker] = leaving.get(broker, 0) + 1
    return leaving


def missing_brokers(state: ControllerState) -> frozenset[BrokerId]:
    """Brokers that have replicas, and are not registered."""
    here = {broker for broker, _ in state.registered()}
    return frozenset(broker for _, replicas in state.assigned() for broker in replicas if broker not in here)


def view_of(state: ControllerState, event: BalancerDue) -> BalanceView:
    """The cluster as the balancer sees it. Draining and lost brokers are to hold nothing."""
    racks: dict[BrokerId, str | None] = {broker: info.rack or None for broker, info in state.brokers.items()}
    if None in racks.values():
        racks = dict.fromkeys(racks)  # as for new topics: racks do not count if only some brokers have one
    leaving = {broker: f"broker {broker} is being drained" for broker, kind in event.closed.items() if kind == DRAINING}
    for broker in sorted(event.gone):
        leaving.setdefault(broker, f"broker {broker} has not been alive for a long time")
    moving = set(under_way(state))
    assignment: dict[TopicPartition, Replicas] = {}
    fixed: set[TopicPartition] = set()
    for partition, replicas in state.assigned():
        known = state.partitions.get(partition)
        assignment[partition] = replicas
        if partition in moving:
            assignment[partition] = state.topics[partition.topic].moves[partition.partition].target
        if partition in moving or partition in state.removals or partition in state.requested:
            fixed.add(partition)
        elif known is None or known.leader not in state.brokers:
            fixed.add(partition)  # without a leader nothing can be copied
    closed = frozenset(event.closed) | state.shutting_down
    return BalanceView(assignment, racks, closed, leaving, event.loads, event.room, frozenset(fixed))


def on_balancer_due(state: ControllerState, event: BalancerDue) -> Decision:
    """Begin the next moves; without any, give leaderships to those who should have them now."""
    settings = event.settings
    if lacks_replicas(state, event.closed, event.internal):
        effects = _grow(state, event)
        if effects:
            return state, effects
    if settings.mode != ON and not any(kind == DRAINING for kind in event.closed.values()):
        state = dataclasses.replace(state, is_spreading=False, stuck={})
        return _advise(state, event) if settings.mode == ADVISE else (state, [])
    busy = sum(1 for _ in under_way(state))
    if busy >= settings.max_moves:
        return state, []
    view = view_of(state, event)
    is_on = settings.mode == ON
    if is_on and not state.is_spreading and not busy:
        looked = Balancer(view, Goals(settings.tolerance, settings.max_disk))
        if looked.is_uneven(settings.tolerance):
            state = dataclasses.replace(state, is_spreading=True)
    goals = Goals(settings.tolerance, settings.max_disk, mends=is_on, is_spread=is_on and state.is_spreading)
    balancer = Balancer(view, goals)
    chosen = _first(balancer, settings.max_moves - busy)
    state = dataclasses.replace(state, stuck=dict(balancer.stuck), advised_moves=0)
    if not chosen:
        if not busy:
            state = dataclasses.replace(state, is_spreading=False)
        if is_on and not busy and settings.leader_percentage is not None:
            return on_balance_due(state, BalanceDue(settings.leader_percentage))
        return state, []
    return state, _begin(state, view, chosen, settings.throttle)


def _grow(state: ControllerState, event: BalancerDue) -> list[Effect]:
    """Replicas for internal topics that lack some, in every mode: they hold what all groups and transactions rely on."""
    settings = event.settings
    view = view_of(state, event)
    busy = sum(1 for _ in under_way(state))
    balancer = Balancer(view, Goals(settings.tolerance, settings.max_disk))
    moves, raised = growth(state, balancer, event.internal, settings.max_moves - busy)
    return [*raised, *(_begin(state, view, moves, settings.throttle) if moves else ())]


def _begin(state: ControllerState, view: BalanceView, moves: list[BalanceMove], throttle: int) -> list[Effect]:
    notes: list[Effect] = [
        Note(
            f"balancer.{move.goal}",
            str(move.partition),
            f"{list(view.assignment[move.partition])} -> {list(move.target)}: {move.reason}",
        )
        for move in moves
    ]
    return [*notes, WriteTopics(_changes(state, moves, throttle))]


def _first(balancer: Balancer, limit: int) -> list[BalanceMove]:
    """The first moves of a plan."""
    before = dict(balancer.assignment)
    found: dict[TopicPartition, list[BalanceMove]] = {}
    for move in balancer.moves():
        if move.partition not in found and len(found) >= limit:
            break
        found.setdefault(move.partition, []).append(move)
    return merged_moves([move for moves in found.values() for move in moves], before)


def merged_moves(moves: Iterable[BalanceMove], before: Mapping[TopicPartition, Replicas]) -> list[BalanceMove]:
    """Those of one partition as one, with the reason of the first; none that leads back to what it is."""
    merged: dict[TopicPartition, BalanceMove] = {}
    for move in moves:
        first = merged.get(move.partition)
        if first is not None:
            new = [each for each in move.target if each not in before[move.partition]]
            size = max(first.copied_bytes, move.copied_bytes) if new else 0
            move = dataclasses.replace(move, goal=first.goal, reason=first.reason, copied_bytes=size)
        merged[move.partition] = move
    return [move for move in merged.values() if move.target != before[move.partition]]


def _advise(state: ControllerState, event: BalancerDue) -> Decision:
    """Say once that moves would help; nothing is moved."""
    settings = event.settings
    view = view_of(state, event)
    balancer = Balancer(view, Goals(settings.tolerance, settings.max_disk))
    if not balancer.is_uneven(settings.tolerance) or any(True for _ in under_way(state)):
        return dataclasses.replace(state, advised_moves=0), []
    if state.advised_moves:
        return state, []  # a plan for many partitions takes long
    count = len(_first(balancer, MAX_ADVISED))
    state = dataclasses.replace(state, advised_moves=count)
    if not count:
        return state, []
    more = " or more" if count == MAX_ADVISED else ""
    return state, [Note("balancer.advice", "balancer", f"{number_of(count, 'move')}{more} would make the load even")]


def _changes(state: ControllerState, moves: list[BalanceMove], throttle: int) -> tuple[TopicChange, ...]:
    """The moves as changes of the topics' znodes."""
    topics: dict[str, Topic] = {}
    touched: dict[str, list[TopicPartition]] = {}
    for move in moves:
        name, number = move.partition
        topic = topics.get(name, state.topics[name])
        if len(touched.get(name, ())) >= MAX_PER_TOPIC:
            continue
        replicas = topic.assignment[number]
        wanted = wanted_move(replicas, topic.moves.get(number), move.target, throttle)
        topics[name] = topic.with_partition(number, replicas, wanted)
        touched.setdefault(name, []).append(move.partition)
    return tuple(TopicChange(name, topics[name], tuple(touched[name])) for name in sorted(topics))
