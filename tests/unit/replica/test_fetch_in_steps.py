"""A fetch of many partitions is read in steps, with others' work between them: nothing that comes meanwhile is missed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import Offset, TopicPartition
from kafkalite.replica.client_fetch import AT_ONCE, LIGHT_STEP, STEP, ClientFetch, FetchAnswer, FetchTerms, Steps
from tests.support.fetching import answered

COUNT = 4
TPS = [TopicPartition("t", number) for number in range(COUNT)]


@pytest.fixture
async def node(make_cluster: Any) -> Any:
    """A leader of some partitions with no follower."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", dict.fromkeys(range(COUNT), (1,)))
    for each in TPS:
        await cluster.command(1, cluster.decide(each, leader=1, isr=(1,), epoch=0))
    return cluster.node(1)


class ByHand:
    """Steps are made when the test says so. `held`: bytes between steps."""

    def __init__(self) -> None:
        self.steps: list[Steps[None]] = []
        self.made = 0
        self.held = 0
        self.most = 0

    def run(self, steps: Steps[None]) -> None:
        self.steps.append(steps)
        self.step()

    def hold(self, size_bytes: int) -> None:
        self.held += size_bytes
        self.most = max(self.most, self.held)

    def step(self) -> bool:
        """False: there is none left."""
        if not self.steps:
            return False
        self.made += 1
        if next(self.steps[0], self) is self:
            self.steps.pop(0)
        return bool(self.steps)

    def finish(self) -> None:
        while self.step():
            pass


def many(padding: int, *, session: bool = False) -> ClientFetch:
    """All partitions, and then more entries of all but the first one."""
    fetch = ClientFetch()
    fetch.is_session = session
    for each in TPS:
        fetch.list(each, Offset(0), 1 << 20)
    for number in range(padding):
        entry = fetch.list(TopicPartition("padding", number), Offset(0), 1 << 20)
        entry.key = TPS[1 + number % (COUNT - 1)]
    return fetch


async def test_steps_are_bounded_and_give_what_one_step_gives(node: Any) -> None:
    await node.produce(TPS[2], b"x", acks=1)
    unknown = 3 * STEP

    def listed(pacing: Any) -> list[tuple[int, int, int]]:
        fetch = many(0)
        for number in range(unknown):
            fetch.list(TopicPartition("unknown", number), Offset(0), 1 << 20)
        found: list[tuple[int, int, int]] = []

        def collect() -> None:
            found.extend((each.error, each.high_watermark, each.records_size) for each in fetch.due())

        node.manager.consuming.fetch(fetch, FetchTerms(0, 1, 1 << 20), answered(collect), None, pacing)
        if isinstance(pacing, ByHand):
            pacing.finish()
        return found

    by_hand = ByHand()
    expected = listed(AT_ONCE)
    assert listed(by_hand) == expected
    assert by_hand.made > unknown // STEP
    assert (by_hand.held, by_hand.most > 0) == (0, True)
    assert {error for error, *_ in expected} == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("session", [False, True])
async def test_a_record_that_comes_between_two_steps_ends_the_long_poll(
    node: Any, until: Any, *, session: bool
) -> None:
    fetch = many(3 * STEP, session=session)
    pacing = ByHand()
    answers: list[int] = []

    def collect() -> None:
        answers.append(sum(entry.records_size for entry in fetch.due()))

    node.manager.consuming.fetch(fetch, FetchTerms(600_000, 1, 1 << 20), answered(collect), None, pacing)
    assert pacing.steps and not answers
    await node.produce(TPS[0], b"x", acks=1)  # which the first step has read
    pacing.finish()
    assert not answers
    await until(lambda: pacing.steps or answers)
    pacing.finish()
    assert len(answers) == 1 and answers[0] > 0


async def test_an_interrupted_reading_ends_with_its_next_step(node: Any) -> None:
    pacing = ByHand()
    asked: list[int] = []
    fetch = many(5 * STEP, session=True)

    def refused() -> Steps[FetchAnswer | None]:
        asked.append(pacing.made)
        yield from ()
        return None

    node.manager.consuming.fetch(fetch, FetchTerms(600_000, 1, 1 << 20), refused, None, pacing)
    fetch.interrupt()
    pacing.finish()
    assert asked == [2]


async def test_what_ends_is_watched_by_nobody_and_freed_in_steps(node: Any) -> None:
    fetch = many(2 * LIGHT_STEP, session=True)
    node.manager.consuming.fetch(fetch, FetchTerms(0, 0, 1 << 20), answered(lambda: None))
    partitions = [node.partition(each) for each in TPS]
    assert all(partition.fetch_waiters for partition in partitions)
    steps = fetch.ending()
    assert not fetch.entries and not fetch.is_session
    assert sum(1 for _ in steps) >= 2
    assert not any(partition.fetch_waiters for partition in partitions)


async def test_a_session_begins_in_steps_and_then_answers_only_what_is_new(node: Any) -> None:
    fetch = many(2 * LIGHT_STEP)
    counts: list[int] = []

    def done() -> Steps[FetchAnswer | None]:
        counts.append(len(fetch.due()))
        yield
        return FetchAnswer(lambda: None, opens_session=not fetch.is_session)

    def fetch_once() -> None:
        pacing = ByHand()
        node.manager.consuming.fetch(fetch, FetchTerms(0, 0, 1 << 20), done, None, pacing)
        pacing.finish()

    fetch_once()
    assert fetch.is_session and len(fetch.ready) == len(fetch.entries)
    fetch_once()
    assert not fetch.ready
    await node.produce(TPS[0], b"x", acks=1)
    fetch_once()
    assert counts == [COUNT + 2 * LIGHT_STEP, 0, 1]


def test_a_session_begins_in_steps_and_reads_everything_once_more() -> None:
    fetch = many(3 * LIGHT_STEP)
    entries = list(fetch.entries.values())
    entries[1].has_more = True  # its next reading is not before that of others
    marked = [len(fetch.ready) for _ in fetch.beginning_session(fetch.begin_reading())]
    assert max(abs(after - before) for before, after in pairwise(marked)) <= LIGHT_STEP
    assert fetch.is_session
    assert list(fetch.ready) == entries


def test_a_session_that_is_interrupted_at_its_beginning_does_not_begin() -> None:
    fetch = many(3 * LIGHT_STEP)
    steps = fetch.beginning_session(fetch.begin_reading())
    for _ in range(5):
        next(steps)
    fetch.interrupt()
    assert not list(steps)
    assert not fetch.is_session
