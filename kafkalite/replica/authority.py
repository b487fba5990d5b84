"""What a leader may do while ZooKeeper may have given its session away: when somebody else may lead. Pure (ADR 15).

With a lease, everything. Without one, other members of the ISR stand in for ZooKeeper: whoever is elected is one of them,
and who has heard of the election does not fetch from the old leader any more.
"""

from __future__ import annotations

from kafkalite.replica.leader import PartitionLeader
from kafkalite.replica.partition import Partition


def may_commit(leader: PartitionLeader) -> bool:
    """Whether the high watermark may move without a lease.

    It moves only over what every member of the maximal ISR has confirmed in this leader epoch, so a clean election
    anywhere keeps it: whoever was elected was in that ISR, and had the records before it left this epoch. A leader that
    is alone in the ISR asks nobody: an unclean election would pass it by, and it would go on committing. Not so if the
    partition has no other replica.
    """
    return len(leader.committed_isr) > 1 or len(leader.replicas) == 1


def is_followed(partition: Partition, *, at_ms: int, within_ms: int) -> bool:
    """Whether a replica has fetched in this leader epoch of late: it has not heard of a later one.

    This loses nothing and proves nothing. It bounds how long a leader that has been replaced takes records that will
    never be committed, and sends its clients away.
    """
    return any(at_ms - entry.session.last_fetch_ms <= within_ms for entry in partition.entries.values())


def refusal(partition: Partition, *, acks: int, at_ms: int, within_ms: int) -> str:
    """Why records are not taken without a lease; empty if they are."""
    leader = partition.leader
    assert leader is not None
    if len(leader.replicas) == 1:
        return ""
    if acks == -1 and not may_commit(leader):
        return "this node is alone in sync"
    if not is_followed(partition, at_ms=at_ms, within_ms=within_ms):
        return f"no other replica has fetched from this node for {within_ms} ms"
    return ""
