"""What a follower does with one partition's part of a fetch answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import NO_ERROR, ApiError, ErrorCode, StorageError, error_code
from kafkalite.log.cold_reads import ColdReads
from kafkalite.log.producer_state import ProducerStates
from kafkalite.model import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset
from kafkalite.replica.decisions.follower import (
    Divergence,
    follower_high_watermark,
    high_watermark_after_truncation,
    truncation_offset,
)
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.partition import Partition
from kafkalite.replica.throttle import NO_RATE, Throttle, is_listed
from kafkalite.rpc.messages.replication import ReplicaFetchedPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: The pause before the leader is asked again when descriptors or memory were short.
_SHORTAGE_PAUSE_S = 0.1


class FollowerFetch:
    """Appends, truncates, and moves followers' high watermarks.

    Args:
        on_copied: called after each response while the replica is in doubt, or its copy of the leader's log is unfinished.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        cold: ColdReads,
        supervisor: Supervisor,
        broker_id: BrokerId,
        on_copied: Callable[[Partition], None],
    ) -> None:
        self._hosted = hosted
        self._cold = cold
        self._supervisor = supervisor
        self._broker_id = broker_id
        self._on_copied = on_copied
        self._throttle = Throttle()
        #: follower.replication.throttled.rate: bytes/s of what this node copies, for topics that list it.
        self.throttled_rate = NO_RATE
        #: Truncations under way, and what is called at their end.
        self._truncating: dict[tuple[Partition, LeaderEpoch], Callable[[], None]] = {}

    def wait_ms(self, partition: Partition) -> int:
        """How long the leader is not to be asked for more, as far as is known; 0: it may be asked."""
        return self._throttle.wait_ms(self.throttled_rate, self._hosted.now_ms()) if self._is_slowed(partition) else 0

    def _is_slowed(self, partition: Partition) -> bool:
        """A replica in sync has all below the high watermark, so it is not."""
        listed = partition.config.follower_replication_throttled_replicas
        return (
            self.throttled_rate < NO_RATE
            and partition.fetch_lag > 0
            and is_listed(listed, partition.topic_partition.partition, self._broker_id)
        )

    def take(
        self, partition: Partition, answer: ReplicaFetchedPartition, records: memoryview, go_on: Callable[[], None]
    ) -> ErrorCode | None:
        """Take in an answer. `go_on` is called when the partition is to be listed again.

        Returns:
            NONE: done, it went well. Another code: pause and try again. None: out of service; wait for a command.
        """
        assert partition.leader is None, f"{partition.topic_partition} leads and yet fetches"
        if partition.storage_error is not None:
            return None
        try:
            if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._start_over(partition, answer, "outside of the leader's range")
                go_on()
                return NO_ERROR
            if answer.error:
                return error_code(answer.error)
            if answer.diverging_epoch != NO_LEADER_EPOCH:
                divergence = Divergence(answer.diverging_epoch, answer.diverging_end_offset)
                offset = _cut_offset(partition, divergence)
                if offset is None:
                    self._start_over(partition, answer, f"the leader's epoch {divergence.epoch} ends before its start")
                    go_on()
                elif partition.log.needs_producers(offset):
                    self._begin_truncation(partition, divergence, offset, go_on)
                else:
                    self._truncate(partition, divergence, offset, None)
                    go_on()
                return NO_ERROR
            return self._append(partition, answer, records, go_on)
        except StorageError as error:
            self._hosted.fail_storage(partition, error)
            # In service still, since only descriptors or memory were missing: nobody would send a command.
            return ErrorCode.KAFKA_STORAGE_ERROR if partition.storage_error is None else None
        except ApiError as error:
            suppressed = self._hosted.repeats.admit(("append_refused", partition.topic_partition))
            if suppressed is not None:
                _log.error(
                    "replica.append_refused",
                    partition=str(partition.topic_partition),
                    error=str(error),
                    suppressed=suppressed,
                )
            return error.code

    def _append(
        self, partition: Partition, answer: ReplicaFetchedPartition, records: memoryview, go_on: Callable[[], None]
    ) -> ErrorCode:
        log = partition.log
        if records:
            if log.first_offset == log.log_end_offset and self._may_have_deleted_keys(partition):
                log.record_copying(partition.leader_epoch)
            info = log.append_as_follower(records)
            if info.dropped_producers:
                self._hosted.producers_dropped(partition, info.dropped_producers)
            self._hosted.counters.replication_bytes_in += len(records)
        before = partition.follower_high_watermark
        partition.fetch_lag = max(answer.high_watermark - log.log_end_offset, 0)
        partition.epoch_start_offset = answer.epoch_start_offset
        if records and self._is_slowed(partition):
            self._throttle.take(len(records))
        if self._advance(partition, answer):
            self._hosted.start_moved(partition)
        log.forget_ended(partition.follower_high_watermark)
        self._hosted.follower_advanced(partition, before, len(records))
        if partition.is_doubtful or log.copying_in != NO_LEADER_EPOCH:
            self._on_copied(partition)
        if records:
            go_on()
        return NO_ERROR

    def _may_have_deleted_keys(self, partition: Partition) -> bool:
        """Whether tombstones of what it is about to copy may have gone elsewhere (ADR 76)."""
        is_outside = self._broker_id not in partition.isr or partition.is_doubtful
        return is_outside and "compact" in partition.config.cleanup_policy

    def _advance(self, partition: Partition, answer: ReplicaFetchedPartition) -> bool:
        """Returns whether the log begins later than before."""
        log = partition.log
        partition.follower_high_watermark = follower_high_watermark(
            partition.follower_high_watermark,
            leader_high_watermark=answer.high_watermark,
            log_end_offset=log.log_end_offset,
        )
        start = min(answer.log_start_offset, partition.follower_high_watermark)
        return start > log.log_start_offset and log.advance_log_start_offset(start)

    def _begin_truncation(
        self, partition: Partition, divergence: Divergence, offset: Offset, go_on: Callable[[], None]
    ) -> None:
        """If one is under way (the session with the leader began again meanwhile), its end is waited for."""
        key = partition, partition.leader_epoch
        is_first = key not in self._truncating
        self._truncating[key] = go_on
        if is_first:
            work = self._truncate_with_producers(partition, divergence, offset)
            self._supervisor.spawn(f"replica.truncation[{partition.topic_partition}]", work, Policy.ISOLATED)

    async def _truncate_with_producers(self, partition: Partition, divergence: Divergence, offset: Offset) -> None:
        """Finding the producers at the cut may take seconds, off the loop. Until then nothing changes.

        If another role or epoch came meanwhile, this is void; if the log was changed, the leader is asked again.
        """
        log, epoch = partition.log, partition.leader_epoch
        owner = "truncation", partition.topic_partition
        try:
            producers = await log.producers_at(offset, self._cold.executor(log.directory), owner)
            if not self._still_follows(partition, epoch):
                return
            if producers is not None and partition.log is log and _cut_offset(partition, divergence) == offset:
                self._truncate(partition, divergence, offset, producers)
        except StorageError as error:
            if not self._still_follows(partition, epoch):
                return
            self._hosted.fail_storage(partition, error)
            if partition.storage_error is not None:
                return
            await asyncio.sleep(_SHORTAGE_PAUSE_S)
        finally:
            go_on = self._truncating.pop((partition, epoch))
        go_on()

    def _still_follows(self, partition: Partition, leader_epoch: LeaderEpoch) -> bool:
        is_hosted = self._hosted.get(partition.topic_partition) is partition
        return is_hosted and partition.is_following and partition.leader_epoch == leader_epoch

    def _truncate(
        self, partition: Partition, divergence: Divergence, offset: Offset, producers: ProducerStates | None
    ) -> None:
        log = partition.log
        self._lower(partition, offset, f"the leader's epoch {divergence.epoch} ends at {divergence.end_offset}")
        if offset == log.log_start_offset:
            log.truncate_fully_and_start_at(offset)
        else:
            log.truncate_to(offset, producers)
        # The log may end before `offset`: a batch is never cut, and offsets may be missing there.
        partition.follower_high_watermark = min(partition.follower_high_watermark, log.log_end_offset)

    def _start_over(self, partition: Partition, answer: ReplicaFetchedPartition, reason: str) -> None:
        """Nothing of ours continues the leader's log: copy all of it."""
        start = answer.log_start_offset
        self._lower(partition, start, reason)
        partition.log.truncate_fully_and_start_at(start)
        partition.follower_high_watermark = start
        self._hosted.start_moved(partition)

    def _lower(self, partition: Partition, offset: Offset, reason: str) -> None:
        self._hosted.changed(partition)
        log = partition.log
        mark = partition.follower_high_watermark
        after = high_watermark_after_truncation(mark, min(log.log_end_offset, offset))
        if after < mark:
            self._hosted.counters.truncations_below_high_watermark += 1
            _log.warning(
                "replica.truncated_below_high_watermark",
                partition=str(partition.topic_partition),
                high_watermark=mark,
                offset=offset,
                reason=reason,
            )
        else:
            _log.info(
                "replica.truncated",
                partition=str(partition.topic_partition),
                offset=offset,
                log_end_offset=log.log_end_offset,
                reason=reason,
            )
        partition.follower_high_watermark = after


def _cut_offset(partition: Partition, divergence: Divergence) -> Offset | None:
    log = partition.log
    return truncation_offset(
        log.epoch_and_end_offset_for,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        divergence=divergence,
    )
