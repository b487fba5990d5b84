"""A node dies for good and another one takes its place, under load; then how long restarts and the first words of a node take.

    python -m bench.replace [--rate 300] [--json FILE]

Three processes, a real ZooKeeper; the load is confluent-kafka's, acks=all, idempotent. Node 2 gets kill -9 and loses its disk. Node 4 starts
with an empty disk, and `kafkalite admin broker replace 2 4` moves node 2's replicas there. Then node 1 is restarted with SIGTERM, and a
node is started whose ZooKeeper does not answer. Exit code 1 if anything reached the application, was lost, or is there twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from bench.figures import json_option, write_json
from bench.peers import scratch_python
from bench.rolling import PARTITIONS, SETTINGS, TOPIC, is_clean, rolling_load
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

_PATIENCE_S = 180.0


def kafkalite(cluster: ProcessCluster, *arguments: str) -> str:
    """Run a verb; its output. Raises CalledProcessError."""
    alive = [node.ready["kafka"] for node in cluster.nodes.values() if node.running]
    environ = os.environ | {"KAFKALITE_BOOTSTRAP": ",".join(alive)}
    command = [sys.executable, "-m", "kafkalite_cli", *arguments]
    return subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout


def replace(cluster: ProcessCluster) -> dict[str, float]:
    """Node 2 is gone for good; node 4 in its place. Seconds of the parts."""
    began = time.monotonic()
    cluster.nodes[2].kill()
    shutil.rmtree(cluster.directory / "node-2")
    cluster.add_node(4)
    started = time.monotonic()
    until = started + _PATIENCE_S
    while True:  # node 2 counts as alive until its session has ended
        try:
            kafkalite(cluster, "admin", "broker", "replace", "2", "4", "--yes")
            break
        except subprocess.CalledProcessError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
    moved = time.monotonic()
    del cluster.nodes[2]
    asyncio.run(wait_in_sync(cluster, TOPIC, 3))
    partitions = json.loads(kafkalite(cluster, "admin", "describe", TOPIC, "--json"))["topics"][0]["partitions"]
    assert all(sorted(each["isr"]) == [1, 3, 4] for each in partitions), partitions
    return {
        "new_node_ready_s": started - began,
        "replace_s": moved - started,
        "in_sync_after_s": time.monotonic() - began,
    }


def restart(cluster: ProcessCluster) -> dict[str, float]:
    """SIGTERM of a node under load to its end, and from its start to ready."""
    began = time.monotonic()
    code = cluster.nodes[1].terminate(60.0)
    assert code == 0, cluster.nodes[1].log_tail()
    stopped = time.monotonic()
    cluster.restart(1)
    ready = time.monotonic()
    asyncio.run(wait_in_sync(cluster, TOPIC, 3))
    return {"term_to_exit_s": stopped - began, "start_to_ready_s": ready - stopped, "term_to_ready_s": ready - began}


def first_words(directory: Path) -> dict[str, Any]:
    """A node whose ZooKeeper takes connections and says nothing: when it says that it waits."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [
            sys.executable, "-m", "kafkalite_cli", "serve", "--id", "9", "--zookeeper", f"127.0.0.1:{silent.getsockname()[1]}",
            "--log-dir", str(directory / "waits"), "--kafka", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--set", "http.port=-1",
        ]  # fmt: skip
        began = time.monotonic()
        node = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert node.stderr is not None
        said = b""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(node.stderr, selectors.EVENT_READ)
                while b"ooKeeper" not in said and time.monotonic() < began + 60:
                    if selector.select(1.0):
                        said += os.read(node.stderr.fileno(), 4096)
            took = time.monotonic() - began
        finally:
            node.kill()
            node.wait()
    lines = [line for line in said.decode(errors="replace").splitlines() if "ooKeeper" in line]
    return {"waits_for_zookeeper_after_s": took, "first_words": lines[0][:200] if lines else ""}


@click.command()
@click.option("--rate", type=click.FloatRange(1), default=300.0, show_default=True, help="Records per second.")
@json_option
def main(rate: float, json_file: Path | None) -> None:
    """See the module."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-replace-") as name:
        directory = Path(name)
        with ProcessCluster(directory, settings=SETTINGS) as cluster:
            with contextlib.closing(rolling_load(scratch_python(), cluster.bootstrap, rate)) as load:
                asyncio.run(wait_in_sync(cluster, TOPIC, 3))
                times: dict[str, Any] = {**replace(cluster), **restart(cluster)}
                found = load.ask("end")
            cluster.terminate()
        times |= first_words(directory)
    rounded = {key: round(value, 2) if isinstance(value, float) else value for key, value in times.items()}
    figures = {**found, "partitions": PARTITIONS, **rounded}
    click.echo(json.dumps(figures))
    write_json(figures, json_file)
    sys.exit(0 if is_clean(found) else 1)


if __name__ == "__main__":
    main()
