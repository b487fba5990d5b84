"""The producer's decisions, without I/O: what to send when, what a response means, which callers get a result.

Per partition the batches are kept in order. A new batch gets its sequence when it is first sent; up to
`max_in_flight` batches of a partition are under way. A batch that failed retriably goes back to the front and is
sent again alone, when it is the oldest unfinished one: so order holds, and the broker recognises what it has
already (producer id, epoch, sequence). When the broker misses something before the OLDEST batch, that batch's
predecessor is lost for good (it timed out here, or the broker lost its state): the partition's producer epoch is
raised and the unfinished batches are renumbered from 0. Until then a gap only means that an older batch has
still to be sent again.

Source: Kafka 3.7 Sender, RecordAccumulator, TransactionManager (KIP-98, KIP-360). Deviation: the producer epoch is
raised for the one partition, not for all; brokers keep producer states per partition.
Times are seconds on one monotonic clock that the caller passes in.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from kafkalite.client.batching import ProducerBatch, record_bound
from kafkalite.client.producer_settings import ProducerSettings
from kafkalite.client.retry import Backoff, ProduceOutcome, fate_after, produce_outcome
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, RecordFate, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, ProducerId, TopicPartition
from kafkalite.record.batch import HEADER_SIZE
from kafkalite.record.builder import Headers

MAX_PRODUCER_EPOCH = 32_767
#: A broker appends a request's batches in one go: thousands would keep it from its heartbeats, and its followers from
#: fetching the first of them.
MAX_BATCHES_PER_REQUEST = 1_000


@dataclass(slots=True)
class Completion:
    """A batch is finished: with `error` None it is delivered. `base_offset` -1: delivered, offset not known."""

    batch: ProducerBatch
    error: KafkaliteError | None
    base_offset: int = -1
    log_append_time_ms: int = -1


@dataclass(slots=True)
class Dispatch:
    """One produce request: these batches to this broker. `attempts` say which attempt of each batch this is."""

    node: BrokerId
    batches: list[ProducerBatch] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    size_bytes: int = 0

    def is_full_for(self, batch: ProducerBatch, max_bytes: int) -> bool:
        """Whether this batch has to go into another request."""
        is_large = self.size_bytes + batch.size_bytes > max_bytes or len(self.batches) >= MAX_BATCHES_PER_REQUEST
        return is_large and bool(self.batches)

    def take(self, batch: ProducerBatch) -> ProducerBatch:
        """Add a batch, whose next attempt this is; returns it."""
        batch.closed = True
        batch.node = self.node
        batch.attempts += 1
        self.batches.append(batch)
        self.attempts.append(batch.attempts)
        self.size_bytes += batch.size_bytes
        return batch


class _Partition:
    """One partition's batches: `queue` waits (oldest first; the last one may be open), `in_flight` is under way."""

    __slots__ = (
        "in_flight", "key", "needs_new_epoch", "next_sequence", "producer_epoch", "producer_id", "queue"
    )  # fmt: skip

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.queue: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.producer_id = ProducerId(-1)
        self.producer_epoch = -1
        self.next_sequence = 0
        self.needs_new_epoch = False


def _dispatch_to(
    node: BrokerId,
    partition: _Partition,
    dispatches: dict[BrokerId, Dispatch | None],
    has_room: Callable[[BrokerId], bool],
) -> Dispatch | None:
    """The request to the partition's leader that its next batch may be in; None: there is none now."""
    if partition.in_flight and any(batch.node != node for batch in partition.in_flight):
        return None
    if node not in dispatches:  # asked once per node: thousands of partitions may wait for one
        dispatches[node] = Dispatch(node) if has_room(node) else None
    return dispatches[node]


