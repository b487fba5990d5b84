"""State batches of a shared partition: how new ones replace what is known (KIP-932). Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.model import Offset

_COMPLETED = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


def combined(
    known: Sequence[StateBatch], changed: Iterable[StateBatch], start_offset: Offset
) -> tuple[StateBatch, ...]:
    """`known` (in order, without overlaps) after `changed`; of changes that overlap, the later one holds.

    Offsets before `start_offset` are left out. Batches that touch and say the same become one.
    """
    found = list(known)
    for new in changed:
        low = bisect_left(found, new.first, key=_last)
        high = bisect_right(found, new.last, key=_first)
        kept = [new]
        if low < high:
            before, after = found[low], found[high - 1]
            if before.first < new.first:
                kept.insert(0, before._replace(last=Offset(new.first - 1)))
            if after.last > new.last:
                kept.append(after._replace(first=Offset(new.last + 1)))
        found[low:high] = kept
    return _joined(found, start_offset)


def _joined(batches: Iterable[StateBatch], start_offset: Offset) -> tuple[StateBatch, ...]:
    found: list[StateBatch] = []
    for batch in batches:
        if batch.last < start_offset:
            continue
        first = max(batch.first, start_offset)
        previous = found[-1] if found else None
        if previous is not None and previous.last + 1 == first and previous[2:] == batch[2:]:
            found[-1] = previous._replace(last=batch.last)
        else:
            found.append(batch._replace(first=Offset(first)))
    return tuple(found)


def completed(batches: Iterable[StateBatch]) -> int:
    """How many offsets nobody gets any more."""
    return sum(batch.last - batch.first + 1 for batch in batches if batch.state in _COMPLETED)


def _first(batch: StateBatch) -> Offset:
    return batch.first


def _last(batch: StateBatch) -> Offset:
    return batch.last
