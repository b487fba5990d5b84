"""The producer snapshots of one log: which there are, taking one, removing those that do not hold any more."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from kafkalite.log.file_names import SNAPSHOT, file_name
from kafkalite.log.local_log import LocalLog
from kafkalite.log.producer_state import ProducerStates

#: Producers that are encoded on the loop: two milliseconds, with five batches each.
AT_ONCE = 1_000
#: Snapshots of more that wait for the next flush. The oldest of them is encoded on the loop when another one comes.
MOST_WAITING = 4


class ProducerSnapshots:
    """Files `<offset>.snapshot`, oldest first. Raises OSError."""

    __slots__ = ("_local", "_waiting", "dirty", "offsets")

    def __init__(self, local: LocalLog, offsets: list[int], *, dirty: list[int]) -> None:
        self._local = local
        self.offsets = offsets
        #: Those that are not durable yet.
        self.dirty = dirty
        #: Offset -> the producers there, in order, for files that are not written yet.
        self._waiting: dict[int, ProducerStates] = {}

    def take(self, producers: ProducerStates, offset: int) -> None:
        """Save the producers as they are at `offset`, the log's end; many of them with the next flush, which encodes them off the loop.

        Until then a start begins with the snapshot before.
        """
        if len(producers) <= AT_ONCE or (self.offsets and self.offsets[-1] >= offset):
            self.take_now(producers, offset)
            return
        while len(self._waiting) >= MOST_WAITING:
            self.write_now(next(iter(self._waiting)))
        self._waiting[offset] = producers.copy()

    def take_now(self, producers: ProducerStates, offset: int) -> None:
        """The same at once."""
        self._waiting.pop(offset, None)
        if not self.offsets or self.offsets[-1] < offset:
            self._write(producers.encode_snapshot(), offset)

    def write_now(self, offset: int) -> None:
        """Write the one at `offset` if `take` has left it: the segments before it are about to go."""
        if offset in self._waiting:
            self._write(self._waiting[offset].encode_snapshot(), offset)
            del self._waiting[offset]

    async def write_waiting(self) -> None:
        """Write what `take` has left."""
        local = self._local
        for offset, producers in list(self._waiting.items()):
            data = await local.disk.run_blocking(producers.encode_snapshot, local.path)
            assert isinstance(data, bytes)
            if (
                self._waiting.get(offset) is producers and not local.closed
            ):  # else it was written, or the log cut below it meanwhile
                self._write(data, offset)
                del self._waiting[offset]

    def _write(self, data: bytes, offset: int) -> None:
        local = self._local
        local.disk.write_file_atomic(f"{local.path}/{file_name(offset, SNAPSHOT)}", data, durable=False)
        insort(self.offsets, offset)
        self.dirty.append(offset)

    def remove(self, condition: Callable[[int], bool]) -> None:
        """Those at offsets of which `condition` is true."""
        self._waiting = {offset: states for offset, states in self._waiting.items() if not condition(offset)}
        for offset in [offset for offset in self.offsets if condition(offset)]:
            self._local.disk.remove(f"{self._local.path}/{file_name(offset, SNAPSHOT)}")
            self.offsets.remove(offset)
        self.dirty = [offset for offset in self.dirty if not condition(offset)]
