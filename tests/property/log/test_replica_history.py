"""One replica through everything at once: transactions, divergence, compaction, retention, DeleteRecords, rolls, crashes.

The model is the list of all batches that were ever appended and not truncated; what must be known of the log is computed from it
each time, from the beginning. It knows nothing of segments, snapshots, indexes and epoch files. Truncations go down to the high
watermark, and compactions up to it, as on a follower.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkalite.env.fair_executor import FairExecutor
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.log.cleaner import compact
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.validation import Origin
from kafkalite.record.batch import (
    MAX_SEQUENCE,
    BatchHeader,
    add_to_sequence,
    assign_in_place,
    parse_header,
    split_batches,
)
from kafkalite.record.builder import RecordBatchBuilder, end_transaction_marker
from kafkalite.record.compression import Codec
from kafkalite.record.reader import Record, records_of
from tests.support.committed import committed_state
from tests.support.logs import PATH, cold_reads, everything, make_log, reopen
from tests.support.memory_disk import ManualClock, MemoryDisk

SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact,delete",
    "segment_bytes": 1024,
    "index_interval_bytes": 150,
    "min_cleanable_dirty_ratio": 0,
    "delete_retention_ms": 5,
    "retention_ms": 100,
    "message_timestamp_after_max_ms": 1 << 50,
}


class Written(NamedTuple):
    """A batch as it was appended; `commits`: of a marker."""

    data: bytes
    header: BatchHeader
    commits: bool | None
    coordinator_epoch: int


class Known(NamedTuple):
    """What is known of a producer. `last`: (first offset, last sequence) of its last batch in this epoch."""

    epoch: int
    last: tuple[int, int] | None
    coordinator_epoch: int
    open_since: int | None


class Ended(NamedTuple):
    producer_id: int
    first: int
    marker: int
    commits: bool


#: A batch or marker to be appended: what, producer, records, shift of its timestamp, whether the marker raises the epoch.
Step = tuple[str, int, int, int, bool]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "idempotent", "data", "data", "commit", "abort", "abort"]),
        st.integers(1, 3),
        st.integers(1, 3),
        st.sampled_from([0, 0, 0, -30, 30, 1 << 40]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


class ReplicaHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.log: PartitionLog = make_log(self.disk, **SETTINGS)
        asyncio.run(self.log.flush())
        self.disk.sync_dir("/data")
        self.batches: list[Written] = []
        self.end = self.start = self.high_watermark = self.dirty = 0
        self.epoch, self.coordinator_epoch = 1, 0
        self.now = 1_000
        self.number = 0
        #: What the log knows of producers goes back to here: what was before may be forgotten.
        self.floor = 0
        #: Ended transactions may have been read back without being known as not replicated.
        self.was_reloaded = self.lacks_snapshots = False

    # --- what the model knows -----------------------------------------------------------------------

    def producers(self, floor: int = 0) -> dict[int, Known]:
        known: dict[int, Known] = {}
        for one in self.batches:
            header = one.header
            pid = header.producer_id
            if pid < 0 or header.base_offset < floor:
                continue
            before = known.get(pid, Known(-1, None, -1, None))
            last = before.last if before.epoch == header.producer_epoch else None
            if one.commits is not None:
                known[pid] = Known(header.producer_epoch, last, one.coordinator_epoch, None)
                continue
            since = before.open_since
            if header.is_transactional and since is None:
                since = header.base_offset
            known[pid] = Known(
                header.producer_epoch, (header.base_offset, header.last_sequence), before.coordinator_epoch, since
            )
        return known

    def ended(self) -> Iterator[Ended]:
        since: dict[int, int] = {}
        for one in self.batches:
            pid = one.header.producer_id
            if one.commits is not None:
                if (first := since.pop(pid, None)) is not None:
                    yield Ended(pid, first, one.header.base_offset, one.commits)
            elif one.header.is_transactional:
                since.setdefault(pid, one.header.base_offset)

    # --- writing ------------------------------------------------------------------------------------

    def _made(self, step: Step, producers: dict[int, Known]) -> tuple[bytes, bool | None] | None:
        what, number, count, shift, raises = step
        timestamp = self.now + shift
        pid = number if what not in ("plain", "idempotent") else 10 + number
        known = producers.get(pid, Known(0, None, -1, None))
        if what in ("commit", "abort"):
            epoch = known.epoch + 1 if raises else known.epoch
            made = end_transaction_marker(
                pid, epoch, commit=what == "commit", coordinator_epoch=self.coordinator_epoch, timestamp_ms=timestamp
            )
            producers[pid] = Known(epoch, known.last if epoch == known.epoch else None, self.coordinator_epoch, None)
            return made, what == "commit"
        fields: dict[str, Any] = {}
        if what != "plain":
            last = known.last[1] if known.last is not None else (MAX_SEQUENCE - 4 if pid not in producers else -1)
            entry = self.log.active_producers().get(pid)
            if known.last is not None and known.last[0] < self.floor and entry is not None:
                last = entry.last_sequence  # its batches may be forgotten, and only a marker be known
            first = add_to_sequence(last, 1)
            fields = {"producer_id": pid, "producer_epoch": known.epoch, "base_sequence": first}
            fields["transactional"] = what == "data"
            producers[pid] = known._replace(last=(self.end, add_to_sequence(first, count - 1)))
        builder = RecordBatchBuilder(Codec.NONE, **fields)
        for _ in range(count):
            self.number += 1
            value = None if self.number % 5 == 0 else b"%d" % self.number + b"." * 40
            builder.append(b"abcd"[self.number * 7 % 4 :][:1], value, (), timestamp + self.number % 3)
        return builder.build(), None

    @rule(steps=STEPS, replicated=st.booleans(), epochs=st.integers(0, 2))
    def append(self, steps: list[Step], *, replicated: bool, epochs: int) -> None:
        self.now += 3
        producers = self.producers()
        end, blob = self.end, b""
        for number, step in enumerate(steps):
            if replicated and epochs and number == len(steps) // 2:
                self.epoch += epochs
            made = self._made(step, producers)
            assert made is not None
            buffer = bytearray(made[0])
            assign_in_place(memoryview(buffer), 0, end, self.epoch)
            header = parse_header(buffer)
            if not replicated:
                raises = step[4] and made[1] is not None
                origin: Origin = "client" if made[1] is None else "coordinator"
                info = self.log.append_as_leader(
                    made[0],
                    self.epoch,
                    origin=origin,
                    transaction_version=2 if raises else 0,
                )
                assert (info.first_offset, info.duplicate) == (end, False)
            blob += bytes(buffer)
            self.batches.append(Written(bytes(buffer), header, made[1], self.coordinator_epoch))
            self.end = end = header.next_offset
        if replicated:
            self.log.append_as_follower(blob)

    @rule()
    def lead(self) -> None:
        self.epoch += 1
        self.log.assign_epoch_start(self.epoch, self.end)

    @rule()
    def another_coordinator(self) -> None:
        self.coordinator_epoch += 1

    @rule(number=st.integers(1, 3), back=st.integers(0, 4))
    def repeat_or_fence(self, number: int, back: int) -> None:
        """Batches and markers of the past are repeated: nothing of them is appended, or nothing changes."""
        mine = [
            one for one in self.batches if one.header.producer_id == number and one.header.base_offset >= self.floor
        ]
        if len(mine) <= back:
            return
        old, known = mine[-1 - back], self.producers()[number]
        entry = self.log.active_producers().get(number)
        if entry is None or entry.coordinator_epoch != known.coordinator_epoch:
            return
        buffer = bytearray(old.data)
        assign_in_place(memoryview(buffer), 0, 0, -1)
        if old.commits is None:
            try:
                info = self.log.append_as_leader(bytes(buffer), self.epoch)
            except ApiError as error:
                assert error.code in (
                    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_TXN_STATE,
                )  # fmt: skip
            else:
                assert info.duplicate and info.first_offset == old.header.base_offset
            return
        if old.header.producer_epoch < known.epoch:
            expected = ErrorCode.INVALID_PRODUCER_EPOCH
        elif old.coordinator_epoch < known.coordinator_epoch:
            expected = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        else:
            return
        try:
            self.log.append_as_leader(bytes(buffer), self.epoch, origin="coordinator")
        except ApiError as error:
            assert error.code == expected
        else:
            raise AssertionError("a marker of the past was appended")

    # --- the high watermark, and what it allows ---------------------------------------------------------

    @rule(by=st.integers(1, 20))
    def advance(self, by: int) -> None:
        ends = [one.header.next_offset for one in self.batches]
        self.high_watermark = max([self.high_watermark, *(end for end in ends if end <= self.high_watermark + by)])
        self.log.forget_ended(self.high_watermark)

    @rule(above=st.integers(0, 12), apart=st.booleans())
    def truncate(self, above: int, *, apart: bool) -> None:
        target = min(self.end, self.high_watermark + above)
        found = None
        if apart and self.log.needs_producers(target):
            executor = FairExecutor(self.disk.run_blocking, ManualClock(), at_once=1)
            found = asyncio.run(self.log.producers_at(target, executor, ("model", target)))
            assert found is not None
        self.log.truncate_to(target, found)
        while self.batches and self.batches[-1].header.last_offset >= target:
            self.end = self.batches.pop().header.base_offset
        self._cut()

    def _unclean(self) -> None:
        """Snapshots of producers have gone, and come again with the next rolls."""
        self.lacks_snapshots = self.was_reloaded = True
        self.floor = max(self.floor, self.log.first_offset)

    def _cut(self) -> None:
        if self.lacks_snapshots:
            self.floor = max(self.floor, self.log.first_offset)
        self.epoch += 1
        self.dirty = min(self.dirty, self.end)
        self.was_reloaded = True

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(roll=st.booleans(), later_ms=st.sampled_from([0, 10]), map_bytes=st.sampled_from([1, 200, 1 << 20]))
    def compact(self, *, roll: bool, later_ms: int, map_bytes: int) -> None:
        if roll:
            self.log.roll()
        self.now += later_ms
        self.dirty = asyncio.run(
            compact(
                self.log, self.disk, first_dirty_offset=self.dirty, high_watermark=self.high_watermark, now_ms=self.now,
                map_bytes=map_bytes,
            )
        )  # fmt: skip
        self.disk.sync_dir(PATH)

    @rule(ahead=st.integers(1, 8))
    def delete_records(self, ahead: int) -> None:
        target = min(self.high_watermark, self.start + ahead)
        if self.log.advance_log_start_offset(target):
            self.start = target

    @rule(age=st.integers(0, 150))
    def retention(self, age: int) -> None:
        self.log.delete_old_segments(self.high_watermark, self.now + age)
        assert self.start <= self.log.log_start_offset <= max(self.start, self.high_watermark)
        self.start = self.log.log_start_offset

    # --- durability and the end of processes ------------------------------------------------------------

    @rule(rolled=st.booleans())
    def flush(self, *, rolled: bool) -> None:
        asyncio.run(self.log.flush_rolled() if rolled else self.log.flush())

    @rule(power=st.one_of(st.none(), st.integers(0, 2**32)))
    def stop_and_start(self, power: int | None) -> None:
        asyncio.run(self.log.close_cleanly())
        self.log.close()
        self.disk.process_crash() if power is None else self.disk.power_loss(random.Random(power))
        self.log = reopen(self.disk, clean=True, log_start_offset=self.start, handle_capacity=2, **SETTINGS)
        self.was_reloaded = True
        if self.lacks_snapshots:
            self.floor = max(self.floor, self.log.first_offset)

    @rule(lost=st.booleans())
    def crash(self, *, lost: bool) -> None:
        """With its recovery point lost, all of the log is checked, and everything that is derived is rebuilt."""
        point = 0 if lost else self.log.recovery_point
        self.disk.process_crash()
        self.log = reopen(self.disk, recovery_point=point, log_start_offset=self.start, **SETTINGS)
        self._unclean()

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        synced, point = self.log.synced_offset, self.log.recovery_point
        self.disk.power_loss(random.Random(seed))
        self.log = reopen(self.disk, recovery_point=point, log_start_offset=self.start, **SETTINGS)
        assert synced <= self.log.log_end_offset
        # A truncation that was not flushed may be undone: a leader would have the replica cut that again.
        ours = {one.header.base_offset: one.header.partition_leader_epoch for one in self.batches}
        for _, header in split_batches(everything(self.log)):
            if ours.get(header.base_offset) != header.partition_leader_epoch:
                self.log.truncate_to(max(header.base_offset, self.log.log_start_offset))
                break
        end = self.log.log_end_offset
        while self.batches and self.batches[-1].header.last_offset >= end:
            self.batches.pop()
        self.end = end
        self.high_watermark = min(self.high_watermark, end)
        self.start = self.log.log_start_offset
        self._unclean()
        self._cut()

    # --- what always holds --------------------------------------------------------------------------------

    @invariant()
    def bounds(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.recovery_point <= log.synced_offset <= log.log_end_offset
        assert all(a.base_offset < b.base_offset for a, b in itertools.pairwise(log.segments))

    @invariant()
    def producers_are_known(self) -> None:
        whole, late = self.producers(), self.producers(self.floor)
        entries = self.log.active_producers()
        for pid, known in late.items():
            entry = entries[pid]
            assert entry.producer_epoch == known.epoch
            if known.last is not None:
                assert entry.batches and entry.batches[-1][0] == known.last[1]
                assert entry.batches[-1].first_offset == known.last[0]
            first = None if entry.transaction_first_offset < 0 else entry.transaction_first_offset
            assert first in (known.open_since, whole[pid].open_since)
        assert set(entries) <= set(whole)

    @invariant()
    def stable_offsets(self) -> None:
        mark = self.high_watermark
        late = [known.open_since for known in self.producers(self.floor).values() if known.open_since is not None]
        early = [known.open_since for known in self.producers().values() if known.open_since is not None]
        early += [one.first for one in self.ended() if one.marker >= mark]
        highest = max(min([*late, mark]), self.start)
        lowest = max(min([*early, mark]), self.start)
        stable = self.log.last_stable_offset(mark)
        assert lowest <= stable <= highest
        if not self.was_reloaded:
            assert stable == lowest

    @invariant()
    def committed_records(self) -> None:
        limit = self.log.last_stable_offset(self.high_watermark)
        aborted = [one for one in self.ended() if not one.commits]
        expected: dict[bytes, bytes] = {}
        for one in self.batches:
            header = one.header
            if one.commits is not None or header.last_offset < self.start or header.next_offset > limit:
                continue
            if header.is_transactional and any(
                each.producer_id == header.producer_id and each.first <= header.base_offset < each.marker
                for each in aborted
            ):
                continue
            for record in records_of(memoryview(one.data), 0, header):
                if record.offset >= self.start:
                    _take(expected, record)
        for max_bytes in (1 << 20, 250):
            assert committed_state(self.log, max_bytes=max_bytes, limit=limit) == expected

    @invariant()
    def uncommitted_records(self) -> None:
        """Above the high watermark no compaction was: byte for byte."""
        tail = [one for one in self.batches if one.header.base_offset >= self.high_watermark]
        if tail:
            start = tail[0].header.base_offset
            data = b"".join(bytes(part) for part in self.log.read(start, 1 << 20, max_offset=self.end).records)
            expected = b"".join(one.data for one in tail)
            assert expected.startswith(data) and data
            for one in tail:
                assert bytes(self.log.read(one.header.last_offset, 1).records[0]) == one.data

    @invariant()
    def epochs(self) -> None:
        log = self.log
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(log.epoch_entries))
        left = [one.header for one in self.batches if one.header.last_offset >= self.start]
        for header in left:
            assert log.epoch_at(max(header.base_offset, self.start)) == header.partition_leader_epoch
        ends = {header.partition_leader_epoch: header.next_offset for header in left}
        for epoch, end in ends.items():
            assert log.epoch_and_end_offset_for(epoch) == (epoch, end)

    @invariant()
    def timestamps(self) -> None:
        log = self.log
        whole = memoryview(everything(log))
        there = [
            (header.is_control, one)
            for position, header in split_batches(whole)
            for one in records_of(whole, position, header)
            if one.offset >= self.start
        ]
        cold = cold_reads(log)

        async def look() -> None:
            for wanted in (0, self.now - 20, self.now, self.now + 5, 1 << 40):
                first = next(
                    ((one.timestamp, one.offset) for is_end, one in there if one.timestamp >= wanted and not is_end),
                    None,
                )
                found = await log.offset_for_timestamp(wanted, cold, ("test", 0))
                assert (found and found[:2]) == first
            newest = await log.max_timestamp_offset(cold, ("test", 0))
            most = max((one.timestamp for _, one in there), default=None)
            if newest is None:
                assert most is None
            else:
                assert newest[0] == most
                assert newest[1] == next(one.offset for _, one in there if one.timestamp == most)

        asyncio.run(look())


def _take(state: dict[bytes, bytes], record: Record) -> None:
    assert record.key is not None
    if record.value is None:
        state.pop(record.key, None)
    else:
        state[record.key] = record.value


TestReplicaHistory = ReplicaHistory.TestCase
TestReplicaHistory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
