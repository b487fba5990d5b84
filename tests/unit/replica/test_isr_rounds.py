"""A round of the ISR writer with many partitions: what it asks ZooKeeper, and that the loop has its turn."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Create
from kafkalite.coordination.topic_znodes import encode_partition_state
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from kafkalite.replica.decisions.isr import Proposal
from kafkalite.replica.isr_writer import CHUNK, IsrWriter, Settled, Task

COUNT = 2_000
ISR = (BrokerId(1), BrokerId(2))
STATE = LeaderAndIsr(BrokerId(1), LeaderEpoch(0), ISR[:1], ControllerEpoch(1), PartitionEpoch(0))


class _ZooKeeper:
    """Answers at once; counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    async def sync(self, path: str) -> None:
        self.counts["sync"] += 1

    async def get_many(self, where: Sequence[str]) -> list[Any]:
        self.counts["reads"] += 1
        stat = type("Stat", (), {"version": 0})
        return [(encode_partition_state(STATE), stat)] * len(where)

    async def multi_many(self, transactions: Sequence[Sequence[Create]]) -> list[list[int]]:
        self.counts["writes"] += 1
        assert max(map(len, transactions)) == CHUNK
        assert {op.path for ops in transactions for op in ops} == {paths.partition_state(_tp(n)) for n in range(COUNT)}
        return [[1] * len(ops) for ops in transactions]


class _Proposer:
    def __init__(self) -> None:
        self.settled = 0

    def is_current(self, task: Task) -> bool:
        return True

    def on_settled(self, settled: Sequence[Settled]) -> None:
        self.settled += len(settled)


def _tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


async def test_a_round_reads_and_writes_in_one_go_and_lets_the_loop_turn() -> None:
    metadata = type("Metadata", (), {"broker_epochs": {BrokerId(2): BrokerEpoch(7)}})()
    session: Any = None
    zookeeper: Any = _ZooKeeper()
    proposer = _Proposer()
    writer = IsrWriter(session, random.Random(1), metadata, proposer)
    joining = {BrokerId(2): BrokerEpoch(7)}
    proposal = Proposal(BrokerId(1), LeaderEpoch(0), PartitionEpoch(0), ISR, joining=joining)
    tasks = [Task(_tp(number), proposal, ControllerEpoch(1)) for number in range(COUNT)]
    for task in tasks:
        writer.submit(task)
    turns = 0
    round_ = asyncio.create_task(writer._round(zookeeper, tasks))
    while not round_.done():
        turns += 1
        await asyncio.sleep(0)
    assert (await round_, proposer.settled) == (0, COUNT)
    assert zookeeper.counts == {"sync": 1, "reads": 1, "writes": 1}
    assert turns >= COUNT / 100 + COUNT / CHUNK, "decoding and encoding of all states held the loop"
