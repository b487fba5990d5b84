"""The blocking client: in a thread of its own, against the fake cluster on the test's loop."""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from kafkalite.client.blocking import BlockingClient, BlockingClientConfig
from kafkalite.client.retry import BootstrapFailed
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.reader import read_records
from kafkalite.rpc.answers import RpcError
from tests.fake_cluster import FakeCluster
from tests.support.failing import fails_with
from tests.support.waiting import until

T = TypeVar("T")
E = ErrorCode
T0 = TopicPartition("t", 0)


def batch(values: list[bytes], producer: int = -1, sequence: int = -1) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence
    )
    for value in values:
        builder.append(None, value)
    return builder.build()


async def in_thread(cluster: FakeCluster, work: Callable[[BlockingClient], T], **config: int) -> T:
    def run() -> T:
        settings: dict[str, Any] = {"delivery_timeout_ms": 10_000} | config
        with BlockingClient(BlockingClientConfig(",".join(cluster.bootstrap), **settings)) as client:
            return work(client)

    return await asyncio.to_thread(run)


async def test_produce_list_and_fetch() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t", 3)

        def work(client: BlockingClient) -> tuple[list[int], list[bytes | None], list[int]]:
            assert [t.topic for t in client.metadata().topics] == ["t"]
            producer, epoch = client.init_producer_id()
            assert epoch == 0
            keys = [TopicPartition("t", n) for n in range(3)]
            many = client.produce_many({key: batch([b"a", b"b"], producer, 0) for key in keys})
            one = client.produce_raw(T0, batch([b"c"], producer, 2))
            ends = client.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP) | {T0: EARLIEST_TIMESTAMP})
            raw = client.fetch_raw(T0, 0)
            assert raw.high_watermark == 3
            offsets: list[int] = [*(many[key].base_offset for key in keys), one.base_offset]
            return offsets, [r.value for r in read_records(raw.records)], [ends[key].offset for key in keys]

        offsets, values, ends = await in_thread(cluster, work)
        assert offsets == [0, 0, 0, 2]
        assert values == [b"a", b"b", b"c"]
        assert ends == [0, 2, 2]


@pytest.mark.checklist("F25")
async def test_lost_answers_and_dead_leaders_make_no_duplicates() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t")
        cluster.nodes[1].cut_after_append = 2

        def produce(client: BlockingClient) -> int:
            return client.produce_raw(T0, batch([b"x", b"y"], 77, 0)).base_offset

        assert await in_thread(cluster, produce) == 0
        cluster.nodes[1].metadata_view = {T0: (1, 0)}
        cluster.move_leader("t", 0, 2)
        assert await in_thread(cluster, produce) == 0
        await cluster.kill(2, new_leader=3)
        assert await in_thread(cluster, produce) == 0
        assert cluster.log("t").values() == [b"x", b"y"]


@pytest.mark.checklist(64)
@pytest.mark.parametrize("code", [E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER, E.REQUEST_TIMED_OUT])
async def test_retriable_errors_are_retried(code: ErrorCode) -> None:
    async with FakeCluster(1) as cluster:
        cluster.create("t")
        cluster.errors.extend([code, code])
        assert (await in_thread(cluster, lambda c: c.produce_raw(T0, batch([b"x"])))).base_offset == 0


@pytest.mark.parametrize("code", [E.CORRUPT_MESSAGE, E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.MESSAGE_TOO_LARGE])
async def test_the_deadline_or_the_refusal_ends_it(code: ErrorCode) -> None:
    async with FakeCluster(1) as cluster:
        cluster.create("t")
        cluster.errors.extend([code] * 1000)
        with fails_with(code):
            await in_thread(cluster, lambda c: c.produce_raw(T0, batch([b"x"]), timeout_ms=5_000))


async def test_an_unknown_topic_is_told() -> None:
    async with FakeCluster(1) as cluster:
        with fails_with(E.UNKNOWN_TOPIC_OR_PARTITION):
            await in_thread(cluster, lambda c: c.fetch_raw(T0, 0, timeout_ms=5_000))


async def test_the_partition_without_a_leader_is_told() -> None:
    async with FakeCluster(1) as cluster:
        cluster.create("t", 2)
        missing = {T0: LATEST_TIMESTAMP, TopicPartition("t", 7): LATEST_TIMESTAMP}
        with pytest.raises(ApiError, match="t-7: no leader is known") as failure:
            await in_thread(cluster, lambda c: c.list_offsets(missing, timeout_ms=5_000))
        assert failure.value.code is E.LEADER_NOT_AVAILABLE and "t-0" not in str(failure.value)


