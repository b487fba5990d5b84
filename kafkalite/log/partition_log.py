"""One replica's log: append, read, truncate, flush, retention. Synchronous but for `flush`; no policy of replication.

Order of effects (rule IV: persist, then tell): an epoch's start is in its file before the first batch of that epoch;
offsets, producers and indexes change only after the write has returned. A flush makes partition.metadata, the epoch
file and the directory durable before it calls any record durable.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from kafkalite.config import TopicConfig
from kafkalite.env.seams import Buffer, Disk, File
from kafkalite.errors import ApiError, ErrorCode, StorageError, api_error
from kafkalite.log import checkpoints
from kafkalite.log.epoch_cache import LeaderEpochCache
from kafkalite.log.handles import HandleCache
from kafkalite.log.index import AbortedTransaction
from kafkalite.log.producer_state import PreparedAppend, ProducerEntry, ProducerStates
from kafkalite.log.retention import SegmentFacts, segments_to_delete
from kafkalite.log.segment import SNAPSHOT, Segment, file_name
from kafkalite.log.validation import Origin, batches_for_follower, batches_for_leader, marker_in, must_roll
from kafkalite.model import LeaderEpoch, Offset, TopicId, TopicPartition
from kafkalite.record.batch import (
    ASSIGNED_SIZE,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    assign_in_place,
    assigned_head,
    crc_of,
    stamped_header,
)
from kafkalite.record.reader import records_of


class AppendInfo(NamedTuple):
    """What an append did (a tuple: cheap to make, one per append). `duplicate`: an idempotent producer's retry; the offsets are those of the first time."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    batches: int
    size_bytes: int
    duplicate: bool = False


class ReadInfo(NamedTuple):
    """Whole batches from the one that holds `offset` on. `first_entry_incomplete` is never set: batches are not cut."""

    offset: int
    records: list[bytes | memoryview]
    size_bytes: int
    first_entry_incomplete: bool = False


@dataclass(slots=True)
class LogParts:
    """What loading a partition's directory found (see kafkalite.log.loader)."""

    segments: list[Segment]
    epochs: LeaderEpochCache
    producers: ProducerStates
    snapshots: list[int]
    log_start_offset: int
    recovery_point: int
    topic_id: TopicId
    clean: bool
    #: The recovery point in the checkpoint file is too high (recovery cut below it).
    recovery_point_lowered: bool = False


