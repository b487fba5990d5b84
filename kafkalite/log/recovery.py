"""What is found again from the batches themselves, after an unclean stop or a truncation: the log's sound prefix, its producers.

Recovery keeps the longest prefix of batches that are whole, have the right CRC, lie behind the one before and bear the
leader epoch that the epoch file gives for their offset (base offset and epoch lie outside the CRC). What comes behind is
cut off; followers fetch it again. An epoch that the file doesn't know was never flushed: a flush makes the
file durable first.

The producers are those of the newest sound snapshot, brought to the log's end by the batches behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kafkalite.env.seams import Disk
from kafkalite.errors import ApiError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.epoch_cache import LeaderEpochCache
from kafkalite.log.file_names import LOG, SNAPSHOT, file_name
from kafkalite.log.index import AbortedTxn
from kafkalite.log.producer_state import PreparedAppend, ProducerStates
from kafkalite.log.segment import Segment
from kafkalite.log.validation import marker_in
from kafkalite.model import NO_LEADER_EPOCH, TopicId
from kafkalite.record.batch import HEADER, HEADER_SIZE, BatchHeader
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Compactions may have been anywhere in the log.
EVERYWHERE = 2**63 - 1


@dataclass(slots=True)
class LogParts:
    """What loading a partition's directory found (see kafkalite.log.loader)."""

    segments: list[Segment]
    epochs: LeaderEpochCache
    producers: ProducerStates
    snapshots: list[int]
    log_start_offset: int
    recovery_point: int
    topic_id: TopicId
    clean: bool
    #: The recovery point in the checkpoint file is too high (recovery cut below it).
    recovery_point_lowered: bool = False
    #: See `LocalLog.compacted_to`.
    compacted_to: int = -1
    #: Every compaction of the log has been recorded there.
    records_compactions: bool = False
    #: Recovery found bytes that are not records, and cut them off.
    was_cut: bool = False
    #: ... and there were records in segments behind them, which it has dropped.
    has_dropped: bool = False
    #: See `LocalLog.copying_in`.
    copying_in: int = NO_LEADER_EPOCH


class BeforeCut(Protocol):
    """`has_dropped`: there are records in segments behind the cut, which will be dropped. Raises OSError."""

    def __call__(self, *, has_dropped: bool) -> None: ...


#: Beyond every offset.
NOTHING_CUT = 2**63 - 1


def recover(
    segments: list[Segment],
    first: int,
    epochs: LeaderEpochCache | None,
    *,
    compacted_to: int | None,
    interval: int,
    before_cut: BeforeCut,
) -> tuple[int, bool]:
    """Check `segments` from number `first` on; cut and drop what is not sound.

    Offsets may be missing within a segment: a compaction removed them, here or before the batches were copied, whatever the
    topic's policy is today. Between two segments they may be missing only where a compaction was: a loss of power can remove
    the end of a file and leave the next one, and can bring back a removed file. Before the last batch of a segment they may be
    missing only if that is known of this log: no later batch can show that its base offset is wrong.

    Args:
        compacted_to: the log's; None: unknown, so a segment that begins behind its base offset shows a compaction.
        before_cut: called before anything is cut or dropped. Raises OSError.

    Returns the base offset of the segment that was cut (or behind which some were dropped; NOTHING_CUT if none was), and whether
    records in later segments were dropped. Raises OSError.
    """
    all_segments = list(segments)

    def known() -> int:
        nonlocal compacted_to
        if compacted_to is None:
            compacted_to = EVERYWHERE if any(s.size and _starts_with_gap(s) for s in all_segments) else -1
        return compacted_to

    expected = segments[first].base_offset
    floor_epoch = -1
    for number in range(first, len(segments)):
        segment = segments[number]
        if segment.base_offset < expected or (segment.base_offset > expected and segment.base_offset > known()):
            has_dropped = _has_records(segments, number)
            before_cut(has_dropped=has_dropped)
            _drop(segments, number)
            return segments[-1].base_offset, has_dropped
        ceiling = segments[number + 1].base_offset if number + 1 < len(segments) else 2**63 - 1
        walk = _Walk(segment, epochs, floor_epoch, ceiling)
        end = walk.run(interval)
        if walk.doubtful_from is not None and (walk.is_contradicted or known() < 0):
            end = walk.run(interval, stop=walk.doubtful_from)
        expected, floor_epoch = segment.next_offset, walk.last_epoch
        whole = end == segment.size
        has_dropped = not whole and _has_records(segments, number + 1)
        if not whole:
            before_cut(has_dropped=has_dropped)
            _log.warning("log.cut", segment=segment.path(LOG), size=segment.size, kept=end)
        segment.cut_after_recovery(end)
        if not whole:
            _drop(segments, number + 1)
            return segment.base_offset, has_dropped
    return NOTHING_CUT, False


def _has_records(segments: list[Segment], first: int) -> bool:
    return any(segment.size for segment in segments[first:])


