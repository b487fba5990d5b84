"""What a leader may do while its ZooKeeper session may be over, so that another one may lead. Pure (ADR 15).

With a lease, everything. Without one, other members of the ISR stand in for ZooKeeper: a new leader is one of them, and
a replica that has learned of the election no longer fetches from the old leader.
"""

from __future__ import annotations

from kafkalite.replica.decisions.leader import NEVER_MS, PartitionLeader
from kafkalite.replica.partition import Partition


def may_commit(leader: PartitionLeader) -> bool:
    """Whether the high watermark may move without a lease.

    It moves only over records that every member of the maximal ISR has confirmed in this leader epoch. A clean election
    keeps them: the new leader was in that ISR, and had the records before it left this epoch. A leader that is alone in
    the ISR needs no confirmation, so after an unclean election elsewhere it would go on committing. This cannot happen if
    the partition has no other replica.
    """
    return len(leader.committed_isr) > 1 or len(leader.replicas) == 1


def is_followed(partition: Partition, *, at_ms: int, within_ms: int) -> bool:
    """Whether a replica has fetched in this leader epoch recently: it does not know of a later one.

    This loses nothing and proves nothing. It limits the time in which a leader that has been replaced accepts records
    that will never be committed; then it sends its clients away.
    """
    return any(at_ms - entry.session.last_fetch_ms <= within_ms for entry in partition.entries.values())


def refusal(partition: Partition, *, acks: int, at_ms: int, within_ms: int) -> str:
    """Why records are not taken without a lease; empty if they are."""
    leader = partition.leader
    assert leader is not None
    if len(leader.replicas) == 1:
        return ""
    if acks == -1 and not may_commit(leader):
        return "this node is the only in-sync replica"
    if not is_followed(partition, at_ms=at_ms, within_ms=within_ms):
        return f"no other replica has fetched from this node for {within_ms} ms"
    return ""


def is_alone(partition: Partition, *, at_ms: int, within_ms: int) -> bool:
    """Whether no other member of the ISR has fetched for this time: the leader may be cut off, and one of them lead.

    With a lease, too: the controller replaces the leaders of a broker that does not answer its heartbeats before the broker's session
    ends. A leader that has just begun, or is the whole ISR, is not alone.
    """
    leader = partition.leader
    assert leader is not None
    is_whole_isr = True
    for member, follower in leader.followers.items():
        if member in leader.maximal_isr:
            is_whole_isr = False
            entry = partition.entries.get(member)
            fetched_ms = NEVER_MS if entry is None else entry.session.last_fetch_ms
            if at_ms - max(fetched_ms, follower.last_fetch_ms, follower.last_caught_up_ms) <= within_ms:
                return False
    return not is_whole_isr
