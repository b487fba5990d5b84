"""The records of `__share_group_state`, in Kafka's own formats (KIP-932): snapshots, and updates since the last one.

A snapshot without a value says that the state is deleted. Updates of a key follow each other under the same key, and each
says only what changed: the topic is not compacted, its coordinator deletes what lies before the oldest snapshot that it
needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.coordinators.shares.batches import completed
from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.coordinators.shares.state import Change, StoredState
from kafkalite.model import Offset
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.errors import WireError

_SNAPSHOT, _UPDATE = 0, 1


def encode_snapshot(key: ShareKey, state: StoredState | None) -> KeyValue:
    """None: the state is deleted."""
    name = _SNAPSHOT.to_bytes(2) + encode(wire.ShareSnapshotKey(key.group_id, key.topic_id.bytes, key.partition), 0)
    if state is None:
        return name, None
    cls = wire.ShareSnapshotValue
    value = cls(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        completed(state.batches),
        state.created_ms,
        state.written_ms,
        wire_batches(cls.StateBatch, state.batches),
    )
    return name, bytes(2) + encode(value, 0)


def encode_update(key: ShareKey, change: Change, after: StoredState) -> KeyValue:
    """`after`: the state that it leads to."""
    name = _UPDATE.to_bytes(2) + encode(wire.ShareUpdateKey(key.group_id, key.topic_id.bytes, key.partition), 1)
    cls = wire.ShareUpdateValue
    value = cls(
        change.snapshot_epoch,
        change.leader_epoch,
        change.start_offset,
        completed(after.batches),
        wire_batches(cls.StateBatch, change.batches),
    )
    return name, bytes(2) + encode(value, 0)


def parse(key: bytes | None, value: bytes | None) -> tuple[ShareKey, StoredState | Change | None]:
    """None: the state is deleted. Raises WireError."""
    if key is None or len(key) < 2:
        raise WireError("a record of __share_group_state without a key")
    version = int.from_bytes(key[:2])
    if version not in (_SNAPSHOT, _UPDATE):
        raise WireError(f"a key of version {version} in __share_group_state")
    found: Any = decode(wire.ShareSnapshotKey if version == _SNAPSHOT else wire.ShareUpdateKey, version, key[2:])
    name = ShareKey(found.group_id, UUID(bytes=bytes(found.topic_id)), found.partition)
    if value is None:
        return name, None
    if value[:2] != bytes(2):
        raise WireError(f"a value of version {int.from_bytes(value[:2])} in __share_group_state")
    if version == _UPDATE:
        update = decode(wire.ShareUpdateValue, 0, value[2:])
        start = Offset(update.start_offset)
        return name, Change(update.snapshot_epoch, update.leader_epoch, start, batches_of(update.state_batches))
    stored = decode(wire.ShareSnapshotValue, 0, value[2:])
    return name, StoredState(
        stored.snapshot_epoch,
        stored.state_epoch,
        stored.leader_epoch,
        Offset(stored.start_offset),
        batches_of(stored.state_batches),
        stored.create_timestamp,
        stored.write_timestamp,
    )


def batches_of(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    """Those of a message. Raises WireError: a state that is not known."""
    try:
        return tuple(
            StateBatch(
                Offset(batch.first_offset),
                Offset(batch.last_offset),
                DeliveryState(batch.delivery_state),
                batch.delivery_count,
            )
            for batch in batches
        )
    except ValueError as error:
        raise WireError(f"a state of records: {error}") from None


def wire_batches(cls: Any, batches: Sequence[StateBatch]) -> list[Any]:
    """`batches` as elements of a message's class `cls`."""
    return [cls(batch.first, batch.last, int(batch.state), batch.delivery_count) for batch in batches]
