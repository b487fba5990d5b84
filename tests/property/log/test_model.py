"""A partition's log against a list of batches, under random histories with crashes in them."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkalite.env.fair_executor import FairExecutor
from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.batch import assign_in_place, parse_header, split_batches
from kafkalite.record.builder import end_transaction_marker
from kafkalite.record.reader import end_transaction_marker_of
from tests.support.logs import PATH, batch, config, everything, make_log, reopen
from tests.support.memory_disk import ManualClock, MemoryDisk

SETTINGS: dict[str, Any] = {
    "segment_bytes": 1024,
    "index_interval_bytes": 150,
    "segment_index_bytes": 4096,
    "retention_ms": 50,
}


class LogModel(RuleBasedStateMachine):
    """The model: the bytes of each batch, in order, with what they are of."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.batches: list[bytes] = []
        self.start = self.end = 0
        self.epoch = 1
        self.time = 0
        self.durable_to = 0
        self.recovery_point = 0
        self.sequences: dict[int, int] = {}
        self.log: PartitionLog = make_log(self.disk, **SETTINGS)

    # --- writing ------------------------------------------------------------------------------

    def _taken(self, made: bytes, epoch: int) -> None:
        buffer = bytearray(made)
        assign_in_place(memoryview(buffer), 0, self.end, epoch)
        self.batches.append(bytes(buffer))
        self.end = parse_header(buffer).next_offset

    @rule(count=st.integers(1, 4), size=st.integers(0, 300), writable=st.booleans(), many=st.integers(1, 3))
    def append_as_leader(self, count: int, size: int, *, writable: bool, many: int) -> None:
        self.time += 3
        made = [batch([b"x" * size] * count, timestamp_ms=self.time) for _ in range(many)]
        data = b"".join(made)
        self.log.append_as_leader(bytearray(data) if writable else data, self.epoch)
        for one in made:
            self._taken(one, self.epoch)

    @rule(producer_id=st.integers(1, 2), count=st.integers(1, 3))
    def append_idempotent(self, producer_id: int, count: int) -> None:
        sequence = self._sequence(producer_id)
        made = batch(
            ["v"] * count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, timestamp_ms=self.time
        )
        first = self.log.append_as_leader(made, self.epoch)
        again = self.log.append_as_leader(made, self.epoch + 1)
        assert not first.duplicate and again.duplicate
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
        self._taken(made, self.epoch)

    def _sequence(self, producer_id: int) -> int:
        """What the log itself has to expect: behind the last batch of that producer that is still in it."""
        for one in reversed(self.batches):
            header = parse_header(one)
            if header.producer_id == producer_id and not header.is_control:
                return header.last_sequence + 1
        known = self.log.active_producers().get(producer_id)
        return known.last_sequence + 1 if known is not None else 0

    @rule(
        producer_id=st.integers(3, 4), writes=st.integers(0, 2), end=st.sampled_from(["abort", "abort", "commit", ""])
    )
    def transaction(self, producer_id: int, writes: int, end: str) -> None:
        for _ in range(writes):
            made = batch(
                ["t" * 60], producer_id=producer_id, producer_epoch=0, base_sequence=self._sequence(producer_id),
                transactional=True, timestamp_ms=self.time,
            )  # fmt: skip
            self.log.append_as_leader(made, self.epoch)
            self._taken(made, self.epoch)
        if end:
            made = end_transaction_marker(
                producer_id, 0, commit=end == "commit", coordinator_epoch=0, timestamp_ms=self.time
            )
            self.log.append_as_leader(made, self.epoch, origin="coordinator")
            self._taken(made, self.epoch)

    @rule(size=st.integers(0, 200), many=st.integers(1, 12), jump=st.integers(0, 2))
    def append_as_follower(self, size: int, many: int, jump: int) -> None:
        data, end, epochs = b"", self.end, []
        for number in range(many):
            epoch = self.epoch + (jump if number > many // 2 else 0)
            made = batch([b"f" * size], base_offset=end, leader_epoch=epoch, timestamp_ms=self.time)
            data += made
            epochs.append((made, epoch))
            end += 1
        self.log.append_as_follower(data)
        for made, epoch in epochs:
            self._taken(made, epoch)
        self.epoch = epochs[-1][1]

    @rule()
    def become_leader(self) -> None:
        self.epoch += 1
        self.log.assign_epoch_start(self.epoch, self.end)

    # --- cutting --------------------------------------------------------------------------------

    @precondition(lambda self: self.end > self.start)
    @rule(back=st.integers(1, 12), apart=st.booleans())
    def truncate(self, back: int, *, apart: bool) -> None:
        """With `apart`, the producers at the cut are found before it."""
        target = max(self.start, self.end - back)
        found = None
        if apart and self.log.needs_producers(target):
            executor = FairExecutor(self.disk.run_blocking, ManualClock(), at_once=1)
            found = asyncio.run(self.log.producers_at(target, executor, ("model", target)))
            assert found is not None
        self.log.truncate_to(target, found)
        while self.batches and parse_header(self.batches[-1]).last_offset >= target:
            self.batches.pop()
        self.end = parse_header(self.batches[-1]).next_offset if self.batches else self.log.log_end_offset
        assert self.log.log_end_offset == self.end
        self.start = min(self.start, self.end)
        self.durable_to = min(self.durable_to, self.end)
        self.epoch += 1

    @rule(ahead=st.integers(0, 5))
    def restart_at(self, ahead: int) -> None:
        if ahead != 5:
            return  # rarely: it empties the log
        self.log.truncate_fully_and_start_at(self.end + ahead)
        self.batches = []
        self.start = self.end = self.end + ahead
        self.durable_to = 0
        self.epoch += 1

    @rule(age=st.integers(0, 100), lag=st.integers(0, 8))
    def retention(self, age: int, lag: int) -> None:
        high_watermark = self.end - lag
        self.log.delete_old_segments(high_watermark, self.time + age)
        assert self.log.log_start_offset <= max(high_watermark, self.start)
        self._forget_below(self.log.log_start_offset)

    def _forget_below(self, start: int) -> None:
        assert start >= self.start
        kept = [one for one in self.batches if parse_header(one).last_offset >= start]
        for one in self.batches[: len(self.batches) - len(kept)]:
            assert self.time + 100 - parse_header(one).max_timestamp > 0
        self.batches, self.start = kept, start

    @precondition(lambda self: self.end > self.start)
    @rule(ahead=st.integers(1, 8))
    def delete_records(self, ahead: int) -> None:
        """Up to anywhere, within a batch too; the checkpoint file has it at once."""
        self.start = min(self.end, self.start + ahead)
        assert self.log.advance_log_start_offset(self.start)
        self.batches = [one for one in self.batches if parse_header(one).last_offset >= self.start]

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(written=st.integers(0, 900), many=st.integers(1, 12))
    def append_that_fails(self, written: int, many: int) -> None:
        """In the middle, perhaps after a segment has rolled. Nothing of it is there; the log is opened again."""
        made = b"".join(batch([b"x" * 200], timestamp_ms=self.time) for _ in range(many))
        self.disk.fail_append_after = written
        try:
            self.log.append_as_leader(made, self.epoch)
        except StorageError:
            assert self.log.log_end_offset == self.end
        else:
            raise AssertionError("the disk has failed")
        self.log.close()
        self.process_crash()

    @rule()
    def flush_rolled(self) -> None:
        asyncio.run(self.log.flush_rolled())
        self.recovery_point = self.log.recovery_point
        self.durable_to = max(self.durable_to, self.log.synced_offset)

    # --- durability and the end of processes ------------------------------------------------------

    @rule()
    def flush(self) -> None:
        asyncio.run(self.log.flush())
        assert self.log.synced_offset == self.end
        self.durable_to, self.recovery_point = self.end, self.log.recovery_point

    @rule(seed=st.one_of(st.none(), st.integers(0, 2**32)))
    def close_and_open(self, seed: int | None) -> None:
        """With a `seed`, the power goes when the process has ended."""
        asyncio.run(self.log.close_cleanly())
        self.log.close()
        if seed is not None:
            self.disk.power_loss(random.Random(seed))
        self.log = reopen(self.disk, clean=True, log_start_offset=self.start, handle_capacity=2, **SETTINGS)
        assert self.log.synced_offset == self.end
        self.durable_to = self.end

    @rule()
    def process_crash(self) -> None:
        point = min(self.recovery_point, self.log.recovery_point)
        self.disk.process_crash()
        self.log = reopen(self.disk, recovery_point=point, log_start_offset=self.start, handle_capacity=2, **SETTINGS)

    @rule(seed=st.integers(0, 2**32))
    def power_loss(self, seed: int) -> None:
        if not self.disk.exists(PATH):
            return
        point = min(self.recovery_point, self.log.recovery_point)
        self.disk.power_loss(random.Random(seed))
        self.log = reopen(self.disk, recovery_point=point, log_start_offset=self.start, **SETTINGS)
        survived = [header.base_offset for _, header in split_batches(everything(self.log))]
        count = len(survived)
        durable = [one for one in self.batches if parse_header(one).next_offset <= self.durable_to]
        if durable and not self.resurrected():
            assert everything(self.log)[: sum(map(len, durable))] == b"".join(durable)
        # From here on what survived is the truth (it may be older than a truncation that was not flushed).
        self.batches = [
            everything(self.log)[position : position + header.size]
            for position, header in split_batches(everything(self.log))
        ]
        assert len(self.batches) == count
        self.start, self.end = self.log.log_start_offset, self.log.log_end_offset
        self.durable_to = min(self.durable_to, self.end)
        self.epoch = max(self.epoch, self.log.latest_epoch) + 1

    def resurrected(self) -> bool:
        return self.log.log_start_offset != self.start

    # --- what always holds --------------------------------------------------------------------------

    @invariant()
    def content(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.recovery_point <= log.synced_offset <= log.log_end_offset
        data = everything(log, max_bytes=700)
        assert data == b"".join(self.batches)

    @invariant()
    def look_ups(self) -> None:
        for one in self.batches[:2] + self.batches[-3:]:
            header = parse_header(one)
            for offset in {max(header.base_offset, self.start), header.last_offset}:
                assert bytes(self.log.read(offset, 1).records[0]) == one
                limited = self.log.read(offset, 1 << 20, max_offset=header.last_offset)
                assert limited.size_bytes == 0, "a batch that is committed in part is not served"
        for outside in (self.start - 1, self.end + 1):
            try:
                self.log.read(outside, 1)
            except ApiError as error:
                assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                raise AssertionError("read outside the log")

    @invariant()
    def epochs(self) -> None:
        entries = self.log.epoch_entries
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
        for one in self.batches:
            header = parse_header(one)
            if header.base_offset >= self.start:
                covering = [epoch for epoch, start in entries if start <= header.base_offset]
                assert covering[-1] == header.partition_leader_epoch

    @invariant()
    def producers(self) -> None:
        for producer_id, entry in self.log.active_producers().items():
            heads = [parse_header(one) for one in self.batches]
            mine = [head for head in heads if head.producer_id == producer_id and not head.is_control]
            kept = [(kept.first_offset, kept.last_sequence) for kept in entry.batches]
            expected = [(h.base_offset, h.last_sequence) for h in mine][-5:]
            assert kept[len(kept) - len(expected) :] == expected
        present = {parse_header(one).producer_id for one in self.batches} - {-1}
        assert present <= set(self.log.active_producers())

    @invariant()
    def aborted_transactions(self) -> None:
        """Each of which anything is left, from its first batch to its marker; at most such besides of which nothing is."""
        began: dict[int, int] = {}
        expected: dict[int, tuple[int, int]] = {}
        for one in self.batches:
            header = parse_header(one)
            if header.is_control:
                marker = end_transaction_marker_of(memoryview(one), 0, header)
                assert marker is not None
                first = began.pop(header.producer_id, None)
                if first is not None and not marker.commit:
                    expected[header.base_offset] = header.producer_id, first
            elif header.is_transactional:
                began.setdefault(header.producer_id, header.base_offset)
        found = {entry.last_offset: entry for entry in self.log.aborted_transactions(self.start, self.end)}
        for marker_offset, (producer_id, first) in expected.items():
            entry = found.pop(marker_offset)
            assert entry.producer_id == producer_id
            assert entry.first_offset == first or entry.first_offset < self.start
        assert all(entry.first_offset < self.start for entry in found.values())

    @invariant()
    def segments(self) -> None:
        segments = self.log.segments
        assert all(a.base_offset < b.base_offset for a, b in itertools.pairwise(segments))
        assert sum(segment.size for segment in segments) == self.log.size_bytes
        assert all(segment.size <= config(**SETTINGS).segment_bytes or segment.size < 1500 for segment in segments)


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
