"""A shared partition against one that keeps each offset for itself, and forgets nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.coordinators.shares.decisions.deliveries import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    DeliveryLimits,
    LogBatch,
    WantedRecords,
)
from kafkalite.coordinators.shares.decisions.shared_partition import SharedPartition
from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.coordinators.shares.records import encode_snapshot, encode_update
from kafkalite.coordinators.shares.state import StoredState, applied, change_of
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import Offset
from tests.support.calls import calls

AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
_LIMITS = DeliveryLimits(lock_ms=10, delivery_count=3, record_locks=12)
_MEMBERS = ("a", "b", "c")


class Record:
    def __init__(self) -> None:
        self.state = AVAILABLE
        self.count = 0
        self.holder = ""
        self.deadline = 0
        self.target: DeliveryState | None = None
        self.is_written = False

    @property
    def is_free(self) -> bool:
        return self.state is AVAILABLE and not self.holder


class Store:
    """What the coordinator has: the start offset, and the last state that was written of each offset."""

    def __init__(self) -> None:
        self.start = 0
        self.states: dict[int, tuple[DeliveryState, int]] = {}

    def write(self, start: int, batches: Any) -> None:
        self.start = max(self.start, start)
        last = -1
        for batch in batches:
            assert batch.first > last, "overlapping or unordered"
            last = batch.last
            for offset in range(batch.first, batch.last + 1):
                self.states[offset] = (batch.state, batch.delivery_count)

    def batches(self) -> list[StateBatch]:
        return [
            StateBatch(Offset(offset), Offset(offset), *state)
            for offset, state in sorted(self.states.items())
            if offset >= self.start
        ]


class Twin:
    """The obviously right partition."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.start = 0
        self.now = 0

    def advance(self) -> None:
        while self.start in self.records and self.records[self.start].state is not AVAILABLE:
            self.start += 1

    def expire(self) -> None:
        for record in self.records.values():
            if record.holder and record.target is None and record.deadline <= self.now:
                record.holder = ""
                if record.count >= _LIMITS.delivery_count:
                    record.state = ARCHIVED
        self.advance()

    def may(self, member: str, offset: int) -> bool:
        if offset < self.start:
            return True
        record = self.records.get(offset)
        return record is not None and record.holder == member and record.target is None


def _log(shape: list[tuple[int, int, bool]]) -> list[LogBatch]:
    """Batches from (hole before, records, delivered)."""
    batches, offset = [], 0
    for hole, size, is_delivered in shape:
        offset += hole
        batches.append(LogBatch(offset, offset + size - 1, is_delivered))
        offset += size
    return batches


_logs = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 3]), st.integers(1, 4), st.sampled_from([True, True, True, False])),
    min_size=1,
    max_size=10,
)
#: How many offsets are left out, and the types of those that follow: one for each, or one for all.
_said = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 2, 40]), st.integers(1, 4), st.lists(st.sampled_from(AcknowledgeType), min_size=4, max_size=4), st.booleans()
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), st.sampled_from(_MEMBERS), st.integers(1, 6), st.booleans()),
        st.tuples(st.just("acknowledge"), st.sampled_from(_MEMBERS), st.integers(0, 30), st.integers(0, 5), st.sampled_from(AcknowledgeType)),
        st.tuples(st.just("mine"), st.integers(0, 5), st.integers(0, 3), st.sampled_from(AcknowledgeType)),
        st.tuples(st.just("several"), st.integers(0, 5), _said),
        st.tuples(st.just("release"), st.sampled_from(_MEMBERS)),
        st.tuples(st.just("time"), st.integers(1, 12)),
        st.tuples(st.just("write"), st.booleans()),
        st.tuples(st.just("log start"), st.integers(0, 30)),
        st.tuples(st.just("failover")),
    ),
    max_size=40,
)  # fmt: skip


