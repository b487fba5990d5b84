"""A partition as one share group sees it: which records are delivered, to whom, and which are done (KIP-932). Pure.

The offsets from the start offset to the end offset are in a state; those behind were never delivered. A record is
available, acquired by a member until its lock ends, acknowledged, or archived (rejected, delivered too often, or no record
at all). If the group has a dead letter topic, what is given up is archived once it is there (KIP-1191). An acknowledgement counts when it is stored: until then its record stays with the member, and its lock does not end.
One write is under way at a time, so that a start offset is never stored before what it passes over.

Times are milliseconds of a clock that does not go back. Source: Kafka's SharePartition for what a client can see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from kafkalite.coordinators.shares.decisions.deliveries import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    DeliveryLimits,
    LogBatch,
    Part,
    StateWrite,
    WantedRecords,
    add_parts,
    most_together,
)
from kafkalite.coordinators.shares.decisions.runs import Run, Runs
from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Offset

_AVAILABLE, _ACKNOWLEDGED, _ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
_ARCHIVING = DeliveryState.ARCHIVING
_NEVER = 2**63 - 1
#: Records that are open at most, whatever batches they are in; the limit of a group is 10,000 at most. If each second one is done, their
#: states are twice as many, with 20 bytes each: they have to fit into one record of the share coordinator.
_MOST_OPEN = 20_000


#: Offsets between two acknowledgements, up to which the runs between them are walked over, and not looked up.
_NEAR = 32


class _Gathered:
    """What one fetch of a member acquires, as it grows."""

    def __init__(self, member: str, deadline_ms: int) -> None:
        self.member = member
        self.deadline_ms = deadline_ms
        #: (first, last, deliveries including this one), in the order in which they were acquired.
        self.runs: list[tuple[int, int, int]] = []
        #: Deliveries -> records.
        self.counts: Counter[int] = Counter()


class SharedPartition:
    """See the module. `batches`: the stored ones, in the order of their offsets."""

    def __init__(
        self, start_offset: Offset, batches: Sequence[StateBatch] = (), limits: DeliveryLimits | None = None
    ) -> None:
        self.limits = limits or DeliveryLimits()
        self._runs = Runs(start_offset)
        self._stored_start: int = start_offset
        #: Whether records that are given up go to a dead letter topic first.
        self.has_dead_letters = False
        #: How many records are not done.
        self._open = 0
        #: Offsets of which an older state is stored: (first, last).
        self._unstored: list[tuple[int, int]] = []
        #: What is to be stored of offsets whose records are lost: others will come there.
        self._lost: StateBatch | None = None
        self._next: int | None = None
        #: No lock ends before.
        self._earliest_ms = _NEVER
        #: The write that is under way; what it holds of `_unstored`.
        self._write: StateWrite | None = None
        self._writing: list[tuple[int, int]] = []
        for batch in batches:
            if batch.last < self._runs.end:
                continue
            # What lies between two stored batches was with a member that never said what became of it.
            self._append(batch.first - 1, _AVAILABLE, 0)
            self._append(batch.last, batch.state, batch.delivery_count)
        self._advance()

    # --- what is seen ---

    @property
    def start_offset(self) -> Offset:
        """Everything below is done."""
        return Offset(self._runs.start)

    @property
    def end_offset(self) -> Offset:
        """Nothing from here on was delivered."""
        return Offset(self._runs.end)

    @property
    def next_offset(self) -> Offset:
        """The first record that a member could get, if it exists."""
        if self._next is None:
            self._next = next((run.first for run in self._runs if run.is_free), self._runs.end)
        return Offset(self._next)

    @property
    def can_acquire(self) -> bool:
        """Whether a member could get the record at `next_offset`, or too many are open."""
        return self.next_offset < self._runs.end or self._open < self.limits.record_locks

    @property
    def is_idle(self) -> bool:
        """Nobody holds a record of it, and all that happened is stored."""
        return (
            self._write is None
            and self._lost is None
            and not self._unstored
            and all(run.holder is None and run.state is not _ARCHIVING for run in self._runs)
        )

    def batches(self) -> list[StateBatch]:
        """The states as they would be stored now."""
        return [_stored(run) for run in self._runs]

    def held(self, member: str) -> list[tuple[int, int]]:
        """The offsets that a member has acquired: (first, last)."""
        return [(run.first, run.last) for run in self._runs if run.holder == member]

    def next_deadline(self) -> int | None:
        """When the next lock ends; None: nobody has one."""
        return min(
            (run.deadline_ms for run in self._runs if run.holder is not None and run.target is None), default=None
        )

    # --- delivery ---

    def acquire(
        self, member: str, read_from: int, batches: Sequence[LogBatch], wanted: WantedRecords, now_ms: int
    ) -> list[Acquired]:
        """Give free records out of what was read from `read_from` on. Offsets without a batch have no records any more.

        Whole batches of the log, unless the number is exact: the last one may exceed it. (Of a huge batch a part.) From half of the deliveries on
        fewer and fewer come together, at the last delivery one, so that one bad record spoils few others.
        """
        into = _Gathered(member, now_ms + self.limits.lock_ms)
        left = wanted.records
        cursor = max(read_from, self._runs.start)
        touched = cursor
        for batch in batches:
            if batch.last < cursor:
                continue
            if left <= 0:
                break
            self._archive_free(cursor, batch.first - 1)
            first, last = max(cursor, batch.first), batch.last
            if not batch.is_delivered:
                self._archive_free(first, last)
            else:
                taken = self._acquire_within(batch, first, left, wanted, into)
                if taken is None:
                    break
                left -= taken
            cursor = touched = last + 1
        self._next = None
        self._runs.merge(read_from, touched)
        self._advance()
        return _grouped(into.runs, wanted.batch_size)

    def _acquire_within(
        self, batch: LogBatch, first: int, left: int, wanted: WantedRecords, into: _Gathered
    ) -> int | None:
        """Acquire what is free of one batch from `first` on, `left` of it at most if that is exact; the number of records, None if no more may be acquired."""
        last, most = batch.last, left if wanted.is_exact else None
        taken = 0
        for run in list(self._runs.peek(first, last)):
            if not run.is_free or (most is not None and taken >= most):
                continue
            low, high = max(run.first, first), min(run.last, last)
            if most is not None:
                high = min(high, low + most - taken - 1)
            count = into.counts[run.delivery_count + 1]
            size = max(last - batch.first + 1, min(count + len(run), wanted.batch_size))
            together = most_together(run.delivery_count, self.limits.delivery_count, size)
            is_other = bool(into.runs) and run.delivery_count + 1 != into.runs[-1][2]
            if is_other and (together is not None or self._is_alone(into)):
                return None
            if together is not None:
                if count >= together:
                    return None
                high = min(high, low + together - count - 1)
            for part in self._runs.between(low, high):
                self._give(part, into)
            taken += high - low + 1
            if together is not None and high < min(run.last, last):
                return None
        if last < self._runs.end:
            return taken
        new = self._acquire_new(first, last, None if most is None else most - taken, into)
        return None if new is None else taken + new

    def _acquire_new(self, first: int, last: int, most: int | None, into: _Gathered) -> int | None:
        """Acquire what was never delivered of a batch that ends with `last`; returns as `_acquire_within`."""
        room = self.limits.record_locks - self._open
        if room <= 0 or self._is_alone(into):
            return None
        self._append(first - 1, _ARCHIVED, 0)
        begin = self._runs.end
        end = min(last, begin + _MOST_OPEN - self._open - 1)
        if most is not None:
            end = min(end, begin + min(most, room) - 1)
        if end >= begin:
            added = self._append(end, _AVAILABLE, 0)
            assert added is not None
            self._give(added, into)
        return None if end < last else end - begin + 1

    def _give(self, run: Run, into: _Gathered) -> None:
        self._hold(run, into.member, into.deadline_ms)
        into.runs.append((run.first, run.last, run.delivery_count))
        into.counts[run.delivery_count] += len(run)

    def _is_alone(self, got: _Gathered) -> bool:
        """Whether what was acquired comes a few records at a time, so that no others may come with it."""
        return bool(got.runs) and most_together(got.runs[-1][2] - 1, self.limits.delivery_count, 1) is not None

    def _hold(self, run: Run, member: str, deadline_ms: int) -> None:
        run.holder, run.deadline_ms = member, deadline_ms
        run.delivery_count += 1
        self._earliest_ms = min(self._earliest_ms, deadline_ms)

    def _archive_free(self, first: int, last: int) -> None:
        """There is nothing to deliver at these offsets. That is found again, so it need not be stored."""
        for run in self._runs.between(first, last):
            if run.is_free:
                self._open -= len(run)
                run.state = _ARCHIVED
        self._append(last, _ARCHIVED, 0)

    # --- what members say ---

    def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement], now_ms: int, *, may_renew: bool = True
    ) -> bool:
        """All of them, or none. Whether something has to be stored before the member gets its answer.

        They go upwards, and do not overlap. Offsets below the start offset are passed over: what was there is done.

        Raises:
            ApiError: INVALID_RECORD_STATE if the member does not hold one of the records (any more), or has said
                something of it already; INVALID_REQUEST.
        """
        parts: list[Part] = []
        for each in acknowledgements:
            add_parts(parts, each)
        return self.acknowledge_parts(member, parts, now_ms, may_renew=may_renew)

    def acknowledge_parts(self, member: str, said: Sequence[Part], now_ms: int, *, may_renew: bool = True) -> bool:
        """As `acknowledge`."""
        self.expire(now_ms)
        clusters = list(_clusters(said))
        for parts in clusters:
            self._check_parts(member, parts, may_renew=may_renew)
        waits = False

        def say(run: Run, kind: AcknowledgeType) -> None:
            nonlocal waits
            if kind is AcknowledgeType.RENEW:
                run.deadline_ms = now_ms + self.limits.lock_ms
            else:
                run.target = self._target(run, kind)
                waits = True

        for parts in clusters:
            if parts[-1][1] >= self._runs.start:
                self._runs.change(parts, say)
        return waits

    def _check_parts(self, member: str, parts: Sequence[Part], *, may_renew: bool) -> None:
        """Raises ApiError INVALID_RECORD_STATE."""
        runs = self._runs.peek(parts[0][0], parts[-1][1])
        run: Run | None = None
        for first, last, kind in parts:
            if kind is AcknowledgeType.RENEW and not may_renew:
                raise api_error(ErrorCode.INVALID_RECORD_STATE, "the group's members may not renew locks")
            if last < self._runs.start:
                continue
            if last >= self._runs.end:
                raise api_error(ErrorCode.INVALID_RECORD_STATE, f"offset {last} was not delivered")
            while run is None or run.last < first:
                run = next(runs)
            while True:
                if run.holder != member or run.target is not None:
                    offset = max(first, run.first)
                    raise api_error(
                        ErrorCode.INVALID_RECORD_STATE, f"the member does not hold the record at offset {offset}"
                    )
                if run.last >= last:
                    break
                run = next(runs)

    def _target(self, run: Run, kind: AcknowledgeType) -> DeliveryState:
        if kind is AcknowledgeType.ACCEPT:
            return _ACKNOWLEDGED
        if kind is AcknowledgeType.RELEASE and run.delivery_count < self.limits.delivery_count:
            return _AVAILABLE
        return _ARCHIVED if kind is AcknowledgeType.GAP else self._given_up

    @property
    def _given_up(self) -> DeliveryState:
        return _ARCHIVING if self.has_dead_letters else _ARCHIVED

    def release(self, member: str) -> bool:
        """The member is gone: what it held is free again, or was delivered too often. Whether it held anything.

        The delivery counts: a record over which consumers crash must reach the limit. Source: Kafka 4.4,
        SharePartition.releaseAcquiredRecords.
        """
        return self._free(lambda run: run.holder == member)

    def expire(self, now_ms: int) -> bool:
        """Locks that have ended by now: their records are free, or were delivered too often. Whether there were any."""
        if now_ms < self._earliest_ms:
            return False
        found = self._free(lambda run: run.deadline_ms <= now_ms)
        deadline_ms = self.next_deadline()
        self._earliest_ms = _NEVER if deadline_ms is None else deadline_ms
        return found

    def _free(self, is_meant: Callable[[Run], bool]) -> bool:
        found = False
        for run in self._runs:
            if run.holder is None or run.target is not None or not is_meant(run):
                continue
            found = True
            run.let_go()
            if run.delivery_count >= self.limits.delivery_count:
                self._close(run, self._given_up)
            self._unstored.append((run.first, run.last))
        if found:
            self._next = None
            self._runs.merge(self._runs.start, self._runs.end)
            self._advance()
        return found

    def dead_letters(self) -> list[StateBatch]:
        """What is to be written to the dead letter topic: only what is stored, since another leader may not know the rest."""
        pending = (*self._unstored, *self._writing)
        return [
            _stored(run)
            for run in self._runs
            if run.state is _ARCHIVING and not any(low <= run.last and run.first <= high for low, high in pending)
        ]

    def archived(self, first: int, last: int) -> None:
        """These dead letters are written, or could not be."""
        for run in self._runs.between(first, last):
            if run.state is _ARCHIVING:
                self._close(run, _ARCHIVED)
                self._unstored.append((run.first, run.last))
        self._runs.merge(first, last)
        self._advance()

    def log_starts_at(self, offset: Offset) -> bool:
        """Records below were deleted. Returns whether that changes anything."""
        if offset <= self._runs.start:
            return False
        self._open -= sum(
            min(run.last, offset - 1) - run.first + 1
            for run in self._runs.peek(self._runs.start, offset - 1)
            if not run.is_done
        )
        self._runs.drop_before(offset)
        self._next = None
        self._advance()
        return True

    def log_ends_at(self, offset: Offset) -> bool:
        """The log ends before what was delivered: a leader without all committed records was elected. Returns whether that changes anything."""
        if offset >= self._runs.end:
            return False
        dropped = list(self._runs.peek(offset, self._runs.end))
        is_news = offset < self._runs.start or any(run.is_done or run.delivery_count for run in dropped)
        if is_news:
            self._lost = StateBatch(offset, Offset(self._runs.end - 1), _AVAILABLE, 0)
        self._open -= sum(run.last - max(run.first, offset) + 1 for run in dropped if not run.is_done)
        self._runs.drop_from(offset)
        if self._runs.end > offset:  # the start offset lies behind it
            self._runs.start = self._runs.end = offset
            self._stored_start = -1
        self._next = None
        return is_news

    # --- what is stored ---

    @property
    def has_news(self) -> bool:
        """Whether there is something to store."""
        return bool(
            self._unstored
            or self._lost is not None
            or self._runs.start != self._stored_start
            or any(run.target is not None and not run.is_written for run in self._runs)
        )

    def begin_write(self) -> StateWrite | None:
        """What has to be stored now; None: nothing. `end_write` must follow before the next one."""
        assert self._write is None
        if not self.has_news:
            return None
        for first, last in self._unstored:
            self._runs.between(first, last)  # only for the borders
        changed = {id(run) for first, last in self._unstored for run in self._runs.between(first, last)}
        batches = [] if self._lost is None else [self._lost]  # first: what follows holds, where they overlap
        start = self._runs.start
        is_done = True
        for run in self._runs:
            run.is_written = run.target is not None
            stored = _stored(run)
            is_done = is_done and stored.state in (_ACKNOWLEDGED, _ARCHIVED)
            if is_done:
                start = run.last + 1
            elif run.is_written or id(run) in changed:
                batches.append(stored)
        self._writing, self._unstored = self._unstored, []
        self._write = StateWrite(Offset(start), tuple(_joined(batches)))
        self._runs.merge(self._runs.start, self._runs.end)
        return self._write

    def end_write(self, *, is_stored: bool) -> None:
        """The write has ended. If it failed, its records are still with the members that hold them."""
        assert self._write is not None
        for run in self._runs:
            if run.target is None or not run.is_written:
                continue
            if is_stored:
                target = run.target
                run.let_go()
                if target is not _AVAILABLE:
                    self._close(run, target)
            else:
                run.target, run.is_written = None, False
                self._earliest_ms = min(self._earliest_ms, run.deadline_ms)
        if is_stored:
            self._stored_start = self._write.start_offset
            self._lost = None
        else:
            self._unstored = self._writing + self._unstored
        self._write, self._writing = None, []
        self._next = None
        self._runs.merge(self._runs.start, self._runs.end)
        self._advance()

    # --- runs ---

    def _append(self, last: int, state: DeliveryState, delivery_count: int) -> Run | None:
        run = self._runs.add(last, state, delivery_count)
        if run is not None and not run.is_done:
            self._open += len(run)
        return run

    def _close(self, run: Run, state: DeliveryState) -> None:
        run.state = state
        if run.is_done:
            self._open -= len(run)

    def _advance(self) -> None:
        """The start offset passes over what is done."""
        start = self._runs.start
        for run in self._runs:
            if not run.is_done:
                break
            start = run.last + 1
        self._runs.drop_before(start)


def _clusters(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Parts that lie near each other together: there are few runs between them."""
    begin = 0
    for number in range(1, len(parts)):
        if parts[number][0] - parts[number - 1][1] > _NEAR:
            yield parts[begin:number]
            begin = number
    if parts:
        yield parts[begin:]


