"""Consumer, metadata and admin calls of the asyncio client."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.client import cluster_requests
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumed import committed_records
from kafkalite.client.consumer import EARLIEST, LATEST, Consumer
from kafkalite.client.fetch_session import ConsumerFetchSession
from kafkalite.client.offset_reset import Reset, place
from kafkalite.client.producer import Producer
from kafkalite.client.results import Metadata
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import LATEST_TIMESTAMP, NO_TOPIC_ID, BrokerId, Offset, ProducerId, TopicPartition
from kafkalite.partition_values import AbortedTransaction, TopicMetadata
from kafkalite.protocol import wire
from kafkalite.record.builder import RecordBatchBuilder, end_transaction_marker
from kafkalite.rpc.answers import RpcError
from tests.fake_cluster import FakeCluster
from tests.fake_log import FakeLog
from tests.support.failing import fails_with

E = ErrorCode
T0 = TopicPartition("t", 0)


async def fill(client: AsyncClient, count: int, partitions: int = 1) -> None:
    async with Producer(client, batch_bytes=400) as producer:
        for number in range(count):
            await producer.send("t", None, b"%d" % number, partition=number % partitions)


async def take(consumer: Consumer, count: int) -> list[int]:
    values: list[int] = []
    while len(values) < count:
        values += [int(record.value or b"") for record in await consumer.poll(timeout_s=150)]
    return values


async def test_all_partitions_are_read_in_order() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t", 3)
        await fill(client, 900, 3)
        async with Consumer(client, max_bytes=2000) as consumer:
            await consumer.assign_topics(["t"])
            values = await take(consumer, 900)
        assert sorted(values) == list(range(900))
        for partition in range(3):
            assert [v for v in values if v % 3 == partition] == list(range(partition, 900, 3))


async def test_a_position_that_is_no_offset_is_refused() -> None:
    """It cannot be sent: the consumer would try again and again, and never say why nothing comes."""
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        async with Consumer(client) as consumer:
            for position in (-1, 2**63):
                with pytest.raises(ValueError, match=f"t-0: {position} is not an offset"):
                    consumer.assign({T0: position})


async def test_a_request_that_no_bytes_can_say_is_refused() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        for topic in (NewTopic("t", partitions=2**64), NewTopic("\udcff")):
            with pytest.raises(ApiError, match="CreateTopicsRequest: ") as raised:
                await client.create_topics([topic])
            assert raised.value.code is ErrorCode.INVALID_REQUEST
        (made,) = await client.create_topics([NewTopic("t", 1, 1)])
        assert made.error == 0, "the connection is as good as before"


async def test_reading_starts_in_the_middle_of_a_batch_and_at_the_end() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await fill(client, 100)
        async with Consumer(client) as consumer:
            consumer.assign({T0: 17})
            assert await take(consumer, 83) == list(range(17, 100))
            assert consumer.position(T0) == 100
            assert consumer.high_watermark(T0) == 100
            consumer.assign({T0: LATEST})
            while consumer.position(T0) is None:
                assert await consumer.poll(timeout_s=0.05) == []
            assert consumer.position(T0) == 100


async def test_reading_goes_on_over_failovers() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await fill(client, 500)
        async with Consumer(client, max_bytes=1000) as consumer:
            consumer.assign({T0: EARLIEST})
            values = await take(consumer, 100)
            cluster.move_leader("t", 0, 2)
            values += await take(consumer, 100)
            await cluster.kill(2, new_leader=3)
            values += await take(consumer, 500 - len(values))
        assert values == list(range(500))


async def test_an_offset_that_is_gone_resets_or_raises() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await fill(client, 10)
        async with Consumer(client) as consumer:
            consumer.assign({T0: 1000})
            assert await take(consumer, 10) == list(range(10))
        async with Consumer(client, on_out_of_range=None) as strict:
            strict.assign({T0: 1000})
            with fails_with(E.OFFSET_OUT_OF_RANGE):
                await strict.poll(timeout_s=150)


def test_aborted_transactions_and_markers_are_left_out() -> None:
    def batch(base: int, producer: int, value: bytes) -> bytes:
        builder = RecordBatchBuilder(
            producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True, base_offset=base
        )
        builder.append(None, value)
        return builder.build()

    def marker(base: int, producer: int, *, commit: bool) -> bytes:
        data = bytearray(end_transaction_marker(producer, 0, commit=commit, coordinator_epoch=0, timestamp_ms=0))
        data[:8] = base.to_bytes(8, "big")
        return bytes(data)

    log = b"".join(
        [
            batch(0, 1, b"aborted"),
            batch(1, 2, b"committed"),
            marker(2, 1, commit=False),
            batch(3, 1, b"second try"),
            marker(4, 2, commit=True),
            marker(5, 1, commit=True),
        ]
    )
    aborted = [AbortedTransaction(ProducerId(1), Offset(0))]
    records, position, _ = committed_records(T0, memoryview(log), 0, aborted)
    assert [(r.offset, r.value) for r in records] == [(1, b"committed"), (3, b"second try")]
    assert position == 6
    records, _, _ = committed_records(T0, memoryview(log), 0)
    assert [r.value for r in records] == [b"aborted", b"committed", b"second try"]


def test_a_broken_batch_is_never_handed_out() -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"value")
    data = bytearray(builder.build())
    data[-2] ^= 1
    with fails_with(E.CORRUPT_MESSAGE):
        committed_records(T0, memoryview(data), 0)


async def test_admin_calls() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        created = await client.create_topics([NewTopic("t", 2), NewTopic("u")])
        assert [(r.topic, r.error, r.partitions) for r in created] == [("t", 0, 2), ("u", 0, 1)]
        again = await client.create_topics([NewTopic("t", 2)])
        assert again[0].error == E.TOPIC_ALREADY_EXISTS
        assert [t.topic for t in (await client.metadata()).topics] == ["t", "u"]
        assert (await client.describe_cluster()).controller_epoch == 4
        assert [r.error for r in await client.delete_topics(["u", "v"])] == [0, E.UNKNOWN_TOPIC_OR_PARTITION]
        replicas = await client.describe_replicas()
        assert sorted(replicas) == [1, 2, 3]
        assert all(not isinstance(answer, KafkaliteError) and len(answer.replicas) == 2 for answer in replicas.values())
        await cluster.nodes[2].kill()
        health = await client.health()
        assert [isinstance(health[n], KafkaliteError) for n in sorted(health)] == [False, True, False]


async def test_any_live_node_will_do() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t")
        bootstrap = cluster.bootstrap
        await cluster.nodes[1].kill()
        await cluster.nodes[3].kill()
        for _ in range(5):
            async with AsyncClient.connect(bootstrap) as client:
                assert [t.topic for t in (await client.metadata(timeout_s=150)).topics] == ["t"]


async def test_a_node_that_never_answers_does_not_hold_up_what_any_node_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_requests, "ANY_NODE_TIMEOUT_S", 1e6)
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await client.metadata(["t"])
        cluster.nodes[2].hung = True
        for _ in range(6):  # each begins with another node
            assert (await client.metadata(["t"])).topics[0].topic == "t"
        assert cluster.requests.count((2, "MetadataRequest")) <= 2  # asked last once it was late


async def test_readers_leave_a_leader_that_never_answers_when_another_one_leads() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap, request_timeout_s=1e6) as client:
        cluster.create("t")
        await fill(client, 100)
        async with Consumer(client, max_bytes=400) as consumer:
            consumer.assign({T0: EARLIEST})
            values = await take(consumer, 10)
            cluster.nodes[1].hung = True
            cluster.requests.clear()
            reading = asyncio.get_running_loop().create_task(take(consumer, 100 - len(values)))
            offsets = asyncio.get_running_loop().create_task(client.list_offsets({T0: LATEST_TIMESTAMP}, timeout_s=1e6))
            raw = asyncio.get_running_loop().create_task(client.fetch_raw(T0, Offset(0), timeout_s=1e6))
            for kind in ("FetchRequest", "ListOffsetsRequest"):
                while (1, kind) not in cluster.requests:
                    await asyncio.sleep(0)
            cluster.move_leader("t", 0, 2)
            values += await reading
            assert (await offsets)[T0].offset == 100
            assert (await raw)[0].high_watermark == 100
        assert values == list(range(100))


@pytest.mark.parametrize("named", [9, 2])
async def test_a_named_replica_that_cannot_be_read_does_not_hold_up_the_consumer(named: int) -> None:
    """One that metadata does not know, or that refuses: the leader names it again whenever it is asked with the rack. Found by
    simulation seed 8: 4,000 fetches per second, and not one record, until the client's metadata was renewed for its age."""
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await fill(client, 100)
        cluster.preferred = BrokerId(named)
        cluster.requests.clear()
        async with Consumer(client, max_bytes=400, client_rack="r1") as consumer:
            consumer.assign({T0: EARLIEST})
            assert await take(consumer, 100) == list(range(100))
        kinds = [kind for _, kind in cluster.requests]
        assert "MetadataRequest" in kinds[kinds.index("FetchRequest") :], "the client asks who is there"


