"""What a consumer says in the metadata that it joins with; bytes of no meaning to the protocol itself."""

from __future__ import annotations

from kafkalite.protocol import wire
from kafkalite.protocol.codec import WireError, decode

CONSUMER = "consumer"
_NEWEST = 3


def topics_in(metadata: bytes) -> frozenset[str] | None:
    """The topics that a consumer subscribes to; None if that cannot be read."""
    try:
        version = min(int.from_bytes(metadata[:2]), _NEWEST)
        return frozenset(decode(wire.ConsumerProtocolSubscription, version, metadata[2:]).topics)
    except WireError:
        return None


def wants_the_same(protocol_type: str | None, before: bytes | None, after: bytes | None) -> bool:
    """Whether a member that comes back asks for what it has.

    A consumer's metadata also contains the partitions that it owns, and since which generation: one that was restarted owns
    none any more, which is no reason to take anything away from the others.
    """
    if before == after:
        return True
    if before is None or after is None or protocol_type != CONSUMER:
        return False
    topics = topics_in(before)
    return topics is not None and topics == topics_in(after)
