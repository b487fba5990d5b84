"""The leader and the ISR of a partition after a change. Pure (controller design A.3.2, B; Kafka's Election.scala).

Every function gets the AR in order and the current state, and returns the next state, or None where nothing is to
change. A change always raises the leader epoch by one and stamps the controller's epoch (invariant 20); the
partition epoch stays that of the state it is based on: the conditional write fails if that is not the znode's any more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from kafkalite.controller.decisions.eligible import LogEnd, by_completeness, members
from kafkalite.model import NO_LEADER, BrokerId, ControllerEpoch, LeaderAndIsr, LeaderEpoch, PartitionEpoch

#: The partition epoch of a state whose znode is still to be made.
NOT_CREATED = PartitionEpoch(-1)


def _next(
    state: LeaderAndIsr, leader: BrokerId, isr: Sequence[BrokerId], epoch: ControllerEpoch
) -> LeaderAndIsr | None:
    """The state with another leader or ISR; None if both are as they were."""
    if leader == state.leader and tuple(isr) == state.isr:
        return None
    return with_epoch(state, leader, isr, epoch)


def with_epoch(state: LeaderAndIsr, leader: BrokerId, isr: Sequence[BrokerId], epoch: ControllerEpoch) -> LeaderAndIsr:
    """The state with another leader or ISR, or the same, in a new leader epoch."""
    assert leader == NO_LEADER or leader in isr, f"leader {leader} outside ISR {isr}"
    assert isr, "an empty ISR forgets who has the committed records"
    return LeaderAndIsr(leader, LeaderEpoch(state.leader_epoch + 1), tuple(isr), epoch, state.partition_epoch)


def first_state(
    replicas: Sequence[BrokerId],
    live: Collection[BrokerId],
    epoch: ControllerEpoch,
    *,
    min_insync: int = 1,
    keeps_elr: Collection[BrokerId] = (),
) -> LeaderAndIsr | None:
    """A partition without a state znode: the first live replica leads, all live ones are in sync (controller design B init_leaders).

    If these are fewer than min.insync.replicas, the others are eligible: nothing is committed before there are enough.

    Args:
        keeps_elr: brokers that hold the high watermark still for eligible replicas.
    Returns:
        None if no replica is live: the partition waits for one.
    """
    isr = tuple(replica for replica in replicas if replica in live)
    if not isr:
        return None
    is_enough = len(isr) >= min(min_insync, len(replicas)) or isr[0] not in keeps_elr
    elr = () if is_enough else tuple(replica for replica in replicas if replica not in isr)
    return LeaderAndIsr(isr[0], LeaderEpoch(0), isr, epoch, NOT_CREATED, elr=elr)


def repair(
    replicas: Sequence[BrokerId],
    state: LeaderAndIsr,
    live: Collection[BrokerId],
    leaving: Collection[BrokerId],
    epoch: ControllerEpoch,
    *,
    restarted: Collection[BrokerId] = (),
    unclean: bool,
    log_ends: Mapping[BrokerId, LogEnd] | None = None,
) -> LeaderAndIsr | None:
    """Bring a partition's state in line with the live brokers (controller design A.3.2).

    Args:
        leaving: live brokers in a controlled shutdown; they are chosen only where nobody else can be.
        restarted: live brokers that registered after the state was last written, and so may have come back with less
            than they had when they joined the ISR. They count as dead, then new (invariant F5), if others are in sync; if all
            are such, the ISR stays, and the leader leads in a new epoch (ADR 8).
        unclean: may a replica outside the ISR and the ELR lead (unclean.leader.election.enable); records can be lost.
        log_ends: the log ends that live replicas have reported.
    Returns:
        A live ISR member leads, and the ISR keeps its live members. Else a live eligible replica leads alone (KIP-966).
        Else, if `unclean`, the live replica with the most complete log leads alone. Else there is no leader, and the ISR
        stays as it is, so that only its members, and the eligible replicas, may lead again.
    """
    in_sync = [replica for replica in state.isr if replica in live]
    if not in_sync:
        eligible = _by_preference([r for r in replicas if r in state.elr], live, leaving)
        if eligible:
            return _next(state, eligible[0], eligible[:1], epoch)
        alive = by_completeness(_by_preference(replicas, live, leaving), log_ends)
        if unclean and alive:
            return _next(state, alive[0], alive[:1], epoch)
        return _next(state, NO_LEADER, state.isr, epoch)
    steady = [replica for replica in in_sync if replica not in restarted]
    if state.leader in in_sync and not steady:
        return with_epoch(state, state.leader, in_sync, epoch)
    in_sync = steady or in_sync
    if state.leader in in_sync:
        return _next(state, state.leader, in_sync, epoch)
    # A member of the ISR that is not assigned (a znode written by hand) still has every committed record.
    order = [*replicas, *(replica for replica in in_sync if replica not in replicas)]
    return _next(state, _by_preference(order, in_sync, leaving)[0], in_sync, epoch)


def _by_preference(
    replicas: Sequence[BrokerId], eligible: Collection[BrokerId], leaving: Collection[BrokerId]
) -> list[BrokerId]:
    """The eligible replicas in the AR's order, those that are about to leave last."""
    candidates = [replica for replica in replicas if replica in eligible]
    return sorted(candidates, key=lambda replica: replica in leaving)  # stable


