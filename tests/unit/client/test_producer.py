"""The producer against a cluster that fails in all ways."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import BrokerId
from kafkalite.record.batch import parse_header
from tests.fake_cluster import FakeCluster
from tests.support.failing import fails_with
from tests.support.waiting import until

E = ErrorCode


async def send_all(
    producer: Producer, topic: str, count: int, *, partition: int | None = 0, start: int = 0
) -> list[int]:
    futures = [
        await producer.send(topic, None, b"%d" % number, partition=partition) for number in range(start, start + count)
    ]
    await producer.flush()
    return [(await future).offset for future in futures]


def expected(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


async def test_records_arrive_in_order_with_their_offsets() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, batch_bytes=500) as producer:
            assert await send_all(producer, "t", 1000) == list(range(1000))
        assert cluster.log("t").values() == expected(1000)
        header = parse_header(cluster.log("t").batches[1][2])
        assert header.producer_id > 1000
        assert header.base_sequence == header.base_offset


async def test_keys_headers_timestamps_and_partitions() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t", 6)
        async with Producer(client, compression="zstd") as producer:
            told = [
                await (await producer.send("t", b"key", None, headers=[("h", b"1"), ("n", None)], timestamp_ms=77))
                for _ in range(3)
            ]
        assert {entry.partition for entry in told} == {told[0].partition}
        assert [entry.timestamp for entry in told] == [77, 77, 77]
        record = cluster.log("t", told[0].partition).records()[2]
        assert record == (2, 77, b"key", None, (("h", b"1"), ("n", None)))


async def test_records_without_keys_spread_over_the_partitions() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t", 4)
        async with Producer(client, batch_bytes=300) as producer:
            await send_all(producer, "t", 1000, partition=None)
        counts = [cluster.log("t", number).end for number in range(4)]
        assert sum(counts) == 1000
        assert min(counts) > 50


@pytest.mark.checklist("F25")
async def test_a_lost_answer_makes_no_duplicate() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, batch_bytes=200) as producer:
            cluster.nodes[1].cut_after_append = 3
            assert await send_all(producer, "t", 200) == list(range(200))
        assert cluster.log("t").values() == expected(200)


async def test_a_cut_before_the_append_loses_nothing() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, batch_bytes=200) as producer:
            cluster.nodes[1].cut_before_append = 2
            assert await send_all(producer, "t", 200) == list(range(200))
        assert cluster.log("t").values() == expected(200)


@pytest.mark.checklist("F25")
async def test_the_leader_dies_again_and_again() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        futures = []
        async with Producer(client, batch_bytes=300, linger_ms=0) as producer:
            for number in range(1500):
                futures.append(await producer.send("t", None, b"%d" % number, partition=0))
                if number % 500 == 250:
                    leader = cluster.log("t").leader
                    cluster.nodes[leader].cut_after_append = 1
                    await asyncio.sleep(0.01)
                    await cluster.kill(leader, new_leader=leader % 3 + 1)
                    await cluster.nodes[(leader + 1) % 3 + 1].start() if number > 500 else None
            await producer.flush()
            assert [(await future).offset for future in futures] == list(range(1500))
        assert cluster.log("t").values() == expected(1500)


@pytest.mark.parametrize(
    "code",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        E.UNKNOWN_PRODUCER_ID,
    ],
)
async def test_retriable_errors_keep_order_and_make_no_duplicate(code: ErrorCode) -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        cluster.errors.extend([None, code, None, None, code, code])
        async with Producer(client, batch_bytes=300, linger_ms=0) as producer:
            assert await send_all(producer, "t", 300) == list(range(300))
        assert cluster.log("t").values() == expected(300)


async def test_a_moved_leader_is_found_through_old_metadata() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client) as producer:
            await send_all(producer, "t", 10)
            key = next(iter(cluster.logs))
            cluster.nodes[2].metadata_view = {key: (1, 0)}
            cluster.move_leader("t", 0, 3)
            await send_all(producer, "t", 10, start=10)
        assert cluster.log("t").values() == expected(20)


@pytest.mark.parametrize("compression", [None, "lz4"])
async def test_batches_too_large_for_the_topic_are_split(compression: str | None) -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        cluster.max_message_bytes = 150
        async with Producer(client, batch_bytes=1000, compression=compression) as producer:
            assert await send_all(producer, "t", 400) == list(range(400))
            huge = await producer.send("t", None, random.Random(0).randbytes(200), partition=0)
            assert await send_all(producer, "t", 5, start=400) == list(range(400, 405))
            with fails_with(E.MESSAGE_TOO_LARGE):
                await huge
        assert cluster.log("t").values() == expected(405)


async def test_a_leader_that_hangs_is_left_when_another_one_leads() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, batch_bytes=200) as producer:
            await send_all(producer, "t", 10)
            cluster.nodes[1].hung = True
            sending = asyncio.get_running_loop().create_task(send_all(producer, "t", 50, start=10))
            while ("ProduceRequest", 1) not in {(kind, node) for node, kind in cluster.requests[-5:]}:
                await asyncio.sleep(0)
            cluster.move_leader("t", 0, 2)
            assert await sending == list(range(10, 60))
        assert cluster.log("t").values() == expected(60)


async def test_a_leader_that_hangs_and_is_not_told_of_any_more_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was alone in sync and lost its power: nobody leads, nobody resets the connection, the metadata does not name it."""
    async with FakeCluster(2) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, request_timeout_ms=2_000) as producer:
            await send_all(producer, "t", 10)
            connection = client.connections.open_to(BrokerId(1))
            assert connection is not None
            cluster.nodes[1].hung = True
            sending = asyncio.get_running_loop().create_task(send_all(producer, "t", 10, start=10))
            while ("ProduceRequest", 1) not in {(kind, node) for node, kind in cluster.requests[-5:]}:
                await asyncio.sleep(0)
            with monkeypatch.context() as gone:
                others = tuple(broker for broker in cluster.brokers() if broker.broker_id != 1)
                gone.setattr(cluster, "brokers", lambda: others)
                await until(lambda: connection.closed)
            cluster.nodes[1].hung = False
            assert await sending == list(range(10, 20))
        assert cluster.log("t").values() == expected(20)


