"""When a follower leaves the in-sync replicas, when it joins, and what the outcome of a write to ZooKeeper means.

Pure. Lag is measured in time only (invariant F11); a follower leaves also without any traffic (invariant F12).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId, LeaderAndIsr, LeaderEpoch, PartitionEpoch
from kafkalite.replica.decisions.leader import NEVER_MS, FollowerProgress, PartitionLeader, update_maximal_isr


def is_lagging(follower: FollowerProgress, *, at_ms: int, lag_time_max_ms: int) -> bool:
    """Whether a member of the ISR must leave: it has not had all of the leader's log for the whole lag time."""
    return at_ms - follower.last_caught_up_ms > lag_time_max_ms


def holding_up(leader: PartitionLeader, *, at_ms: int, longer_than_ms: int) -> tuple[BrokerId, ...]:
    """Members of the ISR that have not had all of the leader's log for longer than this, while records wait to be committed.

    Producers with acks=all wait for them, until they have the records or leave the ISR.
    """
    if leader.high_watermark >= leader.log_end_offset:
        return ()
    return tuple(
        replica
        for replica in leader.committed_isr
        if (follower := leader.followers.get(replica)) is not None
        and follower.log_end_offset < leader.log_end_offset
        and follower.last_caught_up_ms != NEVER_MS  # it has just restarted
        and is_lagging(follower, at_ms=at_ms, lag_time_max_ms=longer_than_ms)
    )


def may_join(
    leader: PartitionLeader,
    replica_id: BrokerId,
    *,
    live_epochs: Mapping[BrokerId, BrokerEpoch],
    at_ms: int,
    lag_time_max_ms: int,
) -> bool:
    """Whether a follower outside the ISR may join it.

    Its log must reach the high watermark and the start of the leader's epoch (invariants C10 and F9: below that start it may
    lack records which an earlier leader committed), it must be fetching, and its fetches must come from the
    incarnation of the broker that is registered now (invariants F15 and F16).
    """
    follower = leader.followers.get(replica_id)
    if follower is None or replica_id in leader.maximal_isr:
        return False
    if follower.log_end_offset < leader.high_watermark or follower.log_end_offset < leader.epoch_start_offset:
        return False
    if live_epochs.get(replica_id) != follower.broker_epoch:
        return False
    return at_ms - follower.last_fetch_ms <= lag_time_max_ms


def propose_isr(
    leader: PartitionLeader, *, live_epochs: Mapping[BrokerId, BrokerEpoch], at_ms: int, lag_time_max_ms: int
) -> tuple[BrokerId, ...] | None:
    """The ISR that should replace the committed one, in the order of the assignment; None if it is right.

    None also while a proposal is under way: one at a time. The leader itself is always a member.
    """
    if leader.proposed_isr is not None:
        return None
    members = set(leader.committed_isr)
    for replica, follower in leader.followers.items():
        if replica in members:
            if is_lagging(follower, at_ms=at_ms, lag_time_max_ms=lag_time_max_ms):
                members.discard(replica)
        elif may_join(leader, replica, live_epochs=live_epochs, at_ms=at_ms, lag_time_max_ms=lag_time_max_ms):
            members.add(replica)
    if members == set(leader.committed_isr):
        return None
    return tuple(replica for replica in leader.replicas if replica in members)


def eligible_after(
    leader: PartitionLeader, isr: tuple[BrokerId, ...]
) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]:
    """(ELR, last known ELR) beside an ISR that this leader proposes (KIP-966, ADR 16): a replica that leaves
    the ISR as it falls below min.insync.replicas has all committed records, and keeps them, because the high watermark then
    stands still."""
    if len(isr) >= leader.effective_min_insync_replicas:
        return (), ()
    before = {*leader.committed_isr, *leader.elr}
    elr = tuple(each for each in leader.replicas if each in before and each not in isr)
    last_known_elr = tuple(each for each in leader.last_known_elr if each not in isr and each not in elr)
    return elr, last_known_elr


def must_clear(leader: PartitionLeader) -> bool:
    """Whether the state znode names eligible replicas though the ISR is large enough: min.insync.replicas was lowered."""
    return bool(leader.elr or leader.last_known_elr) and not leader.is_under_min_isr


