"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: where a partition's records begin and end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.request import Handler, Request
from kafkalite.model import EARLIEST_TIMESTAMP, INTERNAL_TOPICS, Offset, TopicPartition
from kafkalite.protocol import wire
from kafkalite.replica.client_fetch import ISOLATION_LEVELS
from kafkalite.replica.requests import ListOffsetsPartition, ListOffsetsRequest

_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
#: Nothing is moved to other storage: there is no such offset.
_TIERED = frozenset({_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD})
#: What is the earliest offset here, or nothing; whether this node leads the partition matters all the same.
_OF_STORAGE = frozenset({_EARLIEST_LOCAL, *_TIERED})
#: Timestamp with a meaning -> the version of ListOffsets that has it first.
_SINCE = {-3: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}


class LogOffsetHandlers:
    def __init__(self, services: Services) -> None:
        self._partitions = services.partitions

    def table(self) -> dict[str, Handler]:
        return {
            "ListOffsets": self.list_offsets,
            "OffsetForLeaderEpoch": self.offset_for_leader_epoch,
            "DeleteRecords": self.delete_records,
        }

    async def list_offsets(self, request: Request, message: wire.ListOffsetsRequest) -> wire.ListOffsetsResponse:
        if message.isolation_level not in ISOLATION_LEVELS:
            raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {message.isolation_level}")
        refused = _refused(request, message)
        asked = tuple(
            ListOffsetsPartition(
                topic.name,
                each.partition_index,
                EARLIEST_TIMESTAMP if each.timestamp in _OF_STORAGE else each.timestamp,
                each.current_leader_epoch,
            )
            for topic in message.topics
            for each in topic.partitions
            if (topic.name, each.partition_index) not in refused
        )
        listed = await self._partitions.list_offsets(
            ListOffsetsRequest(asked, message.isolation_level, request.connection.owner)
        )
        by_key = {(entry.topic, entry.partition): entry for entry in listed.partitions}
        response = wire.ListOffsetsResponse
        topics = []
        for topic in message.topics:
            partitions = []
            for partition in topic.partitions:
                answer = response.ListOffsetsPartitionResponse(partition.partition_index)
                partitions.append(answer)
                key = (topic.name, partition.partition_index)
                entry = by_key.get(key)
                if key in refused:
                    answer.error_code = int(refused[key])
                elif entry is not None:
                    answer.error_code = entry.error
                    if partition.timestamp not in _TIERED:
                        answer.timestamp, answer.offset = entry.timestamp, entry.offset
                        answer.leader_epoch = entry.leader_epoch
                        answer.old_style_offsets = [entry.offset] if not entry.error and entry.offset >= 0 else []
            topics.append(response.ListOffsetsTopicResponse(topic.name, partitions))
        return response(topics=topics)

    def offset_for_leader_epoch(
        self, request: Request, message: wire.OffsetForLeaderEpochRequest
    ) -> wire.OffsetForLeaderEpochResponse:
        response = wire.OffsetForLeaderEpochResponse
        topics = []
        for topic in message.topics:
            ends = []
            for partition in topic.partitions:
                answer = response.EpochEndOffset(partition=partition.partition)
                try:
                    _check_topic(request, topic.topic)
                    answer.leader_epoch, answer.end_offset = self._partitions.end_offset_for_epoch(
                        TopicPartition(topic.topic, partition.partition),
                        partition.current_leader_epoch,
                        partition.leader_epoch,
                    )
                except ApiError as error:
                    answer.error_code = int(error.code)
                ends.append(answer)
            topics.append(response.OffsetForLeaderTopicResult(topic.topic, ends))
        return response(topics=topics)

    async def delete_records(self, request: Request, message: wire.DeleteRecordsRequest) -> wire.DeleteRecordsResponse:
        """Begin all at once. The response follows when the followers know it too, or with REQUEST_TIMED_OUT."""
        response = wire.DeleteRecordsResponse
        result = response.DeleteRecordsPartitionResult

        def begin(topic: str, number: int, before: Offset) -> Awaitable[Offset] | int:
            try:
                _check_topic(request, topic)
                if topic in INTERNAL_TOPICS:  # only its coordinator knows what it needs
                    return int(ErrorCode.INVALID_TOPIC_EXCEPTION)
                return self._partitions.delete_records(TopicPartition(topic, number), before)
            except ApiError as error:
                return int(error.code)

        begun = [
            (
                topic.name,
                [
                    (each.partition_index, begin(topic.name, each.partition_index, each.offset))
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        deadline = asyncio.get_running_loop().time() + max(0, message.timeout_ms) / 1000

        async def outcome(
            number: int, waiting: Awaitable[Offset] | int
        ) -> wire.DeleteRecordsResponse.DeleteRecordsPartitionResult:
            if isinstance(waiting, int):
                return result(number, -1, waiting)
            try:
                async with asyncio.timeout_at(deadline):
                    return result(number, await waiting, 0)
            except TimeoutError:
                return result(number, -1, int(ErrorCode.REQUEST_TIMED_OUT))
            except ApiError as error:
                return result(number, -1, int(error.code))

        return response(
            topics=[
                response.DeleteRecordsTopicResult(name, [await outcome(*partition) for partition in partitions])
                for name, partitions in begun
            ]
        )


def _check_topic(request: Request, topic: str) -> None:
    if topic in request.denied.topics:
        raise api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refused(request: Request, message: wire.ListOffsetsRequest) -> dict[tuple[str, int], ErrorCode]:
    """The partitions that are not looked up. Of one that is named twice, neither is: each look-up may read a whole batch."""
    refused: dict[tuple[str, int], ErrorCode] = {}
    named: set[tuple[str, int]] = set()
    for topic in message.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            if topic.name in request.denied.topics:
                refused[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif key in named:
                refused[key] = ErrorCode.INVALID_REQUEST
            elif request.version < _SINCE.get(partition.timestamp, 0):
                refused[key] = ErrorCode.UNSUPPORTED_VERSION
            named.add(key)
    return refused
