"""What the controller reports: internal topics that were created when there were fewer brokers, commands that were refused."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.config import BrokerConfig
from kafkalite.controller.channels import Channels, _Channel
from kafkalite.controller.decisions.problems import find_problems
from kafkalite.controller.decisions.refusals import Refusal, Refusals
from kafkalite.controller.decisions.state import ControllerState, Removal, Topic
from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode
from kafkalite.model import (
    GROUP_TOPIC,
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.rpc.messages.control import PartitionState

WANTED = {GROUP_TOPIC: 3}


def _state(brokers: int, *replicas: tuple[int, ...]) -> ControllerState:
    where = Endpoint("h", 1)
    live = {
        BrokerId(number): BrokerInfo(BrokerId(number), BrokerEpoch(1), where, where) for number in range(1, brokers + 1)
    }
    assignment = {number: tuple(map(BrokerId, each)) for number, each in enumerate(replicas)}
    topics = {GROUP_TOPIC: Topic(TopicId("a"), assignment)} if replicas else {}
    return ControllerState(BrokerId(1), ControllerEpoch(1), brokers=live, topics=topics)


@pytest.mark.parametrize(
    ("state", "is_reported"),
    [
        (_state(3), False),  # not created yet
        (_state(1, (1,)), False),  # there are no more brokers
        (_state(3, (1,), (1, 2, 3)), True),
        (_state(2, (1,)), True),
        (_state(3, (1, 2, 3)), False),
        (_state(5, (1, 2, 3), (3, 4, 5)), False),
    ],
)
def test_an_internal_topic_with_few_replicas(state: ControllerState, *, is_reported: bool) -> None:
    found = [subject for what, subject, _ in at_once(find_problems(state, {}, WANTED)) if what == "topic.few_replicas"]
    assert found == ([GROUP_TOPIC] if is_reported else [])


T0 = TopicPartition("t", 0)


def test_removed_partitions_that_a_dead_broker_may_bring_back() -> None:
    """After `broker replace` it never returns; without a word from us, nobody knows why no partition can be added."""
    state = _state(2)
    waiting = {
        TopicPartition("t", 4): Removal(waiting=frozenset({BrokerId(1), BrokerId(9)})),
        TopicPartition("t", 5): Removal(waiting=frozenset({BrokerId(8)})),
        TopicPartition("u", 1): Removal(waiting=frozenset({BrokerId(1)})),
        TopicPartition("v", 1): Removal(drain=True),
    }
    found = at_once(find_problems(dataclasses.replace(state, removals=waiting), {}, {}))
    detail = "removed partitions of t wait for brokers [8, 9] to return; until then none can be added to it"
    assert found == [("partition.removal_waits", "t", detail)]


def _command(epoch: int) -> PartitionState:
    ids = tuple(map(BrokerId, (1, 2, 3)))
    return PartitionState(
        "t", 0, TopicId("a"), ControllerEpoch(1), BrokerId(3), LeaderEpoch(1), ids[2:], PartitionEpoch(epoch), ids
    )


def _stored(leader: int, isr: tuple[int, ...], epoch: int) -> dict[TopicPartition, LeaderAndIsr]:
    isr_ids = tuple(map(BrokerId, isr))
    return {
        T0: LeaderAndIsr(BrokerId(leader), LeaderEpoch(1), isr_ids, ControllerEpoch(1), PartitionEpoch(epoch)),
    }


@pytest.mark.parametrize(
    ("leader", "isr", "epoch", "is_over"),
    [
        (3, (3,), 1, False),
        (3, (1, 3), 1, False),  # as it was when the command was sent
        (3, (1, 3), 2, True),  # its disk is back, and the leader has added it
        (3, (2, 3), 2, False),
        (-1, (1,), 2, False),  # the last copy, which is away
        (1, (1, 3), 2, False),  # it is to lead: the command that says so has a response of its own
    ],
)
def test_a_refusal_is_over_when_another_leader_has_the_broker_in_its_isr(
    leader: int, isr: tuple[int, ...], epoch: int, *, is_over: bool
) -> None:
    """Health reported the refusal for ever: a disk that comes back brings its replicas back without a command."""
    refusals = Refusals(BrokerId(1))
    refusals.record(_command(1), ErrorCode.KAFKA_STORAGE_ERROR, 7)
    found = list(refusals.current(_stored(leader, isr, epoch)))
    assert found == ([] if is_over else [(T0, Refusal(ErrorCode.KAFKA_STORAGE_ERROR, 7, 1, 1))])


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_command_that_is_stale_and_still_the_latest_is_refused(*, is_overtaken: bool) -> None:
    """The broker knows a later leader epoch than the controller: the znode was put back (ADR 74)."""
    refusals = Refusals(BrokerId(1))
    command = _command(1)
    refusals.record(command, ErrorCode.STALE_CONTROLLER_EPOCH, 7)
    latest = LeaderEpoch(command.leader_epoch + is_overtaken)
    stored = {T0: LeaderAndIsr(BrokerId(2), latest, (BrokerId(2),), ControllerEpoch(1), PartitionEpoch(1))}
    assert bool(list(refusals.current(stored))) is not is_overtaken
    assert not list(refusals.current({}))


def test_a_refusal_goes_with_the_next_success_and_keeps_its_first_time() -> None:
    refusals = Refusals(BrokerId(1))
    for now_ms in (7, 9):
        refusals.record(_command(now_ms), ErrorCode.KAFKA_STORAGE_ERROR, now_ms)
    assert [(each.since_ms, each.partition_epoch) for _, each in refusals.current({})] == [(7, 9)]
    refusals.record(_command(10), ErrorCode.NONE, 10)
    assert not list(refusals.current({}))


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_how_long_a_command_is_unanswered_does_not_depend_on_the_wall_clock(step_ms: int) -> None:
    """After the clock was set back by an hour, a broker that did not answer was not reported for an hour."""
    wall_ms, monotonic = 9_000_000_000, 50.0
    clock = SimpleNamespace(wall_ms=lambda: wall_ms, monotonic=lambda: monotonic)
    config = BrokerConfig()
    unused: Any = None
    channels = Channels(
        config=config,
        env=SimpleNamespace(clock=clock),  # type: ignore[arg-type]
        supervisor=unused, stats=unused, hello=unused, may_send=unused, post=unused, on_stale=unused,
    )  # fmt: skip
    channel = channels._channels[BrokerId(2)] = _Channel(unused, Refusals(BrokerId(2)))
    assert not channels.problems({})
    channel.unanswered_since = monotonic
    wall_ms += step_ms
    assert not channels.problems({})
    monotonic += config.controller_socket_timeout_ms / 1000
    [problem] = channels.problems({})
    assert problem.what == "command.unanswered"
    assert problem.since_ms == wall_ms - config.controller_socket_timeout_ms
