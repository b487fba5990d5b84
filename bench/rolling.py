"""Rolling restarts of a whole cluster under load, with one version of the software or with two.

    python -m bench.rolling [--rounds 10] [--old COMMIT] [--rate 300] [--json FILE]

Three processes, a real ZooKeeper; the load is confluent-kafka's, acks=all, idempotent. A round stops every node in turn (SIGTERM),
starts it again at its old addresses, and waits until every replica is in sync. With --old, nodes begin with the code of that commit
(a git worktree in a temporary directory), and each restart changes a node's version: every round passes through all mixtures.
Exit code 1 if anything reached the application, was lost, or is there twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bench.figures import json_option, write_json
from bench.peers import ROOT, PeerLoad, scratch_python
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

TOPIC, PARTITIONS = "rolling", 12
SETTINGS = {"default.replication.factor": 3, "offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 0}


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A worktree of `commit`, for as long as it is needed. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-old-") as directory:
        tree = Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(tree), commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def rolling_load(python: Path, bootstrap: list[str], rate: float) -> PeerLoad:
    """A process that produces until it is asked to `end`, and says then what became of the records."""
    load = PeerLoad(python, "rolling_load.py", ",".join(bootstrap), TOPIC, PARTITIONS, rate)
    load.answer()
    return load


def roll(cluster: ProcessCluster, rounds: int, old: Path | None) -> list[float]:
    """Restart every node `rounds` times; the seconds that each stop took."""
    stops: list[float] = []
    for _ in range(rounds):
        for broker_id in sorted(cluster.nodes):
            began = time.monotonic()
            code = cluster.nodes[broker_id].terminate(60.0)
            assert code == 0, f"node {broker_id} ended with {code}\n{cluster.nodes[broker_id].log_tail()}"
            stops.append(time.monotonic() - began)
            if old is not None and cluster.trees.pop(broker_id, None) is None:
                cluster.trees[broker_id] = old
            cluster.restart(broker_id)
            asyncio.run(wait_in_sync(cluster, TOPIC, 3))
    return stops


def run(directory: Path, python: Path, *, rounds: int, old: Path | None, rate: float) -> dict[str, Any]:
    """The whole of it."""
    cluster = ProcessCluster(directory, settings=SETTINGS)
    if old is not None:
        cluster.trees = dict.fromkeys((1, 2, 3), old)
    with cluster:
        with contextlib.closing(rolling_load(python, cluster.bootstrap, rate)) as load:
            asyncio.run(wait_in_sync(cluster, TOPIC, 3))
            began = time.monotonic()
            stops = roll(cluster, rounds, old)
            took = time.monotonic() - began
            found = load.ask("end")
        cluster.terminate()
    return {
        **found,
        "rounds": rounds,
        "restarts": len(stops),
        "seconds": round(took, 1),
        "slowest_stop_s": round(max(stops), 2),
    }


def is_clean(found: dict[str, Any]) -> bool:
    """Nothing reached the application, nothing is lost, moved or there twice."""
    return (
        not (found["error_count"] or found["lost"] or found["twice"] or found["moved"])
        and found["acked"] == found["sent"]
    )


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True)
@click.option("--old", metavar="COMMIT", help="Begin with the code of this commit; every restart changes the version.")
@click.option("--rate", type=click.FloatRange(1), default=300.0, show_default=True, help="Records per second.")
@json_option
def main(rounds: int, old: str | None, rate: float, json_file: Path | None) -> None:
    """See the module."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafkalite-rolling-")))
        tree = stack.enter_context(checkout(old)) if old else None
        found = run(directory, scratch_python(), rounds=rounds, old=tree, rate=rate)
    found["old"] = old
    click.echo(json.dumps(found))
    write_json(found, json_file)
    sys.exit(0 if is_clean(found) else 1)


if __name__ == "__main__":
    main()
