"""Merged queues against a naive twin: a broker that gets every command singly ends up knowing the same."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.controller.decisions.effects import Command
from kafkalite.controller.decisions.queueing import enqueue
from kafkalite.model import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch, TopicId
from kafkalite.rpc.messages.control import (
    LeaderAndIsrRequest,
    PartitionState,
    StopPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

ME, EPOCH = BrokerId(1), ControllerEpoch(1)


class NaiveBroker:
    """What a broker knows after some commands: its replicas, and the metadata it tells clients."""

    def __init__(self) -> None:
        self.replicas: dict[tuple[str, int], tuple[str, int]] = {}
        self.created: set[tuple[str, int, str]] = set()
        self.metadata: dict[tuple[str, int], int] = {}
        #: The leader epochs of all commands until now.
        self.commanded: dict[tuple[str, int], int] = {}
        #: Topics of which it has heard that they were deleted, and `commanded` by then: where it coordinates groups, it forgets what
        #: they have committed for the topic.
        self.deleted: set[tuple[str, frozenset[tuple[tuple[str, int], int]]]] = set()

    def apply(self, command: Command) -> None:
        match command:
            case LeaderAndIsrRequest():
                if command.is_init:
                    named = {(each.topic, each.partition) for each in command.partitions}
                    self.replicas = {key: value for key, value in self.replicas.items() if key in named}
                    self.created = {each for each in self.created if each[:2] in named}
                    self.commanded = {key: epoch for key, epoch in self.commanded.items() if key in named}
                for each in command.partitions:
                    self.commanded[each.topic, each.partition] = each.leader_epoch
                    self.replicas[each.topic, each.partition] = (each.topic_id, each.leader_epoch)
                    if each.is_new:
                        self.created.add((each.topic, each.partition, each.topic_id))
            case StopReplicaRequest():
                for stop in command.partitions:
                    if self.replicas.get((stop.topic, stop.partition), ("", 0))[0] == stop.topic_id:
                        del self.replicas[stop.topic, stop.partition]
            case UpdateMetadataRequest():
                if command.is_full:
                    self.metadata = {}
                self.deleted.update((topic, frozenset(self.commanded.items())) for topic in command.deleted_topics)
                for topic in command.deleted_topics:
                    self.metadata = {key: value for key, value in self.metadata.items() if key[0] != topic}
                for each in command.partitions:
                    self.metadata[each.topic, each.partition] = each.leader_epoch


@st.composite
def commands(draw: st.DrawFn) -> list[Command]:
    """A sequence as a controller makes it: leader epochs grow, a deleted topic returns under another id."""
    result: list[Command] = []
    lives = {"a": 0, "b": 0}
    epochs: dict[tuple[str, int], int] = {}

    def entry(topic: str, partition: int, *, is_new: bool = False) -> PartitionState:
        epochs[topic, partition] = epochs.get((topic, partition), -1) + 1
        epoch = LeaderEpoch(epochs[topic, partition])
        life = TopicId(f"{topic}{lives[topic]}")
        return PartitionState(topic, partition, life, EPOCH, ME, epoch, (ME,), PartitionEpoch(0), (ME,), is_new=is_new)

    for _ in range(draw(st.integers(0, 12))):
        topic = draw(st.sampled_from(sorted(lives)))
        partitions = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
        match draw(st.sampled_from(["leader", "leader", "init", "stop", "metadata", "metadata", "full", "deleted"])):
            case "leader":
                new = draw(st.booleans())
                told = tuple(entry(topic, each, is_new=new) for each in partitions)
                result.append(
                    LeaderAndIsrRequest(ME, EPOCH, BrokerEpoch(1), is_init=False, partitions=told, brokers=())
                )
            case "init":
                told = tuple(entry(topic, each) for each in partitions)
                result.append(LeaderAndIsrRequest(ME, EPOCH, BrokerEpoch(1), is_init=True, partitions=told, brokers=()))
            case "stop":
                life = TopicId(f"{topic}{lives[topic]}")
                stops = tuple(
                    StopPartition(topic, each, life, LeaderEpoch(-2), delete_files=True) for each in partitions
                )
                result.append(StopReplicaRequest(ME, EPOCH, BrokerEpoch(1), stops))
                lives[topic] += 1
            case "deleted":
                result.append(
                    UpdateMetadataRequest(
                        ME, EPOCH, BrokerEpoch(1), is_full=False, brokers=(), partitions=(), deleted_topics=(topic,)
                    )
                )
            case kind:
                told = tuple(entry(topic, each) for each in partitions)
                result.append(UpdateMetadataRequest(ME, EPOCH, BrokerEpoch(1), kind == "full", (), told))
    return result


@pytest.mark.checklist(66)
@given(commands(), st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_broker_ends_up_knowing_the_same(offered: list[Command], sent_between: list[bool]) -> None:
    single, merged = NaiveBroker(), NaiveBroker()
    queue: list[Command] = []
    for command, send in zip(offered, sent_between, strict=False):
        single.apply(command)
        queue = enqueue(queue, command)
        if send:
            merged.apply(queue.pop(0))
    for command in queue:
        merged.apply(command)
    assert merged.replicas == single.replicas
    assert merged.metadata == single.metadata
    assert merged.deleted == single.deleted
    alive = {(topic, partition, life) for (topic, partition), (life, _) in single.replicas.items()}
    assert merged.created & alive >= single.created & alive  # what the broker has not heard of yet stays new


@given(commands())
def test_an_unsent_queue_stays_short(offered: list[Command]) -> None:
    queue: list[Command] = []
    for command in offered:
        queue = enqueue(queue, command)
    kinds = [type(each) for each in offered if not isinstance(each, UpdateMetadataRequest) or each.deleted_topics]
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    of_replicas = [each for each in queue if not isinstance(each, UpdateMetadataRequest)]
    assert len(of_replicas) <= changes + 1


def test_commands_to_different_lives_stay_apart() -> None:
    first = UpdateMetadataRequest(ME, EPOCH, BrokerEpoch(1), is_full=False, brokers=(), partitions=())
    second = dataclasses.replace(first, broker_epoch=BrokerEpoch(2))
    assert enqueue([first], second) == [first, second]


@pytest.mark.checklist(66)
def test_a_deletion_and_a_leadership_do_not_change_places() -> None:
    """A slow broker led `__consumer_offsets` before it heard of an earlier deletion, and forgot what groups had committed since for the
    next topic of that name."""
    offsets = PartitionState("o", 0, TopicId("o0"), EPOCH, ME, LeaderEpoch(0), (ME,), PartitionEpoch(0), (ME,))
    first = LeaderAndIsrRequest(ME, EPOCH, BrokerEpoch(1), is_init=False, partitions=(offsets,), brokers=())
    deletion = UpdateMetadataRequest(
        ME, EPOCH, BrokerEpoch(1), is_full=False, brokers=(), partitions=(), deleted_topics=("t",)
    )
    later = dataclasses.replace(first, partitions=(dataclasses.replace(offsets, leader_epoch=LeaderEpoch(1)),))
    assert enqueue([first, deletion], later) == [first, deletion, later]
    assert enqueue([deletion, first], deletion) == [deletion, first, deletion]
