"""What a partition's leader knows of its followers, and how far the partition is committed.

Pure: no I/O, no clock; times are milliseconds of one monotonic clock, passed in. The state is mutable
because it is on the path of every fetch and append.
"""

from __future__ import annotations

from dataclasses import field

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    NO_BROKER_EPOCH,
    NO_OFFSET,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
)

#: "Never": smaller than any time of the clock, so that subtracting stays meaningful.
NEVER_MS = -(2**62)


@dataclass(slots=True, eq=False)
class FollowerProgress:
    """One follower as this leader sees it, in this leader epoch."""

    #: NO_OFFSET until its first fetch in this epoch.
    log_end_offset: Offset = NO_OFFSET
    #: czxid of the follower's registration when it fetched last: a new one is a new incarnation (invariant F15).
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    #: The last time at which the follower had all that the leader had.
    last_caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = NEVER_MS
    #: The leader's LEO when the follower fetched last.
    last_fetch_leader_end_offset: Offset = NO_OFFSET
    #: Its log start in its last fetch; NO_OFFSET until its first fetch in this epoch.
    log_start_offset: Offset = NO_OFFSET


@dataclass(slots=True, eq=False)
class PartitionLeader:
    """The state that a leader adds to its log.

    Invariants:
        high_watermark <= log_end_offset;
        committed_isr contains broker_id; every member is in `replicas`;
        maximal_isr = committed_isr united with the proposed one (the same set while nothing is proposed);
        followers has exactly the replicas other than the leader.
    """

    broker_id: BrokerId
    leader_epoch: LeaderEpoch
    #: Where this leader epoch begins: the LEO on becoming leader.
    epoch_start_offset: Offset
    #: The assignment in order, the preferred leader first.
    replicas: tuple[BrokerId, ...]
    #: As the state znode has it, in its order.
    committed_isr: tuple[BrokerId, ...]
    #: zkVersion of the state znode that says so.
    partition_epoch: PartitionEpoch
    min_insync_replicas: int
    log_end_offset: Offset
    high_watermark: Offset
    #: How much of the leader's own log counts: its LEO, or with log.flush.before.ack what is fsynced.
    durable_end_offset: Offset = NO_OFFSET
    followers: dict[BrokerId, FollowerProgress] = field(default_factory=dict)
    #: The ISR of the one conditional write whose outcome is not known yet.
    proposed_isr: tuple[BrokerId, ...] | None = None
    #: Derived; kept because it is read with every fetch.
    maximal_isr: tuple[BrokerId, ...] = ()
    #: Eligible leader replicas in the state znode. While there are any, nothing more may be committed.
    elr: tuple[BrokerId, ...] = ()
    #: The last known ones.
    last_known_elr: tuple[BrokerId, ...] = ()

    def __post_init__(self) -> None:
        if self.durable_end_offset == NO_OFFSET:
            self.durable_end_offset = self.log_end_offset
        for replica in self.replicas:
            if replica != self.broker_id:
                self.followers.setdefault(replica, FollowerProgress())
        update_maximal_isr(self)

    @property
    def effective_min_insync_replicas(self) -> int:
        """min.insync.replicas, but never more than there are replicas (KAFKA-15583)."""
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all must be refused."""
        size = len(self.committed_isr)
        return size < self.min_insync_replicas and size < len(self.replicas)

    @property
    def is_frozen(self) -> bool:
        """Whether the high watermark stands still: the ISR is too small, or replicas are eligible because it was, whatever
        min.insync.replicas is now (ADR 16)."""
        return bool(self.elr) or self.is_under_min_isr


def update_maximal_isr(leader: PartitionLeader) -> None:
    """Recompute `maximal_isr` after a change of the committed or the proposed ISR."""
    if leader.proposed_isr is None:
        leader.maximal_isr = leader.committed_isr
    else:
        extra = tuple(member for member in leader.proposed_isr if member not in leader.committed_isr)
        leader.maximal_isr = leader.committed_isr + extra
    assert leader.broker_id in leader.committed_isr, f"{leader.broker_id} leads outside of ISR {leader.committed_isr}"


def next_high_watermark(leader: PartitionLeader) -> Offset:
    """The high watermark this leader may expose now.

    Args:
        leader: state after the latest append, fetch or ISR change. Offsets are exclusive ends, in records.
    Returns:
        The minimum LEO over the maximal ISR (committed plus proposed members, invariant F8), never below the
        current high watermark; unchanged while |committed ISR| < effective min.insync.replicas, and
        while the state znode has eligible replicas (KIP-966).
    Raises:
        AssertionError: the state breaks an invariant of PartitionLeader.
    Source: KIP-497, KAFKA-15583; Kafka 3.7 Partition.maybeIncrementLeaderHW.
    Deviation: Kafka also waits for caught-up followers that are not yet in the ISR.
    """
    mark = leader.high_watermark
    assert mark <= leader.log_end_offset, f"HW {mark} beyond LEO {leader.log_end_offset}"
    lowest = leader.durable_end_offset
    followers = leader.followers
    for member in leader.maximal_isr:
        if member != leader.broker_id:
            end = followers[member].log_end_offset
            if end < lowest:
                lowest = end
    return mark if lowest <= mark or leader.is_frozen else lowest


def on_append(leader: PartitionLeader, log_end_offset: Offset, *, is_flush_needed: bool) -> None:
    """The leader's log has grown to `log_end_offset`. With `is_flush_needed` it counts only once `on_flushed`."""
    assert log_end_offset >= leader.log_end_offset
    leader.log_end_offset = log_end_offset
    if not is_flush_needed:
        leader.durable_end_offset = log_end_offset


