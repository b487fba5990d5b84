"""Partitions that are drained before their removal (`remove-partitions --drain`): when every consumer group that reads one
has committed its end, nobody needs its records any more, and they go without waiting for retention.

Only the groups' coordinators know what is committed. So the leader of such a partition asks all nodes, and believes them
only when together they coordinate every partition of `__consumer_offsets`, so that no group can be missing. A partition
without any group waits for retention: somebody may read it without committing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError, StorageError
from kafkalite.model import GROUP_TOPIC, Endpoint, Offset, TopicPartition
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.answers import RpcError
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.groups import CommittedOffsetsRequest, CommittedOffsetsResponse, GroupsOffset
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.coordinators.groups.coordinator import GroupCoordinator

_log = get_logger(__name__)

_LOOK_S = 2.0
_TIMEOUT_S = 5.0
#: Partitions asked about at once.
_MAX_ASKED = 1_000


def consumed(
    answers: Sequence[CommittedOffsetsResponse], coordinators: Iterable[int], ends: dict[TopicPartition, Offset]
) -> list[TopicPartition]:
    """Which of these partitions every group has read to the end, by what all nodes say. Pure.

    Args:
        coordinators: all partitions of `__consumer_offsets`.
        ends: where each of the partitions ends.
    """
    known = {index for answer in answers for index in answer.coordinated}
    if not known.issuperset(coordinators):
        return []
    groups: dict[TopicPartition, int] = {}
    behind: set[TopicPartition] = set()
    for answer in answers:
        for reported in answer.offsets:
            key = TopicPartition(reported.topic, reported.partition)
            groups[key] = groups.get(key, 0) + reported.groups
            if reported.is_unstable or reported.lowest < ends.get(key, Offset(0)):
                behind.add(key)
    return sorted(key for key in ends if groups.get(key) and key not in behind)


class Draining:
    """One task per node; `answer` is what the others ask it."""

    def __init__(
        self,
        *,
        env: Env,
        supervisor: Supervisor,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        groups: Callable[[], GroupCoordinator | None],
        hello: Callable[[], HelloRequest],
    ) -> None:
        self._env = env
        self._supervisor = supervisor
        self._replicas = replicas
        self._metadata = metadata
        self._groups = groups
        self._hello = hello

    async def answer(self, request: CommittedOffsetsRequest) -> CommittedOffsetsResponse:
        """What the groups coordinated here have committed for these partitions."""
        wanted = {TopicPartition(topic, partition) for topic, partition in request.partitions}
        groups = self._groups()
        if groups is None:
            return CommittedOffsetsResponse((), ())
        coordinated, found = groups.offsets.committed(wanted)
        offsets = tuple(
            GroupsOffset(key.topic, key.partition, lowest, count, is_unstable)
            for key, (lowest, count, is_unstable) in sorted(found.items())
        )
        return CommittedOffsetsResponse(coordinated, offsets)

    async def run(self) -> None:
        """Look now and then, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            waiting = [each for each in self._replicas.hosted.all() if _is_waiting(each)][:_MAX_ASKED]
            if waiting:
                await self._check(waiting)

    async def _check(self, waiting: list[Partition]) -> None:
        coordinators = self._metadata.topic(GROUP_TOPIC)
        if not coordinators:
            return  # there are no groups: only retention can decide
        epochs = {each.topic_partition: each.leader_epoch for each in waiting}
        ends = {each.topic_partition: each.log.log_end_offset for each in waiting}
        request = CommittedOffsetsRequest(tuple(sorted(ends)))
        answers = []
        for broker in self._metadata.brokers():
            answer = await self._ask(Endpoint(broker.rpc_host, broker.rpc_port), request)
            if answer is not None:
                answers.append(answer)
        for key in consumed(answers, coordinators, ends):
            partition = self._replicas.hosted.get(key)
            if partition is None or not _is_waiting(partition) or partition.leader_epoch != epochs[key]:
                continue
            try:
                partition.log.advance_log_start_offset(ends[key])
            except StorageError as error:
                self._replicas.hosted.fail_storage(partition, error)
                continue
            except ApiError:
                continue
            _log.info("partition.consumed", partition=str(key), offset=ends[key])
        self._replicas.find_drained()

    async def _ask(self, endpoint: Endpoint, request: CommittedOffsetsRequest) -> CommittedOffsetsResponse | None:
        connection: RpcConnection | None = None
        try:
            connection = await RpcConnection.open(
                self._env.network, endpoint, self._hello(), supervisor=self._supervisor, timeout_s=_TIMEOUT_S
            )
            answer, _ = await connection.call(request, timeout_s=_TIMEOUT_S)
        except (RpcError, ApiError):
            return None
        finally:
            if connection is not None:
                await connection.close()
        assert isinstance(answer, CommittedOffsetsResponse)
        return answer


def _is_waiting(partition: Partition) -> bool:
    """Led here, takes no more records, all of them are committed, and some are left."""
    leader = partition.leader
    return (
        leader is not None
        and partition.is_read_only
        and partition.storage_error is None
        and not partition.is_drained
        and leader.high_watermark == leader.log_end_offset
    )
