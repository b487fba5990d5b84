"""What the controller's work costs, as counts: they grow with the work, not with what is merely there.

Counted are the controller's operations on ZooKeeper and the bytes that they carry, its commands to brokers, and their bytes.
`docs/performance.md` has the figures for 100,000 partitions that follow from these.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields

from kafkalite.controller.controller import Controller
from kafkalite.coordination import admin_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import Create, SetData
from kafkalite.model import BrokerId, LeaderEpoch, PartitionEpoch, TopicId, TopicPartition
from kafkalite.replica.startup import read_cluster
from kafkalite.rpc.codec import pack
from kafkalite.rpc.messages.control import IsrChange, IsrChangedRequest
from kafkalite.testing.simulated.zookeeper import Fate
from kafkalite.testing.simulated.zookeeper_wire import Read, Request, ZooKeeperWrite
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster, running

PER_TOPIC = 20


@dataclass
class Cost:
    """What one piece of work has caused."""

    reads: int
    writes: int
    transactions: int
    commands: int
    command_bytes: int

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(Cost)))


class Meter:
    """Counts from now on."""

    def __init__(self, cluster: Cluster, controller: Controller) -> None:
        self.cluster = cluster
        self.controller = controller
        self.reads = self.writes = self.transactions = 0
        cluster.zookeeper.decide_fate = self._see

    def _see(self, host: str, request: Request) -> Fate:
        if host == "controller-1":
            if isinstance(request, ZooKeeperWrite):
                self.transactions += 1
                self.writes += sum(isinstance(op, Create | SetData) for op in request.ops)
            elif isinstance(request, Read) and request.verb != "ping":
                self.reads += 1
        return Fate.SERVE

    def total(self) -> Cost:
        commands = [each for broker in self.cluster.brokers.values() for each in broker.commands]
        return Cost(
            self.reads, self.writes, self.transactions, len(commands), sum(len(pack(command)) for command in commands)
        )

    async def settled(self) -> None:
        """Wait until the controller has nothing more to do, and every command is answered."""
        loop = self.controller._event_loop
        assert loop is not None
        loop._tick_due += 3600  # the periodic checks are not part of any of this
        before = None
        while before != self.total() or loop._has_work():
            before = self.total()
            answered = asyncio.Event()
            loop.channels.when_settled(answered.set)
            await answered.wait()
            for _ in range(20):
                await asyncio.sleep(0.001)


def create(cluster: Cluster, first: int, count: int, partitions: int = PER_TOPIC) -> None:
    """Topics with three replicas, in one transaction as TopicAdmin writes them."""
    ops = []
    for number in range(first, first + count):
        replicas = {p: tuple((p + j) % 3 + 1 for j in range(3)) for p in range(partitions)}
        value = topic_znodes.TopicZnode(TopicId(f"id-{number:04d}"), replicas)  # type: ignore[arg-type]
        ops.append(Create(paths.topic(f"t{number:04d}"), topic_znodes.encode_topic(value)))
    cluster.zookeeper.poke(*ops)


async def start_of_a_node(cluster: Cluster, partitions: int) -> Cost:
    """What a node reads to know its roles before it has heard a controller."""
    reads = 0

    def see(host: str, request: Request) -> Fate:
        nonlocal reads
        if host == "starting":
            assert not isinstance(request, ZooKeeperWrite)
            reads += isinstance(request, Read) and request.verb not in ("ping", "close")
        return Fate.SERVE

    cluster.zookeeper.decide_fate = see
    snapshot = await read_cluster(await cluster.connect("starting"))
    assert snapshot.is_complete and len(snapshot.partitions) == partitions
    return Cost(reads, 0, 0, 0, 0)


async def measured(partitions: int) -> dict[str, Cost]:
    """The cost of everything in a cluster of this number of partitions."""
    cluster = Cluster()
    try:
        await running(cluster)
        controller = cluster.controllers[1]
        meter = Meter(cluster, controller)
        costs: dict[str, Cost] = {}
        topics = partitions // PER_TOPIC

        async def measure(what: str) -> None:
            await meter.settled()
            now = meter.total()
            costs[what] = now - measure_from[0]
            measure_from[0] = now

        measure_from = [meter.total()]
        create(cluster, 0, topics)
        await until(lambda: all(len(b.metadata) == partitions for b in cluster.brokers.values()))
        await measure("creation of all")
        create(cluster, topics, 1)
        await until(lambda: all(len(b.metadata) == partitions + PER_TOPIC for b in cluster.brokers.values()))
        await measure("one topic more")
        partition = TopicPartition("t0000", 0)
        cluster.put_state(partition, 1, (1, 2), 0)
        change = IsrChange("t0000", 0, LeaderEpoch(0), (BrokerId(1), BrokerId(2)), PartitionEpoch(1))
        request = IsrChangedRequest(cluster.brokers[1].broker_id, cluster.brokers[1].epoch, (change,))
        await controller.on_isr_changed(request)
        await until(lambda: all(b.metadata[partition].isr == (1, 2) for b in cluster.brokers.values()))
        await measure("one ISR change")
        last = f"t{topics:04d}"
        cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics([last])))
        await until(lambda: cluster.zookeeper.peek(paths.topic(last)) is None)
        await measure("deletion of a topic")
        lost = cluster.brokers[3]
        await cluster.stop_broker(3)
        measure_from[0].commands -= len(lost.commands)
        measure_from[0].command_bytes -= sum(len(pack(command)) for command in lost.commands)
        await until(lambda: all(b.brokers == (1, 2) for b in cluster.brokers.values()))
        await measure("death of a broker")
        await cluster.start_broker(3)
        await until(lambda: len(cluster.brokers[3].metadata) == partitions)
        await until(lambda: all(b.brokers == (1, 2, 3) for b in cluster.brokers.values()))
        await measure("return of a broker")
        costs["start of a node"] = await start_of_a_node(cluster, partitions)
        return costs
    finally:
        await cluster.close()


#: Counts that are the same for every piece of work, whatever its size (a check of the brokers, a watch that is armed again).
FEW = 8


async def test_costs_grow_with_the_work() -> None:
    small, large = await measured(400), await measured(800)
    for what in ("creation of all", "death of a broker", "return of a broker", "start of a node"):
        for each in fields(Cost):
            before, after = getattr(small[what], each.name), getattr(large[what], each.name)
            assert after <= 2.2 * before + FEW, (what, each.name, before, after)
    for what in ("one topic more", "one ISR change", "deletion of a topic"):
        for each in fields(Cost):
            before, after = getattr(small[what], each.name), getattr(large[what], each.name)
            assert after <= 1.1 * before + 1, (what, each.name, before, after)
    one = large["one ISR change"]
    assert (one.reads, one.writes, one.commands) == (1, 0, 3), "the state, and UpdateMetadata to three brokers"
    # Each partition once, and each topic before and after their states (a step of a move may come between), whatever role the node has there:
    # it can say who leads without a controller.
    assert large["start of a node"].reads <= 800 + 2 * (800 // PER_TOPIC) + FEW
    # One command of a kind for each broker, whatever the number of partitions.
    assert large["death of a broker"].commands <= 8


async def test_topics_that_are_deleted_together_go_together() -> None:
    """Each took two transactions and ten answers of ZooKeeper, one after the other: a thousand took half a minute on a busy host."""
    cluster, count = Cluster(), 200
    try:
        await running(cluster)
        meter = Meter(cluster, cluster.controllers[1])
        create(cluster, 0, count, partitions=1)
        await until(lambda: all(len(broker.metadata) == count for broker in cluster.brokers.values()))
        await meter.settled()
        before = meter.total()
        names = [f"t{number:04d}" for number in range(count)]
        cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(names)))
        await until(lambda: cluster.zookeeper.peek(paths.DELETE_TOPICS) is None)
        await meter.settled()
        cost = meter.total() - before
    finally:
        await cluster.close()
    assert cost.commands == 6, "StopReplica and UpdateMetadata to three brokers"
    assert cost.transactions <= 3
    assert cost.reads <= 5 * count + 10 * FEW
