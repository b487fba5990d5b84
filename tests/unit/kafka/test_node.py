"""The Kafka side of real nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.coordination.paths import DEFAULT_ENTITY
from kafkalite.coordination.topic_configs import BROKERS
from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.node.kafka_services import NodeServices
from kafkalite.protocol import wire
from kafkalite.replica import hosted
from tests.support.loopback_cluster import LoopbackCluster

from .conftest import FrameClient, batch, fetch, produce
from .coordinator_requests import commit

_SETTINGS: dict[str, Any] = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "controlled.shutdown.enable": False,
}


async def _leaders(client: FrameClient, topic: str) -> list[int]:
    answer = await client.ask(wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name=topic)]), 9)
    return [part.leader_id for part in answer.topics[0].partitions]


async def test_produce_and_fetch_on_the_leader_and_only_there(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=2, settings=_SETTINGS) as cluster:
        first = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        request = wire.CreateTopicsRequest
        answer = await first.ask(request([request.CreatableTopic("t", 1, 2)], 10_000), 7)
        assert (answer.topics[0].error_code, answer.topics[0].replication_factor) == (0, 2)
        [leader] = await _leaders(first, "t")
        other = await FrameClient.to(cluster.nodes[3 - leader].endpoints["kafka"])
        refused = await other.ask(produce("t", (0, batch(b"x"))), 9)
        assert refused.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # From version 10 on the answer says where the leader is (KIP-951); a Fetch with an epoch that is not the leader's, too.
        endpoint = cluster.nodes[leader].endpoints["kafka"]
        there = [(leader, endpoint.host, endpoint.port, None)]
        refused = await other.ask(produce("t", (0, batch(b"x"))), 10)
        part = refused.responses[0].partition_responses[0]
        assert (part.error_code, part.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader)
        assert [(e.node_id, e.host, e.port, e.rack) for e in refused.node_endpoints] == there
        client = await FrameClient.to(cluster.nodes[leader].endpoints["kafka"])
        taken = await client.ask(produce("t", (0, batch(b"x")), acks=-1, timeout_ms=60_000), 9)
        assert taken.responses[0].partition_responses[0].error_code == 0
        got = await client.ask(fetch("t", max_wait_ms=5000), 12)
        assert len(got.responses[0].partitions[0].records) > 61
        dirs = await client.ask(wire.DescribeLogDirsRequest(None), 4)
        assert {topic.name for each in dirs.results for topic in each.topics} == {"t"}
        for each in (first, other, client):
            each.close()


async def test_administration_of_a_node(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=2, settings=_SETTINGS) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        create = wire.CreateTopicsRequest
        assignment = [create.CreatableReplicaAssignment(0, [1, 2])]
        await client.ask(create([create.CreatableTopic("t", -1, -1, assignment)], 10_000), 7)
        other = await FrameClient.to(cluster.nodes[2].endpoints["kafka"])

        more = wire.CreatePartitionsRequest
        added = await client.ask(more([more.CreatePartitionsTopic("t", 2, None)], 10_000), 3)
        assert (added.results[0].error_code, len(await _leaders(client, "t"))) == (0, 2)
        for replicas in ([1], [1, 1], [1, 9], []):  # a topic has as many replicas everywhere
            wrong = more.CreatePartitionsTopic("t", 3, [more.CreatePartitionsAssignment(replicas)])
            refused = await client.ask(more([wrong], 10_000), 3)
            assert refused.results[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

        epochs = wire.OffsetForLeaderEpochRequest
        # What the log has never seen ends nowhere; what is before all that it knows ends at its first epoch's start, as in Kafka.
        for epoch, told in ((0, (0, 0)), (1, (-1, -1)), (-1, (-1, -1)), (-5, (-5, 0))):
            asked = epochs(-2, [epochs.OffsetForLeaderTopic("t", [epochs.OffsetForLeaderPartition(0, -1, epoch)])])
            [part] = (await client.ask(asked, 4)).topics[0].partitions
            assert (part.error_code, part.leader_epoch, part.end_offset) == (0, *told)

        written = batch(b"x", producer_id=7, producer_epoch=1, base_sequence=0)
        await client.ask(produce("t", (0, written), acks=-1, timeout_ms=60_000), 9)
        ask = wire.DescribeProducersRequest
        request = ask([ask.TopicRequest("t", [0]), ask.TopicRequest("nowhere", [0])])
        for node in (client, other):  # a follower knows as well as the leader
            answer = await node.ask(request, 0)
            [known] = answer.topics[0].partitions[0].active_producers
            assert (known.producer_id, known.producer_epoch, known.last_sequence) == (7, 1, 0)
            assert known.current_txn_start_offset == -1
            assert answer.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        dirs = (await client.ask(wire.DescribeLogDirsRequest(None), 4)).results
        assert [0 < each.usable_bytes < each.total_bytes for each in dirs] == [True]
        move = wire.AlterReplicaLogDirsRequest
        topics = [move.AlterReplicaLogDirTopic("t", [0, 9])]
        here, nowhere = move.AlterReplicaLogDir(dirs[0].log_dir, topics), move.AlterReplicaLogDir("/nowhere", topics)
        for wanted, codes in (
            (here, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
            (nowhere, [ErrorCode.LOG_DIR_NOT_FOUND] * 2),
        ):
            answer = await client.ask(move([wanted]), 2)
            assert [part.error_code for part in answer.results[0].partitions] == codes

        reassign = wire.AlterPartitionReassignmentsRequest
        parts = [reassign.ReassignablePartition(0, [2, 1])]
        ordered = await client.ask(reassign(10_000, topics=[reassign.ReassignableTopic("t", parts)]), 0)
        assert (ordered.error_code, ordered.responses[0].partitions[0].error_code) == (0, 0)
        listing = wire.ListPartitionReassignmentsRequest(10_000, None)
        async with asyncio.timeout(150):
            while (await client.ask(listing, 0)).topics:
                await asyncio.sleep(0.02)
        elect = wire.ElectLeadersRequest
        await client.ask(elect(0, [elect.TopicPartitions("t", [0])], 10_000), 2)
        async with asyncio.timeout(150):
            while (await _leaders(client, "t"))[0] != 2:
                await asyncio.sleep(0.02)
        for each in (client, other):
            each.close()


@pytest.mark.checklist(93)
async def test_a_replica_moves_between_disks_through_the_wire(tmp_path: Path) -> None:
    """AlterReplicaLogDirs: the replica is shown twice while it is copied, and then in its new directory, with all it had."""
    disks = [str(tmp_path / name) for name in ("one", "two")]
    # Slow enough to be looked at on its way: 2 MB at 2 MB/s.
    settings = _SETTINGS | {"log.dirs": disks, "replica.alter.log.dirs.io.max.bytes.per.second": 2_000_000}
    async with LoopbackCluster(tmp_path, settings=settings) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        create, move = wire.CreateTopicsRequest, wire.AlterReplicaLogDirsRequest
        await client.ask(create([create.CreatableTopic("t", 1, 1)], 10_000), 7)
        for _ in range(4):
            answer = await client.ask(produce("t", (0, batch(b"x" * 500_000)), acks=-1, timeout_ms=60_000), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

        async def places() -> dict[str, tuple[bool, int]]:
            """Directory -> (is it a future replica, bytes), of t-0."""
            dirs = (await client.ask(wire.DescribeLogDirsRequest(None), 4)).results
            assert [each.log_dir for each in dirs] == disks
            return {
                each.log_dir: (part.is_future_key, part.partition_size)
                for each in dirs
                for topic in each.topics
                if topic.name == "t"
                for part in topic.partitions
            }

        [source] = before = await places()
        [target] = [each for each in disks if each != source]
        size = before[source][1]
        assert size > 2_000_000
        order = move([move.AlterReplicaLogDir(target, [move.AlterReplicaLogDirTopic("t", [0])])])
        taken = await client.ask(order, 2)
        assert taken.results[0].partitions[0].error_code == ErrorCode.NONE
        on_the_way = await places()
        assert on_the_way[source] == (False, size)
        assert on_the_way[target][0] and on_the_way[target][1] < size
        async with asyncio.timeout(150):
            while (now := await places()) != {target: (False, size)}:
                assert not now[source][0] if source in now else not now[target][0]
                await asyncio.sleep(0.02)
        got = await client.ask(fetch("t", offset=3, max_wait_ms=5000), 12)
        assert len(got.responses[0].partitions[0].records) > 500_000
        client.close()


@pytest.mark.checklist(68, "C13")
@pytest.mark.parametrize(
    "key", ["reassignment.parallel.partition.count", "reassignment.max.concurrent.partition.count"]
)
async def test_limits_of_reassignments_are_set_through_the_wire(tmp_path: Path, key: str) -> None:
    async with LoopbackCluster(tmp_path, nodes=1, settings=_SETTINGS) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        request = wire.IncrementalAlterConfigsRequest

        async def alter(broker: str, name: str, operation: int, value: str | None) -> int:
            configs = [request.AlterableConfig(name, operation, value)]
            answer = await client.ask(request([request.AlterConfigsResource(4, broker, configs)]), 1)
            return int(answer.responses[0].error_code)

        assert await alter("", key, 0, "3") == 0
        assert await alter("", key, 0, "none") == ErrorCode.INVALID_REQUEST  # as with Kafka (KAFKA-13609)
        assert [await alter("", key, 0, text) for text in ("0", "-1", str(2**31))] == [ErrorCode.INVALID_REQUEST] * 3
        assert await alter("1", key, 0, "3") == ErrorCode.INVALID_REQUEST
        assert await alter("1", "offsets.topic.num.partitions", 0, "3") == ErrorCode.INVALID_REQUEST
        assert await alter("1", "num.partitions", 1, None) == 0
        assert await NodeServices(cluster.nodes[1]).entity_overrides(BROKERS, DEFAULT_ENTITY) == {key: "3"}
        assert await alter("", key, 1, None) == 0
        assert await NodeServices(cluster.nodes[1]).entity_overrides(BROKERS, DEFAULT_ENTITY) == {}
        client.close()


async def test_the_group_coordinator_follows_leadership_and_purges_deleted_topics(tmp_path: Path) -> None:
    settings = _SETTINGS | {"controlled.shutdown.enable": True}
    async with LoopbackCluster(tmp_path, nodes=2, settings=settings) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        request = wire.CreateTopicsRequest
        topics = [request.CreatableTopic("t", 1, 2), request.CreatableTopic("u", 1, 2)]
        await client.ask(request(topics, 10_000), 7)
        host_of = await _coordinator(client, "g")
        owner = await FrameClient.to(cluster.nodes[host_of].endpoints["kafka"])
        for topic in ("t", "u"):
            assert (await owner.ask(commit("g", 7, topic=topic), 8)).topics[0].partitions[0].error_code == 0
        survivor = 3 - host_of
        await cluster.stop(host_of)
        other = await FrameClient.to(cluster.nodes[survivor].endpoints["kafka"])
        assert await _coordinator(other, "g") == survivor
        assert await _committed(other) == {"t": 7, "u": 7}
        await cluster.start(host_of)
        await other.ask(wire.DeleteTopicsRequest(topic_names=["u"], timeout_ms=10_000), 5)
        async with asyncio.timeout(150):
            while await _committed(other) != {"t": 7}:
                await asyncio.sleep(0.02)
        for each in (client, owner, other):
            each.close()


async def _coordinator(client: FrameClient, group: str) -> int:
    async with asyncio.timeout(150):
        while True:
            answer = await client.ask(wire.FindCoordinatorRequest(key=group), 2)
            if answer.error_code == 0:
                probe = wire.OffsetFetchRequest
                asked = probe(groups=[probe.OffsetFetchRequestGroup(group, topics=None)])
                node = FrameClient()
                try:
                    await node.connect(answer.host, answer.port)
                except ConnectionError:  # it is down, and this one has not heard of it yet
                    continue
                ready = (await node.ask(asked, 8)).groups[0].error_code == 0
                node.close()
                if ready:
                    return int(answer.node_id)
            await asyncio.sleep(0.02)


async def _committed(client: FrameClient) -> dict[str, int]:
    request = wire.OffsetFetchRequest
    async with asyncio.timeout(150):
        while True:
            answer = await client.ask(request(groups=[request.OffsetFetchRequestGroup("g", topics=None)]), 8)
            (group,) = answer.groups
            if group.error_code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
                break
            await asyncio.sleep(0.01)  # the next controller has just confirmed the leader
    assert group.error_code == ErrorCode.NONE
    return {topic.name: topic.partitions[0].committed_offset for topic in group.topics}


async def test_who_invents_producer_ids_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(hosted, "_log", SimpleNamespace(warning=lambda event, **details: said.append(details)))
    async with LoopbackCluster(tmp_path, nodes=2, settings=_SETTINGS | {"max.producer.ids": 10}) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        create = wire.CreateTopicsRequest
        await client.ask(create([create.CreatableTopic("t", -1, -1, _on(1, 2))], 10_000), 7)

        async def append(producer_id: int) -> None:
            written = batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0)
            answer = await client.ask(produce("t", (0, written), acks=-1, timeout_ms=60_000), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

        for producer_id in range(10):
            await append(producer_id)
        assert said == []
        for producer_id in range(100, 130):
            await append(producer_id)
        assert [each["partition"] for each in said] == ["t-0"], "once, by the leader"
        assert said[0]["newest_of"] == "User:ANONYMOUS at 127.0.0.1, client.id 'test'"
        for node in cluster.nodes.values():
            partition = node.replicas.hosted.get(TopicPartition("t", 0))
            assert partition is not None
            assert list(partition.log.active_producers()) == list(range(120, 130))
            assert node.replicas.hosted.counters.dropped_producers == 30
            assert at_once(node.replicas.describing.figures()).totals["ProducerIdCount"] == 10
        client.close()


def _on(*brokers: int) -> list[wire.CreateTopicsRequest.CreatableReplicaAssignment]:
    return [wire.CreateTopicsRequest.CreatableReplicaAssignment(0, list(brokers))]
