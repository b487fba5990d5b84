"""One log's segments on one directory: where they lie, writing, rolling, cutting, removing.

No rules of replication, producers or epochs (Kafka's LocalLog). Raises OSError where nothing else is said; `PartitionLog`
says what was being done and makes it a StorageError (`io`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kafkalite.env.seams import Disk
from kafkalite.errors import LogClosed, StorageError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log import checkpoints
from kafkalite.log.handles import HandleCache
from kafkalite.log.recovery import LogParts
from kafkalite.log.segment import Segment
from kafkalite.model import Buffer, TopicId, TopicPartition
from kafkalite.record.batch import LOG_OVERHEAD, BatchHeader


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a log lies, and through what it is used."""

    disk: Disk
    handles: HandleCache
    #: The log directory (one disk of several).
    directory: str
    #: The log's own directory, `<directory>/<topic>-<partition>`.
    path: str
    now_ms: Callable[[], int]


class LocalLog:
    """Segments in offset order, the last one is the active one, and there is always one.

    `next_offset` is the log's end. It moves only after a write has returned.
    """

    __slots__ = (
        "_records_compactions", "_unmarked_to", "closed", "compacted_to", "compactions", "copying_in", "cuts", "dir_dirty", "directory", "disk", "failed", "handles",
        "metadata_dirty", "metadata_unwritten", "next_offset", "path", "pending_swap", "segments", "sync_failed",
        "topic_id", "topic_partition",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition, place: LogPlace, parts: LogParts, *, is_new: bool) -> None:
        self.topic_partition = topic_partition
        self.topic_id = parts.topic_id
        self.segments = parts.segments
        self.disk = place.disk
        self.handles = place.handles
        self.directory = place.directory
        self.path = place.path
        self.next_offset = self.segments[-1].next_offset
        #: A write or an fsync failed: what the disk holds is not known any more, so nothing more is written.
        self.failed = False
        #: An fsync failed: the page cache may show what the disk does not have.
        self.sync_failed = False
        self.closed = False
        #: Counts operations, other than compactions, that cut, remove or rename segments. They make work off the loop void.
        self.cuts = 0
        #: Counts compacted segments that have replaced others.
        self.compactions = 0
        #: The compacted segment that is about to replace others; empty: none is.
        self.pending_swap = ""
        #: partition.metadata and the directory itself are not durable yet. After an unclean shutdown nobody knows what was synced.
        self.metadata_dirty = is_new or not parts.clean
        #: partition.metadata does not exist yet: it is written before the first batch, or with the first flush (as in Kafka). An
        #: empty log needs none: it has no records that could belong to another topic of its name.
        self.metadata_unwritten = is_new and bool(parts.topic_id)
        #: Segments came, went or were cut: the next flush syncs the directory and the active segment, dirty or not.
        self.dir_dirty = not parts.clean
        #: The content of checkpoints.COMPACTED. -1: no compaction removed offsets of this log; 0: only before it was copied;
        #: else compactions were here, below this offset.
        self.compacted_to = parts.compacted_to
        #: Below this offset an older version, which does not record it, may have compacted.
        self._unmarked_to = self.next_offset if self.compacted_to < 0 and not parts.records_compactions else 0
        self._records_compactions = parts.records_compactions
        #: The leader epoch in which a copy of the leader's log began here, from its first record on; NO_LEADER_EPOCH: it is complete.
        self.copying_in = parts.copying_in

    # --- errors -----------------------------------------------------------------------------------

    @contextmanager
    def io(self, what: str, *, changes: bool = False) -> Iterator[None]:
        """Raises StorageError for an OSError within.

        Args:
            changes: the operation cannot be done in part: after an error the log takes no writes.
        """
        try:
            yield
        except OSError as error:
            self.failed = self.failed or changes
            raise self.storage_error(what, error) from error

    def storage_error(self, what: str, error: OSError) -> StorageError:
        return StorageError(f"{self.topic_partition}: {what} failed: {error}", directory=self.directory, path=self.path)

    def check_usable(self) -> None:
        """Raises StorageError."""
        if self.failed or self.closed:
            what = "an earlier write failed" if self.failed else "the log is closed"
            kind = StorageError if self.failed else LogClosed
            raise kind(f"{self.topic_partition}: {what}", directory=self.directory, path=self.path)

    # --- look-up ----------------------------------------------------------------------------------

    def segment_number(self, offset: int) -> int:
        """The segment that `offset` belongs into (the first one if it lies before all)."""
        if offset >= self.segments[-1].base_offset:
            return len(self.segments) - 1
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    # --- writing ----------------------------------------------------------------------------------

    def new_segment(self, base_offset: int) -> Segment:
        """A segment of this log, not in it yet."""
        return Segment(self.disk, self.handles, self.path, base_offset)

    def write(
        self,
        batches: list[tuple[int, BatchHeader]],
        bases: list[int],
        buffers: list[list[Buffer]] | memoryview,
        first: int,
        after: int,
        append_time: int,
        interval: int,
    ) -> int:
        """Write batches number `first` to `after` (exclusive) into the active segment, in one system call.

        Returns their largest timestamp. `buffers`: per batch what to write, or the bytes in which all of them lie at
        their positions, ready to be written.
        """
        segment = self.segments[-1]
        if not segment.exists:
            self.dir_dirty = True
            self.write_metadata()
        file = segment.log_file()  # if it cannot be opened or read, nothing is written, and nothing has to be cut off
        if segment.max_timestamp is None:
            segment.largest_timestamp()
        segment.exists = True  # now, so that `cut` finds the file of a first batch, too
        try:
            if isinstance(buffers, memoryview):
                position, header = batches[after - 1]
                file.append([buffers[batches[first][0] : position + header.batch_length + LOG_OVERHEAD]])
            elif after - first == 1:
                file.append(buffers[first])
            else:
                file.append([buffer for parts in buffers[first:after] for buffer in parts])
        except OSError:
            try:
                segment.cut()
            except OSError:
                self.failed = True
                raise
            raise
        newest = segment.appended(batches, bases, first, after, append_time, interval)
        self.next_offset = segment.next_offset
        return newest

    def end_segment(self) -> bool:
        """Close the active segment; False if it went because nothing was in it. `begin_segment` has to follow."""
        active = self.segments[-1]
        if active.size:
            active.seal()
            return True
        # Nothing in it, and yet the batch is too far from its base (offsets with gaps): begin at the batch itself.
        active.remove()
        self.segments.pop()
        return False

    def begin_segment(self, base_offset: int) -> Segment:
        """The new active segment; its file comes with the first batch."""
        segment = self.new_segment(base_offset)
        segment.transactions.reset()
        self.segments.append(segment)
        return segment

    def write_metadata(self) -> None:
        """Put partition.metadata into the page cache, if that has not been done. Raises OSError."""
        if not self.metadata_unwritten:
            return
        self.disk.write_file_atomic(
            f"{self.path}/{checkpoints.PARTITION_METADATA}",
            checkpoints.encode_partition_metadata(
                self.topic_id, records_compactions=self._records_compactions, copying_in=self.copying_in
            ),
            durable=False,
        )
        self.metadata_unwritten = False

    def record_copying(self, leader_epoch: int) -> None:
        """See `PartitionLog.record_copying`."""
        self.copying_in = leader_epoch
        self.metadata_unwritten = self.metadata_dirty = bool(self.topic_id)
        self.write_metadata()

    def take_topic_id(self, topic_id: TopicId) -> None:
        """See `PartitionLog.take_topic_id`."""
        if self.topic_id or len(self.segments) > 1 or self.segments[0].exists:
            return
        self.topic_id = topic_id
        self._records_compactions = True
        self.metadata_unwritten = self.metadata_dirty = bool(topic_id)

    def record_copied_gap(self) -> None:
        """Offsets are missing in the next batches; durable with the next flush, where 0 may become nothing, which means the same."""
        if self.compacted_to < 0:
            self._write_compacted_to(0, durable=self._unmarked_to > 0)

    def record_compacted(self, end: int) -> None:
        """A compaction is about to remove offsets below `end`; durable when this returns."""
        if end > self.compacted_to:
            self._write_compacted_to(end, durable=True)

    async def record_compaction(self, end: int) -> None:
        """The same for a whole pass, without waiting for the disk on the loop. Raises OSError."""
        before = self.compacted_to
        if end <= before:
            return
        path, data = f"{self.path}/{checkpoints.COMPACTED}", checkpoints.encode_compacted(self._compacted_with(end))
        await self.disk.run_blocking(lambda: self.disk.write_file_atomic(path, data), self.path)
        if self.closed or self.path != path.rpartition("/")[0]:
            return
        if self.compacted_to != before:  # the file was written meanwhile, too: nobody knows which of the two is there
            self._write_compacted_to(end, durable=True)
        else:
            self.compacted_to, self._unmarked_to = self._compacted_with(end), 0
        self._lower_compacted()

    def _compacted_with(self, end: int) -> int:
        return max(end, min(self._unmarked_to, self.next_offset))

    def _write_compacted_to(self, end: int, *, durable: bool) -> None:
        end = self._compacted_with(end)
        self._unmarked_to = 0
        data = checkpoints.encode_compacted(end)
        self.disk.write_file_atomic(f"{self.path}/{checkpoints.COMPACTED}", data, durable=durable)
        self.compacted_to = end
        self.dir_dirty = True

    # --- cutting and removing ---------------------------------------------------------------------

    def cut_to(self, offset: int) -> None:
        """Remove all batches that reach to or beyond `offset`, which is not below the first segment. Raises ApiError CORRUPT_MESSAGE."""
        self.dir_dirty = True
        self.cuts += 1
        segment = self.segments[self.segment_number(offset - 1)]
        position, end = segment.size, segment.next_offset
        if offset < end:  # where to cut is found before anything is removed: there may be damage
            position = segment.position_of(offset)
            end = segment.end_before(position)
        self.drop_swap()
        while self.segments[-1] is not segment:
            self.segments.pop().remove()
        if offset < segment.next_offset:
            segment.truncate_to_position(position, end)
        elif offset <= max(self.compacted_to, self._unmarked_to):
            # A compaction may have removed its last offsets: only the name of a next segment says where the log ends.
            self.begin_segment(offset).create()
        self.next_offset = self.segments[-1].next_offset
        self._lower_compacted()

    def start_at(self, offset: int) -> None:
        """One empty segment, in place of all (whose files have been removed)."""
        self.cuts += 1
        self.write_metadata()
        segment = self.new_segment(offset)
        self.segments[:] = [segment]
        segment.create()
        self.next_offset = offset
        if self.compacted_to > offset:
            self._write_compacted_to(offset, durable=False)

    def _lower_compacted(self) -> None:
        if self.compacted_to > self.next_offset:  # the next records there have not been compacted
            # Durable: a file whose content was lost would say that there are no holes between the segments that are left.
            self._write_compacted_to(self.next_offset, durable=True)

    def take_oldest(self, count: int) -> list[str]:
        """Take `count` segments out of service: their files are renamed to *.deleted; the paths of those."""
        self.dir_dirty = True
        self.cuts += 1
        removed: list[str] = []
        try:
            self.drop_swap()
            for segment in self.segments[:count]:
                removed += segment.mark_deleted()
        except OSError:
            self.failed = True
            raise
        del self.segments[:count]
        return removed

    def holds(self, sources: list[Segment]) -> bool:
        """Whether these segments are in the log, one after the other."""
        first = self._number_of(sources[0])
        return first is not None and self.segments[first : first + len(sources)] == sources

    async def replace(
        self, sources: list[Segment], cleaned: Segment, cleaned_path: str, dropped_markers: set[int]
    ) -> bool:
        """See `PartitionLog.replace_segments`."""
        aborted = [entry for s in sources for entry in s.aborted() if entry.last_offset not in dropped_markers]
        swap = f"{cleaned.log_path}.swap"
        self.dir_dirty = True
        with self.io("compaction"):
            self.record_compacted(sources[-1].next_offset)
        # If anything fails from here on, the segments on the disk may differ from those in memory.
        with self.io("compaction", changes=True):
            self.disk.rename(cleaned_path, swap)
            self.pending_swap = swap
            if not await self._sync_swap(swap):
                return False
            self.dir_dirty = True  # again: a flush may have synced it meanwhile
            first = self._number_of(sources[0])
            assert first is not None
            for source in sources:
                source.remove()
            for entry in aborted:
                cleaned.aborted().append(entry)
            # The next start rebuilds the transaction index as long as it finds a .swap; after that it trusts the index.
            if cleaned.transactions.save_durably():
                self.disk.sync_dir(self.path)
            self.disk.rename(swap, cleaned.log_path)
            self.segments[first : first + len(sources)] = [cleaned]
            self.compactions += 1
            cleaned.save_indexes()
        return True

    async def _sync_swap(self, swap: str) -> bool:
        """Make the name durable, off the loop. False: the log was cut or closed meanwhile. Raises OSError."""
        path = self.path
        try:
            await self.disk.run_blocking(lambda: self.disk.sync_dir(path), path)
        except OSError:
            if self.pending_swap == swap and not self.closed:
                raise
        except BaseException:  # nobody will replace anything
            if not self.closed:  # else its disk may hang
                with suppress(OSError):
                    self.drop_swap()
            raise
        if self.pending_swap != swap or self.closed or self.failed:
            return False
        self.pending_swap = ""
        return True

    def drop_swap(self) -> None:
        """No segment is replaced now: the next start would bring back what is cut after this call. Raises OSError."""
        if self.pending_swap:
            swap, self.pending_swap = self.pending_swap, ""
            self.dir_dirty = True
            self.disk.remove(swap)

    def _number_of(self, segment: Segment) -> int | None:
        return next((n for n, each in enumerate(self.segments) if each is segment), None)

    def relocate(self, path: str) -> None:
        """Rename the directory; the next flush makes that durable."""
        self.close_files()
        self.cuts += 1
        with self.io("renaming the log"):
            self.drop_swap()
            self.disk.rename(self.path, path)
        self.path = path
        for segment in self.segments:
            segment.relocate(path)
        self.metadata_dirty = self.dir_dirty = True

    def use_handles(self, handles: HandleCache) -> None:
        """Close what is open, and open files through this cache from now on."""
        self.close_files()
        self.handles = handles
        for segment in self.segments:
            segment.use_handles(handles)

    def close_files(self) -> None:
        """Let go of the handles; they are opened again when they are needed."""
        for segment in self.segments:
            segment.close()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
