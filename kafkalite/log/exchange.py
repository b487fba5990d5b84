"""A log takes the place of another one of the same partition, on another disk."""

from __future__ import annotations

from kafkalite.errors import StorageError
from kafkalite.log import checkpoints
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.offset_checkpoints import OffsetCheckpoints
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool


class LogExchange:
    """Within one turn of the loop."""

    def __init__(self, pool: LogPool, failures: DirFailures, offsets: OffsetCheckpoints) -> None:
        self._pool = pool
        self._failures = failures
        self._offsets = offsets

    def exchange(self, old: PartitionLog, new: PartitionLog) -> None:
        """`new` takes the name and the place of `old`. Raises StorageError: then nothing has changed."""
        tp = old.topic_partition
        assert self._pool.holds(old)
        before, after = self._pool.dirs[old.directory], self._pool.dirs[new.directory]
        path = f"{after.path}/{tp}"
        try:
            self._failures.set_leftover_aside(after, tp)  # an earlier replica's
        except OSError as error:
            raise new.storage_error("making room for the log", error) from error
        for known in (after.high_watermarks, after.recovery_points, after.cleaned_to):
            known.pop(tp, None)
        if tp in before.high_watermarks:
            after.high_watermarks[tp] = before.high_watermarks[tp]
        after.doubts.forget(tp)
        if tp in before.doubts.logs:
            after.doubts.take_over(tp, before.doubts)
            self._offsets.save_doubts(durable=True)
        # While `old` is in service: what fails here may take the disk of `new` offline, and nothing must have changed then.
        self._offsets.write(after, checkpoints.HIGH_WATERMARKS, after.high_watermarks, durable=False)
        start = old.log_start_offset
        if start > new.first_offset or after.log_starts.get(tp, 0) > start:
            self._offsets.set_log_start(after, tp, start)
            new.start_saved(start)
        if not after.online:
            raise StorageError(f"{after.path}: {after.offline_reason}", directory=after.path, path=new.path)
        new.take_over(old)
        new.relocate(path)
        self._pool.swap(old, new)
        before.doubts.forget(tp)
        self._pool.host.exchanged(old, new)
        old.close()
