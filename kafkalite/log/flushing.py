"""Durability of one log: how far it is on the disk itself, what is not, and the flush that changes that.

A flush makes partition.metadata, the epoch file, the snapshots and the directory durable before it calls any record durable.
"""

from __future__ import annotations

import asyncio
import errno

from kafkalite.env.seams import File
from kafkalite.log import checkpoints
from kafkalite.log.epoch_file import LeaderEpochFile
from kafkalite.log.failures import is_shortage
from kafkalite.log.file_names import INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, file_name
from kafkalite.log.local_log import LocalLog
from kafkalite.log.segment import Segment
from kafkalite.log.snapshots import ProducerSnapshots
from kafkalite.model import Offset


class Flusher:
    """Invariant: recovery_point <= synced_offset <= the log's end."""

    __slots__ = (
        "_epochs", "_flushing", "_snapshots", "_sync_ceiling", "local", "needs_checkpoint", "recovery_point",
        "synced_offset", "unflushed_since_ms",
    )  # fmt: skip

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochFile,
        snapshots: ProducerSnapshots,
        *,
        recovery_point: Offset,
        needs_checkpoint: bool,
    ) -> None:
        self.local = local
        self._epochs = epochs
        self._snapshots = snapshots
        self.recovery_point = recovery_point
        #: Everything below is on the disk itself, not only in the page cache.
        self.synced_offset = recovery_point
        #: The recovery point in the checkpoint file is higher than ours.
        self.needs_checkpoint = needs_checkpoint
        #: When the oldest record that is not flushed came (flush.ms); None when all is flushed.
        self.unflushed_since_ms: int | None = None
        self._flushing: asyncio.Future[None] | None = None
        #: A flush under way proves nothing at or above this offset (the log was truncated meanwhile).
        self._sync_ceiling: int | None = None

    @property
    def is_under_way(self) -> bool:
        return self._flushing is not None

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would have anything to do."""
        local = self.local
        return self.synced_offset < local.next_offset or local.metadata_dirty or self._epochs.dirty or local.dir_dirty

    def lower(self, offset: Offset, *, recovery_point: int) -> None:
        """The log was cut at `offset`; from `recovery_point` on the next start has to check it."""
        self.synced_offset = min(self.synced_offset, offset)
        if self._flushing is not None:
            self._sync_ceiling = offset if self._sync_ceiling is None else min(self._sync_ceiling, offset)
        if self.recovery_point > recovery_point:
            self.recovery_point = Offset(recovery_point)
            self.needs_checkpoint = True

    async def flush(self) -> Offset:
        """See `PartitionLog.flush`."""
        local = self.local
        local.check_usable()
        target = local.next_offset
        while not local.closed and (
            self.synced_offset < min(target, local.next_offset)
            or local.metadata_dirty
            or self._epochs.dirty
            or local.dir_dirty
        ):
            if self._flushing is not None:
                await asyncio.shield(self._flushing)
                local.check_usable()
                continue
            await self._flush_alone(local.segments[-1])
        return self.synced_offset

    async def flush_rolled(self) -> Offset:
        """See `PartitionLog.flush_rolled`."""
        local = self.local
        local.check_usable()
        if not local.closed and self._flushing is None and self.recovery_point < local.segments[-1].base_offset:
            await self._flush_alone(None)
        return self.synced_offset

    async def _flush_alone(self, active: Segment | None) -> None:
        self._flushing = asyncio.get_running_loop().create_future()
        self._sync_ceiling = None
        try:
            await self._flush_once(active)
        finally:
            self._flushing.set_result(None)
            self._flushing = None

    async def _flush_once(self, active: Segment | None) -> None:
        """One pass: what stands at its start is durable at its end."""
        local = self.local
        end = Offset(local.next_offset if active is not None else local.segments[-1].base_offset)
        since = self.unflushed_since_ms
        self.unflushed_since_ms = None
        cut = local.dir_dirty
        try:
            sizes = [(each, each.size) for each in local.segments if self._needs_sync(each, active, has_cut=cut)]
            for segment, _ in sizes:
                # Before the directory is synced: a file may be new.
                if segment.transactions.save() if segment is active else segment.save_indexes():
                    local.dir_dirty = True
            await self.sync_metadata()
            for segment, size in sizes:
                if local.closed:
                    return  # its files would be opened again, and nobody would close them
                await self._sync_segment(segment, is_closed=segment is not active)
                if self._sync_ceiling is None:
                    segment.synced_size = size
        except OSError as error:
            if local.closed:
                return
            if is_shortage(error) and not local.failed:
                self._keep_waiting(since)  # a file could not be opened: nothing was tried, the next flush does it
            else:
                local.failed = True
            raise local.storage_error("flush", error) from error
        except BaseException:
            self._keep_waiting(since)
            raise
        if active is None:
            self._keep_waiting(since)
        if self._sync_ceiling is not None:
            end = min(end, Offset(self._sync_ceiling))
        self.synced_offset = max(self.synced_offset, end)
        self.recovery_point = max(self.recovery_point, end)

    def _needs_sync(self, segment: Segment, active: Segment | None, *, has_cut: bool) -> bool:
        if not segment.exists or (segment is not active and segment is self.local.segments[-1]):
            return False
        is_due = has_cut if segment is active else not segment.indexes_synced
        return segment.synced_size < segment.size or segment.next_offset > self.recovery_point or is_due

    def _keep_waiting(self, since: int | None) -> None:
        """What has waited since then still does. What came meanwhile waits in any case."""
        if since is not None:
            self.unflushed_since_ms = since

    async def _sync_segment(self, segment: Segment, *, is_closed: bool) -> None:
        local = self.local
        if segment not in local.segments:
            return
        file = segment.log_file()
        local.handles.pin(file)
        try:
            await self._sync(file)
        finally:
            local.handles.unpin(file)
        # Segments below the recovery point are not scanned again, so their indexes must be as durable. Those of the
        # active segment are rebuilt from its batches, but for the transactions that were aborted in it: it may roll
        # exactly here.
        if is_closed:
            await self._sync_indexes(segment)
        elif (count := segment.transactions.to_sync()) is not None:
            await self._sync_path(segment.path(TXN_INDEX))
            if self._sync_ceiling is None:
                segment.transactions.synced(count)

    async def _sync_indexes(self, segment: Segment) -> None:
        if segment.indexes_synced:
            return
        segment.indexes_synced = True  # until the next write to them
        count = segment.transactions.to_sync()
        try:
            for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
                if segment not in self.local.segments:
                    return
                await self._sync_path(segment.path(suffix))
        except BaseException:
            segment.indexes_synced = False
            raise
        if segment.indexes_synced:
            segment.transactions.synced(count)

    async def sync_indexes(self) -> None:
        """See `PartitionLog.close_cleanly`."""
        local = self.local
        while self._flushing is not None:
            await asyncio.shield(self._flushing)
        try:
            for segment in list(local.segments):
                if segment.exists:
                    await self._sync_indexes(segment)
            await self.sync_metadata()
        except OSError as error:
            raise local.storage_error("flush", error) from error

    async def _sync_path(self, path: str) -> None:
        local = self.local
        if local.disk.exists(path):
            file = local.handles.open_apart(path)
            try:
                await self._sync(file)
            finally:
                file.close()

    async def _sync(self, file: File) -> None:
        try:
            await file.sync()
        except OSError as error:
            # After a failed fsync the kernel may call the lost pages clean: another fsync would prove nothing.
            if error.errno != errno.EAGAIN:  # else no thread could be started
                self.local.failed = self.local.sync_failed = True
            raise

    async def _sync_dir(self, path: str) -> None:
        disk = self.local.disk
        try:
            await disk.run_blocking(lambda: disk.sync_dir(path), self.local.path)
        except OSError as error:
            # Else it could not be opened, or no thread could be started.
            if error.errno not in (errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.EAGAIN):
                self.local.failed = self.local.sync_failed = True
            raise

    async def sync_metadata(self) -> None:
        """See `PartitionLog.sync_metadata`."""
        local, epochs, snapshots = self.local, self._epochs, self._snapshots
        await snapshots.write_waiting()
        epochs_dirty, snapshots_dirty = epochs.dirty, snapshots.dirty
        dir_dirty = local.dir_dirty
        if not (local.metadata_dirty or epochs_dirty or snapshots_dirty or dir_dirty):
            return
        local.write_metadata()
        epochs.dirty, snapshots.dirty, local.dir_dirty = False, [], False
        metadata_dirty, local.metadata_dirty = local.metadata_dirty, False
        names = [checkpoints.PARTITION_METADATA] if metadata_dirty and local.topic_id else []
        names += [checkpoints.LEADER_EPOCHS] if epochs_dirty else []
        names += [file_name(offset, SNAPSHOT) for offset in snapshots_dirty]
        try:
            for name in names:
                await self._sync_path(f"{local.path}/{name}")
            await self._sync_dir(local.path)
            if metadata_dirty:
                await self._sync_dir(local.directory)
        except BaseException:
            epochs.dirty = epochs_dirty or epochs.dirty
            local.metadata_dirty = metadata_dirty or local.metadata_dirty
            snapshots.dirty = snapshots_dirty + snapshots.dirty
            local.dir_dirty = local.dir_dirty or dir_dirty
            raise
