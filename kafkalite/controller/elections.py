"""Who leads a partition, and who is in sync, after something happened. Pure (V3 A.3.2, B; Kafka's Election.scala).

Every function gets the AR in order and the current state, and returns the next state, or None where nothing is to
change. A change always raises the leader epoch by one and stamps the controller's epoch (HA failover 3.3); the
partition epoch stays that of the state it is based on: the conditional write fails if that is not the znode's any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
    replicas: Sequence[BrokerId], live: Collection[BrokerId], epoch: ControllerEpoch
) -> LeaderAndIsr | None:
    """A partition without a state znode: the first live replica leads, all live ones are in sync (V3 B init_leaders).

    Returns:
        None if no replica is live: the partition waits for one.
    """
    isr = tuple(replica for replica in replicas if replica in live)
    if not isr:
        return None
    return LeaderAndIsr(isr[0], LeaderEpoch(0), isr, epoch, NOT_CREATED)


def without_empty(state: LeaderAndIsr, empty: Collection[BrokerId]) -> LeaderAndIsr:
    """The state as if brokers that have come back without this partition's log had left the ISR before they did; the same
    if there are none, or nobody else is in sync.

    All nodes lost power, and the first that is back has a new disk: with it in the ISR, alone alive, it would lead, and
    the others would cut their logs to nothing; or, having told that the log is lost, it would be all that is left of the
    ISR, and the others, who have every record, could not lead.
    """
    isr = tuple(replica for replica in state.isr if replica not in empty)
    if not isr or isr == state.isr:
        return state
    leader = state.leader if state.leader in isr else NO_LEADER
    return LeaderAndIsr(leader, state.leader_epoch, isr, state.controller_epoch, state.partition_epoch)


def repair(
    replicas: Sequence[BrokerId],
    state: LeaderAndIsr,
    live: Collection[BrokerId],
    leaving: Collection[BrokerId],
    epoch: ControllerEpoch,
    *,
    restarted: Collection[BrokerId] = (),
    unclean: bool,
) -> LeaderAndIsr | None:
    """Bring a partition's state in line with who is alive (V3 A.3.2).

    Args:
        leaving: live brokers in a controlled shutdown; they are chosen only where nobody else can be.
        restarted: live brokers that registered after the state was last written, hence may have come back with less
            than they had when they joined the ISR. They count as dead, then new (F5), if others are in sync; if all
            are such, the ISR stays, and whoever leads does so in a new epoch (ADR 8).
        unclean: may a replica outside the ISR lead (unclean.leader.election.enable); records can be lost.
    Returns:
        A live ISR member leads and the ISR is what is alive of it; else, if `unclean`, the first live replica
        alone; else nobody, and the ISR stays, so that only its members may lead again (C7, F17).
    """
    in_sync = [replica for replica in state.isr if replica in live]
    if not in_sync:
        alive = _by_preference(replicas, live, leaving)
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
    """Give leadership to the first replica if it is alive and in sync; else leave it (HA preferred election)."""
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
