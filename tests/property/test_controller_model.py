"""Random lives of a cluster through `decide`: brokers die, bounce, fall silent and leave, leaders change their ISRs unseen, topics
come and go, controllers are replaced. What must hold is checked after every step."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalite.controller.decisions.effects import Effect, ReadStates, Send, WriteStates
from kafkalite.controller.decisions.events import (
    BrokerCleared,
    BrokersChanged,
    BrokerSuspected,
    ClusterRead,
    ControlledShutdownReceived,
    DeletionsRequested,
    Event,
    IsrsChanged,
    PreferredElectionRequested,
    ReplicasStopped,
    Ticked,
    TopicsChanged,
)
from kafkalite.controller.decisions.state import ControllerState, Topic
from kafkalite.model import BrokerId, ControllerEpoch, LeaderAndIsr, TopicPartition
from kafkalite.rpc.messages.control import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from tests.datadriven.controller_runner import Script
from tests.datadriven.controller_words import broker_of, topic_of

BROKERS = (1, 2, 3, 4)
TOPICS = {"a": "1,2,3/2,3,1", "b": "4,1/3,4,2/1", "c": "2,4,3"}


class Model(Script):
    """The imitation of ZooKeeper of the scenario files, plus brokers that carry out commands."""

    def __init__(self) -> None:
        super().__init__()
        self.roles: dict[int, dict[TopicPartition, int]] = {}
        self.metadata: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        self.history: dict[TopicPartition, LeaderAndIsr] = {}
        #: (topic id, partition) -> the last state that there was.
        self.last: dict[tuple[str, TopicPartition], LeaderAndIsr] = {}
        self.answers: list[ReplicasStopped] = []
        #: (broker, partition) -> the topic's id in the last command to lead or follow.
        self.hosted: dict[tuple[int, TopicPartition], str] = {}
        self.lives = 0
        #: Topics whose znodes have vanished without an order.
        self.gone: dict[str, Topic] = {}
        #: Changed by their leaders without the controller having looked since.
        self.unseen: set[TopicPartition] = set()
        #: Members of an ISR that have restarted since they joined it -> the leader epoch of that time.
        self.restarted: dict[TopicPartition, dict[int, int]] = {}

    def perform(self, effect: Effect) -> Event | None:
        if isinstance(effect, ReadStates):
            self.unseen -= set(effect.partitions)
        if isinstance(effect, WriteStates):
            for partition, wanted in effect.writes.items():
                known = self.znodes.get(partition)
                if known is not None and wanted.leader >= 0 and wanted.partition_epoch == known.partition_epoch:
                    allowed = {*known.isr, *known.elr}  # an eligible replica has all that is committed (KIP-966)
                    assert wanted.leader in allowed, "elected outside the ISR and the ELR"
                    assert set(wanted.isr) <= allowed, "the controller added to an ISR"
        if isinstance(effect, Send):
            self.deliver(effect)
        return super().perform(effect)

    def deliver(self, effect: Send) -> None:
        info = self.brokers.get(effect.broker_id)
        if info is None or info.broker_epoch != effect.command.broker_epoch:
            return
        roles = self.roles.setdefault(info.broker_id, {})
        told = self.metadata.setdefault(info.broker_id, {})
        match effect.command:
            case LeaderAndIsrRequest() as command:
                if command.is_init:
                    roles.clear()
                for state in command.partitions:
                    partition = TopicPartition(state.topic, state.partition)
                    durable = self.znodes[partition]
                    assert state.leader_epoch <= durable.leader_epoch, "told before it was durable"
                    # A replica of another topic of that name is set aside.
                    is_same = self.hosted.get((info.broker_id, partition)) == state.topic_id
                    roles[partition] = max(state.leader_epoch, roles.get(partition, -1) if is_same else -1)
                    self.hosted[info.broker_id, partition] = state.topic_id
            case UpdateMetadataRequest() as command:
                if command.is_full:
                    told.clear()
                for topic in command.deleted_topics:
                    for partition in [each for each in told if each.topic == topic]:
                        del told[partition]
                for each in command.partitions:
                    told[TopicPartition(each.topic, each.partition)] = (each.leader, each.leader_epoch)
            case StopReplicaRequest() as command:
                stopped = [TopicPartition(each.topic, each.partition) for each in command.partitions]
                for partition, stop in zip(stopped, command.partitions, strict=True):
                    if self.hosted.get((info.broker_id, partition)) == stop.topic_id:
                        roles.pop(partition, None)
                if all(each.delete_files for each in command.partitions):
                    ids = tuple(each.topic_id for each in command.partitions)
                    self.answers.append(ReplicasStopped(info.broker_id, info.broker_epoch, tuple(stopped), (), ids))

    def step(self, action: str, subject: int) -> None:
        partitions = sorted(self.znodes)
        match action:
            case "toggle" | "bounce":
                number = BROKERS[subject % len(BROKERS)]
                self.zxid += 1
                brokers = {id_: info for id_, info in self.brokers.items() if id_ != number}
                self.roles.pop(number, None)
                self.metadata.pop(number, None)
                for partition, known in self.znodes.items():
                    if number in known.isr:
                        self.restarted.setdefault(partition, {})[number] = known.leader_epoch
                if action == "bounce" or len(brokers) == len(self.brokers):
                    brokers[BrokerId(number)] = broker_of(f"{number}@{self.zxid}")
                self.brokers = dict(sorted(brokers.items()))
                if subject % 3:  # else the controller does not hear of it before the next event of this kind
                    self.handle(BrokersChanged(self.brokers))
            case "shrink" | "shrink unseen" if partitions:
                partition = partitions[subject % len(partitions)]
                known = self.znodes[partition]
                if known.leader in self.brokers and len(known.isr) > 1:
                    gone = next(each for each in known.isr if each != known.leader)
                    self.change_isr(partition, tuple(each for each in known.isr if each != gone))
                    if action == "shrink":
                        self.handle(IsrsChanged((partition,)))
            case "expand" if partitions:
                partition = partitions[subject % len(partitions)]
                known, replicas = self.znodes[partition], self.state.replicas(partition) or ()
                joining = [each for each in replicas if each in self.state.brokers and each not in known.isr]
                if known.leader in self.brokers and joining:
                    self.change_isr(partition, (*known.isr, joining[0]))
                    self.handle(IsrsChanged((partition,)))
            case "topic":
                name = sorted(TOPICS)[subject % len(TOPICS)]
                if name not in self.topics:
                    self.lives += 1
                    self.topics = {**self.topics, name: topic_of(f"{name}#{self.lives}", TOPICS[name])}
                    self.topics[name] = dataclasses.replace(self.topics[name])
                    self.handle(TopicsChanged(self.topics))
            case "vanish":
                name = sorted(TOPICS)[subject % len(TOPICS)]
                if name in self.topics:
                    # A gap that is known: what a leader wrote just before, and nobody has read, nobody can write again.
                    self.handle(IsrsChanged(tuple(sorted(each for each in self.unseen if each.topic == name))))
                    self.gone[name] = self.topics[name]
                    self.topics = {each: topic for each, topic in self.topics.items() if each != name}
                    self.znodes = {p: s for p, s in self.znodes.items() if p.topic != name}
                    self.handle(TopicsChanged(self.topics))
            case "return":
                name = sorted(TOPICS)[subject % len(TOPICS)]
                if name in self.gone and name not in self.topics:
                    self.topics = {**self.topics, name: self.gone.pop(name)}
                    self.handle(TopicsChanged(self.topics))
            case "delete":
                name = sorted(TOPICS)[subject % len(TOPICS)]
                if name not in self.topics:
                    self.gone.pop(name, None)  # it goes for good, with its files
                self.handle(DeletionsRequested((name,)))
            case "suspect":
                number = BrokerId(BROKERS[subject % len(BROKERS)])
                if number in self.state.brokers:
                    epoch = self.state.brokers[number].broker_epoch
                    self.handle(BrokerSuspected(number, epoch, "no response"))
            case "clear":
                for number, info in sorted(self.state.suspects.items())[: 1 + subject % 2]:
                    self.handle(BrokerCleared(number, info.broker_epoch))
            case "failover" | "failover unanswered":
                silent = [each for each in self.brokers if action != "failover" and subject >> (each - 1) & 1]
                orders = tuple(sorted(self.state.deletions))
                self.state = ControllerState(BrokerId(1), ControllerEpoch(self.state.epoch + 1))
                self.answers.clear()
                self.unseen.clear()
                assigned = {p: s for p, s in self.znodes.items() if p.partition in self.topics[p.topic].assignment}
                self.handle(
                    ClusterRead(
                        {id_: info for id_, info in self.brokers.items() if id_ not in silent},
                        self.topics,
                        assigned,
                        dict(self.modified),
                        deletions=orders,
                        removals=dict(self.removals),
                        leftovers=dict(self.leftovers),
                        vanished=dict(self.vanished),
                        suspects={id_: self.brokers[id_] for id_ in silent},
                    )
                )
            case "preferred":
                self.handle(PreferredElectionRequested(tuple(partitions), version=0))
            case "shutdown":
                number = BrokerId(BROKERS[subject % len(BROKERS)])
                if number in self.state.brokers:
                    self.handle(ControlledShutdownReceived(number, self.state.brokers[number].broker_epoch, 1))
            case "answers":
                answers, self.answers = self.answers, []
                for answer in answers:
                    self.handle(answer)
        self.check_history()

    def change_isr(self, partition: TopicPartition, isr: tuple[BrokerId, ...]) -> None:
        """A leader's conditional write."""
        known = self.znodes[partition]
        self.zxid += 1
        self.unseen.add(partition)
        # A gap that is known: such a write hides from a NEW controller that a member had restarted before it.
        self.restarted.pop(partition, None)
        self.znodes[partition] = self.with_isr(known, isr)
        self.modified[partition] = self.zxid

    def check_history(self) -> None:
        """Epochs only grow; within one leader epoch there is one leader."""
        for partition, now in self.znodes.items():
            before = self.history.get(partition)
            if before is not None:
                assert now.leader_epoch >= before.leader_epoch
                assert now.leader_epoch > before.leader_epoch or now.leader == before.leader
            last = self.last.get((self.topics[partition.topic].topic_id, partition))
            if before is None and last is not None:  # it had vanished
                assert now.leader_epoch > last.leader_epoch
                assert set(now.isr) <= set(last.isr), "a state that was written again let somebody in"
        self.history = dict(self.znodes)
        self.last |= {(self.topics[each.topic].topic_id, each): now for each, now in self.znodes.items()}
        for topic_id, partition in list(self.last):
            topic = self.topics.get(partition.topic)
            if topic is not None and topic.topic_id == topic_id and partition.partition not in topic.assignment:
                del self.last[topic_id, partition]  # removed by an order: one that is added later begins from nothing
        self.unseen &= self.znodes.keys()
        for partition in list(self.restarted):
            if partition not in self.znodes:
                del self.restarted[partition]
            else:
                isr, known = self.znodes[partition].isr, self.restarted[partition]
                self.restarted[partition] = {broker: epoch for broker, epoch in known.items() if broker in isr}

    def check_settled(self) -> None:
        """When all has been heard: a live member of the ISR leads wherever there is one, and everybody knows it."""
        for partition, replicas in self.state.assigned():
            if partition in self.unseen:
                continue
            now = self.znodes.get(partition)
            for broker, epoch in self.restarted.get(partition, {}).items():
                # It may have come back with less than it had: others lead, or all have, and the epoch is new (ADR 8).
                assert now is not None and (broker not in self.brokers or now.leader_epoch > epoch)
            live = [each for each in (now.isr if now is not None else replicas) if each in self.brokers]
            if now is None:
                assert not live, f"{partition} was not initialised"
                continue
            assert set(now.isr) <= set(replicas)
            assert (now.leader in live) if live else (now.leader == -1)
            assert now.leader == -1 or set(now.isr) <= self.brokers.keys()
            for broker in self.brokers:
                assert self.metadata[broker][partition] == (now.leader, now.leader_epoch)
                if broker in replicas and broker not in self.state.shutting_down:
                    assert self.roles[broker][partition] == now.leader_epoch
        for broker in self.brokers:
            assert {each.topic for each in self.metadata[broker]} <= self.topics.keys() - self.state.deletions.keys()