class PartitionLog:
    """One replica's log.

    Invariants: log_start_offset <= log_end_offset; recovery_point <= synced_offset <= log_end_offset; segments are
    in offset order, the last one is the active one, and there is always one.

    Raises, everywhere: StorageError for what the operating system refuses, ApiError for what Kafka's rules refuse.
    """

    __slots__ = (
        "_closed", "_dir_dirty", "_epochs", "_epochs_dirty", "_epochs_unsaved", "_failed", "_flushing", "_handles", "_metadata_dirty", "_now_ms", "_producers",
        "_segments", "_snapshots", "_snapshots_dirty", "_sync_ceiling", "clean_start", "config", "damaged_at", "directory",
        "disk", "log_end_offset", "log_start_offset", "lowest_cut", "needs_checkpoint", "on_recovery_point_lowered", "path",
        "recovery_point", "synced_offset", "topic_id", "topic_partition", "unflushed_since_ms",
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
        #: Its own directory, `<directory>/<topic>-<partition>`.
        self.path = path
        self.topic_id = parts.topic_id
        self._handles = handles
        self._segments = parts.segments
        self._epochs = parts.epochs
        self._producers = parts.producers
        self._snapshots = parts.snapshots
        self._now_ms = now_ms
        self.log_start_offset = Offset(parts.log_start_offset)
        self.log_end_offset = Offset(self._segments[-1].next_offset)
        self.recovery_point = Offset(min(parts.recovery_point, self.log_end_offset))
        #: Everything below is on the disk itself, not only in the page cache.
        self.synced_offset = self.recovery_point
        #: Whether the last shutdown was clean: nothing that was written can have been lost (F14).
        self.clean_start = parts.clean
        #: Offset at which a read met damaged bytes; None while there was no such read.
        self.damaged_at: int | None = None
        #: The lowest end that a truncation has left since somebody who copies this log took note (see kafkalite.log.moving).
        self.lowest_cut: int | None = None
        self._failed = False
        self._closed = False
        self._flushing: asyncio.Future[None] | None = None
        #: A flush under way proves nothing at or above this offset (the log was truncated meanwhile).
        self._sync_ceiling: int | None = None
        #: partition.metadata and the directory itself are not durable yet (a new log: see `sync_metadata`).
        #: After an unclean shutdown nobody knows what of it was synced.
        self._metadata_dirty = is_new or not parts.clean
        self._epochs_dirty = not parts.clean
        #: The epoch file lacks an epoch that has begun here and has no batch yet.
        self._epochs_unsaved = False
        #: Segments came, went or were cut: the next flush syncs the directory and the active segment, dirty or not.
        self._dir_dirty = not parts.clean
        self._snapshots_dirty: list[int] = [] if parts.clean else list(parts.snapshots)
        #: Told when the recovery point went down; has to make that durable before it returns.
        self.on_recovery_point_lowered: Callable[[PartitionLog], None] | None = None
        #: The recovery point in the checkpoint file is higher than ours.
        self.needs_checkpoint = parts.recovery_point_lowered
        #: When the oldest record that is not flushed came (flush.ms); None when all is flushed.
        self.unflushed_since_ms: int | None = None

    # --- state ------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def first_offset(self) -> int:
        """Base offset of the oldest segment."""
        return self._segments[0].base_offset

    @property
    def segments(self) -> list[Segment]:
        """Oldest first, the active one last. For the cleaner and for tests; not to be changed."""
        return self._segments

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self._epochs.latest_epoch)

    @property
    def epoch_entries(self) -> list[tuple[int, int]]:
        """(leader epoch, start offset), as in the leader-epoch-checkpoint."""
        return self._epochs.entries()

    @property
    def is_failed(self) -> bool:
        """A write or an fsync failed: what the disk holds is not known any more, so nothing more is written."""
        return self._failed

    def active_producers(self) -> dict[int, ProducerEntry]:
        return self._producers.active()

    @contextmanager
    def _io(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.storage_error(what, error) from error

    def storage_error(self, what: str, error: OSError) -> StorageError:
        return StorageError(f"{self.topic_partition}: {what} failed: {error}", directory=self.directory, path=self.path)

    def _check_usable(self) -> None:
        if self._failed or self._closed:
            what = "an earlier write failed" if self._failed else "the log is closed"
            raise StorageError(f"{self.topic_partition}: {what}", directory=self.directory, path=self.path)

    # --- append -----------------------------------------------------------------------------------

    def append_as_leader(self, records: Buffer, leader_epoch: int, *, origin: Origin = "client") -> AppendInfo:
        """Check every batch, give offsets, write. All or nothing.

        A writable buffer gets base offset and leader epoch written into it; otherwise new heads go out beside it.

        Raises:
            ApiError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD,
                UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER,
                INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED. StorageError.
        """
        self._check_usable()
        config = self.config
        view = memoryview(records).cast("B")
        batches = batches_for_leader(view, config, origin)
        prepared: PreparedAppend | None = None
        offset = self.log_end_offset
        bases: list[int] = []
        for position, header in batches:
            bases.append(offset)
            if header.producer_id >= 0:
                if prepared is None:
                    if origin == "client" and (duplicate := self._duplicate(batches)) is not None:
                        return duplicate
                    prepared = PreparedAppend()
                self._producers.prepare(
                    prepared, header, offset, marker_in(view, position, header),
                    from_client=origin == "client", replicated=False,
                )  # fmt: skip
            offset = Offset(offset + header.last_offset_delta + 1)
        append_time = self._now_ms() if config.message_timestamp_type == "LogAppendTime" else -1
        buffers: list[list[Buffer]] | memoryview
        if append_time < 0 and not view.readonly:
            for (position, _), base in zip(batches, bases):
                assign_in_place(view, position, base, leader_epoch)
            buffers = view
        else:
            buffers = []
            for (position, header), base in zip(batches, bases):
                end = position + header.batch_length + LOG_OVERHEAD
                assigned = assigned_head(header, base, leader_epoch)
                if append_time >= 0:
                    head = stamped_header(view, position, header, append_time)
                    buffers.append([assigned, head[ASSIGNED_SIZE:], view[position + HEADER_SIZE : end]])
                else:
                    buffers.append([assigned, view[position + ASSIGNED_SIZE : end]])
        epochs = ((leader_epoch, bases[0]),)
        return self._write(batches, bases, buffers, prepared, epochs, append_time)

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Take a leader's batches as they are; they must continue at `log_end_offset`. All or nothing.

        Raises:
            ApiError: CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE (they don't continue here). StorageError.
        """
        self._check_usable()
        view = memoryview(records).cast("B")
        gaps = "compact" in self.config.cleanup_policy
        batches = batches_for_follower(view, self.log_end_offset, gaps=gaps)
        if not batches:
            return AppendInfo(self.log_end_offset, self.log_end_offset - 1, -1, -1, 0, 0)
        prepared: PreparedAppend | None = None
        bases: list[int] = []
        epochs: list[tuple[int, int]] = []
        last_epoch = self._epochs.latest_epoch
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
        return self._write(batches, bases, view, prepared, epochs, -1)

    def _duplicate(self, batches: list[tuple[int, BatchHeader]]) -> AppendInfo | None:
        """The answer to a retry of what is in the log already; None if any of it is new and nothing is known."""
        found = [self._producers.find_duplicate(header) if header.producer_id >= 0 else None for _, header in batches]
        kept = [batch for batch in found if batch is not None]
        if not kept:
            return None
        if len(kept) != len(found):
            raise api_error(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "some of these batches are in the log already")
        timestamp = max(batch.timestamp for batch in kept)
        append_time = timestamp if self.config.message_timestamp_type == "LogAppendTime" else -1
        return AppendInfo(kept[0].first_offset, kept[-1].last_offset, timestamp, append_time, len(kept), 0, True)

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
        if epochs or self._epochs_unsaved:
            changed = self._epochs_unsaved
            for epoch, offset in epochs:
                changed = self._epochs.assign(epoch, offset) or changed
            if changed:
                with self._io("writing the leader epochs"):
                    self._save_epochs()
        interval = self.config.index_interval_bytes
        first = 0
        try:
            while first < len(batches):
                segment, count = self._segment_for(batches, bases, first, append_time)
                after = first + count
                if not segment.exists:
                    self._dir_dirty = True
                try:
                    if isinstance(buffers, memoryview):
                        position, header = batches[after - 1]
                        segment.append([buffers[batches[first][0] : position + header.batch_length + LOG_OVERHEAD]])
                    elif count == 1:
                        segment.append(buffers[first])
                    else:
                        segment.append([buffer for parts in buffers[first:after] for buffer in parts])
                except OSError:
                    segment.cut()
                    raise
                before = segment.size
                newest = segment.appended(batches, bases, first, after, append_time, interval)
                max_timestamp = max(max_timestamp, newest)
                total += segment.size - before
                self.log_end_offset = Offset(segment.next_offset)
                first += count
        except OSError as error:
            self._failed = True
            if self.log_end_offset > start:  # an earlier segment took its part: all or nothing
                with self._io("undoing an append"):
                    self._cut_to(start)
            raise self.storage_error("append", error) from error
        if prepared is not None:
            for done, stable in self._producers.apply(prepared):
                entry = AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, stable)
                self._segments[self._segment_number(done.last_offset)].add_aborted(entry)
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = self._now_ms()
        return AppendInfo(bases[0], self.log_end_offset - 1, max_timestamp, append_time, len(batches), total)

    def _segment_for(
        self, batches: list[tuple[int, BatchHeader]], bases: list[int], first: int, append_time: int
    ) -> tuple[Segment, int]:
        """The segment for batch number `first`, rolled if need be, and how many batches from there fit into it."""
        config, segment = self.config, self._segments[-1]
        size, count = segment.size, 0
        if size:  # the usual case, in short: all of them fit
            position, last = batches[-1]
            oldest = segment.first_timestamp
            if append_time >= 0:
                newest = append_time
            elif first + 1 == len(batches):
                newest = last.max_timestamp
            else:
                newest = max([header.max_timestamp for _, header in batches[first:]])
            if (
                oldest is not None
                and size + position + last.batch_length + LOG_OVERHEAD - batches[first][0] <= config.segment_bytes
                and segment.index_bytes() + 12 <= config.segment_index_bytes
                and bases[-1] + last.last_offset_delta - segment.base_offset < 2**31
                and newest - oldest <= config.segment_ms
            ):
                return segment, len(batches) - first
        index_bytes = segment.index_bytes() if size else 0
        oldest = segment.starting_timestamp() if size else None
        for number in range(first, len(batches)):
            header = batches[number][1]
            timestamp = append_time if append_time >= 0 else header.max_timestamp
            if oldest is None:
                oldest = timestamp
            if must_roll(
                config,
                segment_size=size,
                index_bytes=index_bytes,
                relative_last_offset=bases[number] + header.last_offset_delta - segment.base_offset,
                age_ms=timestamp - oldest,
                batch_size=header.batch_length + LOG_OVERHEAD,
            ):
                if count:
                    break
                segment = self._roll(bases[number])
                size, index_bytes, oldest = 0, 0, timestamp
            size += header.batch_length + LOG_OVERHEAD
            count += 1
        return segment, count

    def _roll(self, base_offset: int) -> Segment:
        """Close the active segment and begin the next. Raises OSError."""
        if self.needs_checkpoint and self.on_recovery_point_lowered is not None:
            self.on_recovery_point_lowered(self)
        active = self._segments[-1]
        if active.size == 0:
            # Nothing in it, and yet the batch is too far from its base (offsets with gaps): begin at the batch itself.
            active.remove()
            self._segments.pop()
        else:
            active.seal()
            self._take_snapshot(self.log_end_offset)
        segment = Segment(self.disk, self._handles, self.path, base_offset)
        self._segments.append(segment)
        return segment

    def roll(self) -> bool:
        """Begin a new segment if the active one has anything in it; returns whether it did."""
        self._check_usable()
        if not self._segments[-1].size:
            return False
        with self._io("roll"):
            self._roll(self.log_end_offset)
            self._segments[-1].create()
            self._dir_dirty = True
        return True

    # --- read -------------------------------------------------------------------------------------

    def is_flush_due(self, now_ms: int) -> bool:
        """By flush.ms or flush.messages."""
        since, config = self.unflushed_since_ms, self.config
        return (since is not None and now_ms - since >= config.flush_ms) or (
            self.log_end_offset - self.synced_offset >= config.flush_messages
        )

    @property
    def has_rolled(self) -> bool:
        """Whether `flush_rolled` has anything to do."""
        return self.recovery_point < self._segments[-1].base_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_offset: int | None = None,
        min_one_batch: bool = True,
        verify: bool = True,
    ) -> ReadInfo:
        """Whole batches from the one that holds `offset`, all of them below `max_offset` (exclusive: HW or LSO).

        Args:
            max_bytes: not more than this, but for the first batch when `min_one_batch`.
            verify: check every CRC and cut the answer before damage; a follower checks for itself.

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
            return ReadInfo(offset, [], 0)
        try:
            try:
                data = self._read_segments(offset, max_bytes, limit, min_one_batch)
            except OSError:
                # Once more with fresh handles: a stale one, or a disk that stumbled, is no reason to give up the log.
                for segment in self._segments:
                    segment.close()
                data = self._read_segments(offset, max_bytes, limit, min_one_batch)
            if verify and data:
                data = self._sound_prefix(data, offset)
        except OSError as error:
            raise self.storage_error("read", error) from error
        except ApiError:
            self.damaged_at = offset
            raise
        return ReadInfo(offset, [data] if data else [], len(data))

    def _read_segments(self, offset: int, max_bytes: int, limit: int, min_one_batch: bool) -> bytes | memoryview:
        number = self._segment_number(offset)
        while number < len(self._segments):
            segment = self._segments[number]
            start = segment.position_of(offset)
            if start < segment.size:
                return _read_segment(segment, start, max_bytes, limit, min_one_batch)
            number += 1
        return b""

    def _sound_prefix(self, data: bytes | memoryview, offset: int) -> bytes | memoryview:
        """`data` up to the first damaged batch. Raises ApiError CORRUPT_MESSAGE if that is the first one.

        The base offset lies outside the CRC: it must continue where the batch before ended, and the first batch must
        hold `offset`. (Compaction leaves gaps: there offsets can only be seen to go back.)
        """
        gaps = "compact" in self.config.cleanup_policy
        position, end = 0, len(data)
        lowest, highest = 0, offset
        while position < end:
            header = HEADER.unpack_from(data, position) if end - position >= HEADER_SIZE else None
            size = header[1] + LOG_OVERHEAD if header is not None else 0
            if (
                header is None
                or size < HEADER_SIZE
                or position + size > end
                or crc_of(data, position, size) != header[4]
                or header[0] < lowest
                or (header[0] > highest and not gaps)
                or header[0] + header[6] < offset
            ):
                if position:
                    return memoryview(data)[:position]
                raise api_error(
                    ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: damaged bytes on disk at offset {offset}"
                )
            lowest = highest = header[0] + header[6] + 1
            position += size
        return data

    def _segment_number(self, offset: int) -> int:
        """The segment that `offset` belongs into (the first one if it lies before all)."""
        if offset >= self._segments[-1].base_offset:
            return len(self._segments) - 1
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, Offset, LeaderEpoch] | None:
        """(timestamp, offset, leader epoch) of the first record whose timestamp is >= `timestamp_ms`; None if none."""
        with self._io("look-up by timestamp"):
            for segment in self._segments:
                if segment.size and segment.largest_timestamp()[0] >= timestamp_ms:
                    found = self._find_timestamp(segment, timestamp_ms)
                    if found is not None:
                        return found
        return None

    def _find_timestamp(self, segment: Segment, timestamp_ms: int) -> tuple[int, Offset, LeaderEpoch] | None:
        for position, header in segment.headers(segment.position_for_timestamp(timestamp_ms)):
            if header.max_timestamp < timestamp_ms or header.last_offset < self.log_start_offset or header.is_control:
                continue
            data = segment.read_at(position, header.size)
            for record in records_of(data, 0, header):
                if record.timestamp >= timestamp_ms and record.offset >= self.log_start_offset:
                    return record.timestamp, Offset(record.offset), LeaderEpoch(header.partition_leader_epoch)
        return None

    def max_timestamp_offset(self) -> tuple[int, Offset, LeaderEpoch] | None:
        """(timestamp, offset, leader epoch) of the first record with the largest timestamp; None if there is none."""
        with self._io("look-up by timestamp"):
            largest = max((segment.largest_timestamp()[0] for segment in self._segments), default=-1)
        return self.offset_for_timestamp(largest) if largest >= 0 else None

    # --- epochs -----------------------------------------------------------------------------------

    def epoch_and_end_offset_for(self, requested_epoch: int) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch <= `requested_epoch` in this log, and where it ends (F2); (-1, -1) if there is none."""
        return self._epochs.end_offset_for(requested_epoch, self.log_end_offset)

    def assign_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """This replica became the leader of `leader_epoch`, which starts here; kept across clean restarts (KAFKA-6361).

        The file gets it before the first batch of that epoch. Until then a crash forgets it, which changes no answer:
        without batches the epoch ends where the one before does. Thousands of files written at once would hold up a
        failover.
        """
        self._check_usable()
        if self._epochs.assign(leader_epoch, start_offset):
            self._epochs_unsaved = True

    def _save_epochs(self) -> None:
        """Into the page cache now; the next flush makes it durable before it calls any record of the epoch durable."""
        self._epochs_unsaved = False
        self.disk.write_file_atomic(
            f"{self.path}/{checkpoints.LEADER_EPOCHS}", checkpoints.encode_epochs(self._epochs.entries()), durable=False
        )
        self._epochs_dirty = True

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Give an id to a log whose partition.metadata was missing. It must not have another one."""
        assert not self.topic_id or self.topic_id == topic_id, "a log never changes its topic id"
        if not self.topic_id:
            self.topic_id = topic_id
            self._metadata_dirty = True
            self.write_metadata()

    def write_metadata(self) -> None:
        """Put partition.metadata into the page cache; `sync_metadata` or the first flush makes it durable."""
        with self._io("writing partition.metadata"):
            self.disk.write_file_atomic(
                f"{self.path}/{checkpoints.PARTITION_METADATA}",
                checkpoints.encode_partition_metadata(self.topic_id),
                durable=False,
            )

    # --- truncation -------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Forget all batches that reach to or beyond `offset`. A batch is never cut: the log may end before `offset`."""
        self._check_usable()
        if offset >= self.log_end_offset:
            # A leader that was deposed before it appended has noted the start of its epoch at the end of its log. Its
            # successor does not know that epoch: the note must go, or the logs seem to part there for ever.
            if self._epochs.truncate_from_end(self.log_end_offset):
                with self._io("truncation"):
                    self._save_epochs()
            return
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        with self._io("truncation"):
            self._cut_to(offset)
            if self._epochs.truncate_from_end(self.log_end_offset):
                self._save_epochs()
            self._reload_producers()
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)

    def _cut_to(self, offset: int) -> None:
        """Cut the segments; offsets follow. Raises OSError."""
        self._dir_dirty = True
        while len(self._segments) > 1 and self._segments[-1].base_offset >= offset:
            self._segments.pop().remove()
        segment = self._segments[-1]
        if offset < segment.next_offset:
            position = segment.position_of(offset)
            end = segment.end_before(position)
            segment.truncate_to_position(position, end)
        self.log_end_offset = Offset(segment.next_offset)
        self._note_cut(self.log_end_offset)
        # The cut itself is not durable yet: after a power loss the tail may be back, so the whole segment counts as
        # unchecked until the next flush, even when the cut is at or above the recovery point.
        self._lower_synced(self.log_end_offset, recovery_point=segment.base_offset)

    def _note_cut(self, end: int) -> None:
        self.lowest_cut = end if self.lowest_cut is None else min(self.lowest_cut, end)

    def _lower_synced(self, offset: Offset, *, recovery_point: int) -> None:
        self.synced_offset = min(self.synced_offset, offset)
        if self._flushing is not None:
            self._sync_ceiling = offset if self._sync_ceiling is None else min(self._sync_ceiling, offset)
        if self.recovery_point > recovery_point:
            self.recovery_point = Offset(recovery_point)
            self.needs_checkpoint = True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the next record gets `offset`."""
        self._check_usable()
        self._dir_dirty = True
        with self._io("truncation"):
            for segment in self._segments:
                segment.remove()
            start = min(offset, self.log_start_offset)
            self._note_cut(start)
            self._lower_synced(Offset(start), recovery_point=start)
            segment = Segment(self.disk, self._handles, self.path, offset)
            self._segments[:] = [segment]
            segment.create()
            self.log_start_offset = self.log_end_offset = Offset(offset)
            self.synced_offset = Offset(min(self.synced_offset, offset))
            self.recovery_point = Offset(min(self.recovery_point, offset))
            if self._epochs.clear():
                self._save_epochs()
            self._remove_snapshots(lambda _: True)
            self._producers = ProducerStates()

    # --- producers and transactions ---------------------------------------------------------------

    def _take_snapshot(self, offset: int) -> None:
        """Save the producers as they are at `offset`, the log's end. Raises OSError."""
        if self._snapshots and self._snapshots[-1] >= offset:
            return
        self.disk.write_file_atomic(
            f"{self.path}/{file_name(offset, SNAPSHOT)}", self._producers.encode_snapshot(), durable=False
        )
        self._snapshots.append(offset)
        self._snapshots_dirty.append(offset)

    def _remove_snapshots(self, condition: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self._snapshots if condition(offset)]:
            self.disk.remove(f"{self.path}/{file_name(offset, SNAPSHOT)}")
            self._snapshots.remove(offset)
        self._snapshots_dirty = [offset for offset in self._snapshots_dirty if not condition(offset)]

    def _reload_producers(self) -> None:
        """After a truncation: the newest snapshot that still holds, and the batches behind it."""
        end = self.log_end_offset
        self._remove_snapshots(lambda offset: offset > end)
        self._producers, start = load_snapshot(self.disk, self.path, self._snapshots)
        for _ in replay(self._producers, self._segments, start):
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

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Those that overlap [from_offset, to_offset), for readers of committed transactions."""
        found: list[AbortedTransaction] = []
        with self._io("reading aborted transactions"):
            for segment in self._segments[self._segment_number(from_offset) :]:
                for entry in segment.aborted():
                    if entry.last_offset >= from_offset and entry.first_offset < to_offset:
                        found.append(entry)
                    if entry.last_stable_offset >= to_offset:
                        return found
        return found

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for so long; returns how many."""
        return self._producers.expire(now_ms - expiration_ms) if len(self._producers) else 0

    # --- durability -------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would have anything to do."""
        return self.synced_offset < self.log_end_offset or self._metadata_dirty or self._epochs_dirty or self._dir_dirty

    async def flush(self) -> Offset:
        """Make all that is appended now durable, off the loop; concurrent callers share one fsync.

        Returns the offset up to which everything is durable. Raises StorageError; after that the log takes no writes.
        """
        self._check_usable()
        target = self.log_end_offset
        while not self._closed and (
            self.synced_offset < min(target, self.log_end_offset)
            or self._metadata_dirty
            or self._epochs_dirty
            or self._dir_dirty
        ):
            if self._flushing is not None:
                await asyncio.shield(self._flushing)
                self._check_usable()
                continue
            self._flushing = asyncio.get_running_loop().create_future()
            self._sync_ceiling = None
            try:
                await self._flush_once(self._segments[-1])
            finally:
                self._flushing.set_result(None)
                self._flushing = None
        return self.synced_offset

    async def flush_rolled(self) -> Offset:
        """As `flush`, but leave the active segment alone: moves the recovery point past segments that have rolled."""
        self._check_usable()
        if not self._closed and self._flushing is None and self.recovery_point < self._segments[-1].base_offset:
            self._flushing = asyncio.get_running_loop().create_future()
            self._sync_ceiling = None
            try:
                await self._flush_once(None)
            finally:
                self._flushing.set_result(None)
                self._flushing = None
        return self.synced_offset

    async def _flush_once(self, active: Segment | None) -> None:
        """One pass: what stands at its start is durable at its end."""
        end = self.log_end_offset if active is not None else Offset(self._segments[-1].base_offset)
        since = self.unflushed_since_ms
        self.unflushed_since_ms = None
        cut = self._dir_dirty
        try:
            await self.sync_metadata()
            sizes = [
                (segment, segment.size)
                for segment in self._segments
                if segment.exists
                and (
                    segment.synced_size < segment.size
                    or segment.next_offset > self.recovery_point
                    or (cut and segment is active)
                )
                and (segment is active or segment is not self._segments[-1])
            ]
            for segment, size in sizes:
                await self._sync_segment(segment, with_indexes=segment is not active)
                if self._sync_ceiling is None:
                    segment.synced_size = size
        except OSError as error:
            if self._closed:
                return
            # After a failed fsync the kernel may call the lost pages clean: trying again would prove nothing.
            self._failed = True
            raise self.storage_error("flush", error) from error
        except BaseException:
            self.unflushed_since_ms = since
            raise
        if active is None:
            self.unflushed_since_ms = since
        if self._sync_ceiling is not None:
            end = min(end, Offset(self._sync_ceiling))
        self.synced_offset = max(self.synced_offset, end)
        self.recovery_point = max(self.recovery_point, end)

    async def _sync_segment(self, segment: Segment, *, with_indexes: bool) -> None:
        if segment not in self._segments:
            return
        file = segment.log_file()
        self._handles.pin(file)
        try:
            await file.sync()
        finally:
            self._handles.unpin(file)
        if with_indexes and segment in self._segments:
            # A segment past the recovery point is never scanned again: its indexes must be as durable as itself.
            for suffix in (*segment.save_indexes(),):
                await self._sync_path(segment.path(suffix))

    async def _sync_path(self, path: str) -> None:
        if self.disk.exists(path):
            file = self.disk.open(path)
            try:
                await file.sync()
            finally:
                file.close()

    async def sync_metadata(self) -> None:
        """Make partition.metadata, the epochs, rolled producer snapshots and the directory's entries durable."""
        epochs_dirty, snapshots = self._epochs_dirty, self._snapshots_dirty
        dir_dirty = self._dir_dirty
        if not (self._metadata_dirty or epochs_dirty or snapshots or dir_dirty):
            return
        self._epochs_dirty, self._snapshots_dirty, self._dir_dirty = False, [], False
        metadata_dirty, self._metadata_dirty = self._metadata_dirty, False
        names = [checkpoints.PARTITION_METADATA] if metadata_dirty and self.topic_id else []
        names += [checkpoints.LEADER_EPOCHS] if epochs_dirty else []
        names += [file_name(offset, SNAPSHOT) for offset in snapshots]
        try:
            for name in names:
                await self._sync_path(f"{self.path}/{name}")
            await self.disk.run_blocking(lambda: self.disk.sync_dir(self.path), self.path)
            if metadata_dirty:
                await self.disk.run_blocking(lambda: self.disk.sync_dir(self.directory), self.path)
        except BaseException:
            self._epochs_dirty, self._metadata_dirty = epochs_dirty or self._epochs_dirty, metadata_dirty
            self._snapshots_dirty = snapshots + self._snapshots_dirty
            self._dir_dirty = self._dir_dirty or dir_dirty
            raise

    # --- retention --------------------------------------------------------------------------------

    def advance_log_start_offset(self, offset: int) -> bool:
        """Records below `offset` are not to be served any more (DeleteRecords). Returns whether it moved."""
        self._check_usable()
        if offset > self.log_end_offset:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the end {self.log_end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = Offset(offset)
        if self._epochs.truncate_from_start(offset):
            with self._io("writing the leader epochs"):
                self._save_epochs()
        return True

    def delete_old_segments(self, high_watermark: int, now_ms: int) -> list[str]:
        """Retention by time, size and log start; never beyond the high watermark.

        Returns the paths of the files taken out of service (renamed to *.deleted), to be removed later.
        """
        self._check_usable()
        facts: list[SegmentFacts] = []
        with self._io("retention"):
            by_time = self.config.retention_ms >= 0 and "delete" in self.config.cleanup_policy
            for segment in self._segments:
                largest = segment.largest_timestamp()[0] if by_time else -1
                facts.append(SegmentFacts(segment.next_offset, segment.size, largest))
            count = segments_to_delete(
                facts, self.config, high_watermark=high_watermark, log_start_offset=self.log_start_offset, now_ms=now_ms
            )
            if not count:
                return []
            if count == len(self._segments):
                self._roll(self.log_end_offset)
                self._segments[-1].create()
            self._dir_dirty = True
            removed: list[str] = []
            for segment in self._segments[:count]:
                removed += segment.mark_deleted()
            del self._segments[:count]
            start = self._segments[0].base_offset
            self.log_start_offset = max(self.log_start_offset, Offset(start))
            if self._epochs.truncate_from_start(self.log_start_offset):
                self._save_epochs()
            self._remove_snapshots(lambda offset: offset < start)
        return removed

    # --- compaction -------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._closed

    def empty_segment(self, base_offset: int) -> Segment:
        """A segment of this log, not in it yet."""
        return Segment(self.disk, self._handles, self.path, base_offset)

    def replace_segments(
        self, sources: list[Segment], cleaned: Segment, cleaned_path: str, dropped_markers: set[int]
    ) -> bool:
        """Put a compacted segment, complete and synced at `cleaned_path`, in the place of `sources`.

        Crash-safe: once the file is called .swap (and that is durable) the next start finishes the work.
        Returns False, changing nothing, when the sources are not in the log as they were. Raises StorageError.
        """
        self._check_usable()
        first = next((n for n, segment in enumerate(self._segments) if segment is sources[0]), None)
        if first is None or self._segments[first : first + len(sources)] != sources or self._flushing is not None:
            return False
        aborted = [entry for s in sources for entry in s.aborted() if entry.last_offset not in dropped_markers]
        swap = f"{cleaned.log_path}.swap"
        with self._io("compaction"):
            self.disk.rename(cleaned_path, swap)
            self.disk.sync_dir(self.path)
            for source in sources:
                source.remove()
            self.disk.rename(swap, cleaned.log_path)
            for entry in aborted:
                cleaned.add_aborted(entry)
            self._segments[first : first + len(sources)] = [cleaned]
            self._dir_dirty = True
            cleaned.save_indexes()
        return True

    # --- moving to another disk --------------------------------------------------------------------

    def relocate(self, path: str) -> None:
        """Rename the directory; the next flush makes that durable. Nothing may be under way. Raises StorageError."""
        self._check_usable()
        assert self._flushing is None
        for segment in self._segments:
            segment.close()
        with self._io("renaming the log"):
            self.disk.rename(self.path, path)
        self.path = path
        for segment in self._segments:
            segment.relocate(path)
        self._metadata_dirty = self._dir_dirty = True

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
        """Write what makes the next start fast: the producers at the log's end, the indexes. Flush before and after."""
        with self._io("close"):
            if self._epochs_unsaved:
                self._save_epochs()
            if self.log_end_offset > self.log_start_offset or len(self._producers):
                self._take_snapshot(self.log_end_offset)
            for segment in self._segments:
                segment.save_indexes()

    def close(self) -> None:
        """Let go of the files. What was not flushed stays in the page cache."""
        self._closed = True
        for segment in self._segments:
            segment.close()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _read_segment(segment: Segment, start: int, max_bytes: int, limit: int, min_one_batch: bool) -> bytes | memoryview:
    """Whole batches of one segment from `start`, the start of one; all below offset `limit`."""
    end = segment.size if limit >= segment.next_offset else segment.position_of(limit)
    if end <= start:
        return b""
    if end - start <= max_bytes:
        return segment.read_at(start, end - start)
    data = segment.read_at(start, max(max_bytes, HEADER_SIZE))
    whole = _whole_batches(data, max_bytes)
    if whole:
        return memoryview(data)[:whole]
    if not min_one_batch:
        return b""
    size = HEADER.unpack_from(data)[1] + LOG_OVERHEAD
    if not HEADER_SIZE <= size <= end - start:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, f"{segment.path('.log')}: no batch at byte {start}")
    return segment.read_at(start, size)


