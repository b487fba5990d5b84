"""How many connections each listener of a node takes: `max.connections`, for the node and for one listener (KIP-402)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kafkalite.client.async_client import AsyncClient
from kafkalite.model import Endpoint
from kafkalite.node.node import Node
from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from tests.support.configs import alter_broker
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.waiting import until

_SETTINGS: dict[str, Any] = {
    "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "controlled.shutdown.enable": False,
}


def _endpoint(node: Node, listener: str) -> Endpoint:
    broker = node.metadata.broker(node.local.broker_id)
    endpoint = None if broker is None else broker.kafka_on(listener)
    assert endpoint is not None
    return endpoint


async def _client(node: Node, listener: str) -> FrameClient:
    endpoint = _endpoint(node, listener)
    return await FrameClient.to(endpoint)


async def _is_served(client: FrameClient) -> bool:
    try:
        await client.ask(wire.ListGroupsRequest(), 0)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return True


async def _comes_in(node: Node, listener: str) -> bool:
    client = await _client(node, listener)
    is_served = await _is_served(client)
    client.close()
    return is_served


async def test_a_listener_has_a_limit_of_its_own(tmp_path: Path) -> None:
    settings = {**_SETTINGS, "listener.name.external.max.connections": 2}
    async with LoopbackCluster(tmp_path, settings=settings) as cluster:
        node = cluster.nodes[1]
        outside = [await _client(node, "EXTERNAL") for _ in range(3)]
        assert [await _is_served(client) for client in outside] == [True, True, False]
        inside = [await _client(node, "INTERNAL") for _ in range(3)]
        assert [await _is_served(client) for client in inside] == [True, True, True]
        outside[0].close()
        await until(lambda: len(node.kafka.listener.connections) <= 4)
        again = await _client(node, "EXTERNAL")
        assert await _is_served(again)
        for client in (*outside, *inside, again):
            client.close()


async def test_clients_of_other_listeners_do_not_keep_nodes_out(tmp_path: Path) -> None:
    """Of the other listeners, the connection that has been silent the longest makes room, as with Kafka."""
    async with LoopbackCluster(tmp_path, settings={**_SETTINGS, "max.connections": 2}) as cluster:
        node = cluster.nodes[1]
        first, second = [await _client(node, "EXTERNAL") for _ in range(2)]
        assert await _is_served(second) and await _is_served(first)
        refused = await _client(node, "EXTERNAL")
        assert not await _is_served(refused)
        inside = [await _client(node, "INTERNAL") for _ in range(3)]
        assert [await _is_served(client) for client in inside] == [True, True, False]
        assert not await _is_served(first) and not await _is_served(second)
        for client in (first, second, refused, *inside):
            client.close()


async def test_the_rpc_listener_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, settings={"listener.name.rpc.max.connections": 7}) as cluster:
        node = cluster.nodes[1]
        assert node.rpc.max_connections == 7
        async with AsyncClient.connect(cluster.bootstrap) as client:
            assert await alter_broker(client, 1, {"max.connections": "50"}) == 0
            await until(lambda: node.config.max_connections == 50)
        assert node.rpc.max_connections == 7


async def test_max_connections_does_not_part_nodes(tmp_path: Path) -> None:
    """However low it is: it is for clients (KIP-402)."""
    async with (
        LoopbackCluster(tmp_path, nodes=3, settings=_SETTINGS | {"max.connections": 1}) as cluster,
        AsyncClient.connect(str(_endpoint(cluster.nodes[1], "INTERNAL"))) as client,
        asyncio.timeout(150),
    ):
        while len((await client.metadata()).brokers) < 3:
            await asyncio.sleep(0.01)


async def test_when_max_connections_is_lowered_the_longest_silent_clients_leave(tmp_path: Path) -> None:
    """As with Kafka: those of nodes stay, and what was asked is answered."""
    async with LoopbackCluster(tmp_path, settings=_SETTINGS) as cluster:
        node = cluster.nodes[1]
        inside = await _client(node, "INTERNAL")
        outside = [await _client(node, "EXTERNAL") for _ in range(5)]
        for client in (inside, *outside, outside[1], outside[0]):
            assert await _is_served(client)
        connections = node.kafka.listener.connections
        async with AsyncClient.connect(str(_endpoint(node, "INTERNAL"))) as admin:
            assert await alter_broker(admin, 1, {"max.connections": "4"}) == 0
            await until(lambda: len(connections) <= 4)
        assert await _is_served(inside)
        by_recency = [await _is_served(outside[number]) for number in (0, 1, 4, 3, 2)]
        assert by_recency in ([True] + [False] * 4, [True, True] + [False] * 3), "the administrator has one or two"
        for each in (inside, *outside):
            each.close()


async def test_the_limits_of_an_address_change_while_a_node_runs(tmp_path: Path) -> None:
    """In an attack nobody wants to restart nodes."""
    async with LoopbackCluster(tmp_path, settings=_SETTINGS) as cluster:
        node = cluster.nodes[1]
        async with AsyncClient.connect(str(_endpoint(node, "EXTERNAL"))) as client:
            for key, limit in (("max.connections.per.ip", "1"), ("max.connection.creation.rate.per.ip", "1")):
                kept = await _client(node, "EXTERNAL")
                assert await _is_served(kept)
                assert await alter_broker(client, None, {key: limit}) == 0
                for _ in range(100):  # as many as may come at once, at most
                    if not await _comes_in(node, "EXTERNAL"):
                        break
                else:
                    raise AssertionError(f"{key} has no effect")
                assert await _is_served(kept)
                assert await alter_broker(client, None, {}, (key,)) == 0
                await until(lambda: _comes_in(node, "EXTERNAL"))
                kept.close()


async def test_the_http_listener_has_a_limit_of_its_own(tmp_path: Path) -> None:
    settings = {"http.port": 0, "listener.name.http.max.connections": 2}
    async with LoopbackCluster(tmp_path, settings=settings) as cluster:
        node = cluster.nodes[1]
        where = node.endpoints["http"]
        held = [await asyncio.open_connection(where.host, where.port) for _ in range(3)]
        reader, _ = held[0]
        assert await reader.read() == b""  # who waits longest gives way
        assert node.http.connections == 2
        for _, writer in held:
            writer.close()
