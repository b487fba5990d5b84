"""The leader-epoch-checkpoint of one log: the epochs in memory, and when they get into the file."""

from __future__ import annotations

from kafkalite.log import checkpoints
from kafkalite.log.epoch_cache import LeaderEpochCache
from kafkalite.log.local_log import LocalLog


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

    def save(self) -> None:
        """Into the page cache now; the next flush makes it durable before it calls any record of the epoch durable.

        Raises OSError.
        """
        self.unsaved = False
        local = self._local
        local.disk.write_file_atomic(
            f"{local.path}/{checkpoints.LEADER_EPOCHS}",
            checkpoints.encode_epochs(self.cache.entries()),
            durable=False,
        )
        self.dirty = True
