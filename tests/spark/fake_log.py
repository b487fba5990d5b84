"""An in-memory log behind the interface of kafkalite.client.blocking.BlockingClient: whole batches, offsets, faults."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafkalite.client.results import Metadata
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_OFFSET,
    NO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from kafkalite.partition_values import (
    AbortedTransaction,
    ListedOffset,
    PartitionMetadata,
    ProducedPartition,
    TopicMetadata,
)
from kafkalite.protocol.topic_ids import from_wire
from kafkalite.record.batch import parse_header, verify_crc
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.compression import Codec
from kafkalite.record.reader import Record, read_records


def topic_id(topic: str) -> TopicId:
    """The id of the topic of this name."""
    return from_wire(uuid.uuid5(uuid.NAMESPACE_DNS, topic).bytes)


@dataclass
class FakeFetched:
    records: memoryview
    high_watermark: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction] = ()


@dataclass
class FakePartition:
    batches: list[bytes] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    #: Where the first open transaction begins; None: there is none.
    undecided: int | None = None
    aborted: list[AbortedTransaction] = field(default_factory=list)
    sequences: dict[int, tuple[int, int, int]] = field(default_factory=dict)


@dataclass(eq=False)
class FakeLog:
    """Topics with partitions. `before` is called ahead of every request with its name, to plant faults."""

    partitions: dict[TopicPartition, FakePartition] = field(default_factory=dict)
    topic_ids: dict[str, TopicId] = field(default_factory=dict)
    before: Callable[[str], None] = lambda name: None
    calls: list[str] = field(default_factory=list)
    #: Applies the next produce, then loses its answer and sends the same bytes again, as the real client does.
    resend: bool = False
    #: Partitions of topics that are made when somebody first writes to them; 0: none is.
    auto_create: int = 0
    #: Group -> offsets.
    committed: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    _producer_ids: int = 1000

    def add_topic(self, topic: str, partitions: int) -> None:
        self.topic_ids[topic] = topic_id(topic)
        for partition in range(partitions):
            self.partitions[TopicPartition(topic, partition)] = FakePartition()

    def append(self, tp: TopicPartition, batch: bytes) -> ProducedPartition:
        """One batch, checked as a broker checks it; duplicates of idempotent producers are dropped."""
        log = self.partitions[tp]
        header = parse_header(batch)
        verify_crc(batch, 0, header)
        assert header.size == len(batch) and header.record_count == header.last_offset_delta + 1
        if header.producer_id >= 0:
            last = log.sequences.get(header.producer_id)
            if last is not None and last[0] == header.base_sequence:
                return ProducedPartition(*tp, error=0, base_offset=Offset(last[2]))
            expected = 0 if last is None else last[1] + 1
            if header.base_sequence != expected:
                return ProducedPartition(*tp, error=int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), base_offset=NO_OFFSET)
            log.sequences[header.producer_id] = (header.base_sequence, header.last_sequence, log.log_end_offset)
        base = log.log_end_offset
        log.batches.append(base.to_bytes(8, "big") + batch[8:])
        log.log_end_offset = base + header.record_count
        return ProducedPartition(*tp, error=0, base_offset=Offset(base))

    def put(
        self, topic: str, partition: int, *rows: tuple[bytes | None, bytes | None], ts: int = 0, codec: int = 0
    ) -> None:
        """One batch with these rows."""
        builder = RecordBatchBuilder(compression=Codec(codec))
        for key, value in rows:
            builder.append(key, value, (), ts)
        self.append(TopicPartition(topic, partition), builder.build())

    # --- the client's interface

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.before(name)

    def metadata(self, topics: Iterable[str] | None = None, *, allow_auto_create: bool = False) -> Metadata:
        self._called("metadata")
        if allow_auto_create and self.auto_create:
            for topic in sorted(set(topics or ()) - self.topic_ids.keys()):
                self.add_topic(topic, self.auto_create)
        known = sorted(self.topic_ids) if topics is None else sorted(topics)
        listed, node = [], BrokerId(1)
        for topic in known:
            if topic not in self.topic_ids:
                listed.append(TopicMetadata(topic, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), NO_TOPIC_ID, ()))
                continue
            numbers = sorted(tp.partition for tp in self.partitions if tp.topic == topic)
            partitions = tuple(PartitionMetadata(p, 0, node, LeaderEpoch(0), (node,), (node,)) for p in numbers)
            listed.append(TopicMetadata(topic, 0, self.topic_ids[topic], partitions))
        return Metadata("cluster", node, (), tuple(listed))

    def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, ListedOffset]:
        self._called("list_offsets")
        found = {}
        for tp, timestamp in partitions.items():
            log = self.partitions[tp]
            offset, at = -1, -1
            if timestamp == EARLIEST_TIMESTAMP:
                offset = log.log_start_offset
            elif timestamp == LATEST_TIMESTAMP:
                offset = log.log_end_offset
                if isolation and log.undecided is not None:
                    offset = log.undecided
            else:
                for record in self.records(*tp):
                    if record.timestamp >= timestamp:
                        offset, at = record.offset, record.timestamp
                        break
            found[tp] = ListedOffset(*tp, error=0, timestamp=at, offset=Offset(offset))
        return found

    def fetch_raw(
        self, tp: TopicPartition, offset: int, max_bytes: int, max_wait_ms: int, *, isolation: int = 0
    ) -> FakeFetched:
        self._called("fetch_raw")
        log = self.partitions[tp]
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE)
        taken = b""
        for batch in log.batches:
            if parse_header(batch).last_offset < offset:
                continue
            if taken and len(taken) + len(batch) > max_bytes:
                break
            taken += batch
        return FakeFetched(memoryview(taken), log.log_end_offset, log.log_start_offset, log.aborted)

    def init_producer_id(self) -> tuple[int, int]:
        self._called("init_producer_id")
        self._producer_ids += 1
        return self._producer_ids, 0

    def produce_many(
        self,
        batches: Mapping[TopicPartition, bytes | memoryview],
        *,
        acks: int = -1,
        timeout_ms: int | None = 30_000,
        transactional_id: str | None = None,
    ) -> dict[TopicPartition, ProducedPartition]:
        self._called("produce_many")
        assert acks == -1
        answers = {tp: self.append(tp, bytes(batch)) for tp, batch in batches.items()}
        if self.resend:
            answers = {tp: self.append(tp, bytes(batch)) for tp, batch in batches.items()}
        for tp, answer in answers.items():
            if answer.error:
                raise api_error(ErrorCode(answer.error), f"{tp}: {answer.message}")
        return answers

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None:
        self._called("commit_offsets")
        self.committed.setdefault(group_id, {}).update(offsets)

    def committed_offsets(self, group_id: str, *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        self._called("committed_offsets")
        return dict(self.committed.get(group_id, {}))

    def close(self) -> None:
        self._called("close")

    # --- what the tests look at

    def records(self, topic: str, partition: int) -> list[Record]:
        log = self.partitions[TopicPartition(topic, partition)]
        data = b"".join(log.batches)
        return [r for r in read_records(data) if r.offset >= log.log_start_offset]
