"""The offset and the time index of one segment: read when they are needed first, saved piece by piece."""

from __future__ import annotations

from kafkalite.env.seams import Disk
from kafkalite.log.batch_scan import SCAN_BYTES
from kafkalite.log.file_names import INDEX, TIME_INDEX, file_name
from kafkalite.log.handles import HandleCache
from kafkalite.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY, OffsetIndex, TimeIndex
from kafkalite.log.transaction_index import save_from, shorten


class SegmentIndexes:
    """`offsets` and `times` are None while they are not loaded. Entries from number `*_saved` on are not in the files yet."""

    __slots__ = ("_base_offset", "_disk", "_offsets_saved", "_times_saved", "directory", "handles", "offsets", "times")

    def __init__(self, disk: Disk, handles: HandleCache, directory: str, base_offset: int) -> None:
        self._disk = disk
        self.handles = handles
        self.directory = directory
        self._base_offset = base_offset
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self._offsets_saved = self._times_saved = 0

    def last_saved_entry(self) -> tuple[int, int]:
        """(relative offset, position) of the last entry of the offset index's file; (0, 0) if it has none. Raises OSError."""
        try:
            file = self._disk.open(self._path(INDEX))
        except FileNotFoundError:
            return 0, 0
        try:
            size = file.size()
            if size < OFFSET_ENTRY_SIZE or size % OFFSET_ENTRY_SIZE:
                return 0, 0
            data = file.read_at(size - OFFSET_ENTRY_SIZE, OFFSET_ENTRY_SIZE)
        finally:
            file.close()
        return int.from_bytes(data[:4], "big"), int.from_bytes(data[4:], "big")

    def _read(self, suffix: str) -> bytes:
        """The file's bytes; none if there is no file. Raises OSError."""
        try:
            return self._disk.read_file(self._path(suffix))
        except FileNotFoundError:
            return b""

    def load_offsets(self, size: int) -> OffsetIndex | None:
        """Read the offset index of a segment of this size; None if it must be built again from the batches. Raises OSError."""
        loaded = OffsetIndex.decode(self._read(INDEX)) if size else OffsetIndex()
        is_lost = loaded is not None and not len(loaded) and size > SCAN_BYTES
        if loaded is None or is_lost or (loaded.positions and loaded.positions[-1] >= size):
            return None
        self.offsets, self._offsets_saved = loaded, len(loaded)
        return loaded

    def load_times(self, size: int) -> TimeIndex | None:
        """Read the time index; None if it must be built again from the batches. Raises OSError."""
        loaded = TimeIndex.decode(self._read(TIME_INDEX)) if size else TimeIndex()
        if loaded is not None:
            self.times, self._times_saved = loaded, len(loaded)
        return loaded

    def unload(self) -> None:
        """Drop from memory what the files have completely."""
        if self.offsets is not None and self._offsets_saved == len(self.offsets):
            self.offsets = None
        if self.times is not None and self._times_saved == len(self.times):
            self.times = None

    def reset(self) -> None:
        """Both are empty, to be filled from the batches. The files get them at the next save."""
        self.replace(OffsetIndex(), TimeIndex())

    def replace(self, offsets: OffsetIndex | None, times: TimeIndex | None) -> None:
        """These were built from the batches. The files get them at the next save."""
        self.offsets, self.times = offsets, times
        self._offsets_saved = self._times_saved = 0

    def truncate(self, position: int, relative_offset: int) -> None:
        """Forget the entries of batches at or behind this position and offset. Both indexes have been loaded."""
        assert self.offsets is not None and self.times is not None
        self.offsets.truncate_to_position(position)
        self.times.truncate_to_offset(relative_offset)
        self._offsets_saved = min(self._offsets_saved, len(self.offsets))
        self._times_saved = min(self._times_saved, len(self.times))

    def save(self) -> list[str]:
        """Bring the files up to date; the suffixes of those written. Raises OSError."""
        written = []
        offsets, saved = self.offsets, self._offsets_saved
        if offsets is not None and (saved != len(offsets) or not saved):
            if save_from(self._disk, self.handles, self._path(INDEX), saved * OFFSET_ENTRY_SIZE, offsets.encode(saved)):
                written.append(INDEX)
            self._offsets_saved = len(offsets)
        times, saved = self.times, self._times_saved
        if times is not None and (saved != len(times) or not saved):
            if save_from(
                self._disk, self.handles, self._path(TIME_INDEX), saved * TIME_ENTRY.size, times.encode(saved)
            ):
                written.append(TIME_INDEX)
            self._times_saved = len(times)
        return written

    def save_shortened(self) -> None:
        """Cut the files to the entries that are still in the indexes. Raises OSError."""
        shorten(self._disk, self.handles, self._path(INDEX), self._offsets_saved * OFFSET_ENTRY_SIZE)
        shorten(self._disk, self.handles, self._path(TIME_INDEX), self._times_saved * TIME_ENTRY.size)

    def _path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self._base_offset, suffix)}"
