"""Planted errors of the log, its files and disks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from kafkalite.errors import ApiError
from kafkalite.log import checkpoints, cleaner, loader, partition_log, producer_state, recovery, retention
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.doubts import UncertainEnds
from kafkalite.log.flushing import Flusher
from kafkalite.log.local_log import LocalLog
from kafkalite.log.log_dir import STRAY_SUFFIX, LogDir
from kafkalite.log.offset_checkpoints import OffsetCheckpoints
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.readable_log import ReadableLog
from kafkalite.log.removals import Removals
from kafkalite.log.segment import Segment
from kafkalite.log.transaction_index import TransactionIndex
from kafkalite.model import INTERNAL_TOPICS, Offset, TopicPartition
from kafkalite.replica.log_starts import LogStarts
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.testing.simulated.disk import SimDisk
from kafkalite.testing.simulation.plants.patch import Patch


def no_fsync(patch: Patch) -> None:
    """With log.flush.before.ack, a flush that does nothing."""

    async def flush(self: Flusher) -> Any:
        self.synced_offset = Offset(self.local.next_offset)
        return self.synced_offset

    patch(Flusher, "flush", flush)


def no_deduplication(patch: Patch) -> None:
    """A producer's retry is appended again (invariant F25)."""
    patch(ProducerStates, "find_duplicate", lambda self, header: None)
    patch(producer_state, "_check_sequence", lambda entry, header: None)


def retries_of_what_has_ended(patch: Patch) -> None:
    """A batch with the sequence of a transaction that has ended counts as a retry of it (ADR 17)."""
    found = ProducerStates.find_duplicate

    def planted(self: ProducerStates, header: Any) -> Any:
        try:
            return found(self, header)
        except ApiError:
            same = [
                kept for kept in self.active()[header.producer_id].batches if kept.last_sequence == header.last_sequence
            ]
            return same[0]

    patch(ProducerStates, "find_duplicate", planted)


def deleted_for_a_minute(patch: Patch) -> None:
    """DeleteRecords is answered before the log start is saved, as in Kafka: it survives no crash of all replicas."""
    patch(LogStarts, "save", lambda self, partition: self._hosted.start_saved(partition))
    patch(PartitionLog, "durable_start_offset", property(lambda self: self.log_start_offset, lambda self, offset: None))


def last_copy_set_aside(patch: Patch) -> None:
    """A log that has failed is set aside at once, and removed after the delay, whether or not another copy is known."""

    async def reopen_failed(self: DirFailures, log_dir: LogDir) -> None:
        for topic_partition in sorted(log_dir.failed):
            self.take_failed_away(topic_partition, STRAY_SUFFIX)

    patch(DirFailures, "reopen_failed", reopen_failed)
    patch(Removals, "_may_go", lambda self, stray: True)


def two_writers_of_a_checkpoint(patch: Patch) -> None:
    """Two saves of a directory's checkpoints at once, which share the name of the file beside it."""

    async def save_offsets(self: OffsetCheckpoints) -> None:
        for log_dir in self._pool.online():
            points: dict[TopicPartition, int] = {
                log.topic_partition: log.recovery_point for log in self._pool.logs_in(log_dir)
            }

            def save(log_dir: LogDir = log_dir, points: dict[TopicPartition, int] = points) -> None:
                log_dir.write_offsets(checkpoints.RECOVERY_POINTS, points, durable=True)

            try:
                await log_dir.off_loop(save)
            except OSError as error:
                self._failures.file_failed(log_dir, "saving offsets", error)

    patch(OffsetCheckpoints, "save_offsets", save_offsets)
    patch(SimDisk, "beside", lambda self, path: nullcontext(f"{path}.tmp"))


def stops_at_an_empty_segment(patch: Patch) -> None:
    """Retention and DeleteRecords remove nothing behind a segment that a compaction has emptied."""
    rule = retention.segments_to_delete

    def planted(segments: Sequence[retention.SegmentFacts], config: Any, **known: int) -> int:
        return min(
            rule(segments, config, **known),
            next((n for n, segment in enumerate(segments) if not segment.size_bytes), len(segments)),
        )

    patch(partition_log, "segments_to_delete", planted)


def unsynced_transaction_indexes(patch: Patch) -> None:
    """The transaction index of a segment is never synced, and taken as it is found after a loss of power."""

    async def sync_indexes(self: Flusher, segment: Segment) -> None:
        segment.indexes_synced = True

    patch(Flusher, "_sync_indexes", sync_indexes)
    patch(TransactionIndex, "to_sync", lambda self: None)
    patch(loader, "_is_doubtful", lambda segment, segments, names, clean: False)


def trusts_closed_segments(patch: Patch) -> None:
    """What was below the recovery point is taken to be there after a loss of power, as in Kafka."""
    patch(loader, "_check_ends", lambda segments, checked_from, compacted_to: None)


def trusts_logs_with_a_hole(patch: Patch) -> None:
    """With log.flush.before.ack, what is cut off a log is taken to be what nobody had an answer for, wherever it was."""
    patch(recovery, "_has_records", lambda segments, first: False)


def remembers_what_has_ended(patch: Patch) -> None:
    """Ended transactions are forgotten only where somebody reads."""
    patch(ReadableLog, "forget_ended", lambda self, high_watermark: None)


def compacts_no_internal_topic(patch: Patch) -> None:
    """What coordinators write is never compacted."""
    due = cleaner.plan

    def planted(log: PartitionLog, *known: Any, **more: Any) -> Any:
        return None if log.topic_partition.topic in INTERNAL_TOPICS else due(log, *known, **more)

    patch(cleaner, "plan", planted)


def cuts_beside_a_swap(patch: Patch) -> None:
    """A cut leaves the file of a compacted segment that is about to replace what is cut: the next start brings it back."""

    def planted(self: LocalLog) -> None:
        self.pending_swap = ""

    patch(LocalLog, "drop_swap", planted)


def trusts_old_copies(patch: Patch) -> None:
    """ADR 16: a log directory counts as the one that the node had when it ran last."""
    patch(UncertainEnds, "_last_start", lambda self: 2**62)


def tombstones_for_a_while(patch: Patch) -> None:
    """ADR 76: a tombstone goes after delete.retention.ms, as in Kafka, also while a replica is away."""
    patch(ReplicaManager, "all_in_sync", lambda self, topic_partition: True)


def forgets_offline_disks(patch: Patch) -> None:
    """ADR 61: a broker confirms a deletion although a disk of it is away, and keeps what the disk brings back."""
    patch(LogPool, "has_offline_dir", property(lambda self: False))
