"""Waiting operations and their deadlines."""

import asyncio
from typing import cast

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import NO_OFFSET, Offset, TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.replica.client_fetch import ClientFetch
from kafkalite.replica.partition import Partition
from kafkalite.replica.purgatory import DeadlineWheel, DelayedProduce, ProduceWaiter, Waiting
from tests.support.waiting import until


class Probe(Waiting):
    def __init__(self, name: str, told: list[str]) -> None:
        super().__init__()
        self.name = name
        self.told = told

    def expire(self) -> None:
        self.told.append(self.name)


async def test_deadlines_come_in_their_order_and_not_for_what_was_discarded(monkeypatch):
    wheel = DeadlineWheel(grain_ms=1)
    told: list[str] = []
    probes = {name: Probe(name, told) for name in ("late", "soon", "never", "middle")}
    with monkeypatch.context() as at_once:
        loop = asyncio.get_running_loop()
        now = loop.time()
        at_once.setattr(loop, "time", lambda: now)
        wheel.add(probes["late"], 40)
        wheel.add(probes["soon"], 2)
        wheel.add(probes["never"], 10)
        wheel.add(probes["middle"], 20)
    wheel.discard(probes["never"])
    wheel.discard(probes["never"])
    assert len(wheel) == 3
    await until(lambda: len(told) >= 3)
    assert told == ["soon", "middle", "late"]
    assert len(wheel) == 0


async def test_one_timer_serves_any_number_of_operations():
    wheel = DeadlineWheel()
    told: list[str] = []
    for number in range(10_000):
        probe = Probe(str(number), told)
        wheel.add(probe, 60_000)
        wheel.discard(probe)
    assert len(wheel) == 0
    assert len(wheel._buckets) < 200  # buckets of the moments at which they were added, not operations
    wheel.add(Probe("last", told), 0)
    wheel.expire_all()
    assert told == ["last"]


async def test_deadlines_that_clients_have_spread_over_days_leave_nothing_behind():
    wheel = DeadlineWheel()
    told: list[str] = []
    kept = [Probe(str(number), told) for number in range(10)]
    for number, probe in enumerate(kept):
        wheel.add(probe, (number + 1) * 100_000_000)
    for number in range(20_000):
        probe = Probe("gone", told)
        wheel.add(probe, 60_000 + number * 1_000)
        wheel.discard(probe)
        assert len(wheel._buckets) <= len(wheel._order) < 5_000
    assert len(wheel) == 10
    wheel.expire_all()
    assert told == [str(number) for number in range(10)]


async def test_an_operation_may_be_added_again_after_its_deadline():
    wheel = DeadlineWheel(grain_ms=1)
    told: list[str] = []
    probe = Probe("again", told)
    wheel.add(probe, 0)
    await until(lambda: told)
    wheel.add(probe, 0)
    await until(lambda: len(told) >= 2)
    assert len(wheel) == 0


class Persistent(Waiting):
    """Waits again at each deadline, as a fetch does whose records the disk does not give."""

    def __init__(self, wheel: DeadlineWheel) -> None:
        super().__init__()
        self.wheel = wheel
        self.expired = 0

    def expire(self) -> None:
        self.expired += 1
        assert self.expired < 100
        self.wheel.add(self, 5)


async def test_a_node_that_stops_does_not_wait_for_what_waits_again() -> None:
    wheel = DeadlineWheel()
    one, other = Persistent(wheel), Persistent(wheel)
    wheel.add(one, 1)
    wheel.add(other, 2_000)
    assert not wheel.is_closed
    wheel.expire_all()
    assert wheel.is_closed
    assert one.expired in (1, 2) and other.expired == 1
    wheel.discard(one)
    wheel.discard(other)
    assert len(wheel) == 0


class FakePartition:
    def __init__(self) -> None:
        self.pruned = 0

    def prune_produce_waiters(self) -> None:
        self.pruned += 1


def _produced(index: int) -> ProducedPartition:
    return ProducedPartition("t", index, 0, Offset(4))


def _waiter(produce: DelayedProduce, index: int, partition: FakePartition) -> ProduceWaiter:
    return ProduceWaiter(produce, index, cast(Partition, partition), Offset(5), _produced(index))


@pytest.mark.checklist(46)
async def test_a_produce_is_answered_once_when_all_its_partitions_are_settled():
    wheel = DeadlineWheel()
    answers: list[tuple[ProducedPartition, ...]] = []
    produce = DelayedProduce(wheel, 2, answers.append)
    waiters = []
    for index in range(2):
        waiter = _waiter(produce, index, FakePartition())
        produce.waiters.append(waiter)
        produce.pending += 1
        waiters.append(waiter)
    wheel.add(produce, 60_000)
    waiters[1].settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    waiters[1].settle()
    assert not answers
    waiters[0].settle()
    assert answers == [(_produced(0), ProducedPartition("t", 1, ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET))]
    assert len(wheel) == 0


async def test_at_its_deadline_a_produce_tells_what_was_committed_and_leaves_nothing_behind():
    wheel = DeadlineWheel()
    answers: list[tuple[ProducedPartition, ...]] = []
    produce = DelayedProduce(wheel, 2, answers.append)
    partitions = [FakePartition(), FakePartition()]
    for index in range(2):
        produce.waiters.append(_waiter(produce, index, partitions[index]))
        produce.pending += 1
    produce.waiters[0].settle()
    produce.expire()
    assert [part.error for part in answers[0]] == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    assert [partition.pruned for partition in partitions] == [1, 1]


async def test_a_fetch_is_read_once_for_all_that_became_readable():
    wheel, reads = DeadlineWheel(), []
    fetch = ClientFetch()
    entry = fetch.list(TopicPartition("t", 0), Offset(0), 1)
    fetch.wait(wheel, 60_000, 100, lambda: reads.append(1))
    entry.on_readable(60, Offset(0))
    await asyncio.sleep(0)
    assert not reads
    entry.on_readable(60, Offset(0))
    entry.on_readable(60, Offset(0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reads == [1]
    assert len(wheel) == 0
    fetch.expire()
    assert reads == [1]
