"""A follower joins the ISR in the life in which it caught up, or not at all (KIP-903)."""

import dataclasses
import json

import pytest

from kafkalite.coordination.coordinator import SetData
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.model import BrokerEpoch, BrokerId, TopicPartition
from kafkalite.rpc.messages.control import UpdateMetadataRequest
from kafkalite.testing.simulated.zookeeper import Fate

from .conftest import QUICK, TOPIC_ID

TP = TopicPartition("t", 0)


@pytest.mark.checklist("F15")
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
async def test_a_repeated_proposal_leaves_out_who_has_restarted_since(make_cluster, until, fate):
    """The write that lets it in has an unknown outcome; before it is repeated the follower has restarted, and may
    have lost what the first one had."""
    cluster = await make_cluster(3, **QUICK)
    cluster.create_topic("t", {0: (1, 2, 3)})
    leader = cluster.node(1)
    states: list[list[SetData]] = []

    def decide_fate(host, request):
        writes = [op for op in getattr(request, "ops", ()) if isinstance(op, SetData)]
        if host != "node1" or not writes or states:
            return Fate.SERVE
        states.append(writes)
        third = next(broker for broker in cluster.brokers() if broker.broker_id == 3)
        leader.metadata.learn_brokers((dataclasses.replace(third, broker_epoch=BrokerEpoch(2003)),))
        return fate

    cluster.zookeeper.decide_fate = decide_fate
    written: list[list[int]] = []

    def on_commit(zxid, host, ops):
        written.extend(json.loads(op.data)["isr"] for op in ops if host == "node1" and isinstance(op, SetData))

    cluster.zookeeper.on_commit = on_commit
    state = cluster.decide(TP, leader=1, isr=(1, 2), epoch=0, replicas=(1, 2, 3))
    for number in (1, 2, 3):
        await cluster.command(number, state)
    assert (await leader.produce(TP, b"x")).error == ErrorCode.NONE
    # Where the first try was applied, the leader finds that out, and takes it out again.
    expected = [[1, 2]] if fate is Fate.LOSE_REQUEST else [[1, 2, 3], [1, 2]]
    await until(lambda: len(written) >= len(expected) and leader.partition(TP).leader.proposed_isr is None)
    assert written == expected
    assert leader.partition(TP).leader.committed_isr == (1, 2)


@pytest.mark.checklist("F15")
async def test_who_is_eligible_stays_so_when_the_one_that_was_to_join_has_restarted(make_cluster, until):
    """With 2 the ISR would have been large enough, and nobody eligible. It restarts before the write: the ISR stays too small,
    and 3 has all that is committed."""
    cluster = await make_cluster(3, **QUICK, **{"min.insync.replicas": 2})
    cluster.create_topic("t", {0: (1, 2, 3)})
    leader = cluster.node(1)
    written: list[tuple[list[int], list[int]]] = []

    def decide_fate(host, request):
        if host != "node1" or not any(isinstance(op, SetData) for op in getattr(request, "ops", ())):
            return Fate.SERVE
        second = next(broker for broker in cluster.brokers() if broker.broker_id == 2)
        if leader.metadata.broker_epochs[BrokerId(2)] == BrokerEpoch(2002):
            return Fate.SERVE
        leader.metadata.learn_brokers((dataclasses.replace(second, broker_epoch=BrokerEpoch(2002)),))
        return Fate.LOSE_REQUEST

    def on_commit(zxid, host, ops):
        states = [json.loads(op.data) for op in ops if host == "node1" and isinstance(op, SetData)]
        written.extend((state["isr"], state.get("elr", [])) for state in states)

    cluster.zookeeper.decide_fate = decide_fate
    cluster.zookeeper.on_commit = on_commit
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=0, replicas=(1, 2, 3))
    for number in (1, 2):
        await cluster.command(number, dataclasses.replace(state, elr=(BrokerId(3),)))
    await until(lambda: written and leader.partition(TP).leader.proposed_isr is None)
    assert written == [([1], [3])]
    assert leader.partition(TP).leader.elr == (3,)


def begin_in_doubt(node):
    """Its host has lost its power."""
    node.logs.placing.create(TP, TOPIC_ID, node.topic_config("t"))
    node.logs.pool.doubt(TP, is_doubtful=True)