async def test_nobody_there_is_told_in_time() -> None:
    async with FakeCluster(1) as cluster:
        bootstrap = cluster.bootstrap
        await cluster.nodes[1].kill()
        async with AsyncClient.connect(bootstrap) as client:
            with pytest.raises(RpcError):
                await client.metadata(timeout_s=0.3)


async def test_old_metadata_does_not_turn_back_a_leader() -> None:
    async with FakeCluster(2) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        cluster.move_leader("t", 0, 2)
        await client.metadata(["t"])
        for node in cluster.nodes.values():
            node.metadata_view = {T0: (1, 0)}
        await client.metadata(["t"])
        leader = client.view.leader(T0)
        assert leader is not None
        assert (leader.broker_id, leader.leader_epoch) == (2, 1)


async def test_offsets_and_raw_fetches_follow_the_leader() -> None:
    async with FakeCluster(3) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await fill(client, 10)
        cluster.move_leader("t", 0, 3)
        assert (await client.list_offsets({T0: LATEST_TIMESTAMP}))[T0].offset == 10
        cluster.move_leader("t", 0, 2)
        told, records = await client.fetch_raw(T0, Offset(0))
        assert told.high_watermark == 10
        assert len(committed_records(T0, records, 0)[0]) == 10
        with fails_with(E.OFFSET_OUT_OF_RANGE):
            await client.fetch_raw(T0, Offset(11))


