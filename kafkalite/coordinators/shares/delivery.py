"""Batches of the log as a share group sees them, and those of them that hold what a member has acquired. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkalite.coordinators.shares.decisions.deliveries import Acquired, LogBatch
from kafkalite.model import Buffer
from kafkalite.partition_values import AbortedTransaction
from kafkalite.record.batch import split_batches
from kafkalite.record.reader import end_transaction_marker_of


class Placed(NamedTuple):
    """A batch, and where it lies: in which buffer, from which byte to which."""

    batch: LogBatch
    buffer: int
    start: int
    end: int


def placed_batches(
    records: Sequence[Buffer], aborted: Iterable[AbortedTransaction] = (), *, is_committed: bool = False
) -> list[Placed]:
    """Control batches hold nothing to deliver, nor do those of aborted transactions if the group reads committed ones.

    Args:
        aborted: those that overlap what was read.

    Raises:
        ApiError: CORRUPT_MESSAGE.
    """
    found: list[Placed] = []
    pending = sorted(aborted, key=lambda each: each.first_offset, reverse=True) if is_committed else []
    rolled_back: set[int] = set()
    for number, buffer in enumerate(records):
        for position, header in split_batches(buffer):
            while pending and pending[-1].first_offset <= header.last_offset:
                rolled_back.add(pending.pop().producer_id)
            is_delivered = not header.is_control
            if header.is_control and header.producer_id in rolled_back:
                marker = end_transaction_marker_of(buffer, position, header)
                if marker is not None and not marker.commit:
                    rolled_back.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in rolled_back:
                is_delivered = False
            batch = LogBatch(header.base_offset, header.last_offset, is_delivered)
            found.append(Placed(batch, number, position, position + header.size))
    return found


def holding(records: Sequence[Buffer], placed: Sequence[Placed], acquired: Sequence[Acquired]) -> list[Buffer]:
    """The batches that hold an acquired offset, neighbours in one piece. `acquired` is in the order of the offsets."""
    pieces: list[tuple[int, int, int]] = []
    number = 0
    for batch, buffer, start, end in placed:
        while number < len(acquired) and acquired[number].last < batch.first:
            number += 1
        if number == len(acquired):
            break
        if acquired[number].first > batch.last:
            continue
        if pieces and pieces[-1][0] == buffer and pieces[-1][2] == start:
            pieces[-1] = (buffer, pieces[-1][1], end)
        else:
            pieces.append((buffer, start, end))
    return [memoryview(records[buffer])[start:end] for buffer, start, end in pieces]
