"""Log compaction: of each key the last record stays. Offsets never change; segments are rewritten beside the old ones.

One pass: note the last offset of each key in the dirty part (`OffsetMap`), then rewrite every closed segment without
what a later record replaces, and swap. Deleted keys (no value) and markers of transactions whose records are all gone
stay until their delete horizon, which the first pass that meets them writes into their batch (KIP-534). The last batches
of a producer stay, if need be without records: its sequence is needed for deduplication (kafkalite.log.kept_producers).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import field
from functools import partial

from kafkalite.config import TopicConfig
from kafkalite.env.seams import Disk
from kafkalite.errors import ApiError, StorageError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.cold_reads import ColdReads
from kafkalite.log.index import AbortedTxn
from kafkalite.log.kept_producers import KeptBatches, kept_batches
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.past_producers import own_view
from kafkalite.log.rewriting import CleanedTransactions, OffsetMap, Rewriter
from kafkalite.log.segment import Segment
from kafkalite.record.batch import BatchHeader, parse_header
from kafkalite.record.reader import scan

CLEANED = ".cleaned"
#: Estimated memory of one pass's offset map. What does not fit waits for the next pass.
DEFAULT_MAP_BYTES = 64 * 1024 * 1024
_WRITE_BYTES = 1024 * 1024


@dataclass(slots=True)
class CleanedGroup:
    """`segment` replaces `sources`; its batches are in the file at `path`."""

    sources: list[Segment]
    path: str
    segment: Segment
    dropped_markers: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """The range of a pass: closed segments below `end_offset`, new since `first_dirty_offset`.

    `cuts` is the log's when the pass began (`stands`).
    """

    sources: list[Segment]
    first_dirty_offset: int
    end_offset: int
    cuts: int

    def stands(self, log: PartitionLog) -> bool:
        """Whether the segments are unchanged, except for those that the pass itself has replaced.

        Retention, a truncation, the replica's deletion, its move to another disk or its failure remove them. A pass that is
        under way then ends without an error, because its files do not belong to the log any more. It also ends when the
        topic is no longer to be compacted.
        """
        return not log.is_closed and log.cuts == self.cuts and "compact" in log.config.cleanup_policy


def plan(
    log: PartitionLog, config: TopicConfig, *, first_dirty_offset: int, high_watermark: int, now_ms: int
) -> CleaningPlan | None:
    """The work that is due, or None. Raises OSError, ApiError."""
    limit = log.last_stable_offset(high_watermark)
    sources: list[Segment] = []
    clean_bytes = dirty_bytes = 0
    oldest_dirty_ms: int | None = None
    for segment in log.segments[:-1]:
        newest, _ = segment.largest_timestamp()
        # Without a lag no timestamp matters: one producer whose clock is ahead would keep all from being compacted.
        is_fresh = config.min_compaction_lag_ms > 0 and now_ms - newest < config.min_compaction_lag_ms
        if segment.next_offset > limit or is_fresh:
            break
        sources.append(segment)
        if segment.next_offset <= first_dirty_offset:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
            oldest_dirty_ms = newest if oldest_dirty_ms is None else min(oldest_dirty_ms, newest)
    if not dirty_bytes or oldest_dirty_ms is None:
        return None
    overdue = now_ms - oldest_dirty_ms > config.max_compaction_lag_ms
    if not overdue and dirty_bytes < config.min_cleanable_dirty_ratio * (clean_bytes + dirty_bytes):
        return None
    return CleaningPlan(sources, max(first_dirty_offset, sources[0].base_offset), sources[-1].next_offset, log.cuts)


def _batches(disk: Disk, segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch, its CRC checked. Raises OSError; ApiError CORRUPT_MESSAGE at damage."""
    view = own_view(disk, segment)
    try:
        end = 0
        for position, header, data in view.checked():
            yield header, data
            end = position + header.size
        if end != segment.size:
            for _ in view.headers(end):  # says where and what
                break
            raise StorageError(f"{segment.log_path}: damaged at byte {end}", directory=segment.directory)
    finally:
        view.close()


def build_map(disk: Disk, work: CleaningPlan, aborted: list[AbortedTxn], limit_bytes: int) -> OffsetMap:
    """The last offset of each key in the dirty part, as far as memory reaches. Runs off the loop."""
    offsets = OffsetMap(limit_bytes)
    transactions = CleanedTransactions(aborted)
    for segment in work.sources:
        if segment.next_offset <= work.first_dirty_offset:
            continue
        for header, data in _batches(disk, segment):
            if header.is_control:
                transactions.is_spent(header)
            elif not transactions.is_aborted(header) and header.next_offset > work.first_dirty_offset:
                for record in scan(data, 0, header) if header.record_count else ():
                    if offsets.is_full:  # within a batch, too: it may stand for a million keys
                        return offsets
                    offset = min(record.offset, header.last_offset)
                    if record.key is not None:
                        offsets.put(record.key, offset)
                    offsets.latest_offset = offset
            offsets.latest_offset = header.last_offset
        offsets.latest_offset = segment.next_offset - 1
    return offsets


