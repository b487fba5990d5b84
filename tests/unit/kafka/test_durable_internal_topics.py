"""What is acknowledged for a topic with log.flush.before.ack is on disks also where it is in internal topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalite.config import BrokerConfig, TopicConfig, internal_topic_config
from kafkalite.coordinators.internal_topics import broker_count, internal_topic
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC, SCHEMA_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC, BrokerId, TopicId, TopicPartition
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite.protocol import wire
from kafkalite.replica.requests import MetadataResponse
from kafkalite.rpc.messages.control import Broker
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.waiting import until

from .conftest import FrameClient, batch, produce
from .coordinator_requests import commit
from .test_node import _leaders

_SETTINGS: dict[str, Any] = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "controlled.shutdown.enable": False,
}
FLUSH = {"log.flush.before.ack": "true"}


@pytest.mark.parametrize("name", [GROUP_TOPIC, TRANSACTION_TOPIC])
@pytest.mark.parametrize(
    ("alive", "settings", "min_isr"),
    [
        (1, {}, 1),
        (2, {}, 1),  # neither of two nodes may otherwise be missing
        (3, {}, 2),
        (9, {}, 2),
        (3, {"transaction_state_log_min_isr": 1}, 1),
        (3, {"transaction_state_log_min_isr": 3}, 2),
        (2, {"topic": TopicConfig(min_insync_replicas=2)}, 2),  # the operator says so
        (1, {"topic": TopicConfig(min_insync_replicas=2)}, 1),
        (3, {"topic": TopicConfig(min_insync_replicas=3)}, 3),
    ],
)
def test_the_min_isr_of_an_internal_topic(name: str, alive: int, settings: dict[str, Any], min_isr: int) -> None:
    order = internal_topic(name, BrokerConfig(**settings), alive)
    assert order.replication_factor == min(alive, 3)
    assert order.configs is not None
    assert order.configs["min.insync.replicas"] == str(min_isr)


SEGMENTS = {
    GROUP_TOPIC: "offsets.topic.segment.bytes",
    TRANSACTION_TOPIC: "transaction.state.log.segment.bytes",
    SHARE_TOPIC: "share.coordinator.state.topic.segment.bytes",
}


@pytest.mark.parametrize("name", sorted(SEGMENTS))
def test_segment_bytes_of_an_internal_topic(name: str) -> None:
    """As with Kafka it is written when the topic is created. A topic without it has that of the broker, not that of other topics."""
    settings: dict[str, Any] = {SEGMENTS[name].replace(".", "_"): 2_000_000}
    config = BrokerConfig(**settings, topic=TopicConfig(segment_bytes=500))
    order = internal_topic(name, config, 3)
    assert order.configs is not None and order.configs["segment.bytes"] == "2000000"
    effective = [
        internal_topic_config(config, name, own, others_flush=False).segment_bytes
        for own in ({}, {"segment.bytes": "7000"})
    ]
    assert effective == [2_000_000, 7_000]
    assert internal_topic_config(config, SCHEMA_TOPIC, {}, others_flush=False).segment_bytes == 500


def _known(alive: Iterable[int], *replicas: tuple[int, ...]) -> MetadataResponse:
    partitions = tuple(
        PartitionMetadata(number, 0, each[0], 0, each, each)  # type: ignore[arg-type]
        for number, each in enumerate(replicas)
    )
    brokers = tuple(Broker(number, 1, "h", 1, "h", 2) for number in alive)  # type: ignore[arg-type]
    return MetadataResponse("c", 1, brokers, (TopicMetadata("t", 0, TopicId(""), partitions),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("alive", "replicas", "count"),
    [
        ([1], [], 1),
        ([1, 2, 3], [(1,), (2,)], 3),
        ([1], [(1, 2, 3)], 3),  # two of three are away for a moment
        ([4], [(1, 2), (2, 3)], 4),
    ],
)
def test_brokers_that_have_replicas_count_though_they_are_away(
    alive: list[int], replicas: list[tuple[int, ...]], count: int
) -> None:
    assert broker_count(_known(alive, *replicas)) == count


def test_before_the_first_metadata_the_number_of_brokers_is_not_known() -> None:
    assert broker_count(replace(_known([4]), controller_id=BrokerId(-1))) == 0


@pytest.mark.parametrize(
    ("broker", "own", "others_flush", "expected"),
    [
        (False, {}, False, False),
        (False, {}, True, True),
        (True, {}, False, True),
        (False, FLUSH, False, True),
        (False, {"log.flush.before.ack": "false"}, True, False),  # its own setting holds
        (True, {"log.flush.before.ack": "false"}, True, False),
    ],
)
def test_an_internal_topic_flushes_when_another_topic_does(
    *, broker: bool, own: dict[str, str], others_flush: bool, expected: bool
) -> None:
    config = BrokerConfig(topic=TopicConfig(log_flush_before_ack=broker))
    assert internal_topic_config(config, GROUP_TOPIC, own, others_flush=others_flush).log_flush_before_ack == expected


async def _create(client: FrameClient, name: str, configs: dict[str, str] | None = None) -> None:
    request = wire.CreateTopicsRequest
    entries = [request.CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
    answer = await client.ask(request([request.CreatableTopic(name, 1, 3, configs=entries)], 10_000), 7)
    assert answer.topics[0].error_code == 0


async def _coordinator(cluster: LoopbackCluster, client: FrameClient, key: str, kind: int) -> FrameClient:
    async with asyncio.timeout(150):
        while True:
            found = (
                await client.ask(wire.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
            ).coordinators[0]
            if not found.error_code:
                return await FrameClient.to(cluster.nodes[found.node_id].endpoints["kafka"])
            await asyncio.sleep(0.01)


def _unsynced(cluster: LoopbackCluster, topic: str) -> list[int]:
    """Nodes in sync whose log of partition 0 is not on the disk to its end, or to the high watermark of its leader."""
    key = TopicPartition(topic, 0)
    hosted = {number: node.replicas.hosted.get(key) for number, node in cluster.nodes.items()}
    leader = next(each.leader for each in hosted.values() if each is not None and each.leader is not None)
    return [
        number
        for number, each in hosted.items()
        if each is not None and number in leader.committed_isr and each.log.synced_offset < leader.high_watermark
    ]


def _flushing(cluster: LoopbackCluster, topic: str) -> set[bool]:
    key = TopicPartition(topic, 0)
    hosted = [node.replicas.hosted.get(key) for node in cluster.nodes.values()]
    return {each.config.log_flush_before_ack for each in hosted if each is not None}


async def _patient(client: FrameClient, message: Any, version: int, code: Any) -> Any:
    """Ask again while the coordinator loads or is busy."""
    waits = (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
    async with asyncio.timeout(150):
        while True:
            answer = await client.ask(message, version)
            if code(answer) not in waits:
                assert code(answer) == 0
                return answer
            await asyncio.sleep(0.01)


def _first_code(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


async def test_transactions_and_offsets_of_a_topic_that_flushes_are_on_every_disk_in_sync(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=3, settings=_SETTINGS) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        await _create(client, "plain")
        transactions = await _coordinator(cluster, client, "x", 1)
        groups = await _coordinator(cluster, client, "g", 0)
        # Without such a topic they are as durable as Kafka's.
        await _patient(groups, commit("g", 1, topic="plain"), 8, _first_code)
        assert _flushing(cluster, GROUP_TOPIC) == {False} and _unsynced(cluster, GROUP_TOPIC)

        await _create(client, "durable", FLUSH)
        internal = (GROUP_TOPIC, TRANSACTION_TOPIC)
        await until(lambda: all(_flushing(cluster, topic) == {True} for topic in internal))
        started = await _patient(transactions, wire.InitProducerIdRequest("x", 60_000), 4, lambda got: got.error_code)
        producer = (started.producer_id, started.producer_epoch)
        assert _unsynced(cluster, TRANSACTION_TOPIC) == []
        add = wire.AddPartitionsToTxnRequest
        asked = add(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[add.AddPartitionsToTxnTopic("durable", [0])],
        )
        await _patient(
            transactions,
            asked,
            3,
            lambda got: got.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        assert _unsynced(cluster, TRANSACTION_TOPIC) == []
        leader = await FrameClient.to(cluster.nodes[(await _leaders(client, "durable"))[0]].endpoints["kafka"])
        written = batch(b"x", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
        taken = await leader.ask(produce("durable", (0, written), timeout_ms=60_000, transactional_id="x"), 9)
        assert taken.responses[0].partition_responses[0].error_code == 0
        await _patient(transactions, wire.EndTxnRequest("x", *producer, committed=True), 3, lambda got: got.error_code)
        assert _unsynced(cluster, TRANSACTION_TOPIC) == []  # the decision
        await _patient(groups, commit("g", 2, topic="durable"), 8, _first_code)
        assert _unsynced(cluster, GROUP_TOPIC) == []

        # DescribeConfigs says what holds; the topic's own setting is stronger; the last such topic takes it away.
        configs = wire.DescribeConfigsRequest
        resource = configs.DescribeConfigsResource(
            2, TRANSACTION_TOPIC, ["log.flush.before.ack", "min.insync.replicas"]
        )
        [described] = (await client.ask(configs([resource]), 4)).results
        assert {each.name: each.value for each in described.configs} == {
            "log.flush.before.ack": "true",
            "min.insync.replicas": "2",
        }
        alter = wire.IncrementalAlterConfigsRequest
        change = alter.AlterableConfig("log.flush.before.ack", 0, "false")
        answer = await client.ask(alter([alter.AlterConfigsResource(2, GROUP_TOPIC, [change])], validate_only=False), 1)
        assert answer.responses[0].error_code == 0
        await until(lambda: _flushing(cluster, GROUP_TOPIC) == {False})
        assert _flushing(cluster, TRANSACTION_TOPIC) == {True}
        await client.ask(wire.DeleteTopicsRequest(topic_names=["durable"], timeout_ms=10_000), 5)
        await until(lambda: _flushing(cluster, TRANSACTION_TOPIC) == {False})
        for each in (client, transactions, groups, leader):
            each.close()
