"""What a reader of committed transactions is given along with the records."""

from __future__ import annotations

import asyncio

from kafkalite.model import LeaderEpoch, Offset, TopicPartition
from kafkalite.partition_values import FetchedPartition
from kafkalite.record.builder import RecordBatchBuilder, end_transaction_marker
from kafkalite.record.compression import Codec
from kafkalite.replica.client_fetch import READ_COMMITTED, ClientFetch, FetchTerms
from kafkalite.replica.produce import AppendTerms
from tests.support.fetching import answered, fetched
from tests.support.waiting import until

TP = TopicPartition("t", 0)


async def test_a_fetch_lists_the_aborted_transactions_of_what_it_returns(make_cluster) -> None:
    """Not of everything up to the last stable offset: a small answer stays small."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1,), epoch=0))
    node = cluster.node(1)
    for number in range(6):
        builder = RecordBatchBuilder(
            Codec.NONE, producer_id=7, producer_epoch=0, base_sequence=number, transactional=True
        )
        builder.append(b"k", b"%d" % number, (), 1_000)
        await node.produce(TP, batch=builder.build())
        marker = end_transaction_marker(7, 0, commit=number == 5, coordinator_epoch=0, timestamp_ms=1_000)
        node.partition(TP).log.append_as_leader(marker, LeaderEpoch(0), origin="coordinator")
    await node.produce(TP, b"plain")

    async def listed(offset: int, max_bytes: int) -> tuple[int, list[int]]:
        answer: asyncio.Future[FetchedPartition] = asyncio.get_running_loop().create_future()
        fetch = ClientFetch(READ_COMMITTED)
        entry = fetch.list(TP, Offset(offset), max_bytes)

        done = answered(lambda: answer.set_result(fetched(entry)[0]))
        node.manager.consuming.fetch(fetch, FetchTerms(0, 1, 1 << 20), done)
        part = await answer
        assert part.last_stable_offset == 13
        return part.records_size, [each.first_offset for each in part.aborted]

    size, everything = await listed(0, 1 << 20)
    assert everything == [0, 2, 4, 6, 8]
    for offset in range(13):
        part_size, aborted = await listed(offset, 1)
        assert 0 < part_size < size
        assert aborted == ([offset // 2 * 2] if offset < 10 else [])


async def test_records_of_an_open_transaction_do_not_end_a_long_poll(make_cluster) -> None:
    """Each append was answered with nothing: a consumer asked as often as a producer sent."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1,), epoch=0))
    node = cluster.node(1)
    found: list[int] = []
    fetch = ClientFetch(READ_COMMITTED)
    fetch.list(TP, Offset(0), 1 << 20)
    done = answered(lambda: found.append(sum(entry.records_size for entry in fetch.due())))
    node.manager.consuming.fetch(fetch, FetchTerms(600_000, 1, 1 << 20), done)
    for number in range(3):
        builder = RecordBatchBuilder(
            Codec.NONE, producer_id=7, producer_epoch=0, base_sequence=number, transactional=True
        )
        builder.append(b"k", b"%d" % number, (), 1_000)
        await node.produce(TP, batch=builder.build())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert found == []
    marker = end_transaction_marker(7, 0, commit=True, coordinator_epoch=0, timestamp_ms=1_000)
    node.manager.producing.produce(-1, 1_000, [(TP, marker)], lambda results: None, AppendTerms("coordinator"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(found) == 1 and found[0] > 0


async def test_transactions_that_have_ended_are_forgotten_where_nobody_reads(make_cluster) -> None:
    """On a follower, and on a leader without consumers, one more was remembered with each transaction, for ever."""
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    leader, follower = cluster.node(1).partition(TP), cluster.node(2).partition(TP)
    for number in range(3):
        builder = RecordBatchBuilder(
            Codec.NONE, producer_id=7, producer_epoch=0, base_sequence=number, transactional=True
        )
        builder.append(b"k", b"%d" % number, (), 1_000)
        await cluster.node(1).produce(TP, batch=builder.build())
        assert leader.log.first_unstable_offset == 2 * number
        marker = end_transaction_marker(7, 0, commit=True, coordinator_epoch=0, timestamp_ms=1_000)
        written = asyncio.get_running_loop().create_future()
        cluster.node(1).manager.producing.produce(
            -1, 5_000, [(TP, marker)], written.set_result, AppendTerms("coordinator")
        )
        await written
        assert leader.log.first_unstable_offset is None
    await until(lambda: follower.high_watermark == 6)
    assert follower.log.first_unstable_offset is None
