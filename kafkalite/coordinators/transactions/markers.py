"""Bringing transaction markers to the leaders of their partitions, here or on other nodes.

Other nodes are reached through their Kafka listeners by WriteTxnMarkers, see `node_channels`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.node_channels import Address, NodeChannel, NodeChannels, elements_of, pieces
from kafkalite.coordinators.node_connection import NodeConnection
from kafkalite.coordinators.services import Services
from kafkalite.env.side_by_side import SideBySide
from kafkalite.errors import ErrorCode, error_code
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import GROUP_TOPIC, ProducerId, TopicPartition, numbers_by_topic
from kafkalite.partition_values import ProducedPartition
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError
from kafkalite.record.builder import end_transaction_marker
from kafkalite.rpc.messages.control import Broker

_VERSION = 1
#: Carries the transaction's version (KIP-1228); only for nodes that know it.
_VERSION_OF_TV2 = 2
_APPEND_TIMEOUT_MS = 5_000
#: Markers that are appended in one turn of the loop: the first batch of a partition makes its files.
_AT_ONCE = 8

Errors = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of one producer's transaction, for some partitions."""

    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    #: From 2 on the epoch is above that of the transaction: a late marker cannot end the next one.
    transaction_version: int = 0


class LocalMarkers:
    """Writes markers to partitions led by this node, and notifies the group coordinator of those for its own."""

    def __init__(self, services: Services, groups: GroupCoordinator) -> None:
        self._services = services
        self._groups = groups

    async def write(self, marker: Marker) -> Errors:
        batch = end_transaction_marker(
            marker.producer_id,
            marker.producer_epoch,
            commit=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._services.clock.wall_ms(),
        )
        appends: list[asyncio.Future[tuple[ProducedPartition, ...]]] = []
        for some in _appended_together(marker.partitions):
            if appends:
                await asyncio.sleep(0)  # a transaction of thousands of partitions must not hold everybody up
            appends.append(self._append(marker, some, batch))
        errors: Errors = {}
        for outcome in appends:
            for result in await outcome:
                errors[TopicPartition(result.topic, result.partition)] = ErrorCode(result.error)
        return errors

    async def write_all(self, markers: Sequence[Marker]) -> list[Errors]:
        """Each one's outcome, when all have one. They wait side by side: slow followers of some hold back no others."""
        begun: list[asyncio.Task[Errors]] = []
        async with SideBySide() as tasks:
            for marker in markers:
                begun.append(tasks.create_task(self.write(marker)))
                if not len(begun) % _AT_ONCE:
                    await asyncio.sleep(0)
        return [task.result() for task in begun]

    def _append(
        self, marker: Marker, partitions: Sequence[TopicPartition], batch: bytes
    ) -> asyncio.Future[tuple[ProducedPartition, ...]]:
        outcome: asyncio.Future[tuple[ProducedPartition, ...]] = asyncio.get_running_loop().create_future()

        def done(results: tuple[ProducedPartition, ...]) -> None:
            # At once, in the order of the log: later, it would end the producer's next transaction.
            for result in results:
                if not result.error and result.topic == GROUP_TOPIC:
                    self._groups.offsets.end_transaction(
                        result.partition, marker.producer_id, is_committed=marker.is_commit
                    )
            if not outcome.done():
                outcome.set_result(results)

        self._services.partitions.append_internal(
            _APPEND_TIMEOUT_MS,
            [(partition, bytearray(batch)) for partition in partitions],
            done,
            transaction_version=marker.transaction_version,
        )
        return outcome


def _appended_together(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    """In pieces, each of which has its outcome when all of its partitions have one.

    Those of groups are alone: the end of the transaction counts there when that marker is replicated, whatever the followers of others do.
    """
    others = [partition for partition in partitions if partition.topic != GROUP_TOPIC]
    for partition in partitions:
        if partition.topic == GROUP_TOPIC:
            yield (partition,)
    for first in range(0, len(others), _AT_ONCE):
        yield others[first : first + _AT_ONCE]


class MarkerChannels(NodeChannels["MarkerChannel"]):
    """Sends markers to whichever node leads their partitions."""

    def __init__(self, services: Services, local: LocalMarkers) -> None:
        super().__init__(services)
        self._local = local

    async def send(self, broker: Broker, marker: Marker) -> Errors:
        """Each partition's outcome. Raises OSError when the node could not be asked."""
        if broker.broker_id == self._services.broker_id:
            return await self._local.write(marker)
        errors: Errors = {}
        for some in pieces(marker.partitions):
            channel = self.to(broker, partial(MarkerChannel, self._services))
            errors |= await channel.ask(replace(marker, partitions=some))
        return errors


class MarkerChannel(NodeChannel[Marker, Errors]):
    """One other node."""

    most_at_once = 1_000

    def __init__(self, services: Services, address: Address) -> None:
        super().__init__(services, "markers", NodeConnection(services, address, wire.WriteTxnMarkersResponse))

    def _elements(self, question: Marker) -> int:
        return elements_of(question.partitions)

    async def _exchange(self, questions: Sequence[Marker]) -> list[Errors]:
        version = _VERSION_OF_TV2 if any(marker.transaction_version for marker in questions) else _VERSION
        response = await self._connection.ask(_request(questions), version)
        if len(response.markers) != len(questions):
            raise WireError("the response has other markers than the request")
        return [
            {
                # A code that this version does not know, of a newer node, is no reason to give the other partitions up.
                TopicPartition(topic.name, partition.partition_index): error_code(partition.error_code)
                for topic in result.topics
                for partition in topic.partitions
            }
            for result in response.markers
        ]


def _request(markers: Sequence[Marker]) -> object:
    request = wire.WriteTxnMarkersRequest
    entries = []
    for marker in markers:
        topics = numbers_by_topic(marker.partitions)
        entries.append(
            request.WritableTxnMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.is_commit,
                [request.WritableTxnMarkerTopic(topic, indexes) for topic, indexes in topics.items()],
                marker.coordinator_epoch,
                marker.transaction_version,
            )
        )
    return request(entries)
