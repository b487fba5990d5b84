"""One segment: a .log file of batches and the indexes beside it. No policy: the partition's log decides what and when."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from kafkalite.env.residency import NotResident
from kafkalite.env.seams import Disk, File
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.log.batch_scan import checked, headers
from kafkalite.log.file_names import DELETED, INDEX, LOG, TIME_INDEX, TXN_INDEX, file_name
from kafkalite.log.handles import HandleCache
from kafkalite.log.index import (
    ABORTED_ENTRY,
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    AbortedTxn,
    OffsetIndex,
    TimeIndex,
)
from kafkalite.log.segment_indexes import SegmentIndexes
from kafkalite.log.segment_memory import TAIL_BATCHES, SoundRange, Tail
from kafkalite.log.transaction_index import TransactionIndex, shorten
from kafkalite.record.batch import LOG_OVERHEAD, BatchHeader, crc_of
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Bytes of records for each entry of an index that is rebuilt.
_REBUILT_INTERVAL = 4096


class Segment:
    """The batches from `base_offset` on. Files are made when the first batch comes.

    Invariant: `size` bytes of the .log file are whole batches; offsets in it are >= base_offset and increase.
    """

    __slots__ = (
        "_disk", "_handles", "_indexes", "_tail", "base_offset", "bytes_since_index", "directory", "exists", "first_timestamp",
        "indexes_synced", "log_path", "max_timestamp", "max_timestamp_offset", "next_offset", "size", "sound", "synced_size",
        "transactions",
    )  # fmt: skip

    def __init__(self, disk: Disk, handles: HandleCache, directory: str, base_offset: int) -> None:
        self._disk = disk
        self._handles = handles
        self.directory = directory
        self.base_offset = base_offset
        self.log_path = self.path(LOG)
        #: Where the next batch would start.
        self.next_offset = base_offset
        self.size = 0
        self.synced_size = 0
        self.exists = False
        #: The index files are on the disk itself, as they are in memory; of a closed segment that stays so.
        self.indexes_synced = False
        self._indexes = SegmentIndexes(disk, handles, directory, base_offset)
        self.transactions = TransactionIndex(disk, handles, self.path(TXN_INDEX), base_offset)
        self.bytes_since_index = 0
        #: Of the first batch: a segment's age is counted in record time. None: not known yet.
        self.first_timestamp: int | None = None
        #: None: not known yet (a segment that was loaded, not scanned).
        self.max_timestamp: int | None = -1
        self.max_timestamp_offset = -1
        #: None: no batch was appended since the handle was last opened.
        self._tail: Tail | None = None
        self.sound = SoundRange()

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    # --- opening ----------------------------------------------------------------------------------

    @classmethod
    def load(cls, disk: Disk, handles: HandleCache, directory: str, base_offset: int, next_offset: int) -> Segment:
        """A segment whose files are there; only its size is looked up. Raises OSError.

        Args:
            next_offset: where the next segment starts, or -1 when this is the last one (then the loader finds it).
        """
        segment = cls(disk, handles, directory, base_offset)
        segment.exists = True
        file = disk.open(segment.path(LOG))
        segment.size = segment.synced_size = file.size()
        file.close()
        segment.next_offset = next_offset
        segment.indexes_synced = True  # by their writers; indexes that recovery rebuilds are not
        if segment.size:
            segment.max_timestamp = None
        return segment

    def _log(self) -> File:
        return self._handles.get(self.log_path, self, create=not self.exists)

    def create(self) -> None:
        """Make the .log file. Raises OSError."""
        if not self.exists:
            self._log()
            self.exists = True

    def unload(self) -> None:
        """The handle was closed for lack of use: drop the indexes too where the files have all of them."""
        if self.size:
            self._indexes.unload()
        self._tail = None

    def _offset_index(self) -> OffsetIndex:
        indexes = self._indexes
        if indexes.offsets is None:
            if (loaded := indexes.load_offsets(self.size)) is None:
                self._rebuild()
            else:
                # The next entry is due as if the last batch had just got one: at worst the index is a bit sparser.
                self.bytes_since_index = self.size - (loaded.positions[-1] if loaded.positions else 0)
        assert indexes.offsets is not None
        return indexes.offsets

    def _time_index(self) -> TimeIndex:
        indexes = self._indexes
        if indexes.times is None and indexes.load_times(self.size) is None:
            self._rebuild()
        assert indexes.times is not None
        return indexes.times

    def _rebuild(self) -> None:
        """Rebuild both indexes from the headers; the files get them at the next save. Raises NotResident or ApiError CORRUPT_MESSAGE,
        and then nothing has changed."""
        made = Segment(self._disk, self._handles, self.directory, self.base_offset)
        made._indexes.reset()
        following = self.base_offset
        try:
            for position, header in self.headers():
                if header.base_offset < following:  # lies outside the CRC: an index with it would lead to wrong places
                    text = f"{self.log_path}: the batch at byte {position} has offset {header.base_offset}"
                    raise api_error(ErrorCode.CORRUPT_MESSAGE, f"{text}, which is before offset {following}")
                made._record(header, position, _REBUILT_INTERVAL)
                following = header.last_offset + 1
        except NotResident:  # all of it at once, or each attempt would get no further than the one before
            raise NotResident(self.log_path, 0, self.size) from None
        self._indexes.replace(made._indexes.offsets, made._indexes.times)
        self._tail = made._tail
        self.bytes_since_index = made.bytes_since_index
        self.max_timestamp, self.max_timestamp_offset = made.max_timestamp, made.max_timestamp_offset
        self.first_timestamp = made.first_timestamp

    def _replace(self, wrong: str) -> None:
        """Rebuild the indexes, because the batches contradict one of them. Raises as `_rebuild`."""
        self._rebuild()
        _log.warning("log.index_rebuilt", index=self.path(wrong))

    # --- appending --------------------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """Give the file room on the disk for `size` bytes, if the disk can do that (`preallocate`)."""
        self._log().reserve(size)

    def release(self) -> None:
        """Give back the room behind the end of the file. Raises OSError."""
        self.cut()

    def cut(self) -> None:
        """Cut the file to `size`: after an append that failed half way. Raises OSError."""
        if self.exists:
            self._log().truncate(self.size)

    def appended(
        self,
        batches: Sequence[tuple[int, BatchHeader]],
        bases: Sequence[int],
        first: int,
        after: int,
        append_time: int,
        interval: int,
    ) -> int:
        """Account for the batches from number `first` on and before `after`, which were written to the end of the file.

        The same as `_record` for each, in one go: an append may hold thousands. Returns the largest timestamp of them.

        Args:
            bases: of each batch, its base offset as assigned.
            append_time: their timestamp, or -1: each has its own.
        """
        indexes = self._indexes
        offsets = self._offset_index() if indexes.offsets is None else indexes.offsets
        times = self._time_index() if indexes.times is None else indexes.times
        if self.max_timestamp is None:
            self._timestamps()
        assert self.max_timestamp is not None
        if self._tail is None:
            self._tail = Tail()
        tail_last, tail_positions = self._tail.last_offsets, self._tail.positions
        start, position, since = self.base_offset, self.size, self.bytes_since_index
        largest, largest_offset = self.max_timestamp, self.max_timestamp_offset
        newest = -1
        last_offset = self.next_offset - 1
        for number in range(first, after):
            header = batches[number][1]
            last_offset = bases[number] + header.last_offset_delta
            timestamp = append_time if append_time >= 0 else header.max_timestamp
            if timestamp > newest:
                newest = timestamp
            if timestamp > largest:
                largest, largest_offset = timestamp, last_offset
            if position == 0 and self.first_timestamp is None:
                self.first_timestamp = timestamp
            if since > interval:
                offsets.append(last_offset - start, position)
                times.maybe_append(largest, largest_offset - start)
                since = 0
            tail_last.append(last_offset)
            tail_positions.append(position)
            size = header.batch_length + LOG_OVERHEAD
            since += size
            position += size
        self.max_timestamp, self.max_timestamp_offset = largest, largest_offset
        self.bytes_since_index = since
        self.sound.appended(self.size, position)
        self.size = position
        self.next_offset = last_offset + 1
        if len(tail_last) > TAIL_BATCHES:
            self._tail.trim()
        return newest

    def _record(self, header: BatchHeader, position: int, interval: int) -> None:
        last_offset = header.last_offset
        if not self.may_hold(header):
            text = f"no batch of this segment at byte {position}: its offset is {header.base_offset}"
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"{self.log_path}: {text}")
        if self.max_timestamp is None:
            self._timestamps()
        assert self.max_timestamp is not None
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, last_offset
        if self.first_timestamp is None and position == 0:
            self.first_timestamp = header.max_timestamp
        if self.bytes_since_index > interval:
            self._offset_index().append(last_offset - self.base_offset, position)
            self._time_index().maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += header.batch_length + LOG_OVERHEAD
        if self._tail is None:
            self._tail = Tail()
        self._tail.last_offsets.append(last_offset)
        self._tail.positions.append(position)
        self._tail.trim()

    def may_hold(self, header: BatchHeader) -> bool:
        """Whether the batch's offsets (outside its CRC) can be in this segment: indexes count them from the base offset."""
        return self.base_offset <= header.base_offset and 0 <= header.last_offset - self.base_offset < 2**31

    def index_bytes(self) -> int:
        """Size of the larger index, in the file's bytes."""
        indexes = self._indexes
        offsets = self._offset_index() if indexes.offsets is None else indexes.offsets
        times = self._time_index() if indexes.times is None else indexes.times
        by_offset, by_time = len(offsets.offsets) * OFFSET_ENTRY_SIZE, len(times.offsets) * TIME_ENTRY_SIZE
        return by_offset if by_offset > by_time else by_time

    # --- reading ----------------------------------------------------------------------------------

    def read_at(self, position: int, size: int) -> bytes:
        return self._log().read_at(position, size)

    def version(self) -> int:
        """See `File.version`. Raises OSError."""
        return self._log().version()

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from `position`. Raises ApiError CORRUPT_MESSAGE where there is no batch. OSError."""
        return headers(self._log(), self.log_path, position, self.size if end is None else end)

    def checked(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes) of each batch up to the first one that is torn or whose CRC is wrong. Raises OSError."""
        return checked(self._log(), self.size)

    def position_of(self, offset: int) -> int:
        """Where the first batch whose last offset is >= `offset` starts; `size` if there is none.

        Raises:
            ApiError: CORRUPT_MESSAGE. OSError.
        """
        if offset >= self.next_offset:
            return self.size
        if self._tail is not None and (found := self._tail.position_of(offset, self.size)) is not None:
            return found
        if offset <= self.base_offset:
            return 0
        relative = offset - self.base_offset
        try:
            return self._position_from(self._offset_index().entry_for(relative), offset)
        except ApiError:
            # The log or its index is damaged. If it is the index, a rebuilt one leads there.
            self._replace(INDEX)
            return self._position_from(self._offset_index().entry_for(relative), offset)

    def indexed_position(self, offset: int) -> int:
        """A position at or before the batch with the offset, by the offset index alone. Raises OSError."""
        return self._offset_index().position_for(offset - self.base_offset)

    def _position_from(self, entry: tuple[int, int], offset: int) -> int:
        """From the batch of an entry of the offset index on. A damaged index may lead behind the batch that is looked for."""
        indexed, start = entry
        for position, header in self.headers(start):
            last_offset = header.base_offset + header.last_offset_delta
            if position == start and indexed >= 0 and last_offset != self.base_offset + indexed:
                text = f"{self.log_path}: the batch at byte {start} is not the one that the index says"
                raise api_error(ErrorCode.CORRUPT_MESSAGE, text)
            if last_offset >= offset:
                return position
        return self.size

    def end_before(self, position: int) -> int:
        """Where the batch that ends at `position` leaves off: the next offset; the base offset if there is none.

        Raises:
            ApiError: CORRUPT_MESSAGE. OSError.
        """
        index = self._offset_index()
        found = bisect_left(index.positions, position) - 1
        end = self.base_offset
        for _, header in self.headers(index.positions[found] if found >= 0 else 0, position):
            end = header.base_offset + header.last_offset_delta + 1
        return end

    # --- timestamps -------------------------------------------------------------------------------

    def _timestamps(self) -> None:
        """Find out the largest timestamp: the time index's last entry, and the batches behind it, up to damage if there is some:
        a segment that has rolled has its largest timestamp in the index."""
        if self.max_timestamp is not None:
            return
        times = self._time_index()
        if self.max_timestamp is not None:
            return  # the index had to be rebuilt
        largest, offset, start = -1, -1, 0
        if times.timestamps:
            largest, offset = times.timestamps[-1], self.base_offset + times.offsets[-1]
            with contextlib.suppress(ApiError):
                if self._is_contradicted(largest, offset):
                    self._replace(TIME_INDEX)
                    return
            start = self._offset_index().position_for(offset - self.base_offset)
        with contextlib.suppress(ApiError):
            for _, header in self.headers(start):
                if header.max_timestamp > largest:
                    largest, offset = header.max_timestamp, header.last_offset
        self.max_timestamp, self.max_timestamp_offset = largest, offset

    def _is_contradicted(self, timestamp: int, offset: int) -> bool:
        """Whether the batch with this offset is sound and says that an entry of the time index is wrong.

        Raises:
            ApiError: CORRUPT_MESSAGE: the log is damaged there. OSError.
        """
        position = self.position_of(offset)
        for _, header in self.headers(position):
            if header.max_timestamp == timestamp and header.base_offset <= offset:
                return False
            data = self.read_at(position, header.size)
            return len(data) == header.size and crc_of(data, 0, header.size) == header.crc
        return True

    def largest_timestamp(self) -> tuple[int, int]:
        """(timestamp, last offset of the batch that has it); (-1, -1) when there are no batches."""
        self._timestamps()
        assert self.max_timestamp is not None
        return self.max_timestamp, self.max_timestamp_offset

    def starting_timestamp(self) -> int | None:
        """Max timestamp of the first batch; None when there is none."""
        if self.first_timestamp is None and self.size:
            self.first_timestamp = next(self.headers())[1].max_timestamp
        return self.first_timestamp

    def position_for_timestamp(self, timestamp: int) -> int:
        """A position before which there is no record with a timestamp >= `timestamp`."""
        # Entry (t, o) says that t was the largest timestamp up to its batch, which ends at o: before it all are < t.
        entry = self._time_index().entry_before(timestamp)
        if entry is not None and self._is_contradicted(entry[0], self.base_offset + entry[1]):
            self._replace(TIME_INDEX)
            entry = self._time_index().entry_before(timestamp)
        return self._offset_index().position_for(entry[1]) if entry is not None and entry[1] else 0

    # --- transactions -----------------------------------------------------------------------------

    def aborted(self) -> list[AbortedTxn]:
        """Aborted transactions whose marker lies in this segment, in the markers' order. Raises ApiError, OSError."""
        return self.transactions.entries(self.next_offset)

    # --- durability -------------------------------------------------------------------------------

    def save_indexes(self) -> list[str]:
        """Bring the index files up to date; the suffixes of those written. Raises OSError."""
        if not self.exists:
            return []
        written = self._indexes.save()
        if self.transactions.save():
            written.append(TXN_INDEX)
        if written:
            self.indexes_synced = False
        return written

    def seal(self) -> None:
        """The segment rolls: the largest timestamp becomes the last entry of the time index, and both files get all entries."""
        if self.size:
            timestamp, offset = self.largest_timestamp()
            self._time_index().maybe_append(timestamp, offset - self.base_offset)
        self.indexes_synced = False
        self.save_indexes()

    def log_file(self) -> File:
        """The handle to write to, or to sync (pin it meanwhile). Raises OSError."""
        return self._handles.get(self.log_path, self, create=not self.exists)

    # --- cutting and removing ---------------------------------------------------------------------

    def truncate_to_position(self, position: int, next_offset: int) -> None:
        """Cut the .log at a batch's start; everything derived from what is gone goes too. Raises OSError."""
        offsets = self._offset_index()  # load all three before anything is cut: what is damaged now stays as it is
        self._time_index()
        self.aborted()
        self._log().truncate(position)
        self.size, self.synced_size = position, min(self.synced_size, position)
        self.next_offset = next_offset
        self._indexes.truncate(position, next_offset - self.base_offset)
        self.transactions.truncate(next_offset)
        self.indexes_synced = False
        self._tail = None
        self.bytes_since_index = position - (offsets.positions[-1] if offsets.positions else 0)
        self.max_timestamp = None if position else -1
        if not position:
            self.max_timestamp_offset, self.first_timestamp = -1, None
        self._save_shortened()

    def _save_shortened(self) -> None:
        """Index files must never be longer than the log they describe: a clean start trusts them."""
        self._indexes.save_shortened()
        shorten(self._disk, self._handles, self.transactions.path, self.transactions.saved * ABORTED_ENTRY.size)

    def reset_for_recovery(self) -> None:
        """Drop everything that is derived from the batches: recovery rebuilds it."""
        self._indexes.reset()
        self.transactions.reset()
        self.indexes_synced = False
        self._tail = None
        self.bytes_since_index = 0
        self.max_timestamp, self.max_timestamp_offset, self.first_timestamp = -1, -1, None

    def recovered(self, position: int, header: BatchHeader, interval: int) -> None:
        """Recovery found a good batch at `position`."""
        self._record(header, position, interval)
        self.next_offset = header.base_offset + header.last_offset_delta + 1

    def cut_after_recovery(self, size: int) -> None:
        """Cut the file behind the last good batch. Raises OSError."""
        if size < self.size:
            self._log().truncate(size)
        self.size = size
        self.synced_size = 0
        self._indexes.save_shortened()

    def last_saved_entry(self) -> tuple[int, int]:
        """(relative offset, position) of the last entry of the offset index's file; (0, 0) if it has none. Raises OSError."""
        return self._indexes.last_saved_entry()

    def relocate(self, directory: str) -> None:
        """The log's directory has another name; the handle was closed before."""
        self.directory = directory
        self.log_path = self.path(LOG)
        self._indexes.directory = directory
        self.transactions.relocate(self.path(TXN_INDEX))

    def use_handles(self, handles: HandleCache) -> None:
        """Open the file through this cache from now on; it was closed before."""
        self._handles = self._indexes.handles = handles
        self.transactions.use_handles(handles)

    def close(self) -> None:
        self._handles.forget(self.path(LOG))

    def mark_deleted(self) -> list[str]:
        """Rename the files to *.deleted; the new paths, to be removed later. Raises OSError."""
        self.close()
        renamed = []
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            path = self.path(suffix)
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        return renamed

    def remove(self) -> None:
        """Remove the files now. Raises OSError."""
        self.close()
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            self._disk.remove(self.path(suffix))
