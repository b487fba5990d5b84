"""The producer snapshots of one log: which there are, taking one, removing those that do not hold any more."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.log.file_names import SNAPSHOT, file_name
from kafkalite.log.local_log import LocalLog
from kafkalite.log.producer_state import ProducerStates

#: Producers that are encoded on the loop: two milliseconds, with five batches each.
AT_ONCE = 1_000


class ProducerSnapshots:
    """Files `<offset>.snapshot`, oldest first. Raises OSError."""

    __slots__ = ("_local", "_waiting", "dirty", "offsets")

    def __init__(self, local: LocalLog, offsets: list[int], *, dirty: list[int]) -> None:
        self._local = local
        self.offsets = offsets
        #: Those that are not durable yet.
        self.dirty = dirty
        #: The producers at an offset, for a file that is not written yet.
        self._waiting: tuple[ProducerStates, int] | None = None

    def take(self, producers: ProducerStates, offset: int) -> None:
        """Save the producers as they are at `offset`, the log's end; many of them with the next flush, which encodes them off the loop.

        Until then a start begins with the snapshot before. Of several that wait only the last one is written.
        """
        if len(producers) > AT_ONCE:
            self._waiting = producers.copy(), offset
        else:
            self.take_now(producers, offset)

    def take_now(self, producers: ProducerStates, offset: int) -> None:
        """The same at once."""
        self._waiting = None
        if not self.offsets or self.offsets[-1] < offset:
            self._write(producers.encode_snapshot(), offset)

    async def write_waiting(self) -> None:
        """Write what `take` has left."""
        waiting, local = self._waiting, self._local
        if waiting is None:
            return
        producers, offset = waiting
        data = await local.disk.run_blocking(producers.encode_snapshot, local.path)
        assert isinstance(data, bytes)
        if self._waiting is waiting and not local.closed:  # else the log was cut below it meanwhile
            self._waiting = None
            self._write(data, offset)

    def _write(self, data: bytes, offset: int) -> None:
        local = self._local
        local.disk.write_file_atomic(f"{local.path}/{file_name(offset, SNAPSHOT)}", data, durable=False)
        self.offsets.append(offset)
        self.dirty.append(offset)

    def remove(self, condition: Callable[[int], bool]) -> None:
        """Those at offsets of which `condition` is true."""
        if self._waiting is not None and condition(self._waiting[1]):
            self._waiting = None
        for offset in [offset for offset in self.offsets if condition(offset)]:
            self._local.disk.remove(f"{self._local.path}/{file_name(offset, SNAPSHOT)}")
            self.offsets.remove(offset)
        self.dirty = [offset for offset in self.dirty if not condition(offset)]
