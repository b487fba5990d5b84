"""One replica's log: what an `AppendableLog` has, and truncation, flushes, retention, compaction, its end. No policy of replication.

A flush makes partition.metadata, the epoch file and the directory durable before it calls any record durable.
"""

from __future__ import annotations

from functools import partial

from kafkalite.env.fair_executor import FairExecutor
from kafkalite.env.fair_queue import Owner
from kafkalite.errors import ApiError, StorageError
from kafkalite.log.appendable_log import AppendableLog
from kafkalite.log.handles import HandleCache
from kafkalite.log.past_producers import producers_at
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.retention import SegmentFacts, segments_to_delete
from kafkalite.log.segment import Segment
from kafkalite.model import Offset, TopicId


class PartitionLog(AppendableLog):
    """One replica's log. Synchronous but for `flush`.

    Raises, everywhere: StorageError for what the operating system refuses, ApiError for what Kafka's rules refuse.
    """

    __slots__ = ()

    # --- epochs -----------------------------------------------------------------------------------

    def assign_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """This replica became the leader of `leader_epoch`, which starts here; kept across clean restarts (KAFKA-6361).

        The file gets it before the first batch of that epoch. Until then a crash forgets it, which changes no answer:
        without batches the epoch ends where the one before does. Thousands of files written at once would hold up a
        failover.
        """
        self._local.check_usable()
        if self._epochs.cache.assign(leader_epoch, start_offset):
            self._epochs.unsaved = True

    def take_topic_id(self, topic_id: TopicId) -> None:
        """This empty log, of which no topic is known, belongs to this one. partition.metadata is written before the first batch."""
        self._local.take_topic_id(topic_id)

    def record_copying(self, leader_epoch: int) -> None:
        """This empty log is about to take a leader's records, from the first one on; or (NO_LEADER_EPOCH) it has all of them. Durable
        before the records are."""
        with self._local.io("recording a copy"):
            self._local.record_copying(leader_epoch)

    # --- truncation -------------------------------------------------------------------------------

    def needs_producers(self, offset: int) -> bool:
        """Whether `truncate_to(offset)` has to find producers."""
        is_partial = max(self.log_start_offset + 1, self.first_offset) <= offset < self.log_end_offset
        return is_partial and self._has_producers

    async def producers_at(self, offset: int, executor: FairExecutor, owner: Owner) -> ProducerStates | None:
        """The producers as `truncate_to(offset)` leaves them, found off the loop, in the owner's turn.

        Returns None if the log was changed meanwhile, other than by an append. Raises StorageError, as `truncate_to`.
        """
        local, cuts, segments = self._local, self._local.cuts, list(self._local.segments)
        most = self.config.max_producer_ids
        find = partial(producers_at, self.disk, self.path, self.snapshot_offsets, segments, offset, most)
        found: ProducerStates | None = None
        error: OSError | ApiError | None = None
        try:
            found, _ = await executor.run(owner, find)
        except (OSError, ApiError) as failure:
            error = failure
        if local.closed or local.cuts != cuts or not local.holds(segments):
            return None
        if isinstance(error, OSError):
            raise self.storage_error("truncation", error) from error
        if error is not None:
            raise self._damaged(offset, error) from error
        return found

    def truncate_to(self, offset: int, producers: ProducerStates | None = None) -> None:
        """Forget all batches that reach to or beyond `offset`. A batch is never cut: the log may end before `offset`.

        Damage where it is to be cut is a StorageError: the log cannot follow its leader any more.

        Args:
            producers: as `producers_at` found them; None: they are found now, from the headers of up to a segment.
        """
        self._local.check_usable()
        if offset >= self.log_end_offset:
            # A leader that was replaced before it appended has recorded the start of its epoch at the end of its log. Its
            # successor does not know that epoch: the note must go, or the logs seem to part there for ever.
            if self._epochs.cache.truncate_from_end(self.log_end_offset):
                with self._local.io("truncation"):
                    self._epochs.save()
            return
        if offset < self._local.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            with self._local.io("truncation", changes=True):
                self._cut_to(offset)
                if self._epochs.cache.truncate_from_end(self.log_end_offset):
                    self._epochs.save()
                self._reload_producers(producers)
        except ApiError as error:
            raise self._damaged(offset, error) from error
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.durable_start_offset = min(self.durable_start_offset, self.log_start_offset)
        if self.events is not None:
            self.events.cut(self)

    def _damaged(self, offset: int, error: ApiError) -> StorageError:
        self._local.failed = True
        self.damaged_at = offset
        text = f"{self.topic_partition}: truncation failed: {error}"
        return StorageError(text, directory=self.directory, path=self.path)

    def expire_producers(self, now_ms: int, expiration_ms: int, now_s: float) -> int:
        """Remove producers that have been inactive for this time; returns their number.

        Args:
            now_ms: wall time.
            now_s: the same moment by the process's own clock.
        """
        return self._producers.expire(now_ms - expiration_ms, now_s, expiration_ms / 1000)

    def drop_silent_producers(self, most: int) -> int:
        """See ProducerStates.drop_silent."""
        return self._producers.drop_silent(most)

    # --- durability (kafkalite.log.flushing) --------------------------------------------------------

    def is_flush_due(self, now_ms: int) -> bool:
        """By flush.ms or flush.messages."""
        flusher, config = self._flusher, self.config
        since = flusher.unflushed_since_ms
        # A wall clock that was put back would otherwise put off the flush by as much.
        return (since is not None and not 0 <= now_ms - since < config.flush_ms) or (
            self.log_end_offset - flusher.synced_offset >= config.flush_messages
        )

    async def flush(self) -> Offset:
        """Make all that is appended now durable, off the loop; concurrent callers share one fsync.

        Returns the offset up to which everything is durable. Raises StorageError; after that the log takes no writes.
        """
        return await self._flusher.flush()

    async def flush_rolled(self) -> Offset:
        """As `flush`, but leave the active segment alone: moves the recovery point past segments that have rolled."""
        return await self._flusher.flush_rolled()

    async def sync_metadata(self) -> None:
        """Make partition.metadata, the epochs, rolled producer snapshots and the directory's entries durable."""
        await self._flusher.sync_metadata()

    # --- retention --------------------------------------------------------------------------------

    def start_saved(self, offset: int) -> None:
        """The checkpoint file has this log start."""
        self.durable_start_offset = min(self.log_start_offset, Offset(offset))

    def delete_old_segments(self, high_watermark: int, now_ms: int) -> list[str]:
        """Retention by time, size and log start; never beyond the high watermark.

        Returns the paths of the files taken out of service (renamed to *.deleted), to be removed later.
        """
        self._local.check_usable()
        facts: list[SegmentFacts] = []
        with self._local.io("retention"):
            by_time = self.config.retention_ms >= 0 and "delete" in self.config.cleanup_policy
            for segment in self._local.segments:
                largest = self._largest_timestamp(segment) if by_time and segment.size else 0
                if largest < 0:  # the producer gave none, or nobody can read it
                    largest = self.disk.modified_ms(segment.log_path)
                facts.append(SegmentFacts(segment.next_offset, segment.size, largest))
            count = segments_to_delete(
                facts, self.config, high_watermark=high_watermark, log_start_offset=self.log_start_offset, now_ms=now_ms
            )
            if not count:
                return []
            if count == self.segment_count:
                self._roll(self.log_end_offset).create()
            start = self.segments[count].base_offset
            self._snapshots.write_now(start)  # what is known of the producers is in no other file
            removed = self._local.take_oldest(count)
            self.log_start_offset = max(self.log_start_offset, Offset(start))
            # The file may have more: the next load forgets that.
            self._epochs.cache.truncate_from_start(self.log_start_offset)
            self._snapshots.remove(lambda offset: offset < start)
        return removed

    @staticmethod
    def _largest_timestamp(segment: Segment) -> int:
        """-1 if it cannot be found out: the segment is damaged. Raises OSError."""
        try:
            return segment.largest_timestamp()[0]
        except ApiError:
            return -1

    # --- compaction -------------------------------------------------------------------------------

    def empty_segment(self, base_offset: int) -> Segment:
        """A segment of this log, not in it yet."""
        return self._local.new_segment(base_offset)

    async def record_compaction(self, end: int) -> None:
        """A pass is about to remove offsets below `end`: durable when this returns. Raises OSError."""
        await self._local.record_compaction(end)

    async def replace_segments(
        self, sources: list[Segment], cleaned: Segment, cleaned_path: str, dropped_markers: set[int]
    ) -> bool:
        """Put a compacted segment, complete and synced at `cleaned_path`, in the place of `sources`.

        Crash-safe: once the file is called .swap (and that is durable) the next start finishes the work. A cut that comes before that is
        durable removes the file.
        Returns False, changing nothing, when the sources are not in the log as they were. Raises StorageError.
        """
        self._local.check_usable()
        if not self._local.holds(sources):
            return False
        return await self._local.replace(sources, cleaned, cleaned_path, dropped_markers)

    # --- moving to another disk --------------------------------------------------------------------

    def relocate(self, path: str) -> None:
        """Rename the directory; the next flush makes that durable. Nothing may be under way. Raises StorageError."""
        self._local.check_usable()
        assert not self._flusher.is_under_way
        self._local.relocate(path)

    def take_over(self, other: PartitionLog) -> None:
        """This log has every batch of `other` and takes its place: epochs begun without a batch, and the producers, which
        may know more than the batches that are left. Then a snapshot is taken, and for that a segment begun: the next start believes those
        at segments' beginnings only. Raises StorageError."""
        assert self.log_end_offset == other.log_end_offset
        for epoch, start in other.epoch_entries:
            if epoch > self.latest_epoch:
                self.assign_epoch_start(epoch, start)
        knows_more = len(other._producers) > len(self._producers)
        self._producers = other._producers
        if knows_more and not self.roll():
            with self._local.io("saving producers"):
                self._snapshots.take(self._producers, self.log_end_offset)
        if other.copying_in != self.copying_in:
            self.record_copying(other.copying_in)
        self.config = other.config
        self.events = other.events

    # --- the end ----------------------------------------------------------------------------------

    def prepare_clean_close(self) -> None:
        """Write the producers at the log's end, and the indexes, into the page cache: they make the next start fast."""
        with self._local.io("close"):
            if self._epochs.unsaved:
                self._epochs.save()
            if self.log_end_offset > self.log_start_offset or len(self._producers):
                self._snapshots.take_now(self._producers, self.log_end_offset)
            if self.config.preallocate:
                self._local.segments[-1].release()
            for segment in self._local.segments:
                if segment.save_indexes():
                    self._local.dir_dirty = True

    async def close_cleanly(self) -> None:
        """Make everything durable that the next start does not check. Call `close` afterwards. Raises StorageError."""
        self.prepare_clean_close()  # first, so that the directory is synced once for all files
        if self.is_dirty:
            await self.flush()
        await self._flusher.sync_indexes()

    def accept_gaps(self) -> None:
        """Offsets may be missing before the last segment, as after a compaction: it is used as it is. Raises OSError."""
        self._local.record_compacted(self._local.segments[-1].base_offset)

    def use_handles(self, handles: HandleCache) -> None:
        """Open files through this cache from now on."""
        self._local.use_handles(handles)

    def close(self) -> None:
        """Let go of the files. What was not flushed stays in the page cache."""
        self._local.closed = True
        self._local.close_files()
