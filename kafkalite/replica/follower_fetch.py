"""What a follower does with one partition's part of a fetch answer."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.errors import ApiError, ErrorCode, StorageError, error_code
from kafkalite.model import NO_LEADER_EPOCH, Offset
from kafkalite.replica.decisions.follower import (
    Divergence,
    follower_high_watermark,
    high_watermark_after_truncation,
    truncation_offset,
)
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.partition import Partition
from kafkalite.rpc.messages.replication import ReplicaFetchedPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class FollowerFetch:
    """Appends, truncates, and moves followers' high watermarks.

    Args:
        on_copied: called after each response while the replica is in doubt.
    """

    def __init__(self, hosted: HostedPartitions, on_copied: Callable[[Partition], None]) -> None:
        self._hosted = hosted
        self._on_copied = on_copied

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
                self._start_over(partition, answer)
                go_on()
                return ErrorCode.NONE
            if answer.error:
                return error_code(answer.error)
            if answer.diverging_epoch != NO_LEADER_EPOCH:
                self._truncate(partition, Divergence(answer.diverging_epoch, answer.diverging_end_offset))
                go_on()
                return ErrorCode.NONE
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
            log.append_as_follower(records)
            self._hosted.counters.replication_bytes_in += len(records)
        before = partition.follower_high_watermark
        partition.fetch_lag = max(answer.high_watermark - log.log_end_offset, 0)
        if self._advance(partition, answer):
            self._hosted.start_moved(partition)
        self._hosted.follower_advanced(partition, before, len(records))
        if partition.is_doubtful:
            self._on_copied(partition)
        if records:
            go_on()
        return ErrorCode.NONE

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

    def _truncate(self, partition: Partition, divergence: Divergence) -> None:
        log = partition.log
        offset = truncation_offset(
            log.epoch_and_end_offset_for,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            divergence=divergence,
        )
        self._lower(partition, offset, f"the leader's epoch {divergence.epoch} ends at {divergence.end_offset}")
        if offset <= log.log_start_offset:
            log.truncate_fully_and_start_at(log.log_start_offset)
        else:
            log.truncate_to(offset)
        # The log may end before `offset`: a batch is never cut, and offsets may be missing there.
        partition.follower_high_watermark = min(partition.follower_high_watermark, log.log_end_offset)

    def _start_over(self, partition: Partition, answer: ReplicaFetchedPartition) -> None:
        """Nothing of ours continues the leader's log: copy all of it."""
        start = answer.log_start_offset
        self._lower(partition, start, "outside of the leader's range")
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
