"""Which topics a client asks about, and how long it remembers them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.cluster_requests import TOPIC_IDLE_S
from kafkalite.client.consumer import Consumer
from kafkalite.client.producer import Producer
from kafkalite.errors import ErrorCode
from kafkalite.model import LATEST_TIMESTAMP, TopicPartition
from tests.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)


class Later:
    """Moves a client's clock forward."""

    def __init__(self, client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_s = 0.0
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(client, "now", lambda: loop.time() + self.by_s)


@contextlib.asynccontextmanager
async def cluster_of(*topics: str) -> AsyncIterator[tuple[FakeCluster, AsyncClient]]:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        for topic in topics:
            cluster.create(topic)
        yield cluster, client


async def test_a_topic_that_nobody_names_any_more_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of("t", "u") as (cluster, client), Producer(client) as producer:
        later = Later(client, monkeypatch)
        await (await producer.send("t", None, b"1"))
        await (await producer.send("u", None, b"1"))
        later.by_s = TOPIC_IDLE_S + 1
        await (await producer.send("u", None, b"2"))
        await client.refresh()
        assert sorted(client.view.topics) == ["u"]
        assert client.view.leader(T0) is None
        # It is asked for when it is named again.
        await (await producer.send("t", None, b"2"))
        assert sorted(client.view.topics) == ["t", "u"]
        assert cluster.log("t").values() == [b"1", b"2"]


async def test_a_topic_that_is_read_is_asked_for_as_long_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of("t", "u") as (_, client), Consumer(client, max_wait_ms=10) as consumer:
        later = Later(client, monkeypatch)
        await client.known_topic("u")
        consumer.assign({T0: 0})
        for _ in range(3):
            later.by_s += TOPIC_IDLE_S * 2 / 3
            await consumer.poll(timeout_s=0.2)
            await client.refresh()
        assert sorted(client.view.topics) == ["t"]
        # Also one whose reader has not asked for records for long.
        later.by_s += TOPIC_IDLE_S + 1
        await client.refresh()
        async with Producer(client) as producer:
            await (await producer.send("t", None, b"1"))
        assert [record.value for record in await consumer.poll(timeout_s=150)] == [b"1"]


async def test_records_wait_for_a_leader_longer_than_topics_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeCluster(2) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        later = Later(client, monkeypatch)
        async with Producer(client, delivery_timeout_ms=2**31 - 1, linger_ms=0) as producer:
            await client.known_topic("t")
            await cluster.nodes[cluster.log("t").leader].kill()
            future = await producer.send("t", None, b"1")
            for _ in range(3):
                later.by_s += TOPIC_IDLE_S + 1
                await client.refresh()
                await asyncio.sleep(0.05)
            cluster.move_leader("t", 0, 2)
            assert (await future).offset == 0


async def test_a_deleted_topic_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of("t", "u", "v") as (_, client):
        await client.metadata()
        await client.delete_topics(["u"])
        await client.metadata(["u", "none"])
        assert sorted(client.view.topics) == ["t", "v"]
        await client.delete_topics(["v"])
        await client.metadata()
        assert sorted(client.view.topics) == ["t"]
        with pytest.raises(Exception, match="there is no topic 'u'") as refusal:
            await client.list_offsets({TopicPartition("u", 0): LATEST_TIMESTAMP}, timeout_s=5)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]
