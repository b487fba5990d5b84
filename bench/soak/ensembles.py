"""Faults of an ensemble of ZooKeeper servers: one is behind, cut off, not the leader any more, put back, killed; nodes meet their own faults meanwhile.

Each is done and undone; after it all servers serve and all nodes run. `health` is asked while it lasts.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from bench.soak.faults import SoakStage
from kafkalite.testing.cluster_state import controller_of
from kafkalite.testing.network_ensemble import EnsembleNetwork, HostedZooKeeper

#: Between the ensemble's servers, seconds: below syncLimit x tickTime, or a server that is behind would be cut off.
_BEHIND_S = (0.3, 2.0)
_HEALTH_S = 10.0
#: An outage that lasts this long has to be in `health` (seconds): the session timeout, and until the command runs.
NAMED_AFTER_S = 12.0


@dataclass
class EnsembleStage(SoakStage):
    """The targets of faults, and what `health` said during each: kind of fault -> problems."""

    named: dict[str, Counter[str]] = field(default_factory=dict)
    #: Outages that were long enough, and of which `health` said nothing.
    unnamed: list[str] = field(default_factory=list)
    #: The kind of the present fault.
    kind: str = ""

    @property
    def ensemble(self) -> EnsembleNetwork:
        return cast("EnsembleNetwork", self.cluster)

    @property
    def hosts(self) -> list[str]:
        """Of the nodes."""
        return [f"n{node}" for node in sorted(self.cluster.nodes)]

    def server(self) -> HostedZooKeeper:
        return self.rng.choice(self.ensemble.servers)

    def others(self, server: HostedZooKeeper) -> list[str]:
        """The hosts of the other servers."""
        return [each.name for each in self.ensemble.servers if each is not server]

    def health(self) -> set[str]:
        """The kinds of problems that the nodes name now."""
        command = [sys.executable, "-m", "kafkalite_cli", "admin", "health", "--json"]
        command += ["--bootstrap", ",".join(self.cluster.bootstrap)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_HEALTH_S * 3, check=False)
            problems = json.loads(done.stdout)["problems"]
        except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
            return {"(no answer)"}
        return {str(each["what"]) for each in problems}

    def look(self, *expected: str, lasted_s: float) -> None:
        """Ask `health`; one of `expected` must be in it if the outage has lasted long enough."""
        found = self.health()
        self.named.setdefault(self.kind, Counter()).update(found or {"(nothing)"})
        if expected and lasted_s >= NAMED_AFTER_S and not found & {*expected, "(no answer)"}:
            self.unnamed.append(f"{self.kind}: {expected} not in {sorted(found)} after {lasted_s:.0f} s")

    def node_fault(self) -> str:
        """While ZooKeeper has its own trouble, something happens to one node; undone when this returns."""
        kinds = ["none", "killed", "controller killed", "paused", "terminated"]
        kinds += ["disk dead"] if self.disks else []
        kind = self.rng.choice(kinds)
        node = controller_of(self.cluster) if kind == "controller killed" else -1
        if node not in self.cluster.nodes:
            node = self.node()
        process = self.cluster.nodes[node]
        if kind in ("killed", "controller killed"):
            process.kill()
            self.sleep(0, 10)
            self.cluster.restart(node, wait=False)
        elif kind == "terminated":
            process.terminate()
            self.cluster.restart(node, wait=False)
        elif kind == "paused":
            process.signal(signal.SIGSTOP)
            self.sleep(1, 12)
            process.signal(signal.SIGCONT)
        elif kind == "disk dead":
            disk = self.rng.choice(self.disks[node])
            disk.power_off()
            self.sleep(4, 10)
            process.kill()
            disk.detach()
            disk.attach()
            self.cluster.restart(node, wait=False)
        else:
            self.sleep(2, 8)
            return "no node"
        return f"node {node} {kind}"

    def settled(self) -> None:
        """All servers and all nodes are there again."""
        self.cluster.network.heal()
        self.ensemble.await_all()
        for process in self.cluster.nodes.values():
            if process.running and not process.ready:
                process.wait_ready(180)


def server_behind(stage: EnsembleStage) -> str:
    """A server gets the leader's messages late; its clients read the past."""
    server = stage.rng.choice(stage.ensemble.followers())
    seconds = stage.rng.uniform(*_BEHIND_S)
    leader = stage.ensemble.await_leader()
    stage.cluster.network.delays[leader.name, server.name] = seconds
    what = [stage.node_fault(), stage.node_fault()]
    stage.look(lasted_s=0)
    stage.sleep(2, 10)
    stage.settled()
    return f"{server.name} by {seconds:.1f} s; {', '.join(what)}"