def announce(cluster, number, state):
    """The controller has read this state, and announces it."""
    request = UpdateMetadataRequest(
        BrokerId(99),
        cluster.controller_epoch,
        cluster.node(number).broker_epoch,
        is_full=False,
        brokers=cluster.brokers(),
        partitions=(state,),
    )
    assert cluster.node(number).manager.commands.update_metadata(request).error == ErrorCode.NONE


@pytest.mark.checklist("F14", "F15", "F28")
@pytest.mark.parametrize("has_log", [True, False], ids=["lost power", "wiped"])
async def test_who_is_taken_in_for_its_earlier_life_does_not_lead(make_cluster, has_log):
    """Found by a search through the decisions: the leader did not know yet that 2 had restarted with less, or its write was late. 2 took
    its place in the ISR for the end of its doubt, and with an empty disk it had none. The leader died before 2 had copied what it lacked,
    and 2 led without it."""
    cluster = await make_cluster(2, **QUICK)
    cluster.create_topic("t", {0: (1, 2)})
    node = cluster.node(2)
    if has_log:
        begin_in_doubt(node)
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=1, replicas=(1, 2))
    await cluster.command(2, state, is_init=True)  # 1 does not answer it
    announce(cluster, 2, dataclasses.replace(state, isr=(BrokerId(1), BrokerId(2))))
    refused = await cluster.command(
        2, dataclasses.replace(cluster.decide(TP, leader=2, isr=(1, 2), epoch=2), accepts_loss=0)
    )
    assert [each.error for each in refused.partitions] == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert node.partition(TP).leader is None


@pytest.mark.checklist("F15", "F28")
async def test_a_replaced_disk_that_takes_its_replica_later_puts_it_in_doubt(make_cluster, monkeypatch, until):
    """Its directory could not take it at first. Its leader may still know it by what it had before."""
    cluster = await make_cluster(2, **QUICK)
    cluster.create_topic("t", {0: (1, 2)})
    node = cluster.node(2)
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=1, replicas=(1, 2))

    def refuse(*_, **__):
        raise StorageError("no log directory is online", directory=node.logs.pool.online()[0].path)

    with monkeypatch.context() as patch:
        patch.setattr(node.logs.placing, "create", refuse)
        refused = await cluster.command(2, state, is_init=True)
    assert [each.error for each in refused.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    await until(lambda: not node.logs.failures.restart_refusal(TP))
    await cluster.command(2, state)
    assert node.partition(TP).storage_error is None
    assert node.partition(TP).is_doubtful


@pytest.mark.checklist("F28")
async def test_a_replica_that_a_move_adds_may_lead_as_soon_as_it_has_joined(make_cluster, until):
    """The topic is empty: no answer of the leader comes before the election."""
    cluster = await make_cluster(2, **QUICK)
    cluster.create_topic("t", {0: (1,)})
    for number in (1, 2):
        await cluster.command(number, is_init=True)
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=0, replicas=(1,)))
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=1, replicas=(1, 2))
    await cluster.command(1, state)
    await cluster.command(2, state)
    await until(lambda: cluster.node(1).partition(TP).leader.committed_isr == (1, 2))
    elected = cluster.decide(TP, leader=2, isr=(1, 2), epoch=2, replicas=(1, 2))
    answer = await cluster.command(2, dataclasses.replace(elected, accepts_loss=0))
    assert answer.partitions == ()
    assert cluster.node(2).partition(TP).leader is not None


@pytest.mark.checklist("F14")
async def test_a_doubt_ends_with_what_the_leader_had_when_it_began_to_lead(make_cluster, until):
    """Nothing is written in its epoch: no record of it shows that the follower has caught up."""
    cluster = await make_cluster(2, **QUICK)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=0, replicas=(1, 2)))
    assert (await cluster.node(1).produce(TP, b"x", acks=1)).error == ErrorCode.NONE
    begin_in_doubt(cluster.node(2))
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=1, replicas=(1, 2))
    await cluster.command(1, state)
    await cluster.command(2, state)
    follower = cluster.node(2).partition(TP)
    await until(lambda: follower.log.log_end_offset == 1 and not follower.is_doubtful)
    assert follower.log.latest_epoch < follower.leader_epoch