def preferred(
    replicas: Sequence[BrokerId], state: LeaderAndIsr, live: Collection[BrokerId], epoch: ControllerEpoch
) -> LeaderAndIsr | None:
    """Give leadership to the first replica if it is alive and in sync; else leave it (invariant 10)."""
    leader = replicas[0]
    if leader not in live or leader not in state.isr:
        return None
    return _next(state, leader, state.isr, epoch)


def shut_down(
    replicas: Sequence[BrokerId],
    state: LeaderAndIsr,
    live: Collection[BrokerId],
    leaving: Collection[BrokerId],
    epoch: ControllerEpoch,
) -> LeaderAndIsr | None:
    """Take the brokers that are leaving out of the lead and out of the ISR, as far as others can take over.

    Where a leaving broker is the only live member of the ISR, nothing changes: availability first, and the record of
    who is in sync is kept.
    """
    staying = [replica for replica in state.isr if replica in live and replica not in leaving]
    if not staying:
        return None
    if state.leader in staying:
        return _next(state, state.leader, staying, epoch)
    order = [replica for replica in replicas if replica in staying]
    return _next(state, (order or staying)[0], staying, epoch)


def without_leader(state: LeaderAndIsr, epoch: ControllerEpoch) -> LeaderAndIsr | None:
    """Nobody leads, and all that is known of the replicas stays; None if it is so already."""
    if state.leader == NO_LEADER:
        return None
    later = LeaderEpoch(state.leader_epoch + 1)
    return dataclasses.replace(state, leader=NO_LEADER, leader_epoch=later, controller_epoch=epoch)


def after_loss(
    replicas: Sequence[BrokerId],
    state: LeaderAndIsr,
    live: Collection[BrokerId],
    leaving: Collection[BrokerId],
    epoch: ControllerEpoch,
    log_ends: Mapping[BrokerId, LogEnd],
) -> LeaderAndIsr | None:
    """All replicas that were in sync or eligible have come back, and may lack committed records: the most complete one leads, of all replicas.
    (One that was outside of the ISR has more than one whose disk was replaced.)

    It leads alone: the others join the ISR when they have caught up.
    """
    members = known_members(replicas, state)
    others = [replica for replica in replicas if replica not in members and replica in log_ends]
    candidates = [*_by_preference(members, live, leaving), *_by_preference(others, live, leaving)]
    if not candidates:
        return None
    leader = by_completeness(candidates, log_ends)[0]
    return with_epoch(state, leader, [leader], epoch)


def known_members(replicas: Sequence[BrokerId], state: LeaderAndIsr) -> list[BrokerId]:
    """Replicas that have had every committed record at some time since the ISR fell below min.insync.replicas."""
    return [replica for replica in replicas if replica in members(state) or replica in state.last_known_elr]
