"""Produce: append to the leader's log, and answer when the acks that were asked for are there."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kafkalite.errors import NO_ERROR, ApiError, ErrorCode, StorageError, api_error
from kafkalite.log.validation import Origin
from kafkalite.log.verification import NO_GUARD
from kafkalite.model import NO_OFFSET, Buffer, Offset, TopicPartition
from kafkalite.partition_values import ProducedPartition, new_produced
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.purgatory import MAX_WAITING, DeadlineWheel, DelayedProduce, ProduceDone, ProduceWaiter
from kafkalite.replica.skipped_sequences import SkippedSequences

#: Partitions appended to in one turn of the loop. The first append to each may open and make files: a request for a
#: thousand of them would keep the node from its heartbeats.
PIECE = 64
#: After this time a piece is over as well (seconds). What is left of its records is copied, so that is not for a large request's every batch.
PIECE_S = 0.01


class AppendTerms(NamedTuple):
    """The origin of the records that a request appends, and what was verified of them.

    `guards`: what `begin_verification` gave for partitions whose transactions are verified; in no other partition may
    one begin then. None: nothing is verified. `transaction_version`: of markers, see ProducerStates.prepare.
    `client`: names whose records they are.
    """

    origin: Origin = "client"
    guards: Mapping[TopicPartition, int] | None = None
    transaction_version: int = 0
    client: Callable[[], str] | None = None


#: Of a client, without transactions.
_PLAIN = AppendTerms()


class _PendingProduce(DelayedProduce):
    """One request, and how far it is carried out: `position` of its partitions. At the end it has let go of them."""

    __slots__ = ("acks", "partitions", "position", "terms", "timeout_ms")

    def __init__(
        self,
        wheel: DeadlineWheel,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        acks: int,
        timeout_ms: int,
        terms: AppendTerms,
    ) -> None:
        DelayedProduce.__init__(self, wheel, len(partitions), done)
        # Held until all is appended: no partition settled meanwhile may answer for the request.
        self.pending = 1
        self.partitions = partitions
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.terms = terms
        self.position = 0


class ProduceHandler:
    """Appends in the order of calls, large requests in pieces."""

    def __init__(self, hosted: HostedPartitions, metadata: MetadataCache) -> None:
        self._hosted = hosted
        self._metadata = metadata
        #: Clients' requests that are not carried out to the end; at most as many as connections let be under way.
        self._backlog: deque[_PendingProduce] = deque()
        self._skipped = SkippedSequences()
        self._is_closed = False

    def produce(
        self,
        acks: int,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        terms: AppendTerms = _PLAIN,
    ) -> None:
        """Append, and call `done` once. The records' buffers may be used again when this returns.

        It is called at once for acks 0 and 1, or when all is refused; else when it is committed.

        Waiting ends also with the deadline (REQUEST_TIMED_OUT), with the leadership (NOT_LEADER_OR_FOLLOWER) and
        when the ISR becomes too small (NOT_ENOUGH_REPLICAS_AFTER_APPEND, invariant F26): then the records may exist.
        """
        request = _PendingProduce(self._hosted.wheel, partitions, done, acks, timeout_ms, terms)
        is_client = terms.origin == "client"
        if self._backlog and is_client:
            self._requeue(request)
        elif not self._execute(request, PIECE if is_client else len(partitions)):
            self._requeue(request)
            self._schedule_next()

    def begin_verification(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        *,
        begins_at_zero: bool,
    ) -> int:
        """The guard to append with once the coordinator has answered; NO_GUARD: there is nothing to ask it."""
        partition = self._hosted.get(topic_partition)
        if partition is None or partition.leader is None:
            return NO_GUARD  # the append returns the error
        return partition.log.begin_verification(producer_id, producer_epoch, sequence, begins_at_zero=begins_at_zero)

    def end_verification(self, topic_partition: TopicPartition, producer_id: int, guard: int) -> None:
        """The coordinator has refused the batches of `guard`."""
        partition = self._hosted.get(topic_partition)
        if partition is not None:
            partition.log.end_verification(producer_id, guard)

    def refused(self, topic_partition: TopicPartition, records: Buffer, error: ErrorCode) -> None:
        """The coordinator did not let this batch in, for now: see SkippedSequences."""
        self._skipped.refused(topic_partition, records, error)

    def _requeue(self, request: _PendingProduce) -> None:
        """Requeue the request. The records are copied because the receive buffer is reused (the Kafka listener's is)."""
        done = request.partitions[: request.position]
        request.partitions = [
            *done,
            *((key, _kept(records)) for key, records in request.partitions[request.position :]),
        ]
        self._backlog.append(request)

    def close(self) -> None:
        """The node stops: what is not appended yet is refused."""
        self._is_closed = True
        while self._backlog:
            request = self._backlog.popleft()
            self._execute(request, len(request.partitions))

    def _schedule_next(self) -> None:
        asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        """The next piece of the large request that others wait behind, and those others if it was the last."""
        until = self._hosted.monotonic() + PIECE_S
        while self._backlog and self._execute(self._backlog[0], PIECE):
            self._backlog.popleft()
            if self._hosted.monotonic() >= until:
                break
        if self._backlog:
            self._schedule_next()

    def _execute(self, request: _PendingProduce, at_most: int) -> bool:
        """Append to at most this number of further partitions, and to fewer if that takes long; True if none is left."""
        partitions, acks, results = request.partitions, request.acks, request.results
        hosted = self._hosted
        refusal = self._refusal(acks)
        has_lease = hosted.usable()
        failed = 0
        count = len(partitions)
        first = request.position
        end = count if count - first <= at_most else first + at_most
        until = hosted.monotonic() + PIECE_S if end - first > 1 and at_most == PIECE else math.inf
        for index in range(first, end):
            if until < math.inf and index > first and hosted.monotonic() >= until:
                end = index
                break
            topic_partition, records = partitions[index]
            if refusal is not NO_ERROR:
                results[index] = refused(topic_partition, refusal)
                self._skipped.refused(topic_partition, records, refusal)
                failed += 1
                continue
            try:
                self._append(request, index, topic_partition, records, has_lease=has_lease)
            except ApiError as error:
                results[index] = self._refused(topic_partition, records, error)
                failed += 1
                continue
            result = results[index]
            if result is not None and result.error:
                failed += 1
                self._skipped.refused(topic_partition, records, ErrorCode(result.error))
            elif self._skipped.remembered:
                self._skipped.appended(topic_partition, records)
        request.position = end
        hosted.counters.failed_produce_requests += failed
        if end < count:
            return False
        hosted.counters.produce_requests += count
        request.partitions = ()
        request.pending -= 1
        if request.pending == 0:
            request.finish()
        else:
            hosted.wheel.add(request, max(request.timeout_ms, 0))
        return True

    def _refused(self, topic_partition: TopicPartition, records: Buffer, error: ApiError) -> ProducedPartition:
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            earlier = self._skipped.error_ahead(topic_partition, records)
            if earlier is not None:
                return refused(topic_partition, earlier, f"a batch before this one was refused; {error}")
        return refused(topic_partition, error.code, str(error), error.record_errors)

    def _refusal(self, acks: int) -> ErrorCode:
        if acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS
        if self._is_closed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == -1 and self._hosted.wheel.count - self._hosted.long_polls.taken >= MAX_WAITING:
            # Every producer sends again after it. librdkafka takes THROTTLING_QUOTA_EXCEEDED for final.
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return NO_ERROR

    def _append(
        self, request: _PendingProduce, index: int, topic_partition: TopicPartition, records: Buffer, *, has_lease: bool
    ) -> None:
        hosted = self._hosted
        results, acks, terms = request.results, request.acks, request.terms
        is_client = terms.origin == "client"
        partition = hosted.get(topic_partition)
        leader = partition.leader if partition is not None else None
        if partition is None or leader is None:
            results[index] = refused(topic_partition, self.missing(topic_partition))
            return
        if not has_lease and (reason := hosted.refusal(partition, acks)):  # another node may lead by now
            message = f"ZooKeeper has not answered for longer than this node's lease, and {reason}"
            results[index] = refused(topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
            return
        if partition.is_read_only and is_client:
            reason = "the partition is being drained and will be removed"
            results[index] = refused(topic_partition, ErrorCode.POLICY_VIOLATION, reason)
            return
        if acks == -1 and leader.is_under_min_isr:
            results[index] = refused(
                topic_partition,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(leader.committed_isr)} in sync, {leader.effective_min_insync_replicas} needed",
            )
            return
        log = partition.log
        if self._skipped.remembered and is_client:
            producers = log.active_producers()
            if self._skipped.begins_ahead(topic_partition, log.topic_id, records, producers):
                raise api_error(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the producer is new here, and this is not its first batch"
                )
        try:
            info = log.append_as_leader(
                records,
                leader.leader_epoch,
                origin=terms.origin,
                guard=None if terms.guards is None else terms.guards.get(topic_partition, NO_GUARD),
                transaction_version=terms.transaction_version,
            )
        except StorageError as error:
            hosted.fail_storage(partition, error)
            results[index] = refused(topic_partition, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            return
        if info.new_producers and terms.client is not None:
            partition.newest_client = terms.client()
        if info.dropped_producers:
            hosted.producers_dropped(partition, info.dropped_producers)
        result = new_produced(
            (*topic_partition, NO_ERROR, info.first_offset, info.log_append_time_ms, log.log_start_offset, "", ())
        )
        if not info.duplicate:
            hosted.appended(partition, log.log_end_offset, info.size_bytes)
        required = Offset(info.last_offset + 1)
        if acks != -1 or required <= leader.high_watermark:  # without other replicas it is committed already
            results[index] = result
        elif partition.leader is leader:
            waiter = ProduceWaiter(request, index, partition, required, result)
            request.waiters.append(waiter)
            request.pending += 1
            partition.add_produce_waiter(waiter)
        else:  # what was done for a request that this append has committed, too, has ended the leadership
            results[index] = refused(topic_partition, self.missing(topic_partition))

    def missing(self, topic_partition: TopicPartition) -> ErrorCode:
        """Why a partition is not led here."""
        return missing(self._hosted, self._metadata, topic_partition)


def _kept(records: Buffer) -> bytes | memoryview:
    """A copy of the bytes if their buffer may be reused."""
    if isinstance(records, bytes) or (isinstance(records, memoryview) and isinstance(records.obj, bytes)):
        return records
    return bytes(records)


def missing(hosted: HostedPartitions, metadata: MetadataCache, topic_partition: TopicPartition) -> ErrorCode:
    """The answer for a partition that this node does not lead."""
    partition = hosted.get(topic_partition)
    if partition is not None:
        if partition.storage_error is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if metadata.partition(topic_partition) is not None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def refused(
    topic_partition: TopicPartition,
    error: ErrorCode,
    message: str = "",
    record_errors: tuple[tuple[int, str], ...] = (),
) -> ProducedPartition:
    """The answer for a partition to which nothing was appended."""
    topic, number = topic_partition
    return ProducedPartition(topic, number, error, NO_OFFSET, message=message, record_errors=record_errors)
