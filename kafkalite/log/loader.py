"""Opening a partition's directory: fast after a clean shutdown; otherwise everything past the recovery point is checked
(kafkalite.log.recovery).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno

from kafkalite.config import TopicConfig
from kafkalite.env.seams import Disk
from kafkalite.errors import ApiError
from kafkalite.log import checkpoints
from kafkalite.log.aborted_check import is_contradicted
from kafkalite.log.epoch_cache import LeaderEpochCache
from kafkalite.log.failures import lacks_room
from kafkalite.log.file_names import DELETED, INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, file_name
from kafkalite.log.handles import HandleCache
from kafkalite.log.local_log import LogPlace
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.recovery import (
    EVERYWHERE,
    NOTHING_CUT,
    BeforeCut,
    LogParts,
    load_snapshot,
    rebuild_aborted,
    recover,
    replay,
)
from kafkalite.log.segment import Segment
from kafkalite.model import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicId, TopicPartition
from kafkalite.record.batch import HEADER_SIZE, MAGIC, parse_header
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Half-done work of an earlier process: nothing refers to it.
CLEANED, SWAP = ".cleaned", ".swap"
_LEFTOVERS = (DELETED, CLEANED, ".tmp")
#: Files that `load_apart` has open at a time.
_OWN_HANDLES = 8


#: A recovery point of logs from whose closed segments nothing may be cut.
ALL_SYNCED = 2**63 - 1


class LostBytes(OSError):
    """A closed segment lacks what was synced."""


def load_log(
    topic_partition: TopicPartition,
    config: TopicConfig,
    place: LogPlace,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool = False,
    looks_at_ends: bool = False,
    before_cut: BeforeCut = lambda *, has_dropped: None,
) -> PartitionLog:
    """The log in `place.path`, recovered if need be.

    Args:
        recovery_point, log_start_offset: of the checkpoint files; 0 if they don't say.
        clean: the last shutdown was clean.
        looks_at_ends: whether segments that are not checked again must at least end where the next one begins.
        before_cut: called before recovery cuts off what is not sound. Raises OSError.

    Raises:
        LostBytes: such a segment does not end there; nothing was cut. OSError.
    """
    disk, handles, path = place.disk, place.handles, place.path
    names = _tidy(disk, path, disk.listdir(path))
    compacted_to = _read_compacted(disk, path, names)
    topic_id, is_recorded, copying_in = _read_metadata(disk, path, names)
    if compacted_to is None and is_recorded:
        compacted_to = -1
    elif compacted_to is None and "compact" in config.cleanup_policy:
        compacted_to = EVERYWHERE  # an older version did not record its compactions
    segments = _load_segments(disk, handles, path, names, log_start_offset)
    file_epochs, is_whole = _read_epochs(disk, path, names)
    if clean and segments:
        end = _end_of(segments[-1])
        if end is None:
            _log.warning("log.end_unclear", partition=str(topic_partition))
            clean = False
        else:
            segments[-1].next_offset = end
    checked_from, cut, has_dropped = len(segments), NOTHING_CUT, False
    if segments and not clean:
        last = len(segments) - 1
        checked_from = next((n for n, s in enumerate(segments[:-1]) if s.next_offset > recovery_point), last)
    if looks_at_ends:
        _check_ends(segments, checked_from, compacted_to)
    if segments and not clean:
        cut, has_dropped = recover(
            segments,
            checked_from,
            file_epochs if is_whole else None,
            compacted_to=compacted_to,
            interval=config.index_interval_bytes,
            before_cut=before_cut,
        )
    recovered = segments[checked_from:]
    if not segments or segments[-1].next_offset < log_start_offset:
        for segment in segments:
            segment.remove()
        segments = [Segment(disk, handles, path, log_start_offset)]
        recovered = []
    end = segments[-1].next_offset
    trusted_to = end if clean or not recovered else recovered[0].base_offset
    snapshots = _load_snapshots(disk, path, names, segments[0].base_offset, trusted_to)
    doubtful = [
        segment
        for segment in segments
        if segment not in recovered and _is_doubtful(segment, segments, names, clean=clean)
    ]
    if doubtful:
        rebuild_aborted(disk, path, segments, doubtful, snapshots, config.max_producer_ids)
    parts = LogParts(
        segments=segments,
        epochs=_epochs(
            segments, file_epochs, is_whole=is_whole, start=max(log_start_offset, segments[0].base_offset), end=end
        ),
        producers=_producers(disk, path, segments, snapshots, recovered, config.max_producer_ids),
        snapshots=snapshots,
        log_start_offset=max(log_start_offset, segments[0].base_offset),
        # What was cut may be back after a power loss until it is flushed: check that segment again next time.
        recovery_point=end if clean else min(recovery_point, cut, end),
        topic_id=topic_id,
        clean=clean,
        recovery_point_lowered=cut < recovery_point,
        compacted_to=-1 if compacted_to in (None, EVERYWHERE) else compacted_to,
        records_compactions=is_recorded,
        was_cut=cut < NOTHING_CUT,
        has_dropped=has_dropped,
        copying_in=copying_in,
    )
    return PartitionLog(topic_partition, config, place, parts)


def _read_compacted(disk: Disk, path: str, names: list[str]) -> int | None:
    """How far the log was compacted; None: there is no record of that."""
    if checkpoints.COMPACTED not in names:
        return None
    return checkpoints.decode_compacted(disk.read_file(f"{path}/{checkpoints.COMPACTED}"))


def _load_segments(
    disk: Disk, handles: HandleCache, path: str, names: list[str], log_start_offset: int
) -> list[Segment]:
    """Those that retention had not taken: the removal of the others was lost with the power."""
    bases = [int(name[: -len(LOG)]) for name in names if name.endswith(LOG)]
    segments = [
        Segment.load(disk, handles, path, base, following)
        for base, following in zip(bases, [*bases[1:], -1], strict=False)
    ]
    while len(segments) > 1 and segments[0].next_offset <= log_start_offset:
        segments.pop(0).remove()
    return segments


def _load_snapshots(disk: Disk, path: str, names: list[str], first: int, trusted_to: int) -> list[int]:
    """The offsets of the snapshots that count. A loss of power may bring back what retention had removed: what is behind such a snapshot is
    not in the log any more."""
    snapshots = []
    for offset in [int(name[: -len(SNAPSHOT)]) for name in names if name.endswith(SNAPSHOT)]:
        if first <= offset <= trusted_to:
            snapshots.append(offset)
        else:
            disk.remove(f"{path}/{offset:020d}{SNAPSHOT}")
    return snapshots


def load_apart(
    topic_partition: TopicPartition,
    config: TopicConfig,
    place: LogPlace,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    looks_at_ends: bool = False,
    before_cut: BeforeCut = lambda *, has_dropped: None,
) -> PartitionLog:
    """As `load_log`, in a thread while the loop uses the place's handles: until it returns, files are opened elsewhere. Raises OSError."""
    own = HandleCache(place.disk, _OWN_HANDLES)
    try:
        log = load_log(
            topic_partition,
            config,
            dataclasses.replace(place, handles=own),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            looks_at_ends=looks_at_ends,
            before_cut=before_cut,
        )
        log.use_handles(place.handles)
    finally:
        own.close()
    return log


