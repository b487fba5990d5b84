"""What a reader of committed transactions sees in a log: Kafka's consumer, in short."""

from __future__ import annotations

from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.batch import split_batches
from kafkalite.record.reader import Record, end_transaction_marker_of, records_of


def committed(log: PartitionLog, *, max_bytes: int = 1 << 30) -> list[Record]:
    """The records up to the log's end, fetch by fetch, each with the aborted transactions that come with it."""
    found: list[Record] = []
    offset: int = log.log_start_offset
    while offset < log.log_end_offset:
        info = log.read(offset, max_bytes)
        if not info.records:
            break
        # As a client: a transaction counts as aborted from its first offset to its marker.
        listed = sorted(log.aborted_transactions(offset, info.next_offset), key=lambda entry: entry.first_offset)
        aborted: set[int] = set()
        data = memoryview(b"".join(info.records))
        for position, header in split_batches(data):
            while listed and listed[0].first_offset <= header.last_offset:
                aborted.add(listed.pop(0).producer_id)
            offset = header.next_offset
            if header.is_control:
                marker = end_transaction_marker_of(data, position, header)
                if marker is not None and not marker.commit:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [one for one in records_of(data, position, header) if one.offset >= log.log_start_offset]
    return found


def committed_state(log: PartitionLog, *, max_bytes: int = 1 << 30) -> dict[bytes, bytes]:
    """The last value of each key, without those that were deleted."""
    state: dict[bytes, bytes] = {}
    for record in committed(log, max_bytes=max_bytes):
        if record.key is None:
            continue
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state
