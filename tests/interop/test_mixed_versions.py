"""A cluster of mixed versions stays on the lower feature levels, as Kafka's own kafka-features shows them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import wait_until

from .kafka_tools import Verb
from .test_kafka_tools import Tools, tools

pytestmark = [pytest.mark.cluster]

_ROOT = Path(__file__).parents[2]
#: What the code of before knew less.
_OLDER = {
    "SHARE_FEATURE: (0, DEAD_LETTERS_LEVEL)": "SHARE_FEATURE: (0, 1)",
    "STREAMS_FEATURE: (0, 1)": "STREAMS_FEATURE: (0, 0)",
}


def older_tree(directory: Path) -> Path:
    """This code, with lower levels of two features."""
    for package in ("kafkalite", "cli"):
        shutil.copytree(_ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    path = directory / "kafkalite" / "features.py"
    text = path.read_text()
    for new, old in _OLDER.items():
        assert new in text
        text = text.replace(new, old)
    path.write_text(text)
    return directory


def levels(running: Tools) -> dict[str, int]:
    _, output = running.run(Verb("kafka-features", "describe"))
    return {name: int(level) for name, level in re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\d+)", output)}


def test_the_lower_level_is_in_force_until_the_last_node_is_new(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path / "cluster", nodes=3, settings={"default.replication.factor": 3})
    cluster.trees[2] = older_tree(tmp_path / "older")
    with cluster, tools(",".join(cluster.bootstrap), tmp_path / "tools") as running:
        # Any of the three nodes may answer: all of them say the same.
        wait_until(lambda: all(levels(running).get("share.version") == 1 for _ in range(5)), "the lower level")
        assert not levels(running).get("streams.version")
        code, output = running.run(Verb("kafka-features", "upgrade --feature share.version=2"))
        assert code == 1 and "only supports versions 0-1" in output, output
        assert levels(running)["share.version"] == 1
        del cluster.trees[2]
        cluster.nodes[2].terminate()
        cluster.restart(2)
        wait_until(
            lambda: levels(running).get("share.version") == 2 and levels(running).get("streams.version") == 1,
            "the new levels",
        )
        # A level that was chosen holds on all nodes, and after a restart.
        code, output = running.run(Verb("kafka-features", "downgrade --feature share.version=1"))
        assert code == 0, output
        wait_until(lambda: all(levels(running)["share.version"] == 1 for _ in range(5)), "the chosen level")
        cluster.nodes[1].terminate()
        cluster.restart(1)
        wait_until(lambda: all(levels(running).get("share.version") == 1 for _ in range(5)), "the chosen level")
        # A node of the old code that comes back takes its level with it.
        cluster.trees[3] = tmp_path / "older"
        cluster.nodes[3].terminate()
        cluster.restart(3)
        wait_until(lambda: not levels(running).get("streams.version"), "the old node's level")