def cut_torn_ends(place: LogPlace) -> None:
    """Have closed segments that end within a batch end before it: no reader could pass what is left of it. In a thread. Raises OSError."""
    disk, handles = place.disk, HandleCache(place.disk, 1)
    try:
        for name in sorted(name for name in disk.listdir(place.path) if _is_numbered(name, LOG))[:-1]:
            segment = Segment.load(disk, handles, place.path, int(name[: -len(LOG)]), -1)
            end = 0
            try:
                for position, header in segment.headers():
                    end = position + header.size
            except ApiError:
                left, head = segment.size - end, segment.read_at(end, HEADER_SIZE)
                if left < HEADER_SIZE or ((torn := parse_header(head)).magic == MAGIC and torn.size > left):
                    _log.warning("log.cut", segment=segment.log_path, size=segment.size, kept=end)
                    segment.log_file().truncate(end)
                    for suffix in (INDEX, TIME_INDEX):  # they are built again
                        disk.remove(segment.path(suffix))
    finally:
        handles.close()


def new_log(topic_partition: TopicPartition, config: TopicConfig, topic_id: TopicId, place: LogPlace) -> PartitionLog:
    """An empty log in the directory `place.path`, which its caller has made; partition.metadata and segment files come with the first batch.

    Durable with the first flush (which syncs the metadata before the data) or `sync_metadata`.
    """
    return PartitionLog(
        topic_partition, config, place, _no_parts(place, topic_id, records_compactions=True), is_new=True
    )


def no_log(topic_partition: TopicPartition, config: TopicConfig, topic_id: TopicId, place: LogPlace) -> PartitionLog:
    """Stands for a log that cannot be reached: empty, closed; every use of it raises StorageError. Touches no disk."""
    log = PartitionLog(topic_partition, config, place, _no_parts(place, topic_id))
    log.close()
    return log


