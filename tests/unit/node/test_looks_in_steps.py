"""What is asked of a node about all its partitions takes several turns of the loop, and partitions may go meanwhile."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.extension.messages.watching import HealthRequest, StatusRequest
from kafkalite.http.page import Page
from kafkalite.http.status import StatusPages
from kafkalite.node.node import Node
from kafkalite.testing.cluster import Cluster, cluster
from tests.support.waiting import until

#: More than are looked at in two turns.
MANY = 450
ASKED: Any = SimpleNamespace(sees_cluster=True, query={})


async def finish(question: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
    """How often it gives way to others, and its answer. It waits for nothing else."""
    turns = 0
    while True:
        try:
            assert question.send(None) is None, "it waits for something"
        except StopIteration as end:
            return turns, end.value
        turns += 1


def page(node: Node, path: str) -> Callable[[], Coroutine[Any, Any, Page]]:
    handler = StatusPages(node).pages()[path]
    return lambda: cast("Coroutine[Any, Any, Page]", handler(ASKED))


async def many(running: Cluster, client: AsyncClient, *names: str) -> Node:
    await client.create_topics([NewTopic(name, MANY // len(names), 1) for name in names])
    node = running.nodes[1]
    await until(lambda: len([each for each in node.replicas.hosted.all() if each.leader is not None]) == MANY)
    return node


async def test_a_question_about_many_partitions_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape of a node with 20,000 partitions held its loop for 190 ms, and `admin health` for 54 ms: producers and consumers waited for it."""
    async with cluster(1) as running, AsyncClient.connect(running.bootstrap) as client:
        scrape, health = page(running.nodes[1], "/metrics"), page(running.nodes[1], "/healthz")
        await scrape()  # imports
        few = [(await finish(ask()))[0] for ask in (scrape, health)]
        node = await many(running, client, "t")
        turns = [(await finish(ask()))[0] for ask in (scrape, health)]
        # Two at each look: for health at the replicas, their logs and the controller's partitions, for a scrape also at three kinds of figures.
        assert [now - before >= 2 * looks for now, before, looks in zip(turns, few, (5, 2), strict=True)] == [True] * 2
        question = node.extension[HealthRequest](HealthRequest())
        assert (await finish(cast("Coroutine[Any, Any, Any]", question)))[0] >= 4
        # `top` and the console, with what the other nodes have just said.
        await node.overview.answer(StatusRequest())
        monkeypatch.setattr("kafkalite.http.overview._FRESH_S", math.inf)
        monkeypatch.setattr("kafkalite.http.overview._IDLE_MOVES_S", math.inf)
        turns_of_top, status = await finish(node.overview.answer(StatusRequest(limit=0)))
        assert status.partitions_total == MANY and turns_of_top >= 4
        # A node that was cut off from ZooKeeper and from all followers.
        monkeypatch.setattr(node.replicas.hosted, "usable", lambda: False)
        monkeypatch.setattr(node.replicas.hosted, "refusal", lambda partition, acks: "it may have been replaced")
        turns_of_readiness, ready = await finish(page(node, "/readyz")())
        assert ready.status == 503 and turns_of_readiness >= 2


async def test_topics_may_go_between_two_turns_of_a_question() -> None:
    async with cluster(1) as running, AsyncClient.connect(running.bootstrap) as client:
        node = running.nodes[1]
        scrape, health = page(node, "/metrics"), page(node, "/healthz")
        await scrape()
        await many(running, client, "goes", "stays")
        async with Producer(client) as producer:
            for topic in ("goes", "stays"):
                await producer.send(topic, None, b"x", partition=MANY // 2 - 1)
        questions = health(), scrape()
        # Within the partitions of the first topic: health at its problems, a scrape at its figures.
        assert [question.send(None) for question in questions] == [None, None]
        await client.delete_topics(["goes"])
        await until(lambda: not node.replicas.hosted.of_topic("goes"))
        (_, healthy), (_, answer) = [await finish(question) for question in questions]
        assert (answer.status, healthy.status) == (200, 200) and b"partition" not in healthy.body
        lines = answer.body.decode().splitlines()
        assert 'kafkalite_topic_messages_in_total{topic="stays"} 1.0' in lines
        (count,) = [each.split()[1] for each in lines if each.startswith("kafka_server_replicamanager_partitioncount ")]
        assert MANY // 2 <= float(count) < MANY, "those that went before their turn are not counted"


async def test_scrapes_at_the_same_time_share_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(1) as running:
        node = running.nodes[1]
        scrape = page(node, "/metrics")
        await scrape()
        describing, looks = node.replicas.describing, []
        figures = describing.figures

        def counted() -> Any:
            looks.append(1)
            return figures()

        monkeypatch.setattr(describing, "figures", counted)
        pages = await asyncio.gather(*(cast("Awaitable[Page]", scrape()) for _ in range(20)))
        assert len(looks) <= 2 and len({id(each.body) for each in pages}) <= 2