class Run:
    def __init__(self, log: list[LogBatch]) -> None:
        self.log = log
        self.twin = Twin()
        self.store = Store()
        self.partition = SharedPartition(Offset(0), (), _LIMITS)
        self.write: Any = None
        #: Offsets whose acceptance was stored.
        self.accepted: set[int] = set()
        self.deleted = 0

    def acquire(self, member: str, count: int, *, is_exact: bool) -> None:
        twin, partition = self.twin, self.partition
        partition.expire(twin.now)
        twin.expire()
        if not partition.can_acquire:
            assert sum(record.state is AVAILABLE for record in twin.records.values()) >= _LIMITS.record_locks
            return
        offset = partition.next_offset
        free = [number for number, record in sorted(twin.records.items()) if record.is_free and number >= twin.start]
        assert offset == (free[0] if free else max([twin.start, *(number + 1 for number in twin.records)]))
        read = [batch for batch in self.log if batch.last >= offset]
        got = partition.acquire(member, offset, read, WantedRecords(count, 3, is_exact=is_exact), twin.now)
        taken = [number for each in got for number in range(each.first, each.last + 1)]
        delivered = {
            number for batch in self.log if batch.is_delivered for number in range(batch.first, batch.last + 1)
        }
        assert set(taken) <= delivered
        assert len(set(taken)) == len(taken)
        assert not is_exact or len(taken) <= count
        assert len(taken) <= count + 4  # the last batch may exceed it
        for each in got:
            for number in range(each.first, each.last + 1):
                record = twin.records.setdefault(number, Record())
                assert record.is_free
                record.holder, record.deadline = member, twin.now + _LIMITS.lock_ms
                record.count += 1
                assert record.count == each.delivery_count <= _LIMITS.delivery_count
        # What has no record is passed over for ever.
        for number in range(twin.start, partition.end_offset):
            if number not in delivered:
                record = twin.records.setdefault(number, Record())
                if partition.next_offset > number or number < partition.start_offset:
                    record.state = ARCHIVED
        twin.advance()
        assert partition.start_offset == twin.start

    def acknowledge(self, member: str, first: int, more: int, kind: AcknowledgeType) -> None:
        self.say(member, [Acknowledgement(first, first + more, [kind])])

    def say(self, member: str, said: list[Acknowledgement]) -> None:
        twin = self.twin
        twin.expire()
        wanted = {
            number: AcknowledgeType(each.types[0] if len(each.types) == 1 else each.types[number - each.first])
            for each in said
            for number in range(each.first, each.last + 1)
        }
        is_allowed = all(twin.may(member, number) for number in wanted)
        try:
            self.partition.acknowledge(member, said, twin.now)
        except ApiError as error:
            assert error.code is ErrorCode.INVALID_RECORD_STATE
            assert not is_allowed
            return
        assert is_allowed
        for number, kind in wanted.items():
            record = twin.records.get(number)
            if record is None or number < twin.start:
                continue
            if kind is AcknowledgeType.RENEW:
                record.deadline = twin.now + _LIMITS.lock_ms
            elif kind is AcknowledgeType.ACCEPT:
                record.target = ACKNOWLEDGED
            elif kind is AcknowledgeType.RELEASE and record.count < _LIMITS.delivery_count:
                record.target = AVAILABLE
            else:
                record.target = ARCHIVED

    def several(self, number: int, said: list[tuple[int, int, list[AcknowledgeType], bool]]) -> None:
        """Acknowledge much at once: mostly what one member holds, and what lies between."""
        held = [(member, part) for member in _MEMBERS for part in self.partition.held(member)]
        if not held:
            return
        member, (offset, _) = held[number % len(held)]
        acknowledgements = []
        for left_out, size, types, is_one in said:
            first = offset + left_out
            mine = {n for low, high in self.partition.held(member) for n in range(low, high + 1) if n >= first}
            first = min(mine, default=first)
            size = next((length for length in range(size) if first + length not in mine), size) or size
            acknowledgements.append(Acknowledgement(first, first + size - 1, types[:1] if is_one else types[:size]))
            offset = first + size
        self.say(member, acknowledgements)

    def mine(self, number: int, more: int, kind: AcknowledgeType) -> None:
        """Acknowledge what somebody holds."""
        held = [(member, part) for member in _MEMBERS for part in self.partition.held(member)]
        if held:
            member, (first, last) = held[number % len(held)]
            self.acknowledge(member, first, min(more, last - first), kind)

    def release(self, member: str) -> None:
        self.partition.release(member)
        for record in self.twin.records.values():
            if record.holder == member and record.target is None:
                record.holder = ""
                if record.count >= _LIMITS.delivery_count:
                    record.state = ARCHIVED
        self.twin.advance()

    def time(self, more: int) -> None:
        self.twin.now += more
        self.partition.expire(self.twin.now)
        self.twin.expire()

    def store_changes(self, *, is_stored: bool) -> None:
        if self.write is None:
            self.write = self.partition.begin_write()
            if self.write is not None:
                for record in self.twin.records.values():
                    record.is_written = record.target is not None
            return
        if is_stored:
            self.store.write(self.write.start_offset, self.write.batches)
        self.partition.end_write(is_stored=is_stored)
        self.write = None
        for number, record in self.twin.records.items():
            if record.is_written and record.target is not None:
                target, record.target, record.is_written = record.target, None, False
                if is_stored:
                    record.holder = ""
                    record.state = target
                    if target is ACKNOWLEDGED and number >= self.deleted:
                        self.accepted.add(number)
        self.twin.advance()

    def log_start(self, offset: int) -> None:
        offset = min(offset, self.partition.end_offset)
        self.deleted = max(self.deleted, offset)
        self.partition.log_starts_at(Offset(offset))
        if offset > self.twin.start:
            self.twin.start = offset
            self.twin.records = {number: one for number, one in self.twin.records.items() if number >= offset}
            self.twin.advance()

    def failover(self) -> None:
        """Another leader reads what is stored: nothing that was accepted is delivered again, nothing else is lost."""
        self.write = None
        before = self.partition
        self.partition = SharedPartition(Offset(self.store.start), self.store.batches(), _LIMITS)
        self.partition.log_starts_at(Offset(self.deleted))
        assert self.partition.start_offset <= max(before.start_offset, self.store.start)
        old = self.twin.records
        self.twin.records = {}
        self.twin.start = self.partition.start_offset
        for batch in self.partition.batches():
            for number in range(batch.first, batch.last + 1):
                record = self.twin.records[number] = Record()
                record.state, record.count = batch.state, batch.delivery_count
                assert number not in self.accepted or record.state is ACKNOWLEDGED
                was = old.get(number)
                if record.state is ACKNOWLEDGED:
                    assert was is None or was.state is ACKNOWLEDGED or was.target is ACKNOWLEDGED
        for number in self.accepted:
            assert number < self.partition.end_offset
        for number in range(self.deleted, self.partition.start_offset):
            was = old.get(number)
            assert was is None or was.state is not AVAILABLE or was.target is not None, number

    def check(self) -> None:
        partition, twin = self.partition, self.twin
        assert partition.start_offset == twin.start
        held = {
            member: {n for low, high in partition.held(member) for n in range(low, high + 1)} for member in _MEMBERS
        }
        for member in _MEMBERS:
            assert held[member] == {n for n, one in twin.records.items() if one.holder == member and n >= twin.start}
        listed = {n: batch for batch in partition.batches() for n in range(batch.first, batch.last + 1)}
        assert list(listed) == list(range(partition.start_offset, partition.end_offset))
        for number, batch in listed.items():
            record = twin.records[number]
            state = record.target if record.target is not None else record.state
            assert batch.state is state, number
            if state is AVAILABLE and record.target is None:
                assert batch.delivery_count == record.count - bool(record.holder), number
        assert len(partition._runs) <= 2 * len(listed) + 1


