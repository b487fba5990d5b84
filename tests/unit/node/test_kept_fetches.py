"""A client without fetch sessions lists all its partitions in each request. What its connection keeps between them changes no answer."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkalite.extension.messages.tracing import TraceRequest
from kafkalite.kafka.fetch_listing import FROM
from kafkalite.kafka.kept_fetches import KEPT_FROM
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.schema import schemas
from tests.support.logs import build_batch
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.waiting import until

PARTITIONS = 60
#: With what is added and taken away, the list is now above and now below the number from which it is kept.
FEW = KEPT_FROM + 1


class Client:
    """One connection; a request, then its response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, bootstrap: str) -> Client:
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=2**24))

    async def ask(self, message: Any, version: int) -> Any:
        name = type(message).__name__
        schema = schemas()[name]
        head = struct.pack(">hhih", schema.api_key, version, 1, 4) + b"test"
        body = head + (b"\0" if version in schema.flexible else b"") + encode(message, version)
        self.writer.write(len(body).to_bytes(4) + body)
        data = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4)))
        answer = name.removesuffix("Request") + "Response"
        return decode(answer, version, data[5 if version in schemas()[answer].flexible else 4 :])


class World:
    """One node's topic, the consumer that goes on, and what it wants."""

    def __init__(
        self, cluster: LoopbackCluster, admin: Client, version: int, seed: int, partitions: int = PARTITIONS
    ) -> None:
        self.partitions = partitions
        self.cluster = cluster
        self.admin = admin
        self.version = version
        self.random = random.Random(seed)
        self.offsets = dict.fromkeys(range(partitions), 0)
        self.isolation = 0
        self.topic_id = bytes(16)

    async def create(self) -> None:
        request = wire.CreateTopicsRequest
        answer = await self.admin.ask(request([request.CreatableTopic("t", self.partitions + 5, 1)], 30_000), 7)
        assert answer.topics[0].error_code == 0
        node = self.cluster.nodes[1]
        self.topic_id = topic_ids.to_wire(topic_ids.from_wire(answer.topics[0].topic_id))
        while sum(1 for each in node.replicas.hosted.of_topic("t") if each.leader is not None) < self.partitions + 5:
            await asyncio.sleep(0.01)

    async def change(self) -> None:
        """Something that a consumer sees."""
        number = self.random.randrange(self.partitions)
        match self.random.randrange(12):
            case 0 | 1 | 2:
                request = wire.ProduceRequest
                data = request.PartitionProduceData(number, build_batch([(None, b"v%d" % self.random.randrange(99))]))
                await self.admin.ask(
                    request(None, -1, 30_000, [request.TopicProduceData("t", partition_data=[data])]), 9
                )
            case 3:
                deletion = wire.DeleteRecordsRequest
                part = deletion.DeleteRecordsPartition(number, -1)
                await self.admin.ask(deletion([deletion.DeleteRecordsTopic("t", [part])], 30_000), 2)
            case 4:
                self.offsets[number] = self.random.randrange(4)
            case 5:
                self.offsets.pop(number, None)
            case 6:
                self.offsets[self.random.randrange(self.partitions + 20)] = 0
            case 7:
                self.isolation = 1 - self.isolation
            case 8 | 9 | 10:  # as librdkafka: each request begins with another partition
                first = next(iter(self.offsets))
                self.offsets[first] = self.offsets.pop(first)
            case _:
                listed = list(self.offsets.items())
                self.random.shuffle(listed)
                self.offsets = dict(listed)

    async def fetch(self, client: Client) -> dict[int, tuple[int, int, int, int, bytes]]:
        request = wire.FetchRequest
        parts = [
            request.FetchPartition(number, fetch_offset=offset, partition_max_bytes=2**20)
            for number, offset in self.offsets.items()
        ]
        by_id = self.version >= 13
        topic = request.FetchTopic("" if by_id else "t", self.topic_id if by_id else bytes(16), parts)
        message = request(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=2**26,
            isolation_level=self.isolation,
            session_epoch=-1,
            topics=[topic],
        )
        answer = await client.ask(message, self.version)
        return {
            part.partition_index: (
                part.error_code,
                part.high_watermark,
                part.last_stable_offset,
                part.log_start_offset,
                bytes(part.records or b""),
            )
            for topic in answer.responses
            for part in topic.partitions
        }


@pytest.mark.parametrize("partitions", [PARTITIONS, FEW])
@pytest.mark.parametrize(("version", "seed"), [(4, 1), (11, 2), (12, 3), (13, 4), (16, 5), (18, 6)])
async def test_what_is_kept_changes_no_answer(tmp_path: Path, version: int, seed: int, partitions: int) -> None:
    async with LoopbackCluster(tmp_path, settings={"num.partitions": 1}) as cluster:
        admin, steady = await Client.open(cluster.bootstrap), await Client.open(cluster.bootstrap)
        world = World(cluster, admin, version, seed, partitions)
        await world.create()
        kept = cluster.nodes[1].kafka.fetching.kept
        reused = 0
        for _ in range(60):
            for _ in range(world.random.randrange(4)):
                await world.change()
            fresh = await Client.open(cluster.bootstrap)
            expected = await world.fetch(fresh)
            fresh.writer.close()
            before = next(iter(kept._kept.values()), None)
            assert await world.fetch(steady) == expected
            reused += before is not None and any(each is before for each in kept._kept.values())
        assert reused >= 20
        assert kept.recalled >= 5 if version >= FROM else not kept.recalled
        steady.writer.close()
        await until(lambda: not len(kept))
        assert kept.partitions == 0
        hosted = cluster.nodes[1].replicas.hosted
        await until(lambda: not any(partition.fetch_waiters for partition in hosted.of_topic("t")))
        admin.writer.close()


