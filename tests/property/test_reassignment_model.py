"""Random orders to reassign, cancel, add, remove, delete and elect, through random failures of brokers, leaders, writes
and controllers: every order ends as ordered or rolled back, and nothing is ever given up for it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalite.controller.decisions.effects import Effect, Send, WriteTopics
from kafkalite.controller.decisions.events import (
    UNLIMITED,
    BrokersChanged,
    Event,
    IsrsChanged,
    PartitionRequests,
    PartitionsDrained,
    PreferredElectionRequested,
    ReassignmentLimits,
    ReassignmentRequested,
    Ticked,
)
from kafkalite.controller.decisions.reassignments import is_over
from kafkalite.coordination.admin_znodes import PartitionRemoval
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.rpc.messages.control import LeaderAndIsrRequest, StopReplicaRequest
from tests.datadriven.controller_words import broker_of
from tests.property.test_controller_model import Model

BROKERS = (1, 2, 3, 4)
TARGETS = ((4, 3, 2), (2, 1, 4), (3,), (4, 1), (1, 2, 3, 4), (2, 3, 1), (1,))
LIMITS = (
    ReassignmentLimits(),
    ReassignmentLimits(1, 1, 1),
    ReassignmentLimits(1, 2, 1),
    ReassignmentLimits(2, UNLIMITED, 2),
    ReassignmentLimits(UNLIMITED, 1, 1),
)


class MovingModel(Model):
    """Brokers keep files until a command deletes them, or find at an INIT that they should not have them."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[int, set[TopicPartition]] = {}

    def perform(self, effect: Effect) -> Event | None:
        if isinstance(effect, WriteTopics):
            self.check_changes(effect)
        return super().perform(effect)

    def check_changes(self, effect: WriteTopics) -> None:
        for change in effect.changes:
            before = self.topics.get(change.name)
            if before is None or before.version != change.topic.version:
                continue
            for partition in change.partitions:
                now = change.topic.assignment.get(partition.partition)
                was = before.assignment.get(partition.partition)
                move = before.moves.get(partition.partition)
                if now is None or was is None or move is None:
                    continue
                assert len(now) >= min(len(was), len(move.target), len(move.origin)), (
                    "fewer replicas than before and after"
                )
                new = set(now) - set(was)
                assert len(new) <= max(self.limits.replicas, self.min_insync), "more added than the limit"
                state, known = change.states.get(partition), self.znodes[partition]
                if state is not None and state.partition_epoch == known.partition_epoch:
                    assert state.leader in known.isr and set(state.isr) <= set(known.isr)
                    assert set(state.isr) <= set(now) and state.leader_epoch == known.leader_epoch + 1
                    live = [each for each in known.isr if each in self.state.brokers]
                    kept = [each for each in state.isr if each in self.state.brokers]
                    assert len(kept) >= min(len(live), self.min_insync, len(move.target)), (
                        "the ISR was cut below the minimum"
                    )
                if set(was) - set(now) and move.target != move.origin:
                    final = [each for each in move.target if each in now]
                    assert all(each in known.isr or each in move.origin for each in final), "dropped before in sync"
            started = [
                p for p in change.partitions
                if (m := change.topic.moves.get(p.partition)) is not None and m.step
                and not (b := before.moves.get(p.partition), b and b.step)[1]
            ]  # fmt: skip
            if started:
                topics = {**self.topics, change.name: change.topic}
                # What is on its way out moves no further, and may be drained for days: it holds nothing up.
                moves = [
                    m
                    for name, each in topics.items()
                    if name not in self.state.deletions
                    for number, m in each.moves.items()
                    if TopicPartition(name, number) not in self.state.removals
                ]
                assert sum(bool(m.step) for m in moves) <= self.limits.partitions
                leading = sum(m.moves_leader and bool(m.step) for m in moves)
                newly = any(change.topic.moves[p.partition].moves_leader for p in started)
                assert not newly or leading <= self.limits.leader_movements

    def deliver(self, effect: Send) -> None:
        info = self.brokers.get(effect.broker_id)
        if info is not None and info.broker_epoch == effect.command.broker_epoch:
            files = self.files.setdefault(info.broker_id, set())
            match effect.command:
                case LeaderAndIsrRequest() as command:
                    named = {TopicPartition(each.topic, each.partition) for each in command.partitions}
                    files |= named
                    if command.is_init:
                        files &= named
                case StopReplicaRequest() as command:
                    files -= {TopicPartition(e.topic, e.partition) for e in command.partitions if e.delete_files}
        super().deliver(effect)

    def order_step(self, action: str, subject: int) -> None:
        partitions = sorted(TopicPartition(n, p) for n, t in self.topics.items() for p in t.assignment)
        if not partitions:
            return
        partition = partitions[subject % len(partitions)]
        match action:
            case "reassign":
                self.order[partition] = tuple(map(BrokerId, TARGETS[subject % len(TARGETS)]))
                self.handle(ReassignmentRequested(dict(self.order)))
            case "cancel":
                self.order[partition] = ()
                self.handle(ReassignmentRequested(dict(self.order)))
            case "limits":
                self.limits = LIMITS[subject % len(LIMITS)]
            case "add":
                topic = self.topics[partition.topic]
                new = TopicPartition(partition.topic, len(topic.assignment))
                live = sorted(self.state.brokers.keys() & self.brokers.keys())
                if live and len(topic.assignment) < 5 and not any(p.topic == new.topic for p in self.removals):
                    self.adds[new] = (live[subject % len(live)],)
                    self.handle(PartitionRequests(dict(self.adds), dict(self.removals)))
            case "remove":
                last = TopicPartition(partition.topic, len(self.topics[partition.topic].assignment) - 1)
                if last.partition > 0:
                    self.removals.setdefault(last, PartitionRemoval(drain=subject % 2 == 0))
                    self.handle(PartitionRequests(dict(self.adds), dict(self.removals)))
            case "copied":
                self.copy(partition)
            case "race":
                self.topic_races.add(partition.topic)
            case "drained":
                self.handle(PartitionsDrained(tuple(sorted(self.removals))))
            case "tick":
                self.handle(Ticked())
        self.check_history()

    def copy(self, partition: TopicPartition) -> None:
        """Those who were commanded in the present epoch have copied everything."""
        known = self.znodes.get(partition)
        if known is None or known.leader not in self.brokers:
            return
        replicas = self.topics[partition.topic].assignment.get(partition.partition, ())
        told = {b for b in self.brokers if self.roles.get(b, {}).get(partition) == known.leader_epoch}
        joining = [b for b in replicas if b in told and b not in known.isr]
        if known.leader in told and joining:
            self.change_isr(partition, (*known.isr, *joining))
            self.handle(IsrsChanged((partition,)))

    def settle(self) -> None:
        """Everybody comes back, nothing fails any more."""
        self.topic_races.clear()
        for number in BROKERS:
            if number not in self.brokers:
                self.zxid += 1
                self.brokers = dict(
                    sorted({**self.brokers, BrokerId(number): broker_of(f"{number}@{self.zxid}")}.items())
                )
        self.handle(BrokersChanged(self.brokers))
        for _ in range(60):
            self.handle(PartitionsDrained(tuple(sorted(self.removals))))
            for name in sorted(self.topics):
                for number in sorted(self.topics[name].assignment):
                    self.copy(TopicPartition(name, number))
            self.step("answers", 0)
            self.handle(IsrsChanged(tuple(sorted(self.znodes))))
            self.handle(ReassignmentRequested(dict(self.order)))
            self.handle(PartitionRequests(dict(self.adds), dict(self.removals)))
            self.handle(Ticked())


