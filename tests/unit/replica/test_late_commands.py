"""Commands that arrive late, on a connection that the controller has given up since."""

from dataclasses import replace

import pytest

from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.control import (
    LeaderAndIsrRequest,
    StopPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

from .conftest import CLUSTER_ID

TP = TopicPartition("t", 0)
FORMER_ID = TopicId("ffffffffffffffffffffff")


async def connect(node):
    hello = HelloRequest(CLUSTER_ID, BrokerId(99), BrokerEpoch(1099))
    return await RpcConnection.open(node.env.network, node.endpoint, hello, supervisor=node.supervisor)


async def test_what_a_controller_said_over_a_former_connection_undoes_nothing(make_cluster):
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node = cluster.node(1)
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=3)

    def commands(*partitions, epoch=cluster.controller_epoch):
        head = (BrokerId(99), epoch, node.broker_epoch)
        stops = tuple(
            StopPartition(p.topic, p.partition, p.topic_id, p.leader_epoch, delete_files=True) for p in partitions
        )
        return (
            UpdateMetadataRequest(*head, is_full=True, brokers=cluster.brokers(), partitions=partitions),
            LeaderAndIsrRequest(*head, is_init=False, partitions=partitions, brokers=cluster.brokers()),
            StopReplicaRequest(*head, partitions=stops),
        )

    former, present = await connect(node), await connect(node)
    late = commands(replace(state, topic_id=FORMER_ID, leader_epoch=LeaderEpoch(9), is_new=True))
    for command in commands(state)[:2]:
        answer, _ = await present.call(command, timeout_s=60)
        assert answer.error == 0
    hosted = node.partition(TP)
    for command in (*late, *commands(state)):
        with pytest.raises(ApiError) as refusal:
            await former.call(command, timeout_s=60)
        assert refusal.value.code is ErrorCode.BROKER_NOT_AVAILABLE, "a controller repeats it over a new connection"
    assert node.metadata.partition(TP) == state
    assert node.partition(TP) is hosted
    assert hosted.leader is not None

    # The next controller's connection may be older than the last one of its predecessor.
    following = replace(state, leader_epoch=LeaderEpoch(4))
    for command in commands(following, epoch=ControllerEpoch(cluster.controller_epoch + 1))[:2]:
        answer, _ = await former.call(command, timeout_s=60)
        assert answer.error == 0
    answer, _ = await present.call(commands(state)[0], timeout_s=60)
    assert answer.error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert node.metadata.partition(TP) == following
    for connection in (former, present):
        await connection.close()
