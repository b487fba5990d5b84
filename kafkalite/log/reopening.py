"""A second check of a log that has failed on a sound disk: one error must not cost a complete log.

The log leaves service at its first storage error. If the disk is sound, its files are checked again, off the loop. The log
is opened again if every segment is there with its earlier length, and all records that may not be on the disk are in sound
batches. If not, its directory stays where it is, under its own name. Nothing is renamed before the replica is recreated. So
the last copy can return by a restart, by `admin disk online`, or by one of the later checks.

A log that fails again within the hour waits longer each time. Meanwhile the controller lets the replica be recreated from
another one, if there is one in sync. After a failed fsync the content of the disk is unknown. Such a log, and one in which a
read found damage, is opened only by a restart or a request of an operator.
"""

from __future__ import annotations

from functools import partial

from kafkalite.config import TopicConfig
from kafkalite.errors import ApiError, StorageError
from kafkalite.log.doubts import lacks_bytes
from kafkalite.log.failures import is_shortage
from kafkalite.log.handles import HandleCache
from kafkalite.log.loader import ALL_SYNCED, LostBytes, cut_torn_ends, load_apart
from kafkalite.log.local_log import LogPlace
from kafkalite.log.log_dir import FailedLog, LogDir
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.log.segment import Segment
from kafkalite.model import TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: The pause before the next check of a log that was not sound; of one that has failed again; and the longest one.
_LOOK_PAUSE_S = 2.0
_PAUSE_S = 10.0
_PAUSE_MAX_S = 300.0
#: ... for want of descriptors or memory.
_SHORTAGE_PAUSE_S = 1.0
_SHORTAGE_PAUSE_MAX_S = 30.0
_HOUR_S = 3600.0


class NotSound(Exception):
    """The files have changed."""


