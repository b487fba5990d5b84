"""One replica's log as readers see it: batches, look-ups by timestamp and by epoch, transactions."""

from __future__ import annotations

from functools import partial

from kafkalite.env.fair_queue import Owner
from kafkalite.env.residency import ResidentOnly
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.log.cold_reads import ColdReads
from kafkalite.log.index import AbortedTxn
from kafkalite.log.local_log import LocalLog
from kafkalite.log.log_state import LogState
from kafkalite.log.reading import (
    Candidate,
    LogMoved,
    ReadInfo,
    Stretch,
    aborted_transactions,
    candidate_for_timestamp,
    first_record,
    newest_record,
    read_batches,
    sound_prefix,
    stretch_of,
)
from kafkalite.log.segment import Segment
from kafkalite.model import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset

#: How often a look-up by timestamp starts again because the log was changed meanwhile.
_LOOKUP_ATTEMPTS = 5
#: What one look needs from the disk at most: two indexes, and headers at a few places.
_LOOKUP_LOADS = 12
_LOG_CHANGED = "the log was changed during the look-up"


class ReadableLog(LogState):
    """Reading. Raises StorageError for what the operating system refuses, ApiError for what Kafka's rules refuse."""

    __slots__ = ()

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_offset: int | None = None,
        min_one_batch: bool = True,
        verify: bool = True,
        may_wait: bool = True,
    ) -> ReadInfo:
        """Whole batches from the one that holds `offset`, all of them below `max_offset` (exclusive: HW or LSO).

        Args:
            max_bytes: not more than this, but for the first batch when `min_one_batch`.
            verify: check every CRC and cut the answer before damage; a follower checks for itself.
            may_wait: for the disk. Otherwise it raises NotResident if something is not in the page cache.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE (below the log start, beyond the log end); CORRUPT_MESSAGE (the batch at
                `offset` is damaged on disk). StorageError.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise api_error(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log_start_offset}..{self.log_end_offset}",
            )
        limit = self.log_end_offset if max_offset is None else min(max_offset, self.log_end_offset)
        if offset >= limit:
            return ReadInfo(offset, [], 0, offset)
        try:
            if may_wait:
                return self._read(offset, max_bytes, limit, min_one_batch=min_one_batch, verify=verify)
            with ResidentOnly():
                return self._read(offset, max_bytes, limit, min_one_batch=min_one_batch, verify=verify)
        except OSError as error:
            raise self.storage_error("read", error) from error
        except ApiError:
            self.damaged_at = offset
            raise

    def _read(self, offset: int, max_bytes: int, limit: int, *, min_one_batch: bool, verify: bool) -> ReadInfo:
        piece = read_batches(self._local, offset, max_bytes, limit, min_one_batch=min_one_batch, verify=verify)
        if piece is None:
            return ReadInfo(offset, [], 0, offset)
        data, end = sound_prefix(self._local, piece, offset, limit) if verify else (piece.data, limit)
        return ReadInfo(offset, [data], len(data), end)

    async def offset_for_timestamp(
        self, timestamp_ms: int, cold: ColdReads, owner: Owner
    ) -> tuple[int, Offset, LeaderEpoch] | None:
        """(timestamp, offset, leader epoch) of the first record whose timestamp is >= `timestamp_ms`; None if none.

        The records of a batch are looked at off the loop, in the owner's turn. Indexes and headers are looked at on it, once the disk has given
        them. Raises ApiError CORRUPT_MESSAGE, OFFSET_NOT_AVAILABLE (the log was changed under each attempt); StorageError.
        """
        await self.load_timestamps(cold, owner)
        behind, changes = -1, 0
        while changes < _LOOKUP_ATTEMPTS:
            with self._local.io("look-up by timestamp"):
                look = partial(self._candidate, timestamp_ms, behind)
                try:
                    candidate = await cold.attempt(owner, self.directory, look, loads=_LOOKUP_LOADS)
                    if candidate is None:
                        return None
                    search = partial(first_record, self.disk, candidate, timestamp_ms, self.log_start_offset)
                    found, _ = await cold.executor(self.directory).run(owner, search)
                except LogMoved:
                    changes += 1
                    continue
            if found is not None:
                return found
            behind = candidate.header.last_offset
        raise api_error(ErrorCode.OFFSET_NOT_AVAILABLE, _LOG_CHANGED)

    def _candidate(self, timestamp_ms: int, behind: int) -> Candidate | None:
        """Raises LogMoved, NotResident, OSError; ApiError CORRUPT_MESSAGE."""
        if self._local.closed:
            raise LogMoved
        return candidate_for_timestamp(self._local.segments, timestamp_ms, self.log_start_offset, behind)

    async def max_timestamp_offset(self, cold: ColdReads, owner: Owner) -> tuple[int, Offset, LeaderEpoch] | None:
        """(timestamp, offset, leader epoch) of the first record with the largest timestamp; None if there is none.

        The end of a transaction counts, as in Kafka: in a topic with transactions it is often the newest of all. The batch
        is chosen by the headers. Raises as `offset_for_timestamp`.
        """
        await self.load_timestamps(cold, owner)
        for _ in range(_LOOKUP_ATTEMPTS):
            with self._local.io("look-up by timestamp"):
                try:
                    return await self._newest_record(cold, owner)
                except LogMoved:
                    continue
        raise api_error(ErrorCode.OFFSET_NOT_AVAILABLE, _LOG_CHANGED)

    async def _newest_record(self, cold: ColdReads, owner: Owner) -> tuple[int, Offset, LeaderEpoch] | None:
        """Raises LogMoved, OSError, ApiError CORRUPT_MESSAGE."""
        newest: tuple[int, Offset, LeaderEpoch] | None = None
        # In the order of their newest timestamps, so that one look is enough unless DeleteRecords removed that record.
        for segment in sorted(self._local.segments, key=lambda each: each.largest_timestamp()[0], reverse=True):
            if not segment.size or segment.next_offset <= self.log_start_offset:
                continue
            if newest is not None and segment.largest_timestamp()[0] < newest[0]:
                break
            look = partial(self._stretch, segment)
            stretch = await cold.attempt(owner, self.directory, look, loads=_LOOKUP_LOADS)
            search = partial(newest_record, self.disk, stretch, self.log_start_offset)
            found, _ = await cold.executor(self.directory).run(owner, search)
            if found is not None and (newest is None or (-found[0], found[1]) < (-newest[0], newest[1])):
                newest = found
        return newest

    def _stretch(self, segment: Segment) -> Stretch:
        """Raises LogMoved, NotResident, OSError; ApiError CORRUPT_MESSAGE."""
        if self._local.closed or segment not in self._local.segments:
            raise LogMoved
        return stretch_of(segment, self.log_start_offset)

    @property
    def needs_timestamps(self) -> bool:
        """Whether `load_timestamps` has anything to do."""
        return any(segment.max_timestamp is None for segment in self._local.segments)

    async def load_timestamps(self, cold: ColdReads, owner: Owner) -> None:
        """Have the largest timestamp of each segment in memory, without waiting for the disk on the loop. Raises StorageError."""
        with self._local.io("reading timestamps"):
            for segment in list(self._local.segments):
                if segment.max_timestamp is None:
                    await cold.attempt(owner, self.directory, partial(_largest_timestamp, self._local, segment))

    async def load_aborted(self, cold: ColdReads, owner: Owner) -> None:
        """The same for the aborted transactions of each segment. Raises StorageError; ApiError CORRUPT_MESSAGE."""
        with self._local.io("reading aborted transactions"):
            for segment in list(self._local.segments):
                if not segment.transactions.is_loaded:
                    await cold.attempt(owner, self.directory, partial(_aborted, self._local, segment))

    def epoch_and_end_offset_for(self, requested_epoch: int) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch <= `requested_epoch` in this log, and where it ends (invariant F2); (-1, -1) if there is none."""
        return self._epochs.cache.end_offset_for(requested_epoch, self.log_end_offset)

    def epoch_end_for_clients(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        """The same for a client that has read in `epoch`.

        An epoch later than all here is unknown: (-1, -1), for what the client has from there is not in this log (an unclean election). One that
        retention has removed ends where the first one that is left begins: without an end, a consumer that is just there would take its
        position for lost, and be reset. Source: Kafka's LeaderEpochFileCache.endOffsetFor.
        """
        if epoch > self._epochs.cache.latest_epoch:
            return NO_LEADER_EPOCH, NO_OFFSET
        found = self.epoch_and_end_offset_for(epoch)
        if found[0] == NO_LEADER_EPOCH and epoch != NO_LEADER_EPOCH and (known := self._epochs.cache.entries()):
            return LeaderEpoch(epoch), Offset(known[0][1])
        return found

    @property
    def last_record_epoch(self) -> LeaderEpoch:
        """The leader epoch of the last record; -1 if there was none. `latest_epoch` may be one that this replica led, and in which nothing was written:
        it counts only where retention has left no record that could say more."""
        is_emptied = 0 < self.log_start_offset == self.log_end_offset
        return self.latest_epoch if is_emptied else self.epoch_at(self.log_end_offset - 1)

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """The leader epoch of the record at `offset`; -1 if it is not known."""
        return LeaderEpoch(self._epochs.cache.epoch_at(offset))

    @property
    def extent(self) -> tuple[int, int]:
        """(leader epoch of the last record, end): of two copies the one with the larger extent got further."""
        return self.last_record_epoch, self.log_end_offset

    @property
    def first_unstable_offset(self) -> Offset | None:
        """Of the earliest transaction that is open or whose end is not known to be committed; None if there is none.

        If the log begins later (DeleteRecords, retention), it is the log's start, as in Kafka.
        """
        first = self._producers.first_unstable_offset
        return None if first is None else max(Offset(first), self.log_start_offset)

    def forget_ended(self, high_watermark: int) -> None:
        """Transactions that ended below the high watermark hold no reader back any more."""
        self._producers.forget_replicated(high_watermark)

    def last_stable_offset(self, high_watermark: int) -> Offset:
        """Where readers of committed transactions stop."""
        self._producers.forget_replicated(high_watermark)
        first = self.first_unstable_offset
        return Offset(high_watermark if first is None else min(first, high_watermark))

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        """Those that overlap [from_offset, to_offset), for readers of committed transactions."""
        with self._local.io("reading aborted transactions"):
            return aborted_transactions(self._local, from_offset, to_offset)


def _largest_timestamp(local: LocalLog, segment: Segment) -> None:
    """Unless the segment has gone meanwhile."""
    if not local.closed and segment in local.segments:
        segment.largest_timestamp()


def _aborted(local: LocalLog, segment: Segment) -> None:
    """Unless the segment has gone meanwhile."""
    if not local.closed and segment in local.segments:
        segment.aborted()
