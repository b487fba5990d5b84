"""The last copy of a partition: what its node does with it, and what it says of it."""

import asyncio
import dataclasses
import errno
import os
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.log.log_manager import LogManager
from kafkalite.model import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from kafkalite.replica.decisions.strays import is_elsewhere
from kafkalite.replica.offline_replicas import OfflineReplicas, refusal
from kafkalite.rpc.messages.control import PartitionState
from kafkalite.telemetry.advice import advice
from tests.unit.replica.conftest import TOPIC_ID, NoHealing

T0 = TopicPartition("t", 0)


def state(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...]) -> PartitionState:
    return PartitionState(
        "t", 0, TOPIC_ID, ControllerEpoch(1), BrokerId(leader), LeaderEpoch(3), tuple(map(BrokerId, isr)),
        PartitionEpoch(1), tuple(map(BrokerId, replicas)),
    )  # fmt: skip


# --- whether a lost replica may begin again, empty ---------------------------------------------------------


@pytest.mark.checklist("F28")
@pytest.mark.parametrize(
    ("known", "own_epoch", "may"),
    [
        (state(2, (2,), (1, 2)), 2, True),  # a later epoch, in which it is not in sync
        (state(2, (2,), (1, 2)), 3, False),  # in the epoch that it knows its leader may have let it in since
        (state(2, (2,), (1, 2)), 4, False),
        (state(2, (2, 1), (1, 2)), 2, False),
        (state(1, (1, 2), (1, 2)), 2, False),
        (state(1, (1,), (1, 2)), 2, False),  # the only one
        (dataclasses.replace(state(2, (2,), (1, 2)), elr=(BrokerId(1),)), 2, False),
        (state(NO_LEADER, (2,), (1, 2)), 2, False),  # from whom would it copy?
    ],
)
def test_a_lost_replica_begins_again_only_outside_of_the_isr(
    known: PartitionState, own_epoch: int, *, may: bool
) -> None:
    assert (refusal(known, BrokerId(1), own_epoch=LeaderEpoch(own_epoch)) == "") is may


# --- whether what was set aside may go ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "is_sound", "expected"),
    [
        (state(2, (2, 1), (1, 2, 3)), True, True),
        (state(1, (1, 2), (1, 2)), True, True),
        (state(2, (2, 1), (1, 2, 3)), False, False),  # the replica here is offline
        (state(2, (2, 3), (1, 2, 3)), True, False),  # ... has yet to catch up
        (state(1, (1,), (1, 2, 3)), True, False),  # ... is alone
        (state(1, (1,), (1,)), True, False),  # nobody else ever has it
        (state(1, (1, 4), (1, 4)), True, False),  # the other one is dead
        (state(NO_LEADER, (1, 2), (1, 2)), True, False),
        (state(2, (2,), (2,)), False, True),  # it was moved to another broker
        (state(2, (2, 3), (2, 3)), False, True),
        (state(2, (2,), (2, 3)), False, False),
        (None, False, False),  # the topic is not there: an emptied ZooKeeper says so of all
        (None, True, False),
    ],
)
def test_what_was_set_aside_goes_only_if_it_is_known_to_be_elsewhere(known, is_sound, expected):
    live = {BrokerId(1), BrokerId(2), BrokerId(3)}
    assert is_elsewhere(BrokerId(1), known, live, is_sound_here=is_sound) is expected


# --- errors that are nobody's ------------------------------------------------------------------------------