@settings(max_examples=300, deadline=None)
@given(_logs, _steps)
def test_like_one_that_keeps_each_offset(shape: list[tuple[int, int, bool]], steps: list[tuple[Any, ...]]) -> None:
    run = Run(_log(shape))
    verbs: dict[str, Callable[..., None]] = {
        "acquire": lambda member, count, is_exact: run.acquire(member, count, is_exact=is_exact),
        "write": lambda is_stored: run.store_changes(is_stored=is_stored),
        "acknowledge": run.acknowledge, "mine": run.mine, "several": run.several, "release": run.release, "time": run.time,
        "log start": run.log_start, "failover": run.failover,
    }  # fmt: skip
    for verb, *arguments in steps:
        verbs[verb](*arguments)
        run.check()


@settings(max_examples=100, deadline=None)
@given(shape=_logs, count=st.integers(1, 6), is_exact=st.booleans())
def test_everything_is_delivered_and_done_in_the_end(
    shape: list[tuple[int, int, bool]], count: int, *, is_exact: bool
) -> None:
    log = _log(shape)
    partition = SharedPartition(Offset(0), (), _LIMITS)
    delivered: list[int] = []
    end = log[-1].last + 1
    for _ in range(1000):
        if partition.next_offset >= end:
            break
        offset = partition.next_offset
        got = partition.acquire(
            "a", offset, [one for one in log if one.last >= offset], WantedRecords(count, 2, is_exact=is_exact), 0
        )
        for each in got:
            delivered += range(each.first, each.last + 1)
            partition.acknowledge("a", [Acknowledgement(each.first, each.last, [AcknowledgeType.ACCEPT])], 0)
        if partition.begin_write() is not None:
            partition.end_write(is_stored=True)
    assert delivered == [number for one in log if one.is_delivered for number in range(one.first, one.last + 1)]
    assert (partition.start_offset, partition.end_offset) == (end, end)
    assert partition.is_idle or partition.has_news


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (2, [512, 512]),  # nothing shrinks
        (3, [512, 512, 1]),
        (5, [512, 512, 512, 256, 1]),
        (10, [512, 512, 512, 512, 512, 256, 128, 64, 32, 1]),
    ],
)
def test_what_a_member_gets_shrinks_from_half_of_the_deliveries_on(limit: int, sizes: list[int]) -> None:
    """Kafka's ShareConsumerTest.testFetchWithThrottledDelivery…"""
    partition = SharedPartition(Offset(0), (), DeliveryLimits(10, limit, 2000))
    log = [LogBatch(0, 511)]
    found = []
    for _ in sizes:
        got = partition.acquire("a", 0, log, WantedRecords(1000, 1000), 0)
        assert got[0].first == 0
        found.append(got[-1].last + 1)
        partition.acknowledge("a", [Acknowledgement(0, got[-1].last, [AcknowledgeType.RELEASE])], 0)
        partition.begin_write()
        partition.end_write(is_stored=True)
    assert found == sizes
    assert partition.start_offset == (1 if limit > 2 else 512)


