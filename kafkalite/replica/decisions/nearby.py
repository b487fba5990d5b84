"""Which replica a consumer should read from: one in its own rack (KIP-392). Pure."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.model import BrokerId, Offset
from kafkalite.replica.decisions.leader import PartitionLeader

#: A value of replica.selector.class, as in Kafka; any other: the leader serves.
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def preferred_replica(
    leader: PartitionLeader, offset: Offset, client_rack: str, rack_of: Callable[[BrokerId], str | None]
) -> BrokerId | None:
    """The follower in the consumer's rack that has the most; None: the leader is there too, or no such follower.

    It must be in sync and hold `offset`; otherwise the consumer would lag with it, or be sent back at once.

    Source: KIP-392 (RackAwareReplicaSelector), KAFKA-14372 (members of the ISR only).
    """
    if not client_rack or rack_of(leader.broker_id) == client_rack:
        return None
    best: tuple[Offset, int, BrokerId] | None = None
    for broker_id in leader.committed_isr:
        follower = leader.followers.get(broker_id)
        if follower is None or rack_of(broker_id) != client_rack:
            continue
        if follower.log_start_offset <= offset <= follower.log_end_offset:
            candidate = (follower.log_end_offset, follower.last_caught_up_ms, broker_id)
            if best is None or candidate > best:
                best = candidate
    return best[2] if best is not None else None