def _no_parts(place: LogPlace, topic_id: TopicId, *, records_compactions: bool = False) -> LogParts:
    segments = [Segment(place.disk, place.handles, place.path, 0)]
    return LogParts(
        segments, LeaderEpochCache(), ProducerStates(), [], 0, 0, topic_id, clean=True,
        records_compactions=records_compactions,
    )  # fmt: skip


def _tidy(disk: Disk, path: str, names: list[str]) -> list[str]:
    """Finish or drop what was under way; the names that count, sorted."""
    for name in [name for name in names if name.endswith(_LEFTOVERS)]:
        disk.remove(f"{path}/{name}")
        names.remove(name)
    for name in [name for name in names if name.endswith(LOG + SWAP)]:
        names = _finish_swap(disk, path, names, name)
    logs = {name[:20] for name in names if _is_numbered(name, LOG)}
    kept = []
    for name in names:
        orphan = any(_is_numbered(name, suffix) for suffix in (INDEX, TIME_INDEX, TXN_INDEX)) and name[:20] not in logs
        if orphan:
            disk.remove(f"{path}/{name}")
        elif not name.endswith((LOG, SNAPSHOT)) or _is_numbered(name, LOG) or _is_numbered(name, SNAPSHOT):
            kept.append(name)
    return sorted(kept)


