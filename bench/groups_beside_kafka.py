"""Groups beside Apache Kafka: rebalances of a group of 100, and a share group's throughput.

    python -m bench.groups_beside_kafka [--members 100] [--partitions 300] [--records 1000000] [--rounds 3] [--json FILE]

Three nodes of each system run all the time. In each round every row is measured on each of them in turn. The members are librdkafka
(confluent-kafka) in one process, with the classic and with the consumer protocol: all of them join a new group, one more joins, one leaves, and one
in a process of its own is killed with -9 (its session of 6 s is part of the figure). A figure is the time until every partition has exactly one
owner again, and the processor time of all nodes. Share groups: Kafka's own producer-perf-test fills a topic, its
share-consumer-perf-test reads it with several threads. Fetches of many idle partitions: `bench.beside_kafka --rows partitions`.
Needs Java, Maven and pip (confluent-kafka).
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from bench.beside_kafka import console, markdown, table
from bench.beside_kafka_rows import Row
from bench.figures import json_option, write_json
from bench.peers import CACHE, ROOT, KafkaSide, PeerLoad, Side, scratch_python
from kafkalite.testing.apache_kafka import (
    NEWEST_VERSION,
    tool_command,
    tools_class_path,
)

SESSION_MS = 6_000
#: Of both systems; kafkalite takes the names that it has.
SETTINGS = {
    "offsets.topic.num.partitions": 10,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "share.coordinator.state.topic.num.partitions": 10,
}
_ONLY_KAFKA = {"share.coordinator.state.topic.replication.factor": 3, "share.coordinator.state.topic.min.isr": 2}


def _members(side: Side, name: str, protocol: str) -> PeerLoad:
    return PeerLoad(scratch_python(), "groups_load.py", side.bootstrap, name, name, protocol, SESSION_MS)


def _cpu(side: Side) -> float:
    return sum(side.cpu_seconds())


def rebalances(side: Side, protocol: str, count: int, partitions: int) -> Row:
    """Seconds until a group is whole again after each change, and the nodes' processor time for them, in ms."""
    name = f"{protocol}-{time.monotonic_ns()}"
    found: Row = {}

    def note(what: str, measure: Callable[[], float]) -> None:
        before = _cpu(side)
        found[f"{what}, s"] = measure()
        found[f"{what}, ms of the nodes' CPU"] = (_cpu(side) - before) * 1000

    with (
        contextlib.closing(_members(side, name, protocol)) as members,
        contextlib.closing(_members(side, name, protocol)) as lone,
    ):
        members.ask("make", {"partitions": partitions})
        note(f"{count} join", lambda: members.ask("start", {"members": count}))
        note("one joins", lambda: members.ask("join"))
        note("one leaves", lambda: members.ask("leave"))

        def killed() -> float:
            # The lone member is in when those here have lost some partitions.
            lone.send("start", {"members": 1})
            members.ask("wait", {"elsewhere": -(-partitions // (count + 1))})
            since = time.time()
            lone.close()
            return float(members.ask("wait", {"since": since}))

        note(f"one is killed (session {SESSION_MS // 1000} s)", killed)
        members.ask("end")
    return found


def _tool(name: str, *arguments: str) -> str:
    command = tool_command(tools_class_path(CACHE), f"org.apache.kafka.tools.{name}", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{name}: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def share_throughput(side: Side, records: int, threads: int) -> Row:
    """Records that a share group gets per second, by Kafka's own tool, and the nodes' processor time per 1,000 records."""
    name = f"share-{time.monotonic_ns()}"
    at = ["--bootstrap-server", side.bootstrap]
    _tool("TopicCommand", *at, "--create", "--topic", name, "--partitions", "6", "--replication-factor", "3")
    shape = ["--num-records", str(records), "--record-size", "100", "--throughput", "-1"]
    _tool("ProducerPerformance", *at, "--topic", name, *shape)
    settings = ["--add-config", "share.auto.offset.reset=earliest"]
    _tool("ConfigCommand", *at, "--alter", "--group", name, *settings)
    before = _cpu(side)
    printed = _tool(
        "ShareConsumerPerformance", *at, "--topic", name, "--group", name, "--num-records", str(records),
        "--threads", str(threads), "--timeout", "60000", "--hide-header",
    )  # fmt: skip
    cpu = _cpu(side) - before
    fields = printed.strip().splitlines()[-1].split(", ")
    per_second, read = float(fields[4]), float(fields[5])
    return {
        "records/s": per_second,
        "records": read,
        "ms of the nodes' CPU per 1,000 records": cpu * 1e6 / max(read, 1.0),
    }


@click.command(help=__doc__)
@click.option("--kafka", "version", default=NEWEST_VERSION, show_default=True, help="empty: only the checkouts")
@click.option("--tree", "trees", type=click.Path(path_type=Path, exists=True), multiple=True)
@click.option("--members", default=100, show_default=True)
@click.option("--partitions", default=300, show_default=True)
@click.option("--records", default=1_000_000, show_default=True, help="of a share group's topic")
@click.option("--threads", default=4, show_default=True, help="of share-consumer-perf-test")
@click.option("--rounds", default=3, show_default=True)
@click.option("--rows", default="", help="only rows that match this regular expression")
@json_option
def main(
    version: str,
    trees: tuple[Path, ...],
    members: int,
    partitions: int,
    records: int,
    threads: int,
    rounds: int,
    rows: str,
    json_file: Path | None,
) -> None:
    measured: dict[str, Callable[[Side], Row]] = {
        "classic group": lambda side: rebalances(side, "classic", members, partitions),
        "consumer group": lambda side: rebalances(side, "consumer", members, partitions),
        "share group": lambda side: share_throughput(side, records, threads),
    }
    found: dict[str, dict[str, list[Row]]] = {}
    with tempfile.TemporaryDirectory(prefix="groups-") as scratch, contextlib.ExitStack() as stack:
        sides: list[Side] = [
            Side(
                Path(scratch) / f"side-{number}", tree.resolve(), settings=SETTINGS | {"default.replication.factor": 3}
            )
            for number, tree in enumerate(trees or (ROOT,))
        ]
        if version:
            sides.append(KafkaSide(Path(scratch) / "kafka", version, settings=SETTINGS | _ONLY_KAFKA))
        for side in sides:
            stack.enter_context(side.cluster)
        for number in range(rounds):
            for name, measure in measured.items():
                if not re.search(rows, name):
                    continue
                by_name = found.setdefault(name, {side.name: [] for side in sides})
                for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                    row = measure(side)
                    by_name[side.name].append(row)
                    cells = ", ".join(f"{column} {value:,.2f}" for column, value in row.items())
                    console.print(f"{name}: {side.name}: {cells}; load {os.getloadavg()[0]:.1f}", highlight=False)
        names = [side.name for side in sides]
    console.print(table(found, names))
    print(markdown(found, names))
    write_json(found, json_file)


if __name__ == "__main__":
    main()
