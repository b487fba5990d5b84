"""Batches of an idempotent producer that come directly behind one that was refused. Pure.

A producer has up to five requests in flight. If the first one is refused for a passing reason (the leader has moved, the ISR is too small,
the coordinator of its transaction does not answer) and that has passed before the next one arrives, the next one's sequence is ahead of the log's: OUT_OF_ORDER_SEQUENCE_NUMBER. Java's
producer only sends it again. librdkafka takes a new producer epoch for all of its partitions, and repeats in it what was written but
not acknowledged: such records are in the log twice (confluentinc/librdkafka#4953). franz-go gives the transaction up. So the batches that were on their way get the error
of the first one, which every client repeats in order.

A producer that the log does not know may begin at any sequence. There the next one would even be appended, before the first.
"""

from __future__ import annotations

import struct
from collections.abc import Container

from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer, TopicId, TopicPartition
from kafkalite.record.batch import is_behind

#: Errors after which a producer sends the same batch again, and nothing of it was appended.
PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
#: Requests that may be on their way behind the refused one: a producer may have five in flight.
BEHIND = 4
#: Producers and partitions that are remembered; then the one that was refused longest ago goes.
MAX_REMEMBERED = 10_000
#: Producer id, epoch, base sequence of a batch (format version 2).
_PRODUCER = struct.Struct(">43xqhi").unpack_from
_HEAD_BYTES = 57


@dataclass(slots=True)
class _RefusedBatch:
    """The first one of a producer in a partition that was refused: it comes again before anything else is in order."""

    epoch: int
    sequence: int
    error: ErrorCode
    behind: int


class SkippedSequences:
    """What was refused lately, per partition and producer."""

    def __init__(self) -> None:
        #: Mostly empty: each append looks.
        self.remembered: dict[tuple[TopicPartition, int], _RefusedBatch] = {}

    def __len__(self) -> int:
        return len(self.remembered)

    def refused(self, partition: TopicPartition, records: Buffer, error: ErrorCode) -> None:
        """Nothing of this batch was appended."""
        if error not in PASSING or len(records) < _HEAD_BYTES:
            return
        producer_id, epoch, sequence = _PRODUCER(records)
        if producer_id < 0:
            return
        key = (partition, producer_id)
        known = self.remembered.pop(key, None)
        if known is not None and known.epoch == epoch and is_behind(sequence, known.sequence):
            # It is one of those behind, refused for the same reason: the first one still has to come again.
            known.behind -= 1
            if known.behind > 0:
                self.remembered[key] = known
            return
        if len(self.remembered) >= MAX_REMEMBERED:
            del self.remembered[next(iter(self.remembered))]
        self.remembered[key] = _RefusedBatch(epoch, sequence, error, BEHIND)

    def begins_ahead(
        self, partition: TopicPartition, topic_id: TopicId, records: Buffer, known_producers: Container[int]
    ) -> bool:
        """Whether the log would take this batch, since it does not know the producer, before one that was refused.

        Batches that were refused because the topic was not known by its id yet have the id for the topic's name here.
        """
        if len(records) < _HEAD_BYTES:
            return False
        producer_id, _, _ = _PRODUCER(records)
        by_id = self.remembered.pop((TopicPartition(topic_id, partition.partition), producer_id), None)
        if by_id is not None:
            self.remembered[partition, producer_id] = by_id
        return producer_id not in known_producers and self._ahead_of(partition, records) is not None

    def appended(self, partition: TopicPartition, records: Buffer) -> None:
        """If it is the one that was refused, or a later one, the producer's sequences are in order again."""
        if len(records) < _HEAD_BYTES:
            return
        producer_id, epoch, sequence = _PRODUCER(records)
        known = self.remembered.get((partition, producer_id))
        if known is not None and (known.epoch != epoch or not is_behind(known.sequence, sequence)):
            del self.remembered[partition, producer_id]

    def error_ahead(self, partition: TopicPartition, records: Buffer) -> ErrorCode | None:
        """The error of the batch before this one, whose sequence is out of order; None: it is no consequence of such an error."""
        known = self._ahead_of(partition, records)
        if known is None:
            return None
        known.behind -= 1
        if known.behind <= 0:
            producer_id, _, _ = _PRODUCER(records)
            del self.remembered[partition, producer_id]
        return known.error

    def _ahead_of(self, partition: TopicPartition, records: Buffer) -> _RefusedBatch | None:
        """The batch that was refused, and has to come again before this one."""
        producer_id, epoch, sequence = _PRODUCER(records)
        known = self.remembered.get((partition, producer_id))
        return known if known is not None and known.epoch == epoch and is_behind(sequence, known.sequence) else None