def _is_numbered(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and len(name) == 20 + len(suffix) and name[:20].isdigit()


def _finish_swap(disk: Disk, path: str, names: list[str], swap: str) -> list[str]:
    """A compacted segment was complete (it is synced before it is called .swap): it takes the place of what it covers."""
    base = int(swap[:20])
    probe = HandleCache(disk, 1)
    segment = Segment(disk, probe, path, base)
    target = f"{path}/{swap[: -len(SWAP)]}"
    covered_to = base + 1
    file = disk.open(f"{path}/{swap}")
    segment.size = file.size()
    file.close()
    for name in [name for name in names if _is_numbered(name, LOG) and int(name[:20]) == base]:
        disk.remove(f"{path}/{name}")
    disk.rename(f"{path}/{swap}", target)
    segment.exists = True
    with contextlib.suppress(ApiError):  # recovery, or the reads, will meet the damage
        for _, header in segment.headers():
            covered_to = header.next_offset
    probe.close()
    gone = {name for name in names if _is_numbered(name, LOG) and base < int(name[:20]) < covered_to}
    stale = [
        name
        for name in names
        if name in gone
        or any(_is_numbered(name, s) and (base <= int(name[:20]) < covered_to) for s in (INDEX, TIME_INDEX, TXN_INDEX))
    ]
    for name in stale:
        disk.remove(f"{path}/{name}")
    # The transaction index must be rebuilt, as a damaged one is.
    disk.write_file_atomic(f"{path}/{base:020d}{TXN_INDEX}", b"?", durable=False)
    left = [name for name in names if name not in stale and name != swap]
    return sorted({*left, swap[: -len(SWAP)], f"{base:020d}{TXN_INDEX}"})


def _is_doubtful(segment: Segment, segments: list[Segment], names: list[str], *, clean: bool) -> bool:
    """Whether the transaction index of a segment that is not checked again must be wrong. Raises OSError."""
    name = segment.path("").rpartition("/")[2]
    if name + TXN_INDEX in names:
        return not segment.transactions.load(segment.next_offset) or is_contradicted(segment, segments)
    # Files that were not synced are lost together: one that has rolled has a time index, unless it is tiny.
    return not clean and bool(segment.size) and name + INDEX not in names and name + TIME_INDEX not in names


def _read_epochs(disk: Disk, path: str, names: list[str]) -> tuple[LeaderEpochCache, bool]:
    """What the epoch file has, and whether that is all. Of one that is missing, empty or damaged the batches have the rest."""
    if checkpoints.LEADER_EPOCHS not in names:
        return LeaderEpochCache(), False
    data = disk.read_file(f"{path}/{checkpoints.LEADER_EPOCHS}")
    try:
        entries = checkpoints.decode_epochs(data)
    except checkpoints.MalformedCheckpoint as error:
        _log.warning("log.epochs_damaged", path=path, error=str(error))
        return LeaderEpochCache(checkpoints.whole_epochs(data)), False
    return LeaderEpochCache(entries), bool(entries)


def _epochs(
    segments: list[Segment], cache: LeaderEpochCache, *, is_whole: bool, start: int, end: int
) -> LeaderEpochCache:
    """The epochs of what is left of the log. An entry that starts at the very end is a leader's that wrote nothing yet.

    Where compaction has removed an epoch's first batches, only the file says where it began: its whole entries count, then the batches.
    """
    cache.truncate_from_end(end + 1)
    for segment in segments if not is_whole else ():
        if segment.exists:
            try:
                for _, header in segment.headers():
                    epoch, base = header.partition_leader_epoch, header.base_offset
                    if epoch > cache.latest_epoch or cache.epoch_at(base) not in (NO_LEADER_EPOCH, epoch):
                        cache.assign(epoch, base)
            except ApiError as error:
                _log.error("log.damaged", segment=segment.path(LOG), error=str(error))
    cache.truncate_from_start(start)
    return cache


def _producers(
    disk: Disk, path: str, segments: list[Segment], snapshots: list[int], recovered: list[Segment], most: int
) -> ProducerStates:
    """Producers at the log's end; recovered segments get their aborted transactions back, and a snapshot where they begin: retention may
    remove what is before."""
    states, start = load_snapshot(disk, path, snapshots)
    try:
        for segment in segments:
            if segment in recovered and segment.base_offset > start:
                _take_snapshot(disk, path, states, segment.base_offset, snapshots)
            for _, aborted in replay(states, [segment], start, most_producers=most):
                if segment in recovered:
                    segment.aborted().append(aborted)
    except ApiError as error:
        # Below the recovery point, where nothing was checked: reads will meet it and refuse.
        _log.error("log.damaged", path=path, error=str(error))
        for segment in recovered:
            segment.transactions.load(segment.next_offset)
    else:
        for segment in recovered:
            segment.transactions.settle()
    return states


def _take_snapshot(disk: Disk, path: str, states: ProducerStates, offset: int, snapshots: list[int]) -> None:
    """Raises OSError, but not where the disk is full: without it the log can be used as well."""
    try:
        disk.write_file_atomic(f"{path}/{file_name(offset, SNAPSHOT)}", states.encode_snapshot(), durable=False)
    except OSError as error:
        if not lacks_room(error):
            raise
    else:
        snapshots.append(offset)


def _read_metadata(disk: Disk, path: str, names: list[str]) -> tuple[TopicId, bool, int]:
    """The topic's id, whether every compaction of the log has been recorded, and `LocalLog.copying_in`."""
    if checkpoints.PARTITION_METADATA not in names:
        return NO_TOPIC_ID, False, NO_LEADER_EPOCH
    try:
        data = disk.read_file(f"{path}/{checkpoints.PARTITION_METADATA}")
        topic_id = checkpoints.decode_partition_metadata(data)
        return topic_id, checkpoints.records_compactions(data), checkpoints.copying_in(data)
    except checkpoints.MalformedCheckpoint as error:
        _log.warning("log.metadata_damaged", path=path, error=str(error))
        return NO_TOPIC_ID, False, NO_LEADER_EPOCH


def _check_ends(segments: list[Segment], checked_from: int, compacted_to: int | None) -> None:
    """Raise LostBytes if one of the segments before number `checked_from`, which are on the disk, ends before the next one begins: the disk
    has lost what it said it had. Of each the last entry of an index is read, and the headers behind it. Raises OSError."""
    # What an older version, or Kafka, has compacted is not recorded: there a gap proves nothing.
    compacted_to = EVERYWHERE if compacted_to is None else compacted_to
    for segment in segments[: min(checked_from, len(segments) - 1)]:
        end = _end_of(segment)
        if end is None and segment.size:  # or it is the index that is wrong
            end = _end_of(segment, by_index=False)
        if end is not None and (end >= segment.next_offset or segment.next_offset <= compacted_to):
            continue
        found = "its last batch is not whole" if end is None else f"its records end at offset {end}"
        text = f"bytes are missing that had been synced: {found}, and the next segment begins at {segment.next_offset}"
        raise LostBytes(errno.EIO, text, segment.log_path)


def _end_of(segment: Segment, *, by_index: bool = True) -> int | None:
    """The offset behind the last batch of a segment that was closed in order: the batches behind the last index entry say it.

    None if what is there is not whole batches, or none. Raises OSError.
    """
    if not segment.size:
        return segment.base_offset
    indexed, start = segment.last_saved_entry() if by_index else (0, 0)
    if start >= segment.size:
        return None
    end = segment.base_offset
    try:
        for position, header in segment.headers(start):
            if position and position == start and header.last_offset != segment.base_offset + indexed:
                return None
            end = header.base_offset + header.last_offset_delta + 1
    except ApiError:
        return None
    return end if end > segment.base_offset else None