ACTIONS = (
    "toggle", "toggle", "bounce", "shrink", "shrink unseen", "expand", "topic", "topic", "delete", "failover",
    "preferred", "shutdown", "answers", "vanish", "return", "suspect", "clear", "failover unanswered",
)  # fmt: skip


@pytest.mark.checklist(2)
@pytest.mark.checklist(7)
@pytest.mark.checklist(18)
@pytest.mark.checklist("F5")
@pytest.mark.checklist("F17")
@settings(max_examples=150, deadline=None)
@example([("topic", 0), ("shrink", 0), ("vanish", 0), ("return", 0)])
@example([("topic", 1), ("vanish", 1), ("toggle", 1), ("return", 1)])
@example([("toggle", 0), ("topic", 1), ("vanish", 1), ("toggle", 1), ("return", 1), ("toggle", 0)])
@example([("topic", 1), ("bounce", 1), ("vanish", 1), ("failover", 0), ("bounce", 4), ("return", 1)])
@example([("topic", 0), ("toggle", 0), ("toggle", 0), ("failover unanswered", 7)])
@example([("topic", 0), ("bounce", 9), ("failover unanswered", 7)])
@example([("toggle", 0), ("toggle", 0), ("suspect", 0), ("topic", 1)])
@example([("toggle", 0), ("topic", 0), ("failover unanswered", 2), ("toggle", 0), ("toggle", 3)])
@example([("topic", 0), ("toggle", 1), ("suspect", 0), ("vanish", 0), ("topic", 0), ("topic", 1)])
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11)), max_size=40))
def test_random_lives(steps: list[tuple[str, int]]) -> None:
    model = Model()
    model.brokers = {BrokerId(each): broker_of(f"{each}@{each}") for each in BROKERS}
    model.step("failover", 0)
    for action, subject in steps:
        model.step(action, subject)
    model.handle(BrokersChanged(model.brokers))
    while model.state.suspects:
        model.step("clear", 1)
    model.check_history()
    model.check_settled()
    model.handle(IsrsChanged(tuple(sorted(model.znodes))))
    model.handle(Ticked())
    model.check_history()
    model.check_settled()
    assert {partition.topic for partition in model.unseen} <= model.state.deletions.keys()
