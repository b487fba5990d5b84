"""What the replicas of a node have done since it started."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kafkalite.replica.partition import Partition


@dataclass(slots=True)
class Counters:
    """For metrics; Kafka's names."""

    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    truncations_below_high_watermark: int = 0
    bytes_in: int = 0
    messages_in: int = 0
    bytes_out: int = 0
    messages_out: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    failed_fetch_requests: int = 0
    dropped_producers: int = 0


class Traffic(NamedTuple):
    """Bytes and records appended by producers and sent to consumers."""

    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0

    def and_of(self, partition: Partition) -> Traffic:
        """The sum with what a partition has counted."""
        return Traffic(
            self.bytes_in + partition.appended_bytes,
            self.bytes_out + partition.fetched_bytes,
            self.messages_in + partition.appended_records,
            self.messages_out + partition.fetched_records,
        )
