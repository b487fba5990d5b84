"""Hours of faults under other people's clients.

    python -m bench.soak [--minutes 120] [--seed N] [--rate 100] [--flush] [--without-java] [--ensemble]

Four nodes with two disks each and a ZooKeeper, every one on a host of its own (network namespaces: needs root). librdkafka and Kafka's
Java client write and read: numbered records, transactions, an exactly-once pipeline that is killed, compacted topics with
tombstones and with settings that change, retention, DeleteRecords, committed offsets. After each fault everything must be in sync again
and go on. In the end everything is read and compared; memory and descriptors are sampled all the time. Exit code 1 if anything is wrong.
With --ensemble there are three ZooKeeper servers, and the faults are theirs (`ensembles`).
The schedule comes from the seed; what the processes make of it does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from bench.peers import CACHE, scratch_python
from bench.soak.checks import steady
from bench.soak.disks import LoopDisk, with_own_mounts
from bench.soak.disks import available as disks_available
from bench.soak.ensembles import ENSEMBLE, EnsembleStage
from bench.soak.faults import ANYWHERE, EVERYWHERE_FLUSHED, WITH_DISKS, SoakStage
from kafkalite.testing.apache_kafka import java, newest_client_class_path
from kafkalite.testing.network import NetworkedCluster, VirtualNetwork, available
from kafkalite.testing.network_ensemble import EnsembleNetwork

Stage = TypeVar("Stage", bound=SoakStage)
FaultOf = Callable[[Stage], str]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NODES, LOG_DIRS = 4, 2
SERVERS = 3
DISK_MB = 400
SAMPLE_S = 5.0
#: After a fault, until everything is in sync and goes on.
PATIENCE_S = 180
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": 6_000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 8,
    "transaction.state.log.num.partitions": 8,
    "log.retention.check.interval.ms": 5_000,
    "group.initial.rebalance.delay.ms": 0,
    # By default a day: the small disks would be full of replicas that were set aside before two hours are over.
    "stray.delete.delay.ms": 1_200_000,
}


class SoakLoad:
    """The process with the workloads."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=ROOT
        )
        self.started = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"the load has ended: {Path(self._log.name).read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


class SoakSampler:
    """Resident memory (MB) and descriptors of every node, every few seconds.

    How many files a node has open follows from the replicas that it holds, and those move. So what may not grow are the descriptors that
    are not the one of a file that is there: connections, a file that is deleted, a file that is open twice.
    """

    def __init__(self, cluster: NetworkedCluster) -> None:
        self._cluster = cluster
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.memory: dict[int, list[float]] = defaultdict(list)
        self.descriptors: dict[int, list[float]] = defaultdict(list)
        self.besides_files: dict[int, list[float]] = defaultdict(list)

    def __enter__(self) -> SoakSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._enough.wait(SAMPLE_S):
            for node, process in list(self._cluster.nodes.items()):
                with contextlib.suppress(OSError, AssertionError):
                    memory = process.memory_bytes() / (1 << 20)
                    targets = [os.readlink(descriptor) for descriptor in Path(f"/proc/{process.pid}/fd").iterdir()]
                    files = {
                        target
                        for target in targets
                        if target.startswith(f"{self._cluster.directory.resolve()}/")
                        and not target.endswith(" (deleted)")
                    }
                    if memory:
                        self.memory[node].append(memory)
                        self.descriptors[node].append(float(len(targets)))
                        self.besides_files[node].append(float(len(targets) - len(files)))

    def findings(self) -> list[str]:
        """What grows."""
        return [
            line
            for node in self.memory
            for line in (
                *steady(f"node {node} memory, MB", self.memory[node], allowance=30),
                *steady(f"node {node} descriptors besides its files", self.besides_files[node], allowance=60),
            )
        ]

    def table(self) -> Iterator[str]:
        """Per node: the median and the largest."""
        for node in sorted(self.memory):
            memory, descriptors = sorted(self.memory[node]), sorted(self.descriptors[node])
            middle = len(memory) // 2
            yield (
                f"  node {node}: {memory[middle]:.0f} MB (largest {memory[-1]:.0f}), "
                f"{descriptors[middle]:.0f} descriptors (largest {descriptors[-1]:.0f}), {len(memory)} samples"
            )


