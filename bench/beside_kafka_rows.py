"""The rows of bench.beside_kafka: each takes a `System` and returns figures by name. All clients are librdkafka, franz-go or raw sockets."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import idle_partitions, small_requests
from bench.beside import BOMB_BYTES, HUGE, BesideClient, bomb, helper
from bench.beside_kafka_system import (
    OLD_BYTES,
    OLD_PARTITIONS,
    OLD_RECORDS,
    System,
    loop_queued_ms,
    loop_waited_ms,
    pids,
    waited_for_disk_ms,
    zookeeper_cpu,
)
from bench.creation import create
from bench.peers import KafkaSide, Side, scratch_python, tree_bytes
from kafkalite.protocol import wire
from kafkalite.testing.processes import ProcessCluster

#: Records per second, and their bytes, that the producer beside the cold reader sends.
RATE, STEADY_BYTES = 20_000, 100
MEMORY_DISK = Path("/dev/shm")
Row = dict[str, float]


# --- many partitions ----------------------------------------------------------------------------------------


def many_partitions(system: System, client: str, consumers: int) -> Row:
    """Consumers of many partitions, one of them with 200 records/s: CPU of its leader without the producer's part."""
    found: Row = {}
    for partitions in (30, 1000):
        alone, share = idle_partitions.measure(
            system.side,
            system.load,
            client,
            partitions,
            consumers,
            3.0,
        )
        found[f"{partitions} partitions: % of a core"] = share
        found[f"{partitions}: without the producer's"] = share - alone
    return found


def topics(system: System) -> Row:
    """Topics with one partition and three replicas, 100 per request."""
    used, waited, keeper = system.cpu_seconds(), sum(map(waited_for_disk_ms, pids(system))), zookeeper_cpu(system)
    took = create(system.bootstrap, 500, 100, 1, 3)
    time.sleep(1)  # what goes on after the answer belongs to it
    return {
        "topics/s": 500 / took,
        "ms of CPU per topic": (system.cpu_seconds() - used) / 500 * 1e3,
        "ms of ZooKeeper's CPU per topic": (zookeeper_cpu(system) - keeper) / 500 * 1e3,
        "ms per topic that threads waited for the disk": (sum(map(waited_for_disk_ms, pids(system))) - waited) / 500,
    }


def topics_in_memory(system: System) -> Row:
    """The same on a second cluster whose directories are in memory: what is left is the software's part."""
    scratch = Path(tempfile.mkdtemp(prefix="beside-kafka-", dir=MEMORY_DISK))
    try:
        side = system.make(scratch / "nodes")
        with side.cluster:
            for count in (100, 300):  # the JVM compiles what is hot
                create(side.bootstrap, count, 100, 1, 3)
            time.sleep(1)
            used = sum(side.cpu_seconds())
            took = create(side.bootstrap, 500, 100, 1, 3)
            time.sleep(1)
            return {"topics/s": 500 / took, "ms of CPU per topic": (sum(side.cpu_seconds()) - used) / 500 * 1e3}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# --- cold readers -------------------------------------------------------------------------------------------


