"""DescribeLogDirs, AlterReplicaLogDirs: this node's disks (KIP-113, KIP-827)."""

from __future__ import annotations

from kafkalite.coordinators.services import Services
from kafkalite.errors import ErrorCode
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire


class LogDirHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services

    def table(self) -> dict[str, Handler]:
        return {"DescribeLogDirs": self.describe, "AlterReplicaLogDirs": self.alter}

    def describe(self, request: Request, message: wire.DescribeLogDirsRequest) -> Steps[wire.DescribeLogDirsResponse]:
        response = wire.DescribeLogDirsResponse
        wanted = (
            None
            if message.topics is None
            else {(topic.topic, index) for topic in message.topics for index in topic.partitions}
        )
        results = []
        for directory in (yield from self._services.log_dirs()):
            topics: dict[str, list[wire.DescribeLogDirsResponse.DescribeLogDirsPartition]] = {}
            for number, replica in enumerate(directory.replicas, 1):
                if not number % STEP:
                    yield
                key = replica.partition
                if wanted is None or key in wanted:
                    entry = response.DescribeLogDirsPartition(
                        key.partition, replica.size_bytes, replica.lag, replica.is_future
                    )
                    topics.setdefault(key.topic, []).append(entry)
            results.append(
                response.DescribeLogDirsResult(
                    int(directory.error),
                    directory.path,
                    [response.DescribeLogDirsTopic(topic, entries) for topic, entries in topics.items()],
                    directory.total_bytes,
                    directory.usable_bytes,
                    directory.is_cordoned,
                )
            )
        return response(results=results)

    async def alter(
        self, request: Request, message: wire.AlterReplicaLogDirsRequest
    ) -> wire.AlterReplicaLogDirsResponse:
        """Each replica's answer: NONE means that its move has begun (DescribeLogDirs shows how far it is)."""
        response = wire.AlterReplicaLogDirsResponse
        assignments: dict[TopicPartition, str] = {}
        codes: dict[TopicPartition, int] = {}
        for directory in message.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    key = TopicPartition(topic.name, index)
                    if assignments.setdefault(key, directory.path) != directory.path:
                        codes[key] = int(ErrorCode.INVALID_REQUEST)  # it cannot be in two places
        moves = {key: path for key, path in assignments.items() if key not in codes}
        codes |= {key: int(code) for key, code in (await self._services.alter_replica_log_dirs(moves)).items()}
        topics: dict[str, list[wire.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]] = {}
        for key in assignments:
            entry = response.AlterReplicaLogDirPartitionResult(key.partition, codes[key])
            topics.setdefault(key.topic, []).append(entry)
        return response(
            results=[response.AlterReplicaLogDirTopicResult(topic, entries) for topic, entries in topics.items()]
        )