def _whole_batches(data: bytes, limit: int) -> int:
    """Bytes of the whole batches at the beginning of `data`, at most `limit`."""
    position = 0
    end = min(len(data), limit)
    while position + LOG_OVERHEAD <= end:
        size = int.from_bytes(data[position + 8 : position + 12], "big") + LOG_OVERHEAD
        if position + size > end or size < HEADER_SIZE:
            break
        position += size
    return position


def load_snapshot(disk: Disk, path: str, snapshots: list[int]) -> tuple[ProducerStates, int]:
    """The newest sound snapshot and its offset; no producers at offset 0 if there is none. Damaged ones are removed."""
    while snapshots:
        offset = snapshots[-1]
        name = f"{path}/{file_name(offset, SNAPSHOT)}"
        try:
            states = ProducerStates.decode_snapshot(disk.read_file(name))
        except FileNotFoundError:
            states = None
        if states is not None:
            return states, offset
        disk.remove(name)
        snapshots.pop()
    return ProducerStates(), 0


def replay(
    producers: ProducerStates, segments: list[Segment], start: int
) -> Iterator[tuple[Segment, AbortedTransaction]]:
    """Bring `producers`, which are as of offset `start`, to the log's end; yields the aborted transactions met.

    Raises:
        ApiError: CORRUPT_MESSAGE. OSError.
    """
    for segment in segments:
        if segment.next_offset <= start or not segment.size:
            continue
        position = segment.position_of(start) if start > segment.base_offset else 0
        for at, header in segment.headers(position):
            if header.base_offset < start or header.producer_id < 0:
                continue
            marker = None
            if header.is_control:
                marker = marker_in(memoryview(segment.read_at(at, header.size)), 0, header)
            prepared = PreparedAppend()
            producers.prepare(prepared, header, header.base_offset, marker, from_client=False, replicated=True)
            for done, stable in producers.apply(prepared):
                yield segment, AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, stable)


__all__ = ["CRC_START", "AppendInfo", "File", "LogParts", "PartitionLog", "ReadInfo", "load_snapshot", "replay"]