def cold_reader(system: System, seconds: float = 6.0) -> Row:
    """A reader that reads 300 MB again and again beside a producer of 20,000 records/s: acknowledgements of the producer.

    For "cold" the page cache drops the 300 MB before each time. The reader's process gives way to others: elsewhere it is another machine, and
    with two cores here its own work would be what is measured. "The files" are the same bytes, as cold, read by that process without a broker:
    what the disk and two cores cost.
    """
    topic = f"steady-{time.monotonic_ns()}"
    system.load.ask("create", system.bootstrap, topic, 1, 3)
    producer, reader = helper(scratch_python()), helper(scratch_python(), 15)
    found: Row = {}
    try:
        settings = {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        producer.ask("victim", system.bootstrap, topic, RATE, settings, STEADY_BYTES)
        time.sleep(2)
        for name in ("no reader", "cold reader", "the same reader, hot", "the files"):
            producer.ask("take")
            waited, queued = sum(map(loop_waited_ms, pids(system))), sum(map(loop_queued_ms, pids(system)))
            used, began = system.cpu_seconds(), time.monotonic()
            took = [0.0]
            while (left := seconds - (time.monotonic() - began)) > 0:
                if name == "no reader":
                    time.sleep(left)
                    continue
                if name != "the same reader, hot":
                    reader.ask("chill", str(system.directory))
                if name == "the files":
                    took.append(reader.ask("read_files", str(system.directory)))
                else:
                    took.append(reader.ask("read_all", system.bootstrap, "old", OLD_PARTITIONS, OLD_RECORDS))
            taken = producer.ask("take")
            for column in ("p50", "p99", "p99.9", "max"):
                found[f"{name}: {column} ms"] = taken[column]
            if name != "no reader":
                found[f"{name}: MB/s"] = OLD_RECORDS * OLD_BYTES * (len(took) - 1) / sum(took) / 1e6
            found[f"{name}: % of a core, all nodes"] = (system.cpu_seconds() - used) / (time.monotonic() - began) * 100
            found[f"{name}: ms that first threads waited for the disk"] = (
                sum(map(loop_waited_ms, pids(system))) - waited
            )
            found[f"{name}: ms that they waited for a processor"] = sum(map(loop_queued_ms, pids(system))) - queued
    finally:
        producer.close()
        reader.close()
    system.load.ask("delete", system.bootstrap, topic)
    return found


# --- hostile requests ---------------------------------------------------------------------------------------


def beside(system: System, act: Callable[[], object]) -> Row:
    """A producer of 100 single records a second while `act` runs: its acknowledgements before, beside and after."""
    victim = helper(scratch_python())
    try:
        victim.ask("victim", system.bootstrap, "victim", 100.0)
        time.sleep(2)
        victim.ask("take")
        time.sleep(2)
        before = victim.ask("take")
        used, began = system.cpu_seconds(), time.monotonic()
        with contextlib.suppress(OSError):  # a broker may close the connection instead of an answer
            act()
        took = time.monotonic() - began
        time.sleep(0.2)
        taken = victim.ask("take")
        used = system.cpu_seconds() - used
        time.sleep(2)
        after = victim.ask("take")
    finally:
        victim.close()
    return {
        "before: p99.9 ms": before["p99.9"],
        "beside: p50 ms": taken["p50"],
        "beside: p99 ms": taken["p99"],
        "beside: p99.9 ms": taken["p99.9"],
        "beside: max ms": taken["max"],
        "after: p99.9 ms": after["p99.9"],
        "s until the answer": took,
        "CPU s": used,
    }


def huge_request(system: System, name: str) -> Row:
    """One legal request with 190,000 elements."""
    make, version = HUGE[name]
    message = make()

    def act() -> None:
        client = BesideClient(system.address_of_leader("victim"))
        client.send(message, version)
        client.receive()
        client.close()

    return beside(system, act)


def all_metadata(system: System) -> Row:
    """128 pipelined requests, on two connections, for all metadata of 3,000 partitions and more."""
    made = [f"many-{time.monotonic_ns()}" for _ in range(10)]
    for topic in made:
        system.load.ask("create", system.bootstrap, topic, 300, 1)

    def act() -> None:
        clients = [BesideClient(system.address_of_leader("victim")) for _ in range(2)]
        for client in clients:
            for _ in range(64):
                client.send(wire.MetadataRequest(None, allow_auto_topic_creation=False), 12)
        for client in clients:
            for _ in range(64):
                client.receive()
            client.close()

    found = beside(system, act)
    for topic in made:
        system.load.ask("delete", system.bootstrap, topic)
    return found


def bombs(system: System) -> Row:
    """Ten zstd batches of some kB that expand to 250 MB each, on a compacted topic; then five look-ups by timestamp in them."""
    topic, data, produce = f"compacted-{time.monotonic_ns()}", bomb(), wire.ProduceRequest
    creatable = wire.CreateTopicsRequest.CreatableTopic
    configs = [wire.CreateTopicsRequest.CreatableTopicConfig("cleanup.policy", "compact")]
    maker = BesideClient(system.address_of_leader("victim"))
    maker.ask(wire.CreateTopicsRequest([creatable(topic, 1, 3, configs=configs)], 30_000), 7)
    maker.close()
    time.sleep(1)
    batch = [produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(0, data)])]

    def act() -> None:
        address = system.address_of_leader(topic)
        clients = [BesideClient(address) for _ in range(10)]
        for client in clients:
            client.send(produce(None, -1, 30_000, batch), 9)
        for client in clients:
            client.receive()
            client.close()

    def look_up() -> None:
        asked = wire.ListOffsetsRequest
        client = BesideClient(system.address_of_leader(topic))
        for _ in range(5):
            client.send(asked(-1, topics=[asked.ListOffsetsTopic(topic, [asked.ListOffsetsPartition(0, -1, 1000)])]), 7)
        for _ in range(5):
            client.receive()
        client.close()

    peak = system.peak_bytes()
    found = beside(system, act)
    found |= {f"by timestamp: {column}": value for column, value in beside(system, look_up).items()}
    return {**found, f"MB more at the peak (a batch has {BOMB_BYTES >> 20})": (system.peak_bytes() - peak) / 2**20}


