"""num.replica.fetchers changes while records are replicated: each record once, nobody leaves the ISR."""

import asyncio
import dataclasses
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import LeaderEpoch, Offset, TopicPartition
from kafkalite.rpc.messages.replication import ReplicaFetchedPartition, ReplicaFetchResponse

TPS = [TopicPartition("t", number) for number in range(8)]
SEGMENT = "0" * 20 + ".log"


def indexes(node) -> dict[TopicPartition, int]:
    return {key: fetcher.index for key, fetcher in node.manager.fetchers._of.items()}


@pytest.mark.checklist(65)
async def test_partitions_are_spread_anew_in_the_middle_of_a_stream(make_cluster, until):
    cluster = await make_cluster(3, **{"replica.lag.time.max.ms": 60_000})
    cluster.create_topic("t", {tp.partition: (1, 2, 3) for tp in TPS})
    states = [cluster.decide(tp, leader=1 + tp.partition % 2, isr=(1, 2, 3), epoch=0) for tp in TPS]
    await cluster.command_all(*states)
    sent = dict.fromkeys(TPS, 0)
    is_over = False

    async def stream(tp: TopicPartition) -> None:
        leader = cluster.node(1 + tp.partition % 2)
        while not is_over:
            answer = await leader.produce(tp, b"record %d of %d" % (sent[tp], tp.partition))
            assert (answer.error, answer.base_offset) == (ErrorCode.NONE, sent[tp])
            sent[tp] += 1

    async with asyncio.TaskGroup() as group:
        for tp in TPS:
            group.create_task(stream(tp))
        for count in (4, 3, 64, 2, 1, 5, 1):
            goal = {tp: sent[tp] + 20 for tp in TPS}
            for node in cluster.nodes.values():
                node.manager.fetchers.resize(count)
            await until(lambda goal=goal: all(sent[tp] >= goal[tp] for tp in TPS))
            spread = indexes(cluster.node(3))
            assert set(spread) == set(TPS)
            assert len(set(spread.values())) == min(count, len(TPS))
            fetchers = cluster.node(3).manager.fetchers
            assert len(fetchers) <= 2 * count
            assert sum(len(fetcher.partitions) for fetcher in fetchers._fetchers.values()) == len(TPS)
        is_over = True
    for tp in TPS:
        files = [(cluster.node(n).directory / str(tp) / SEGMENT).read_bytes() for n in (1, 2, 3)]
        assert files[0] == files[1] == files[2]
        assert files[0].count(b"record ") == sent[tp]
        assert cluster.state(tp).isr == (1, 2, 3)
    for node in cluster.nodes.values():
        assert node.manager.hosted.counters.truncations_below_high_watermark == 0


async def test_a_partition_that_waits_for_its_flush_is_listed_by_its_new_fetcher(make_cluster, until):
    """It may not tell its log's end before that; the flush ends after the move."""
    cluster = await make_cluster(2, **{"log.flush.before.ack": "true", "replica.lag.time.max.ms": 60_000})
    cluster.create_topic("t", {tp.partition: (1, 2) for tp in TPS})
    await cluster.command_all(*[cluster.decide(tp, leader=1, isr=(1, 2), epoch=0) for tp in TPS])
    follower = cluster.node(2)
    for number in range(30):
        pending = [asyncio.ensure_future(cluster.node(1).produce(tp, b"x")) for tp in TPS]
        await asyncio.sleep(0)
        follower.manager.fetchers.resize(1 + number % 4)
        async with asyncio.timeout(150):
            for future in pending:
                assert (await future).error == ErrorCode.NONE
    await until(lambda: all(follower.partition(tp).log.log_end_offset == 30 for tp in TPS))


async def test_what_changes_nothing_moves_nothing(make_cluster):
    cluster = await make_cluster(2)
    cluster.create_topic("t", {tp.partition: (1, 2) for tp in TPS})
    await cluster.command_all(*[cluster.decide(tp, leader=1, isr=(1, 2), epoch=0) for tp in TPS])
    follower = cluster.node(2).manager.fetchers
    before = dict(follower._of)
    follower.resize(1)
    assert follower._of == before
    follower.resize(2)
    stayed = {key for key, fetcher in follower._of.items() if before[key] is fetcher}
    assert len(stayed) == len(TPS) // 2


async def test_each_truncation_has_a_turn_of_the_loop(make_cluster, monkeypatch):
    """Each reads the headers of up to a segment: 64 in one turn kept a node from its heartbeats after a failover."""
    cluster = await make_cluster(2)
    cluster.create_topic("t", {tp.partition: (1, 2) for tp in TPS})
    await cluster.command_all(*[cluster.decide(tp, leader=1, isr=(1, 2), epoch=0) for tp in TPS])
    node = cluster.node(2)
    fetcher = node.manager.fetchers._of[TPS[0]]
    turns, seen = 0, []

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    turn()
    real = fetcher._context.take

    def take(*given: Any) -> ErrorCode | None:
        seen.append(turns)
        error: ErrorCode | None = real(*given)
        return error

    monkeypatch.setattr(fetcher, "_context", dataclasses.replace(fetcher._context, take=take))
    for fetched in fetcher.partitions.values():
        fetched.is_listed = True
    parts = tuple(
        ReplicaFetchedPartition("t", tp.partition, 0, Offset(0), Offset(0), 0, LeaderEpoch(0), Offset(0)) for tp in TPS
    )
    await fetcher._take(ReplicaFetchResponse(0, 1, parts), memoryview(b""))
    assert len(set(seen)) == len(seen) == len(TPS)
