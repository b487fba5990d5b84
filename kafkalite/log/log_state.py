"""What one replica's log is made of, and how it stands. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kafkalite.config import TopicConfig
from kafkalite.errors import StorageError
from kafkalite.log.epoch_file import LeaderEpochFile
from kafkalite.log.flushing import Flusher
from kafkalite.log.local_log import LocalLog, LogPlace
from kafkalite.log.producer_state import ProducerEntry
from kafkalite.log.record_checks import RecordRules, rules_of
from kafkalite.log.recovery import LogParts
from kafkalite.log.segment import Segment
from kafkalite.log.snapshots import ProducerSnapshots
from kafkalite.model import LeaderEpoch, Offset, TopicId, TopicPartition


class LogEvents(Protocol):
    """Receives what happens to a log."""

    def recovery_point_lowered(self, log: LogState) -> None:
        """The recovery point went down: that is durable when this returns. Raises OSError."""

    def cut(self, log: LogState) -> None:
        """A truncation has lowered the log's end."""


class LogState:
    """The parts of a log, and its offsets.

    Invariants: log_start_offset <= log_end_offset; recovery_point <= synced_offset <= log_end_offset.
    """

    __slots__ = (
        "_epochs", "_flusher", "_local", "_now_ms", "_producers", "_rules", "_snapshots", "clean_start", "config", "damaged_at",
        "directory", "disk", "durable_start_offset", "events", "has_dropped", "log_end_offset", "log_start_offset", "lowest_cut",
        "topic_partition", "was_cut",
    )  # fmt: skip

    def __init__(
        self,
        topic_partition: TopicPartition,
        config: TopicConfig,
        place: LogPlace,
        parts: LogParts,
        *,
        is_new: bool = False,
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.disk = place.disk
        self.directory = place.directory
        self._now_ms = place.now_ms
        #: The configuration, and what follows from it for records.
        self._rules = (config, rules_of(config))
        self._local = LocalLog(topic_partition, place, parts, is_new=is_new)
        # After an unclean shutdown nobody knows what was synced: all of it counts as not durable.
        unclean = not parts.clean
        self._epochs = LeaderEpochFile(self._local, parts.epochs, dirty=unclean)
        self._producers = parts.producers
        self._snapshots = ProducerSnapshots(
            self._local, parts.snapshots, dirty=list(parts.snapshots) if unclean else []
        )
        self.log_start_offset = Offset(parts.log_start_offset)
        #: Where the log begins after a crash: as in the checkpoint file, or before it.
        self.durable_start_offset = self.log_start_offset
        #: A copy of `LocalLog.next_offset` for the hot path: set again after each change of it.
        self.log_end_offset = Offset(self._local.next_offset)
        self._flusher = Flusher(
            self._local,
            self._epochs,
            self._snapshots,
            recovery_point=Offset(min(parts.recovery_point, self.log_end_offset)),
            needs_checkpoint=parts.recovery_point_lowered,
        )
        #: Whether the last shutdown was clean: nothing that was written can have been lost (invariant F14).
        self.clean_start = parts.clean
        #: Whether opening it found bytes that were no records.
        self.was_cut = parts.was_cut
        self.has_dropped = parts.has_dropped
        #: Offset at which a read met damaged bytes; None while there was no such read.
        self.damaged_at: int | None = None
        #: The lowest end that a truncation has left since the move that copies this log has last read it (see kafkalite.log.moving).
        self.lowest_cut: int | None = None
        #: Receives what happens to this log; None while it is not in service.
        self.events: LogEvents | None = None

    @property
    def topic_id(self) -> TopicId:
        return self._local.topic_id

    @property
    def path(self) -> str:
        """Its own directory, `<directory>/<topic>-<partition>`."""
        return self._local.path

    @property
    def size_bytes(self) -> int:
        segments = self._local.segments
        if len(segments) == 1:  # most logs
            return segments[0].size
        return sum(segment.size for segment in segments)

    @property
    def segment_count(self) -> int:
        return len(self._local.segments)

    @property
    def first_offset(self) -> int:
        """Base offset of the oldest segment."""
        return self._local.segments[0].base_offset

    @property
    def segments(self) -> list[Segment]:
        """Oldest first, the active one last. For the cleaner and for tests; not to be changed."""
        return self._local.segments

    def record_rules(self) -> RecordRules:
        """What it asks of records, by its configuration."""
        config, rules = self._rules
        if config is not self.config:
            rules = rules_of(self.config)
            self._rules = (self.config, rules)
        return rules

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self._epochs.cache.latest_epoch)

    @property
    def epoch_entries(self) -> list[tuple[int, int]]:
        """(leader epoch, start offset), as in the leader-epoch-checkpoint."""
        return self._epochs.cache.entries()

    @property
    def is_failed(self) -> bool:
        """A write or an fsync failed: what the disk holds is not known any more, so nothing more is written."""
        return self._local.failed

    @property
    def sync_failed(self) -> bool:
        """An fsync failed: the page cache may show what the disk does not have."""
        return self._local.sync_failed

    @property
    def is_closed(self) -> bool:
        return self._local.closed

    def active_producers(self) -> dict[int, ProducerEntry]:
        """Producer id -> entry, the one that wrote last at the end. Not to be changed."""
        return self._producers.active()

    @property
    def has_open_transaction(self) -> bool:
        """Whether `producers_in_transaction` has any."""
        return self._producers.has_any_open

    def producers_in_transaction(self) -> Iterator[tuple[int, ProducerEntry]]:
        """See ProducerStates.in_transaction."""
        return self._producers.in_transaction()

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        """Where the producers were saved, in order."""
        return tuple(self._snapshots.offsets)

    def storage_error(self, what: str, error: OSError) -> StorageError:
        return self._local.storage_error(what, error)

    @property
    def synced_offset(self) -> Offset:
        """Everything below is on the disk itself, not only in the page cache."""
        return self._flusher.synced_offset

    @property
    def recovery_point(self) -> Offset:
        """The next start after an unclean shutdown need not check what is below."""
        return self._flusher.recovery_point

    @property
    def needs_checkpoint(self) -> bool:
        """The recovery point in the checkpoint file is higher than ours."""
        return self._flusher.needs_checkpoint

    @needs_checkpoint.setter
    def needs_checkpoint(self, needs: bool) -> None:
        self._flusher.needs_checkpoint = needs

    @property
    def has_rolled(self) -> bool:
        """Whether `flush_rolled` has anything to do."""
        return self._flusher.recovery_point < self._local.segments[-1].base_offset

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would have anything to do."""
        return self._flusher.is_dirty

    @property
    def is_compacted(self) -> bool:
        """A compaction has removed offsets, here or before the batches were copied."""
        return self._local.compacted_to >= 0

    @property
    def copying_in(self) -> int:
        """The leader epoch in which the copying of the leader's log began here; NO_LEADER_EPOCH: the log is no unfinished copy."""
        return self._local.copying_in

    @property
    def cuts(self) -> int:
        """Changes whenever segments are cut, removed or renamed, other than by `replace_segments`."""
        return self._local.cuts

    @property
    def pending_swap(self) -> str:
        """The path of a compacted segment that was about to replace others when the log was closed; empty: there is none."""
        return self._local.pending_swap

    @property
    def changes(self) -> int:
        """Changes whenever what was read below the log's end may be gone, or other records."""
        return self._local.cuts + self._local.compactions
