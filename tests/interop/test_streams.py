"""Kafka Streams, exactly once, while brokers and instances of the application are killed."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kafkalite.testing.apache_kafka import JavaProcess, tool_command
from kafkalite.testing.processes import Process, ProcessCluster

from .conftest import seen_by

pytestmark = [pytest.mark.cluster]

_SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 300,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "zookeeper.session.timeout.ms": 6000,
    "log.retention.check.interval.ms": 1000,
}
_MAIN = "CountNumbers"
_KEYS = 20


class _Instance(JavaProcess):
    """One instance of the application."""

    def __init__(self, classes: str, bootstrap: str, directory: Path, name: str, *, is_static: bool) -> None:
        self.state = directory / name
        arguments = ["run", bootstrap, str(self.state), "classic", *([name] if is_static else [])]
        super().__init__(f"instance {name}", classes, _MAIN, arguments, directory / f"{name}.log")

    def restored(self) -> int:
        """Records that it read from changelogs before it went on."""
        return sum(map(int, re.findall(r"^restored (\d+)", self.log_path.read_text(), re.MULTILINE)))


async def test_counts_stay_exact_while_brokers_and_instances_are_killed(service_classes: str, tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=3, settings=_SETTINGS) as cluster:
        bootstrap = ",".join(cluster.bootstrap)

        def command(*arguments: str) -> list[str]:
            return tool_command(service_classes, _MAIN, *arguments)

        async def read(number: int) -> dict[str, Any]:
            """What a reader of what is committed sees once that many numbers are counted."""
            return await seen_by(command("read", bootstrap, str(number)))

        async def goes_on(counted: int) -> int:
            seen: int = (await read(counted + 500))["seen"]
            return seen

        async def roles() -> dict[str, Any]:
            return await seen_by(command("topics", bootstrap))

        async def kill(process: Process) -> None:
            await asyncio.to_thread(process.kill)

        async def start(*those: JavaProcess) -> None:
            for instance in those:
                instance.launch()
            for instance in those:
                await asyncio.to_thread(instance.wait_ready, 120)

        def restored() -> int:
            return sum(instance.restored() for instance in instances)

        feeder = await asyncio.create_subprocess_exec(
            *command("feed", bootstrap), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert feeder.stdin is not None and feeder.stdout is not None
        instances = [
            _Instance(service_classes, bootstrap, tmp_path, name, is_static=name == "static")
            for name in ("static", "dynamic")
        ]
        try:
            assert json.loads(await feeder.stdout.readline()) == {"feeding": True}
            await start(*instances)
            counted = await goes_on(0)

            leader = (await roles())["topics"]["count-numbers-totals-changelog"]["leader"]
            await kill(cluster.nodes[leader])
            counted = await goes_on(counted)
            cluster.restart(leader)

            # With its id it comes back as the same member; without, as one that the group has to miss first.
            for instance in instances:
                await kill(instance)
                counted = await goes_on(counted)
                await start(instance)
                counted = await goes_on(counted)

            coordinator = (await roles())["coordinator"]
            await kill(cluster.nodes[coordinator])
            counted = await goes_on(counted)
            cluster.restart(coordinator)

            # Taken for dead with a transaction open; what it still wants to write afterwards must not count.
            instances[1].signal(signal.SIGSTOP)
            counted = await goes_on(counted)
            instances[1].signal(signal.SIGCONT)
            counted = await goes_on(counted)

            # As on new hosts, and no standby is left to take over: all there is comes from the changelogs, compacted.
            before = restored()
            for instance in instances:
                await kill(instance)
            for instance in instances:
                shutil.rmtree(instance.state)
            await start(*instances)
            # Two stores, which without the cleaner would have a record each for every number.
            assert _KEYS <= restored() - before < 2 * counted
            counted = await goes_on(counted)

            feeder.stdin.close()
            sent = json.loads((await feeder.stdout.read()).splitlines()[-1])["sent"]
            assert await feeder.wait() == 0
            await read(sent)
            made = (await roles())["topics"]
            assert [await asyncio.to_thread(each.terminate, 60) for each in instances] == [143, 143]
            # A thread of its own writes the last change of state.
            assert all("closed" in each.log_path.read_text().splitlines()[-2:] for each in instances)
        finally:
            for instance in instances:
                instance.kill()
            if feeder.returncode is None:
                feeder.kill()
                await feeder.wait()
        seen = await read(sent)

    print(seen, made, restored())
    assert seen["wrong"] == []
    assert seen["seen"] == sent
    assert seen["counts"] == {str(key): len(range(key, sent, _KEYS)) for key in range(_KEYS)}
    policies = {name.removeprefix("count-numbers-"): topic["cleanup.policy"] for name, topic in made.items()}
    assert policies.pop("per-hour-changelog") in ("compact,delete", "delete,compact")
    assert policies == {"totals-changelog": "compact", "by-key-repartition": "delete"}
    assert {(topic["partitions"], topic["replicas"]) for topic in made.values()} == {(4, 3)}
    repartition = made["count-numbers-by-key-repartition"]
    assert repartition["retention.ms"] == "-1"
    assert repartition["purged"] > 0
