"""A node deletes the records of `__share_group_state` that it does not need any more; clients may not (KIP-932)."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.errors import ErrorCode
from kafkalite.model import SHARE_TOPIC, Offset, TopicPartition
from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from tests.support.loopback_cluster import LoopbackCluster

_KEY = ShareKey("g", UUID(int=5), 3)
_SETTINGS = {
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 2,
}


async def test_the_coordinator_prunes_and_a_client_may_not(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, settings=_SETTINGS) as cluster:
        node = cluster.nodes[1]
        await node.kafka.share_persister.initialize(_KEY, 1, Offset(0))
        for offset in range(10):
            await node.kafka.share_persister.write(_KEY, 1, 1, Offset(offset), [])
        client = await FrameClient.to(cluster.bootstrap)
        request = wire.DeleteRecordsRequest
        topics = [request.DeleteRecordsTopic(SHARE_TOPIC, [request.DeleteRecordsPartition(0, 1)])]
        refused = (await client.ask(request(topics, 1000), 2)).topics[0].partitions[0]
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        client.close()
        await node.kafka.shares.prune()
        hosted = node.replicas.hosted.get(TopicPartition(SHARE_TOPIC, 0))
        assert hosted is not None
        assert hosted.log.log_end_offset - hosted.log.log_start_offset <= 3  # the last snapshot and its updates
