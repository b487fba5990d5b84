"""What is found again from the batches themselves, after an unclean stop or a truncation: the log's sound prefix, its producers.

Recovery keeps the longest prefix of batches that are whole, have the right CRC, continue where the one before ended and
bear the leader epoch that the epoch file gives for their offset (base offset and epoch lie outside the CRC). What comes
behind is cut off; followers fetch it again. An epoch that the file doesn't know was never flushed: a flush makes the
file durable first.

The producers are those of the newest sound snapshot, brought to the log's end by the batches behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalite.env.seams import Disk
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.epoch_cache import LeaderEpochCache
from kafkalite.log.index import AbortedTransaction
from kafkalite.log.producer_state import PreparedAppend, ProducerStates
from kafkalite.log.segment import LOG, SNAPSHOT, Segment, file_name
from kafkalite.log.validation import marker_in
from kafkalite.model import TopicId
from kafkalite.record.batch import BatchHeader
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


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
    #: Recovery found bytes that are no records, and cut them off.
    was_cut: bool = False


#: Beyond every offset.
NOTHING_CUT = 2**63 - 1


def recover(segments: list[Segment], first: int, epochs: LeaderEpochCache | None, *, gaps: bool, interval: int) -> int:
    """Check `segments` from number `first` on; cut and drop what is not sound.

    Returns the base offset of the segment that was cut (or behind which some were dropped); NOTHING_CUT if none was.
    Raises OSError.
    """
    expected = segments[first].base_offset
    floor_epoch = -1
    for number in range(first, len(segments)):
        segment = segments[number]
        if segment.base_offset != expected and not (gaps and segment.base_offset > expected):
            _drop(segments, number)
            return segments[-1].base_offset
        expected = max(expected, segment.base_offset)
        segment.reset_for_recovery()
        segment.next_offset = segment.base_offset
        end = 0
        for position, header, _ in segment.checked():
            continues = header.base_offset == expected or (gaps and header.base_offset > expected)
            if not continues or header.last_offset_delta < 0 or not _epoch_fits(epochs, header, floor_epoch):
                break
            floor_epoch = header.partition_leader_epoch
            segment.recovered(position, header, interval)
            end, expected = position + header.size, header.next_offset
        whole = end == segment.size
        if not whole:
            _log.warning("log.cut", segment=segment.path(LOG), size=segment.size, kept=end)
        segment.cut_after_recovery(end)
        if not whole:
            _drop(segments, number + 1)
            return segment.base_offset
    return NOTHING_CUT


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


def replay(
    producers: ProducerStates, segments: list[Segment], start: int
) -> Iterator[tuple[Segment, AbortedTransaction]]:
    """Bring `producers`, which are as of offset `start`, to the log's end; yields the aborted transactions met.

    Raises:
        ApiError: CORRUPT_MESSAGE. OSError.
    """
    for segment in segments:
        if segment.next_offset <= start or not segment.size:
            continue
        position = segment.position_of(start) if start > segment.base_offset else 0
        for at, header in segment.headers(position):
            if header.base_offset < start or header.producer_id < 0:
                continue
            marker = None
            if header.is_control:
                marker = marker_in(memoryview(segment.read_at(at, header.size)), 0, header)
            prepared = PreparedAppend()
            producers.prepare(prepared, header, header.base_offset, marker, from_client=False, replicated=True)
            for done, stable in producers.apply(prepared):
                yield segment, AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, stable)