async def test_what_went_wrong_with_an_earlier_assignment_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t", 2)
        asked, answered = asyncio.Event(), asyncio.Event()

        async def refused(*_: object, **__: object) -> None:
            asked.set()
            await answered.wait()
            raise api_error(E.TOPIC_AUTHORIZATION_FAILED)

        monkeypatch.setattr(client, "list_offsets", refused)
        async with Consumer(client) as consumer:
            await client.known_topic("t")
            consumer.assign({T0: LATEST})
            await consumer.poll(timeout_s=0)
            await asked.wait()
            consumer.assign({TopicPartition("t", 1): 0})
            answered.set()
            while consumer.high_watermark(TopicPartition("t", 1)) < 0:
                assert await consumer.poll(timeout_s=0.05) == []


def test_an_error_that_only_newer_brokers_know_begins_the_fetch_session_again() -> None:
    session = ConsumerFetchSession()
    assert session.answered(wire.FetchResponse(error_code=9999)) is E.UNKNOWN_SERVER_ERROR


def test_a_partition_that_is_added_during_a_reset_is_left_alone() -> None:
    assert place(Reset("earliest"), {}, {T0: 3}, {T0: 9, TopicPartition("t", 1): 0}, {}) == {T0: 3}


async def test_a_leader_that_refuses_whole_fetches_is_asked_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await client.known_topic("t")
        asked = 0

        async def refused(*_: object, **__: object) -> object:
            nonlocal asked
            asked += 1
            return wire.FetchResponse(error_code=int(E.UNKNOWN_SERVER_ERROR))

        monkeypatch.setattr(client, "call_leader", refused)
        async with Consumer(client) as consumer:
            consumer.assign({T0: 0})
            assert await consumer.poll(timeout_s=0.2) == []
            assert 1 <= asked < 10