async def test_a_long_poll_of_a_kept_fetch_ends_with_the_first_record(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path) as cluster:
        admin, steady = await Client.open(cluster.bootstrap), await Client.open(cluster.bootstrap)
        world = World(cluster, admin, 11, 1)
        await world.create()
        request, produce = wire.FetchRequest, wire.ProduceRequest
        for number in range(5):
            for _ in range(2):  # what the second one reads is what has changed since
                await world.fetch(steady)
            parts = [
                request.FetchPartition(each, fetch_offset=offset, partition_max_bytes=2**20)
                for each, offset in world.offsets.items()
            ]
            message = request(
                max_wait_ms=600_000,
                min_bytes=1,
                max_bytes=2**26,
                session_epoch=-1,
                topics=[request.FetchTopic("t", partitions=parts)],
            )
            waiting = asyncio.ensure_future(steady.ask(message, 11))
            await until(lambda: len(cluster.nodes[1].replicas.hosted.wheel))
            data = produce.PartitionProduceData(number, build_batch([(None, b"x")]))
            await admin.ask(produce(None, -1, 30_000, [produce.TopicProduceData("t", partition_data=[data])]), 9)
            answer = await waiting
            found = {part.partition_index: part for topic in answer.responses for part in topic.partitions}
            assert len(found) == PARTITIONS
            assert [each for each, part in found.items() if part.records] == [number]
            world.offsets[number] += 1
        steady.writer.close()
        admin.writer.close()


async def test_a_connection_that_ends_during_a_long_poll_leaves_nothing_behind(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path) as cluster:
        admin, steady = await Client.open(cluster.bootstrap), await Client.open(cluster.bootstrap)
        world = World(cluster, admin, 11, 1)
        await world.create()
        node = cluster.nodes[1]
        for _ in range(2):
            await world.fetch(steady)
        request = wire.FetchRequest
        parts = [request.FetchPartition(each, fetch_offset=0, partition_max_bytes=2**20) for each in world.offsets]
        topics = [request.FetchTopic("t", partitions=parts)]
        polling = request(max_wait_ms=600_000, min_bytes=1, max_bytes=2**26, session_epoch=-1, topics=topics)
        waiting = asyncio.ensure_future(steady.ask(polling, 11))
        await until(lambda: len(node.replicas.hosted.wheel))
        assert any(partition.fetch_waiters for partition in node.replicas.hosted.of_topic("t"))
        steady.writer.close()
        with pytest.raises(asyncio.IncompleteReadError):
            await waiting
        while any(partition.fetch_waiters for partition in node.replicas.hosted.of_topic("t")):
            await asyncio.sleep(0.01)
        assert (len(node.kafka.fetching.kept), node.kafka.fetching.kept.partitions) == (0, 0)
        admin.writer.close()


async def test_a_fetch_that_was_traced_is_what_the_next_one_is_compared_with(tmp_path: Path) -> None:
    """While requests are traced, all of a fetch is decoded: a trace shows its partitions."""
    async with LoopbackCluster(tmp_path) as cluster:
        admin, steady = await Client.open(cluster.bootstrap), await Client.open(cluster.bootstrap)
        world = World(cluster, admin, 16, 1)
        await world.create()
        request = wire.ProduceRequest
        data = request.PartitionProduceData(0, build_batch([(None, b"x")]))
        await admin.ask(request(None, -1, 30_000, [request.TopicProduceData("t", partition_data=[data])]), 9)
        for _ in range(2):
            assert (await world.fetch(steady))[0][-1]
        tracer = cluster.nodes[1].kafka.listener.tracer
        watching = asyncio.ensure_future(tracer.watch(TraceRequest()))
        while not tracer.watchers:
            await asyncio.sleep(0)
        world.offsets[0] = 1
        assert not (await world.fetch(steady))[0][-1]
        watching.cancel()
        while tracer.watchers:
            await asyncio.sleep(0)
        world.offsets[0] = 0  # the consumer goes back
        assert (await world.fetch(steady))[0][-1]
        steady.writer.close()
        admin.writer.close()


@pytest.mark.parametrize("session_epoch", [0, -1])
async def test_the_long_poll_of_a_connection_that_is_gone_ends(tmp_path: Path, session_epoch: int) -> None:
    """A client names its deadline, up to 24 days away. Many that were left counted among the operations that wait: beyond their
    limit each produce request with acks=all is refused."""
    async with LoopbackCluster(tmp_path) as cluster:
        client = await Client.open(cluster.bootstrap)
        world = World(cluster, client, 12, 0)
        await world.create()
        hosted = cluster.nodes[1].replicas.hosted
        request = wire.FetchRequest
        part = request.FetchPartition(0, fetch_offset=0, partition_max_bytes=2**20)
        message = request(
            max_wait_ms=2**31 - 1,
            min_bytes=1,
            max_bytes=2**20,
            session_epoch=session_epoch,
            topics=[request.FetchTopic("t", partitions=[part])],
        )
        watched = hosted.of_topic("t")[0].fetch_waiters
        poll = asyncio.ensure_future(client.ask(message, 12))
        await until(lambda: watched)
        before = len(hosted.wheel)
        poll.cancel()
        client.writer.close()
        await until(lambda: not watched)
        assert len(hosted.wheel) == before - 1