def on_flushed(leader: PartitionLeader, synced_offset: Offset) -> None:
    """The leader's log is on the disk up to `synced_offset`."""
    leader.durable_end_offset = max(leader.durable_end_offset, min(synced_offset, leader.log_end_offset))


def low_watermark(leader: PartitionLeader, log_start_offset: Offset) -> Offset:
    """Records below it are gone from every replica that may lead next, also after a crash; `log_start_offset` is the leader's own."""
    candidates = {*leader.maximal_isr, *leader.elr} - {leader.broker_id}
    members = (leader.followers[member] for member in sorted(candidates) if member in leader.followers)
    return min([log_start_offset, *(follower.log_start_offset for follower in members)])


def on_follower_fetch(
    leader: PartitionLeader,
    replica_id: BrokerId,
    *,
    fetch_offset: Offset,
    broker_epoch: BrokerEpoch,
    at_ms: int,
    log_start_offset: Offset = NO_OFFSET,
) -> FollowerProgress:
    """Take note of a fetch whose log is known to agree with ours up to `fetch_offset`.

    A follower is caught up at this fetch if it asks for our LEO; it WAS caught up at its previous fetch if it
    now asks for what was our LEO then (so a fast producer does not make a fast follower look slow; KIP-16).
    """
    follower = leader.followers[replica_id]
    if follower.broker_epoch != broker_epoch:
        if follower.broker_epoch != NO_BROKER_EPOCH:  # restarted: what it had before says nothing (invariant F15)
            follower.last_caught_up_ms = NEVER_MS
        follower.last_fetch_ms = NEVER_MS
        follower.last_fetch_leader_end_offset = NO_OFFSET
        follower.broker_epoch = broker_epoch
    if fetch_offset >= leader.log_end_offset:
        follower.last_caught_up_ms = at_ms
    elif follower.last_fetch_leader_end_offset != NO_OFFSET and fetch_offset >= follower.last_fetch_leader_end_offset:
        follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
    follower.log_end_offset = fetch_offset
    follower.log_start_offset = log_start_offset
    follower.last_fetch_ms = at_ms
    follower.last_fetch_leader_end_offset = leader.log_end_offset
    return follower


def on_idle_fetch(leader: PartitionLeader, follower: FollowerProgress, at_ms: int) -> None:
    """The follower's session fetched at `at_ms` without a change here: it still has what it had.

    Called lazily (before each ISR check, before an append), so that an idle partition costs a session nothing.
    """
    if follower.log_end_offset >= leader.log_end_offset and at_ms > follower.last_caught_up_ms:
        follower.last_caught_up_ms = at_ms
        follower.last_fetch_ms = max(follower.last_fetch_ms, at_ms)


def new_leader(
    previous: PartitionLeader | None,
    *,
    broker_id: BrokerId,
    leader_epoch: LeaderEpoch,
    replicas: tuple[BrokerId, ...],
    isr: tuple[BrokerId, ...],
    partition_epoch: PartitionEpoch,
    min_insync_replicas: int,
    log_end_offset: Offset,
    durable_end_offset: Offset,
    high_watermark: Offset,
    at_ms: int,
    elr: tuple[BrokerId, ...] = (),
    last_known_elr: tuple[BrokerId, ...] = (),
) -> PartitionLeader:
    """The state on becoming leader, or leader again with a later epoch.

    Members of the ISR get a full lag period from now before they are checked. A leader that goes on (`previous`)
    keeps what it knows of their ends: they copied them from this very log. Not if there was an epoch between that
    it does not know: another replica may have led in it, and followers may have cut records that they had confirmed. Of a
    replica outside of the ISR it knows nothing any more: it may have been recreated empty with this epoch (KIP-18).
    Source: Kafka 3.7 Partition.makeLeader, Replica.resetReplicaState.
    """
    if previous is not None and leader_epoch != previous.leader_epoch + 1:
        previous = None
    leader = PartitionLeader(
        broker_id=broker_id,
        leader_epoch=leader_epoch,
        epoch_start_offset=log_end_offset,
        replicas=replicas,
        committed_isr=isr,
        partition_epoch=partition_epoch,
        min_insync_replicas=min_insync_replicas,
        log_end_offset=log_end_offset,
        durable_end_offset=durable_end_offset,
        high_watermark=min(high_watermark, log_end_offset),
        elr=elr,
        last_known_elr=last_known_elr,
    )
    for replica, follower in leader.followers.items():
        if replica not in isr:
            continue
        known = previous.followers.get(replica) if previous is not None else None
        if known is not None:
            follower.log_end_offset = known.log_end_offset
            follower.broker_epoch = known.broker_epoch
        follower.last_caught_up_ms = at_ms
    return leader
