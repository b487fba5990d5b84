"""Coordinators that load from compacted logs: what was committed is there after kill -9, whoever coordinates."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster
from tests.unit.kafka.conftest import batch, fetch, produce
from tests.unit.kafka.coordinator_requests import commit
from tests.unit.kafka.transactional_producer import Producer

pytestmark = [pytest.mark.cluster]

_SETTINGS = {
    "http.port": -1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "zookeeper.session.timeout.ms": 3_000,
}
_PATIENCE_S = 90.0
_GROUPS = 4
_ROUNDS = 150
_TRANSACTIONS = 12
_RETRY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


async def until_true(what: str, condition: Callable[[], Awaitable[Any]]) -> Any:
    """Ask again and again, through nodes that are gone and coordinators that load."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if found := await condition():
                return found
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        assert time.monotonic() < until, f"in vain: {what}"
        await asyncio.sleep(0.1)


class Cluster:
    def __init__(self, processes: ProcessCluster) -> None:
        self.processes = processes
        self._clients: list[FrameClient] = []

    async def client(self, broker_id: int) -> FrameClient:
        host, port = str(self.processes.nodes[broker_id].ready["kafka"]).rsplit(":", 1)
        client = FrameClient()
        await client.connect(host, int(port))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            client.close()
            with contextlib.suppress(OSError):  # its node was killed
                await client.writer.wait_closed()

    async def coordinator(self, key: str, kind: int) -> tuple[int, FrameClient]:
        """(broker id, connection) of a coordinator that has loaded."""

        async def find() -> tuple[int, FrameClient] | None:
            for broker_id, node in self.processes.nodes.items():
                if not node.running:
                    continue
                asked = await self.client(broker_id)
                found = (
                    await asked.ask(wire.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
                ).coordinators[0]
                asked.close()
                if found.error_code or not self.processes.nodes[found.node_id].running:
                    continue
                client = await self.client(found.node_id)
                if kind == 0:
                    answer = await client.ask(wire.DescribeGroupsRequest([key]), 5)
                    error = answer.groups[0].error_code
                else:
                    answer = await client.ask(wire.DescribeTransactionsRequest([key]), 0)
                    error = answer.transaction_states[0].error_code
                if error not in _RETRY:
                    return int(found.node_id), client
                client.close()
            return None

        found: tuple[int, FrameClient] = await until_true(f"the coordinator of {key}", find)
        return found

    async def leader(self, topic: str) -> FrameClient:
        async def find() -> FrameClient | None:
            for broker_id, node in self.processes.nodes.items():
                if node.running:
                    asked = await self.client(broker_id)
                    request = wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name=topic)])
                    part = (await asked.ask(request, 9)).topics[0].partitions
                    asked.close()
                    if part and part[0].leader_id > 0 and self.processes.nodes[part[0].leader_id].running:
                        return await self.client(part[0].leader_id)
            return None

        found: FrameClient = await until_true(f"a leader of {topic}", find)
        return found

    def bytes_of(self, broker_id: int, topic: str) -> int:
        return sum(file.stat().st_size for file in self.directory(broker_id, topic).glob("*.log"))

    def directory(self, broker_id: int, topic: str) -> Path:
        return self.processes.directory / f"node-{broker_id}" / "disk-0" / f"{topic}-0"


async def _small_segments(client: FrameClient) -> None:
    request = wire.IncrementalAlterConfigsRequest
    values = {"segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.01"}
    configs = [request.AlterableConfig(name, 0, value) for name, value in values.items()]
    resources = [
        request.AlterConfigsResource(2, topic, configs) for topic in ("__consumer_offsets", "__transaction_state")
    ]
    answer = await client.ask(request(resources), 1)
    assert [response.error_code for response in answer.responses] == [0, 0]


class Transactional(Producer):
    """The unit tests' producer; coordinator and partition leader are different nodes here."""

    def __init__(self, cluster: Cluster, client: FrameClient, leader: FrameClient, name: str) -> None:
        super().__init__(client, name)
        self.cluster = cluster
        self.leader = leader

    async def start(self, version: int = 4, **fields: Any) -> int:
        async def begin() -> Any:
            answer = await self.client.ask(wire.InitProducerIdRequest(self.name, 600_000, **fields), version)
            return None if answer.error_code in _RETRY else answer

        answer = await until_true("a producer id", begin)
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    async def send(self, value: bytes) -> int:
        records = batch(
            value, producer_id=self.id, producer_epoch=self.epoch, base_sequence=self.sequence, transactional=True
        )
        self.sequence += 1

        async def sent() -> list[int] | None:
            answer = await self.leader.ask(produce("t", (0, records), transactional_id=self.name), 9)
            error = answer.responses[0].partition_responses[0].error_code
            # A client sends again: the leader verifies the transaction at a coordinator that may still load (KIP-890).
            return None if error == ErrorCode.NOT_ENOUGH_REPLICAS else [error]

        return int((await until_true("an answer to a Produce", sent))[0])

    async def finish(self, *, committed: bool) -> int:
        async def end() -> list[int] | None:
            error = await self.end(committed=committed)
            return None if error in _RETRY else [error]

        return int((await until_true("the end of a transaction", end))[0])


