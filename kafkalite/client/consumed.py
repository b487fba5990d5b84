"""What a fetch brought, as records: without transactions that were aborted, control batches, and what was read before. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkalite.errors import ApiError, api_error
from kafkalite.model import TopicPartition
from kafkalite.partition_values import AbortedTransaction
from kafkalite.record.batch import BatchHeader, split_batches, verify_crc
from kafkalite.record.reader import end_transaction_marker_of, records_of


class ConsumedRecord(NamedTuple):
    """One committed record; `timestamp` ms since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


#: What the records of one fetched partition may take in memory before the rest is fetched again: some kB may stand for gigabytes.
CONTENT_BYTES = 256 * 2**20


def committed_batches(
    records: memoryview, position: int, aborted: Iterable[AbortedTransaction] = ()
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """(where it is, header, whether its records are to be read) of each fetched batch from `position` on.

    `aborted`: transactions to leave out, as a read-committed fetch lists them (KIP-98).

    Raises:
        ApiError: CORRUPT_MESSAGE.
    """
    pending = sorted(aborted, key=lambda entry: entry.first_offset)
    aborting: set[int] = set()
    for at, header in split_batches(records):
        verify_crc(records, at, header)
        while pending and pending[0].first_offset <= header.last_offset:
            aborting.add(pending.pop(0).producer_id)
        if header.next_offset <= position:
            continue
        if header.is_control:
            marker = end_transaction_marker_of(records, at, header)
            if marker is not None:
                aborting.discard(header.producer_id)
        yield at, header, not header.is_control and not (header.is_transactional and header.producer_id in aborting)


class Committed(NamedTuple):
    """`position`: after `records`. `leader_epoch`: of the last batch before it; -1: there is none."""

    records: list[ConsumedRecord]
    position: int
    leader_epoch: int


def committed_records(
    key: TopicPartition,
    records: memoryview,
    position: int,
    aborted: Iterable[AbortedTransaction] = (),
    *,
    content_bytes: int = CONTENT_BYTES,
) -> Committed:
    """The data records from `position` on in fetched batches.

    `content_bytes`: batches after that many bytes of keys and values are left out, and those from a broken one on.

    Raises:
        ApiError: CORRUPT_MESSAGE, the batch at `position` is broken.
    """
    found: list[ConsumedRecord] = []
    topic, partition = key
    start, epoch = position, -1
    try:
        for at, header, is_data in committed_batches(records, position, aborted):
            begin = len(found)
            if is_data:
                found += [
                    ConsumedRecord(topic, partition, *record)
                    for record in records_of(records, at, header)
                    if record.offset >= start
                ]
            position, epoch = max(position, header.next_offset), header.partition_leader_epoch
            if is_data and header.compression:
                content_bytes -= sum(len(each.key or b"") + len(each.value or b"") for each in found[begin:])
                if content_bytes <= 0:
                    break
    except ApiError as error:
        if position == start:
            raise api_error(error.code, f"{key} at offset {position}: {error}") from None
    return Committed(found, position, epoch)
