"""What a segment remembers of its batches: where the last ones lie, and which bytes were found to be sound."""

from __future__ import annotations

from array import array
from bisect import bisect_left

#: Batches at the end of a segment whose position is known without an index; trimmed to half.
TAIL_BATCHES = 128


class Tail:
    """The last batches that were appended: their last offsets, and their positions in the file."""

    __slots__ = ("last_offsets", "positions")

    def __init__(self) -> None:
        self.last_offsets = array("q")
        self.positions = array("I")

    def trim(self) -> None:
        """Keep the number of batches within bounds."""
        if (count := len(self.last_offsets)) > TAIL_BATCHES:
            surplus = count - TAIL_BATCHES // 2
            del self.last_offsets[:surplus]
            del self.positions[:surplus]

    def position_of(self, offset: int, size: int) -> int | None:
        """Where the first batch whose last offset is >= `offset` starts; `size` (the file's) if there is none. None: not known."""
        last_offsets = self.last_offsets
        if not last_offsets:
            return None
        found = bisect_left(last_offsets, offset)
        # The first of the tail has it only if the batch before the tail hasn't: known when there is none.
        if found == 0 and self.positions[0]:
            return None
        return self.positions[found] if found < len(last_offsets) else size


class SoundRange:
    """Between two bytes of the file all batches are sound: a read found that at one version of the file (ADR 47), or they were
    appended behind such a read."""

    __slots__ = ("_end", "_start", "_version")

    def __init__(self) -> None:
        self._version = 0
        self._start = self._end = -1

    def covers(self, version: int, start: int, end: int) -> bool:
        """Whether these bytes, read after the file had this version, need no other check of their CRCs."""
        return version == self._version and self._start <= start and end <= self._end

    def found(self, version: int, start: int, end: int) -> None:
        """All batches between these two bytes, read after the file had this version, are sound."""
        if version == self._version and start <= self._end and self._start <= end:
            self._start, self._end = min(self._start, start), max(self._end, end)
        else:
            self._version, self._start, self._end = version, start, end

    def appended(self, size: int, new_size: int) -> None:
        """Batches of this node were appended: the file has grown from `size` to `new_size` bytes."""
        if self._end == size:
            self._end = new_size
