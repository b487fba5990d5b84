"""Kafka's consumer protocol: what members of a group say of themselves, and what their leader gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.structs import WireStruct

CONSUMER = "consumer"
_VERSION_BYTES = 2
_NEWEST = 3

S = TypeVar("S", bound=WireStruct)


def subscription(topics: Sequence[str]) -> bytes:
    """What a member says of itself when it joins."""
    return bytes(_VERSION_BYTES) + encode(wire.ConsumerProtocolSubscription(topics=list(topics)), 0)


def subscribed(data: bytes) -> tuple[str, ...]:
    """The topics in it; none if it cannot be read."""
    found = _decoded(wire.ConsumerProtocolSubscription, data)
    return () if found is None else tuple(found.topics)


def assignment(partitions: Sequence[tuple[str, int]]) -> bytes:
    """What a member is given."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    cls = wire.ConsumerProtocolAssignment
    topics = [cls.TopicPartition(topic, numbers) for topic, numbers in sorted(by_topic.items())]
    return bytes(_VERSION_BYTES) + encode(cls(assigned_partitions=topics), 0)


def assigned_partitions(data: bytes) -> tuple[tuple[str, int], ...]:
    """The partitions in it; none if it cannot be read."""
    found = _decoded(wire.ConsumerProtocolAssignment, data)
    if found is None:
        return ()
    return tuple((topic.topic, number) for topic in found.assigned_partitions for number in topic.partitions)


def _decoded(cls: type[S], data: bytes) -> S | None:
    if len(data) < _VERSION_BYTES:
        return None
    try:
        return decode(cls, min(int.from_bytes(data[:_VERSION_BYTES]), _NEWEST), data[_VERSION_BYTES:])
    except WireError:
        return None
