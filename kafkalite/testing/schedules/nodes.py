"""Nodes, and all there is, suspended, killed, without their disks, with another idea of the time."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence

from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.numbered_records import TOPIC
from kafkalite.testing.schedules.stage import SESSION_S, Stage, go_on, schedule, stop


@schedule("suspend-all", transactions=True)
async def suspend_all(stage: Stage) -> None:
    """Nodes and ZooKeeper stand still past every session (a laptop that slept), and wake in random order."""
    for _ in range(3):
        processes = [*stage.cluster.nodes.values(), *([stage.cluster.zookeeper] if stage.cluster.zookeeper else [])]
        stage.note("everything stands still")
        for process in stage.rng.sample(processes, len(processes)):
            stop(process)
        await asyncio.sleep(SESSION_S * stage.rng.uniform(1.5, 3.0))
        for process in stage.rng.sample(processes, len(processes)):
            go_on(process)
            await stage.sleep(stage.rng.uniform(0.0, 2.0))
        await stage.going_on()
        await stage.sleep(3.0)


@schedule("suspend-nodes")
async def suspend_nodes(stage: Stage) -> None:
    """All nodes, not ZooKeeper, stand still past their sessions."""
    for _ in range(3):
        stage.note("all nodes stand still")
        for broker_id in stage.shuffled():
            stop(stage.cluster.nodes[broker_id])
        await asyncio.sleep(SESSION_S * stage.rng.uniform(1.5, 3.0))
        for broker_id in stage.shuffled():
            go_on(stage.cluster.nodes[broker_id])
            await stage.sleep(stage.rng.uniform(0.0, 2.0))
        await stage.going_on()
        await stage.sleep(3.0)


@schedule("suspend-zookeeper")
async def suspend_zookeeper(stage: Stage) -> None:
    """ZooKeeper stands still for half a minute."""
    assert stage.cluster.zookeeper is not None
    stage.note("ZooKeeper stands still")
    stop(stage.cluster.zookeeper)
    await stage.sleep(30.0)
    go_on(stage.cluster.zookeeper)
    await stage.going_on()


@schedule("power-loss", transactions=True)
async def power_loss(stage: Stage) -> None:
    """kill -9 to all nodes (every other time to ZooKeeper, too), started again in random order."""
    for number in range(4):
        await stage.kill_all(zookeeper=number % 2 == 1)
        for broker_id in stage.shuffled():
            stage.cluster.restart(broker_id, wait=False)
            await stage.sleep(stage.rng.uniform(0.0, 4.0))
        await stage.all_ready()
        await stage.going_on()
        await stage.sleep(stage.rng.uniform(1.0, 4.0))


@schedule("power-loss-one-stays-down")
async def power_loss_one_stays_down(stage: Stage) -> None:
    """kill -9 to all nodes; two are back before anybody's session has ended, and have to go on without the third."""
    for _ in range(4):
        await stage.kill_all(zookeeper=False)
        *back, last = stage.shuffled()
        stage.note(f"only nodes {back} are started")
        for broker_id in back:
            stage.cluster.restart(broker_id, wait=False)
            await stage.sleep(stage.rng.uniform(0.0, 1.0))
        await stage.going_on()
        stage.cluster.restart(last, wait=False)
        await stage.all_ready()
        await wait_in_sync(stage.cluster, TOPIC, 3)


async def _one_after_the_other(stage: Stage, order: Sequence[int]) -> None:
    """Start nodes, seconds apart, and wait until all is as it was."""
    for broker_id in order:
        stage.cluster.restart(broker_id, wait=False)
        await stage.sleep(stage.rng.uniform(2.0, 5.0))
    await stage.all_ready()
    await stage.going_on()
    await wait_in_sync(stage.cluster, TOPIC, 3)


@schedule("power-loss-empty-disk")
async def power_loss_empty_disk(stage: Stage) -> None:
    """kill -9 to all nodes; one comes back, first of all, with an empty disk in the place of its own."""
    for number in range(3):
        await stage.kill_all(zookeeper=False)
        order = stage.shuffled()
        victim = order[0] if number != 1 else order[-1]
        shutil.rmtree(stage.cluster.directory / f"node-{victim}")
        stage.note(f"the disk of node {victim} is empty; starting {order}")
        await _one_after_the_other(stage, order)


@schedule("power-loss-one-disk", log_dirs=2, transactions=True)
async def power_loss_one_disk(stage: Stage) -> None:
    """kill -9 to all nodes, which have two disks each; one comes back, first of all, with one of them empty, or gone."""
    for number in range(4):
        await stage.kill_all(zookeeper=False)
        order = stage.shuffled()
        victim = order[0] if number != 2 else order[-1]
        disk = stage.cluster.directory / f"node-{victim}" / f"disk-{stage.rng.randrange(2)}"
        shutil.rmtree(disk)
        if number == 1:
            disk.touch()  # no directory can be made there
        stage.note(f"{disk.name} of node {victim} is {'gone' if number == 1 else 'empty'}; starting {order}")
        await _one_after_the_other(stage, order)
        if number == 1:
            disk.unlink()
            await stage.disk_online(victim, disk)
            await wait_in_sync(stage.cluster, TOPIC, 3)


@schedule("crash-loop", transactions=True)
async def crash_loop(stage: Stage) -> None:
    """One node is killed and started again, over and over, sooner than it can start."""
    victim = stage.rng.choice(sorted(stage.cluster.nodes))
    for seconds in (0.5, 1.5):
        stage.note(f"node {victim} in a crash loop of {seconds} s")
        until = time.monotonic() + 20 * stage.pace
        before = len(stage.tally.acked)
        while time.monotonic() < until:
            await asyncio.to_thread(stage.cluster.nodes[victim].kill)
            stage.cluster.restart(victim, wait=False)
            await asyncio.sleep(seconds)
        stage.note(f"{len(stage.tally.acked) - before} records acknowledged during the loop")
        await stage.all_ready()
        await stage.going_on()
