"""What a wave of the controller's work costs: operations on ZooKeeper, and commands to brokers, by kind. From /metrics.

Commands are counted where they arrive, so that "one per broker" is a count of each broker's own.
"""

from __future__ import annotations

import re
import socket
import urllib.request
from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

from kafkalite.testing.processes import ProcessCluster

#: The controller's commands to brokers.
COMMANDS = ("LeaderAndIsr", "StopReplica", "UpdateMetadata")
_SAMPLE = re.compile(r"(\w+)\{([^}]*)\} (\S+)")


def scrape(cluster: ProcessCluster, broker_id: int) -> list[tuple[str, dict[str, str], float]]:
    """(metric, labels, value) of a node's labelled samples."""
    with urllib.request.urlopen(f"http://{cluster.http(broker_id)}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    matches = filter(None, map(_SAMPLE.match, lines))
    return [(m[1], dict(re.findall(r'(\w+)="([^"]*)"', m[2])), float(m[3])) for m in matches]


def _packets(connect: str) -> int:
    """Requests that the ZooKeeper server has received from everybody."""
    host, _, port = connect.partition("/")[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"srvr")
        text = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    return int(text.partition("Received: ")[2].split()[0])


@dataclass(frozen=True, slots=True)
class Counts:
    """Up to one moment. The dead count nothing, so take only those that live through the wave."""

    #: Controller's operations on ZooKeeper by kind.
    zookeeper: Counter[str]
    #: Commands received by (broker, kind).
    commands: Counter[tuple[int, str]]
    packets: int

    @classmethod
    def of(cls, cluster: ProcessCluster, brokers: list[int]) -> Self:
        """Ask them all."""
        zookeeper: Counter[str] = Counter()
        commands: Counter[tuple[int, str]] = Counter()
        for broker in brokers:
            for name, labels, value in scrape(cluster, broker):
                if name == "kafkalite_controller_zk_ops_total":
                    zookeeper[labels["kind"]] += int(value)
                elif name == "kafka_network_requestmetrics_requests_total" and labels["request"] in COMMANDS:
                    commands[broker, labels["request"]] += int(value)
        return cls(zookeeper, commands, _packets(cluster.zookeeper_connect))

    def since(self, before: Self) -> dict[str, Any]:
        """What came between: for the result of a bench."""
        arrived = self.commands - before.commands
        return {
            "zk_ops": dict(sorted((self.zookeeper - before.zookeeper).items())),
            "zk_requests_of_all": self.packets - before.packets,
            "rpcs": {kind: n for kind in COMMANDS if (n := sum(arrived[each] for each in arrived if each[1] == kind))},
            "rpcs_per_broker_most": {
                kind: max(counts)
                for kind in COMMANDS
                if (counts := [arrived[each] for each in arrived if each[1] == kind])
            },
        }
