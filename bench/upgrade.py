"""An operator's upgrade: an older commit's wheel is replaced by this one's, one node after the other, under load; then one step back.

    python -m bench.upgrade --old COMMIT [--rate 300] [--seconds 10] [--json FILE]

Both versions are built as wheels and installed without their dependencies, which are those of this environment. Three processes of the
old version, a real ZooKeeper. confluent-kafka produces with acks=all (idempotent), copies everything in transactions as a member of a
classic group, and reads it as a member of a consumer group. `kafkalite admin rolling-restart` (of the new version: older ones may not have
it) restarts each node with the new version; then it takes one node back, and forward again. Prints the features in force at each stage. Exit code 1 if anything reached the application, was lost, or is there twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from bench.figures import json_option, write_json
from bench.peers import ROOT, PeerLoad, scratch_python
from bench.rolling import PARTITIONS, SETTINGS, TOPIC, checkout, is_clean, rolling_load
from kafkalite.client.async_client import AsyncClient
from kafkalite.protocol import wire
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

COPIES = "copies"


def installed(tree: Path, into: Path) -> Path:
    """The wheel of `tree`, built and installed; the directory to import from. Raises CalledProcessError."""
    wheels = into / "wheel"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=tree, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (wheel,) = wheels.glob("*.whl")
    target = into / "packages"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*install, "--target", str(target), str(wheel)], check=True)
    return target


def verb(code: Path, cluster: ProcessCluster, *arguments: str, is_checked: bool = True) -> str:
    """`kafkalite …` of one version; its output. Raises CalledProcessError if it fails and is checked."""
    environ = os.environ | {"KAFKALITE_BOOTSTRAP": ",".join(cluster.bootstrap), "PYTHONPATH": str(code)}
    command = [sys.executable, "-m", "kafkalite_cli", *arguments]
    return subprocess.run(command, env=environ, cwd=code, check=is_checked, stdout=subprocess.PIPE, text=True).stdout


@contextlib.contextmanager
def hosts(cluster: ProcessCluster, codes: dict[int, Path]) -> Iterator[str]:
    """What restarts a node on its host, with the version that `codes` names; the command for it, with `{id}`."""
    ended = threading.Event()

    def serve() -> None:
        while not ended.wait(0.05):
            for wanted in cluster.directory.glob("restart-*"):
                broker_id = int(wanted.name.rpartition("-")[2])
                code = cluster.nodes[broker_id].terminate(120.0)
                assert code == 0, f"node {broker_id} ended with {code}\n{cluster.nodes[broker_id].log_tail()}"
                cluster.trees[broker_id] = codes[broker_id]
                cluster.restart(broker_id)
                wanted.unlink()

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve)
        try:
            yield f"touch {cluster.directory}/restart-{{id}}"
        finally:
            ended.set()
        serving.result()


async def features(cluster: ProcessCluster) -> dict[str, int]:
    """The levels in force."""
    async with AsyncClient.connect(cluster.bootstrap) as client:
        found = await client.call_any(wire.ApiVersionsRequest("kafkalite", "bench"), timeout_s=30)
    return {each.name: each.max_version_level for each in found.finalized_features}


def group_load(python: Path, bootstrap: list[str]) -> PeerLoad:
    """A process with transactions and groups. Asked to `end` with the number of records written, it says what became of them."""
    load = PeerLoad(python, "upgrade_load.py", ",".join(bootstrap), TOPIC, COPIES, PARTITIONS)
    load.answer()
    return load


def walk(cluster: ProcessCluster, old: Path, new: Path, seconds: float) -> dict[str, Any]:
    """The upgrade, and one step back and forward; the features in force after each stage and how long it took."""
    stages: dict[str, Any] = {"before": {"features": asyncio.run(features(cluster))}}

    def stage(name: str, codes: dict[int, Path]) -> None:
        began = time.monotonic()
        with hosts(cluster, codes) as command:
            brokers = ",".join(map(str, codes))
            verb(new, cluster, "admin", "rolling-restart", "--command", command, "--brokers", brokers)
        asyncio.run(wait_in_sync(cluster, TOPIC, 3))
        time.sleep(seconds)
        took = time.monotonic() - began - seconds
        stages[name] = {"features": asyncio.run(features(cluster)), "seconds": round(took, 1)}
        stages[name]["health"] = verb(new, cluster, "admin", "health", is_checked=False).splitlines()

    stage("one new", {3: new})
    stage("all new", {2: new, 1: new})
    stage("one back", {2: old})
    stage("all new again", {2: new})
    return stages


def run(directory: Path, python: Path, *, old: Path, new: Path, rate: float, seconds: float) -> dict[str, Any]:
    """The whole of it. `seconds`: how long load goes on after each stage."""
    cluster = ProcessCluster(directory, settings=SETTINGS)
    cluster.trees = dict.fromkeys((1, 2, 3), old)
    with cluster, contextlib.ExitStack() as stack:
        load = stack.enter_context(contextlib.closing(rolling_load(python, cluster.bootstrap, rate)))
        groups = stack.enter_context(contextlib.closing(group_load(python, cluster.bootstrap)))
        time.sleep(seconds)
        stages = walk(cluster, old, new, seconds)
        found = load.ask("end")
        copied = groups.ask("end", found["sent"])
        cluster.terminate()
    return {**found, **copied, "stages": stages}


def is_whole(found: dict[str, Any]) -> bool:
    """Also no copy lost or twice, and no record that the consumer group did not see."""
    return is_clean(found) and not (found["copies_lost"] or found["copies_twice"] or found["unseen"])


@click.command()
@click.option("--old", metavar="COMMIT", required=True, help="The version to begin with.")
@click.option("--rate", type=click.FloatRange(1), default=300.0, show_default=True, help="Records per second.")
@click.option("--seconds", type=click.FloatRange(0), default=10.0, show_default=True, help="Load after each stage.")
@json_option
@click.option("--keep", type=click.Path(file_okay=False), help="Leave data and logs in this directory.")
def main(old: str, rate: float, seconds: float, json_file: Path | None, keep: str | None) -> None:
    """See the module."""
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafkalite-upgrade-")))
        before = installed(stack.enter_context(checkout(old)), scratch / "old")
        after = installed(ROOT, scratch / "new")
        directory = Path(keep) if keep else scratch / "cluster"
        found = run(directory, scratch_python(), old=before, new=after, rate=rate, seconds=seconds)
    found["old"] = old
    click.echo(json.dumps(found))
    write_json(found, json_file)
    sys.exit(0 if is_whole(found) else 1)


if __name__ == "__main__":
    main()