def groups_of(sources: list[Segment], config: TopicConfig) -> list[list[Segment]]:
    """Neighbours that fit into one segment together, so that compaction leaves no trail of tiny ones."""
    groups: list[list[Segment]] = []
    for segment in sources:
        last = groups[-1] if groups else None
        if (
            last is not None
            and sum(one.size for one in last) + segment.size <= config.segment_bytes
            and segment.next_offset - last[0].base_offset < 2**31
        ):
            last.append(segment)
        else:
            groups.append([segment])
    return groups


def write_group(disk: Disk, group: CleanedGroup, rewriter: Rewriter, interval: int) -> None:
    """Write what stays of the group, and index it every `interval` bytes; the file is not synced yet. Runs off the loop."""
    made = group.segment
    made.reset_for_recovery()
    disk.remove(group.path)
    file = disk.open(group.path, create=True)
    try:
        pending: list[bytes | memoryview] = []
        waiting = 0
        for segment in group.sources:
            for header, data in _batches(disk, segment):
                kept = rewriter.keep(header, data)
                if kept is None:
                    if header.is_control:
                        group.dropped_markers.add(header.last_offset)
                    continue
                made.recovered(made.size, parse_header(kept), interval)
                made.size += len(kept)
                pending.append(bytes(kept))
                waiting += len(kept)
                if waiting >= _WRITE_BYTES:
                    file.append(pending)
                    pending, waiting = [], 0
        if pending:
            file.append(pending)
    finally:
        file.close()
    made.exists, made.synced_size, made.next_offset = True, made.size, group.sources[-1].next_offset


async def compact(
    log: PartitionLog,
    disk: Disk,
    *,
    first_dirty_offset: int,
    high_watermark: int,
    now_ms: int,
    cold: ColdReads | None = None,
    map_bytes: int = DEFAULT_MAP_BYTES,
    keeps_tombstones: bool = False,
) -> int:
    """One pass over one log; the new first dirty offset (the old one if nothing was due or the log changed meanwhile).

    `cold`: loads what is needed on the loop; None: it may wait for the disk. `keeps_tombstones`: also those that are older than `delete.retention.ms` (`LogHost.all_in_sync`).

    Raises:
        StorageError; ApiError CORRUPT_MESSAGE (damage in a closed segment: nothing is swapped in).
    """
    try:
        work = plan(
            log, log.config, first_dirty_offset=first_dirty_offset, high_watermark=high_watermark, now_ms=now_ms
        )
    except OSError as error:
        raise log.storage_error("compaction", error) from error
    if work is None:
        return first_dirty_offset
    try:
        if cold is not None:
            await log.load_aborted(cold, ("node", "housekeeping"))
        reached = await _pass(log, disk, work, now_ms, map_bytes, keeps_tombstones=keeps_tombstones)
    except (OSError, StorageError, ApiError) as error:
        if not work.stands(log):
            return first_dirty_offset  # the segments that it was reading are gone
        if isinstance(error, OSError):
            raise log.storage_error("compaction", error) from error
        raise
    return first_dirty_offset if reached is None else reached


async def _pass(
    log: PartitionLog, disk: Disk, work: CleaningPlan, now_ms: int, map_bytes: int, *, keeps_tombstones: bool
) -> int | None:
    """The new first dirty offset; None if the log changed meanwhile. Raises OSError, StorageError, ApiError."""
    config = log.config
    aborted = log.aborted_transactions(log.first_offset, work.end_offset)
    active = frozenset(log.active_producers())
    if work.end_offset > log.synced_offset:
        # What replaces something must be durable first: if a loss of power took it, and this pass had removed what was before, a
        # key would have neither value, and a producer could not go on.
        await log.flush()
    path, snapshots = log.path, log.snapshot_offsets
    built: list[tuple[OffsetMap, KeptBatches]] = []

    def build() -> None:
        producers = kept_batches(disk, path, snapshots, work.sources, active, config.max_producer_ids)
        built.append((build_map(disk, work, aborted, map_bytes), producers))

    await disk.run_blocking(build, path)
    [(offsets, producers)] = built
    rewriter = Rewriter(
        offsets,
        CleanedTransactions(aborted),
        producers,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        keeps_tombstones=keeps_tombstones,
    )
    for sources in groups_of(work.sources, config):
        if not work.stands(log):
            return None
        # A name of its own: a thread that is left behind by a disk that hung must not write into a later pass's file.
        path = f"{sources[0].log_path}.{now_ms:x}{CLEANED}"
        group = CleanedGroup(sources, path, log.empty_segment(sources[0].base_offset))
        try:
            write = partial(write_group, disk, group, rewriter, config.index_interval_bytes)
            await disk.run_blocking(write, log.path)
            file = disk.open(path)
            try:
                await file.sync()
            finally:
                file.close()
            await log.record_compaction(work.end_offset)
        except Exception:
            _discard(log, disk, group)
            raise
        is_same = work.stands(log)
        if not (is_same and await log.replace_segments(sources, group.segment, path, group.dropped_markers)):
            _discard(log, disk, group)
            return None
    return offsets.latest_offset + 1


def _discard(log: PartitionLog, disk: Disk, group: CleanedGroup) -> None:
    if not log.is_closed:  # its disk may hang, and its directory is on its way out
        with contextlib.suppress(OSError):
            disk.remove(group.path)