def test_batches_of_one_record_are_halved_together() -> None:
    partition = SharedPartition(Offset(0), (), DeliveryLimits(10, 5, 2000))
    log = [LogBatch(number, number) for number in range(100)]
    found = []
    for _ in range(5):
        got = partition.acquire("a", 0, log, WantedRecords(500), 0)
        found.append(got[-1].last + 1)
        partition.acknowledge("a", [Acknowledgement(0, got[-1].last, [AcknowledgeType.RELEASE])], 0)
        partition.begin_write()
        partition.end_write(is_stored=True)
    assert found == [100, 100, 100, 50, 1]


def test_all_records_of_a_batch_that_is_always_released_come_as_often_as_the_limit_says() -> None:
    partition = SharedPartition(Offset(0), (), DeliveryLimits(10, 10, 2000))
    log = [LogBatch(0, 511)]
    times = [0] * 512
    while partition.next_offset < 512:
        offset = partition.next_offset
        for each in partition.acquire("a", offset, log, WantedRecords(512, 512), 0):
            for number in range(each.first, each.last + 1):
                times[number] += 1
            partition.acknowledge("a", [Acknowledgement(each.first, each.last, [AcknowledgeType.RELEASE])], 0)
        partition.begin_write()
        partition.end_write(is_stored=True)
    assert times == [10] * 512


def test_records_that_come_a_few_at_a_time_do_not_come_with_others() -> None:
    partition = SharedPartition(Offset(0), (), DeliveryLimits(10, 5, 100))
    for number in range(3):
        assert partition.acquire("a", 0, [LogBatch(0, 0)], WantedRecords(100), 10 * number)
        assert partition.expire(10 * number + 10)
    log = [LogBatch(0, 0), LogBatch(1, 4)]
    assert partition.acquire("a", 0, log, WantedRecords(100), 30) == [Acquired(0, 0, 4)]
    assert partition.acquire("b", 1, log, WantedRecords(100), 30) == [Acquired(1, 4, 1)]
    assert partition.expire(40)
    assert partition.acquire("a", 0, log, WantedRecords(100), 40) == [Acquired(0, 0, 5)]
    assert partition.acquire("b", 1, log, WantedRecords(100), 40) == [Acquired(1, 4, 2)]


