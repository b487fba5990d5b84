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
from kafkalite.env.seams import Disk, File
from kafkalite.errors import ApiError, StorageError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.index import AbortedTxn
from kafkalite.log.kept_producers import KeptBatches, kept_batches, own_view
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.segment import Segment
from kafkalite.record.batch import DELETE_HORIZON_FLAG, BatchHeader, parse_header
from kafkalite.record.builder import empty_batch, encode_batch, encode_record
from kafkalite.record.compression import Codec, compress
from kafkalite.record.reader import Record, end_transaction_marker_of, records_of, scan
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

CLEANED = ".cleaned"
#: Estimated memory of one pass's offset map. What does not fit waits for the next pass.
DEFAULT_MAP_BYTES = 64 * 1024 * 1024
_ENTRY_OVERHEAD_BYTES = 120
_WRITE_BYTES = 1024 * 1024
#: Batches that decompress to more are looked through without their values first.
_WHOLE_BYTES = 8 * 1024 * 1024
#: A delete horizon in 146 million years: no record is further from it than 64 bits can say.
_LAST_HORIZON_MS = 2**62


class OffsetMap:
    """The last offset of each key, up to `latest_offset`."""

    def __init__(self, limit_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._room = limit_bytes
        self.latest_offset = -1

    @property
    def is_full(self) -> bool:
        return self._room <= 0

    def put(self, key: bytes, offset: int) -> None:
        if key not in self._offsets:
            self._room -= len(key) + _ENTRY_OVERHEAD_BYTES
        self._offsets[key] = offset

    def replaces(self, key: bytes, offset: int) -> bool:
        """Whether a record behind `offset` has the same key."""
        return self._offsets.get(key, -1) > offset


class CleanedTransactions:
    """Follows transactions through one pass, batch by batch in offset order."""

    def __init__(self, aborted: list[AbortedTxn]) -> None:
        self._to_come = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        #: Producer id -> the marker's offset of its aborted transaction. Records behind the marker are not part of it, even
        #: if the pass never meets the marker, or only the marker is left of the transaction.
        self._aborting: dict[int, int] = {}
        self._has_data: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the data batch is of a transaction that was aborted."""
        while self._to_come and self._to_come[-1].first_offset <= header.base_offset:
            entry = self._to_come.pop()
            self._aborting[entry.producer_id] = entry.last_offset
        if not header.is_transactional:
            return False
        self._has_data.add(header.producer_id)
        return header.base_offset < self._aborting.get(header.producer_id, -1)

    def is_spent(self, header: BatchHeader) -> bool:
        """Whether the marker ends a transaction of which no record is left."""
        spent = header.producer_id not in self._has_data
        self._has_data.discard(header.producer_id)
        return spent


@dataclass(slots=True)
class CleanedGroup:
    """What replaces `sources`: a file of `size` bytes with these batches in it."""

    sources: list[Segment]
    path: str
    size: int = 0
    batches: list[tuple[int, BatchHeader]] = field(default_factory=list)
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
    """The work that is due, or None. Raises StorageError."""
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
                if offsets.is_full:
                    return offsets
                for record in scan(data, 0, header):
                    if record.key is not None:
                        offsets.put(record.key, record.offset)
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


class Rewriter:
    """Decides what stays, batch by batch, through one pass."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: KeptBatches,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        # "For ever" is a value that users set: the sum must fit into a batch's head, and so must its distance from any record.
        self._new_horizon_ms = min(now_ms + delete_retention_ms, _LAST_HORIZON_MS)

    def keep(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        """The batch as it is to be written; None if nothing of it stays."""
        horizon = header.base_timestamp if header.has_delete_horizon else None
        expired = horizon is not None and horizon <= self._now_ms
        if header.is_control:
            return self._keep_marker(header, data, expired=expired, has_horizon=horizon is not None)
        is_aborted = self._transactions.is_aborted(header)
        kept: set[int] = set()
        tombstones = False
        whole = None if is_aborted or not header.record_count else _small(header, data)
        for offset, key, has_value in () if is_aborted else _facts(header, data, whole):
            if offset > self._offsets.latest_offset or (
                key is not None and not self._offsets.replaces(key, offset) and (has_value or not expired)
            ):
                kept.add(offset)
                tombstones = tombstones or not has_value
        if not kept:
            if not self._producers.has(header):
                return None
            return empty_batch(header) if header.record_count else data
        if len(kept) == header.record_count and (horizon is not None or not tombstones):
            return data
        if tombstones and horizon is None:
            horizon = self._new_horizon_ms
        records = [record for record in whole or records_of(data, 0, header) if record.offset in kept]
        return _rebuilt(header, records, horizon if tombstones else None)

    def _keep_marker(
        self, header: BatchHeader, data: memoryview, *, expired: bool, has_horizon: bool
    ) -> bytes | memoryview | None:
        marker = end_transaction_marker_of(data, 0, header)
        if marker is None or not self._transactions.is_spent(header):
            return data
        if expired:
            return data if self._producers.has(header) else None
        if has_horizon:
            return data
        return _rebuilt(header, list(records_of(data, 0, header)), self._new_horizon_ms)


def _small(header: BatchHeader, data: memoryview) -> list[Record] | None:
    """The records of a batch; None if they take more memory than there should be for one (or it is damaged)."""
    try:
        return list(records_of(data, 0, header, limit_bytes=_WHOLE_BYTES))
    except ApiError:
        return None


def _facts(
    header: BatchHeader, data: memoryview, whole: list[Record] | None
) -> Iterator[tuple[int, bytes | None, bool]]:
    """(offset, key, whether there is a value) of each record. Raises ApiError CORRUPT_MESSAGE."""
    if whole is not None:
        for record in whole:
            yield record.offset, record.key, record.value is not None
        return
    # A few kB may stand for hundreds of MB: values are not held unless the batch has to be made again.
    for scanned in scan(data, 0, header) if header.record_count else ():
        yield scanned.offset, scanned.key, scanned.has_value


def _rebuilt(header: BatchHeader, records: list[Record], horizon_ms: int | None) -> bytes:
    """A batch in the same place with these records."""
    base = records[0].timestamp if horizon_ms is None else horizon_ms
    payload = b"".join(
        encode_record(
            record.offset - header.base_offset, record.timestamp - base, record.key, record.value, record.headers
        )
        for record in records
    )
    attributes = header.attributes & ~DELETE_HORIZON_FLAG | (DELETE_HORIZON_FLAG if horizon_ms is not None else 0)
    return encode_batch(
        compress(Codec(header.compression), payload),
        record_count=len(records),
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        base_timestamp=base,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def write_group(disk: Disk, group: CleanedGroup, rewriter: Rewriter) -> File:
    """Write what stays of the group; the file, open and not synced yet. Runs off the loop."""
    disk.remove(group.path)
    file = disk.open(group.path, create=True)
    pending: list[bytes | memoryview] = []
    waiting = 0
    for segment in group.sources:
        for header, data in _batches(disk, segment):
            kept = rewriter.keep(header, data)
            if kept is None:
                if header.is_control:
                    group.dropped_markers.add(header.last_offset)
                continue
            group.batches.append((group.size, parse_header(kept)))
            group.size += len(kept)
            pending.append(bytes(kept))
            waiting += len(kept)
            if waiting >= _WRITE_BYTES:
                file.append(pending)
                pending, waiting = [], 0
    if pending:
        file.append(pending)
    return file


async def compact(
    log: PartitionLog,
    disk: Disk,
    *,
    first_dirty_offset: int,
    high_watermark: int,
    now_ms: int,
    map_bytes: int = DEFAULT_MAP_BYTES,
) -> int:
    """One pass over one log; the new first dirty offset (the old one if nothing was due or the log changed meanwhile).

    Raises:
        StorageError; ApiError CORRUPT_MESSAGE (damage in a closed segment: nothing is swapped in).
    """
    work = plan(log, log.config, first_dirty_offset=first_dirty_offset, high_watermark=high_watermark, now_ms=now_ms)
    if work is None:
        return first_dirty_offset
    try:
        reached = await _pass(log, disk, work, now_ms, map_bytes)
    except (OSError, StorageError, ApiError) as error:
        if not work.stands(log):
            return first_dirty_offset  # the segments that it was reading are gone
        if isinstance(error, OSError):
            raise log.storage_error("compaction", error) from error
        raise
    return first_dirty_offset if reached is None else reached


async def _pass(log: PartitionLog, disk: Disk, work: CleaningPlan, now_ms: int, map_bytes: int) -> int | None:
    """The new first dirty offset; None if the log changed meanwhile. Raises OSError, StorageError, ApiError."""
    config = log.config
    aborted = log.aborted_transactions(log.first_offset, work.end_offset)
    active = frozenset(log.active_producers())
    if active and work.end_offset > log.synced_offset:
        # What is kept for a producer must be durable: if a loss of power took it, and this pass had removed what was before,
        # the producer could not go on.
        await log.flush()
    path, snapshots = log.path, log.snapshot_offsets
    built: list[tuple[OffsetMap, KeptBatches]] = []

    def build() -> None:
        producers = kept_batches(disk, path, snapshots, work.sources, active)
        built.append((build_map(disk, work, aborted, map_bytes), producers))

    await disk.run_blocking(build, path)
    [(offsets, producers)] = built
    rewriter = Rewriter(
        offsets, CleanedTransactions(aborted), producers, now_ms=now_ms, delete_retention_ms=config.delete_retention_ms
    )
    for sources in groups_of(work.sources, config):
        if not work.stands(log):
            return None
        # A name of its own: a thread that is left behind by a disk that hung must not write into a later pass's file.
        group = CleanedGroup(sources, f"{sources[0].log_path}.{now_ms:x}{CLEANED}")
        try:
            files: list[File] = []
            write = partial(write_group, disk, group, rewriter)
            await disk.run_blocking(lambda write=write, files=files: files.append(write()), log.path)  # type: ignore[misc]
            try:
                await files[0].sync()
            finally:
                files[0].close()
        except Exception:
            _discard(log, disk, group)
            raise
        if not work.stands(log) or not log.replace_segments(
            sources, _segment_of(log, group), group.path, group.dropped_markers
        ):
            _discard(log, disk, group)
            return None
    return offsets.latest_offset + 1


def _discard(log: PartitionLog, disk: Disk, group: CleanedGroup) -> None:
    if not log.is_closed:  # its disk may hang, and its directory is on its way out
        with contextlib.suppress(OSError):
            disk.remove(group.path)


def _segment_of(log: PartitionLog, group: CleanedGroup) -> Segment:
    """The segment that the group's file will be, its indexes in memory."""
    segment = log.empty_segment(group.sources[0].base_offset)
    segment.reset_for_recovery()
    for position, header in group.batches:
        segment.recovered(position, header, log.config.index_interval_bytes)
    segment.exists = True
    segment.size = segment.synced_size = group.size
    segment.next_offset = group.sources[-1].next_offset
    return segment
