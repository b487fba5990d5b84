"""One replica's log: append, read, truncate, flush, retention. Synchronous but for `flush`; no policy of replication.

Order of effects (rule IV: persist, then tell): an epoch's start is in its file before the first batch of that epoch;
offsets, producers and indexes change only after the write has returned. A flush makes partition.metadata, the epoch
file and the directory durable before it calls any record durable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kafkalite.config import TopicConfig
from kafkalite.env.fair_queue import Owner
from kafkalite.env.residency import ResidentOnly
from kafkalite.env.seams import Disk
from kafkalite.errors import ApiError, ErrorCode, StorageError, api_error
from kafkalite.log.appending import AppendInfo, duplicate_of, place_for, with_new_heads
from kafkalite.log.cold_reads import ColdReads
from kafkalite.log.epoch_file import LeaderEpochFile
from kafkalite.log.failures import is_shortage
from kafkalite.log.flushing import Flusher
from kafkalite.log.handles import HandleCache
from kafkalite.log.index import AbortedTxn
from kafkalite.log.local_log import LocalLog
from kafkalite.log.producer_state import CompletedTransaction, PreparedAppend, ProducerEntry, ProducerStates
from kafkalite.log.reading import (
    LogMoved,
    ReadInfo,
    aborted_transactions,
    candidate_for_timestamp,
    first_record,
    read_batches,
    sound_prefix,
)
from kafkalite.log.record_checks import RecordRules, rules_of
from kafkalite.log.recovery import LogParts, load_snapshot, replay
from kafkalite.log.retention import SegmentFacts, segments_to_delete
from kafkalite.log.segment import Segment
from kafkalite.log.snapshots import ProducerSnapshots
from kafkalite.log.validation import (
    CheckedRecords,
    Origin,
    batches_for_follower,
    batches_for_leader,
    begins_within,
    check_timestamps,
    has_gap,
    marker_in,
)
from kafkalite.model import Buffer, LeaderEpoch, Offset, TopicId, TopicPartition
from kafkalite.record.batch import BatchHeader, assign_in_place

#: So many times a look-up by timestamp begins again because the log was changed under it.
_LOOKUP_ATTEMPTS = 5


class PartitionLog:
    """One replica's log.

    Invariants: log_start_offset <= log_end_offset; recovery_point <= synced_offset <= log_end_offset.

    Raises, everywhere: StorageError for what the operating system refuses, ApiError for what Kafka's rules refuse.
    """

    __slots__ = (
        "_epochs", "_flusher", "_local", "_now_ms", "_producers", "_rules", "_snapshots", "clean_start", "config", "damaged_at",
        "directory", "disk", "durable_start_offset", "log_end_offset", "log_start_offset", "lowest_cut", "on_cut", "on_recovery_point_lowered",
        "topic_partition", "was_cut",
    )  # fmt: skip

    def __init__(
        self,
        topic_partition: TopicPartition,
        config: TopicConfig,
        *,
        disk: Disk,
        handles: HandleCache,
        directory: str,
        path: str,
        parts: LogParts,
        now_ms: Callable[[], int],
        is_new: bool = False,
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.disk = disk
        #: The log directory it lives in (one disk of several).
        self.directory = directory
        self._now_ms = now_ms
        #: The configuration, and what follows from it for records.
        self._rules = (config, rules_of(config))
        # After an unclean shutdown nobody knows what was synced: all of it counts as not durable.
        unclean = not parts.clean
        self._local = LocalLog(
            topic_partition, parts.topic_id, parts.segments, disk=disk, handles=handles, directory=directory, path=path,
            metadata_dirty=is_new or unclean, dir_dirty=unclean,
            compacted_to=parts.compacted_to, records_compactions=parts.records_compactions,
        )  # fmt: skip
        self._epochs = LeaderEpochFile(self._local, parts.epochs, dirty=unclean)
        self._producers = parts.producers
        self._snapshots = ProducerSnapshots(
            self._local, parts.snapshots, dirty=list(parts.snapshots) if unclean else []
        )
        self.log_start_offset = Offset(parts.log_start_offset)
        #: Where the log begins after a crash: as in the checkpoint file, or before it.
        self.durable_start_offset = self.log_start_offset
        #: `LocalLog.next_offset`, for those who ask at every request: set again after whatever moves it.
        self.log_end_offset = Offset(self._local.next_offset)
        self._flusher = Flusher(
            self._local,
            self._epochs,
            self._snapshots,
            recovery_point=Offset(min(parts.recovery_point, self.log_end_offset)),
            needs_checkpoint=parts.recovery_point_lowered,
        )
        #: Whether the last shutdown was clean: nothing that was written can have been lost (invariant F14).
        self.clean_start = parts.clean
        #: Whether opening it found bytes that were no records.
        self.was_cut = parts.was_cut
        #: Offset at which a read met damaged bytes; None while there was no such read.
        self.damaged_at: int | None = None
        #: The lowest end that a truncation has left since somebody who copies this log took note (see kafkalite.log.moving).
        self.lowest_cut: int | None = None
        #: Told when the recovery point went down; has to make that durable before it returns.
        self.on_recovery_point_lowered: Callable[[PartitionLog], None] | None = None
        #: Called when a truncation has lowered the log's end.
        self.on_cut: Callable[[PartitionLog], None] | None = None

    # --- state ------------------------------------------------------------------------------------

    @property
    def topic_id(self) -> TopicId:
        return self._local.topic_id

    @property
    def path(self) -> str:
        """Its own directory, `<directory>/<topic>-<partition>`."""
        return self._local.path

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._local.segments)

    @property
    def segment_count(self) -> int:
        return len(self._local.segments)

    @property
    def first_offset(self) -> int:
        """Base offset of the oldest segment."""
        return self._local.segments[0].base_offset

    @property
    def segments(self) -> list[Segment]:
        """Oldest first, the active one last. For the cleaner and for tests; not to be changed."""
        return self._local.segments

    @property
    def record_rules(self) -> RecordRules:
        """What it asks of records, by its configuration."""
        config, rules = self._rules
        if config is not self.config:
            rules = rules_of(self.config)
            self._rules = (self.config, rules)
        return rules

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self._epochs.cache.latest_epoch)

    @property
    def epoch_entries(self) -> list[tuple[int, int]]:
        """(leader epoch, start offset), as in the leader-epoch-checkpoint."""
        return self._epochs.cache.entries()

    @property
    def is_failed(self) -> bool:
        """A write or an fsync failed: what the disk holds is not known any more, so nothing more is written."""
        return self._local.failed

    @property
    def sync_failed(self) -> bool:
        """An fsync failed: the page cache may show what the disk does not have."""
        return self._local.sync_failed

    @property
    def is_closed(self) -> bool:
        return self._local.closed

    def active_producers(self) -> dict[int, ProducerEntry]:
        return self._producers.active()

    def storage_error(self, what: str, error: OSError) -> StorageError:
        return self._local.storage_error(what, error)

    # --- append -----------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: Origin = "client",
        guard: int | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Check every batch, give offsets, write. All or nothing.

        A writable buffer gets base offset and leader epoch written into it; otherwise new heads go out beside it.

        Args:
            guard: as `begin_verification` gave it; None: a transaction may begin here unverified.
            transaction_version: of a marker; see ProducerStates.prepare.

        Raises:
            ApiError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP,
                UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER,
                INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED. StorageError.
        """
        self._local.check_usable()
        config = self.config
        view = memoryview(records).cast("B")
        batches = batches_for_leader(view, config, origin, keys_checked=type(records) is CheckedRecords)
        if origin == "client" and config.message_timestamp_type == "CreateTime":
            check_timestamps(batches, config, self._now_ms())
        prepared: PreparedAppend | None = None
        offset = self.log_end_offset
        bases: list[int] = []
        for position, header in batches:
            bases.append(offset)
            if header.producer_id >= 0:
                if prepared is None:
                    if origin == "client" and (known := duplicate_of(batches, self._producers, config)) is not None:
                        return known
                    prepared = PreparedAppend()
                if guard is not None:
                    self._producers.check_verified(header, guard)
                self._producers.prepare(
                    prepared, header, offset, marker_in(view, position, header),
                    from_client=origin == "client", replicated=False, transaction_version=transaction_version,
                )  # fmt: skip
            offset = Offset(offset + header.last_offset_delta + 1)
        append_time = self._now_ms() if config.message_timestamp_type == "LogAppendTime" else -1
        buffers: list[list[Buffer]] | memoryview
        if append_time < 0 and not view.readonly:
            for (position, _), base in zip(batches, bases):
                assign_in_place(view, position, base, leader_epoch)
            buffers = view
        else:
            buffers = with_new_heads(view, batches, bases, leader_epoch, append_time)
        epochs = ((leader_epoch, bases[0]),)
        return self._write(batches, bases, buffers, prepared, epochs, append_time)

    def begin_verification(self, producer_id: int, producer_epoch: int, sequence: int) -> int:
        """See ProducerStates.begin_verification."""
        return self._producers.begin_verification(producer_id, producer_epoch, sequence)

    def coordinator_epoch(self, producer_id: int) -> int:
        """See ProducerStates.coordinator_epoch."""
        return self._producers.coordinator_epoch(producer_id)

    def end_verification(self, producer_id: int, guard: int) -> None:
        """See ProducerStates.end_verification."""
        self._producers.end_verification(producer_id, guard)

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Take a leader's batches as they are; they must continue at `log_end_offset`. All or nothing.

        An empty log may also begin with the batch in which it starts: DeleteRecords can end within a batch.

        Raises:
            ApiError: CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE (they don't continue here). StorageError.
        """
        self._local.check_usable()
        view = memoryview(records).cast("B")
        start = self.log_start_offset
        base = begins_within(view, start) if self.log_end_offset == start else None
        batches = batches_for_follower(view, self.log_end_offset if base is None else base)
        if base is not None:
            self.truncate_fully_and_start_at(base)
        if not batches:
            return AppendInfo(self.log_end_offset, self.log_end_offset - 1, -1, -1, 0, 0)
        if self._local.compacted_to < 0 and has_gap(batches, self.log_end_offset):
            with self._local.io("noting that offsets are missing"):
                self._local.record_copied_gap()
        prepared: PreparedAppend | None = None
        bases: list[int] = []
        epochs: list[tuple[int, int]] = []
        last_epoch = self._epochs.cache.latest_epoch
        for position, header in batches:
            base = header.base_offset
            bases.append(base)
            if header.partition_leader_epoch != last_epoch:
                last_epoch = header.partition_leader_epoch
                epochs.append((last_epoch, base))
            if header.producer_id >= 0:
                prepared = prepared or PreparedAppend()
                self._producers.prepare(
                    prepared, header, base, marker_in(view, position, header), from_client=False, replicated=True
                )
        info = self._write(batches, bases, view, prepared, epochs, -1)
        self.advance_log_start_offset(start)
        return info

    def _write(
        self,
        batches: list[tuple[int, BatchHeader]],
        bases: list[int],
        buffers: list[list[Buffer]] | memoryview,
        prepared: PreparedAppend | None,
        epochs: tuple[tuple[int, int], ...] | list[tuple[int, int]],
        append_time: int,
    ) -> AppendInfo:
        """Write the batches, one system call per segment they fall into (nearly always one), then account for them.

        `buffers`: per batch what to write, or the bytes in which all of them lie at their positions, ready to be written.
        """
        start, max_timestamp, total = self.log_end_offset, -1, 0
        config, local, epoch_file = self.config, self._local, self._epochs
        if epochs or epoch_file.unsaved:
            changed = epoch_file.unsaved
            for epoch, offset in epochs:
                changed = epoch_file.cache.assign(epoch, offset) or changed
            if changed:
                epoch_file.unsaved = True
                with local.io("writing the leader epochs"):
                    epoch_file.save()
        interval = config.index_interval_bytes
        first = 0
        is_begun = False
        try:
            while first < len(batches):
                segment = local.segments[-1]
                is_new, count = place_for(config, segment, batches, bases, first, append_time)
                is_begun = is_begun or is_new
                if is_new:
                    if first and prepared is not None:  # the snapshot at the segment's end has what the segment has
                        self._record_ended(self._producers.apply_until(prepared, bases[first]))
                    # At the log's end, not where the batch begins: offsets that a compaction removed are missing within a
                    # segment, and between segments nothing is missing that was not lost.
                    last = bases[first + count - 1] + batches[first + count - 1][1].last_offset_delta
                    is_near = segment.size and last - self.log_end_offset < 2**31
                    segment = self._roll(self.log_end_offset if is_near else bases[first])
                before = segment.size
                newest = local.write(batches, bases, buffers, first, first + count, append_time, interval)
                max_timestamp = max(max_timestamp, newest)
                total += segment.size - before
                self.log_end_offset = Offset(local.next_offset)
                is_begun = True
                first += count
        except OSError as error:
            # If a write failed for lack of descriptors or memory, and was cut off again, the log is unchanged.
            local.failed = local.failed or is_begun or not is_shortage(error)
            if self.log_end_offset > start:  # an earlier segment took its part: all or nothing
                with local.io("undoing an append"):
                    self._cut_to(start)
                    self._reload_producers()
            raise self.storage_error("append", error) from error
        if prepared is not None:
            self._record_ended(self._producers.apply(prepared))
        flusher = self._flusher
        if flusher.unflushed_since_ms is None:
            flusher.unflushed_since_ms = self._now_ms()
        return AppendInfo(bases[0], self.log_end_offset - 1, max_timestamp, append_time, len(batches), total)

    def _record_ended(self, aborted: list[tuple[CompletedTransaction, int]]) -> None:
        local = self._local
        for done, stable in aborted:
            entry = AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable)
            local.segments[local.segment_number(done.last_offset)].add_aborted(entry)

    def _roll(self, base_offset: int) -> Segment:
        """Close the active segment and begin the next. Raises OSError."""
        if self._flusher.needs_checkpoint and self.on_recovery_point_lowered is not None:
            self.on_recovery_point_lowered(self)
        if self._local.end_segment():
            self._snapshots.take(self._producers, self.log_end_offset)
        return self._local.begin_segment(base_offset)

    def roll(self) -> bool:
        """Begin a new segment if the active one has anything in it; returns whether it did."""
        local = self._local
        local.check_usable()
        if not local.segments[-1].size:
            return False
        with local.io("roll", changes=True):
            self._roll(self.log_end_offset).create()
            local.dir_dirty = True
        return True

    # --- read -------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_offset: int | None = None,
        min_one_batch: bool = True,
        verify: bool = True,
        may_wait: bool = True,
    ) -> ReadInfo:
        """Whole batches from the one that holds `offset`, all of them below `max_offset` (exclusive: HW or LSO).

        Args:
            max_bytes: not more than this, but for the first batch when `min_one_batch`.
            verify: check every CRC and cut the answer before damage; a follower checks for itself.
            may_wait: for the disk. Otherwise it raises NotResident if something is not in the page cache.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE (below the log start, beyond the log end); CORRUPT_MESSAGE (the batch at
                `offset` is damaged on disk). StorageError.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise api_error(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log_start_offset}..{self.log_end_offset}",
            )
        limit = self.log_end_offset if max_offset is None else min(max_offset, self.log_end_offset)
        if offset >= limit:
            return ReadInfo(offset, [], 0, offset)
        try:
            if may_wait:
                return self._read(offset, max_bytes, limit, min_one_batch=min_one_batch, verify=verify)
            with ResidentOnly():
                return self._read(offset, max_bytes, limit, min_one_batch=min_one_batch, verify=verify)
        except OSError as error:
            raise self.storage_error("read", error) from error
        except ApiError:
            self.damaged_at = offset
            raise

    def _read(self, offset: int, max_bytes: int, limit: int, *, min_one_batch: bool, verify: bool) -> ReadInfo:
        piece = read_batches(self._local, offset, max_bytes, limit, min_one_batch=min_one_batch)
        if piece is None:
            return ReadInfo(offset, [], 0, offset)
        data, end = sound_prefix(self._local, piece, offset, limit) if verify else (piece.data, limit)
        return ReadInfo(offset, [data], len(data), end)

    async def offset_for_timestamp(
        self, timestamp_ms: int, cold: ColdReads, owner: Owner
    ) -> tuple[int, Offset, LeaderEpoch] | None:
        """(timestamp, offset, leader epoch) of the first record whose timestamp is >= `timestamp_ms`; None if none.

        The records of a batch are looked at off the loop, in the owner's turn. Raises ApiError CORRUPT_MESSAGE, OFFSET_NOT_AVAILABLE (the log was
        changed under each attempt); StorageError.
        """
        behind, changes = -1, 0
        while changes < _LOOKUP_ATTEMPTS:
            with self._local.io("look-up by timestamp"):
                candidate = candidate_for_timestamp(self._local.segments, timestamp_ms, self.log_start_offset, behind)
                if candidate is None:
                    return None
                look = partial(first_record, self.disk, candidate, timestamp_ms, self.log_start_offset)
                try:
                    found, _ = await cold.lane(self.directory).run(owner, look)
                except LogMoved:
                    changes += 1
                    continue
            if found is not None:
                return found
            behind = candidate.header.last_offset
        raise api_error(ErrorCode.OFFSET_NOT_AVAILABLE, "the log was changed during the look-up")

    async def max_timestamp_offset(self, cold: ColdReads, owner: Owner) -> tuple[int, Offset, LeaderEpoch] | None:
        """(timestamp, offset, leader epoch) of the first record with the largest timestamp; None if there is none."""
        await self.load_timestamps(cold, owner)
        with self._local.io("look-up by timestamp"):
            largest = max((segment.largest_timestamp()[0] for segment in self._local.segments), default=-1)
        return await self.offset_for_timestamp(largest, cold, owner) if largest >= 0 else None

    @property
    def needs_timestamps(self) -> bool:
        """Whether `load_timestamps` has anything to do."""
        return any(segment.max_timestamp is None for segment in self._local.segments)

    async def load_timestamps(self, cold: ColdReads, owner: Owner) -> None:
        """Have the largest timestamp of each segment in memory, without waiting for the disk on the loop. Raises StorageError."""
        with self._local.io("reading timestamps"):
            for segment in list(self._local.segments):
                if segment.max_timestamp is None:
                    await cold.attempt(owner, self.directory, partial(_largest_timestamp, self._local, segment))

    # --- epochs -----------------------------------------------------------------------------------

    def epoch_and_end_offset_for(self, requested_epoch: int) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch <= `requested_epoch` in this log, and where it ends (invariant F2); (-1, -1) if there is none."""
        return self._epochs.cache.end_offset_for(requested_epoch, self.log_end_offset)

    def assign_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """This replica became the leader of `leader_epoch`, which starts here; kept across clean restarts (KAFKA-6361).

        The file gets it before the first batch of that epoch. Until then a crash forgets it, which changes no answer:
        without batches the epoch ends where the one before does. Thousands of files written at once would hold up a
        failover.
        """
        self._local.check_usable()
        if self._epochs.cache.assign(leader_epoch, start_offset):
            self._epochs.unsaved = True

    def write_metadata(self) -> None:
        """Put partition.metadata into the page cache; `sync_metadata` or the first flush makes it durable."""
        with self._local.io("writing partition.metadata"):
            self._local.write_metadata()

    # --- truncation -------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Forget all batches that reach to or beyond `offset`. A batch is never cut: the log may end before `offset`."""
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
        with self._local.io("truncation", changes=True):
            self._cut_to(offset)
            if self._epochs.cache.truncate_from_end(self.log_end_offset):
                self._epochs.save()
            self._reload_producers()
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.durable_start_offset = min(self.durable_start_offset, self.log_start_offset)
        if self.on_cut is not None:
            self.on_cut(self)

    def _cut_to(self, offset: int) -> None:
        """Cut the segments; offsets follow. Raises OSError."""
        self._local.cut_to(offset)
        self.log_end_offset = Offset(self._local.next_offset)
        self._record_truncation(self.log_end_offset)
        # The cut itself is not durable yet: after a power loss the tail may be back, so the whole segment counts as
        # unchecked until the next flush, even when the cut is at or above the recovery point.
        self._flusher.lower(self.log_end_offset, recovery_point=self._local.segments[-1].base_offset)

    def _record_truncation(self, end: int) -> None:
        self.lowest_cut = end if self.lowest_cut is None else min(self.lowest_cut, end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the next record gets `offset`."""
        local, flusher = self._local, self._flusher
        local.check_usable()
        local.dir_dirty = True
        with local.io("truncation", changes=True):
            for segment in local.segments:
                segment.remove()
            start = min(offset, self.log_start_offset)
            self._record_truncation(start)
            flusher.lower(Offset(start), recovery_point=start)
            local.start_at(offset)
            self.log_start_offset = self.log_end_offset = Offset(offset)
            self.durable_start_offset = min(self.durable_start_offset, self.log_start_offset)
            flusher.synced_offset = Offset(min(flusher.synced_offset, offset))
            flusher.recovery_point = Offset(min(flusher.recovery_point, offset))
            if self._epochs.cache.clear():
                self._epochs.save()
            self._snapshots.remove(lambda _: True)
            self._producers = ProducerStates()
        if self.on_cut is not None:
            self.on_cut(self)

    # --- producers and transactions ---------------------------------------------------------------

    def _reload_producers(self) -> None:
        """After a truncation: the newest snapshot that still holds, and the batches behind it."""
        end = self.log_end_offset
        self._snapshots.remove(lambda offset: offset > end)
        self._producers, start = load_snapshot(self.disk, self.path, self._snapshots.offsets)
        for _ in replay(self._producers, self._local.segments, start):
            pass

    @property
    def first_unstable_offset(self) -> Offset | None:
        """Of the earliest transaction that is open or whose end is not known to be committed; None if there is none."""
        first = self._producers.first_unstable_offset
        return None if first is None else Offset(first)

    def last_stable_offset(self, high_watermark: int) -> Offset:
        """Where readers of committed transactions stop."""
        self._producers.forget_replicated(high_watermark)
        first = self._producers.first_unstable_offset
        return Offset(high_watermark if first is None else min(first, high_watermark))

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        """Those that overlap [from_offset, to_offset), for readers of committed transactions."""
        with self._local.io("reading aborted transactions"):
            return aborted_transactions(self._local, from_offset, to_offset)

    def expire_producers(self, now_ms: int, expiration_ms: int, now_s: float) -> int:
        """Remove producers that have been inactive for this time; returns their number.

        Args:
            now_ms: wall time.
            now_s: the same moment by the process's own clock.
        """
        return (
            self._producers.expire(now_ms - expiration_ms, now_s, expiration_ms / 1000) if len(self._producers) else 0
        )

    # --- durability (kafkalite.log.flushing) --------------------------------------------------------

    @property
    def synced_offset(self) -> Offset:
        """Everything below is on the disk itself, not only in the page cache."""
        return self._flusher.synced_offset

    @property
    def recovery_point(self) -> Offset:
        """The next start after an unclean shutdown need not check what is below."""
        return self._flusher.recovery_point

    @property
    def needs_checkpoint(self) -> bool:
        """The recovery point in the checkpoint file is higher than ours."""
        return self._flusher.needs_checkpoint

    @needs_checkpoint.setter
    def needs_checkpoint(self, needs: bool) -> None:
        self._flusher.needs_checkpoint = needs

    def is_flush_due(self, now_ms: int) -> bool:
        """By flush.ms or flush.messages."""
        flusher, config = self._flusher, self.config
        since = flusher.unflushed_since_ms
        # A wall clock that was put back would otherwise put off the flush by as much.
        return (since is not None and not 0 <= now_ms - since < config.flush_ms) or (
            self.log_end_offset - flusher.synced_offset >= config.flush_messages
        )

    @property
    def has_rolled(self) -> bool:
        """Whether `flush_rolled` has anything to do."""
        return self._flusher.recovery_point < self._local.segments[-1].base_offset

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would have anything to do."""
        return self._flusher.is_dirty

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

    def advance_log_start_offset(self, offset: int) -> bool:
        """Records below `offset` are not to be served any more (DeleteRecords). Returns whether it moved.

        A crash brings them back until the checkpoint file has it, see `LogManager.save_log_start`.
        """
        self._local.check_usable()
        if offset > self.log_end_offset:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the end {self.log_end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = Offset(offset)
        if self._epochs.cache.truncate_from_start(offset):
            with self._local.io("writing the leader epochs"):
                self._epochs.save()
        return True

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
                largest = segment.largest_timestamp()[0] if by_time and segment.size else 0
                if largest < 0:  # the producer gave none
                    largest = self.disk.modified_ms(segment.log_path)
                facts.append(SegmentFacts(segment.next_offset, segment.size, largest))
            count = segments_to_delete(
                facts, self.config, high_watermark=high_watermark, log_start_offset=self.log_start_offset, now_ms=now_ms
            )
            if not count:
                return []
            if count == self.segment_count:
                self._roll(self.log_end_offset).create()
            removed = self._local.take_oldest(count)
            start = self.first_offset
            self.log_start_offset = max(self.log_start_offset, Offset(start))
            if self._epochs.cache.truncate_from_start(self.log_start_offset):
                self._epochs.save()
            self._snapshots.remove(lambda offset: offset < start)
        return removed

    # --- compaction -------------------------------------------------------------------------------

    @property
    def is_compacted(self) -> bool:
        """A compaction has removed offsets, here or before the batches were copied."""
        return self._local.compacted_to >= 0

    @property
    def cuts(self) -> int:
        """Changes whenever segments are cut, removed or renamed, other than by `replace_segments`."""
        return self._local.cuts

    def empty_segment(self, base_offset: int) -> Segment:
        """A segment of this log, not in it yet."""
        return self._local.new_segment(base_offset)

    def replace_segments(
        self, sources: list[Segment], cleaned: Segment, cleaned_path: str, dropped_markers: set[int]
    ) -> bool:
        """Put a compacted segment, complete and synced at `cleaned_path`, in the place of `sources`.

        Crash-safe: once the file is called .swap (and that is durable) the next start finishes the work.
        Returns False, changing nothing, when the sources are not in the log as they were. Raises StorageError.
        """
        self._local.check_usable()
        if not self._local.holds(sources):
            return False
        self._local.replace(sources, cleaned, cleaned_path, dropped_markers)
        return True

    # --- moving to another disk --------------------------------------------------------------------

    def relocate(self, path: str) -> None:
        """Rename the directory; the next flush makes that durable. Nothing may be under way. Raises StorageError."""
        self._local.check_usable()
        assert not self._flusher.is_under_way
        self._local.relocate(path)

    def take_over(self, other: PartitionLog) -> None:
        """This log has every batch of `other` and takes its place: epochs begun without a batch, and the producers, which
        may know more than the batches that are left."""
        assert self.log_end_offset == other.log_end_offset
        for epoch, start in other.epoch_entries:
            if epoch > self.latest_epoch:
                self.assign_epoch_start(epoch, start)
        self._producers = other._producers
        self.config = other.config
        self.on_recovery_point_lowered = other.on_recovery_point_lowered

    # --- the end ----------------------------------------------------------------------------------

    def prepare_clean_close(self) -> None:
        """Write the producers at the log's end, and the indexes, into the page cache: they make the next start fast."""
        with self._local.io("close"):
            if self._epochs.unsaved:
                self._epochs.save()
            if self.log_end_offset > self.log_start_offset or len(self._producers):
                self._snapshots.take(self._producers, self.log_end_offset)
            for segment in self._local.segments:
                if segment.save_indexes():
                    self._local.dir_dirty = True

    async def close_cleanly(self) -> None:
        """Make everything durable that the next start does not check. Call `close` afterwards. Raises StorageError."""
        if self.is_dirty:
            await self.flush()
        self.prepare_clean_close()
        await self._flusher.sync_indexes()

    def use_handles(self, handles: HandleCache) -> None:
        """Open files through this cache from now on."""
        self._local.use_handles(handles)

    def close(self) -> None:
        """Let go of the files. What was not flushed stays in the page cache."""
        self._local.closed = True
        self._local.close_files()


def _largest_timestamp(local: LocalLog, segment: Segment) -> None:
    """Unless the segment has gone meanwhile."""
    if not local.closed and segment in local.segments:
        segment.largest_timestamp()


__all__ = ["AppendInfo", "LogParts", "PartitionLog", "ReadInfo"]
