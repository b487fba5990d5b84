"""Kafka's own kafka-configs.sh sets quotas of addresses and of changes (KIP-612, KIP-599); Kafka's own topic tool obeys them."""

from __future__ import annotations

import socket
import subprocess
from functools import partial
from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import tool_command, tools_class_path
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import wait_until

from .conftest import _base

pytestmark = [pytest.mark.cluster]

_CONFIGS, _TOPICS = "org.apache.kafka.tools.ConfigCommand", "org.apache.kafka.tools.TopicCommand"
#: ApiVersions 0, in a frame.
_REQUEST = bytes.fromhex("0000000a00120000000000010000")
_BURST = 10  # seconds


def is_served(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        try:
            connection.sendall(_REQUEST)
            return bool(connection.recv(4))
        except ConnectionError:
            return False


def all_served(address: str) -> bool:
    """Whether more connections than come at once at the smaller rate are all served."""
    return all(is_served(address) for _ in range(2 * _BURST + 5))


def some_refused(address: str) -> bool:
    return not all_served(address)


def test_kafkas_tools(tmp_path: Path) -> None:
    tools = tools_class_path(_base())
    with ProcessCluster(tmp_path, nodes=3, settings={"default.replication.factor": 1}) as cluster:
        nodes = cluster.bootstrap

        def run(main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            command = tool_command(tools, main, "--bootstrap-server", ",".join(nodes), *arguments)
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

        def tool(main: str, *arguments: str) -> str:
            done = run(main, *arguments)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        default = ["--alter", "--entity-type", "ips", "--entity-default", "--add-config", "connection_creation_rate=2"]
        tool(_CONFIGS, *default)
        shown = tool(_CONFIGS, "--describe", "--entity-type", "ips")
        assert "default ip are connection_creation_rate=2.0" in shown
        for address in nodes:  # on every node, at once
            wait_until(partial(some_refused, address), "connections beyond the rate are refused")
        own = ["--entity-type", "ips", "--entity-name", "127.0.0.1"]
        with_patience = ["--alter", *own, "--add-config", "connection_creation_rate=1000"]
        tool(_CONFIGS, *with_patience)
        for address in nodes:
            wait_until(partial(all_served, address), "the address has its own rate")
        clients = ["--entity-type", "clients", "--entity-default"]
        tool(_CONFIGS, "--alter", *clients, "--add-config", "controller_mutation_rate=2")
        assert "controller_mutation_rate=2.0" in tool(_CONFIGS, "--describe", *clients)
        # The first one takes the client into debt. The second one is refused until that is paid: the tool does not repeat it.
        tool(_TOPICS, "--create", "--topic", "a", "--partitions", "24")

        def is_accepted() -> bool:
            done = run(_TOPICS, "--create", "--topic", "b", "--partitions", "1")
            assert done.returncode == 0 or "ThrottlingQuotaExceededException" in done.stderr + done.stdout, done
            return done.returncode == 0

        wait_until(is_accepted, "a topic when the debt is paid")
        assert "b" in tool(_TOPICS, "--list").split()
