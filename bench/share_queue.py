"""A queue of a million records, drained by a hundred librdkafka share consumers, while consumers and nodes are killed.

    python -m bench.share_queue [--records 1000000] [--members 100] [--faults 8] [--seed N]

Three processes and a real ZooKeeper. The members are confluent-kafka's ShareConsumer in four processes, with explicit acknowledgements: a
member takes what poll() gives, works on it for a while (--work), and commits. A fault comes every few seconds: a node is killed with -9, stopped
or paused, or a process of members is killed and replaced. Counted are the records whose commit had no error.

None may be missing, but for those that a killed process was just committing. A record may be accepted twice: it was delivered by the leader before
a failover and by the one after it, and a late acknowledgement of what has been acknowledged has no error, as in Apache Kafka
(SharePartition.acknowledge passes over what lies below the start offset). Exit code 1 if a record is missing.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from bench.peers import PeerLoad, scratch_python
from kafkalite.testing.processes import ProcessCluster

TOPIC, GROUP, PARTITIONS, LOADS = "queue", "queue", 12, 4
SETTINGS = {"default.replication.factor": 3, "zookeeper.session.timeout.ms": 6_000}
#: Seconds without a new record after which the queue is taken for stuck: a record lock ends after 30 s.
_STUCK_S = 90.0


def _numbers(path: Path) -> array[int]:
    """Numbers of records, as a process of members wrote them; the last one may be torn."""
    found = array("q")
    if path.exists():
        data = path.read_bytes()
        found.frombytes(data[: len(data) // found.itemsize * found.itemsize])
    return found


class Members:
    """Processes of members. Each writes what it was given to a file, before it commits, and what was accepted to another one."""

    def __init__(self, directory: Path, bootstrap: str, members: int, work_s: float) -> None:
        self._directory = directory
        self._arguments = (bootstrap, TOPIC, GROUP, members // LOADS, work_s)
        self._started = 0
        self.running: dict[int, PeerLoad] = {}
        self.killed: set[int] = set()
        self.errors: Counter[str] = Counter()

    def start(self) -> None:
        number = self._started
        self._started += 1
        path = self._directory / str(number)
        self.running[number] = PeerLoad(scratch_python(), "share_queue_load.py", *self._arguments, path)

    def kill(self, number: int) -> None:
        self.running.pop(number).close()
        self.killed.add(number)

    def end(self) -> None:
        for load in self.running.values():
            load.send("end")
        for load in self.running.values():
            self.errors.update(load.answer())
            load.close()

    def accepted(self) -> Counter[int]:
        """How often each record was accepted."""
        found: Counter[int] = Counter()
        for number in range(self._started):
            found.update(_numbers(self._directory / f"{number}.accepted"))
        return found

    def unanswered(self) -> set[int]:
        """Records that killed processes may have acknowledged without hearing of it."""
        return {record for number in self.killed for record in _numbers(self._directory / f"{number}.committed")}


def faults(random_: random.Random, cluster: ProcessCluster, members: Members) -> Iterator[str]:
    """One after the other, for ever; what was done. A node is back before the next one."""
    while True:
        node = random_.choice(sorted(cluster.nodes))
        process = cluster.nodes[node]
        match random_.choice(("kill", "kill", "terminate", "pause", "members")):
            case "kill":
                process.kill()
                time.sleep(random_.uniform(0.5, 3))
                cluster.restart(node)
                yield f"node {node} killed"
            case "terminate":
                process.terminate()
                cluster.restart(node)
                yield f"node {node} restarted"
            case "pause":
                process.pause()
                time.sleep(random_.uniform(1, 9))
                process.signal(signal.SIGCONT)
                yield f"node {node} paused"
            case "members":
                members.kill(random_.choice(sorted(members.running)))
                members.start()
                yield "members killed"


def drain(cluster: ProcessCluster, members: Members, records: int, most_faults: int, seed: int) -> float:
    """Seconds until all are accepted, or nothing comes any more."""
    began = progressed = time.monotonic()
    breaking = faults(random.Random(seed), cluster, members)
    for _ in range(LOADS):
        members.start()
    known, broken = 0, 0
    while known < records and time.monotonic() - progressed < _STUCK_S:
        time.sleep(3)
        what = next(breaking) if broken < most_faults else ""
        broken += bool(what)
        count = len(members.accepted())
        if count > known:
            known, progressed = count, time.monotonic()
        click.echo(f"{time.monotonic() - began:6.0f} s  {count:9,} of {records:,} accepted  {what}")
        if (
            broken >= most_faults
            and count + len(members.unanswered()) >= records
            and time.monotonic() - progressed > 40
        ):
            break  # what is left may be what killed processes were committing: it does not come again
    return progressed - began


@click.command(help=__doc__)
@click.option("--records", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--members", type=click.IntRange(LOADS), default=100, show_default=True)
@click.option(
    "--work", "work_s", type=click.FloatRange(0), default=1.0, show_default=True, help="Seconds for what a poll gives."
)
@click.option("--faults", "most_faults", type=click.IntRange(0), default=8, show_default=True)
@click.option("--seed", type=int, help="Default: drawn, and printed.")
def main(records: int, members: int, work_s: float, most_faults: int, seed: int | None) -> None:
    seed = random.randrange(2**16) if seed is None else seed
    with tempfile.TemporaryDirectory(prefix="kafkalite-queue-") as scratch:
        directory = Path(scratch)
        with ProcessCluster(directory / "nodes", settings=SETTINGS) as cluster:
            bootstrap = ",".join(cluster.bootstrap)
            crew = Members(directory, bootstrap, members, work_s)
            filler = PeerLoad(
                scratch_python(), "share_queue_load.py", bootstrap, TOPIC, GROUP, 0, 0, directory / "fill"
            )
            filler.ask("fill", records, PARTITIONS)
            filler.close()
            took = drain(cluster, crew, records, most_faults, seed)
            crew.end()
            cpu = sum(node.cpu_seconds() for node in cluster.nodes.values())
        accepted = crew.accepted()
        unanswered = crew.unanswered() - accepted.keys()
        missing = records - len(accepted) - len(unanswered)
    twice = sum(count > 1 for count in accepted.values())
    click.echo(
        f"seed {seed}: {len(accepted):,} of {records:,} records accepted in {took:.0f} s ({len(accepted) / took:,.0f}/s, "
        f"{cpu:.0f} s of the nodes' CPU since their last start), {twice:,} more than once; "
        f"{len(unanswered):,} were being committed by a killed process; {missing:,} missing"
    )
    for error, count in crew.errors.most_common():
        click.echo(f"  {count} x {error}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