class Reopening:
    """Checks failed logs again."""

    def __init__(self, pool: LogPool, removals: Removals) -> None:
        self._pool = pool
        self._removals = removals
        self._disk = pool.disk
        self._clock = pool.clock

    def failed(self, log_dir: LogDir, log: PartitionLog, error: StorageError) -> None:
        """A log has left service."""
        tp = log.topic_partition
        now = self._clock.monotonic()
        times = [at for at in log_dir.reopened.get(tp, ()) if now - at < _HOUR_S]
        pause = min(_PAUSE_S * (1 << min(len(times) - 1, 8)), _PAUSE_MAX_S) if times else 0.0
        log_dir.reopened[tp] = times
        if not times:
            del log_dir.reopened[tp]
        # A log that only a request opens does not wait for descriptors: it may be recreated at once.
        is_short = is_shortage(error.__cause__) and not log.sync_failed and log.damaged_at is None
        log_dir.failed[tp] = FailedLog(tp, log.path, log.config, log, str(error), is_short, now + pause)

    def not_loaded(self, log_dir: LogDir, tp: TopicPartition, path: str, config: TopicConfig, error: OSError) -> None:
        """A log could not be opened at the start."""
        next_check = self._clock.monotonic() + _LOOK_PAUSE_S
        log_dir.failed[tp] = FailedLog(
            tp, path, config, None, str(error), is_shortage(error), next_check, is_examined=True
        )

    def is_due(self) -> bool:
        """Whether there is a log to check now."""
        now = self._clock.monotonic()
        return any(
            failed.next_check <= now and failed.is_examined and not failed.is_under_check and not failed.needs_operator
            for log_dir in self._pool.online()
            for failed in log_dir.failed.values()
        )

    async def check(
        self, log_dir: LogDir, *, is_requested: bool = False, only: TopicPartition | None = None
    ) -> list[TopicPartition]:
        """Check the logs of a directory that are due; returns those that are in service again.

        Args:
            is_requested: open all of them as they are, as a restart does.
            only: at the log of this partition.
        """
        back: list[TopicPartition] = []
        for failed in [log_dir.failed[tp] for tp in sorted(log_dir.failed) if only in (None, tp)]:
            if failed.is_under_check or log_dir.failed.get(failed.topic_partition) is not failed:
                continue
            if is_requested or (failed.next_check <= self._clock.monotonic() and not failed.needs_operator):
                failed.is_under_check = True
                try:
                    is_back = await self._reopen(log_dir, failed, is_requested=is_requested)
                finally:
                    failed.is_under_check, failed.is_examined = False, True
                if is_back:
                    back.append(failed.topic_partition)
            failed.is_examined = True
        return back

    async def _reopen(self, log_dir: LogDir, failed: FailedLog, *, is_requested: bool) -> bool:
        found: list[PartitionLog] = []
        cut: list[TopicPartition] = []
        failed.checks += 1
        doubts = log_dir.doubts
        was_doubtful = failed.topic_partition in doubts.logs
        old = None if is_requested else failed.log
        try:
            if old is not None:
                await log_dir.off_loop(partial(self._check, old))
            # Durable before recovery may cut it. Not from its thread: the loop writes the same list.
            doubts.logs.add(failed.topic_partition)
            doubts.save(durable=True)
            await log_dir.off_loop(lambda: found.append(self._open(log_dir, failed, cut, is_requested=is_requested)))
            if lacks_bytes(found[0], log_dir.high_watermarks):
                doubts.logs.add(failed.topic_partition)
                doubts.save(durable=True)
            elif not was_doubtful:
                doubts.logs.discard(failed.topic_partition)
        except (OSError, NotSound) as error:
            if found:
                found[0].close()
            if isinstance(error, LostBytes):
                doubts.logs.add(failed.topic_partition)
                doubts.lost_bytes.add(failed.topic_partition)
            elif not was_doubtful and not cut:
                doubts.logs.discard(failed.topic_partition)
            if not log_dir.online:
                return False
            failed.reason = str(error)
            failed.is_shortage = is_shortage(error)
            first, most = (
                (_SHORTAGE_PAUSE_S, _SHORTAGE_PAUSE_MAX_S) if failed.is_shortage else (_LOOK_PAUSE_S, _PAUSE_MAX_S)
            )
            pause = min(first * (1 << min(failed.checks - 1, 8)), most)
            failed.next_check = self._clock.monotonic() + pause
            _log.error("log.kept_offline", partition=str(failed.topic_partition), path=failed.path, error=str(error))
            return False
        log, tp = found[0], failed.topic_partition
        is_second = tp in self._pool.logs and not self._pool.gives_way_to(log)
        if not log_dir.online or log_dir.failed.get(tp) is not failed or is_second:
            log.close()
            failed.next_check = self._clock.monotonic() + _PAUSE_MAX_S
            return False
        del log_dir.failed[tp]
        doubts.lost_bytes.discard(tp)
        log_dir.reopened.setdefault(tp, []).append(self._clock.monotonic())
        del log_dir.reopened[tp][:-16]
        self._removals.put_in_place(log)
        _log.warning("log.opened_again", partition=str(tp), path=log.path, log_end_offset=log.log_end_offset)
        return True

    # --- in a thread ----------------------------------------------------------------------------

    def _open(
        self, log_dir: LogDir, failed: FailedLog, cut: list[TopicPartition], *, is_requested: bool
    ) -> PartitionLog:
        """`cut` gets the partition before recovery cuts its log. Raises OSError, NotSound."""
        old, tp = failed.log, failed.topic_partition
        point = old.recovery_point if old is not None else log_dir.recovery_points.get(tp, 0)
        has_lost = tp in log_dir.doubts.lost_bytes
        place = LogPlace(self._disk, log_dir.handles, log_dir.path, failed.path, self._clock.wall_ms)
        if has_lost and is_requested:
            cut_torn_ends(place)
        log = load_apart(
            failed.topic_partition,
            failed.config,
            place,
            recovery_point=ALL_SYNCED if has_lost else point,
            log_start_offset=(
                old.log_start_offset if old is not None else log_dir.log_starts.get(failed.topic_partition, 0)
            ),
            looks_at_ends=old is None and not is_requested,
            before_cut=lambda *, has_dropped: cut.append(failed.topic_partition),
        )
        if old is not None and not is_requested and _shape(log) != _shape(old):
            raise NotSound(f"{failed.path} has other segments than before")
        if has_lost:
            log.accept_gaps()
        return log

    def _check(self, old: PartitionLog) -> None:
        """Changes nothing, but for a compaction that had not ended: it is given up. Raises OSError, NotSound."""
        handles = HandleCache(self._disk, 1)
        try:
            for each in old.segments:
                if not each.exists:
                    continue
                segment = Segment.load(self._disk, handles, old.path, each.base_offset, each.next_offset)
                if segment.size < each.size:
                    raise NotSound(f"{segment.log_path} has {segment.size:,} bytes, not {each.size:,}")
                if each.next_offset > old.recovery_point:
                    segment.size, end = each.size, 0
                    for position, header, _ in segment.checked():
                        end = position + header.size
                    if end != each.size:
                        raise NotSound(f"{segment.log_path} is damaged at byte {end:,}")
            if old.pending_swap:  # opening the log would finish it, and find other segments
                self._disk.remove(old.pending_swap)
        except ApiError as error:
            raise NotSound(str(error)) from None
        finally:
            handles.close()


def _shape(log: PartitionLog) -> list[tuple[int, int]]:
    """Base offsets and sizes of the segments that have anything in them."""
    return [(segment.base_offset, segment.size) for segment in log.segments if segment.size]