async def test_a_refusal_fails_its_records_and_later_ones_go_on() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client) as producer:
            cluster.errors.append(E.INVALID_RECORD)
            bad = await producer.send("t", None, b"bad", partition=0)
            await producer.flush()
            with fails_with(E.INVALID_RECORD):
                await bad
            assert await send_all(producer, "t", 20) == list(range(20))
        assert cluster.log("t").values() == expected(20)


class ClockAhead:
    """A loop whose clock the test moves ahead."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ahead_s = 0.0
        self._loop = loop
        self.create_future = loop.create_future

    def time(self) -> float:
        return self._loop.time() + self.ahead_s


async def test_the_delivery_timeout_decides_the_end_and_order_holds_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, delivery_timeout_ms=1_000_000, request_timeout_ms=2_000_000) as producer:
            clock = ClockAhead(asyncio.get_running_loop())
            monkeypatch.setattr(producer, "_loop", clock)
            await send_all(producer, "t", 5)
            cluster.errors.extend([E.NOT_ENOUGH_REPLICAS] * 1000)
            late = await producer.send("t", None, b"late", partition=0)
            while len(cluster.errors) > 998:  # it is tried again: the first refusal has arrived
                await asyncio.sleep(0.01)
            clock.ahead_s = 1_000
            with pytest.raises(ApiError, match="NOT_ENOUGH_REPLICAS") as failure:
                await late
            assert failure.value.code is E.REQUEST_TIMED_OUT
            # An attempt may have been under way when the time was up: it came before this, on the same connection.
            await client.list_offsets({next(iter(cluster.logs)): -1})
            cluster.errors.clear()
            assert await send_all(producer, "t", 5, start=5) == [5, 6, 7, 8, 9]
        assert cluster.log("t").values() == expected(10)


@pytest.mark.checklist(54)
async def test_without_idempotence_a_batch_is_tried_four_times() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, acks=1) as producer:
            cluster.errors.extend([E.NOT_ENOUGH_REPLICAS] * 3)
            assert await send_all(producer, "t", 1) == [0]
            cluster.errors.extend([E.NOT_ENOUGH_REPLICAS] * 4)
            failing = await producer.send("t", None, b"x", partition=0)
            await producer.flush()
            with fails_with(E.NOT_ENOUGH_REPLICAS):
                await failing
            assert await send_all(producer, "t", 1, start=1) == [1]


@pytest.mark.checklist(54)
async def test_acks_0_expects_no_answer() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, acks=0) as producer:
            assert await send_all(producer, "t", 100) == [-1] * 100
            await client.list_offsets({next(iter(cluster.logs)): -1})
        assert cluster.log("t").values() == expected(100)


@pytest.mark.parametrize("name", ["\ud800", "x" * 40_000, "käse", ""])
async def test_a_name_that_no_topic_can_have_is_refused_and_forgotten(name: str) -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client) as producer:
            with fails_with(E.INVALID_TOPIC_EXCEPTION):
                await producer.send(name, None, b"x")
            # A Metadata request that names it can be neither encoded nor sent: nothing else would ever work.
            assert await send_all(producer, "t", 1) == [0]
            assert await client.refresh() is None


async def test_unknown_topics_and_partitions_are_refused() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, max_block_ms=5_000) as producer:
            with fails_with(E.UNKNOWN_TOPIC_OR_PARTITION):
                await producer.send("missing", None, b"x")
            with fails_with(E.UNKNOWN_TOPIC_OR_PARTITION):
                await producer.send("t", None, b"x", partition=7)


async def test_a_full_buffer_makes_send_wait() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client, buffer_bytes=10_000, max_block_ms=50) as producer:
            await client.known_topic("t")
            cluster.errors.extend([E.NOT_ENOUGH_REPLICAS] * 1000)
            with pytest.raises(ApiError, match="no buffer memory"):
                for _ in range(100):
                    await producer.send("t", None, bytes(1000), partition=0)
            cluster.errors.clear()


async def test_closing_without_flush_fails_what_waits() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        producer = Producer(client, linger_ms=60_000)
        future = await producer.send("t", None, b"x", partition=0)
        await producer.close(flush=False)
        with pytest.raises(ApiError, match="closed"):
            await future
        with pytest.raises(ApiError, match="closed"):
            await producer.send("t", None, b"x")


@pytest.mark.parametrize("settings", [{"acks": 1, "idempotent": True}, {"max_in_flight": 6}, {"acks": 2}])
async def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        with pytest.raises(ValueError):
            Producer(client, **settings)


async def test_a_send_that_waits_for_metadata_takes_nothing_when_the_producer_is_closed() -> None:
    """Nobody would ever deliver or fail its record."""
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        producer = Producer(client)
        waiting = asyncio.ensure_future(producer.send("t", None, b"x"))
        await asyncio.sleep(0)
        await producer.close()
        cluster.create("t")
        with pytest.raises(ApiError, match="the producer is closed"):
            await waiting


async def test_a_record_that_no_bytes_can_say_leaves_no_batch_behind() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client) as producer:
            with pytest.raises(UnicodeEncodeError):
                await producer.send("t", None, b"0", headers=[("\udcff", b"")])
            await producer.flush()
            assert await send_all(producer, "t", 2) == [0, 1]
        assert len(cluster.log("t").batches) == 1


async def test_a_topic_that_is_deleted_while_a_send_waits_for_room_is_refused() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        cluster.create("u", 3)
        async with Producer(client, buffer_bytes=10, linger_ms=60_000) as producer:
            for topic in ("t", "u"):
                await client.known_topic(topic)
            await producer.send("t", None, bytes(100))
            waiting = asyncio.ensure_future(producer.send("u", None, b"x"))
            await asyncio.sleep(0)
            await client.delete_topics(["u"])
            await client.metadata(["u"])
            producer._max_block_s = 1.0  # for its last look at the topic, not for the room
            await producer.flush()
            with pytest.raises(ApiError, match="there is no topic 'u'"):
                await waiting


@pytest.mark.parametrize("timestamp_ms", [-2, 2**63])
async def test_a_time_that_no_record_can_have_is_refused(timestamp_ms: int) -> None:
    """The batch could not be encoded, and with it the whole producer would end."""
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Producer(client) as producer:
            with pytest.raises(ValueError, match=f"timestamp {timestamp_ms}"):
                await producer.send("t", None, b"x", timestamp_ms=timestamp_ms)
            for allowed in (-1, 0, 2**63 - 1):
                await (await producer.send("t", None, b"x", timestamp_ms=allowed))
        assert [record.timestamp for record in cluster.log("t").records()] == [-1, 0, 2**63 - 1]


async def test_a_large_record_is_sent_if_the_settings_allow_it() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        large = bytes(5 * 1024 * 1024)
        async with Producer(client) as producer:
            with pytest.raises(ApiError, match="a record of about 5242916 bytes; the producer takes 4194304"):
                await producer.send("t", None, large)
        async with Producer(client, max_record_bytes=6 * 1024 * 1024) as producer:
            await producer.send("t", None, b"before")
            await producer.send("t", None, large)
            await producer.send("t", None, b"after")
        assert cluster.log("t").values() == [b"before", large, b"after"]
