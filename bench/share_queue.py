"""A queue of many records, drained by many members of one share group over one node: records per second, and how often each came.

The node and the members share this process and its loop, so the figure is a lower bound.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import structlog

from kafkalite.coordination.topic_configs import GROUPS
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.model import Offset
from kafkalite.protocol import topic_ids, wire
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.loopback_cluster import LoopbackCluster

_GROUP, _TOPIC = "queue", "queue"
_ACCEPT = 1


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - a cache of the node
        await asyncio.sleep(0.01)


async def _connect(cluster: LoopbackCluster) -> FrameClient:
    return await FrameClient.to(cluster.bootstrap.split(",")[0])


async def _fill(client: FrameClient, partitions: int, records: int, batch: int) -> None:
    request = wire.ProduceRequest
    for start in range(0, records, batch):
        builder = RecordBatchBuilder()
        for number in range(start, min(start + batch, records)):
            builder.append(None, b"%064d" % number, (), 1_000)
        data = request.PartitionProduceData((start // batch) % partitions, bytearray(builder.build()))
        answer = await client.ask(
            request(acks=-1, timeout_ms=5_000, topic_data=[request.TopicProduceData(_TOPIC, partition_data=[data])]), 9
        )
        assert answer.responses[0].partition_responses[0].error_code == 0


class _Queue:
    def __init__(self, records: int) -> None:
        self.left = records
        self.delivered: Counter[tuple[int, int]] = Counter()
        self.accepted = 0
        self.requests = 0


async def _member(cluster: LoopbackCluster, topic_id: bytes, partitions: int, queue: _Queue, most: int) -> None:
    client = await _connect(cluster)
    request = wire.ShareFetchRequest
    name, epoch = str(uuid4()), 0
    said: dict[int, list[tuple[int, int]]] = {number: [] for number in range(partitions)}
    while queue.left > 0 or any(said.values()):
        listed = [
            request.FetchPartition(
                number, [request.AcknowledgementBatch(first, last, [_ACCEPT]) for first, last in batches]
            )
            for number, batches in said.items()
        ]
        answer = await client.ask(
            request(_GROUP, name, epoch, 500, 1, 2**20, most, most, topics=[request.FetchTopic(topic_id, listed)]), 2
        )
        assert answer.error_code == 0, answer
        queue.requests += 1
        epoch += 1
        for batches in said.values():
            count = sum(last - first + 1 for first, last in batches)
            queue.left -= count
            queue.accepted += count
        said = {}
        for topic in answer.responses:
            for part in topic.partitions:
                assert not part.error_code, part
                assert not part.acknowledge_error_code, part
                for each in part.acquired_records:
                    said.setdefault(part.partition_index, []).append((each.first_offset, each.last_offset))
                    for offset in range(each.first_offset, each.last_offset + 1):
                        queue.delivered[part.partition_index, offset] += 1
    client.close()


async def run(records: int, members: int, partitions: int, most: int, batch: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        settings = {"share.coordinator.state.topic.num.partitions": 4, "offsets.topic.num.partitions": 2}
        async with LoopbackCluster(Path(directory), settings=settings) as cluster:
            node = next(iter(cluster.nodes.values()))
            client = await _connect(cluster)
            create = wire.CreateTopicsRequest
            answer = await client.ask(create([create.CreatableTopic(_TOPIC, partitions, 1)], 10_000), 7)
            assert answer.topics[0].error_code == 0, answer
            topic_id = answer.topics[0].topic_id
            await node.kafka_services.replace_entity_overrides(
                GROUPS, _GROUP, {}, {"share.auto.offset.reset": "earliest"}
            )
            await _until(lambda: _GROUP in node.kafka_services.settings_of(GROUPS))
            for number in range(partitions):
                key = ShareKey(_GROUP, UUID(bytes=topic_id), number)
                await node.kafka.share_persister.initialize(key, 1, Offset(-1))
            await _until(lambda: node.kafka_services.topic_name(topic_ids.from_wire(topic_id)) is not None)
            await _fill(client, partitions, records, batch)
            queue = _Queue(records)
            began, cpu = time.monotonic(), time.process_time()
            async with asyncio.TaskGroup() as group:
                for _ in range(members):
                    group.create_task(_member(cluster, topic_id, partitions, queue, most))
            seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
            times = Counter(queue.delivered.values())
            print(
                f"{records} records, {members} members, {partitions} partitions: {records / seconds:.0f} records/s"
                f" ({seconds:.1f} s, {cpu_seconds:.1f} s of CPU), {queue.requests} requests, deliveries {dict(times)}"
            )
            assert len(queue.delivered) == queue.accepted == records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--max-records", type=int, default=500)
    parser.add_argument("--batch", type=int, default=500, help="records per batch of the log")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(run(arguments.records, arguments.members, arguments.partitions, arguments.max_records, arguments.batch))


if __name__ == "__main__":
    main()
