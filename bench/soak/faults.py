"""The faults of a soak: each is done and undone, one after the other, with a return to full ISR between them."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.soak.disks import LoopDisk
from kafkalite.testing.cluster_state import any_controller, controller_of
from kafkalite.testing.network import NetworkedCluster

_VERB_S = 120.0


@dataclass
class SoakStage:
    """The targets of faults.

    Args:
        disks: the file systems of each node, if they can be made here.
    """

    cluster: NetworkedCluster
    disks: dict[int, list[LoopDisk]]
    rng: random.Random
    say: Callable[[str], None]

    def node(self) -> int:
        return self.rng.choice(sorted(self.cluster.nodes))

    def shuffled(self) -> list[int]:
        return self.rng.sample(sorted(self.cluster.nodes), len(self.cluster.nodes))

    def sleep(self, low_s: float, high_s: float) -> None:
        time.sleep(self.rng.uniform(low_s, high_s))

    def restart_all(self, pause_s: float) -> None:
        """All of them were ended: in random order, with pauses up to this long, until each is ready."""
        for node in self.shuffled():
            self.cluster.restart(node, wait=False)
            self.sleep(0, pause_s)
        for process in self.cluster.nodes.values():
            if not process.ready:
                process.wait_ready()

    def admin(self, *words: str) -> dict[str, object]:
        """One verb of `kafkalite admin`, with --json; {} if it failed, which is reported."""
        command = [sys.executable, "-m", "kafkalite_cli", "admin", *words, "--json"]
        command += ["--bootstrap", ",".join(self.cluster.bootstrap)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_VERB_S, check=False)
        if done.returncode:
            self.say(f"    admin {' '.join(words[:3])}: exit {done.returncode}: {(done.stderr or done.stdout)[-200:]}")
            return {}
        try:
            found = json.loads(done.stdout)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {"": found}

    def power_off(self, nodes: Iterable[int]) -> None:
        """All of these hosts at once. Their processes take no further step first: otherwise they go on for 0.2 s while disk after disk fails.

        A process that goes on could also acknowledge what is lost: eight threads append and call fdatasync while ext4 is shut down,
        and in 5 of 60 shutdowns the last call of a thread returns success though its append is not in the image (Linux 6.18).
        A host without power acts on no such success.
        """
        for node in nodes:
            self.cluster.nodes[node].pause()
        for node in nodes:
            for disk in self.disks[node]:
                disk.power_off()

    def lose_power(self, node: int) -> None:
        """The host loses its power: bytes that were not synced are lost. Afterwards the disks are back, the node is not."""
        self.power_off((node,))
        self.cluster.nodes[node].kill()
        for disk in self.disks[node]:
            disk.detach()
            disk.attach()


def kill(stage: SoakStage) -> str:
    node = stage.node()
    stage.cluster.nodes[node].kill()
    stage.sleep(0, 15)
    stage.cluster.restart(node)
    return f"node {node}"


def kill_controller(stage: SoakStage) -> str:
    node = any_controller(stage.cluster)
    stage.cluster.nodes[node].kill()
    stage.sleep(0, 10)
    stage.cluster.restart(node)
    return f"node {node}"


def kill_all(stage: SoakStage) -> str:
    for node in stage.shuffled():
        stage.cluster.nodes[node].kill()
    stage.restart_all(4)
    return ""


def terminate(stage: SoakStage) -> str:
    node = stage.node()
    code = stage.cluster.nodes[node].terminate()
    stage.cluster.restart(node)
    return f"node {node}, exit code {code}"


def pause(stage: SoakStage) -> str:
    node, seconds = stage.node(), stage.rng.choice((1.0, 5.0, 20.0))
    stage.cluster.nodes[node].signal(signal.SIGSTOP)
    time.sleep(seconds)
    stage.cluster.nodes[node].signal(signal.SIGCONT)
    return f"node {node}, {seconds:.0f} s"


def zookeeper_killed(stage: SoakStage) -> str:
    assert stage.cluster.zookeeper is not None
    stage.cluster.zookeeper.kill()
    stage.sleep(0, 30)
    stage.cluster.start_zookeeper()
    return ""


def zookeeper_paused(stage: SoakStage) -> str:
    assert stage.cluster.zookeeper is not None
    seconds = stage.rng.choice((3.0, 15.0, 60.0))
    stage.cluster.zookeeper.signal(signal.SIGSTOP)
    time.sleep(seconds)
    stage.cluster.zookeeper.signal(signal.SIGCONT)
    return f"{seconds:.0f} s"


def cut(stage: SoakStage) -> str:
    node = stage.node()
    host, network = f"n{node}", stage.cluster.network
    others = [name for name in network.addresses if name not in ("", host)]
    kind = stage.rng.choice(
        ("alone", "from nodes", "from ZooKeeper", "from clients", "to nodes, one way", "late clients")
    )
    if kind == "alone":
        network.part([host], ["", *others])
    elif kind == "from nodes":
        network.part([host], [name for name in others if name != "zk"])
    elif kind == "from ZooKeeper":
        network.part([host], ["zk"])
    elif kind == "from clients":
        network.part([host], [""])
    elif kind == "late clients":
        network.part([""], [host], both_ways=False)
    else:
        network.part([host], [name for name in others if name != "zk"], both_ways=False)
    stage.sleep(2, 25)
    network.heal()
    return f"node {node} {kind}"


def bad_network(stage: SoakStage) -> str:
    network = stage.cluster.network
    kind = stage.rng.choice(("loss", "delay", "resets"))
    if kind == "loss":
        network.loss = stage.rng.uniform(0.02, 0.2)
    elif kind == "delay":
        network.delay_s = stage.rng.uniform(0.01, 0.3)
    else:
        network.resets = stage.rng.uniform(0.005, 0.05)
    stage.sleep(5, 20)
    network.heal()
    return kind


def power_of_one(stage: SoakStage) -> str:
    node = stage.node()
    stage.lose_power(node)
    stage.sleep(0, 10)
    stage.cluster.restart(node)
    return f"node {node}"


def last_standing(stage: SoakStage) -> str:
    """All but one process die one after the other; the host of the last loses its power, and is back first."""
    *first, last = stage.shuffled()
    for node in first:
        stage.cluster.nodes[node].kill()
        stage.sleep(3, 8)
    stage.lose_power(last)
    stage.cluster.restart(last)
    stage.sleep(2, 6)
    for node in first:
        stage.cluster.restart(node)
    return f"killed {first}, then the power of {last}"


def power_of_all(stage: SoakStage) -> str:
    nodes = tuple(stage.cluster.nodes)
    stage.power_off(nodes)
    for node in nodes:
        stage.lose_power(node)
    stage.restart_all(3)
    return ""


def full_disk(stage: SoakStage) -> str:
    nodes = stage.shuffled()[: stage.rng.choice((1, len(stage.cluster.nodes)))]
    disks = [disk for node in nodes for disk in stage.disks[node]]
    for disk in disks:
        disk.fill()
    stage.sleep(5, 20)
    for disk in disks:
        disk.free()
    return f"nodes {nodes}"


def moved_between_disks(stage: SoakStage) -> str:
    node = stage.node()
    moved = 0
    for topic in ("numbered", "transactions", "compacted", "windowed", "settings", "short"):
        for partition in range(4):
            directory = stage.rng.choice(sorted((stage.cluster.directory / f"node-{node}").glob("disk-*")))
            name = f"{topic}-{partition}"
            if not (directory / name).exists() and any(directory.parent.glob(f"disk-*/{name}")):
                moved += bool(stage.admin("disk", "move", name, "--broker", str(node), "--to", str(directory)))
    return f"node {node}, {moved} replicas"


def reassigned(stage: SoakStage) -> str:
    brokers = stage.shuffled()[:3]
    plan = stage.cluster.directory / f"plan-{stage.rng.randrange(10**9)}.json"
    stage.admin("reassign", "plan", "--brokers", ",".join(map(str, brokers)), "-o", str(plan))
    if not plan.exists() or not json.loads(plan.read_text())["partitions"]:
        return "nothing to move"
    limits = ["--max-replicas", "1", "--max-partitions", "4"]
    stage.admin("reassign", "execute", str(plan), *limits)
    if stage.rng.random() < 0.5:
        node = controller_of(stage.cluster)
        if node in stage.cluster.nodes:
            stage.cluster.nodes[node].kill()
            stage.cluster.restart(node)
    until = time.monotonic() + _VERB_S
    while time.monotonic() < until and stage.admin("reassign", "list").get("partitions"):
        time.sleep(1)
    Path(plan).unlink()
    return f"to {brokers}"


def elected(stage: SoakStage) -> str:
    stage.admin("elect", "--preferred", "--all")
    return ""


Fault = Callable[[SoakStage], str]
ANYWHERE: tuple[Fault, ...] = (
    kill, kill_controller, kill_all, terminate, pause, zookeeper_killed, zookeeper_paused, cut, cut, bad_network,
    moved_between_disks, reassigned, elected,
)  # fmt: skip
WITH_DISKS: tuple[Fault, ...] = (power_of_one, last_standing, full_disk)
EVERYWHERE_FLUSHED: tuple[Fault, ...] = (power_of_all,)
