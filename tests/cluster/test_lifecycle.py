"""Nodes that start, stop, die and return: what ZooKeeper shows of it, what clients see, what is on the disks."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.log.checkpoints import CLEAN_SHUTDOWN
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, Eye, Load, create_topic, eye, replicas_of, settled, wait_until
from tests.support.commands import kafkalite
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("lifecycle"), nodes=3, settings=QUICK) as made:
        yield made


@pytest.fixture
async def cluster(shared: ProcessCluster) -> ProcessCluster:
    """Three nodes, all running and content."""
    await settled(shared)
    return shared


@pytest.fixture
def zk(cluster: ProcessCluster) -> Iterator[Eye]:
    with eye(cluster.zookeeper_connect) as opened:
        yield opened


def log_path(cluster: ProcessCluster, broker_id: int, topic: str) -> Path:
    return cluster.directory / f"node-{broker_id}" / "disk-0" / f"{topic}-0" / "00000000000000000000.log"


def marker(cluster: ProcessCluster, broker_id: int) -> Path:
    return cluster.directory / f"node-{broker_id}" / "disk-0" / CLEAN_SHUTDOWN


def assert_equal_logs(cluster: ProcessCluster, topic: str) -> None:
    first, *others = [log_path(cluster, broker_id, topic).read_bytes() for broker_id in (1, 2, 3)]
    assert first
    assert all(other == first for other in others)


# --- what ZooKeeper shows ----------------------------------------------------------------------------------------


@pytest.mark.checklist(3, 5, 6, 7)
async def test_znodes_are_kafkas(cluster: ProcessCluster, zk: Eye) -> None:
    await create_topic(cluster, "shown", assignment={0: (2, 3, 1), 1: (3, 1, 2)})
    controller = zk.json("/controller")
    assert controller.keys() == {"version", "brokerid", "timestamp"}
    assert (controller["version"], controller["brokerid"] in (1, 2, 3)) == (1, True)
    assert controller["timestamp"].isdigit()
    assert re.fullmatch(r"[0-9]+", zk.text("/controller_epoch") or "")
    assert zk.stat("/controller_epoch").ephemeralOwner == 0
    assert zk.json("/cluster/id").keys() == {"version", "id"}
    owners = set()
    for number, node in cluster.nodes.items():
        path = f"/brokers/ids/{number}"
        told = zk.json(path)
        wanted = {"version", "host", "port", "jmx_port", "timestamp", "endpoints", "rpc_endpoint", "rack"}
        assert told.keys() >= wanted
        assert told["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT"}
        assert (told["version"], told["jmx_port"], told["rpc_endpoint"]) == (5, -1, node.ready["rpc"])
        owners.add(zk.stat(path).ephemeralOwner)
    assert len(owners - {0}) == 3
    assert zk.stat("/controller").ephemeralOwner == zk.stat(f"/brokers/ids/{zk.controller()}").ephemeralOwner
    topic = zk.json("/brokers/topics/shown")
    assert topic["version"] == 3
    assert topic["partitions"] == {"0": [2, 3, 1], "1": [3, 1, 2]}
    assert topic["adding_replicas"] == topic["removing_replicas"] == {}
    epoch = int(zk.text("/controller_epoch") or "-1")
    for partition, (leader, *rest) in ((0, (2, 3, 1)), (1, (3, 1, 2))):
        state = zk.state("shown", partition)
        assert state.keys() == {"version", "leader", "leader_epoch", "isr", "controller_epoch"}
        assert (state["version"], state["leader"], state["leader_epoch"]) == (1, leader, 0)
        assert sorted(state["isr"]) == sorted([leader, *rest])
        assert state["controller_epoch"] <= epoch
    with_broker_twice = ("admin", "create-topic", "twice", "--assignment", "0=1,1")
    refused = await asyncio.to_thread(kafkalite, *with_broker_twice, bootstrap=cluster.bootstrap)
    assert refused.code == 2
    assert zk.stat("/brokers/topics/twice") is None


@pytest.mark.checklist(3, 4, 34)
async def test_each_election_counts_one_and_the_dead_controllers_znodes_go(cluster: ProcessCluster, zk: Eye) -> None:
    began = int(zk.text("/controller_epoch") or "-1")
    for count in range(1, 6):
        dead = zk.controller()
        cluster.nodes[dead].kill()

        def another(dead: int = dead) -> int:
            now = zk.controller()
            return now if now > 0 and now != dead else 0

        successor = await asyncio.to_thread(wait_until, another, "another controller")
        assert zk.stat("/controller").ephemeralOwner == zk.stat(f"/brokers/ids/{successor}").ephemeralOwner
        assert int(zk.text("/controller_epoch") or "-1") == began + count
        await asyncio.to_thread(cluster.restart, dead)
    await settled(cluster)
    assert int(zk.text("/controller_epoch") or "-1") == began + 5


@pytest.mark.checklist(40)
async def test_a_node_can_be_reached_before_it_is_registered(cluster: ProcessCluster, zk: Eye) -> None:
    cluster.nodes[3].kill()
    await asyncio.to_thread(wait_until, lambda: zk.stat("/brokers/ids/3") is None, "the dead node's session ends")
    seen: list[dict[str, Any]] = []
    cluster.restart(3, wait=False)  # at its old addresses: later tests' clients may have no other to begin with

    def registered() -> bool:
        told = zk.json("/brokers/ids/3")
        if told is None:
            return False
        host, _, port = told["rpc_endpoint"].rpartition(":")
        with socket.create_connection((host, int(port)), 5):
            seen.append(told)
        return True

    await asyncio.to_thread(wait_until, registered, "registration")
    assert seen
    await asyncio.to_thread(cluster.nodes[3].wait_ready)
    assert cluster.nodes[3].ready["rpc"] == seen[0]["rpc_endpoint"]


# --- leaders that go ---------------------------------------------------------------------------------------------


@pytest.mark.checklist(51, 52, "F25")
async def test_followers_go_on_under_the_next_leader(cluster: ProcessCluster, zk: Eye) -> None:
    """Their high watermarks never exceed their logs nor go back, and in the end all logs are the same bytes."""
    await create_topic(cluster, "lead", assignment={0: (1, 2, 3)}, min_insync_replicas="2")
    marks: dict[tuple[int, int], int] = {}
    stop = asyncio.Event()

    async def watch() -> None:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            while not stop.is_set():
                for (broker, _), replica in (await replicas_of(client, "lead")).items():
                    assert replica.high_watermark <= replica.log_end_offset
                    key = (broker, replica.leader_epoch)
                    assert replica.high_watermark >= marks.get(key, 0)
                    marks[key] = replica.high_watermark

    watching = asyncio.create_task(watch())
    try:
        async with Load(cluster, "lead") as load:
            await load.more()
            cluster.nodes[1].signal(signal.SIGSTOP)  # its followers' fetches get no answer
            await load.more()
            cluster.nodes[1].signal(signal.SIGCONT)
            await wait_in_sync(cluster, "lead", 3)
            # From ZooKeeper: node 1, just awake, may still take itself for the leader.
            leader = zk.state("lead")["leader"]
            cluster.nodes[leader].kill()  # their connections break
            await load.more()
            await asyncio.to_thread(cluster.restart, leader)
            await wait_in_sync(cluster, "lead", 3)
            await load.more()
            await until(lambda: len({epoch for _, epoch in marks}) >= 3)
    finally:
        cluster.nodes[1].signal(signal.SIGCONT)
        stop.set()
        await watching
    await load.check_exactly_once()
    assert len({epoch for _, epoch in marks}) >= 3
    async with AsyncClient.connect(cluster.bootstrap) as client:
        async with asyncio.timeout(60):
            while {r.high_watermark for r in (await replicas_of(client, "lead")).values()} != {load.sent}:
                await asyncio.sleep(0.02)
    assert_equal_logs(cluster, "lead")


@pytest.mark.checklist(54)
async def test_the_leaders_death_under_each_kind_of_acks(cluster: ProcessCluster) -> None:
    for name in ("acks-0", "acks-1", "acks-all"):
        await create_topic(cluster, name, assignment={0: (2, 3, 1)}, min_insync_replicas="2")
    async with (
        Load(cluster, "acks-0", acks=0) as none,
        Load(cluster, "acks-1", acks=1) as leaders,
        Load(cluster, "acks-all") as everybody,
    ):
        loads = (none, leaders, everybody)
        for load in loads:
            await load.more()
        cluster.nodes[2].kill()
        before = [load.sent for load in loads]
        await everybody.more(400)
        await leaders.more(400)
        await none.more(400)
    await everybody.check_exactly_once()
    # The others may lose what only the dead leader had, but nothing that was sent once the next one led, and
    # nothing comes out of nowhere.
    for load, sent_before in zip(loads[:2], before[:2], strict=True):
        assert not load.failed
        found = await load.read_back()
        assert found.keys() <= set(range(load.sent))
        assert max(found) == load.sent - 1
        assert any(number > sent_before for number in found)
    assert {offset for _, offset in none.acked.values()} == {-1}


@pytest.mark.checklist(18, 56)
async def test_two_nodes_of_three_may_die_one_after_the_other(cluster: ProcessCluster, zk: Eye) -> None:
    await create_topic(cluster, "two-dead", assignment={0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    await create_topic(cluster, "single", assignment={0: (1,)})
    async with Load(cluster, "single") as alone:
        await alone.more()
    async with Load(cluster, "two-dead") as load:
        await load.more()
        cluster.nodes[1].kill()
        await asyncio.to_thread(wait_until, lambda: 1 not in zk.state("two-dead", 0)["isr"], "1 out of the ISR")
        await load.more()
        cluster.nodes[2].kill()
        await load.more()
        for partition in range(3):
            state = zk.state("two-dead", partition)
            assert (state["leader"], state["isr"]) == (3, [3])
        # A partition with one replica waits for it, leaderless once its session has ended; its ISR is not emptied.
        await asyncio.to_thread(wait_until, lambda: zk.state("single")["leader"] == -1, "nobody leads")
        assert zk.state("single")["isr"] == [1]
    await load.check_exactly_once()
    await settled(cluster)
    await wait_in_sync(cluster, "two-dead", 3)
    await wait_in_sync(cluster, "single", 1)
    await load.check_exactly_once()
    await alone.check_exactly_once()


# --- stops and starts --------------------------------------------------------------------------------------------


async def test_sigterm_is_a_clean_stop(cluster: ProcessCluster, zk: Eye) -> None:
    """Leaders move before it goes, the marker tells the next start that nothing needs checking."""
    await create_topic(cluster, "stopped", assignment={0: (2, 1, 3)}, min_insync_replicas="2")
    async with Load(cluster, "stopped") as load:
        await load.more()
        node = cluster.nodes[2]
        assert await asyncio.to_thread(node.terminate) == 0
        assert zk.stat("/brokers/ids/2") is None  # at once: its session was closed, it did not end by its timeout
        assert zk.state("stopped")["leader"] in (1, 3)
        assert 2 not in zk.state("stopped")["isr"]
        assert marker(cluster, 2).exists()
        await load.more()
        await asyncio.to_thread(cluster.restart, 2)
        assert not marker(cluster, 2).exists()
        await wait_in_sync(cluster, "stopped", 3)
        await load.more()
    await load.check_exactly_once()
    assert_equal_logs(cluster, "stopped")


async def test_a_second_sigterm_ends_it_at_once(cluster: ProcessCluster) -> None:
    """The first waits here for the controller to move leaders, and the controller stands still."""
    controller = await _controller(cluster)
    victim = next(number for number in cluster.nodes if number != controller)
    await create_topic(cluster, f"second-{victim}", assignment={0: (victim,)})
    cluster.nodes[controller].signal(signal.SIGSTOP)
    try:
        node = cluster.nodes[victim]
        while node.running:  # two that come too close count as one
            node.signal(signal.SIGTERM)
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(node.terminate) == 1
        assert not marker(cluster, victim).exists()
    finally:
        cluster.nodes[controller].signal(signal.SIGCONT)
    await asyncio.to_thread(cluster.restart, victim)


async def _controller(cluster: ProcessCluster) -> int:
    async with AsyncClient.connect(cluster.bootstrap) as client:
        return int((await client.describe_cluster()).controller_id)


async def test_a_whole_cluster_killed_and_restarted_has_everything(cluster: ProcessCluster) -> None:
    await create_topic(cluster, "all-killed", min_insync_replicas="2")
    async with Load(cluster, "all-killed") as load:
        await load.more()
        for node in cluster.nodes.values():
            node.kill()
        for broker_id in cluster.nodes:
            cluster.restart(broker_id, wait=False)
        for node in cluster.nodes.values():
            await asyncio.to_thread(node.wait_ready)
        await load.more()
    await wait_in_sync(cluster, "all-killed", 3)
    await load.check_exactly_once()


# --- damage on a disk --------------------------------------------------------------------------------------------


@pytest.mark.checklist(58)
@pytest.mark.parametrize("damage", ["flipped", "torn", "garbage"])
async def test_a_damaged_segment_is_cut_and_fetched_again(cluster: ProcessCluster, damage: str) -> None:
    topic = f"damage-{damage}"
    await create_topic(cluster, topic, assignment={0: (1, 2, 3)}, min_insync_replicas="2")
    async with Load(cluster, topic) as load:
        await load.more(400)
    await wait_in_sync(cluster, topic, 3)
    cluster.nodes[3].kill()
    path = log_path(cluster, 3, topic)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    match damage:
        case "flipped":
            content[middle] ^= 0x10
        case "torn":
            del content[middle:]
        case _:
            content += b"\xff\x00\x17" * 700
    path.write_bytes(content)
    await asyncio.to_thread(cluster.restart, 3)
    await wait_in_sync(cluster, topic, 3)
    async with Load(cluster, topic) as more:
        await more.more()
    async with AsyncClient.connect(cluster.bootstrap) as client, asyncio.timeout(60):
        while len({r.high_watermark for r in (await replicas_of(client, topic)).values()}) != 1:
            await asyncio.sleep(0.02)
    assert_equal_logs(cluster, topic)
