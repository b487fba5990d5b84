"""A follower joins the ISR in the life in which it caught up, or not at all (KIP-903)."""

import dataclasses
import json

import pytest

from kafkalite.coordination.coordinator import SetData
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerEpoch, TopicPartition
from kafkalite.testing.sim_zookeeper import Fate

TP = TopicPartition("t", 0)


@pytest.mark.checklist("F15")
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
async def test_a_repeated_proposal_leaves_out_who_has_restarted_since(make_cluster, until, fate):
    """The write that lets it in has an unknown outcome; before it is repeated the follower is back as another life, which may
    have lost what the first one had."""
    cluster = await make_cluster(3)
    cluster.create_topic("t", {0: (1, 2, 3)})
    leader = cluster.node(1)
    states = []

    def decide_fate(host, request):
        writes = [op for op in getattr(request, "ops", ()) if isinstance(op, SetData)]
        if host != "node1" or not writes or states:
            return Fate.SERVE
        states.append(writes)
        third = next(broker for broker in cluster.brokers() if broker.broker_id == 3)
        leader.metadata.learn_brokers((dataclasses.replace(third, broker_epoch=BrokerEpoch(2003)),))
        return fate

    cluster.zookeeper.decide_fate = decide_fate
    written = []

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
