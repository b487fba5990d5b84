"""Requests that are watched: which, and where their time goes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.extension.messages.tracing import TraceRequest, TraceResponse
from kafkalite.kafka import tracing
from kafkalite.kafka.tracing import MAX_WATCHERS
from kafkalite.model import TopicPartition
from kafkalite.testing.cluster import cluster
from tests.support.waiting import until


async def test_the_slowest_requests_with_their_phases_and_all_of_them_by_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watch lasts until all requests were seen: how long that takes depends on the machine."""
    is_over = asyncio.Event()
    monkeypatch.setattr(tracing, "asyncio", SimpleNamespace(sleep=lambda _: is_over.wait()))
    async with cluster(3) as running:
        listeners = [node.kafka.listener for node in running.nodes.values()]
        async with (
            AsyncClient.connect(running.bootstrap, client_id="shop") as client,
            AsyncClient.connect(running.bootstrap) as watcher,
        ):
            await client.create_topics([NewTopic("t", 1, 3), NewTopic("other", 1, 1)])
            everything = TraceRequest(topic="t", partition=0, client_id="shop", limit=2)
            watching = asyncio.ensure_future(watcher.every_node(everything, timeout_s=60))
            await until(lambda: all(listener.tracer.watchers for listener in listeners))
            async with Producer(client) as producer:
                for topic in ("t", "t", "t", "other"):
                    await (await producer.send(topic, None, b"x" * 1000, partition=0))
            await client.fetch_raw(TopicPartition("t", 0), 0)
            while sum(watcher._number for each in listeners for watcher in each.tracer.watchers) < 4:
                await asyncio.sleep(0.01)
            is_over.set()
            answers = (await watching).values()
            assert all(isinstance(each, TraceResponse) for each in answers)
            groups = {group.api: group for each in answers for group in each.groups}
            assert groups["Produce"].count == 3
            assert groups["Fetch"].count == 1
            # Two replicas have to fetch before acks=all is answered.
            assert groups["Produce"].wait_us > 0
            assert groups["Produce"].p50_us <= groups["Produce"].p99_us <= groups["Produce"].max_us
            slowest = [traced for each in answers for traced in each.slowest]
            assert len(slowest) == 2
            assert {(traced.what, traced.partitions, traced.client_id) for traced in slowest} == {("t-0", 1, "shop")}
            produced = [traced for traced in slowest if traced.api == "Produce"]
            assert all(traced.size_bytes > 1000 and traced.principal == "User:ANONYMOUS" for traced in produced)
            assert not any(listener.tracer.watchers or listener.tracer._begun for listener in listeners)


async def test_few_may_watch_at_once() -> None:
    async with cluster(1) as running:
        tracer = running.nodes[1].kafka.listener.tracer
        watching = [asyncio.ensure_future(tracer.watch(TraceRequest())) for _ in range(MAX_WATCHERS)]
        while len(tracer.watchers) < MAX_WATCHERS:
            await asyncio.sleep(0)
        refused = await tracer.watch(TraceRequest())
        assert refused.error
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
        assert not tracer.watchers