def server_cut_off(stage: EnsembleStage) -> str:
    """A follower does not reach the other servers; nodes reach it."""
    return _cut_off(stage, stage.rng.choice(stage.ensemble.followers()))


def leader_cut_off(stage: EnsembleStage) -> str:
    """The leader does not reach the other servers, and is replaced; nodes reach it."""
    return _cut_off(stage, stage.ensemble.await_leader())


def _cut_off(stage: EnsembleStage, server: HostedZooKeeper) -> str:
    stage.cluster.network.part([server.name], stage.others(server))
    what = stage.node_fault()
    stage.look(lasted_s=0)
    stage.sleep(1, 10)
    stage.settled()
    return f"{server.name}; {what}"


def leader_killed(stage: EnsembleStage) -> str:
    server = stage.ensemble.await_leader()
    server.kill()
    what = stage.node_fault()
    stage.sleep(0, 8)
    stage.settled()
    return f"{server.name}; {what}"


def server_put_back(stage: EnsembleStage) -> str:
    """A server is killed and gets a copy of its own data from before; the others send it what it lacks."""
    server = stage.rng.choice(stage.ensemble.followers())
    server.kill()
    server.copy_data()
    server.launch()
    server.await_serving()
    what = stage.node_fault()
    stage.sleep(2, 10)
    server.kill()
    server.put_back()
    stage.sleep(0, 4)
    stage.settled()
    return f"{server.name}; {what}"


def server_paused(stage: EnsembleStage) -> str:
    """Any server stands still, its connections stay; a leader finds that it has been replaced."""
    server = stage.server()
    mode = server.mode()
    server.signal(signal.SIGSTOP)
    what = stage.node_fault()
    stage.sleep(0, 8)
    server.signal(signal.SIGCONT)
    stage.settled()
    return f"{server.name} ({mode}); {what}"


def majority_away(stage: EnsembleStage) -> str:
    """Two of three servers are killed, or stand still: no writes."""
    away = stage.rng.sample(stage.ensemble.servers, len(stage.ensemble.servers) // 2 + 1)
    is_kill = stage.rng.random() < 0.5
    began = time.monotonic()
    for server in away:
        if is_kill:
            server.kill()
        else:
            server.signal(signal.SIGSTOP)
    what = stage.node_fault()
    stage.sleep(2, 15)
    stage.look("zookeeper.away", "broker.unreachable", lasted_s=time.monotonic() - began)
    for server in away:
        if not is_kill:
            server.signal(signal.SIGCONT)
    stage.settled()
    return f"{', '.join(each.name for each in away)} {'killed' if is_kill else 'still'}; {what}"


def answers_held(stage: EnsembleStage) -> str:
    """A server hears all nodes, and its answers do not arrive; then some arrive late."""
    server, seconds = stage.server(), stage.rng.uniform(0.3, 4.0)
    network = stage.cluster.network
    network.part([server.name], stage.hosts, both_ways=False)
    time.sleep(seconds)
    network.heal()
    network.delays |= {(server.name, host): stage.rng.uniform(0.1, 1.5) for host in stage.hosts}
    what = stage.node_fault()
    stage.look(lasted_s=0)
    stage.settled()
    return f"{server.name} for {seconds:.1f} s; {what}"


def node_away_from_zookeeper(stage: EnsembleStage) -> str:
    """A node reaches no server; the other nodes and clients reach it. `health` on it says so."""
    node = stage.node()
    began = time.monotonic()
    stage.cluster.network.part([f"n{node}"], [each.name for each in stage.ensemble.servers])
    stage.sleep(4, 16)
    stage.look("zookeeper.away", "broker.unreachable", lasted_s=time.monotonic() - began)
    stage.settled()
    return f"node {node}"


def node_down(stage: EnsembleStage) -> str:
    """A node is dead, and a server of the ensemble as well."""
    server, node = stage.server(), stage.node()
    server.kill()
    stage.cluster.nodes[node].kill()
    began = time.monotonic()
    stage.sleep(8, 16)
    stage.look("broker.unreachable", lasted_s=time.monotonic() - began)
    stage.cluster.restart(node, wait=False)
    stage.settled()
    return f"{server.name}, node {node}"


EnsembleFault = Callable[[EnsembleStage], str]
ENSEMBLE: tuple[EnsembleFault, ...] = (
    server_behind, server_behind, server_cut_off, leader_cut_off, leader_killed, server_put_back, server_paused, majority_away,
    answers_held, node_away_from_zookeeper, node_down,
)  # fmt: skip
