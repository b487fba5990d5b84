"""One run: a cluster, its load, a schedule, and the count of everything when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.network import NetworkedCluster, VirtualNetwork, available
from kafkalite.testing.numbered_records import TOPIC, Census, Tally, census, produce
from kafkalite.testing.processes import ProcessCluster
from kafkalite.testing.schedules.clocks import ClockedCluster, library
from kafkalite.testing.schedules.ensemble import EnsembleCluster, small_disk
from kafkalite.testing.schedules.stage import SCHEDULES, SETTINGS, Schedule, Stage
from kafkalite.testing.schedules.transactions import TransactionLoad

PARTITIONS = 6
#: More than any node has been seen to need (about 120 MB), less than a leak would take.
MEMORY_BOUND_BYTES = 400 << 20


@dataclass
class ScheduleVerdict:
    """What was found when it was over; `wrong` says what should not be."""

    tally: Tally
    census: Census
    healed_s: float
    peak_memory_bytes: int
    wrong: list[str]


def replica_bytes(cluster: ProcessCluster) -> Iterator[tuple[str, dict[int, bytes]]]:
    """Each partition of the topic, with what each node's segments hold, joined."""
    for partition in range(PARTITIONS):
        name = f"{TOPIC}-{partition}"
        copies = {}
        for broker_id in cluster.nodes:
            (where,) = (cluster.directory / f"node-{broker_id}").glob(f"*/{name}")
            copies[broker_id] = b"".join(path.read_bytes() for path in sorted(where.glob("*.log")))
        yield name, copies


async def _problems(cluster: ProcessCluster, deadline_s: float = 60.0) -> list[str]:
    """What health reports, once it has had time to be well."""
    until = time.monotonic() + deadline_s
    async with AsyncClient.connect(cluster.bootstrap) as client:
        while True:
            found = [f"node {node}: not asked" for node in cluster.nodes]
            with contextlib.suppress(KafkaliteError, OSError):
                answers = await client.health(timeout_s=10)
                found = [f"node {node} gave no health" for node in cluster.nodes.keys() - answers.keys()]
                for node, answer in answers.items():
                    if isinstance(answer, KafkaliteError):
                        found.append(f"node {node}: {answer}")
                    else:
                        # A znode under /config that was put right by hand is read again at the next change of settings.
                        found += [f"node {node}: {each}" for each in answer.problems if each.what != "znode.malformed"]
            if not found or time.monotonic() > until:
                return found
            await asyncio.sleep(0.2)


def _cluster(schedule: Schedule, directory: Path, stack: contextlib.ExitStack) -> ProcessCluster:
    """What the schedule asks for, started; it ends with the stack."""
    settings = dict(SETTINGS)
    if schedule.transactions:
        settings["transaction.state.log.num.partitions"] = 5
    if schedule.clocks:
        settings["log.retention.check.interval.ms"] = 1_000  # what goes by the wall clock is to go wrong soon
        # A leader whose clock is behind refuses records from an hour ahead (by default, as Kafka does): correct, and not asked here.
        settings["message.timestamp.after.max.ms"] = 2**63 - 1
    if schedule.hosts:
        network = stack.enter_context(VirtualNetwork(["n1", "n2", "n3", "zk"]))
        return stack.enter_context(NetworkedCluster(directory, network, settings=settings))
    if schedule.small_zookeeper_disk:
        stack.enter_context(small_disk(directory / "zookeeper"))
    if schedule.clocks:
        return stack.enter_context(ClockedCluster(directory, nodes=3, settings=settings))
    if schedule.zookeepers > 1:
        return stack.enter_context(EnsembleCluster(directory, schedule.zookeepers, settings=settings))
    return stack.enter_context(ProcessCluster(directory, nodes=3, settings=settings, log_dirs=schedule.log_dirs))


def lacking(name: str) -> str:
    """What a schedule needs and this machine does not have; "" if it can be played."""
    if SCHEDULES[name].hosts and not available():
        return "root, iproute2 and nsenter"
    if SCHEDULES[name].small_zookeeper_disk and os.geteuid() != 0:
        return "root"
    if SCHEDULES[name].clocks and library() is None:
        return "libfaketime"
    return ""


async def run(
    name: str, directory: Path, *, seed: int, rate: float, pace: float, say: Callable[[str], None]
) -> ScheduleVerdict:
    """Cluster, load, the schedule, healing, census."""
    schedule = SCHEDULES[name]
    tally = Tally()
    with contextlib.ExitStack() as stack:
        cluster = _cluster(schedule, directory, stack)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"})])
        await wait_in_sync(cluster, TOPIC, 3)
        stage = Stage(cluster, random.Random(seed), say, tally, pace)
        transactions = TransactionLoad(cluster) if schedule.transactions else None
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(cluster, tally, enough, rate=rate))
            if transactions is not None:
                await transactions.start()
            await stage.progress()
            try:
                await schedule.play(stage)
                ended = time.monotonic()
                await wait_in_sync(cluster, TOPIC, 3)
            finally:
                enough.set()
                if transactions is not None:
                    await transactions.stop()
        healed_s = time.monotonic() - ended
        wrong = list(stage.notes)
        wrong += [f"node {each} ended\n{node.log_tail()}" for each, node in cluster.nodes.items() if not node.running]
        wrong += await _problems(cluster)
        found = await census(cluster, tally)
        if not found.clean:
            wrong.append(
                f"lost {found.lost[:10]} twice {found.duplicates[:10]} out of order {found.disordered[:10]} "
                f"moved {found.moved[:10]}"
            )
        wrong += [f"{len(tally.failed)} records failed"] if tally.failed else []
        if transactions is not None:
            wrong += await transactions.problems()
            say(
                f"  {len(transactions.committed)} groups of transactions committed, {len(transactions.aborted)} aborted"
            )
        peak = max(node.peak_memory_bytes() for node in cluster.nodes.values() if node.running)
        if peak > MEMORY_BOUND_BYTES:
            wrong.append(f"a node took {peak >> 20} MB")
        wrong += [
            f"{each}: replicas differ: { {k: len(v) for k, v in copies.items()} }"
            for each, copies in replica_bytes(cluster)
            if len(set(copies.values())) > 1
        ]
        for broker_id in cluster.nodes:
            log = cluster.nodes[broker_id].log_path.read_text(errors="replace")
            wrong += [f"node {broker_id} logged a traceback"] if "Traceback" in log else []
    return ScheduleVerdict(tally, found, healed_s, peak, wrong)
