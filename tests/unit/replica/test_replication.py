"""Leader and followers as whole replica managers, over real RPC on loopback."""

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition

TP = TopicPartition("t", 0)


async def _three(make_cluster, **overrides):
    cluster = await make_cluster(3, **overrides)
    cluster.create_topic("t", {0: (1, 2, 3)})
    state = cluster.decide(TP, leader=1, isr=(1, 2, 3), epoch=0)
    await cluster.command_all(state)
    return cluster


@pytest.mark.checklist("C11")
@pytest.mark.checklist(46)
@pytest.mark.checklist(52)
@pytest.mark.checklist(53)
async def test_acks_all_completes_when_every_isr_member_has_it(make_cluster, until):
    cluster = await _three(make_cluster)
    leader = cluster.node(1)
    for number in range(20):
        answer = await leader.produce(TP, b"value-%d" % number)
        assert answer.error == ErrorCode.NONE
        assert answer.base_offset == number
    assert leader.partition(TP).high_watermark == 20
    for follower in (2, 3):
        assert cluster.node(follower).partition(TP).log.log_end_offset == 20
    await until(lambda: all(cluster.node(n).partition(TP).high_watermark == 20 for n in (2, 3)))
    segments = [(cluster.node(n).directory / "t-0" / ("0" * 20 + ".log")).read_bytes() for n in (1, 2, 3)]
    assert segments[0] == segments[1] == segments[2]
    assert segments[0].count(b"value-") == 20


@pytest.mark.checklist(54)
async def test_acks_one_does_not_wait(make_cluster):
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2)})
    state = cluster.decide(TP, leader=1, isr=(1, 2), epoch=0)  # broker 2 does not exist
    await cluster.command(1, state)
    node = cluster.node(1)
    answer = await node.produce(TP, b"x", acks=1)
    assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 0)
    assert node.partition(TP).high_watermark == 0
    fetched, body = await node.fetch(TP, 0)
    assert (fetched.error, body) == (ErrorCode.NONE, b"")


async def test_a_wrong_number_of_acks_is_refused(make_cluster):
    cluster = await make_cluster(1)
    assert (await cluster.node(1).produce(TP, b"x", acks=2)).error == ErrorCode.INVALID_REQUIRED_ACKS


async def test_unknown_partition(make_cluster):
    cluster = await make_cluster(1)
    assert (await cluster.node(1).produce(TP, b"x")).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await cluster.node(1).fetch(TP, 0))[0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_followers_get_a_batch_that_is_larger_than_the_largest_frame_of_their_listeners(make_cluster):
    """As in Kafka: what the leader has appended, a follower can fetch, whatever the settings of today."""
    cluster = await _three(make_cluster, **{"rpc.max.frame.bytes": 16_384, "replica.fetch.response.max.bytes": 4_096})
    for size in (1, 20_000, 1_000_000, 1):
        answer = await cluster.node(1).produce(TP, b"x" * size)
        assert answer.error == ErrorCode.NONE
    for follower in (2, 3):
        assert cluster.node(follower).partition(TP).log.log_end_offset == 4
