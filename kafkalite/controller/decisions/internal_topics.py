"""Internal topics that were created when there were fewer brokers get the replicas that they lack (ADR 62). Pure.

One replica at a time. `min.insync.replicas` is raised when all partitions have enough replicas in sync, and before the replica
which may then be missing is added: so no commit waits, and a topic that has all its replicas keeps the value that somebody chose.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from kafkalite.controller.decisions.balance_view import BalanceMove
from kafkalite.controller.decisions.balancer import Balancer
from kafkalite.controller.decisions.effects import RaiseMinInsync
from kafkalite.controller.decisions.events import WantedReplication
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.model import BrokerId, Replicas, TopicPartition
from kafkalite.wording import number_of


def lacks_replicas(
    state: ControllerState, closed: Container[BrokerId], internal: Mapping[str, WantedReplication]
) -> bool:
    """Whether a broker could take one more replica of one of these topics; what its disks have room for is not looked at."""
    able = {broker for broker in state.brokers if broker not in closed}
    for name, wanted in internal.items():
        topic = state.topics.get(name)
        if topic is None or name in state.deletions:
            continue
        for number, replicas in topic.assignment.items():
            move = topic.moves.get(number)
            held = replicas if move is None else move.target
            if len(held) < wanted.replicas and not able <= set(held):
                return True
    return False


def growth(
    state: ControllerState, balancer: Balancer, internal: Mapping[str, WantedReplication], limit: int
) -> tuple[list[BalanceMove], list[RaiseMinInsync]]:
    """The next moves, at most `limit` of them, and the settings to be raised before the moves that follow."""
    moves: list[BalanceMove] = []
    raised: list[RaiseMinInsync] = []
    for name, wanted in sorted(internal.items()):
        held = {
            TopicPartition(name, number): balancer.assignment[TopicPartition(name, number)]
            for number in (
                state.topics[name].assignment if name in state.topics and name not in state.deletions else ()
            )
        }
        fewest = min(map(len, held.values()), default=wanted.replicas)
        if fewest >= wanted.replicas:
            continue
        behind = [partition for partition, replicas in sorted(held.items()) if len(replicas) == fewest]
        min_isr = min(wanted.min_isr, fewest)
        if wanted.min_insync < min_isr:
            if any(balancer.may_grow(each) for each in behind) and _in_sync(state, held):
                raised.append(RaiseMinInsync(name, min_isr))
            continue
        for partition in behind:
            if len(moves) >= limit:
                break
            reason = f"it has {number_of(fewest, 'replica')}; configured: {wanted.replicas}"
            if (move := balancer.grow(partition, reason)) is not None:
                moves.append(move)
    return moves, raised


def _in_sync(state: ControllerState, held: Mapping[TopicPartition, Replicas]) -> bool:
    known = state.partitions
    return all(
        partition in known and set(replicas) <= set(known[partition].isr) for partition, replicas in held.items()
    )
