"""Our own client against Apache Kafka: topics, records, groups, a failed leader, and what Apache Kafka does not offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.blocking import BlockingClient
from kafkalite.client.consumer import EARLIEST, Consumer
from kafkalite.client.membership import Membership
from kafkalite.client.producer import Producer
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition
from kafkalite.testing.apache_kafka import KafkaCluster
from tests.support.loopback_cluster import LoopbackCluster

from .conftest import run_client, seen_by
from .test_backup import CLIENT as BACKUP_CLIENT
from .test_backup import SETTINGS as BACKUP_SETTINGS
from .test_backup import backup

RECORDS = 2_000


async def test_our_client_works_on_apache_kafka(tmp_path: Path, kafka_classes: str) -> None:
    settings = {"default.replication.factor": 2, "min.insync.replicas": 1}
    with KafkaCluster(tmp_path, kafka_classes, nodes=3, settings=settings) as kafka:
        async with AsyncClient.connect(kafka.bootstrap) as client:
            [created] = await client.create_topics([NewTopic("t", 4, 3)])
            assert (created.error, created.partitions) == (0, 4)
            [again] = await client.create_topics([NewTopic("t", 4, 3)])
            assert again.error == ErrorCode.TOPIC_ALREADY_EXISTS
            async with Producer(client, compression="gzip", linger_ms=20) as producer:
                sent = [await producer.send("t", None, b"%d" % n) for n in range(RECORDS // 2)]
                await producer.flush()
                leader = client.view.leader(TopicPartition("t", 0))
                assert leader is not None
                kafka.nodes[leader.broker_id].kill()
                sent += [await producer.send("t", None, b"%d" % n) for n in range(RECORDS // 2, RECORDS)]
            assert all(each.result().offset >= 0 for each in sent)
            keys = [TopicPartition("t", number) for number in range(4)]
            ends = await client.end_offsets(keys)
            assert sum(ends.values()) == RECORDS
            async with Consumer(client, read_committed=True) as consumer:
                await consumer.assign_topics(["t"], EARLIEST)
                values: list[int] = []
                while len(values) < RECORDS:
                    values += [int(each.value or b"") for each in await consumer.poll()]
            assert sorted(values) == list(range(RECORDS))
            await in_a_group(client, keys)
            described = (await client.describe_topics(["t"])).topics[0]
            assert [len(each.replicas) for each in described.partitions] == [3] * 4
            with pytest.raises(ApiError, match="does not offer kafkalite's extension API"):
                await client.describe_cluster()
        with BlockingClient(kafka.bootstrap) as blocking:
            assert blocking.fetch_raw(keys[0], 0).high_watermark == ends[keys[0]]


async def test_a_backup_moves_topics_to_and_from_apache_kafka(
    tmp_path: Path, kafka_classes: str, python_clients: Path
) -> None:
    """Written there by confluent-kafka, copied, restored in kafkalite; then the same back."""
    internal = (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    )
    with KafkaCluster(tmp_path / "kafka", kafka_classes, nodes=1, settings=dict.fromkeys(internal, 1)) as kafka:
        async with LoopbackCluster(tmp_path / "ours", settings=BACKUP_SETTINGS) as ours:
            there, client = kafka.bootstrap, str(BACKUP_CLIENT)
            await run_client([str(python_clients), client, "write", there])
            before = await seen_by([str(python_clients), client, "read", there, ""])
            directory = tmp_path / "backup"
            copied = await backup("create", str(directory), "--bootstrap", there)
            assert sum(each["records"] for each in copied["topics"]) == 6043
            await backup("restore", str(directory), "--bootstrap", ours.bootstrap)
            assert await seen_by([str(python_clients), client, "read", ours.bootstrap, ""]) == before
            back = tmp_path / "back"
            await backup("create", str(back), "--bootstrap", ours.bootstrap)
            await backup("restore", str(back), "--bootstrap", there, "--replace", "--yes")
            assert await seen_by([str(python_clients), client, "read", there, ""]) == before


async def in_a_group(client: AsyncClient, keys: list[TopicPartition]) -> None:
    groups = Groups(client)
    member = Membership(client, groups, "g", ["t"])
    await member.join()
    assert sorted(member.partitions) == keys
    assert await member.commit(dict.fromkeys(keys, 7))
    assert await member.committed() == dict.fromkeys(keys, 7)
    assert [(row.group, row.state, row.members) for _, row in await groups.list()] == [("g", "Stable", 1)]
    await member.leave()
    await groups.commit("g", {keys[0]: 9}, deletions=[keys[1]])
    _, told = await groups.describe("g")
    assert {TopicPartition(each.topic, each.partition): each.offset for each in told.offsets} == {
        keys[0]: 9, keys[2]: 7, keys[3]: 7
    }  # fmt: skip
    await groups.delete("g")
    assert (await groups.describe("g"))[1].state == "Dead"