class ProducerCore:
    """The state machine; every method is synchronous and returns what is to be done."""

    def __init__(self, settings: ProducerSettings, rng: random.Random) -> None:
        self.settings = settings
        #: Bytes of records that are not finished.
        self.buffered_bytes = 0
        #: An id has to be got from the cluster before anything (more) can be sent.
        self.needs_producer_id = settings.idempotent
        self._producer_id = ProducerId(-1)
        self._producer_epoch = -1
        self._backoff = Backoff(rng)
        self._partitions: dict[TopicPartition, _Partition] = {}
        #: Those with unfinished batches: few of thousands, and looked through at every wake-up.
        self._busy: dict[TopicPartition, _Partition] = {}
        #: No batch is older than the delivery timeout before this time.
        self._expiry_bound = float("inf")
        self._next_number = 0
        self._flush_up_to = -1

    # --- records in --------------------------------------------------------------------------

    def append(
        self,
        key: TopicPartition,
        record_key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now: float,
        token: Any,
    ) -> bool:
        """Take a record.

        Returns:
            Whether something can be sent that could not before: a batch is full, or the first of its partition.
        Raises:
            ApiError: MESSAGE_TOO_LARGE, larger than the settings allow.
        """
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._partitions[key] = _Partition(key)
        bound = record_bound(record_key, value, headers)
        if bound + HEADER_SIZE > (most := self.settings.max_record_bytes):
            text = f"{key}: a record of about {bound} bytes; the producer takes {most}"
            raise api_error(ErrorCode.MESSAGE_TOO_LARGE, text)
        queue = partition.queue
        last = queue[-1] if queue else None
        record = (record_key, value, headers, timestamp_ms, token)
        if last is not None and not last.closed and last.size_bytes + bound <= self.settings.batch_bytes:
            self.buffered_bytes += last.append(*record)
            return False
        batch = ProducerBatch(key, self._next_number, now)
        self.buffered_bytes += batch.append(*record)  # a record that cannot be encoded leaves no batch behind
        if last is not None:
            last.closed = True
        self._next_number += 1
        queue.append(batch)
        self._busy[key] = partition
        self._expiry_bound = min(self._expiry_bound, now + self.settings.delivery_timeout_s)
        return True

    def begin_flush(self) -> None:
        """Everything taken so far is to be sent without lingering."""
        self._flush_up_to = self._next_number - 1

    @property
    def busy_partitions(self) -> int:
        """How many partitions have unfinished batches: what `plan` has to look through."""
        return len(self._busy)

    def unfinished_before(self, number: int) -> bool:
        """Whether any batch with a number below `number` is unfinished."""
        return any(batch.number < number for p in self._busy.values() for batch in (*p.in_flight, *p.queue))

    @property
    def next_number(self) -> int:
        """The number of the next batch."""
        return self._next_number

    def set_producer_id(self, producer_id: ProducerId, producer_epoch: int) -> None:
        """The cluster's answer to `needs_producer_id`."""
        self._producer_id, self._producer_epoch = producer_id, producer_epoch
        self.needs_producer_id = False

    # --- what to send ------------------------------------------------------------------------

    def waiting_partitions(self) -> list[TopicPartition]:
        """Partitions with something to send, in a stable order."""
        return [key for key, p in self._busy.items() if p.queue]

    def plan(
        self, now: float, leader_of: Callable[[TopicPartition], BrokerId | None], has_room: Callable[[BrokerId], bool]
    ) -> tuple[list[Dispatch], float | None, bool]:
        """What to send now.

        Args:
            leader_of: the partition's leader, None while not known.
            has_room: whether a request may be sent to a broker now.
        Returns:
            Requests to send; when to ask again at the latest (None: only after an event); whether metadata is needed
            because a leader is not known.
        """
        dispatches: dict[BrokerId, Dispatch | None] = {}
        wake = math.inf
        no_leader = False
        if self.needs_producer_id:
            return [], None, False
        for partition in self._busy.values():
            if not partition.queue:
                continue
            ready_at = self._ready_at(partition, now)
            if ready_at > now:
                wake = min(wake, ready_at)
                continue
            node = leader_of(partition.key)
            if node is None:
                no_leader = True
                continue
            dispatch = _dispatch_to(node, partition, dispatches, has_room)
            if dispatch is None:
                continue
            if dispatch.is_full_for(partition.queue[0], self.settings.max_request_bytes):
                wake = now  # the next round, right after this one, goes on
            elif self._prepare(partition, partition.queue[0]):
                partition.in_flight.append(dispatch.take(partition.queue.popleft()))
                # With a full queue the next batch may follow in the next round at once.
                if partition.queue and self._ready_at(partition, now) < math.inf:
                    wake = now
        planned = [dispatch for dispatch in dispatches.values() if dispatch is not None and dispatch.batches]
        return planned, None if wake == math.inf else wake, no_leader

    def _ready_at(self, partition: _Partition, now: float) -> float:
        """When the partition's first batch may be sent; inf: not before something under way ends."""
        batch = partition.queue[0]
        if not partition.in_flight:
            if batch.attempts:
                return batch.retry_at
        elif len(partition.in_flight) >= self.settings.max_in_flight or partition.needs_new_epoch:
            return math.inf
        elif batch.attempts:
            # Sent again alone: only the oldest unfinished batch of the partition.
            if any(other.number < batch.number for other in partition.in_flight):
                return math.inf
            return batch.retry_at
        # While an older batch is on its second way, newer ones would only meet the gap that it left.
        elif self.settings.idempotent and any(other.attempts > 1 for other in partition.in_flight):
            return math.inf
        if len(partition.queue) > 1 or batch.number <= self._flush_up_to:
            return now
        if batch.size_bytes >= self.settings.batch_bytes:
            return now
        return batch.created_at + self.settings.linger_s

    def _prepare(self, partition: _Partition, batch: ProducerBatch) -> bool:
        """Number the batch. False: a new producer id is needed first."""
        if not self.settings.idempotent:
            return True
        if partition.needs_new_epoch:
            if partition.producer_epoch < MAX_PRODUCER_EPOCH:
                partition.producer_epoch += 1
            elif partition.producer_id != self._producer_id:
                partition.producer_id, partition.producer_epoch = self._producer_id, self._producer_epoch
            else:
                self.needs_producer_id = True
                return False
            partition.needs_new_epoch = False
            partition.next_sequence = 0
            for other in partition.queue:
                if other.has_sequence:
                    partition.next_sequence = other.assign_sequence(
                        partition.producer_id, partition.producer_epoch, partition.next_sequence
                    )
        if not batch.has_sequence:
            if partition.producer_id < 0:
                partition.producer_id, partition.producer_epoch = self._producer_id, self._producer_epoch
                partition.next_sequence = 0
            partition.next_sequence = batch.assign_sequence(
                partition.producer_id, partition.producer_epoch, partition.next_sequence
            )
        return True

    # --- answers -----------------------------------------------------------------------------

    def on_answer(
        self, batch: ProducerBatch, attempt: int, code: ErrorCode, base_offset: int, log_append_time_ms: int,
        message: str, now: float,
    ) -> tuple[Completion | None, bool]:  # fmt: skip
        """A broker's answer for one batch of a request.

        Returns:
            The completion, if the batch is finished, and whether metadata should be asked for.
        """
        partition = self._partitions[batch.topic_partition]
        if batch not in partition.in_flight and batch not in partition.queue:
            return None, False
        outcome = produce_outcome(code, idempotent=self.settings.idempotent)
        if outcome is not ProduceOutcome.DELIVERED:
            batch.fate = fate_after(batch.fate, code)
        if outcome is ProduceOutcome.DELIVERED:
            # Also of an attempt that was given up: what is committed is committed.
            self._finish(partition, batch)
            return Completion(batch, None, base_offset, log_append_time_ms), False
        if batch.node is None or attempt != batch.attempts:
            return None, False
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._split(partition, batch)
            return None, False
        if outcome is ProduceOutcome.FAILED:
            self._finish(partition, batch)
            return Completion(batch, _failure(batch, code, f"{batch.topic_partition}: {message or code.name}")), False
        if outcome is ProduceOutcome.SEQUENCE_GAP and self._oldest(partition) is batch:
            partition.needs_new_epoch = True
        completion = self._retry(partition, batch, code, message or code.name, now)
        return completion, outcome is ProduceOutcome.RETRY_ELSEWHERE

    def on_lost(
        self, batch: ProducerBatch, attempt: int, reason: str, now: float, *, was_sent: bool
    ) -> Completion | None:
        """An attempt ended without an answer: whether the batch is in the log is not known, or (`was_sent` False) it never left."""
        partition = self._partitions[batch.topic_partition]
        if was_sent:
            batch.fate = RecordFate.UNKNOWN
        if batch.node is None or attempt != batch.attempts or batch not in partition.in_flight:
            return None
        return self._retry(partition, batch, ErrorCode.NETWORK_EXCEPTION, reason, now)

    def on_sent_without_acks(self, batch: ProducerBatch) -> Completion:
        """acks=0: the batch is on its way, which is all that one will ever know."""
        self._finish(self._partitions[batch.topic_partition], batch)
        return Completion(batch, None)

    def on_leader_changed(self, key: TopicPartition, node: BrokerId, now: float) -> list[Completion]:
        """The leader is now `node`: attempts under way to others will not count, so give them up.

        Without idempotence that could write a record twice: then the old attempt is waited for.
        """
        partition = self._partitions.get(key)
        if partition is None or not self.settings.idempotent:
            return []
        gone = [batch for batch in partition.in_flight if batch.node != node]
        for batch in gone:
            batch.fate = RecordFate.UNKNOWN
        done = [self._retry(partition, batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, "leader moved", now) for batch in gone]
        return [completion for completion in done if completion is not None]

    def expire(self, now: float) -> tuple[list[Completion], float | None]:
        """Fail what is older than the delivery timeout; and when the next batch will be."""
        done: list[Completion] = []
        if now < self._expiry_bound:
            return done, self._expiry_bound if self._busy else None
        next_at: float | None = None
        for partition in list(self._busy.values()):
            for batch in (*partition.in_flight, *partition.queue):
                deadline = batch.created_at + self.settings.delivery_timeout_s
                if deadline <= now:
                    done.append(Completion(batch, self._timed_out(batch)))
                    self._finish(partition, batch)
                elif next_at is None or deadline < next_at:
                    next_at = deadline
        self._expiry_bound = float("inf") if next_at is None else next_at
        return done, next_at

    def fail_all(self, error: ApiError) -> list[Completion]:
        """The producer ends: nothing more will be sent."""
        done: list[Completion] = []
        for partition in list(self._busy.values()):
            for batch in (*partition.in_flight, *partition.queue):
                done.append(Completion(batch, _failure(batch, error.code, str(error))))
                self._finish(partition, batch)
        return done

    def oldest_attempt_under_way(self) -> Sequence[ProducerBatch]:
        """The oldest batch under way of each partition."""
        return [p.in_flight[0] for p in self._busy.values() if p.in_flight]

    # --- inside ------------------------------------------------------------------------------

    def _oldest(self, partition: _Partition) -> ProducerBatch:
        waiting = partition.queue[0] if partition.queue else None
        under_way = min(partition.in_flight, key=lambda b: b.number, default=None)
        if waiting is None or (under_way is not None and under_way.number < waiting.number):
            assert under_way is not None
            return under_way
        return waiting

    def _retry(
        self, partition: _Partition, batch: ProducerBatch, code: ErrorCode, reason: str, now: float
    ) -> Completion | None:
        batch.last_error = reason
        batch.node = None
        limit = self.settings.retries
        if limit is not None and batch.attempts > limit:
            self._finish(partition, batch)
            return Completion(
                batch, _failure(batch, code, f"{batch.topic_partition}: {reason}, {batch.attempts} attempts")
            )
        partition.in_flight.remove(batch)
        batch.retry_at = now + self._backoff.pause_s(batch.attempts)
        self._requeue(partition, batch)
        return None

    def _requeue(self, partition: _Partition, batch: ProducerBatch) -> None:
        """Queue the batch in its place: before everything that is newer."""
        self._busy[partition.key] = partition
        older: list[ProducerBatch] = []
        while partition.queue and partition.queue[0].number < batch.number:
            older.append(partition.queue.popleft())
        partition.queue.appendleft(batch)
        partition.queue.extendleft(reversed(older))

    def _split(self, partition: _Partition, batch: ProducerBatch) -> None:
        """The topic takes only smaller batches: try the halves (Kafka: KAFKA-3995)."""
        newer = [b.number for b in (*partition.in_flight, *partition.queue) if b.number > batch.number]
        between = (batch.number + min(newer, default=batch.number + 1)) / 2
        self._finish(partition, batch)
        for half in batch.split(self.settings.codec, between):
            self.buffered_bytes += half.size_bytes - HEADER_SIZE
            self._requeue(partition, half)

    def _finish(self, partition: _Partition, batch: ProducerBatch) -> None:
        if batch in partition.in_flight:
            partition.in_flight.remove(batch)
        else:
            partition.queue.remove(batch)
        if not partition.queue and not partition.in_flight:
            del self._busy[partition.key]
        batch.node = None
        batch.closed = True
        self.buffered_bytes -= batch.size_bytes - HEADER_SIZE

    def _timed_out(self, batch: ProducerBatch) -> KafkaliteError:
        seconds = self.settings.delivery_timeout_s
        why = f"; last: {batch.last_error}" if batch.last_error else ""
        text = f"{batch.topic_partition}: not delivered within {seconds:g} s, {_FATES[_fate(batch)]}{why}"
        return _failure(batch, ErrorCode.REQUEST_TIMED_OUT, text)


_FATES = {
    RecordFate.NEVER_SENT: "was never sent",
    RecordFate.REFUSED: "was refused",
    RecordFate.UNKNOWN: "may or may not be in the log",
}


def _fate(batch: ProducerBatch) -> RecordFate:
    """With what is under way now."""
    return batch.fate if batch.node is None else RecordFate.UNKNOWN


def _failure(batch: ProducerBatch, code: ErrorCode, text: str) -> ApiError:
    error = api_error(code, text)
    error.fate = _fate(batch)
    return error
