"""`consume` on a topic that changes, and on one that has lost records to compaction."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumed import ConsumedRecord
from kafkalite.client.consumer import Consumer
from kafkalite.client.producer import Producer
from kafkalite.model import LeaderEpoch, Offset, TopicPartition
from kafkalite.partition_values import ListedOffset
from kafkalite_cli.admin.groups import _moment
from kafkalite_cli.parameters import At
from kafkalite_cli.records import consume
from kafkalite_cli.records.last import last_records
from kafkalite_cli.records.positions import resolve
from tests.fake_cluster import FakeCluster
from tests.fake_log import FakeLog
from tests.support.waiting import until
from tests.unit.cli.test_commands import start

T0 = TopicPartition("t", 0)


async def filled(client: AsyncClient, topic: str, count: int, partition: int = 0) -> None:
    """One batch for each record."""
    async with Producer(client, batch_bytes=1) as producer:
        for number in range(count):
            await producer.send(topic, None, b"%d" % number, partition=partition, timestamp_ms=number)


@pytest.mark.parametrize("pattern", [None, "t|u"])
async def test_partitions_and_topics_that_come_later_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pattern: str | None
) -> None:
    monkeypatch.setattr(consume, "PARTITIONS_CHECKED_S", 0.01)
    async with (
        FakeCluster(1) as cluster,
        AsyncClient.connect(cluster.bootstrap) as client,
        Consumer(client) as consumer,
    ):
        cluster.create("t")
        await client.known_topic("t")
        consumer.assign({T0: 0})
        adding = asyncio.ensure_future(consume.add_partitions(client, consumer, [T0], ["t"], pattern))
        cluster.topics["t"] = 2
        cluster.logs[TopicPartition("t", 1)] = FakeLog()
        await until(lambda: client.view.partition_count("t") >= 2)
        await filled(client, "t", 1, partition=1)
        (record,) = await consumer.poll(timeout_s=150)
        assert record[:3] == ("t", 1, 0)
        if pattern is not None:
            cluster.create("u")
            await filled(client, "u", 1)
            (record,) = await consumer.poll(timeout_s=150)
            assert record[:3] == ("u", 0, 0)
        await client.delete_topics(["t"])
        noted = ""
        while not noted:
            await asyncio.sleep(0.01)
            noted = capsys.readouterr().err
        assert noted == "note: there is no topic 't' any more\n"
        cluster.create("t")  # another one, which is read from its beginning
        await filled(client, "t", 2)
        records: list[ConsumedRecord] = []
        while len(records) < 2:
            records += await consumer.poll(timeout_s=150)
        assert [record.offset for record in records] == [0, 1]
        adding.cancel()


async def test_the_last_records_are_found_behind_what_was_compacted_away() -> None:
    async with (
        FakeCluster(1) as cluster,
        AsyncClient.connect(cluster.bootstrap) as client,
        Consumer(client) as consumer,
    ):
        cluster.create("t", 2)
        await filled(client, "t", 100)
        await filled(client, "t", 3, partition=1)
        log = cluster.log("t")
        log.batches = [each for each in log.batches if each[0] in (1, 5, 70, 99)]
        keys = [T0, TopicPartition("t", 1)]
        for count, expected in (
            (1, [99]),
            (2, [70, 99]),
            (3, [5, 70, 99]),
            (5, [1, 2, 5, 70, 99]),
            (9, [0, 1, 1, 2, 5, 70, 99]),
        ):
            found = await last_records(client, consumer, keys, count)
            assert [record.timestamp for record in found] == expected, count


async def test_what_comes_while_a_time_is_looked_up_is_young_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        answers = iter([3, -1])

        async def list_offsets(*_: object, **__: object) -> dict[TopicPartition, ListedOffset]:
            return {T0: ListedOffset("t", 0, 0, -1, Offset(next(answers)), LeaderEpoch(0))}

        monkeypatch.setattr(client, "list_offsets", list_offsets)
        assert await resolve(client, [T0], At(5)) == {T0: 3}


def test_a_time_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for Kafka's tools, and as `consume --from` has it."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    assert _moment("2023-11-14T22:13:20").at_ms(0) == 1_700_000_000_000
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("where", [("--from", "-1d"), ("--last", "3"), ("--from", "beginning", "--exit-at-end")])
async def test_one_ctrl_c_ends_a_search_for_the_beginning(where: tuple[str, ...]) -> None:
    """Nothing is printed yet, so there is nothing to finish."""
    async with FakeCluster(1) as cluster:
        cluster.create("t")
        cluster.nodes[1].unanswered.add("ListOffsetsRequest")
        process = await start("consume", "t", *where, "--timeout", "3600", cluster=cluster)
        await until(lambda: (1, "ListOffsetsRequest") in cluster.requests)
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
    assert (process.returncode, out) == (130, b"")