@pytest.mark.checklist("F25")
async def test_nothing_is_lost_in_compacted_logs(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=3, settings=_SETTINGS) as processes:
        cluster = Cluster(processes)
        any_node = await cluster.client(1)
        request = wire.CreateTopicsRequest
        created = await any_node.ask(request([request.CreatableTopic("t", 1, 3)], 30_000), 7)
        assert created.topics[0].error_code == 0
        owner, groups = await cluster.coordinator("g-0", 0)
        _, transactions = await cluster.coordinator("x-0", 1)
        await _small_segments(any_node)
        leader = await cluster.leader("t")

        async def committed_all(number: int, count: int = _GROUPS) -> bool:
            answers = [await groups.ask(commit(f"g-{each}", number), 8) for each in range(count)]
            return all(answer.topics[0].partitions[0].error_code == 0 for answer in answers)

        for number in range(_ROUNDS):
            if not await committed_all(number):  # replicas may still be joining
                await until_true("commits", lambda number=number: committed_all(number))  # type: ignore[misc]
        # One group was deleted: its tombstones are compacted too.
        assert (await groups.ask(wire.DeleteGroupsRequest(["g-3"]), 2)).results[0].error_code == 0

        producers = [Transactional(cluster, transactions, leader, f"x-{number}") for number in range(3)]
        for producer in producers:
            assert await producer.start() == 0
            for number in range(_TRANSACTIONS):
                assert await producer.add() == 0
                assert await producer.send(b"%d" % number) == 0
                assert await producer.finish(committed=number % 2 == 0) == 0
        open_one = producers[0]
        assert await open_one.add() == 0
        assert await open_one.send(b"open") == 0
        # Push what counts out of the active segments, which are not compacted.
        for _ in range(10):
            assert await committed_all(_ROUNDS, _GROUPS - 1)
        for _ in range(30):
            for producer in producers[1:]:
                assert await producer.start() == 0

        topics = ("__consumer_offsets", "__transaction_state")
        whole = {topic: max(cluster.bytes_of(node, topic) for node in processes.nodes) for topic in topics}

        async def is_compacted() -> bool:
            return all(
                cluster.bytes_of(node, topic) < whole[topic] * 0.6 for node in processes.nodes for topic in topics
            )

        await until_true("compaction on every replica", is_compacted)
        for each in (groups, transactions, leader, any_node):
            each.close()

        for _ in range(2):
            # Whoever coordinates is killed; the next one loads from its compacted replica.
            processes.nodes[owner].kill()
            killed = owner
            owner, groups = await cluster.coordinator("g-0", 0)
            assert owner != killed
            for number in range(_GROUPS - 1):
                part = await _committed(groups, f"g-{number}")
                assert part == _ROUNDS, f"g-{number} is at {part} on node {owner}"
            assert await _committed(groups, "g-3") == -1
            groups.close()
            processes.restart(killed)
            await _in_sync(cluster)

        _, transactions = await cluster.coordinator("x-0", 1)
        described = await transactions.ask(wire.DescribeTransactionsRequest([each.name for each in producers]), 0)
        states = [
            (state.transactional_id, state.transaction_state, state.producer_id)
            for state in described.transaction_states
        ]
        expected = ["Ongoing", "Empty", "Empty"]
        assert states == [(each.name, state, each.id) for each, state in zip(producers, expected)]
        assert [state.producer_epoch for state in described.transaction_states] == [each.epoch for each in producers]
        open_one.client = transactions
        assert await open_one.finish(committed=True) == 0
        producers[1].client, producers[1].leader = transactions, await cluster.leader("t")
        assert await producers[1].add() == 0
        assert await producers[1].send(b"last") == 0
        assert await producers[1].finish(committed=True) == 0

        async def is_stable() -> bool:
            reader = await cluster.leader("t")
            part = (await reader.ask(fetch("t", isolation_level=1), 11)).responses[0].partitions[0]
            reader.close()
            return bool(part.last_stable_offset == part.high_watermark)

        await until_true("no open transaction", is_stable)
        await cluster.close()


async def _committed(client: FrameClient, group: str) -> int:
    request = wire.OffsetFetchRequest
    asked = request.OffsetFetchRequestGroup(
        group, topics=[request.OffsetFetchRequestTopics("t", partition_indexes=[0])]
    )
    answer = (await client.ask(request(groups=[asked]), 8)).groups[0]
    assert answer.error_code == 0, f"{group}: error {answer.error_code}"
    return int(answer.topics[0].partitions[0].committed_offset)


async def _in_sync(cluster: Cluster) -> None:
    """Every replica of the internal topics is in sync again."""

    async def condition() -> bool:
        asked = await cluster.client(1)
        names = ("__consumer_offsets", "__transaction_state", "t")
        request = wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name=name) for name in names])
        found = (await asked.ask(request, 9)).topics
        asked.close()
        return all(len(part.isr_nodes) == 3 for topic in found for part in topic.partitions)

    await until_true("every replica in sync", condition)