def test_a_record_at_its_last_delivery_comes_alone() -> None:
    partition = SharedPartition(Offset(0), (), DeliveryLimits(10, 3, 100))
    log = [LogBatch(0, 4)]
    assert partition.acquire("a", 0, log, WantedRecords(100), 0) == [Acquired(0, 4, 1)]
    assert partition.expire(10)
    assert partition.acquire("a", 0, log, WantedRecords(100), 10) == [Acquired(0, 4, 2)]
    assert partition.expire(20)
    assert partition.acquire("a", 0, log, WantedRecords(100), 20) == [Acquired(0, 0, 3)]
    assert partition.acquire("a", 1, log, WantedRecords(100), 20) == [Acquired(1, 1, 3)]
    with pytest.raises(ApiError):
        partition.acknowledge("b", [Acknowledgement(0, 0, [1])], 20)


def test_single_records_cost_as_much_as_they_are() -> None:
    """For each of them all that the fetch had acquired was added up again: half a second of the loop with 10,000."""

    def cost(number: int) -> int:
        limits = DeliveryLimits(record_locks=10_000, delivery_count=25)
        partition = SharedPartition(Offset(0), (), limits)
        log = [LogBatch(0, number - 1)]
        partition.acquire("m", 0, log, WantedRecords(number), 0)
        partition.acknowledge("m", [Acknowledgement(0, number - 1, [1, 2] * (number // 2))], 1)
        partition.begin_write()
        partition.end_write(is_stored=True)
        return calls(lambda: partition.acquire("m", 0, log, WantedRecords(number), 2))

    assert cost(2_000) < 12 * cost(200)


def test_each_record_may_be_acknowledged_for_itself() -> None:
    """10 microseconds for each of them, all in one turn of the loop: 0.2 s with 20,000."""
    number = 2_000

    def cost(said: list[Acknowledgement]) -> float:
        partition = SharedPartition(Offset(0), (), DeliveryLimits(record_locks=10_000))
        partition.acquire("m", 0, [LogBatch(0, number - 1)], WantedRecords(number), 0)
        found = calls(lambda: partition.acknowledge("m", said, 1))
        assert partition.held("m")[0][0] == 0 and partition.has_news
        return found / number

    assert cost([Acknowledgement(0, number - 1, [1, 2] * (number // 2))]) < 20
    assert cost([Acknowledgement(each, each, [1 + each % 2]) for each in range(number)]) < 20
    assert cost([Acknowledgement(each, each, [1]) for each in range(number)]) < 10
    assert cost([Acknowledgement(0, number - 1, [1] * number)]) < 1


def test_a_state_always_fits_into_a_record() -> None:
    """A batch of tiny records can have hundreds of thousands. Each second one acknowledged was a state of some megabytes: its record was refused
    again and again, and nothing of the partition was stored any more."""
    partition = SharedPartition(Offset(0), (), DeliveryLimits(delivery_count=25, record_locks=10_000))
    log, stored = [LogBatch(0, 299_999)], StoredState(0, 1, 1, Offset(0))
    for _ in range(3):
        read_from = partition.next_offset
        got = partition.acquire("m", read_from, log, WantedRecords(1_000), 0)
        for first, last, _ in got:
            partition.acknowledge("m", [Acknowledgement(first, last, [2, 1] * ((last - first + 1) // 2))], 1)
        write = partition.begin_write()
        if write is not None:
            change = change_of(stored, write.start_offset, write.batches)
            stored = applied(stored, change)
            key = ShareKey("g" * 249, UUID(int=1), 0)
            for name, value in (encode_update(key, change, stored), encode_snapshot(key, stored)):
                assert len(name) + len(value or b"") < 2**20
            partition.end_write(is_stored=True)
    assert len(stored.batches) > 10_000
    assert partition.end_offset < 300_000, "the rest of the batch comes when there is room"
