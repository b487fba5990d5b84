"""Looking through fetched batches for the records that a page shows: in a thread, within bounds. No I/O.

A batch of some kB may stand for hundreds of MB or millions of records, and a page reads many batches. One answer has one
budget; what does not fit into it is left for the next page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkalite.client.consumed import ConsumedRecord, committed_batches
from kafkalite.errors import ApiError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite.partition_values import AbortedTransaction
from kafkalite.record.reader import records_of

#: What one batch may decompress to. A larger one is passed over, and the page says so.
BATCH_BYTES = 16 * 2**20


@dataclass(slots=True)
class ScanBudget:
    """Of one answer: keys, values and headers in bytes, and records."""

    content_bytes: int = 64 * 2**20
    records: int = 100_000

    @property
    def is_spent(self) -> bool:
        return self.content_bytes < BATCH_BYTES or self.records <= 0


class Scanned(NamedTuple):
    """`position`: the first offset that was not looked at. `error`: of a batch that was passed over."""

    records: list[ConsumedRecord]
    position: int
    scanned: int
    error: str


def scan_batches(
    key: TopicPartition,
    data: memoryview,
    start: int,
    end: int,
    aborted: Iterable[AbortedTransaction],
    *,
    fits: Callable[[ConsumedRecord], bool],
    most: int,
    budget: ScanBudget,
) -> Scanned:
    """Committed records with offsets from `start` to before `end` that fit, `most` of them at most.

    Raises:
        ApiError: CORRUPT_MESSAGE of a batch's head or CRC.
    """
    found: list[ConsumedRecord] = []
    position, scanned, error = start, 0, ""
    for at, header, is_data in committed_batches(data, start, aborted):
        if position >= end or len(found) >= most or budget.is_spent:
            break
        try:
            for record in records_of(data, at, header, limit_bytes=BATCH_BYTES) if is_data else ():
                if record.offset < start:
                    continue
                if record.offset >= end or len(found) >= most or budget.records <= 0:
                    return Scanned(found, record.offset, scanned, error)
                scanned += 1
                budget.records -= 1
                budget.content_bytes -= _size(record.key, record.value, *(value for _, value in record.headers))
                consumed = ConsumedRecord(key.topic, key.partition, *record)
                if fits(consumed):
                    found.append(consumed)
        except ApiError as problem:
            error = f"the batch at offset {header.base_offset} is not shown: {problem}"
        position = max(position, header.next_offset)
    return Scanned(found, position, scanned, error)


def _size(*values: bytes | None) -> int:
    return sum(len(value) for value in values if value is not None)
