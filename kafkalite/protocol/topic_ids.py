"""Topic ids: 16 bytes on the wire, Kafka's text form everywhere else (KIP-516)."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache

from kafkalite.model import NO_TOPIC_ID, TopicId
from kafkalite.protocol.structs import ZERO_UUID

#: Every request of a producer and consumer names its topics by id: conversions that are remembered.
_MOST_KNOWN = 10_000


@lru_cache(maxsize=_MOST_KNOWN)
def to_wire(topic_id: TopicId) -> bytes:
    """16 bytes; zeros for NO_TOPIC_ID, and for a text that is not a topic id."""
    try:
        raw = urlsafe_b64decode(topic_id + "==")
    except (binascii.Error, ValueError):
        return ZERO_UUID
    return raw if len(raw) == 16 else ZERO_UUID


@lru_cache(maxsize=_MOST_KNOWN)
def from_wire(raw: bytes) -> TopicId:
    """The text form; NO_TOPIC_ID for zeros."""
    if raw == ZERO_UUID:
        return NO_TOPIC_ID
    return TopicId(urlsafe_b64encode(raw).rstrip(b"=").decode())
