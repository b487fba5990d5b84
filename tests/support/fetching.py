"""What a consumer gets, as the tests of replicas see it."""

from __future__ import annotations

from kafkalite.partition_values import FetchedPartition
from kafkalite.replica.client_fetch import FetchEntry


def fetched(entry: FetchEntry) -> tuple[FetchedPartition, bytes]:
    """What a consumer gets of one partition."""
    head = FetchedPartition(
        *entry.key,
        entry.error,
        entry.high_watermark,
        entry.last_stable_offset,
        entry.log_start_offset,
        entry.records_size,
        entry.aborted,
    )
    return head, b"".join(map(bytes, entry.records))
