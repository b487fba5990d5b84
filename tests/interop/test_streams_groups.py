"""Streams groups (KIP-1071) under Kafka Streams, exactly once, while an instance and the group's coordinator are killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kafkalite.protocol import wire
from kafkalite.testing.apache_kafka import (
    JavaProcess,
    tool_command,
    tools_class_path,
)
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster
from tests.support.loopback_cluster import LoopbackCluster

from .conftest import _base, compiled, run_client, seen_by

pytestmark = [pytest.mark.cluster]

_CLIENTS = Path(__file__).parent / "clients"
_SOURCE = _CLIENTS / "java" / "CountNumbers.java"
_TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
_GROUP = "count-numbers"
_SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "zookeeper.session.timeout.ms": 6000,
    "group.streams.heartbeat.interval.ms": 500,
    "group.streams.session.timeout.ms": 6000,
    "group.streams.num.standby.replicas": 1,
}
_KEYS = 20


@pytest.fixture(scope="module")
def streams_classes() -> str:
    """The class path of the newest Kafka Streams, and of the application."""
    return compiled("java-streams", tools_class_path(_base()), _SOURCE)


async def _asked(bootstrap: str, request: Any, version: int) -> Any:
    client = await FrameClient.to(bootstrap)
    try:
        return await client.ask(request, version)
    finally:
        client.close()


async def test_counts_stay_exact_in_a_streams_group(streams_classes: str, tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=3, settings=_SETTINGS) as cluster:
        bootstrap = ",".join(cluster.bootstrap)

        def command(*arguments: str) -> list[str]:
            return tool_command(streams_classes, "CountNumbers", *arguments)

        async def goes_on(counted: int) -> int:
            seen: int = (await seen_by(command("read", bootstrap, str(counted + 500))))["seen"]
            return seen

        async def coordinator() -> int:
            request = wire.FindCoordinatorRequest(key_type=0, coordinator_keys=[_GROUP])
            node: int = (await _asked(cluster.bootstrap[0], request, 4)).coordinators[0].node_id
            return node

        async def described() -> Any:
            # The coordinator may move between the two requests, and loads the group first.
            async with asyncio.timeout(60):
                while True:
                    where = cluster.bootstrap[await coordinator() - 1]
                    group = (await _asked(where, wire.StreamsGroupDescribeRequest([_GROUP]), 1)).groups[0]
                    if group.error_code not in (14, 15, 16):
                        return group
                    await asyncio.sleep(0.05)

        instances = [
            JavaProcess(
                f"instance {name}",
                streams_classes,
                "CountNumbers",
                ["run", bootstrap, str(tmp_path / name), "streams"],
                tmp_path / f"{name}.log",
            )
            for name in ("first", "second")
        ]

        async def start(*those: JavaProcess) -> None:
            for instance in those:
                instance.launch()
            for instance in those:
                await asyncio.to_thread(instance.wait_ready, 120)

        feeder = await asyncio.create_subprocess_exec(
            *command("feed", bootstrap), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert feeder.stdin is not None and feeder.stdout is not None
        try:
            assert json.loads(await feeder.stdout.readline()) == {"feeding": True}
            await start(*instances)
            counted = await goes_on(0)
            group = await described()
            assert group.group_state in ("Stable", "Reconciling")
            assert len(group.members) == 2

            await asyncio.to_thread(instances[0].kill)
            counted = await goes_on(counted)
            await start(instances[0])
            counted = await goes_on(counted)

            killed = await coordinator()
            await asyncio.to_thread(cluster.nodes[killed].kill)
            counted = await goes_on(counted)
            cluster.restart(killed)

            # Taken for dead with a transaction open; what it still wants to write afterwards must not count.
            instances[1].signal(signal.SIGSTOP)
            counted = await goes_on(counted)
            instances[1].signal(signal.SIGCONT)
            counted = await goes_on(counted)

            feeder.stdin.close()
            sent = json.loads((await feeder.stdout.read()).splitlines()[-1])["sent"]
            assert await feeder.wait() == 0
            await seen_by(command("read", bootstrap, str(sent)))
            assert [await asyncio.to_thread(each.terminate, 60) for each in instances] == [143, 143]
        finally:
            for instance in instances:
                instance.kill()
            if feeder.returncode is None:
                feeder.kill()
                await feeder.wait()
        seen = await seen_by(command("read", bootstrap, str(sent)))
        empty = await described()

    assert seen["wrong"] == []
    assert seen["seen"] == sent
    assert seen["counts"] == {str(key): len(range(key, sent, _KEYS)) for key in range(_KEYS)}
    assert (empty.group_state, empty.members) == ("Empty", [])
    changelogs = [topic for each in empty.topology.subtopologies for topic in each.state_changelog_topics]
    assert [topic.partitions for topic in changelogs] == [4, 4]


async def test_what_kafkas_tools_say_of_a_streams_group(
    streams_classes: str, newest_classes: str, cluster: LoopbackCluster
) -> None:
    """The Admin of the newest Java client, and kafka-streams-groups, while a member is there, and when it has left."""
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    client = FrameClient()
    await client.connect(host, int(port))
    create = wire.CreateTopicsRequest
    await client.ask(create([create.CreatableTopic("in", 2, 3)], 10_000), 4)
    found = await client.ask(wire.FindCoordinatorRequest(key_type=0, coordinator_keys=["app"]), 4)
    client.close()
    await client.connect(found.coordinators[0].host, found.coordinators[0].port)
    beat = wire.StreamsGroupHeartbeatRequest
    owned: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    store = beat.TopicInfo("app-store-changelog", 0, 0, [beat.KeyValue("cleanup.policy", "compact")])
    topology = beat.Topology(1, [beat.Subtopology("0", ["in"], [], [store])])
    joined = await client.ask(
        beat("app", "m", 0, -1, None, None, 10_000, topology, **owned, process_id="p", client_tags=[]), 1
    )
    assert not joined.error_code, joined
    epoch = joined.member_epoch
    async with asyncio.timeout(60):
        while not owned["active_tasks"]:
            answer = await client.ask(beat("app", "m", epoch), 1)
            assert not answer.error_code, answer
            epoch, owned["active_tasks"] = answer.member_epoch, answer.active_tasks or []
            await asyncio.sleep(0.1)
    await client.ask(beat("app", "m", epoch, **{**owned, "active_tasks": [beat.TaskIds("0", [0, 1])]}), 1)

    async def administered(*more: str) -> dict[str, Any]:
        return await seen_by(tool_command(newest_classes, "StreamsGroupAdmin", cluster.bootstrap, "app", *more))

    async def tool(*arguments: str) -> str:
        flags = ("--bootstrap-server", cluster.bootstrap, *arguments)
        return (await run_client(tool_command(streams_classes, _TOOL, *flags))).decode()

    seen = {"listed": ["app Streams Stable"], "state": "Stable", "members": 1, "active": 2, "standby": 0}
    assert await administered() == {**seen, "subtopologies": 1, "committed": 0}
    assert (await tool("--list")).split() == ["app"]
    assert "Stable" in await tool("--describe", "--group", "app", "--state")
    assert "ACTIVE" in await tool("--describe", "--group", "app", "--members")
    assert not (await client.ask(beat("app", "m", -1), 1)).error_code
    client.close()
    assert await administered("delete") == {"listed": []}
