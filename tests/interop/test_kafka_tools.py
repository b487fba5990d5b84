"""Each verb of Kafka's own command line tools (4.4.0) against three nodes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from kafkalite.testing.apache_kafka import tool_command, tools_class_path
from kafkalite.testing.processes import ProcessCluster

from .conftest import _base, compiled
from .kafka_tools import CLASSES, Verb, page, verbs

pytestmark = [pytest.mark.timeout(1500), pytest.mark.cluster]

SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 100,
    "group.streams.initial.rebalance.delay.ms": 100,
    "default.replication.factor": 3,
    "super.users": "User:ANONYMOUS",
    "authorizer.enabled": "true",
}


class Tools:
    """One JVM that runs tools, one at a time."""

    def __init__(self, classes: str, bootstrap: str, log: IO[bytes]) -> None:
        self._bootstrap = bootstrap
        self._jvm = subprocess.Popen(
            tool_command(classes, "RunTools"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )

    def run(self, verb: Verb) -> tuple[int, str]:
        """Exit code and output."""
        assert self._jvm.stdin is not None and self._jvm.stdout is not None
        arguments = verb.arguments.replace("{b}", self._bootstrap).split(" ") if verb.arguments else []
        if not verb.alone:
            arguments = ["--bootstrap-server", self._bootstrap, *arguments]
        fields = [str(verb.seconds), CLASSES[verb.tool], verb.stdin, *arguments]
        line = "\t".join(fields).replace("\n", "\\n") + "\n"
        self._jvm.stdin.write(line.encode())
        self._jvm.stdin.flush()
        code, length = self._jvm.stdout.readline().split()
        return int(code), self._jvm.stdout.read(int(length)).decode(errors="replace")

    def close(self) -> None:
        self._jvm.kill()
        self._jvm.communicate()


@contextmanager
def tools(bootstrap: str, directory: Path) -> Iterator[Tools]:
    directory.mkdir(exist_ok=True)
    with (directory / "tools.log").open("wb") as log:
        running = Tools(compiled("java-tools", tools_class_path(_base())), bootstrap, log)
        try:
            yield running
        finally:
            running.close()


def run_all(bootstrap: str, directory: Path) -> list[tuple[Verb, int, str]]:
    """Every verb with its exit code and output, which are also in a file."""
    found = []
    with tools(bootstrap, directory) as running, (directory / "output.txt").open("w") as file:
        for verb in verbs(directory):
            code, output = running.run(verb)
            found.append((verb, code, output))
            file.write(f"@@ {verb.tool} {verb.arguments} -> {code}\n{output}\n")
            file.flush()
    return found


def test_every_verb_of_kafkas_tools(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path / "kafkalite", nodes=3, settings=SETTINGS) as cluster:
        found = run_all(",".join(cluster.bootstrap), tmp_path / "tools")
    wrong = {
        f"{verb.tool} {verb.arguments}": (code, output[-1500:])
        for verb, code, output in found
        if (code not in (0, 1) if verb.code is None else code != verb.code) or not re.search(verb.expects, output)
    }
    assert wrong == {}
    assert (Path(__file__).parents[2] / "docs" / "kafka-tools.md").read_text() == page()
    assert len(found) > 150 and {verb.tool for verb, _, _ in found} == CLASSES.keys()


if __name__ == "__main__":
    import sys

    run_all(sys.argv[1], Path(sys.argv[2]))