# --- records ------------------------------------------------------------------------------------------------


def small_records(system: System, factor: int) -> Row:
    """One 1 KiB record per request, five in flight."""
    records = 4_000 if factor > 1 else 10_000
    cost, rate = small_requests.measure(system.side, system.load, factor, records, 5)
    return {"us of CPU per request": cost, "requests/s": rate}


@dataclass(frozen=True)
class Batches:
    """Produce for 3 s, then consume all of it."""

    size: int
    factor: int
    acks: str

    def __call__(self, system: System) -> Row:
        topic, found = f"batches-{time.monotonic_ns()}", {}
        system.load.ask("create", system.bootstrap, topic, 6, self.factor)
        made = 0
        for what in ("produce", "consume"):
            used = system.cpu_seconds()
            if what == "produce":
                done = system.load.ask(what, system.bootstrap, topic, 6, self.size, self.acks, 3.0, 1 << 30)
                made = done["records"]
            else:
                done = system.load.ask(what, system.bootstrap, topic, 6, self.size, made)
            moved, took = done["bytes"], done["seconds"]
            found[f"{what}: MB/s"] = moved / took / 1e6
            found[f"{what}: CPU s/GB"] = (system.cpu_seconds() - used) / moved * 1e9
        system.load.ask("delete", system.bootstrap, topic)
        return found


def acknowledgements(system: System) -> Row:
    """200 single records a second, RF 3, acks=all."""
    topic = f"latency-{time.monotonic_ns()}"
    system.load.ask("create", system.bootstrap, topic, 1, 3)
    found = system.load.ask("latency", system.bootstrap, topic, 1024, "all", 200, 6)
    system.load.ask("delete", system.bootstrap, topic)
    return {f"{name} ms": value for name, value in found.items()}


# --- failover, start, memory --------------------------------------------------------------------------------


def failover(system: System, how: str) -> Row:
    """The leader of a partition ends; how long a librdkafka producer with defaults (100 records/s) hears nothing."""
    topic = f"failover-{time.monotonic_ns()}"
    system.load.ask("create", system.bootstrap, topic, 1, 3)
    leader = system.metadata(topic).topics[0].partitions[0].leader_id
    victim = helper(scratch_python())
    try:
        victim.ask("victim", system.bootstrap, topic, 100.0)
        time.sleep(2)
        victim.ask("take")
        node, began = system.nodes[leader], time.monotonic()
        if how == "kill -9":
            node.kill()
        else:
            node.terminate(60)
        ended = time.monotonic() - began
        until = time.monotonic() + 90
        longest, quiet = 0.0, 0
        while quiet < 3 and time.monotonic() < until:  # three times acknowledgements without a gap
            time.sleep(1)
            taken = victim.ask("take")
            longest = max(longest, taken["silence_s"])
            quiet = quiet + 1 if taken["n"] > 50 and taken["silence_s"] < 0.5 else 0
        failed = victim.ask("stop")["failed"]
    finally:
        victim.close()
        system.revive()
    system.wait_in_sync(topic)
    system.load.ask("delete", system.bootstrap, topic)
    return {"s of silence": longest, "s until the process had ended": ended, "failed records": failed}


