"""Keys and values of records in `__consumer_offsets`: each has its version in front."""

from __future__ import annotations

from typing import Any

from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.errors import WireError


def pair(version: int, key: object, value: object | None) -> KeyValue:
    """A record of the newer group protocols: the key's version is its kind, values have version 0. No value: a tombstone."""
    data = None if value is None else bytes(2) + encode(value, 0)
    return version.to_bytes(2) + encode(key, version), data


def parsed(kind: str, version: int, key: bytes, value: bytes | None) -> tuple[Any, Any]:
    """Key and value of a record whose wire classes are `kind` with Key and Value behind; no value: a tombstone. Raises WireError."""
    if value is not None and (len(value) < 2 or value[:2] != bytes(2)):
        raise WireError(f"a value of version {int.from_bytes(value[:2])} in __consumer_offsets")
    found = decode(getattr(wire, f"{kind}Key"), version, key)
    return found, decode(getattr(wire, f"{kind}Value"), 0, value[2:]) if value and len(value) > 2 else None