def begin_proposal(leader: PartitionLeader, isr: tuple[BrokerId, ...]) -> None:
    """From now on the high watermark waits for the proposed members too (invariant F8)."""
    assert leader.proposed_isr is None, "one proposal at a time"
    assert leader.broker_id in isr
    leader.proposed_isr = isr
    update_maximal_isr(leader)


def withdraw_proposal(leader: PartitionLeader) -> None:
    """The write surely never happened."""
    leader.proposed_isr = None
    update_maximal_isr(leader)


def adopt(
    leader: PartitionLeader,
    isr: tuple[BrokerId, ...],
    partition_epoch: PartitionEpoch,
    elr: tuple[BrokerId, ...] = (),
    last_known_elr: tuple[BrokerId, ...] = (),
) -> None:
    """The state znode surely says `isr` with this version: it is the committed one."""
    assert partition_epoch >= leader.partition_epoch, f"zkVersion {leader.partition_epoch} -> {partition_epoch}"
    leader.committed_isr = tuple(
        replica for replica in isr if replica in leader.followers or replica == leader.broker_id
    )
    leader.partition_epoch = partition_epoch
    leader.elr = elr
    leader.last_known_elr = last_known_elr
    leader.proposed_isr = None
    update_maximal_isr(leader)


class ProposalOutcome(Enum):
    """What to do with a proposal after reading the state znode again."""

    #: The znode has moved on under the same leadership (perhaps by our own write): take what it says.
    ADOPT = "adopt"
    #: Nothing was applied yet, and may still be: write the same again with the same version.
    RETRY = "retry"
    #: Somebody else leads, or the partition is gone: stop acting as its leader.
    RESIGN = "resign"
    #: The znode is an earlier one that was put back, or another topic's: stop acting as its leader, and say so. No command need come.
    PUT_BACK = "put back"


@dataclass(frozen=True, slots=True)
class Proposal:
    """One conditional write to a state znode: the ISR, under a leadership, on top of a version.

    `joining`: new members, each with the broker epoch (KIP-903) in which it caught up. `without_joining`: what to write if one
    of these epochs is over.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    joining: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    without_joining: Proposal | None = None


def propose(leader: PartitionLeader, isr: tuple[BrokerId, ...]) -> Proposal:
    """The write that makes `isr` the committed one, with the eligible replicas that go with it."""

    def with_eligible(members: tuple[BrokerId, ...]) -> Proposal:
        elr, last_known_elr = eligible_after(leader, members)
        return Proposal(leader.broker_id, leader.leader_epoch, leader.partition_epoch, members, elr, last_known_elr)

    joining = {each: leader.followers[each].broker_epoch for each in isr if each not in leader.committed_isr}
    if not joining:
        return with_eligible(isr)
    staying = with_eligible(tuple(each for each in isr if each not in joining))
    return dataclasses.replace(with_eligible(isr), joining=joining, without_joining=staying)


def still_joining(proposal: Proposal, live_epochs: Mapping[BrokerId, BrokerEpoch]) -> Proposal:
    """What to write now. If a replica that was to join has restarted since, none joins: it may have lost what it had
    before. The others are proposed again. The smaller ISR has its own ELR: it may be below min.insync.replicas."""
    if proposal.without_joining is None:
        return proposal
    if all(live_epochs.get(member) == epoch for member, epoch in proposal.joining.items()):
        return proposal
    return proposal.without_joining


def outcome_of(proposal: Proposal, current: LeaderAndIsr | None) -> ProposalOutcome:
    """What the znode's present state (None: it is gone) says about a write that failed or was not answered (invariant F6).

    A proposal whose outcome is unknown is never dropped while the znode still has the old version: the write
    could be applied later, and the high watermark would have passed a member of the ISR. Writing the same again
    settles it: it is applied once, or the version differs.
    """
    if current is None:
        return ProposalOutcome.RESIGN
    if current.leader_epoch < proposal.leader_epoch:
        return ProposalOutcome.PUT_BACK
    if current.leader_epoch > proposal.leader_epoch or current.leader != proposal.leader:
        return ProposalOutcome.RESIGN
    if current.partition_epoch == proposal.partition_epoch:
        return ProposalOutcome.RETRY
    if current.partition_epoch < proposal.partition_epoch:
        return ProposalOutcome.PUT_BACK
    return ProposalOutcome.ADOPT