def start(system: System) -> Row:
    """One node with all it needs: from nothing, and again on its data, to the first acknowledged record; its idle memory."""
    found: Row = {}
    scratch = Path(tempfile.mkdtemp(prefix="start-", dir=system.directory.parent))
    side = system.make(scratch / "node", nodes=1)  # formats Kafka's directory, which does not count
    cluster = side.cluster
    try:
        began = time.monotonic()
        if isinstance(side, KafkaSide):
            cluster.nodes[1].launch()
        else:
            cluster.start()
        found["first start to the first acknowledgement, s"] = _acknowledged(system, side) - began
        cluster.nodes[1].terminate()
        began = time.monotonic()
        if isinstance(side, KafkaSide):
            cluster.nodes[1].launch()
        else:
            cluster.restart(1, wait=False)
        found["restart to the first acknowledgement, s"] = _acknowledged(system, side) - began
        time.sleep(3)
        node = cluster.nodes[1]
        needed = [node.pid] + (
            [cluster.zookeeper.pid] if isinstance(cluster, ProcessCluster) and cluster.zookeeper else []
        )
        used, began = side.cpu_seconds()[0], time.monotonic()
        time.sleep(5)
        found["idle: % of a core"] = (side.cpu_seconds()[0] - used) / (time.monotonic() - began) * 100
        found["idle node, MB"] = node.memory_bytes() / 2**20
        found["idle with all it needs, MB"] = sum(map(tree_bytes, needed)) / 2**20
    finally:
        cluster.close()
        shutil.rmtree(scratch, ignore_errors=True)
    return found


def _acknowledged(system: System, side: Side) -> float:
    return float(system.load.ask("first_ack", side.bootstrap, "first"))


def memory(system: System) -> Row:
    """The nodes after all rows before it."""
    return {
        "largest node, MB": max(node.memory_bytes() for node in system.nodes.values()) / 2**20,
        "at its peak, MB": system.peak_bytes() / 2**20,
    }


#: In the order of a round: rows that end nodes come last.
ROWS: dict[str, Callable[[System], Row]] = {
    "one 1 KiB record per request, RF 3": lambda system: small_records(system, 3),
    "one 1 KiB record per request, RF 1": lambda system: small_records(system, 1),
    "topics in batches of 100, RF 3": topics,
    "topics in batches of 100, RF 3, directories in memory": topics_in_memory,
    "one franz-go consumer of 30 and 1,000 partitions": lambda system: many_partitions(system, "franz-go", 1),
    "ten franz-go consumers of 30 and 1,000 partitions": lambda system: many_partitions(system, "franz-go", 10),
    "one librdkafka consumer of 30 and 1,000 partitions": lambda system: many_partitions(system, "librdkafka", 1),
    "ten librdkafka consumers of 30 and 1,000 partitions": lambda system: many_partitions(system, "librdkafka", 10),
    "a cold reader beside 20,000 records/s": cold_reader,
    **{f"{name} with 190,000 names": partial(huge_request, name=name) for name in HUGE},
    "pipelined requests for all metadata": all_metadata,
    "ten batches that expand to 250 MB": bombs,
    **{
        f"batches of {name} records, RF {factor}, acks={acks}": Batches(size, factor, acks)
        for name, size in (("1 KiB", 1024), ("100 B", 100)) for factor in (3, 1) for acks in ("all", "1")
    },
    "acknowledgements at 200/s, RF 3, acks=all": acknowledgements,
    "start of one node": start,
    "memory of the three nodes after these rows": memory,
    "failover: kill -9 of the leader": lambda system: failover(system, "kill -9"),
    "failover: SIGTERM of the leader": lambda system: failover(system, "SIGTERM"),
}  # fmt: skip


def median_row(rounds: list[Row]) -> Row:
    """By column; a column that a round lacks (its cluster failed half-way) counts in the others."""
    columns = dict.fromkeys(column for each in rounds for column in each)
    return {column: statistics.median(each[column] for each in rounds if column in each) for column in columns}