class _Walk:
    """Over one segment: rebuilds what is derived from its batches, up to the first one that is not sound."""

    def __init__(self, segment: Segment, epochs: LeaderEpochCache | None, floor_epoch: int, ceiling: int) -> None:
        self._segment = segment
        self._epochs = epochs
        self._floor_epoch = floor_epoch
        #: No batch reaches beyond this offset, and the last one of a segment that is not the last reaches it.
        self._ceiling = ceiling
        self.last_epoch = floor_epoch
        #: The last batch, if offsets are missing before it and no later batch confirms it; else None.
        self.doubtful_from: int | None = None
        #: ... and the next one fits where offsets seemed to be missing: the base offset of the doubtful one is wrong.
        self.is_contradicted = False

    def run(self, interval: int, stop: int | None = None) -> int:
        """Where the sound batches end; none at or behind `stop` is. Raises OSError."""
        segment = self._segment
        segment.reset_for_recovery()
        segment.next_offset = expected = before_gap = segment.base_offset
        self.last_epoch, self.doubtful_from, self.is_contradicted = self._floor_epoch, None, False
        end = 0
        for position, header, _ in segment.checked():
            if position == stop:
                break
            base = header.base_offset
            if (
                base < expected
                or header.last_offset_delta < 0
                or header.next_offset > self._ceiling
                or not segment.may_hold(header)
            ):
                self.is_contradicted = before_gap <= base < expected
                break
            if not _epoch_fits(self._epochs, header, self.last_epoch):
                break
            if base > expected:
                self.doubtful_from, before_gap = position, expected
            else:
                self.doubtful_from = None
            self.last_epoch = header.partition_leader_epoch
            segment.recovered(position, header, interval)
            end, expected = position + header.size, header.next_offset
        if expected == self._ceiling:
            self.doubtful_from = None
        return end


def _epoch_fits(epochs: LeaderEpochCache | None, header: BatchHeader, floor_epoch: int) -> bool:
    if epochs is None:
        return header.partition_leader_epoch >= floor_epoch
    known = epochs.epoch_at(header.base_offset)
    return known == -1 or header.partition_leader_epoch == known


def _drop(segments: list[Segment], first: int) -> None:
    """Remove segments from number `first` on; keep one at least."""
    for segment in segments[first:]:
        _log.warning("log.segment_dropped", segment=segment.path(LOG), size=segment.size)
        segment.remove()
    del segments[first:]


def load_snapshot(disk: Disk, path: str, snapshots: list[int]) -> tuple[ProducerStates, int]:
    """The newest sound snapshot and its offset; no producers at offset 0 if there is none. Damaged ones are removed."""
    while snapshots:
        offset = snapshots[-1]
        name = f"{path}/{file_name(offset, SNAPSHOT)}"
        try:
            states = ProducerStates.decode_snapshot(disk.read_file(name))
        except FileNotFoundError:
            states = None
        if states is not None:
            return states, offset
        disk.remove(name)
        snapshots.pop()
    return ProducerStates(), 0


def rebuild_aborted(
    disk: Disk, path: str, segments: list[Segment], doubtful: list[Segment], snapshots: list[int], most_producers: int
) -> None:
    """Rebuild the transaction indexes of the `doubtful` segments from the batches. Raises OSError."""
    first = doubtful[0].base_offset
    known = [offset for offset in snapshots if offset <= first]
    states, start = load_snapshot(disk, path, known)
    snapshots[:] = [offset for offset in snapshots if offset > first or offset in known]
    for segment in doubtful:
        segment.transactions.reset()
    _log.warning("log.transaction_index_rebuilt", path=path, segments=len(doubtful), read_from=start)
    try:
        upto = segments[: segments.index(doubtful[-1]) + 1]
        for segment, aborted in replay(states, upto, start, most_producers=most_producers):
            if segment in doubtful:
                segment.aborted().append(aborted)
    except ApiError as error:
        # Below the recovery point, where nothing was checked: reads will find it and fail.
        _log.error("log.damaged", path=path, error=str(error))
        return
    for segment in doubtful:
        segment.transactions.settle()


def replay(
    producers: ProducerStates, segments: list[Segment], start: int, end: int = NOTHING_CUT, *, most_producers: int
) -> Iterator[tuple[Segment, AbortedTxn]]:
    """Bring `producers`, which are as of offset `start`, to offset `end` or the log's end; yields the aborted transactions met.

    Args:
        most_producers: see ProducerStates.drop_silent.

    Raises:
        ApiError: CORRUPT_MESSAGE. OSError.
    """
    for segment in segments:
        if segment.next_offset <= start or not segment.size:
            continue
        position = segment.position_of(start) if start > segment.base_offset else 0
        for at, header in segment.headers(position):
            if header.next_offset > end:
                return
            if header.base_offset < start or header.producer_id < 0:
                continue
            marker = None
            if header.is_control:
                marker = marker_in(memoryview(segment.read_at(at, header.size)), 0, header)
            prepared = PreparedAppend()
            producers.prepare(prepared, header, header.base_offset, marker, from_client=False, replicated=True)
            for done, stable in producers.apply(prepared):
                yield segment, AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable)
            producers.drop_silent(most_producers)


def _starts_with_gap(segment: Segment) -> bool:
    """Whether its first batch lies behind the base offset: only a compaction removes offsets there. Raises OSError."""
    data = segment.read_at(0, HEADER_SIZE)
    return len(data) == HEADER_SIZE and BatchHeader._make(HEADER.unpack(data)).base_offset > segment.base_offset
