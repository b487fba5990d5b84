"""How long the clients' calls take when no node answers, and where coordinators are that have moved."""

from __future__ import annotations

import asyncio
import random
import socket
from typing import Any

import pytest

from kafkalite.client import messages
from kafkalite.client.admin.configs import ConfigResource, describe_configs
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.effects import Pause, Refresh, ToAny
from kafkalite.client.results import LiveBroker, Metadata
from kafkalite.client.routing import Router
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import BrokerId, Endpoint
from kafkalite.protocol import wire
from kafkalite.rpc.answers import RpcError, RpcTimeout


async def test_a_topic_is_not_looked_for_longer_than_was_said() -> None:
    """The question under way is every caller's, and has a longer deadline."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and says nothing
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
        async with AsyncClient.connect(bootstrap, request_timeout_s=3600) as client, asyncio.timeout(150):
            with pytest.raises(RpcError):
                await client.known_topic("t", timeout_s=0.2)


async def test_settings_are_described_within_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the requests had the whole time: `config get` took several times `--timeout`."""
    now_s, limits = 100.0, []

    def answered(answer: Any) -> Any:
        async def ask(*_: object, timeout_s: float) -> Any:
            nonlocal now_s
            limits.append(timeout_s)
            now_s += 2.0
            return answer

        return ask

    client = AsyncClient.connect("127.0.0.1:1")
    client.view.update(Metadata("c", BrokerId(1), (LiveBroker(BrokerId(1), "h", 9092),), ()))
    result = wire.DescribeConfigsResponse.DescribeConfigsResult(0, "", 4, "1", [])
    monkeypatch.setattr(client, "now", lambda: now_s)
    monkeypatch.setattr(client, "metadata", answered(None))
    monkeypatch.setattr(client, "call_node", answered(wire.DescribeConfigsResponse(results=[result])))
    found = await describe_configs(client, ConfigResource.broker(BrokerId(1)), timeout_s=5.0)
    assert (found.in_force, limits) == ({}, [5.0, 3.0])


@pytest.mark.parametrize("last", [RpcTimeout("no answer"), None])
def test_what_the_cluster_said_of_a_topic_is_the_error_when_the_time_is_over(last: RpcTimeout | None) -> None:
    """The last question was cut off by the deadline, and its timeout hid that there is no such topic."""
    view, now_s = ClusterView(), 0.0
    router = Router(view, list, lambda: now_s, random.Random(1), request_timeout_s=1.0)
    flow = router.known_topic("t", 1.0)
    assert isinstance(next(flow), Refresh)
    assert isinstance(flow.send(None), Pause)
    assert isinstance(flow.send(None), Refresh)
    now_s = 1.0
    with pytest.raises(ApiError, match="there is no topic 't'") as refused:
        flow.send(last)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_metadata_without_brokers_says_nothing_of_topics() -> None:
    """It comes from a node that has just started. Verbs said "there is no topic" after it, and ended with 2."""
    view, now_s = ClusterView(), 0.0
    router = Router(view, list, lambda: now_s, random.Random(1), request_timeout_s=1.0)
    topic: Any = wire.MetadataResponse.MetadataResponseTopic
    early = wire.MetadataResponse(topics=[topic(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "t")])
    flow = router.metadata(["t"], 1.0)
    assert isinstance(next(flow), ToAny)
    assert isinstance(flow.send(early), Pause)
    assert isinstance(flow.send(None), ToAny)
    broker: Any = wire.MetadataResponse.MetadataResponseBroker(1, "h", 9092)
    with pytest.raises(StopIteration) as done:
        flow.send(wire.MetadataResponse(brokers=[broker], topics=[topic(0, "t")]))
    assert [each.topic for each in done.value.value.topics] == ["t"]
    flow = router.metadata(["t"], 1.0)
    next(flow)
    now_s = 1.0
    with pytest.raises(ApiError, match="knows no broker yet") as refused:
        flow.send(early)
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_a_coordinator_is_asked_where_the_cluster_says_that_it_is_now() -> None:
    """The view may be older than the answer that names the coordinator: a node may have come back at another address."""
    view = ClusterView()
    moved = LiveBroker(BrokerId(1), "new", 9092)
    view.update(Metadata("c", BrokerId(1), (LiveBroker(BrokerId(1), "old", 9092, "r1"),), ()))
    router = Router(view, list, lambda: 0.0, random.Random(1), request_timeout_s=1.0)
    flow = router.coordinator(messages.GROUP, "g", 1.0)
    next(flow)
    found: Any = wire.FindCoordinatorResponse.Coordinator("g", moved.broker_id, moved.host, moved.port)
    with pytest.raises(StopIteration):
        flow.send(wire.FindCoordinatorResponse(coordinators=[found]))
    assert view.endpoint(BrokerId(1)) == Endpoint("new", 9092)


async def test_two_brokers_at_one_address_are_one_node_to_ask() -> None:
    """A node that came back under another id, while ZooKeeper still has its session before: that ended calls with KeyError."""
    silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    one, other = (f"127.0.0.1:{each.getsockname()[1]}" for each in silent)
    async with AsyncClient.connect([one, one, other], request_timeout_s=3600) as client, asyncio.timeout(150):
        asked = [str(endpoint) for endpoint in client.connections.in_turn()]
        assert sorted(asked) == sorted([one, other])
        twice = tuple(LiveBroker(BrokerId(n), "127.0.0.1", silent[0].getsockname()[1]) for n in (1, 4))
        client.view.update(Metadata("c", BrokerId(1), twice, ()))
        assert len(client.connections.in_turn()) == 2
        with pytest.raises(RpcError):
            await client.metadata((), timeout_s=1)
    for each in silent:
        each.close()
