"""What a share group asks of one of its partitions, and what it gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from kafkalite.coordinators.shares.delivery_states import StateBatch
from kafkalite.model import Offset


class AcknowledgeType(IntEnum):
    """What a member says of a record. GAP: there is none at this offset. RENEW: its lock begins again (KIP-1222)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


#: By their numbers: a call of the class takes longer than all the rest of a record.
_KINDS = {int(kind): kind for kind in AcknowledgeType}
#: What is said of offsets: (first, last, type).
Part = tuple[int, int, AcknowledgeType]


class DeliveryLimits(NamedTuple):
    """Settings of the group. `record_locks`: how many records may be open before new ones are acquired."""

    lock_ms: int = 30_000
    delivery_count: int = 5
    record_locks: int = 2_000


def most_together(delivery_count: int, limit: int, batch_size: int) -> int | None:
    """How many records with this number of deliveries come together at most; None: as many as are wanted.

    Args:
        limit: of deliveries.
        batch_size: in records, of the batch that they belong to.

    Source: Kafka 4.3, SharePartition: half of a batch after half of the deliveries (two at least), half of that after
    the next. Deviation: the batch is that of the log, or neighbours that were delivered equally often, as nothing here
    remembers what was acquired together.
    """
    begin = max(2, (limit + 1) // 2)
    if delivery_count < begin:
        return None
    return 1 if delivery_count + 1 >= limit else max(1, batch_size >> (delivery_count - begin + 1))


class LogBatch(NamedTuple):
    """A batch of the log. `is_delivered`: not a control batch, nor of an aborted transaction that the group may not see."""

    first: int
    last: int
    is_delivered: bool = True


class WantedRecords(NamedTuple):
    """How many records a fetch may acquire; `is_exact`: no more than that, even if a batch is cut (KIP-1206)."""

    records: int
    batch_size: int = 500
    is_exact: bool = False


class Acquired(NamedTuple):
    """Offsets that a member got, both included; each of them is delivered for the `delivery_count`th time."""

    first: int
    last: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """One type for all offsets from `first` to `last`, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def parts(self) -> Iterator[Part]:
        """Neighbours of one type together."""
        types = self.types
        if not types:
            return
        if len(types) == 1 or types.count(types[0]) == len(types):
            yield self.first, self.last, _KINDS[types[0]]
            return
        first, offset, kind = self.first, self.first, types[0]
        for each in types:
            if each != kind:
                yield first, offset - 1, _KINDS[kind]
                first, kind = offset, each
            offset += 1
        yield first, offset - 1, _KINDS[kind]


def add_parts(parts: list[Part], more: Acknowledgement) -> None:
    """What is said of which offsets, neighbours of one type together also if each was acknowledged for itself. `more` comes behind `parts`."""
    for part in more.parts():
        first, last, kind = part
        before = parts[-1] if parts else None
        if before is not None and before[1] + 1 == first and before[2] is kind:
            parts[-1] = (before[0], last, kind)
        else:
            parts.append(part)


class StateWrite(NamedTuple):
    """What has to be stored."""

    start_offset: Offset
    batches: tuple[StateBatch, ...]
