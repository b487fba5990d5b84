"""The cluster in one process: what `kafkalite dev` and the pytest fixture stand on."""

from __future__ import annotations

from pathlib import Path

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.blocking import BlockingClient
from kafkalite.client.consumer import Consumer
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster import Cluster, ThreadedCluster, cluster


async def values(client: AsyncClient, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Consumer(client) as consumer:
        await consumer.assign_topics([topic])
        while len(found) < count:
            found += [record.value for record in await consumer.poll(timeout_s=150)]
    return found


async def test_records_survive_the_stop_of_a_node() -> None:
    async with cluster(3) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 3, configs={"min.insync.replicas": "2"})])
        leader = (await client.metadata(["t"])).topics[0].partitions[0].leader
        async with Producer(client) as producer:
            first = [await producer.send("t", None, b"%d" % number) for number in range(100)]
            await producer.flush()
            await running.stop_node(leader)
            second = [await producer.send("t", None, b"%d" % number) for number in range(100, 200)]
            await producer.flush()
            assert [future.result().offset for future in first + second] == list(range(200))
        await running.start_node(leader)
        assert await values(client, "t", 200) == [b"%d" % number for number in range(200)]


async def test_a_directory_keeps_topics_and_records_for_the_next_run(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    first = await Cluster(nodes=1, directory=directory).start()
    async with AsyncClient.connect(first.bootstrap) as client, Producer(client) as producer:
        await client.create_topics([NewTopic("kept", 2, 1, configs={"retention.ms": "-1"})])
        for partition in (0, 1):
            await producer.send("kept", None, b"%d" % partition, partition=partition)
        await producer.flush()
        topic_id = (await client.metadata(["kept"])).topics[0].topic_id
    await first.stop()

    second = await Cluster(nodes=1, directory=directory).start()
    async with AsyncClient.connect(second.bootstrap) as client:
        assert sorted(await values(client, "kept", 2)) == [b"0", b"1"]  # type: ignore[type-var]
        assert (await client.metadata(["kept"])).topics[0].topic_id == topic_id
    await second.stop()


def test_a_cluster_in_a_thread_serves_code_that_is_not_asynchronous() -> None:
    with ThreadedCluster(2) as running:
        assert len(running.bootstrap) == 2
        client = BlockingClient(",".join(running.bootstrap))
        assert len(client.metadata().brokers) == 2
        client.close()


def test_without_a_directory_nothing_is_left_behind() -> None:
    with ThreadedCluster(1) as running:
        client = BlockingClient(",".join(running.bootstrap))
        cluster_id = client.metadata().cluster_id
        client.close()
    with ThreadedCluster(1) as running:
        client = BlockingClient(",".join(running.bootstrap))
        assert client.metadata().cluster_id != cluster_id
        client.close()
