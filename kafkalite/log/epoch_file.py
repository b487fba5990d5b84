"""The leader-epoch-checkpoint of one log: the epochs in memory, and when they get into the file."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.log import checkpoints
from kafkalite.log.epoch_cache import LeaderEpochCache
from kafkalite.log.handles import HandleCache
from kafkalite.log.local_log import LocalLog

#: A file up to this size is extended in place: some thousands of epochs. It is read for that.
_EXTENDED_TO_BYTES = 64 * 1024


class LeaderEpochFile:
    """An epoch's start is in the file before the first batch of that epoch is in the log."""

    __slots__ = ("_local", "cache", "dirty", "unsaved")

    def __init__(self, local: LocalLog, cache: LeaderEpochCache, *, dirty: bool) -> None:
        self._local = local
        self.cache = cache
        #: The file is not durable yet.
        self.dirty = dirty
        #: The file lacks an epoch that has begun here and has no batch yet.
        self.unsaved = False

    def add(self, epochs: Iterable[tuple[int, int]]) -> None:
        """(epoch, start offset) of batches that are about to be written. Raises StorageError."""
        changed = self.unsaved
        for epoch, offset in epochs:
            changed = self.cache.assign(epoch, offset) or changed
        if changed:
            self.unsaved = True
            with self._local.io("writing the leader epochs"):
                self.save()

    def save(self) -> None:
        """Into the page cache now; the next flush makes it durable before it calls any record of the epoch durable.

        Raises OSError.
        """
        local = self._local
        path = f"{local.path}/{checkpoints.LEADER_EPOCHS}"
        data = checkpoints.encode_epochs(self.cache.entries())
        if not _extend(local.handles, path, data):
            # Of a new file a loss of power can leave nothing. The batches of a compacted log do not say where epochs began.
            local.disk.write_file_atomic(path, data, durable=local.compacted_to >= 0)
        self.unsaved = False
        self.dirty = True


def _extend(handles: HandleCache, path: str, data: bytes) -> bool:
    """Write `data` over a file that differs by lines at its end only; returns whether it was one. Raises OSError.

    A new file beside it and a rename cost twenty times as much, and a failover waits for one per partition. A loss of
    power can leave any of the sectors as they were. That is the old file, the new one, or one whose number of lines is wrong: then its
    whole lines count, and the batches have the rest.
    """
    if len(data) > _EXTENDED_TO_BYTES:
        return False
    try:
        file = handles.open_apart(path)
    except FileNotFoundError:
        return False
    try:
        old = file.read_at(0, _EXTENDED_TO_BYTES)
        head, old_head = _head_size(data), _head_size(old)
        if not old_head or head != old_head or not data[head:].startswith(old[head:]) or file.size() != len(old):
            return False
        if old != data:
            file.write_at(0, data)
    finally:
        file.close()
    return True


def _head_size(data: bytes) -> int:
    """Bytes of the lines that hold the version and the number of entries; 0 if they are not there."""
    return data.find(b"\n", data.find(b"\n") + 1) + 1