ORDERS = (
    "reassign",
    "reassign",
    "reassign",
    "cancel",
    "limits",
    "add",
    "remove",
    "copied",
    "copied",
    "copied",
    "race",
    "drained",
    "tick",
)
LIVES = ("toggle", "bounce", "shrink", "topic", "delete", "failover", "preferred", "answers", "answers")


@pytest.mark.checklist(68, "C14", "C16")
@pytest.mark.checklist(9)
@pytest.mark.checklist(36)
@pytest.mark.checklist(67)
@pytest.mark.checklist(69)
@pytest.mark.checklist(71)
@pytest.mark.checklist(75)
@pytest.mark.checklist("F20")
@pytest.mark.checklist("F21")
@settings(max_examples=150, deadline=None)
@example([("reassign", 14), ("limits", 1), ("reassign", 0), ("remove", 2)], 1)
@given(st.lists(st.tuples(st.sampled_from((*ORDERS, *LIVES)), st.integers(0, 27)), max_size=60), st.integers(1, 2))
def test_every_order_ends_as_ordered_or_rolled_back(steps: list[tuple[str, int]], min_insync: int) -> None:
    model = MovingModel()
    model.min_insync = min_insync
    model.brokers = {BrokerId(each): broker_of(f"{each}@{each}") for each in BROKERS}
    model.step("failover", 0)
    model.step("topic", 0)
    model.step("topic", 1)
    for action, subject in steps:
        if action in LIVES:
            model.step(action, subject)
            if action == "failover":
                model.handle(PartitionRequests(dict(model.adds), dict(model.removals)))
                model.handle(ReassignmentRequested(dict(model.order)))
        else:
            model.order_step(action, subject)
    model.settle()
    assert not model.order, "an order that never ends"
    assert not model.adds or all(p.topic in model.topics for p in model.adds)
    assert not model.removals
    for name, topic in model.topics.items():
        left = {number: move for number, move in topic.moves.items() if not is_over(topic.assignment[number], move)}
        assert not left and not any(move.dropping for move in topic.moves.values()), (name, topic.moves)
        assert sorted(topic.assignment) == list(range(len(topic.assignment)))
        for number, replicas in topic.assignment.items():
            state = model.znodes[TopicPartition(name, number)]
            assert set(state.isr) == set(replicas) and state.leader in replicas
    for broker, files in model.files.items():
        hosted = {TopicPartition(n, p) for n, t in model.topics.items() for p, r in t.assignment.items() if broker in r}
        assert files <= hosted, f"left behind on {broker}: {sorted(files - hosted)}"
    model.handle(PreferredElectionRequested(tuple(sorted(model.znodes)), version=0))
    for partition, state in model.znodes.items():
        assert state.leader == model.topics[partition.topic].assignment[partition.partition][0]


def test_dataclasses_are_what_the_model_thinks() -> None:
    assert dataclasses.astuple(ReassignmentLimits()) == (UNLIMITED,) * 3