def damaged(log: FakeLog, number: int) -> None:
    """One bit of a batch's records."""
    first, last, data = log.batches[number]
    log.batches[number] = first, last, data[:-1] + bytes([data[-1] ^ 1])


async def test_a_broken_batch_is_raised_after_what_comes_before_it() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await fill(client, 100)
        damaged(cluster.log("t"), 2)
        before = cluster.log("t").batches[2][0]
        async with Consumer(client) as consumer:
            consumer.assign({T0: 0})
            assert await take(consumer, before) == list(range(before))
            for _ in range(2):  # it stays there
                with pytest.raises(ApiError, match=f"t-0 at offset {before}: ") as raised:
                    await consumer.poll(timeout_s=150)
                assert raised.value.code is E.CORRUPT_MESSAGE


async def test_a_broken_batch_does_not_hold_up_other_partitions() -> None:
    """All were decoded together: those of the same leader came never."""
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t", 2)
        await fill(client, 100, 2)
        damaged(cluster.log("t"), 0)
        async with Consumer(client) as consumer:
            await consumer.assign_topics(["t"])
            values: list[int] = []
            while len(values) < 50:
                try:
                    values += [int(record.value or b"") for record in await consumer.poll(timeout_s=150)]
                except ApiError as error:
                    assert error.code is E.CORRUPT_MESSAGE
        assert values == list(range(1, 100, 2))


async def test_a_start_that_is_not_known_yet_does_not_hold_up_other_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t", 2)
        await fill(client, 10, 2)

        async def never(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(client, "list_offsets", never)
        async with Consumer(client) as consumer:
            consumer.assign({T0: LATEST, TopicPartition("t", 1): 0})
            assert await take(consumer, 5) == list(range(1, 10, 2))


async def test_a_topic_that_may_not_be_read_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node names its leader, so there is nobody to ask for records."""
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        monkeypatch.setattr(client, "refresh_soon", lambda: None)
        client.view.update(
            Metadata("", BrokerId(1), (), (TopicMetadata("t", int(E.TOPIC_AUTHORIZATION_FAILED), NO_TOPIC_ID, ()),))
        )
        async with Consumer(client) as consumer:
            consumer.assign({T0: 0})
            with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED"):
                await consumer.poll(timeout_s=150)


@pytest.mark.parametrize("strict", [False, True])
async def test_what_another_leader_has_in_the_place_of_records_that_were_read_is_read(*, strict: bool) -> None:
    """After an election of a replica that was out of sync (KIP-320): the position lies within its log, behind records never read."""
    async with FakeCluster(2) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await fill(client, 100)
        async with Consumer(client, on_out_of_range=None if strict else EARLIEST) as consumer:
            consumer.assign({T0: 0})
            assert await take(consumer, 100) == list(range(100))
            log = cluster.log("t")
            log.truncate(60)
            lost = log.end
            cluster.move_leader("t", 0, 2)
            await fill(client, 100)
            expected = list(range(100))
            if strict:
                with pytest.raises(
                    ApiError, match=f"t-0: read up to 100, and an election has cut off the log at {lost}"
                ):
                    await consumer.poll(timeout_s=150)
            else:
                assert await take(consumer, 100) == expected
                assert consumer.position(T0) == lost + 100
                cluster.requests.clear()
                cluster.move_leader("t", 0, 1)
                await fill(client, 10)
                assert await take(consumer, 10) == list(range(10)), "an election that lost nothing changes nothing"
                assert (1, "OffsetForLeaderEpochRequest") in cluster.requests


async def test_a_position_is_checked_once_for_each_leader() -> None:
    async with FakeCluster(2) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await fill(client, 100)
        async with Consumer(client, max_bytes=400) as consumer:
            consumer.assign({T0: 0})
            values = await take(consumer, 50)
            cluster.move_leader("t", 0, 2)
            values += await take(consumer, 100 - len(values))
            assert values == list(range(100))
        kinds = [kind for _, kind in cluster.requests]
        assert kinds.count("OffsetForLeaderEpochRequest") <= 1
