"""One replica's log as its leader, or its follower, writes it: appends, and the undoing of one that failed half way.

Order of effects (rule IV: persist, then publish): an epoch's start is in its file before the first batch of that epoch;
offsets, producers and indexes change only after the write has returned.
"""

from __future__ import annotations

from kafkalite.errors import ErrorCode, api_error
from kafkalite.log.appending import AppendInfo, duplicate_of, new_append_info, place_for, with_new_heads
from kafkalite.log.failures import is_shortage
from kafkalite.log.index import AbortedTxn
from kafkalite.log.producer_state import CompletedTransaction, PreparedAppend, ProducerStates
from kafkalite.log.readable_log import ReadableLog
from kafkalite.log.recovery import load_snapshot, replay
from kafkalite.log.segment import Segment
from kafkalite.log.validation import (
    CheckedRecords,
    Origin,
    batches_for_follower,
    batches_for_leader,
    begins_within,
    check_timestamps,
    has_gap,
    marker_in,
)
from kafkalite.model import Buffer, Offset
from kafkalite.record.batch import HEADER_SIZE, TIMESTAMP_TYPE_FLAG, BatchHeader, assign_in_place, stamped_header


class AppendableLog(ReadableLog):
    """Appending. Raises StorageError for what the operating system refuses, ApiError for what Kafka's rules refuse."""

    __slots__ = ()

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: Origin = "client",
        guard: int | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Check every batch, give offsets, write. All or nothing.

        A writable buffer gets base offset and leader epoch written into it; otherwise new heads go out beside it.

        Args:
            guard: as `begin_verification` gave it; None: a transaction may begin here unverified.
            transaction_version: of a marker; see ProducerStates.prepare.

        Raises:
            ApiError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP,
                UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER,
                INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED. StorageError.
        """
        local, config = self._local, self.config
        if local.failed or local.closed:
            local.check_usable()
        view = records if type(records) is memoryview and records.format == "B" else memoryview(records).cast("B")
        batches = batches_for_leader(view, config, origin, keys_checked=type(records) is CheckedRecords)
        if origin == "client" and config.message_timestamp_type == "CreateTime":
            check_timestamps(batches, config, self._now_ms())
        append_time = self._now_ms() if config.message_timestamp_type == "LogAppendTime" else -1
        prepared: PreparedAppend | None = None
        offset = self.log_end_offset
        bases: list[int] = []
        for position, header in batches:
            bases.append(offset)
            if header.producer_id >= 0:
                written = header if append_time < 0 else header._replace(max_timestamp=append_time)
                if prepared is None:
                    if origin == "client" and (known := duplicate_of(batches, self._producers, config)) is not None:
                        return known
                    prepared = PreparedAppend()
                if guard is not None:
                    self._producers.check_verified(header, guard)
                self._producers.prepare(
                    prepared, written, offset, marker_in(view, position, header),
                    from_client=origin == "client", replicated=False, transaction_version=transaction_version,
                )  # fmt: skip
            offset = Offset(offset + header.last_offset_delta + 1)
        buffers: list[list[Buffer]] | memoryview
        if append_time < 0 and not view.readonly:
            for (position, header), base in zip(batches, bases):
                assign_in_place(view, position, base, leader_epoch)
                if header.attributes & TIMESTAMP_TYPE_FLAG:
                    view[position : position + HEADER_SIZE] = stamped_header(view, position, header, append_time)
            buffers = view
        else:
            buffers = with_new_heads(view, batches, bases, leader_epoch, append_time)
        epochs = () if leader_epoch == self._epochs.cache.latest_epoch else ((leader_epoch, bases[0]),)
        return self._write(batches, bases, buffers, prepared, epochs, append_time)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, begins_at_zero: bool = False
    ) -> int:
        """See ProducerStates.begin_verification."""
        return self._producers.begin_verification(producer_id, producer_epoch, sequence, begins_at_zero=begins_at_zero)

    def coordinator_epoch(self, producer_id: int) -> int:
        """See ProducerStates.coordinator_epoch."""
        return self._producers.coordinator_epoch(producer_id)

    def end_verification(self, producer_id: int, guard: int) -> None:
        """See ProducerStates.end_verification."""
        self._producers.end_verification(producer_id, guard)

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Take a leader's batches as they are; they must continue at `log_end_offset`. All or nothing.

        An empty log may also begin with the batch in which it starts: DeleteRecords can end within a batch.

        Raises:
            ApiError: CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE (they don't continue here). StorageError.
        """
        self._local.check_usable()
        view = memoryview(records).cast("B")
        start = self.log_start_offset
        base = begins_within(view, start) if self.log_end_offset == start else None
        batches = batches_for_follower(view, self.log_end_offset if base is None else base)
        if base is not None:
            self.truncate_fully_and_start_at(base)
        if not batches:
            return AppendInfo(self.log_end_offset, self.log_end_offset - 1, -1, -1, 0, 0)
        if self._local.compacted_to < 0 and has_gap(batches, self.log_end_offset):
            with self._local.io("noting that offsets are missing"):
                self._local.record_copied_gap()
        prepared: PreparedAppend | None = None
        bases: list[int] = []
        epochs: list[tuple[int, int]] = []
        last_epoch = self._epochs.cache.latest_epoch
        for position, header in batches:
            base = header.base_offset
            bases.append(base)
            if header.partition_leader_epoch != last_epoch:
                last_epoch = header.partition_leader_epoch
                epochs.append((last_epoch, base))
            if header.producer_id >= 0:
                prepared = prepared or PreparedAppend()
                self._producers.prepare(
                    prepared, header, base, marker_in(view, position, header), from_client=False, replicated=True
                )
        info = self._write(batches, bases, view, prepared, epochs, -1)
        self.advance_log_start_offset(start)
        return info

    def _write(
        self,
        batches: list[tuple[int, BatchHeader]],
        bases: list[int],
        buffers: list[list[Buffer]] | memoryview,
        prepared: PreparedAppend | None,
        epochs: tuple[tuple[int, int], ...] | list[tuple[int, int]],
        append_time: int,
    ) -> AppendInfo:
        """Write the batches, one system call per segment they fall into (nearly always one), then account for them.

        `buffers`: per batch what to write, or the bytes in which all of them lie at their positions, ready to be written.
        """
        start, max_timestamp, total = self.log_end_offset, -1, 0
        config, local = self.config, self._local
        if epochs or self._epochs.unsaved:
            self._epochs.add(epochs)
        interval = config.index_interval_bytes
        first = 0
        is_begun = False
        producers = self._producers
        try:
            if prepared is not None and prepared.completed:
                # It may have to be read, and the marker must not be written without its entry.
                local.segments[-1].aborted()
            while first < len(batches):
                segment = local.segments[-1]
                is_new, count = place_for(config, segment, batches, bases, first, append_time)
                is_begun = is_begun or is_new
                if is_new:
                    if first and prepared is not None:  # the snapshot at the segment's end has what the segment has
                        producers = producers.copy() if producers is self._producers else producers
                        self._record_ended(self._producers.apply_until(prepared, bases[first]))
                    # At the log's end, not where the batch begins: offsets that a compaction removed are missing within a
                    # segment, and between segments nothing is missing that was not lost.
                    last = bases[first + count - 1] + batches[first + count - 1][1].last_offset_delta
                    is_near = segment.size and last - self.log_end_offset < 2**31
                    base = self.log_end_offset if is_near else bases[first]
                    if base > self.log_end_offset:  # or recovery takes what is between the two segments for lost
                        local.record_compacted(base)
                    segment = self._roll(base)
                before = segment.size
                newest = local.write(batches, bases, buffers, first, first + count, append_time, interval)
                if newest > max_timestamp:
                    max_timestamp = newest
                total += segment.size - before
                if config.preallocate and not before:
                    segment.reserve(config.segment_bytes)
                self.log_end_offset = Offset(local.next_offset)
                is_begun = True
                first += count
        except OSError as error:
            # If a write failed for lack of descriptors or memory, and was cut off again, the log is unchanged.
            local.failed = local.failed or is_begun or not is_shortage(error)
            if self.log_end_offset > start:  # an earlier segment took its part: all or nothing
                with local.io("undoing an append"):
                    self._cut_to(start)
                    self._reload_producers(producers)
            raise self.storage_error("append", error) from error
        new = dropped = 0
        if prepared is not None:
            states = self._producers
            known = len(states)
            self._record_ended(states.apply(prepared))
            new, dropped = len(states) - known, states.drop_silent(config.max_producer_ids)
        flusher = self._flusher
        if flusher.unflushed_since_ms is None:
            flusher.unflushed_since_ms = self._now_ms()
        end = self.log_end_offset
        return new_append_info(
            (bases[0], end - 1, max_timestamp, append_time, len(batches), total, False, new, dropped)
        )

    def _record_ended(self, aborted: list[tuple[CompletedTransaction, int]]) -> None:
        local = self._local
        for done, stable in aborted:
            entry = AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable)
            local.segments[local.segment_number(done.last_offset)].aborted().append(entry)

    def _roll(self, base_offset: int) -> Segment:
        """Close the active segment and begin the next. Raises OSError."""
        if self._flusher.needs_checkpoint and self.events is not None:
            self.events.recovery_point_lowered(self)
        if self.config.preallocate:
            self._local.segments[-1].release()
        if self._local.end_segment():
            self._snapshots.take(self._producers, self.log_end_offset)
        return self._local.begin_segment(base_offset)

    def roll(self) -> bool:
        """Begin a new segment if the active one has anything in it; returns whether it did."""
        local = self._local
        local.check_usable()
        if not local.segments[-1].size:
            return False
        with local.io("roll", changes=True):
            self._roll(self.log_end_offset).create()
            local.dir_dirty = True
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the next record gets `offset`."""
        local, flusher = self._local, self._flusher
        local.check_usable()
        local.dir_dirty = True
        with local.io("truncation", changes=True):
            local.drop_swap()
            for segment in local.segments:
                segment.remove()
            start = min(offset, self.log_start_offset)
            self._record_truncation(start)
            flusher.lower(Offset(start), recovery_point=start)
            local.start_at(offset)
            self.log_start_offset = self.log_end_offset = Offset(offset)
            self.durable_start_offset = min(self.durable_start_offset, self.log_start_offset)
            flusher.synced_offset = Offset(min(flusher.synced_offset, offset))
            flusher.recovery_point = Offset(min(flusher.recovery_point, offset))
            if self._epochs.cache.clear():
                self._epochs.save()
            self._snapshots.remove(lambda _: True)
            self._producers = ProducerStates()
        if self.events is not None:
            self.events.cut(self)

    def _cut_to(self, offset: int) -> None:
        """Cut the segments; offsets follow. Raises OSError."""
        self._local.cut_to(offset)
        self.log_end_offset = Offset(self._local.next_offset)
        self._record_truncation(self.log_end_offset)
        # The cut itself is not durable yet: after a power loss the tail may be back, so the whole segment counts as
        # unchecked until the next flush, even when the cut is at or above the recovery point.
        self._flusher.lower(self.log_end_offset, recovery_point=self._local.segments[-1].base_offset)

    def _record_truncation(self, end: int) -> None:
        self.lowest_cut = end if self.lowest_cut is None else min(self.lowest_cut, end)

    @property
    def _has_producers(self) -> bool:
        return len(self._producers) > 0 or self._producers.first_unstable_offset is not None

    def _reload_producers(self, found: ProducerStates | None = None) -> None:
        """After a truncation: `found`, or the newest snapshot that still holds, and the batches behind it."""
        end = self.log_end_offset
        self._snapshots.remove(lambda offset: offset > end)
        if found is not None or not self._has_producers:
            # If there were none up to a later offset, a whole segment need not be read.
            self._producers = ProducerStates() if found is None else found
            return
        self._producers, start = load_snapshot(self.disk, self.path, self._snapshots.offsets)
        most = self.config.max_producer_ids
        for _ in replay(self._producers, self._local.segments, start, most_producers=most):
            pass

    def advance_log_start_offset(self, offset: int) -> bool:
        """Records below `offset` are not to be served any more (DeleteRecords). Returns whether it moved.

        A crash brings them back until the checkpoint file has it, see `LogManager.save_log_start`.
        """
        self._local.check_usable()
        if offset > self.log_end_offset:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the end {self.log_end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = Offset(offset)
        # The file may have more: the next load forgets that.
        self._epochs.cache.truncate_from_start(offset)
        return True