def _stored(run: Run) -> StateBatch:
    """As it is stored. What a member holds is stored as before it was delivered."""
    state = run.target if run.target is not None else run.state
    count = run.delivery_count
    if run.holder is not None and run.target is None:
        count -= 1
    return StateBatch(Offset(run.first), Offset(run.last), state, count)


def _joined(batches: Sequence[StateBatch]) -> list[StateBatch]:
    """Neighbours in one state are one."""
    joined: list[StateBatch] = []
    for batch in batches:
        before = joined[-1] if joined else None
        if (
            before is not None
            and before.state is batch.state
            and before.last + 1 == batch.first
            and before.delivery_count == batch.delivery_count
        ):
            joined[-1] = before._replace(last=batch.last)
        else:
            joined.append(batch)
    return joined


def _grouped(got: Sequence[tuple[int, int, int]], batch_size: int) -> list[Acquired]:
    """Neighbours with one delivery count, together up to about `batch_size`; batches of the log are not cut for that."""
    grouped: list[Acquired] = []
    for first, last, count in sorted(got):
        before = grouped[-1] if grouped else None
        if (
            before is not None
            and before.last + 1 == first
            and before.delivery_count == count
            and last - before.first + 1 <= max(1, batch_size)
        ):
            grouped[-1] = before._replace(last=last)
        else:
            grouped.append(Acquired(first, last, count))
    return grouped