def java_command() -> list[str]:
    """The command of the Java workload, compiled; with the newest Java client."""
    classes = newest_client_class_path(CACHE)
    target = CACHE / "soak-java"
    target.mkdir(parents=True, exist_ok=True)
    javac = shutil.which("javac")
    if javac is None:
        raise click.ClickException("no javac: install a JDK, or use --without-java")
    subprocess.run([javac, "-cp", classes, "-d", str(target), str(HERE / "JavaTransactions.java")], check=True)
    return [java(), "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{target}", "JavaTransactions"]


def drawn(rng: random.Random, kinds: list[FaultOf[Stage]]) -> Iterator[FaultOf[Stage]]:
    """Each kind once in random order, then again, without an end."""
    while True:
        yield from rng.sample(kinds, len(kinds))


def play(
    stage: Stage, load: SoakLoad, kinds: list[FaultOf[Stage]], until: float
) -> tuple[dict[str, list[float]], list[str]]:
    """The faults that were done, each with the seconds until everything was in sync; and what was wrong afterwards."""
    done: dict[str, list[float]] = defaultdict(list)
    findings: list[str] = []
    began = time.monotonic()
    for fault in drawn(stage.rng, kinds):
        if time.monotonic() > until:
            break
        name = fault.__name__.replace("_", " ")
        at = time.monotonic() - began
        if isinstance(stage, EnsembleStage):
            stage.kind = name
        detail = fault(stage)
        answer = load.ask(f"sync {PATIENCE_S}")
        done[name].append(float(answer["seconds"]))
        stage.say(f"{at:7.0f} s  {name} {detail}: in sync after {answer['seconds']} s, {answer['acked']} acked")
        if answer["missing"] or not answer["goes_on"]:
            missing = answer["missing"][:6]
            findings.append(f"after {name} {detail} at {at:.0f} s: missing {missing}, goes on: {answer['goes_on']}")
            stage.say(f"  WRONG {findings[-1]}")
        ended = [node for node, process in stage.cluster.nodes.items() if not process.running]
        for node in ended:
            findings.append(f"node {node} ended after {name}: {stage.cluster.nodes[node].log_tail(5)}")
            stage.cluster.restart(node)
        stage.sleep(1, 6)
    return done, findings


def table(done: dict[str, list[float]], stage: SoakStage) -> Iterator[str]:
    """One line for each kind of fault."""
    named = stage.named if isinstance(stage, EnsembleStage) else {}
    yield f"  {'fault':26} {'times':>5} {'median s':>9} {'longest s':>9}  health"
    for name, seconds in sorted(done.items()):
        problems = ", ".join(f"{what} x{count}" for what, count in sorted(named.get(name, {}).items()))
        yield f"  {name:26} {len(seconds):5} {statistics.median(seconds):9.1f} {max(seconds):9.1f}  {problems}"


def differing(cluster: NetworkedCluster, topics: tuple[str, ...]) -> list[str]:
    """Replicas whose segments are not byte for byte the same (topics without compaction and retention)."""
    found = []
    for topic in topics:
        for partition in range(4):
            copies = {
                where.parent.parent.name: b"".join(path.read_bytes() for path in sorted(where.glob("*.log")))
                for where in cluster.directory.glob(f"node-*/disk-*/{topic}-{partition}")
            }
            if len(copies) != 3 or len(set(copies.values())) != 1:
                found.append(f"{topic}-{partition} DIFFERS: { {name: len(each) for name, each in copies.items()} }")
    return found


def wanted(names: str, kinds: list[FaultOf[Stage]]) -> list[FaultOf[Stage]]:
    """Those of these names; all of them without names."""
    chosen = {name.strip().replace("-", "_") for name in names.split(",") if name.strip()}
    return [kind for kind in kinds if not chosen or kind.__name__ in chosen]


