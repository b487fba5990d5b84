"""Keys and values of records in `__consumer_offsets`: each has its version in front."""

from __future__ import annotations

from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.protocol.codec import encode
from kafkalite.protocol.errors import WireError


def pair(version: int, key: object, value: object | None) -> KeyValue:
    """A record of the newer group protocols: the key's version is its kind, values have version 0. No value: a tombstone."""
    data = None if value is None else bytes(2) + encode(value, 0)
    return version.to_bytes(2) + encode(key, version), data


def body_of(value: bytes | None) -> bytes | None:
    """A value of version 0 without its version. Raises WireError."""
    if value is not None and (len(value) < 2 or value[:2] != bytes(2)):
        raise WireError(f"a value of version {int.from_bytes(value[:2])} in __consumer_offsets")
    return None if value is None else value[2:]
