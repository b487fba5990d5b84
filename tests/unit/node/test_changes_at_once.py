"""Several administrators change the same settings at the same time, over several nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.protocol import wire
from tests.support.loopback_cluster import LoopbackCluster

_SET, _APPEND = 0, 2
_TOPIC, _BROKER, _GROUP = 2, 4, 32


async def alter(client: AsyncClient, node: int, resource: tuple[int, str], operation: int, key: str, value: str) -> int:
    request = wire.IncrementalAlterConfigsRequest
    entry = request.AlterableConfig(key, operation, value)
    message = request([request.AlterConfigsResource(*resource, [entry])], validate_only=False)
    answer = await client.call_node(BrokerId(node), message, timeout_s=150)
    return int(answer.responses[0].error_code)


async def own(client: AsyncClient, node: int, resource: tuple[int, str]) -> dict[str, Any]:
    request = wire.DescribeConfigsRequest
    message = request([request.DescribeConfigsResource(*resource, None)], include_synonyms=True)
    answer = await client.call_node(BrokerId(node), message, timeout_s=150)
    return {entry.name: entry.value for entry in answer.results[0].configs if entry.config_source in (1, 2, 3, 8)}


@pytest.mark.parametrize(
    ("resource", "changes"),
    [
        (
            (_TOPIC, "t"),
            {"retention.ms": "9000", "flush.ms": "7000", "segment.bytes": "2000000", "retention.bytes": "8"},
        ),
        ((_BROKER, ""), {"max.connections": "70", "min.insync.replicas": "1", "retention.ms": "90000"}),
        ((_GROUP, "g"), {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}),
    ],
    ids=["topic", "brokers", "group"],
)
async def test_no_change_is_lost(tmp_path: Path, resource: tuple[int, str], changes: dict[str, str]) -> None:
    async with LoopbackCluster(tmp_path, nodes=2) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 2)])
        await client.metadata()
        codes = await asyncio.gather(
            *(
                alter(client, 1 + number % 2, resource, _SET, key, value)
                for number, (key, value) in enumerate(changes.items())
            )
        )
        assert not any(codes)
        assert changes.items() <= (await own(client, 1, resource)).items()


async def test_appending_to_a_list_loses_nothing(tmp_path: Path) -> None:
    key, resource = "leader.replication.throttled.replicas", (_TOPIC, "t")
    async with LoopbackCluster(tmp_path, nodes=2) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        await client.create_topics([NewTopic("t", 3, 2)])
        await client.metadata()
        wanted = {f"{number}:1" for number in range(3)}
        codes = await asyncio.gather(
            *(alter(client, 1 + n % 2, resource, _APPEND, key, each) for n, each in enumerate(sorted(wanted)))
        )
        assert not any(codes)
        assert set((await own(client, 1, resource))[key].split(",")) == wanted


@pytest.mark.parametrize("resource", [(_TOPIC, "t"), (_BROKER, ""), (_GROUP, "g")], ids=["topic", "brokers", "group"])
async def test_settings_that_cannot_be_read_are_named(tmp_path: Path, resource: tuple[int, str]) -> None:
    """Somebody has written something else into ZooKeeper: the client gets an error that says so, and keeps its connection."""
    async with LoopbackCluster(tmp_path) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        await client.metadata()
        key = "consumer.session.timeout.ms" if resource[0] == _GROUP else "flush.ms"
        assert await alter(client, 1, resource, _SET, key, "50000") == 0
        zookeeper = cluster.nodes[1].session.current
        assert zookeeper is not None
        path = {_TOPIC: "topics/t", _BROKER: "brokers/<default>", _GROUP: "groups/g"}[resource[0]]
        await zookeeper.set(f"/config/{path}", b"{oops", -1)
        assert await alter(client, 1, resource, _SET, key, "60000") == ErrorCode.UNKNOWN_SERVER_ERROR
        request = wire.DescribeConfigsRequest
        answer = await client.call_node(
            BrokerId(1), request([request.DescribeConfigsResource(*resource, None)]), timeout_s=150
        )
        [result] = answer.results
        assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert f"/config/{path} is malformed" in result.error_message


async def test_a_users_credentials_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        await client.metadata()
        request = wire.AlterUserScramCredentialsRequest
        message = request([], [request.ScramCredentialUpsertion("u", 1, 4096, bytes(8), bytes(32))])
        assert (await client.call_node(BrokerId(1), message, timeout_s=150)).results[0].error_code == 0
        zookeeper = cluster.nodes[1].session.current
        assert zookeeper is not None
        await zookeeper.set("/config/users/u", b"{oops", -1)
        [result] = (await client.call_node(BrokerId(1), message, timeout_s=150)).results
        assert (result.error_code, result.error_message[:28]) == (-1, "/config/users/u is malformed")


async def test_producer_ids_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """The client asks again, as with Kafka, until an operator has repaired the znode; it keeps its connection."""
    async with LoopbackCluster(tmp_path) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        await client.metadata()
        zookeeper = cluster.nodes[1].session.current
        assert zookeeper is not None
        path = "/latest_producer_id_block"
        while (await zookeeper.exists(path)) is None:
            await asyncio.sleep(0.01)
        await zookeeper.set(path, b"{oops", -1)
        asked = wire.InitProducerIdRequest(None, 1000)
        cluster.nodes[1].kafka.transactions._ids._next = cluster.nodes[1].kafka.transactions._ids._end  # all used up
        cluster.nodes[1].producer_ids._spare.clear()
        answer = await client.call_node(BrokerId(1), asked, timeout_s=150)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        [problem] = [each for each in at_once(cluster.nodes[1].health.problems()) if each.subject == path]
        assert problem.what == "znode.malformed" and "do not remove it" in problem.detail
        await zookeeper.set(path, b'{"version":1,"broker":1,"block_start":"9000","block_end":"9999"}', -1)
        answer = await client.call_node(BrokerId(1), asked, timeout_s=150)
        assert (answer.error_code, answer.producer_id >= 10_000) == (0, True)
        assert not cluster.nodes[1].producer_ids.malformed