def refusing(log, name, number):
    """The log's method of this name raises a StorageError with this error number, until it is put back."""
    original = getattr(type(log), name)

    def method(self, *arguments, **others):
        if self is not log:
            return original(self, *arguments, **others)
        cause = OSError(number, os.strerror(number))
        raise log.storage_error(name, cause) from cause

    return original, method


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_node_without_descriptors_refuses_the_operation_and_keeps_its_replicas(
    make_cluster, monkeypatch, number
):
    """It left the ISR and the lead, and its log was set aside."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    await cluster.command(1, cluster.decide(T0, leader=1, isr=(1,), epoch=0))
    node = cluster.node(1)
    log = node.partition(T0).log
    assert (await node.produce(T0, b"a")).error == ErrorCode.NONE
    for name in ("append_as_leader", "read"):
        with monkeypatch.context() as patched:
            patched.setattr(type(log), name, refusing(log, name, number)[1])
            answer = await node.produce(T0, b"b") if name != "read" else (await node.fetch(T0, 0))[0]
            assert answer.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.storage_errors == [] and node.partition(T0).storage_error is None
    assert (await node.produce(T0, b"c")).error == ErrorCode.NONE
    found, _ = await node.fetch(T0, 0)
    assert (
        found.error == ErrorCode.NONE
        and found.high_watermark == 2
        and at_once(node.manager.describing.problems()) == ()
    )


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_follower_goes_on_when_there_are_descriptors_again(make_cluster, monkeypatch, until, number):
    """Found by simulation: its log stayed in service, but it waited for a command that nobody sends."""
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    decided = cluster.decide(T0, leader=1, isr=(1, 2), epoch=0)
    follower, leader = cluster.node(2), cluster.node(1)
    await cluster.command(2, decided)
    await cluster.command(1, decided)
    assert (await leader.produce(T0, b"a", acks=-1)).error == ErrorCode.NONE
    log, refused = follower.partition(T0).log, []
    method = refusing(log, "append_as_follower", number)[1]

    def counted(self, *arguments, **others):
        if self is log:
            refused.append(self)
        return method(self, *arguments, **others)

    with monkeypatch.context() as patched:
        patched.setattr(type(log), "append_as_follower", counted)
        assert (await leader.produce(T0, b"b", acks=1)).error == ErrorCode.NONE
        await until(lambda: refused)
    await until(lambda: log.log_end_offset == 2)
    assert follower.storage_errors == [] and follower.partition(T0).storage_error is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_leader_without_descriptors_does_not_answer_its_followers_again_and_again(
    make_cluster, monkeypatch, until, number
):
    """It answered each fetch at once and with nothing, so the follower fetched as fast as it could."""
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    decided = cluster.decide(T0, leader=1, isr=(1, 2), epoch=0)
    follower, leader = cluster.node(2), cluster.node(1)
    await cluster.command(2, decided)
    await cluster.command(1, decided)
    assert (await leader.produce(T0, b"a", acks=-1)).error == ErrorCode.NONE
    log, refused = leader.partition(T0).log, []
    method = refusing(log, "read", number)[1]

    def counted(self, *arguments, **others):
        if self is log:
            refused.append(asyncio.get_running_loop().time())
        return method(self, *arguments, **others)

    with monkeypatch.context() as patched:
        patched.setattr(type(log), "read", counted)
        assert (await leader.produce(T0, b"b", acks=1)).error == ErrorCode.NONE
        await until(lambda: len(refused) >= 4)
    assert all(later - earlier >= 0.09 for earlier, later in pairwise(refused))
    await until(lambda: follower.partition(T0).log.log_end_offset == 2)
    assert leader.storage_errors == [] and leader.partition(T0).storage_error is None


# --- the last copy -----------------------------------------------------------------------------------------


async def test_the_last_copy_waits_for_its_files_and_says_where_they_are(make_cluster, until):
    """Its directory was set aside and removed, while health said that its records were there."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node = cluster.node(1)
    node.topic_overrides["segment_bytes"] = 200
    await cluster.command(1, cluster.decide(T0, leader=1, isr=(1,), epoch=0))
    for number in range(6):
        assert (await node.produce(T0, b"value %d" % number)).error == ErrorCode.NONE
    log = node.partition(T0).log
    victim = log.segments[1].log_path
    os.rename(victim, f"{victim}.away")
    next(iter(node.logs.pool.dirs.values())).handles.close()
    assert (await node.fetch(T0, log.segments[1].base_offset))[0].error == ErrorCode.KAFKA_STORAGE_ERROR
    await until(lambda: next(iter(node.logs.pool.dirs.values())).is_examined and node.logs.pool.failed(T0) is not None)
    answer = await cluster.command(1, cluster.decide(T0, leader=NO_LEADER, isr=(1,), epoch=1))
    assert [each.error for each in answer.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    for _ in range(3):
        await node.manager.commands.retry_offline()
    [problem] = at_once(node.manager.describing.problems())
    assert problem.what == "replica.last_copy" and f"kept in {log.path}" in problem.detail and victim in problem.detail
    assert node.disk.exists(log.path)
    os.rename(f"{victim}.away", victim)
    await node.logs.opening.bring_online(str(node.directory), "AAAAAAAAAAAAAAAAAAAAAA", 1, {})
    await node.manager.commands.retry_offline()
    await cluster.command(1, cluster.decide(T0, leader=1, isr=(1,), epoch=2))
    assert node.partition(T0).log.log_end_offset == 6 and node.partition(T0).high_watermark == 6
    assert node.manager.offline_replicas.restarts == 0, "no replica was created again"


@pytest.mark.parametrize(
    ("isr", "elr", "is_last", "may_restore"),
    [((1,), (), True, True), ((), (1,), True, True), ((1,), (2,), False, False), ((1, 2), (), False, False),
     ((), (1, 2), False, False), ((2,), (), False, True), ((2,), (3,), False, True)],
)  # fmt: skip
def test_who_is_eligible_has_a_copy_too(isr, elr, is_last, may_restore):
    offline_replicas = OfflineReplicas(cast(LogManager, None), lambda: (BrokerId(1), BrokerEpoch(1)), cast(Any, None))
    partition: Any = SimpleNamespace(topic_partition=T0, leader=None, storage_error=StorageError("x", directory="/d"))
    known = dataclasses.replace(state(NO_LEADER, isr, (1, 2, 3)), elr=tuple(map(BrokerId, elr)))
    offline_replicas.on_command(partition, known)
    assert offline_replicas.is_last_copy(partition) is is_last
    assert (offline_replicas.restore_refusal(partition) == "") is may_restore


@pytest.mark.parametrize(("isr", "elr", "says"), [((1,), (), True), ((2,), (1,), True), ((2,), (), False)])
async def test_without_a_leader_a_sound_replica_that_may_lead_says_so(make_cluster, monkeypatch, isr, elr, says):
    cluster = await make_cluster(1)
    said = []
    monkeypatch.setattr(NoHealing, "report", lambda _, partition, *, online: said.append((partition, online)))
    cluster.create_topic("t", {0: (1, 2)})
    nobody = cluster.decide(T0, leader=NO_LEADER, isr=isr, epoch=1, replicas=(1, 2))
    await cluster.command(1, dataclasses.replace(nobody, elr=tuple(map(BrokerId, elr))))
    assert said == [(T0, True)] * says


@pytest.mark.parametrize("what", ["replica.last_copy", "replica.last_copy_damaged"])
def test_nobody_is_told_to_remove_the_last_copy(what):
    text = advice(what).do
    assert "do not remove" in text and "elect" not in text


def test_who_moves_a_damaged_replica_away_is_told_to_look_at_the_isr_first():
    text = advice("replica.damaged").do
    assert text.index("shows another replica in the ISR") < text.index("move this partition's directory away")
