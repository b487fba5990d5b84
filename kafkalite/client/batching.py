"""A producer's batches: records are encoded as they come; the batch around them is made when it is sent."""

from __future__ import annotations

from typing import Any

from kafkalite.errors import RecordFate
from kafkalite.model import TopicPartition
from kafkalite.record.batch import HEADER_SIZE, MAX_SEQUENCE, parse_header
from kafkalite.record.builder import Headers, encode_batch, encode_record
from kafkalite.record.compression import Codec, compress
from kafkalite.record.reader import records_of

#: What a record costs beside key, value and headers, at most: five varints and the attributes.
RECORD_OVERHEAD_BYTES = 36


class ProducerBatch:
    """Records for one partition that are sent, and acknowledged, together.

    Attributes:
        number: rises with the order of creation within a producer; the second half of a split batch lies in between.
        tokens: one per record, opaque here: it gets the result.
        created_at: seconds on the caller's clock; linger and delivery timeout count from it.
        attempts: how often it was sent; a batch that was sent keeps its records as they are.
        node: the broker that an attempt is under way to, or None.
        fate: if it is not acknowledged: what its attempts so far say, but for one under way.
    """

    __slots__ = (
        "_encoded", "_payload", "attempts", "base_sequence", "base_timestamp", "closed", "created_at", "fate",
        "last_error", "max_timestamp", "node", "number", "producer_epoch", "producer_id", "records", "retry_at", "size_bytes",
        "timestamps", "tokens", "topic_partition",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition, number: float, created_at: float) -> None:
        self.topic_partition = topic_partition
        self.number = number
        self.created_at = created_at
        self.records: list[bytes] = []
        self.tokens: list[Any] = []
        self.timestamps: list[int] = []
        self.size_bytes = HEADER_SIZE
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.closed = False
        self.attempts = 0
        self.retry_at = 0.0
        self.node: int | None = None
        self.last_error = ""
        self.fate = RecordFate.NEVER_SENT
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self._payload: bytes | None = None
        self._encoded: bytes | None = None

    @property
    def record_count(self) -> int:
        return len(self.tokens)

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence >= 0

    def append(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int, token: Any) -> int:
        """Add a record; returns the bytes it takes."""
        count = len(self.tokens)
        if not count:
            self.base_timestamp = timestamp_ms
        record = encode_record(count, timestamp_ms - self.base_timestamp, key, value, headers)
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        self.records.append(record)
        self.tokens.append(token)
        self.timestamps.append(timestamp_ms)
        size = len(record)
        self.size_bytes += size
        return size

    def assign_sequence(self, producer_id: int, producer_epoch: int, base_sequence: int) -> int:
        """Give the batch its place in the producer's order; returns the sequence that follows it."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self._encoded = None
        return (base_sequence + len(self.tokens)) & MAX_SEQUENCE

    def encoded(self, codec: Codec) -> bytes:
        """The record batch as it goes to the broker; the same bytes each time until the sequence changes."""
        if self._encoded is None:
            if self._payload is None:
                self._payload = compress(codec, b"".join(self.records))
                self.records.clear()
            self._encoded = encode_batch(
                self._payload,
                record_count=len(self.tokens),
                last_offset_delta=len(self.tokens) - 1,
                attributes=int(codec),
                base_timestamp=self.base_timestamp,
                max_timestamp=self.max_timestamp,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
            )
        return self._encoded

    def split(self, codec: Codec, between: float) -> tuple[ProducerBatch, ProducerBatch]:
        """The same records in two batches that take over place and sequence; the second is numbered `between`."""
        data = self.encoded(codec)
        records = list(records_of(data, 0, parse_header(data)))
        half = len(records) // 2
        halves = []
        for number, first, last in ((self.number, 0, half), (between, half, len(records))):
            part = ProducerBatch(self.topic_partition, number, self.created_at)
            for record, token in zip(records[first:last], self.tokens[first:last], strict=True):
                part.append(record.key, record.value, record.headers, record.timestamp, token)
            if self.has_sequence:
                sequence = (self.base_sequence + first) & MAX_SEQUENCE
                part.assign_sequence(self.producer_id, self.producer_epoch, sequence)
            part.closed = True
            part.attempts = self.attempts
            part.fate = self.fate
            halves.append(part)
        return halves[0], halves[1]


def record_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """At least as many bytes as the record takes in a batch."""
    size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += len(name) * 4 + 10 + (len(content) if content else 0)
    return size
