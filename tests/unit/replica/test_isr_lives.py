"""A follower joins the ISR in the life in which it caught up, or not at all (KIP-903)."""

import dataclasses
import json

import pytest

from kafkalite.coordination.coordinator import SetData
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerEpoch, BrokerId, TopicPartition
from kafkalite.testing.simulated.zookeeper import Fate

from .conftest import QUICK

TP = TopicPartition("t", 0)


@pytest.mark.checklist("F15")
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
async def test_a_repeated_proposal_leaves_out_who_has_restarted_since(make_cluster, until, fate):
    """The write that lets it in has an unknown outcome; before it is repeated the follower is back as another life, which may
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
