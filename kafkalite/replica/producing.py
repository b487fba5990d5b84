"""Produce: append to the leader's log, and answer when the acks that were asked for are there."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.env.seams import Buffer
from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.log.validation import Origin
from kafkalite.model import NO_OFFSET, Offset, TopicPartition
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.purgatory import DelayedProduce, ProduceDone, ProduceWaiter
from kafkalite.rpc.messages.data import ProducedPartition

#: Operations that may wait at once; beyond it acks=all is refused before anything is appended.
MAX_WAITING = 100_000


class Producing:
    """Appends in the order of calls."""

    def __init__(self, hosted: HostedPartitions, metadata: MetadataCache) -> None:
        self._hosted = hosted
        self._metadata = metadata

    def produce(
        self,
        acks: int,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        origin: Origin = "client",
    ) -> None:
        """Append, and call `done` once: at once for acks 0 and 1, or when all is refused; else when it is committed.

        Waiting ends also with the deadline (REQUEST_TIMED_OUT), with the leadership (NOT_LEADER_OR_FOLLOWER) and
        when the ISR becomes too small (NOT_ENOUGH_REPLICAS_AFTER_APPEND, F26): then the records may exist.
        """
        hosted = self._hosted
        delayed = DelayedProduce(hosted.wheel, len(partitions), done)
        results = delayed.results
        refusal = self._refusal(acks)
        # Held until the loop is over: no partition settled in it may answer for the request.
        delayed.pending = 1
        hosted.counters.produce_requests += len(partitions)
        for index, (topic_partition, records) in enumerate(partitions):
            if refusal is not ErrorCode.NONE:
                results[index] = refused(topic_partition, refusal)
                continue
            try:
                self._append(delayed, index, topic_partition, records, acks, origin)
            except ApiError as error:
                results[index] = refused(topic_partition, error.code, str(error))
        hosted.counters.failed_produce_requests += sum(each is not None and each.error != 0 for each in results)
        delayed.pending -= 1
        if delayed.pending == 0:
            delayed.finish()
        else:
            hosted.wheel.add(delayed, max(timeout_ms, 0))

    def _refusal(self, acks: int) -> ErrorCode:
        if acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS
        if not self._hosted.usable():  # somebody else may lead by now
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == -1 and len(self._hosted.wheel) >= MAX_WAITING:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return ErrorCode.NONE

    def _append(
        self,
        delayed: DelayedProduce,
        index: int,
        topic_partition: TopicPartition,
        records: Buffer,
        acks: int,
        origin: Origin,
    ) -> None:
        hosted = self._hosted
        partition = hosted.get(topic_partition)
        leader = partition.leader if partition is not None else None
        if partition is None or leader is None:
            delayed.results[index] = refused(topic_partition, self.missing(topic_partition))
            return
        if partition.is_read_only and origin == "client":
            reason = "the partition is being drained: it is about to be removed"
            delayed.results[index] = refused(topic_partition, ErrorCode.POLICY_VIOLATION, reason)
            return
        if acks == -1 and leader.is_under_min_isr:
            delayed.results[index] = refused(
                topic_partition,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(leader.committed_isr)} in sync, {leader.effective_min_insync_replicas} needed",
            )
            return
        log = partition.log
        try:
            info = log.append_as_leader(records, leader.leader_epoch, origin=origin)
        except StorageError as error:
            hosted.fail_storage(partition, error)
            delayed.results[index] = refused(topic_partition, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            return
        result = ProducedPartition(
            topic_partition.topic,
            topic_partition.partition,
            ErrorCode.NONE,
            Offset(info.first_offset),
            info.log_append_time_ms,
            log.log_start_offset,
        )
        required = Offset(info.last_offset + 1)
        if acks == -1 and required > leader.high_watermark:
            waiter = ProduceWaiter(delayed, index, partition, required, result)
            delayed.waiters.append(waiter)
            delayed.pending += 1
            partition.add_produce_waiter(waiter)
        else:
            delayed.results[index] = result
        if not info.duplicate:
            hosted.appended(partition, log.log_end_offset, info.size_bytes)

    def missing(self, topic_partition: TopicPartition) -> ErrorCode:
        """Why a partition is not led here."""
        return missing(self._hosted, self._metadata, topic_partition)


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


def refused(topic_partition: TopicPartition, error: ErrorCode, message: str = "") -> ProducedPartition:
    """The answer for a partition to which nothing was appended."""
    topic, number = topic_partition
    return ProducedPartition(topic, number, error, NO_OFFSET, message=message)
