"""Where partitions end, as their leaders say: on this node or another one (ListOffsets)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable

from kafkalite.config import inter_broker_listener
from kafkalite.coordinators.node_connection import NodeConnection, node_address
from kafkalite.coordinators.services import Services
from kafkalite.env.side_by_side import SideBySide
from kafkalite.errors import ApiError, ErrorCode, error_code
from kafkalite.model import LATEST_TIMESTAMP, BrokerId, Offset, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError
from kafkalite.replica.requests import ListOffsetsPartition, ListOffsetsRequest
from kafkalite.rpc.messages.control import Broker

_VERSION = 7
_TIMEOUT_S = 10.0

#: The end, or why it is not known.
EndOffsets = dict[TopicPartition, Offset | ErrorCode]


class Leaders:
    """See the module. A connection is opened for each question: these are questions of administrators."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._listener = inter_broker_listener(services.config).name

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> EndOffsets:
        """The high watermark of each."""
        wanted = sorted(set(partitions))
        found: EndOffsets = dict.fromkeys(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        known = self._services.metadata(sorted({each.topic for each in wanted}))
        brokers = {broker.broker_id: broker for broker in known.brokers}
        leaders = {
            TopicPartition(topic.topic, part.partition): part.leader
            for topic in known.topics
            if not topic.error
            for part in topic.partitions
        }
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for each in wanted:
            if each in leaders:
                by_leader.setdefault(leaders[each], []).append(each)
        async with SideBySide() as tasks:
            answers = [tasks.create_task(self._ask(brokers.get(leader), some)) for leader, some in by_leader.items()]
        for answer in answers:
            found.update(answer.result())
        return found

    async def _ask(self, broker: Broker | None, partitions: list[TopicPartition]) -> EndOffsets:
        if broker is None:
            return dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE)
        if broker.broker_id == self._services.broker_id:
            asked = ListOffsetsRequest(tuple(ListOffsetsPartition(*each, LATEST_TIMESTAMP) for each in partitions))
            answer = await self._services.partitions.list_offsets(asked)
            return {
                TopicPartition(each.topic, each.partition): error_code(each.error) if each.error else each.offset
                for each in answer.partitions
            }
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await self._ask_other(broker, partitions)
        except (OSError, TimeoutError, WireError, EOFError, ApiError, struct.error):
            return dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE)

    async def _ask_other(self, broker: Broker, partitions: list[TopicPartition]) -> EndOffsets:
        request = wire.ListOffsetsRequest
        topics: dict[str, list[wire.ListOffsetsRequest.ListOffsetsPartition]] = {}
        for each in partitions:
            part = request.ListOffsetsPartition(each.partition, timestamp=LATEST_TIMESTAMP)
            topics.setdefault(each.topic, []).append(part)
        connection = NodeConnection(self._services, node_address(broker, self._listener), wire.ListOffsetsResponse)
        try:
            message = request(-1, 0, [request.ListOffsetsTopic(name, parts) for name, parts in topics.items()])
            response = await connection.ask(message, _VERSION)
        finally:
            connection.close()
        return {
            TopicPartition(topic.name, part.partition_index): error_code(part.error_code)
            if part.error_code
            else Offset(part.offset)
            for topic in response.topics
            for part in topic.partitions
        }
