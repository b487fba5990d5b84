"""Writing rows on an executor: collect, sort by partition, encode, send; idempotent, acks=all."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from itertools import chain

import pyarrow as pa

from kafkalite.client.routing import can_be_topic
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, error_code, is_retriable
from kafkalite.extension.messages.transactions import TransactionMember
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import MAX_NAME_LENGTH, TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.record.batch import add_to_sequence
from kafkalite.record.compression import codec_named
from pyspark_kafkalite import producers
from pyspark_kafkalite.clients import LogClient, error_text
from pyspark_kafkalite.encode import EncodedBatch, HeaderWithoutKey, encode
from pyspark_kafkalite.offsets import names
from pyspark_kafkalite.options import ClientOptions, WriteOptions
from pyspark_kafkalite.producers import TaskProducer
from pyspark_kafkalite.row_shape import RowShape
from pyspark_kafkalite.rows import BadRow, RowRouter

#: Pauses between questions for a topic: a node that has just started knows few of them for a moment.
_ASK_AGAIN_AFTER_S = (0.25, 0.5, 1.0)

#: A log does not know what a producer wrote before.
_STATE_LOST = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})

#: What is still to be sent, in order, by partition.
_Queues = dict[TopicPartition, deque[EncodedBatch]]


class WriteFailed(KafkaliteError):
    """Rows could not be written. The message gives topic, partition, cause and what to do."""


@dataclass(frozen=True, slots=True)
class Written:
    """What one task wrote: rows, bytes of keys, values and headers as encoded, and offsets [first, end) per partition."""

    rows: int
    bytes: int
    offsets: tuple[tuple[str, int, int, int], ...]


@dataclass(slots=True)
class RowWriter:
    """Writes the rows of one task attempt, under the worker's producer id (see `producers`) or that of its open transaction.

    A batch that is sent again within the attempt (its answer was lost, its leader moved) has the same producer id and
    sequence, so the broker keeps one copy. Another attempt sends other batches: at-least-once over attempts, if there is no
    transaction.
    """

    client: LogClient
    options: WriteOptions
    shape: RowShape
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    rng: random.Random = field(default_factory=random.Random)
    sleep: Callable[[float], None] = time.sleep
    transaction: TransactionMember | None = None
    _added: set[TopicPartition] = field(default_factory=set)
    _offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    #: Partitions with a batch of this task.
    _written: set[TopicPartition] = field(default_factory=set)
    _producer: TaskProducer | None = None
    _sending: Future[None] | None = None
    #: Bytes of a batch: fewer than the option says once a topic has refused that much.
    _batch_bytes: int = 0
    _rows: int = 0
    _bytes: int = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write everything; returns when all of it is acknowledged by all in-sync replicas.

        Raises:
            BadRow: a row cannot be written as it is.
            WriteFailed: the cluster refused, or did not answer within delivery.timeout.ms.
        """
        counts = _TopicPartitions(self.client, self.options.client, self._settle, self.sleep)
        router = RowRouter(self.shape, self.options.topic, counts, self.options.batch_bytes, self.rng)
        waiting: list[pa.RecordBatch] = []
        size = 0
        # one buffer is on its way while the next is collected and encoded
        with ThreadPoolExecutor(1, "kafkalite-send") as sender:
            for piece in chain.from_iterable(_pieces(batch, self.options.buffer_bytes) for batch in batches):
                waiting.append(piece)
                size += piece.nbytes
                if size >= self.options.buffer_bytes:
                    self._hand_over(sender, self._encoded(router, waiting))
                    waiting, size = [], 0
            if waiting:
                self._hand_over(sender, self._encoded(router, waiting))
            self._settle()
        if self._producer is not None and self.transaction is None:
            producers.leave(self.client, self._producer)
        offsets = tuple((tp.topic, tp.partition, *span) for tp, span in sorted(self._offsets.items()))
        return Written(self._rows, self._bytes, offsets)

    def _hand_over(self, sender: ThreadPoolExecutor, queues: _Queues) -> None:
        self._settle()
        self._sending = sender.submit(self._send, queues)

    def _settle(self) -> None:
        """Wait until nothing is on its way: the client serves one thread at a time. Raises what sending raised."""
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    def _encoded(self, router: RowRouter, waiting: list[pa.RecordBatch]) -> _Queues:
        rows, where = router.route(waiting[0] if len(waiting) == 1 else pa.Table.from_batches(waiting))
        queues: _Queues = {}
        try:
            for batch in encode(rows, where, self._batch_bytes or self.options.batch_bytes):
                tp = TopicPartition(*router.destinations[batch.destination])
                queues.setdefault(tp, deque()).append(batch)
        except HeaderWithoutKey as error:
            tp = TopicPartition(*router.destinations[where[error.row]])
            raise BadRow(f"a row for {tp} has a header without a key (null)") from None
        return queues

    def _send(self, queues: _Queues) -> None:
        """Send in rounds: the next batch of every partition at once, over all leaders."""
        while queues:
            self._round({tp: queue.popleft() for tp, queue in sorted(queues.items())})
            queues = {tp: queue for tp, queue in queues.items() if queue}

    def _round(self, batches: dict[TopicPartition, EncodedBatch]) -> None:
        try:
            producer = self._prepare(batches.keys())
        except (KafkaliteError, OSError) as error:
            raise self._failed(batches, error) from error
        now_ms = self.now_ms()
        codec = codec_named(self.options.compression)
        sealed = {
            tp: batch.seal(
                timestamp_ms=now_ms,
                codec=codec,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.sequences.get(tp, 0),
                transactional=self.transaction is not None,
            )
            for tp, batch in batches.items()
        }
        try:
            self._acknowledged(producer, batches, self._produced(sealed))
        except ApiError as error:
            if not any(self._has_remedy(error, producer, tp, batch) for tp, batch in batches.items()):
                raise WriteFailed(_refusal(error, max(map(len, sealed.values())))) from error
            refused = dict.fromkeys(batches, error)
            if len(batches) > 1:
                refused = self._one_by_one(producer, batches, sealed)
            self._remedied(batches, refused)
        except (KafkaliteError, OSError) as error:
            raise self._failed(sealed, error) from error

    def _produced(self, sealed: Mapping[TopicPartition, bytes]) -> Mapping[TopicPartition, ProducedPartition]:
        return self.client.produce_many(
            sealed,
            acks=-1,
            timeout_ms=self.options.delivery_timeout_ms,
            transactional_id=self.transaction.transactional_id if self.transaction is not None else None,
        )

    def _acknowledged(
        self,
        producer: TaskProducer,
        batches: Mapping[TopicPartition, EncodedBatch],
        answers: Mapping[TopicPartition, ProducedPartition],
    ) -> None:
        for tp, batch in batches.items():
            answer = answers[tp]
            self._written.add(tp)
            producer.sequences[tp] = add_to_sequence(producer.sequences.get(tp, 0), batch.count)
            if answer.base_offset >= 0:  # unknown when only a duplicate was confirmed
                first, _ = self._offsets.get(tp, (answer.base_offset, 0))
                self._offsets[tp] = (first, answer.base_offset + batch.count)
            self._rows += batch.count
            self._bytes += len(batch.records)

    def _has_remedy(self, error: ApiError, producer: TaskProducer, tp: TopicPartition, batch: EncodedBatch) -> bool:
        """Whether a refused batch can be sent in another way.

        A log that has lost what an earlier task wrote, or forgotten its producer, is not this task's matter, if it has written nothing
        there yet. A topic may take smaller batches than the option says (max.message.bytes).
        """
        if error.code in _STATE_LOST:
            return producer.is_used and tp not in self._written
        return error.code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1

    def _one_by_one(
        self,
        producer: TaskProducer,
        batches: dict[TopicPartition, EncodedBatch],
        sealed: Mapping[TopicPartition, bytes],
    ) -> dict[TopicPartition, ApiError]:
        """What is refused for good, after a round of which something was. The others may have their batch: as it is, they take it for a
        repetition."""
        refused: dict[TopicPartition, ApiError] = {}
        for tp, batch in batches.items():
            try:
                self._acknowledged(producer, {tp: batch}, self._produced({tp: sealed[tp]}))
            except ApiError as error:
                if not self._has_remedy(error, producer, tp, batch):
                    raise WriteFailed(_refusal(error, len(sealed[tp]))) from error
                refused[tp] = error
            except (KafkaliteError, OSError) as error:
                raise self._failed([tp], error) from error
        return refused

    def _remedied(
        self, batches: Mapping[TopicPartition, EncodedBatch], refused: Mapping[TopicPartition, ApiError]
    ) -> None:
        """Send what was refused, and so is in no log: with a new producer, as the client has forgotten the old one, or in halves."""
        lost = {tp: batches[tp] for tp, error in refused.items() if error.code in _STATE_LOST}
        if lost:
            self._producer = None
            self._round(lost)
        for tp in sorted(refused.keys() - lost.keys()):
            # so that what is encoded from now on fits, or nearly: max.message.bytes counts what is compressed, so it does not say how much
            self._batch_bytes = min(self._batch_bytes or self.options.batch_bytes, len(batches[tp].records) // 2)
            for half in batches[tp].halves():
                self._round({tp: half})

    def _failed(self, partitions: Iterable[TopicPartition], error: Exception) -> WriteFailed:
        return WriteFailed(f"writing to {names(partitions)} failed: {error_text(self.options.client, error)}")

    def _prepare(self, partitions: Iterable[TopicPartition]) -> TaskProducer:
        """The producer that writes to these partitions. Raises what the client raises."""
        if self.transaction is None:
            self._producer = self._producer or producers.take(self.client)
            return self._producer
        new = set(partitions) - self._added
        if new:
            self.client.add_partitions(self.transaction, sorted(new))
            self._added |= new
        self._producer = self._producer or TaskProducer(self.transaction.producer_id, self.transaction.producer_epoch)
        return self._producer


def _pieces(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of about this number of bytes: Spark passes 64 MiB at once, or (4.0) any number. None for no rows."""
    rows = -(-batch.num_rows // max(1, batch.nbytes // most_bytes)) or 1
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


class _TopicPartitions:
    """How many partitions each topic has, asked once per task. As Kafka's producer asks: the cluster makes a topic that is
    missing, if auto.create.topics.enable is true there."""

    def __init__(
        self, client: LogClient, options: ClientOptions, settle: Callable[[], None], sleep: Callable[[float], None]
    ) -> None:
        self._client = client
        self._options = options
        self._settle = settle
        self._sleep = sleep
        self._known: dict[str, int] = {}

    def __call__(self, topic: str) -> int:
        count = self._known.get(topic)
        if count is None:
            self._settle()
            count = self._known[topic] = self._asked(topic)
        return count

    def _asked(self, topic: str) -> int:
        if not can_be_topic(topic):
            raise _no_topic(topic)
        for number, pause_s in enumerate(self._pauses()):
            try:
                answer = self._client.metadata([topic], allow_auto_create=True)
            except (KafkaliteError, OSError) as error:
                raise WriteFailed(f"writing to {topic} failed: {error_text(self._options, error)}") from error
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for found in answer.topics:
                code = error_code(found.error)
                if code is ErrorCode.NONE and found.partitions:
                    return len(found.partitions)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and number >= len(_ASK_AGAIN_AFTER_S):
                raise BadRow(
                    f"topic {topic} does not exist, and the cluster does not create topics automatically: "
                    f"kafkalite admin create-topic {topic}"
                )
            if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise _no_topic(topic)
            if not is_retriable(code):
                raise WriteFailed(f"topic {topic}: {code.name}")
            self._sleep(pause_s)
        raise WriteFailed(f"topic {topic}: {code.name} for {self._options.request_timeout_ms} ms")

    def _pauses(self) -> Iterator[float]:
        """A topic that is being made has no leaders yet: it is waited for as long as for any answer."""
        yield from _ASK_AGAIN_AFTER_S
        left_s = self._options.request_timeout_ms / 1000 - sum(_ASK_AGAIN_AFTER_S)
        yield from (1.0 for _ in range(max(1, int(left_s))))


def _no_topic(name: str) -> BadRow:
    shown = name[:MAX_NAME_LENGTH]
    return BadRow(f"{shown!r} is no name of a topic: 1 to {MAX_NAME_LENGTH} letters, digits, dots, _ and -")


def _refusal(error: ApiError, size: int) -> str:
    hint = ""
    if error.code is ErrorCode.MESSAGE_TOO_LARGE:
        hint = f" (one row has {size} bytes with the header of its batch; raise the topic's max.message.bytes)"
    elif error.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        hint = " (only brokers write to internal topics)"
    elif error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
        hint = " (fewer in-sync replicas than min.insync.replicas: kafkalite admin health)"
    elif error.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
        hint = " (this attempt's transaction was aborted: it took longer than kafka.transaction.timeout.ms, or another attempt was committed)"
    return f"a batch was refused: {error.code.name}, {error}{hint}"
