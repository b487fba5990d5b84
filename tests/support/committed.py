"""What a reader of committed transactions sees in a log: Kafka's consumer, in short."""

from __future__ import annotations

from kafkalite.client.consumed import committed_batches
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import Offset, ProducerId
from kafkalite.partition_values import AbortedTransaction
from kafkalite.record.reader import Record, records_of


def committed(log: PartitionLog, *, max_bytes: int = 1 << 30, limit: int | None = None) -> list[Record]:
    """The records up to `limit` or the log's end, fetch by fetch, each with the aborted transactions that come with it."""
    found: list[Record] = []
    offset: int = log.log_start_offset
    end = log.log_end_offset if limit is None else limit
    while offset < end:
        info = log.read(offset, max_bytes, max_offset=end)
        if not info.records:
            break
        data = memoryview(b"".join(info.records))
        aborted = [
            AbortedTransaction(ProducerId(each.producer_id), Offset(each.first_offset))
            for each in log.aborted_transactions(offset, info.next_offset)
        ]
        for position, header, is_data in committed_batches(data, offset, aborted):
            offset = header.next_offset
            if is_data:
                found += [one for one in records_of(data, position, header) if one.offset >= log.log_start_offset]
    return found


def committed_state(log: PartitionLog, *, max_bytes: int = 1 << 30, limit: int | None = None) -> dict[bytes, bytes]:
    """The last value of each key, without those that were deleted."""
    state: dict[bytes, bytes] = {}
    for record in committed(log, max_bytes=max_bytes, limit=limit):
        if record.key is None:
            continue
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state
