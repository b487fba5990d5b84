"""What a consumer says in the metadata that it joins with; bytes of no meaning to the classic protocol itself."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence

from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, decoder, decoding, encode
from kafkalite.protocol.errors import WireError

CONSUMER = "consumer"
#: Names of topics that are looked through in one step.
NAMES_AT_ONCE = 1_000
#: Bytes of metadata, of before and now together, that are read to see whether a member wants the same: 80,000 names at most.
_MOST_COMPARED = 256 * 1024
_NEWEST = 3


def subscribed(lists: Iterable[Collection[str]], existing: frozenset[str]) -> Generator[None, None, set[str]]:
    """Those of the topics that exist which members subscribe to, in steps: 300 members may name three million others.

    Args:
        lists: what each member names.
    """
    found: set[str] = set()
    size = 0
    for names in lists:
        found |= existing.intersection(names)
        size += 1 + len(names)
        if size >= NAMES_AT_ONCE:
            size = 0
            yield
    return found


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    """`owned`: (topic, partition) that the member has."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, int], ...] = ()
    rack_id: str | None = None


def subscription_in(metadata: bytes) -> ConsumerSubscription | None:
    """None if it cannot be read."""
    try:
        version = min(int.from_bytes(metadata[:2]), _NEWEST)
        found = decode(wire.ConsumerProtocolSubscription, version, metadata[2:])
    except WireError:
        return None
    owned = tuple((topic.topic, number) for topic in found.owned_partitions for number in topic.partitions)
    return ConsumerSubscription(version, tuple(sorted(set(found.topics))), owned, found.rack_id)


def topics_in(metadata: bytes) -> frozenset[str] | None:
    """The topics that a consumer subscribes to; None if that cannot be read.

    Read as version 0, whatever follows: some clients name a later version without what it adds. So does Kafka.
    """
    try:
        found, _ = decoder("ConsumerProtocolSubscription", 0)(memoryview(metadata)[2:])
    except WireError:
        return None
    return frozenset(found.topics)


def reading_topics(metadata: bytes) -> Generator[None, None, Sequence[str] | None]:
    """As `topics_in`, in steps: 600 kB may name 200,000."""
    try:
        found = yield from decoding("ConsumerProtocolSubscription", 0, memoryview(metadata)[2:])
    except WireError:
        return None
    topics: Sequence[str] = found.topics
    return topics


def assignment_of(partitions: list[tuple[str, list[int]]], version: int) -> bytes:
    """What a consumer is given: (topic, its partitions), in the version of its subscription."""
    cls = wire.ConsumerProtocolAssignment
    message = cls([cls.TopicPartition(topic, numbers) for topic, numbers in partitions])
    return version.to_bytes(2) + encode(message, version)


def assigned_in(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """(topic, partition) of an assignment; nothing if it cannot be read."""
    found = _assignment_in(assignment)
    topics = () if found is None else found.assigned_partitions
    return tuple((topic.topic, number) for topic in topics for number in topic.partitions)


def has_user_data(assignment: bytes) -> bool:
    """Whether the assignor of a client has said more than which partitions."""
    found = _assignment_in(assignment)
    return found is not None and bool(found.user_data)


def _assignment_in(assignment: bytes) -> wire.ConsumerProtocolAssignment | None:
    try:
        version = min(int.from_bytes(assignment[:2]), _NEWEST)
        return decode(wire.ConsumerProtocolAssignment, version, assignment[2:])
    except WireError:
        return None


def wants_the_same(protocol_type: str | None, before: bytes | None, after: bytes | None) -> bool:
    """Whether a member that comes back asks for what it has.

    A consumer's metadata also contains the partitions that it owns, and since which generation: one that was restarted owns
    none any more, which is no reason to take anything away from the others.
    """
    if before == after:
        return True
    if before is None or after is None or protocol_type != CONSUMER or len(before) + len(after) > _MOST_COMPARED:
        return False
    topics = topics_in(before)
    return topics is not None and topics == topics_in(after)
