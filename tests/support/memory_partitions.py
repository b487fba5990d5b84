"""Partitions in memory, led by this node: what appends, fetches and transactions do to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field

from kafkalite.config import TopicConfig
from kafkalite.coordinators.services import ActiveProducer
from kafkalite.env.fair_queue import Owner
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.record_checks import RecordRules, rules_of
from kafkalite.log.verification import Verifications
from kafkalite.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_OFFSET,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
)
from kafkalite.partition_values import (
    AbortedTransaction,
    ListedOffset,
    ProducedPartition,
)
from kafkalite.record.batch import BatchHeader, assign_in_place, split_batches, verify_crc
from kafkalite.record.reader import end_transaction_marker_of, records_of
from kafkalite.replica.client_fetch import AT_ONCE, ClientFetch, FetchDone, FetchEntry, FetchTerms, Pacing, Steps
from kafkalite.replica.purgatory import DeadlineWheel, ProduceDone, ResponseLimit
from kafkalite.replica.requests import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafkalite.replica.skipped_sequences import SkippedSequences

#: Of every leader.
EPOCH = LeaderEpoch(0)


@dataclass(slots=True)
class MemoryLog:
    """One partition: its batches, and what its transactions did."""

    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    #: (producer id, epoch) -> (first sequence, last sequence, base offset) of its last batches
    sequences: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    verifications: Verifications = field(default_factory=Verifications)
    #: Producer id -> of its last marker.
    coordinator_epochs: dict[int, int] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.log_end_offset)

    def append(self, records: Buffer, *, from_client: bool, guard: int | None = None) -> int:
        """The base offset. Raises ApiError."""
        data = bytearray(records)
        base = self.log_end_offset
        for position, header in split_batches(data):
            verify_crc(data, position, header)
            if from_client and header.is_control:
                raise api_error(ErrorCode.INVALID_RECORD)
            if from_client and header.producer_id >= 0:
                known = self.sequences.setdefault((header.producer_id, header.producer_epoch), [])
                for first, last, offset in known:
                    if (first, last) == (header.base_sequence, header.last_sequence):
                        return offset
                if known and header.base_sequence != known[-1][1] + 1:
                    raise api_error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                known.append((header.base_sequence, header.last_sequence, self.log_end_offset))
                del known[:-5]
            begins = header.is_transactional and not header.is_control and header.producer_id not in self.open
            if guard is not None and begins and not self.verifications.holds(header.producer_id, guard):
                raise api_error(ErrorCode.INVALID_TXN_STATE)
            self.verifications.end(header.producer_id)
            assign_in_place(memoryview(data), position, self.log_end_offset, EPOCH)
            self._account(data, position, header)
            piece = bytes(data[position : position + header.size])
            placed = next(iter(split_batches(piece)))[1]
            self.batches.append((placed, piece))
            self.log_end_offset = placed.next_offset
        return base

    def _account(self, data: bytearray, position: int, header: BatchHeader) -> None:
        producer_id = header.producer_id
        if header.is_control:
            marker = end_transaction_marker_of(data, position, header)
            first = self.open.pop(producer_id, None)
            if marker is not None:
                self.coordinator_epochs[producer_id] = marker.coordinator_epoch
            if first is not None and marker is not None and not marker.commit:
                self.aborted.append((producer_id, first, self.log_end_offset))
        elif header.is_transactional:
            self.open.setdefault(producer_id, self.log_end_offset)

    def read(self, offset: int, max_bytes: int, limit: int) -> list[Buffer]:
        found: list[Buffer] = []
        size = 0
        for header, piece in self.batches:
            if header.next_offset <= offset or header.base_offset >= limit:
                continue
            if found and size + len(piece) > max_bytes:
                break
            found.append(piece)
            size += len(piece)
        return found


class MemoryPartitions:
    """All partitions, led by this node. `fail_appends` makes every append fail with that error."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.fail_appends: ErrorCode | None = None
        #: High watermarks that are not the log's end.
        self.committed: dict[TopicPartition, int] = {}
        #: Configurations of topics, as far as they say what is asked of records.
        self.configs: dict[str, TopicConfig] = {}
        self.led: Callable[[TopicPartition], bool] = lambda partition: True
        self._appended = asyncio.Event()
        self.changed = asyncio.Event()
        #: Partitions that another node may lead by now.
        self.replaced: set[TopicPartition] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wheel = DeadlineWheel()
        #: Only written here: these logs have no order of batches that were refused.
        self.skipped = SkippedSequences()
        #: Fetches of share groups that wait.
        self._waiting: dict[ClientFetch, None] = {}

    def produce(
        self,
        acks: int,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
        client: Callable[[], str] | None = None,
    ) -> None:
        done(tuple(self._append(key, records, from_client=True, guards=guards) for key, records in partitions))

    def record_rules(self, partition: TopicPartition) -> RecordRules | None:
        config = self.configs.get(partition.topic, TopicConfig())
        return rules_of(config) if partition in self.logs else None

    def begin_verification(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        *,
        begins_at_zero: bool = False,
    ) -> int:
        log = self.logs.get(partition)
        if log is None or producer_id in log.open:
            return 0
        return log.verifications.begin(producer_id, producer_epoch, sequence)

    def last_coordinator_epoch(self, partition: TopicPartition, producer_id: int) -> int:
        log = self.logs.get(partition)
        return -1 if log is None else log.coordinator_epochs.get(producer_id, -1)

    def end_verification(self, partition: TopicPartition, producer_id: int, guard: int) -> None:
        if (log := self.logs.get(partition)) is not None:
            log.verifications.refuse(producer_id, guard)

    def refused(self, partition: TopicPartition, records: Buffer, error: ErrorCode) -> None:
        self.skipped.refused(partition, records, error)

    def append_internal(
        self,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
        transaction_version: int = 0,
    ) -> None:
        done(tuple(self._append(key, records, from_client=False, guards=guards) for key, records in partitions))

    def _append(
        self,
        key: TopicPartition,
        records: Buffer,
        *,
        from_client: bool,
        guards: Mapping[TopicPartition, int] | None = None,
    ) -> ProducedPartition:
        log = self.logs.get(key)
        try:
            if self.fail_appends is not None:
                raise api_error(self.fail_appends)
            if log is None:
                raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            most = self.configs.get(key.topic, TopicConfig()).max_message_bytes
            if any(header.size > most and not header.is_control for _, header in split_batches(records)):
                raise api_error(ErrorCode.MESSAGE_TOO_LARGE)
            guard = None if guards is None else guards.get(key, 0)
            base = log.append(records, from_client=from_client, guard=guard)
        except ApiError as error:
            return ProducedPartition(key.topic, key.partition, int(error.code), NO_OFFSET, message=str(error))
        self._appended.set()
        self._appended = asyncio.Event()
        for fetch in list(self._waiting):
            fetch.schedule()
        return ProducedPartition(key.topic, key.partition, 0, Offset(base), -1, Offset(log.log_start_offset))

    def fetch(
        self, fetch: ClientFetch, terms: FetchTerms, done: FetchDone, room: ResponseLimit, pacing: Pacing = AT_ONCE
    ) -> None:
        reading = fetch.begin_reading()

        def answering() -> Steps[None]:
            found = yield from done()
            if found is None:
                fetch.drop_records()
            elif fetch.is_session:
                yield from fetch.committing(reading)
            elif found.opens_session:
                yield from fetch.beginning_session(reading)
            if found is not None:
                found.send()
            if not fetch.is_session:
                fetch.end()

        def answer() -> None:
            pacing.run(answering())

        if self._read(fetch, terms, room) or terms.max_wait_ms <= 0 or not fetch.entries:
            answer()
            return
        task = asyncio.get_running_loop().create_task(self._fetch_later(fetch, terms, answer, room))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch_later(
        self, fetch: ClientFetch, terms: FetchTerms, answer: Callable[[], None], room: ResponseLimit
    ) -> None:
        try:
            async with asyncio.timeout(terms.max_wait_ms / 1000):
                while not self._read(fetch, terms, room):
                    await self._appended.wait()
        except TimeoutError:
            pass
        self._read(fetch, terms, room)
        answer()

    def _read(self, fetch: ClientFetch, terms: FetchTerms, room: ResponseLimit) -> bool:
        """Read all; whether there is enough, or an error."""
        size, left = 0, min(terms.max_bytes, room())
        is_error = False
        for entry in fetch.entries.values():
            fetch.ready[entry] = None
            self._read_one(entry, fetch.isolation, min(left - size, entry.max_bytes))
            size += entry.records_size
            is_error = is_error or bool(entry.error)
        return size >= terms.min_bytes or is_error

    def _read_one(self, entry: FetchEntry, isolation: int, max_bytes: int) -> None:
        log = self.logs.get(entry.key)
        entry.wire = b""
        if log is None or entry.refusal:
            entry.refuse(int(entry.refusal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        end, stable, start = Offset(log.log_end_offset), Offset(log.last_stable_offset), Offset(log.log_start_offset)
        entry.high_watermark, entry.last_stable_offset, entry.log_start_offset = end, stable, start
        entry.drop_records()
        if not start <= entry.fetch_offset <= end:
            entry.error = int(ErrorCode.OFFSET_OUT_OF_RANGE)
            entry.is_news = True
            return
        entry.error = 0
        entry.records = log.read(entry.fetch_offset, max_bytes, stable if isolation else end)
        entry.records_size = sum(map(len, entry.records))
        entry.aborted = tuple(
            AbortedTransaction(ProducerId(producer_id), Offset(first))
            for producer_id, first, last in log.aborted
            if last >= entry.fetch_offset
        )
        is_changed = (end, start) != (entry.sent_high_watermark, entry.sent_log_start)
        entry.is_news = entry.records_size > 0 or is_changed

    def read_entry(self, entry: FetchEntry, max_bytes: int, *, is_first: bool) -> None:
        self._read_one(entry, entry.fetch.isolation, max_bytes)

    def wait_for_entries(self, fetch: ClientFetch, wait_ms: int, reader: Owner, complete: Callable[[], None]) -> bool:
        def woken() -> None:
            del self._waiting[fetch]
            complete()

        self._waiting[fetch] = None
        fetch.wait(self._wheel, wait_ms, 1, woken)
        return True

    def entry_sent(self, entry: FetchEntry, size_bytes: int, records: int) -> None:
        return

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(tuple(self._list_one(wanted, request.isolation) for wanted in request.partitions))

    def _list_one(self, wanted: ListOffsetsPartition, isolation: int) -> ListedOffset:
        log = self.logs.get(TopicPartition(wanted.topic, wanted.partition))
        timestamp, offset, error = -1, -1, 0
        if log is None:
            error = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif wanted.timestamp == EARLIEST_TIMESTAMP:
            offset = log.log_start_offset
        elif wanted.timestamp == LATEST_TIMESTAMP:
            offset = log.last_stable_offset if isolation else log.log_end_offset
        elif wanted.timestamp < 0 and wanted.timestamp != MAX_TIMESTAMP:
            error = int(ErrorCode.UNSUPPORTED_VERSION)
        else:
            for header, piece in log.batches:
                for record in records_of(piece, 0, header):
                    if wanted.timestamp == MAX_TIMESTAMP:
                        if record.timestamp > timestamp:
                            timestamp, offset = record.timestamp, record.offset
                    elif record.timestamp >= wanted.timestamp and offset < 0:
                        timestamp, offset = record.timestamp, record.offset
        return ListedOffset(wanted.topic, wanted.partition, error, timestamp, Offset(offset), EPOCH)

    def led_partitions(self, topic: str) -> Mapping[int, LeaderEpoch]:
        return {key.partition: EPOCH for key in self.logs if key.topic == topic and self.led(key)}

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        return EPOCH if partition in self.logs and self.led(partition) else None

    def may_be_replaced(self, partition: TopicPartition) -> bool:
        return partition in self.replaced

    async def leadership_changed(self) -> None:
        await self.changed.wait()
        self.changed.clear()

    def tell_change(self) -> None:
        """`led` answers differently now."""
        self.changed.set()

    def _log(self, partition: TopicPartition) -> MemoryLog:
        log = self.logs.get(partition)
        if log is None or not self.led(partition):
            raise api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    async def load_local(self, partition: TopicPartition, offset: Offset, max_bytes: int) -> None:
        """It is in memory."""

    def read_local(self, partition: TopicPartition, offset: Offset, max_bytes: int) -> list[Buffer]:
        log = self._log(partition)
        return log.read(offset, max_bytes, log.log_end_offset)

    def local_bounds(self, partition: TopicPartition) -> tuple[Offset, Offset]:
        log = self._log(partition)
        return Offset(log.log_start_offset), Offset(log.log_end_offset)

    def local_high_watermark(self, partition: TopicPartition) -> Offset:
        return Offset(self.committed.get(partition, self._log(partition).log_end_offset))

    def end_offset_for_epoch(
        self, partition: TopicPartition, current_epoch: LeaderEpoch, epoch: LeaderEpoch
    ) -> tuple[LeaderEpoch, Offset]:
        if current_epoch > EPOCH:
            raise api_error(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return EPOCH, Offset(self._log(partition).log_end_offset)

    def delete_records(self, partition: TopicPartition, before: Offset) -> Awaitable[Offset]:
        log = self._log(partition)
        if not -1 <= before <= log.log_end_offset:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE)
        log.log_start_offset = log.log_end_offset if before == -1 else max(before, log.log_start_offset)
        done: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        done.set_result(Offset(log.log_start_offset))
        return done

    def active_producers(self, partition: TopicPartition) -> Iterator[ActiveProducer]:
        log = self._log(partition)
        return (
            ActiveProducer(
                ProducerId(producer_id), epoch, kept[-1][1], 1_000, 0, Offset(log.open.get(producer_id, NO_OFFSET))
            )
            for (producer_id, epoch), kept in sorted(log.sequences.items())
        )