async def test_nobody_there_is_told_in_time() -> None:
    def work() -> None:
        with BlockingClient("127.0.0.1:1") as client:
            client.metadata(timeout_ms=200)

    with pytest.raises(RpcError):
        await asyncio.to_thread(work)


async def test_acks_0_and_large_batches() -> None:
    async with FakeCluster(2) as cluster:
        cluster.create("t")
        large = bytes(900_000)

        def work(client: BlockingClient) -> int:
            assert client.produce_raw(T0, batch([b"x"]), acks=0).base_offset == -1
            client.produce_raw(T0, batch([large, large]))
            return sum(len(r.value or b"") for r in read_records(client.fetch_raw(T0, 0, 4 << 20).records))

        assert await in_thread(cluster, work) == 1_800_001


def test_the_configuration_pickles() -> None:
    config = BlockingClientConfig("h:1,h2", delivery_timeout_ms=5)
    assert pickle.loads(pickle.dumps(config)) == config


def test_no_asyncio_comes_with_it() -> None:
    code = "import sys, kafkalite.client.blocking; assert 'asyncio' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": "."})


async def test_a_node_that_never_answers_does_not_hold_up_what_any_node_can_tell() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t")

        def work(client: BlockingClient) -> list[str]:
            client.metadata(["t"])
            cluster.nodes[2].hung = True
            return [client.metadata(["t"]).topics[0].topic for _ in range(6)]  # each begins with another node

        assert await in_thread(cluster, work) == ["t"] * 6
        assert cluster.requests.count((2, "MetadataRequest")) <= 2  # asked last once it was late


async def test_a_leader_that_never_answers_is_left_when_another_one_leads() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t", 2)

        def work(client: BlockingClient) -> tuple[int, int, int]:
            producer, _ = client.init_producer_id()
            client.produce_raw(T0, batch([b"a"], producer, 0))
            cluster.nodes[1].hung = True
            cluster.requests.clear()
            second = client.produce_raw(T0, batch([b"b"], producer, 1))
            cluster.nodes[2].hung = True
            end = client.list_offsets({T0: LATEST_TIMESTAMP})[T0].offset
            cluster.nodes[3].hung, cluster.nodes[1].hung = True, False
            return second.base_offset, end, client.fetch_raw(T0, 0).high_watermark

        endless = 10**9
        running = asyncio.ensure_future(
            in_thread(cluster, work, request_timeout_ms=endless, delivery_timeout_ms=endless)
        )
        for node, kind, other in ((1, "ProduceRequest", 2), (2, "ListOffsetsRequest", 3), (3, "FetchRequest", 1)):
            while (node, kind) not in cluster.requests:
                await asyncio.sleep(0.001)
            cluster.move_leader("t", 0, other)
        assert await running == (1, 2, 2)


async def test_a_batch_that_the_broker_would_not_recognise_is_not_sent_twice_before_it_must_be() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t")

        def work(client: BlockingClient) -> None:
            client.metadata(["t"])
            cluster.nodes[1].hung = True
            client.produce_raw(T0, batch([b"a"]))

        running = asyncio.ensure_future(in_thread(cluster, work, request_timeout_ms=1_500))
        await until(lambda: (1, "ProduceRequest") in cluster.requests)
        cluster.move_leader("t", 0, 2)
        cluster.requests.clear()
        await running
        asked = [kind for _, kind in cluster.requests]
        assert asked[0] == "MetadataRequest" and asked.count("ProduceRequest") == 1
        assert cluster.log("t").values() == [b"a"]


def test_a_name_that_no_host_can_have_is_a_node_that_cannot_be_reached() -> None:
    """A node may advertise one: the others are asked."""
    client = BlockingClient(BlockingClientConfig("a..b:9092", first_answer_ms=0))
    with pytest.raises(BootstrapFailed, match=r"a\.\.b:9092"):
        client.metadata(timeout_ms=1000)


def test_addresses_that_never_answer_are_not_tried_again_after_the_deadline() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BootstrapFailed, match="not answered in time"):
            BlockingClient(BlockingClientConfig(address, first_answer_ms=10_000)).metadata(timeout_ms=200)
        with pytest.raises(RpcError, match="not answered in time"):
            BlockingClient(BlockingClientConfig(address)).metadata(timeout_ms=200)
