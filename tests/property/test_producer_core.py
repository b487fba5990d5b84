"""The producer's decisions against a broker that is modelled here: exactly once and in order, whatever is lost."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.client.batching import ProducerBatch
from kafkalite.client.producer_core import MAX_BATCHES_PER_REQUEST, Completion, Dispatch, ProducerCore
from kafkalite.client.producer_settings import ProducerSettings
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId, ProducerId, TopicPartition
from kafkalite.record.compression import Codec
from tests.fake_log import FakeLog

E = ErrorCode
T0 = TopicPartition("t", 0)


@dataclass
class UnderWay:
    """A request: `answers` is None until a broker has handled it."""

    dispatch: Dispatch
    payloads: list[bytes]
    answers: list[tuple[ErrorCode, int]] | None = None


class World:
    """One partition's log, a leader that moves, requests that are handled, answered or lost in arbitrary order.

    A connection keeps order: of the requests to one node the oldest is handled first. A node that is no longer
    the leader refuses.
    """

    def __init__(self, seed: int, **config: float) -> None:
        self.core = ProducerCore(
            ProducerSettings(linger_s=0.0, batch_bytes=120, delivery_timeout_s=1e9, **config),  # type: ignore[arg-type]
            random.Random(seed),
        )
        self.core.set_producer_id(ProducerId(5), 0)
        self.log = FakeLog()
        self.leader = 1
        self.believed = 1
        self.now = 0.0
        self.requests: list[UnderWay] = []
        self.sent = 0
        self.delivered: dict[int, int] = {}
        self.failed: list[int] = []

    def append(self, count: int) -> None:
        for _ in range(count):
            self.core.append(T0, None, b"%d" % self.sent, (), 0, self.now, self.sent)
            self.sent += 1
        self.core.begin_flush()

    def plan(self) -> None:
        for _ in range(10):
            dispatches, wake, _ = self.core.plan(self.now, lambda _: BrokerId(self.believed), lambda _: True)
            for dispatch in dispatches:
                self.requests.append(UnderWay(dispatch, [b.encoded(Codec.NONE) for b in dispatch.batches]))
            if wake is None or wake > self.now:
                return

    def handle(self, which: int, error: ErrorCode | None = None) -> None:
        """A broker handles the oldest request to it that waits."""
        waiting = [r for r in self.requests if r.answers is None]
        if not waiting:
            return
        node = waiting[which % len(waiting)].dispatch.node
        request = next(r for r in waiting if r.dispatch.node == node)
        request.answers = []
        for payload in request.payloads:
            if node != self.leader:
                request.answers.append((E.NOT_LEADER_OR_FOLLOWER, -1))
            elif error is E.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                self.log.append(memoryview(payload))
                request.answers.append((error, -1))
            elif error is not None:
                request.answers.append((error, -1))
            else:
                request.answers.append(self.log.append(memoryview(payload)))

    def answer(self, which: int) -> None:
        """An answer arrives: the oldest of its connection."""
        ready = [r for r in self.requests if r.answers is not None]
        if not ready:
            return
        node = ready[which % len(ready)].dispatch.node
        request = next(r for r in self.requests if r.dispatch.node == node)
        if request.answers is None:
            return
        self.requests.remove(request)
        for batch, attempt, (code, offset) in zip(
            request.dispatch.batches, request.dispatch.attempts, request.answers, strict=True
        ):
            completion, _ = self.core.on_answer(batch, attempt, code, offset, -1, "", self.now)
            self.note(batch, completion)

    def cut(self, which: int) -> None:
        """A connection ends: requests not handled are gone, those handled go without answer."""
        if not self.requests:
            return
        node = self.requests[which % len(self.requests)].dispatch.node
        gone = [r for r in self.requests if r.dispatch.node == node]
        self.requests = [r for r in self.requests if r.dispatch.node != node]
        for request in gone:
            for batch, attempt in zip(request.dispatch.batches, request.dispatch.attempts, strict=True):
                self.note(batch, self.core.on_lost(batch, attempt, "cut", self.now, was_sent=True))

    def move(self) -> None:
        self.leader = self.leader % 3 + 1

    def learn(self) -> None:
        self.believed = self.leader
        for completion in self.core.on_leader_changed(T0, BrokerId(self.believed), self.now):
            self.note(completion.batch, completion)

    def note(self, batch: ProducerBatch, completion: Completion | None) -> None:
        if completion is None:
            return
        if completion.error is not None:
            self.failed += batch.tokens
            return
        for index, token in enumerate(batch.tokens):
            assert token not in self.delivered
            self.delivered[token] = completion.base_offset + index

    def settle(self) -> None:
        """No more faults: everything has to be delivered."""
        for _ in range(400):
            self.learn()
            self.plan()
            while self.requests:
                self.handle(0)
                self.answer(0)
            self.now += 0.2
            if not self.core.busy_partitions:
                return
        raise AssertionError("the producer is stuck")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 30)),
        st.tuples(st.just("plan"), st.integers(0, 1)),
        st.tuples(st.just("handle"), st.integers(0, 5)),
        st.tuples(st.just("refuse"), st.integers(0, 4)),
        st.tuples(st.just("answer"), st.integers(0, 5)),
        st.tuples(st.just("cut"), st.integers(0, 5)),
        st.tuples(st.just("move"), st.just(0)),
        st.tuples(st.just("learn"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 10)),
    ),
    max_size=80,
)
REFUSALS = [
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.KAFKA_STORAGE_ERROR,
    E.UNKNOWN_TOPIC_OR_PARTITION,
]


def play(world: World, steps: list[tuple[str, int]]) -> None:
    for verb, number in steps:
        match verb:
            case "append":
                world.append(number)
            case "plan":
                world.plan()
            case "handle":
                world.handle(number)
            case "refuse":
                world.handle(number, REFUSALS[number])
            case "answer":
                world.answer(number)
            case "cut":
                world.cut(number)
            case "move":
                world.move()
            case "learn":
                world.learn()
            case _:
                world.now += number / 10
    world.settle()


@given(STEPS, st.integers(0, 1000), st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_exactly_once_and_in_order(steps: list[tuple[str, int]], seed: int, in_flight: int) -> None:
    world = World(seed, max_in_flight=in_flight)
    play(world, steps)
    assert world.log.values() == [b"%d" % number for number in range(world.sent)]
    assert world.delivered == {number: number for number in range(world.sent)}
    assert world.core.buffered_bytes == 0


@given(STEPS, st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_without_idempotence_nothing_is_forgotten(steps: list[tuple[str, int]], seed: int) -> None:
    world = World(seed, idempotent=False, acks=1, retries=3)
    play(world, steps)
    assert sorted([*world.delivered, *world.failed]) == list(range(world.sent))
    in_log = {int(value or b"") for value in world.log.values()}
    assert set(world.delivered) <= in_log
    assert world.core.buffered_bytes == 0


@given(st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=20), st.integers(0, 100))
@settings(max_examples=100, deadline=None)
def test_what_timed_out_leaves_no_hole_in_the_order(rounds: list[tuple[int, bool]], seed: int) -> None:
    world = World(seed)
    world.core.settings = ProducerSettings(linger_s=0.0, batch_bytes=120, delivery_timeout_s=5.0)
    for count, lose in rounds:
        world.append(count)
        world.plan()
        if lose:
            world.requests.clear()  # neither handled nor answered
            world.now += 6
            for completion in world.core.expire(world.now)[0]:
                world.note(completion.batch, completion)
        world.settle()
    kept = [number for number in range(world.sent) if number not in world.failed]
    assert world.log.values() == [b"%d" % number for number in kept]
    assert sorted(world.delivered) == kept


def test_thousands_of_partitions_go_out_in_requests_of_a_bounded_number() -> None:
    core = ProducerCore(ProducerSettings(linger_s=0.0), random.Random(1))
    core.set_producer_id(ProducerId(5), 0)
    count = 2 * MAX_BATCHES_PER_REQUEST + 1
    for number in range(count):
        core.append(TopicPartition("t", number), None, b"v", (), 0, 0.0, number)
    sizes = []
    wake: float | None = 0.0
    while wake == 0.0:
        dispatches, wake, _ = core.plan(0.0, lambda _: BrokerId(1), lambda _: True)
        sizes += [len(each.batches) for each in dispatches]
    assert sizes == [MAX_BATCHES_PER_REQUEST, MAX_BATCHES_PER_REQUEST, 1]
