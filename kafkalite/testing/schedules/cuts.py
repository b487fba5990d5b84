"""The network between hosts: cut both ways and one way, slow, lossy, with connections that are reset."""

from __future__ import annotations

import asyncio
import time

from kafkalite.testing.cluster_state import any_controller, wait_in_sync
from kafkalite.testing.network import NetworkedCluster, VirtualNetwork
from kafkalite.testing.numbered_records import TOPIC
from kafkalite.testing.schedules.stage import Stage, schedule


def _network(stage: Stage) -> VirtualNetwork:
    assert isinstance(stage.cluster, NetworkedCluster)
    return stage.cluster.network


def _others(stage: Stage, *but: int) -> list[str]:
    return [f"n{each}" for each in stage.cluster.nodes if each not in but]


async def _heal(stage: Stage) -> None:
    _network(stage).heal()
    stage.note("healed")
    await stage.going_on()
    took = await wait_in_sync(stage.cluster, TOPIC, 3)
    stage.note(f"in sync after {took:.1f} s")


@schedule("net-node-from-nodes", hosts=True)
async def node_from_nodes(stage: Stage) -> None:
    """Each node in turn is cut off from the other nodes, not from ZooKeeper nor from clients."""
    for broker_id in stage.shuffled():
        _network(stage).part([f"n{broker_id}"], _others(stage, broker_id))
        await stage.watch(f"node {broker_id} does not reach other nodes", 20.0)
        await _heal(stage)


@schedule("net-node-from-zookeeper", hosts=True)
async def node_from_zookeeper(stage: Stage) -> None:
    """Each node in turn is cut off from ZooKeeper, not from the others."""
    for broker_id in stage.shuffled():
        _network(stage).part([f"n{broker_id}"], ["zk"])
        await stage.watch(f"node {broker_id} does not reach ZooKeeper", 15.0)
        await _heal(stage)


@schedule("net-one-way", hosts=True)
async def one_way(stage: Stage) -> None:
    """One direction only: a node hears and is not heard, then the other way round; with ZooKeeper, then with nodes."""
    for _ in range(2):
        broker_id = stage.shuffled()[0]
        me = f"n{broker_id}"
        for some, others in (
            ([me], ["zk"]),
            (["zk"], [me]),
            ([me], _others(stage, broker_id)),
            (_others(stage, broker_id), [me]),
            ([me], [""]),
            ([""], [me]),
        ):
            _network(stage).part(some, others, both_ways=False)
            await stage.watch(f"nothing gets from {some} to {others}", 12.0)
            await _heal(stage)


@schedule("net-controller", hosts=True)
async def controller_cut_off(stage: Stage) -> None:
    """The controller is cut off from everything, then from the nodes alone, then from ZooKeeper alone."""
    for others in (["zk", "", *_others(stage)], _others(stage), ["zk"]):
        broker_id = await asyncio.to_thread(any_controller, stage.cluster, 30.0)
        _network(stage).part([f"n{broker_id}"], [each for each in others if each != f"n{broker_id}"])
        await stage.watch(f"the controller, node {broker_id}, does not reach {others}", 20.0)
        await _heal(stage)


@schedule("net-minute", hosts=True)
async def minute(stage: Stage) -> None:
    """Every node is alone with its clients and ZooKeeper for a minute."""
    for one in (1, 2):
        _network(stage).part([f"n{one}"], [f"n{other}" for other in (2, 3) if other > one])
    await stage.watch("no node reaches another", 60.0, serves=False)
    await _heal(stage)


@schedule("net-no-zookeeper", hosts=True)
async def no_zookeeper(stage: Stage) -> None:
    """Nobody reaches ZooKeeper for half a minute."""
    _network(stage).part(["zk"], _others(stage))
    await stage.watch("no node reaches ZooKeeper", 30.0)
    await _heal(stage)


@schedule("net-halves", hosts=True)
async def halves(stage: Stage) -> None:
    """Two nodes with ZooKeeper on one side, one with the clients on the other; then one node with ZooKeeper."""
    for broker_id in stage.shuffled()[:2]:
        others = _others(stage, broker_id)
        _network(stage).part([f"n{broker_id}", ""], [*others, "zk"])
        await stage.watch(f"node {broker_id} and the clients on one side", 15.0, serves=False)
        await _heal(stage)
        _network(stage).part([f"n{broker_id}", "zk"], [*others, ""])
        await stage.watch(f"node {broker_id} and ZooKeeper on one side", 15.0, serves=False)
        await _heal(stage)


@schedule("net-slow", hosts=True)
async def slow(stage: Stage) -> None:
    """200 ms each way and one frame of twenty lost."""
    network = _network(stage)
    network.delay_s = 0.2
    await stage.watch("200 ms", 30.0)
    network.loss = 0.05
    await stage.watch("200 ms and 5 % lost", 40.0)
    network.delay_s = 0.0
    await stage.watch("5 % lost", 20.0)
    await _heal(stage)


@schedule("net-flapping", hosts=True)
async def flapping(stage: Stage) -> None:
    """A link that comes and goes, sooner than anybody's patience."""
    network = _network(stage)
    until = time.monotonic() + 40 * stage.pace
    stage.note("links come and go")
    while time.monotonic() < until:
        one, other = stage.rng.sample([*_others(stage), "zk", ""], 2)
        network.part([one], [other], both_ways=stage.rng.random() < 0.5)
        await asyncio.sleep(stage.rng.uniform(0.1, 2.5))
        network.heal()
        await asyncio.sleep(stage.rng.uniform(0.0, 1.0))
    await _heal(stage)


@schedule("net-host-gone", hosts=True)
async def host_gone(stage: Stage) -> None:
    """kill -9 to all nodes; two are back before anybody's session has ended, the host of the third answers to nothing."""
    for _ in range(3):
        await stage.kill_all(zookeeper=False)
        *back, last = stage.shuffled()
        _network(stage).part([f"n{last}"], ["zk", "", *_others(stage, last)])
        stage.note(f"only nodes {back} are started, the host of node {last} is gone")
        for broker_id in back:
            stage.cluster.restart(broker_id, wait=False)
            await stage.sleep(stage.rng.uniform(0.0, 1.0))
        await stage.going_on()
        _network(stage).heal()
        stage.cluster.restart(last, wait=False)
        await stage.all_ready()
        await wait_in_sync(stage.cluster, TOPIC, 3)


@schedule("net-resets", hosts=True, transactions=True)
async def resets(stage: Stage) -> None:
    """Connections are reset at random, between all; then every one that is used; then all of one host, idle or not."""
    network = _network(stage)
    for share in (0.0005, 0.005, 0.03):
        network.resets = share
        await stage.watch(f"one segment of {1 / share:.0f} is a reset", 20.0)
        stage.note(f"{network.reset} resets so far")
    await _heal(stage)
    for _ in range(8):
        network.resets = 1.0
        await stage.sleep(stage.rng.uniform(0.05, 2.0))
        network.heal()
        await stage.sleep(stage.rng.uniform(0.2, 3.0))
    stage.note(f"{network.reset} resets so far")
    await _heal(stage)
    for _ in range(12):
        host = stage.rng.choice([*_others(stage), "zk"])
        stage.note(f"every connection of {host} is reset, idle or not")
        await asyncio.to_thread(network.end_connections, host)
        await stage.sleep(stage.rng.uniform(0.1, 3.0))
    await _heal(stage)
