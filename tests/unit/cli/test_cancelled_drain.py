"""`broker decommission --cancel`, interrupted and repeated."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination import paths, topic_znodes
from kafkalite.coordination.coordinator import SetData
from kafkalite.coordination.topic_znodes import ReassignmentProgress
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite_cli.main import cli
from tests.support.loopback_cluster import LoopbackCluster

ONE, TWO = (BrokerId(1),), (BrokerId(2),)


class Killed(Exception):
    """In the place of kill -9."""


async def admin(cluster: LoopbackCluster, *arguments: str) -> tuple[BaseException | None, str]:
    """(what the command raised, its output)"""
    done = await asyncio.to_thread(
        CliRunner().invoke, cli, ["admin", "broker", *arguments, "--bootstrap", cluster.bootstrap]
    )
    return done.exception, done.output


def state(cluster: LoopbackCluster) -> str:
    data, _ = cluster.zookeeper.peek(paths.config_entity("brokers", "1")) or (b"{}", None)
    return str(json.loads(data).get("config", {}).get("broker.state", "active"))


def begin_a_move(cluster: LoopbackCluster) -> None:
    """Away from broker 1, which cannot go on: no replica is added while the target is not alive."""
    data, stat = cluster.zookeeper.peek(paths.topic("t")) or (b"", None)
    assert stat is not None
    topic = topic_znodes.decode_topic(data)
    topic.moves[0] = ReassignmentProgress(target=(BrokerId(9),), origin=ONE)  # type: ignore[index]
    cluster.zookeeper.poke(SetData(paths.topic("t"), topic_znodes.encode_topic(topic), stat.version))


def moves(cluster: LoopbackCluster) -> bool:
    data, _ = cluster.zookeeper.peek(paths.topic("t")) or (b"", None)
    return bool(topic_znodes.decode_topic(data).moves)


@pytest.mark.parametrize("step", ["cancel_moves", "moves_in_progress"])
async def test_a_cancel_that_was_killed_is_finished_by_the_next_one(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        LoopbackCluster(tmp_path, nodes=2, settings={"balancer.mode": "off"}) as cluster,
        AsyncClient.connect(cluster.bootstrap) as client,
    ):
        await client.create_topics([NewTopic("t", assignment={0: ONE})])
        begin_a_move(cluster)
        failed, said = await admin(cluster, "decommission", "1", "--cancel")
        assert "is not being drained; moves away from it: 1 (`kafkalite admin reassign cancel`" in str(failed), said
        planned = [
            "admin",
            "reassign",
            "plan",
            "--drain-broker",
            "1",
            "--brokers",
            "1,2",
            "--bootstrap",
            cluster.bootstrap,
        ]
        said = (await asyncio.to_thread(CliRunner().invoke, cli, planned)).output
        assert "t-0        9    2" in said and "t-0, is being moved now" in said, "a plan begins where moves end"
        with monkeypatch.context() as patched:

            async def die(*_: object, **__: object) -> None:
                raise Killed

            patched.setattr(f"kafkalite_cli.admin.broker.{step}", die)
            await admin(cluster, "cordon", "1")
            failed, said = await admin(cluster, "decommission", "1", "--cancel")
            assert isinstance(failed, Killed)
        assert (state(cluster), moves(cluster)) == ("cordoned", True)
        failed, said = await admin(cluster, "decommission", "1", "--cancel")
        assert failed is None and "broker 1 takes new replicas; 1 move was called off" in said
        assert (state(cluster), moves(cluster)) == ("active", False)


async def test_a_drain_names_the_dead_broker_that_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ended(*_: object) -> str:
        return "active"

    # It looks once, and finds that somebody has ended the drain.
    monkeypatch.setattr("kafkalite_cli.admin.broker.read_state", ended)
    async with (
        LoopbackCluster(tmp_path, nodes=2, settings={"balancer.mode": "off"}) as cluster,
        AsyncClient.connect(cluster.bootstrap) as client,
    ):
        await client.create_topics([NewTopic("t", assignment={0: ONE})])
        begin_a_move(cluster)
        _, said = await admin(cluster, "decommission", "1")
    assert "1 being moved, to broker 9, which is not alive" in said
