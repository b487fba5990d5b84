"""`cordoned.log.dirs`: directories that get no new replicas (KIP-1066)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.admin.configs import ConfigResource, alter_configs
from kafkalite.client.async_client import AsyncClient
from kafkalite.config import broker_config, check_cordoned, cordoned_among
from kafkalite.errors import ApiError, ConfigError, ErrorCode
from kafkalite.model import BrokerId
from kafkalite.protocol import wire
from tests.support.loopback_cluster import LoopbackCluster

from .conftest import FrameClient

_SETTINGS: dict[str, Any] = {"offsets.topic.num.partitions": 2, "controlled.shutdown.enable": False}


async def _cordon(client: FrameClient, value: str, broker: str = "1") -> int:
    request = wire.IncrementalAlterConfigsRequest
    change = [request.AlterableConfig("cordoned.log.dirs", 0, value)]
    code: int = (
        (await client.ask(request([request.AlterConfigsResource(4, broker, change)]), 1)).responses[0].error_code
    )
    return code


async def _create(client: FrameClient, name: str, partitions: int = 4) -> int:
    request = wire.CreateTopicsRequest
    answer = await client.ask(request([request.CreatableTopic(name, partitions, 1)], 10_000), 7)
    code: int = answer.topics[0].error_code
    return code


async def _add(client: FrameClient, name: str, count: int) -> int:
    request = wire.CreatePartitionsRequest
    answer = await client.ask(request([request.CreatePartitionsTopic(name, count, None)], 10_000), 3)
    code: int = answer.results[0].error_code
    return code


async def _dirs(client: FrameClient) -> dict[str, tuple[bool, int]]:
    """Directory -> whether it is cordoned, and its replicas."""
    answer = await client.ask(wire.DescribeLogDirsRequest(None), 5)
    return {
        Path(each.log_dir).name: (each.is_cordoned, sum(len(topic.partitions) for topic in each.topics))
        for each in answer.results
    }


async def _until_closed(cluster: LoopbackCluster, *, closed: bool) -> None:
    """The registration says whether the broker takes replicas, and every node has heard it."""
    async with asyncio.timeout(150):
        while True:
            with suppress(ApiError):  # there is no controller yet
                if cluster.nodes[1].controller.closed_brokers().keys() == ({1} if closed else set()):
                    return
            await asyncio.sleep(0.01)


async def test_a_cordoned_directory_gets_no_new_replicas(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    own = {1: {"log.dirs": [first, second]}}
    async with LoopbackCluster(tmp_path, nodes=1, settings=_SETTINGS, own_settings=own) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        assert await _cordon(client, "/unknown") == ErrorCode.INVALID_REQUEST
        assert await _cordon(client, first, broker="") == ErrorCode.INVALID_REQUEST  # of the cluster
        assert await _cordon(client, first) == 0
        assert await _create(client, "t") == 0
        assert await _dirs(client) == {"a": (True, 0), "b": (False, 4)}

        move = wire.AlterReplicaLogDirsRequest
        wanted = move.AlterReplicaLogDir(first, [move.AlterReplicaLogDirTopic("t", [0])])
        refused = await client.ask(move([wanted]), 2)
        assert refused.results[0].partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

        for every in (f"{first},{second}", "*"):  # then the broker itself takes none
            assert await _cordon(client, every) == 0
            await _until_closed(cluster, closed=True)
            assert await _create(client, "u") == ErrorCode.INVALID_REPLICATION_FACTOR
            assert await _add(client, "t", 5) == ErrorCode.INVALID_REPLICATION_FACTOR
            assert await _cordon(client, "") == 0
            await _until_closed(cluster, closed=False)
        assert await _create(client, "u") == 0
        assert [cordoned for cordoned, _ in (await _dirs(client)).values()] == [False, False]
        client.close()


async def test_of_the_file_it_holds_from_the_start(tmp_path: Path) -> None:
    own = {1: {"log.dirs": [str(tmp_path / "a")], "cordoned.log.dirs": "*"}}
    async with LoopbackCluster(tmp_path, nodes=1, settings=_SETTINGS, own_settings=own) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        await _until_closed(cluster, closed=True)
        assert await _create(client, "t") == ErrorCode.INVALID_REPLICATION_FACTOR
        assert await _dirs(client) == {"a": (True, 0)}
        client.close()


async def test_its_own_broker_checks_it_and_says_what_ends_it(tmp_path: Path) -> None:
    own = {number: {"log.dirs": [str(tmp_path / f"{number}")]} for number in (1, 2)}
    async with LoopbackCluster(tmp_path, nodes=2, settings=_SETTINGS, own_settings=own) as cluster:
        client = await FrameClient.to(cluster.nodes[2].endpoints["kafka"])
        for value in ("/unknown", str(tmp_path / "1")):  # this broker cannot know whether broker 1 has it
            assert await _cordon(client, value) == ErrorCode.INVALID_REQUEST
        async with AsyncClient.connect([str(cluster.nodes[2].endpoints["kafka"])]) as ours:
            resource = ConfigResource.broker(BrokerId(1))
            with pytest.raises(ApiError, match=r"is not one of log\.dirs"):  # so our client asks that broker
                await alter_configs(ours, resource, {"cordoned.log.dirs": "/unknown"})
            await alter_configs(ours, resource, {"cordoned.log.dirs": "*"})
        request = wire.CreateTopicsRequest
        assigned = [request.CreatableReplicaAssignment(0, [1])]
        async with asyncio.timeout(150):
            while True:
                answer = await client.ask(
                    request([request.CreatableTopic("t", -1, -1, assigned)], 10_000, validate_only=True), 7
                )
                if answer.topics[0].error_code:
                    break
        assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert answer.topics[0].error_message.endswith(
            "broker 1 is cordoned (cordoned.log.dirs): it takes no new replicas"
        )
        client.close()


async def test_it_survives_a_restart(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=1, settings=_SETTINGS) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        assert await _cordon(client, "*") == 0
        client.close()
        await cluster.stop(1)
        await cluster.start(1)
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        await _until_closed(cluster, closed=True)
        assert list((await _dirs(client)).values()) == [(True, 0)]
        client.close()


def test_paths_are_those_of_log_dirs() -> None:
    assert cordoned_among(["/a", "/b"], " /b , ") == {"/b"}
    assert cordoned_among(["/a", "/b"], "*") == {"/a", "/b"}
    assert cordoned_among(["/a"], "") == frozenset()
    with pytest.raises(ConfigError, match=r"'/c' is not one of log\.dirs"):
        check_cordoned(["/a", "/b"], "/a,/c")
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs"):
        broker_config({"log.dirs": ["/a"], "cordoned.log.dirs": "/b"})
