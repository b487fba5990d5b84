"""For how long transactions have been open on the partitions of this node."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable

from kafkalite.env.seams import Clock
from kafkalite.env.turns import result_of
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.producer_state import ProducerEntry
from kafkalite.model import Offset, ProducerId
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.partition import Partition

_CHECK_S = 10.0
#: Partitions looked at between two yields: well below a millisecond.
_STEP = 500
#: A coordinator aborts a transaction after its timeout; the marker has this long to arrive (Kafka's
#: LATE_TRANSACTION_BUFFER_MS).
LATE_AFTER_MS = 5 * 60_000

_Key = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """`open_ms`: since this node first saw it open, by its own clock."""

    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    start_offset: Offset
    last_timestamp_ms: int
    open_ms: int

    def text(self) -> str:
        """For people: a late transaction."""
        return (
            f"producer {self.producer_id} (epoch {self.producer_epoch}) has had a transaction open from offset {self.start_offset} on"
            f" for at least {self.open_ms // 60_000} min, longer than any timeout (transaction.max.timeout.ms);"
            " readers of committed records wait there"
        )


class OpenTransactions:
    """Remembers when each open transaction was first seen. Timestamps of records do not show it: producers set them.

    Followers see transactions, too, so that a new leader knows their age.

    Args:
        max_timeout_ms: the longest timeout that a producer may ask for.
    """

    def __init__(self, hosted: HostedPartitions, clock: Clock, max_timeout_ms: int) -> None:
        self._hosted = hosted
        self._clock = clock
        self._max_timeout_ms = max_timeout_ms
        self._since: dict[_Key, float] = {}

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_S)
            await result_of(self.check())

    def check(self) -> Generator[None, None, None]:
        """Record the transactions that are open now, and forget the others. In steps."""
        concerned: list[Partition] = []
        for number, partition in enumerate(self._hosted.all(), 1):
            if partition.log.has_open_transaction:
                concerned.append(partition)
            if not number % _STEP:
                yield
        now, before = self._clock.monotonic(), self._since
        self._since = {
            key: before.get(key, now)
            for partition in concerned
            for key in (_key(partition, producer_id, entry) for producer_id, entry in _open(partition))
        }

    def of(self, partition: Partition) -> list[OpenTransaction]:
        """Those that are open on a partition, by first offset."""
        now = self._clock.monotonic()
        found = [
            OpenTransaction(
                ProducerId(producer_id),
                entry.producer_epoch,
                entry.coordinator_epoch,
                Offset(entry.transaction_first_offset),
                entry.timestamp,
                int((now - self._since.setdefault(_key(partition, producer_id, entry), now)) * 1000),
            )
            for producer_id, entry in _open(partition)
        ]
        return sorted(found, key=lambda each: each.start_offset)

    def late(self, partition: Partition) -> OpenTransaction | None:
        """A partition's earliest transaction if it is open for longer than any coordinator allows, so that readers wait."""
        if not partition.log.has_open_transaction:  # nearly all partitions, at each look
            return None
        earliest = next(iter(self.of(partition)), None)
        if earliest is not None and earliest.open_ms > self._max_timeout_ms + LATE_AFTER_MS:
            return earliest
        return None


def _open(partition: Partition) -> Iterable[tuple[int, ProducerEntry]]:
    return () if partition.storage_error is not None else partition.log.producers_in_transaction()


def _key(partition: Partition, producer_id: int, entry: ProducerEntry) -> _Key:
    return (*partition.topic_partition, producer_id, entry.transaction_first_offset)
