"""Which batches of a producer a compaction keeps, if need be without their records: those that its sequence is known by.

The rule: from the batches that a compaction leaves below the end of its range, a replica rebuilds the producers that were there at
this end, with the batches that they may repeat. So it does not matter what becomes of the batches behind: they may not be replicated
yet, and be truncated. If only a producer's newest batch in the whole log were kept (Kafka's rule), and that one were truncated, a
replica that copied the compacted part would know an older sequence than the others, and refuse the producer's next batch once it led.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from kafkalite.env.seams import Disk
from kafkalite.log.past_producers import producers_at
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.segment import Segment
from kafkalite.record.batch import BatchHeader


class KeptBatches:
    """Of the producers as they were at the end of the range."""

    __slots__ = ("_epochs", "_last", "_repeatable")

    def __init__(self, states: ProducerStates, active: Set[int]) -> None:
        entries = {producer_id: entry for producer_id, entry in states.active().items() if producer_id in active}
        #: (producer id, last offset of a batch): the last one of each, and those that it may repeat.
        self._last = {(producer_id, e.batches[-1].last_offset) for producer_id, e in entries.items() if e.batches}
        self._repeatable = {(producer_id, kept.last_offset) for producer_id, e in entries.items() for kept in e.batches}
        #: Producer id -> epoch, where a marker began it and no batch followed: only the marker says which epochs are fenced.
        self._epochs = {
            producer_id: entry.producer_epoch for producer_id, entry in entries.items() if not entry.batches
        }

    def has(self, header: BatchHeader) -> bool:
        """Whether the batch, or marker, stays."""
        if header.is_control:
            return self._epochs.get(header.producer_id) == header.producer_epoch
        # A transaction in the range has ended: none of its batches is repeated.
        kept = self._last if header.is_transactional else self._repeatable
        return (header.producer_id, header.last_offset) in kept


def kept_batches(
    disk: Disk, path: str, snapshots: Sequence[int], sources: Sequence[Segment], active: Set[int], most: int
) -> KeptBatches:
    """What `sources`, the log's segments from the first one on, have to keep. Runs off the loop.

    Args:
        snapshots: offsets of the log's producer snapshots in the directory `path`.
        active: ids of the producers that have not expired.
        most: producers that the log remembers (max.producer.ids).

    Raises:
        OSError; ApiError CORRUPT_MESSAGE.
    """
    if not active:
        return KeptBatches(ProducerStates(), active)
    states = producers_at(disk, path, snapshots, sources, sources[-1].next_offset, most)
    return KeptBatches(states, active)
