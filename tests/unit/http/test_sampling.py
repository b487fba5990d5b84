"""What a node measures every few seconds: what clients may make of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.env.turns import at_once
from kafkalite.extension.messages.rates import DescribeTrafficRequest
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.http.sampling import MAX_GROUP_ID, Sampler
from kafkalite.model import TopicPartition
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.testing.cluster import cluster
from tests.support.waiting import until


async def test_the_lag_of_groups_with_endless_names_is_counted_as_omitted() -> None:
    """2,000 lines of the metrics with a name of 32 kB each made a page of 64 MB."""
    offsets = [(TopicPartition("t", number), 1) for number in range(5)]

    def committed_by_group() -> Iterator[tuple[str, int, list[tuple[TopicPartition, int]]]]:
        yield "g" * (MAX_GROUP_ID + 1), 1, offsets
        yield "g" * MAX_GROUP_ID, 2, offsets

    partition = SimpleNamespace(leader=object(), high_watermark=3)
    node: Any = SimpleNamespace(
        kafka=SimpleNamespace(coordinated_groups=lambda: SimpleNamespace(committed_by_group=committed_by_group)),
        replicas=SimpleNamespace(hosted=dict.fromkeys(dict(offsets), partition)),
    )
    sampler = Sampler(node)
    await sampler._sample_lag()
    assert sampler.lag == {"g" * MAX_GROUP_ID: dict.fromkeys(dict(offsets), 2)}
    assert sampler.omitted == 5


def partitions() -> HostedPartitions:
    now: Any = SimpleNamespace(monotonic=lambda: 0.0, wall_ms=lambda: 0)
    stub: Any = SimpleNamespace(usable=lambda: True)
    return HostedPartitions(clock=now, supervisor=stub, session=stub, trust_ms=0, silence_ms=0, events=stub)


def counted(number: int, count: int) -> Any:
    """A partition of topic t that has counted."""
    return SimpleNamespace(
        topic_partition=TopicPartition("t", number), leader=object(), fetch_waiters={},
        appended_bytes=count, fetched_bytes=count, appended_records=count, fetched_records=count,
    )  # fmt: skip


def test_a_topics_counters_never_go_back_while_a_partition_of_it_is_here() -> None:
    """Prometheus takes a counter that goes back for a restart, and the console takes what it shows then as written just now: each change of a leader
    was a peak of everything that the node had ever written to the topic."""
    hosted = partitions()
    one, other = counted(0, 100), counted(1, 20)
    hosted.add(one)
    hosted.add(other)
    assert at_once(hosted.traffic()) == {"t": (120, 120, 120, 120)}
    one.leader = None  # another node leads it now
    assert at_once(hosted.traffic()) == {"t": (120, 120, 120, 120)}
    hosted.remove(one)  # and it has moved away
    assert at_once(hosted.traffic()) == {"t": (120, 120, 120, 120)}
    other.leader = None
    hosted.remove(other)
    assert at_once(hosted.traffic()) == {}
    followed = counted(2, 0)
    followed.leader = None
    hosted.add(followed)
    assert at_once(hosted.traffic()) == {}, (
        "nothing to count: not a line of the metrics for each topic that is only followed"
    )


def test_a_partition_that_leaves_between_two_steps_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalite.replica.hosted._STEP", 1)
    hosted = partitions()
    one, other = counted(0, 100), counted(1, 20)
    for each in (one, other):
        hosted.add(each)
    for leaving in (one, other):
        steps = hosted.traffic()
        next(steps)  # `one` is counted
        leaving.leader = None
        hosted.remove(leaving)
        assert at_once(steps) == {"t": (120, 120, 120, 120)}
        assert at_once(hosted.traffic()) == ({"t": (120, 120, 120, 120)} if leaving is one else {})


async def test_the_traffic_of_everything_survives_the_deletion_of_a_topic() -> None:
    async with cluster(1) as running:
        node = running.nodes[1]
        async with AsyncClient.connect(running.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)])
            async with Producer(client) as producer:
                await producer.send("t", None, bytes(100_000))
                await producer.send("u", None, b"x")
            await node.sampler.sample()
            await client.delete_topics(["t"])
            await until(lambda: not node.replicas.hosted.of_topic("t"))
        await node.sampler.sample()
        answer = await node.sampler.describe_traffic(DescribeTrafficRequest(("",), 1))
        assert answer.traffic[0].bytes_in == (0,), "what was written before is not written again"
