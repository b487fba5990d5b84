"""The kept state of one shared partition, and the transitions that its coordinator makes (KIP-932). Pure.

Two epochs fence. The state epoch is given by the group coordinator when it initializes the state: what a leader writes
under an older one concerns a state that was reset since. The leader epoch is that of the partition: a leader that is
succeeded can write no more as soon as the next one has read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from kafkalite.coordinators.shares.batches import combined
from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_OFFSET, Offset


@dataclass(frozen=True, slots=True)
class StoredState:
    """What is stored of a key. `snapshot_epoch` counts its snapshots; times are in ms of the wall clock."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: Offset
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    written_ms: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """What a record of the log says beside a snapshot: the fields of StoredState that it changes."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: Offset
    batches: tuple[StateBatch, ...]


def initialized(known: StoredState | None, state_epoch: int, start_offset: Offset, now_ms: int) -> StoredState | None:
    """The state from which the group begins; None: it is initialized already. Raises ApiError FENCED_STATE_EPOCH.

    A request that is repeated must not reset what was acknowledged since: without a start offset of its own it changes
    nothing in its epoch.
    """
    if known is None:
        return StoredState(0, state_epoch, 0, start_offset, (), now_ms, now_ms)
    if state_epoch < known.state_epoch:
        raise _fenced_state(known, state_epoch)
    if state_epoch == known.state_epoch and start_offset == NO_OFFSET:
        return None
    return StoredState(
        known.snapshot_epoch + 1, state_epoch, known.leader_epoch, start_offset, (), known.created_ms, now_ms
    )


def after_read(known: StoredState | None, leader_epoch: int) -> tuple[StoredState, Change | None]:
    """The state for a leader, and what is written so that its predecessors are fenced. Raises ApiError."""
    state = _existing(known)
    _check_leader(state, leader_epoch)
    if leader_epoch == state.leader_epoch:
        return state, None
    change = Change(state.snapshot_epoch, leader_epoch, NO_OFFSET, ())
    return applied(state, change), change


def check_write(known: StoredState | None, state_epoch: int, leader_epoch: int) -> StoredState:
    """The state that this leader may change. Raises ApiError GROUP_ID_NOT_FOUND, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH.

    Higher epochs are taken, and change nothing, as in Kafka: only `initialized` begins another state epoch, and only `after_read` another
    leader epoch. A write that a former leader made for a deleted group of this name would else fence the present leader.
    """
    state = _existing(known)
    _check_leader(state, leader_epoch)
    if state_epoch < state.state_epoch:
        raise _fenced_state(state, state_epoch)
    return state


def change_of(state: StoredState, start_offset: Offset, batches: Sequence[StateBatch]) -> Change:
    """What a leader's write says. Raises ApiError INVALID_REQUEST."""
    for batch in batches:
        if not 0 <= batch.first <= batch.last or batch.delivery_count < 0:
            raise api_error(ErrorCode.INVALID_REQUEST, f"there is no batch of offsets {batch.first} to {batch.last}")
    if start_offset < NO_OFFSET:
        raise api_error(ErrorCode.INVALID_REQUEST, f"there is no start offset {start_offset}")
    return Change(state.snapshot_epoch, state.leader_epoch, start_offset, tuple(batches))


def applied(state: StoredState, change: Change) -> StoredState:
    """`state` after a change."""
    start = state.start_offset if change.start_offset == NO_OFFSET else change.start_offset
    if start == state.start_offset and not change.batches:
        return replace(state, leader_epoch=max(state.leader_epoch, change.leader_epoch))
    return replace(
        state,
        leader_epoch=max(state.leader_epoch, change.leader_epoch),
        start_offset=start,
        batches=combined(state.batches, change.batches, start),
    )


def may_go_back(before: StoredState, after: StoredState, *, was_allowed: bool) -> bool:
    """Whether the next write may move the start offset back: a new leader has read, and nobody has written since."""
    is_read = after.leader_epoch > before.leader_epoch
    is_same = (after.start_offset, after.batches) == (before.start_offset, before.batches)
    return is_read or (was_allowed and is_same)


def unless_late(state: StoredState, change: Change) -> Change:
    """What still holds of a leader's change, since it may be older than what the same leader has stored meanwhile.

    A leader gives up on a write and sends the next one, and the network delivers the first one last: the epochs are the same.
    The start offset never goes back, what is done, or is to be a dead letter, is never available again, and no delivery is taken back.
    Kafka takes the larger start offset, too; of batches that overlap it takes what was delivered more often, then what has the higher state
    (PersisterStateBatchCombiner). Here the state comes first: batches that are done are joined whatever their counts.
    """
    start = change.start_offset if change.start_offset == NO_OFFSET else max(change.start_offset, state.start_offset)
    batches: list[StateBatch] = []
    for batch in change.batches:
        batches += _not_behind(state.batches, batch)
    return replace(change, start_offset=Offset(start), batches=tuple(batches))


def _progress(batch: StateBatch) -> tuple[int, int]:
    """It only ever grows, for each offset."""
    if batch.state is DeliveryState.AVAILABLE:
        return 0, batch.delivery_count
    return (1 if batch.state is DeliveryState.ARCHIVING else 2), 0


def _not_behind(known: Sequence[StateBatch], batch: StateBatch) -> list[StateBatch]:
    """`batch` without the offsets that have come further already."""
    found: list[StateBatch] = []
    first = batch.first
    for position in range(bisect_left(known, batch.first, key=_last_offset), len(known)):
        each = known[position]
        if each.first > batch.last:
            break
        if _progress(each) <= _progress(batch):
            continue
        if each.first > first:
            found.append(batch._replace(first=first, last=Offset(each.first - 1)))
        first = Offset(each.last + 1)
    if first <= batch.last:
        found.append(batch._replace(first=first))
    return found


def _last_offset(batch: StateBatch) -> Offset:
    return batch.last


def snapshot(state: StoredState, now_ms: int) -> StoredState:
    """The same as a new snapshot."""
    return replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)


def _existing(known: StoredState | None) -> StoredState:
    if known is None:
        raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, "the share group has no state of this partition")
    return known


def _check_leader(state: StoredState, leader_epoch: int) -> None:
    if leader_epoch < state.leader_epoch:
        text = f"leader epoch {leader_epoch} is older than {state.leader_epoch}"
        raise api_error(ErrorCode.FENCED_LEADER_EPOCH, text)


def _fenced_state(state: StoredState, state_epoch: int) -> Exception:
    return api_error(ErrorCode.FENCED_STATE_EPOCH, f"state epoch {state_epoch} is older than {state.state_epoch}")