@click.command()
@click.option("--minutes", default=120.0, show_default=True)
@click.option("--seed", default=None, type=int, help="Default: drawn, and printed.")
@click.option(
    "--rate", default=100.0, show_default=True, help="Numbered records a second; the other workloads follow it."
)
@click.option("--flush", is_flag=True, help="log.flush.before.ack=true; the power of all hosts goes at once, too.")
@click.option(
    "--java/--without-java", "with_java", default=True, show_default=True, help="Kafka's Java client takes part."
)
@click.option("--ensemble", is_flag=True, help="Three ZooKeeper servers; the faults are theirs.")
@click.option("--faults", default="", help="Only these, by name, with commas.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=None,
    help="It is kept. Default: a temporary one, kept if anything is found.",
)
def main(
    *,
    minutes: float,
    seed: int | None,
    rate: float,
    flush: bool,
    with_java: bool,
    ensemble: bool,
    faults: str,
    directory: Path | None,
) -> None:
    """Every fault under other people's clients; then everything is counted."""
    if not available():
        raise click.ClickException("network namespaces are needed: run as root, with iproute2 and nsenter")
    seed = seed if seed is not None else random.SystemRandom().randrange(10**6)
    has_disks = disks_available()
    if has_disks:
        with_own_mounts("bench.soak", sys.argv[1:])
    kinds = [*ANYWHERE, *(WITH_DISKS if has_disks else ()), *(EVERYWHERE_FLUSHED if flush and has_disks else ())]
    kinds, ensemble_kinds = wanted(faults, kinds), wanted(faults, list(ENSEMBLE))
    if not (ensemble_kinds if ensemble else kinds):
        raise click.ClickException(f"no such fault: {faults}")
    say = click.echo
    say(
        f"soak: {minutes:.0f} min, seed {seed}, {rate:.0f} records/s, flush {flush}, disks {has_disks}, Java {with_java}"
    )
    findings: list[str] = []
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = made = Path(tempfile.mkdtemp(prefix="kafkalite-soak-"))

            def remove() -> None:
                if not findings:
                    shutil.rmtree(made)

            stack.callback(remove)
        directory.mkdir(parents=True, exist_ok=True)
        disks: dict[int, list[LoopDisk]] = defaultdict(list)
        if has_disks:
            for node in range(1, NODES + 1):
                for number in range(LOG_DIRS):
                    image = directory / f"image-{node}-{number}"
                    mount = directory / f"node-{node}" / f"disk-{number}"
                    disks[node].append(stack.enter_context(LoopDisk(image, mount, DISK_MB)))
        zookeepers = [f"zk{number + 1}" for number in range(SERVERS)] if ensemble else ["zk"]
        network = stack.enter_context(VirtualNetwork([*(f"n{node + 1}" for node in range(NODES)), *zookeepers]))
        settings = SETTINGS | ({"log.flush.before.ack": True} if flush else {})
        made_of = EnsembleNetwork if ensemble else NetworkedCluster
        cluster = made_of(directory, network, nodes=NODES, settings=settings, log_dirs=LOG_DIRS)
        stack.enter_context(cluster)
        command = [str(scratch_python()), "-m", "bench.soak.load", ",".join(cluster.bootstrap), str(NODES)]
        command += [str(seed), str(rate), "flush" if flush else "-", *(java_command() if with_java else ())]
        load = SoakLoad(command, directory / "load.log")
        stack.callback(load.close)
        stage: SoakStage
        with SoakSampler(cluster) as sampler:
            until = time.monotonic() + minutes * 60
            if ensemble:
                stage = several = EnsembleStage(cluster, disks, random.Random(seed), say)
                done, findings = play(several, load, ensemble_kinds, until)
                findings += several.unnamed
            else:
                stage = SoakStage(cluster, disks, random.Random(seed), say)
                done, findings = play(stage, load, kinds, until)
        verdict = load.ask("stop")
        findings += [*verdict["findings"], *sampler.findings(), *differing(cluster, ("numbered", "transactions"))]
        findings += [
            f"node {node} logged a traceback"
            for node, process in cluster.nodes.items()
            if "Traceback" in process.log_path.read_text(errors="replace")
        ]
        for line in table(done, stage):
            say(line)
        say("counts: " + ", ".join(f"{name} {count}" for name, count in sorted(verdict["counts"].items())))
        for line in sampler.table():
            say(line)
    for finding in findings:
        say(f"FOUND {finding}")
    say(f"{len(findings)} findings" + (f"; logs and data: {directory}" if findings else ""))
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
