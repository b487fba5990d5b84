"""What happens to thousands of partitions at once, or with every request, does not flood the log."""

import structlog

from kafkalite.model import TopicPartition


async def test_many_leaderships_that_end_are_one_line(make_cluster):
    cluster = await make_cluster(1)
    keys = [TopicPartition("t", number) for number in range(50)]
    cluster.create_topic("t", dict.fromkeys(range(50), (1,)))
    await cluster.command(1, *(cluster.decide(key, leader=1, isr=(1,), epoch=0) for key in keys))
    node = cluster.node(1)
    with structlog.testing.capture_logs() as lines:
        for key in keys:
            node.manager.hosted.resign(node.partition(key), "the ZooKeeper session has expired")
    assert all(node.partition(key).leader is None for key in keys)
    assert [line["event"] for line in lines] == ["replica.resigned"]
    assert all(node.manager.hosted.history.of(str(key))[-1].what == "replica.resigned" for key in keys), "`why` has all"
