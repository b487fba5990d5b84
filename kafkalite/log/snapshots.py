"""The producer snapshots of one log: which there are, taking one, removing those that do not hold any more."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.log.file_names import SNAPSHOT, file_name
from kafkalite.log.local_log import LocalLog
from kafkalite.log.producer_state import ProducerStates


class ProducerSnapshots:
    """Files `<offset>.snapshot`, oldest first. Raises OSError."""

    __slots__ = ("_local", "dirty", "offsets")

    def __init__(self, local: LocalLog, offsets: list[int], *, dirty: list[int]) -> None:
        self._local = local
        self.offsets = offsets
        #: Those that are not durable yet.
        self.dirty = dirty

    def take(self, producers: ProducerStates, offset: int) -> None:
        """Save the producers as they are at `offset`, the log's end."""
        if self.offsets and self.offsets[-1] >= offset:
            return
        local = self._local
        local.disk.write_file_atomic(
            f"{local.path}/{file_name(offset, SNAPSHOT)}", producers.encode_snapshot(), durable=False
        )
        self.offsets.append(offset)
        self.dirty.append(offset)

    def remove(self, condition: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self.offsets if condition(offset)]:
            self._local.disk.remove(f"{self._local.path}/{file_name(offset, SNAPSHOT)}")
            self.offsets.remove(offset)
        self.dirty = [offset for offset in self.dirty if not condition(offset)]
