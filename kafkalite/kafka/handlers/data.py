"""Produce, ListOffsets, OffsetForLeaderEpoch, DeleteRecords: partitions and their records."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kafkalite.coordinators.services import Services
from kafkalite.coordinators.transactions.verifier import TransactionVerifier
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka import stepped
from kafkalite.kafka.apis import Handler
from kafkalite.kafka.request import Request
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.kafka.topic_names import name_topics
from kafkalite.log.record_checks import CheapLooks, RecordRules, is_costly, prepare
from kafkalite.model import EARLIEST_TIMESTAMP, INTERNAL_TOPICS, Buffer, Offset, TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode
from kafkalite.replica.requests import ListOffsetsPartition, ListOffsetsRequest
from kafkalite.security.quotas import Kind

_S = TypeVar("_S")
_T = TypeVar("_T")
_LENGTH_AND_MAGIC = struct.Struct(">8xi4xb").unpack_from
_ATTRIBUTES = struct.Struct(">21xh").unpack_from
_BATCH_BYTES = 61
#: One partition of a Produce answer: index, error, base offset, log append time, log start offset.
_PRODUCED = struct.Struct(">ihqqq")
#: From this version on, nothing but constants follows them: no record errors, no message, no throttling.
_PREBUILT_FROM = 8
_MAX_PREBUILT = 10_000
_ZSTD = 4
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
#: Nothing is moved to other storage: there is no such offset.
_TIERED = frozenset({_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD})
#: Timestamp with a meaning -> the version of ListOffsets that has it first.
_SINCE = {-3: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}
_TRANSACTIONAL = 0x10
#: Versions of Produce that know TRANSACTION_ABORTABLE, and that leave it to the leader to add the partition (KIP-890).
_ABORTABLE_FROM = 11
_ADDS_FROM = 12
#: From this version on, Produce names topics by id.
_IDS_FROM = 13


def records_error(records: Buffer | None, version: int) -> ErrorCode:
    """Whether a Produce request of this version may carry these records; the log looks at the rest.

    Source: Kafka's ProduceRequest.validateRecords: exactly one batch of format version 2; zstd from version 7 on.
    """
    if records is None or len(records) < _BATCH_BYTES:
        return ErrorCode.INVALID_RECORD if not records else ErrorCode.CORRUPT_MESSAGE
    length, magic = _LENGTH_AND_MAGIC(records)
    if magic != 2:
        return ErrorCode.INVALID_RECORD if magic in (0, 1) else ErrorCode.CORRUPT_MESSAGE
    if length + 12 != len(records):
        # More than one batch, or one that says less or more than there is.
        return ErrorCode.INVALID_RECORD if 49 <= length < len(records) - 12 else ErrorCode.CORRUPT_MESSAGE
    if version < 7 and _ATTRIBUTES(records)[0] & 7 == _ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE


class DataHandlers:
    def __init__(self, services: Services, verifier: TransactionVerifier) -> None:
        self._services = services
        self._partitions = services.partitions
        self._verifier = verifier
        #: (version, topic, its id if the version has it) -> what comes before and after the figures of the one partition of an answer.
        self._prebuilt: dict[tuple[int, str, bytes], tuple[bytes, bytes]] = {}

    def table(self) -> dict[str, Handler]:
        return {
            "Produce": self.produce,
            "ListOffsets": self.list_offsets,
            "OffsetForLeaderEpoch": self.offset_for_leader_epoch,
            "DeleteRecords": self.delete_records,
        }

    # --- Produce ---

    def produce(self, request: Request, message: wire.ProduceRequest) -> Steps[None] | None:
        steps = self._producing(request, message)
        if len(message.topic_data) == 1 and len(message.topic_data[0].partition_data) < STEP:
            next(steps, None)  # what most requests are takes one step
            return None
        return steps

    def _producing(self, request: Request, message: wire.ProduceRequest) -> Steps[None]:
        acks: int = message.acks
        accepted: list[tuple[TopicPartition, Buffer]] = []
        refused: dict[tuple[str, int], ProducedPartition] = {}
        denied = request.denied.topics
        if request.version >= _IDS_FROM:
            name_topics(self._services, message.topic_data)
        is_plain = message.transactional_id is None
        size = number = 0
        for topic in message.topic_data:
            name = topic.name
            for partition in topic.partition_data:
                number += 1
                if not number % STEP:
                    yield
                records = partition.records
                size += len(records or b"")
                if acks not in (-1, 0, 1):
                    error = ErrorCode.INVALID_REQUIRED_ACKS
                elif not name and request.version >= _IDS_FROM:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
                elif name in denied:
                    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif name in INTERNAL_TOPICS:
                    error = ErrorCode.INVALID_TOPIC_EXCEPTION
                else:
                    error = records_error(records, request.version)
                    if not error and records and is_plain and _ATTRIBUTES(records)[0] & _TRANSACTIONAL:
                        # Nobody would ever end that transaction.
                        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                key = TopicPartition(name, partition.index)
                if error or records is None:
                    refused[key] = ProducedPartition(name, partition.index, int(error), Offset(-1))
                else:
                    accepted.append((key, records))

        if request.throttle is not None:
            request.throttle.count(Kind.PRODUCE, size)
        costly, wrong = yield from self._costly(accepted)
        if wrong:
            accepted = [(key, records) for key, records in accepted if key not in wrong]
            refused |= wrong
        if costly:
            # The requests behind it wait: a producer's batches are appended in its order. So does the client's memory.
            request.connection.hold_requests()
            accepted = [(key, bytes(records)) for key, records in accepted]
            checking = self._prepare(request, message, accepted, refused, costly)
            self._services.supervisor.spawn("kafka.Produce.records", checking, Policy.ISOLATED)
        else:
            self._append(request, message, accepted, refused)

    def _costly(
        self, accepted: list[tuple[TopicPartition, Buffer]]
    ) -> Steps[tuple[dict[TopicPartition, RecordRules], dict[tuple[str, int], ProducedPartition]]]:
        """The partitions whose batches are not looked into on the loop, and those with batches that are wrong."""
        costly: dict[TopicPartition, RecordRules] = {}
        wrong: dict[tuple[str, int], ProducedPartition] = {}
        now_ms = 0
        looks = CheapLooks()
        for number, (key, records) in enumerate(accepted, 1):
            if not number % STEP:
                yield
            rules = self._partitions.record_rules(key)
            if rules is None:
                continue
            now_ms = now_ms or self._services.clock.wall_ms()
            try:
                if is_costly(records, rules, now_ms, looks):
                    costly[key] = rules
            except ApiError as error:
                wrong[key] = _refused(key, error)
        return costly, wrong

    async def _prepare(
        self,
        request: Request,
        message: wire.ProduceRequest,
        accepted: list[tuple[TopicPartition, Buffer]],
        refused: dict[tuple[str, int], ProducedPartition],
        costly: dict[TopicPartition, RecordRules],
    ) -> None:
        """Look into batches and recompress them off the loop, then append. The time counts as the client's."""
        connection = request.connection
        owner = request.connection.owner
        passed: list[tuple[TopicPartition, Buffer]] = []
        try:
            for key, records in accepted:
                if key not in costly:
                    passed.append((key, records))
                    continue
                work = partial(prepare, records, costly[key], self._services.clock.wall_ms())
                try:
                    prepared, seconds = await connection.listener.lane.run(owner, work)
                except ApiError as error:
                    refused[key] = _refused(key, error)
                except OSError as error:
                    code = int(ErrorCode.KAFKA_STORAGE_ERROR)
                    refused[key] = ProducedPartition(*key, code, Offset(-1), message=str(error))
                else:
                    passed.append((key, prepared))
                    if request.throttle is not None:
                        request.throttle.work_s += seconds
            self._append(request, message, passed, refused)
        except BaseException:  # the node stops, or a bug: the client must not wait for ever
            connection.abort()
            raise
        finally:
            connection.release_requests()

    def _append(
        self,
        request: Request,
        message: wire.ProduceRequest,
        accepted: list[tuple[TopicPartition, Buffer]],
        refused: dict[tuple[str, int], ProducedPartition],
    ) -> None:
        acks: int = message.acks

        def done(results: tuple[ProducedPartition, ...]) -> None:
            self._produced(request, message, acks, refused, results)

        if not accepted:
            done(())
        elif message.transactional_id is None:
            self._partitions.produce(acks, message.timeout_ms, accepted, done)
        else:
            self._verifier.produce(
                message.transactional_id,
                acks,
                message.timeout_ms,
                accepted,
                done,
                adds=request.version >= _ADDS_FROM,
                knows_abortable=request.version >= _ABORTABLE_FROM,
            )

    def _produced(
        self,
        request: Request,
        message: wire.ProduceRequest,
        acks: int,
        refused: dict[tuple[str, int], ProducedPartition],
        results: tuple[ProducedPartition, ...],
    ) -> None:
        if acks == 0:
            # There is no answer to put an error in: Kafka closes the connection, so that the producer looks again.
            failed = [result for result in (*results, *refused.values()) if result.error]
            request.respond_nothing()
            if failed:
                request.connection.close()
            return
        is_simple = len(results) == 1 and not refused and not results[0].error and request.throttle is None
        if is_simple and request.version >= _PREBUILT_FROM:
            # What most requests of most clients are: one batch for one partition.
            self._produced_one(request, message.topic_data[0].topic_id, results[0])
            return
        by_key = dict(refused)
        for result in results:
            by_key[result.topic, result.partition] = result
        stepped.respond(request, _answer_about(message, by_key))

    def _produced_one(self, request: Request, topic_id: bytes, result: ProducedPartition) -> None:
        key = (request.version, result.topic, topic_id)
        pieces = self._prebuilt.get(key)
        if pieces is None:
            if len(self._prebuilt) >= _MAX_PREBUILT:
                self._prebuilt.clear()
            pieces = self._prebuilt[key] = _pieces_around(*key)
        figures = _PRODUCED.pack(
            result.partition, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
        )
        request.respond_encoded(pieces[0] + figures + pieces[1])

    # --- offsets ---

    async def list_offsets(self, request: Request, message: wire.ListOffsetsRequest) -> wire.ListOffsetsResponse:
        # A partition that is named twice is refused before anything is looked up: each look-up may read a whole batch.
        times = Counter(
            (topic.name, partition.partition_index) for topic in message.topics for partition in topic.partitions
        )
        duplicates = {key for key, count in times.items() if count > 1}
        asked: list[ListOffsetsPartition] = []
        too_early: set[tuple[str, int]] = set()
        denied = request.denied.topics
        for topic in message.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                timestamp = partition.timestamp
                if request.version < _SINCE.get(timestamp, 0):
                    too_early.add(key)
                elif timestamp not in _TIERED and topic.name not in denied and key not in duplicates:
                    asked.append(
                        ListOffsetsPartition(
                            topic.name,
                            partition.partition_index,
                            EARLIEST_TIMESTAMP if timestamp == _EARLIEST_LOCAL else timestamp,
                            partition.current_leader_epoch,
                        )
                    )
        listed = await self._partitions.list_offsets(
            ListOffsetsRequest(tuple(asked), message.isolation_level, request.connection.owner)
        )
        by_key = {(entry.topic, entry.partition): entry for entry in listed.partitions}
        response = wire.ListOffsetsResponse
        topics = []
        for topic in message.topics:
            partitions = []
            for partition in topic.partitions:
                answer = response.ListOffsetsPartitionResponse(partition.partition_index)
                key = (topic.name, partition.partition_index)
                entry = by_key.get(key)
                if topic.name in denied:
                    answer.error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                elif key in duplicates:
                    answer.error_code = int(ErrorCode.INVALID_REQUEST)
                elif key in too_early:
                    answer.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
                elif entry is not None:
                    answer.error_code = entry.error
                    answer.timestamp, answer.offset, answer.leader_epoch = (
                        entry.timestamp,
                        entry.offset,
                        entry.leader_epoch,
                    )
                    if not entry.error and entry.offset >= 0:
                        answer.old_style_offsets = [entry.offset]
                partitions.append(answer)
            topics.append(response.ListOffsetsTopicResponse(topic.name, partitions))
        return response(topics=topics)

    def offset_for_leader_epoch(
        self, request: Request, message: wire.OffsetForLeaderEpochRequest
    ) -> wire.OffsetForLeaderEpochResponse:
        response = wire.OffsetForLeaderEpochResponse

        def answer(
            topic: str, partition: wire.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
        ) -> wire.OffsetForLeaderEpochResponse.EpochEndOffset:
            _check_topic(request, topic)
            epoch, end = self._partitions.end_offset_for_epoch(
                TopicPartition(topic, partition.partition), partition.current_leader_epoch, partition.leader_epoch
            )
            return response.EpochEndOffset(0, partition.partition, epoch, end)

        return response(
            topics=[
                response.OffsetForLeaderTopicResult(
                    topic.topic,
                    [
                        _or_error(
                            lambda topic=topic, partition=partition: answer(topic.topic, partition),  # type: ignore[misc]
                            lambda code, partition=partition: response.EpochEndOffset(code, partition.partition),  # type: ignore[misc]
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    async def delete_records(self, request: Request, message: wire.DeleteRecordsRequest) -> wire.DeleteRecordsResponse:
        """Begin all at once. The response follows when the followers know it too, or with REQUEST_TIMED_OUT."""
        response = wire.DeleteRecordsResponse
        result = response.DeleteRecordsPartitionResult

        def begin(topic: str, partition: wire.DeleteRecordsRequest.DeleteRecordsPartition) -> Awaitable[Offset]:
            _check_topic(request, topic)
            return self._partitions.delete_records(TopicPartition(topic, partition.partition_index), partition.offset)

        begun: list[tuple[str, list[tuple[int, Awaitable[Offset] | int]]]] = [
            (
                topic.name,
                [
                    (
                        partition.partition_index,
                        _or_error(
                            lambda topic=topic, partition=partition: begin(topic.name, partition),  # type: ignore[misc]
                            lambda code: code,
                        ),
                    )
                    for partition in topic.partitions
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


def _answer_about(
    message: wire.ProduceRequest, by_key: dict[tuple[str, int], ProducedPartition]
) -> Steps[wire.ProduceResponse]:
    response = wire.ProduceResponse
    topic_class, partition_class = response.TopicProduceResponse, response.PartitionProduceResponse
    error_class = response.BatchIndexAndErrorMessage
    topics = []
    for topic in message.topic_data:
        partitions = []
        for number, partition in enumerate(topic.partition_data, 1):
            if not number % STEP:
                yield
            result = by_key[topic.name, partition.index]
            partitions.append(
                partition_class(
                    partition.index,
                    result.error,
                    result.base_offset,
                    result.log_append_time_ms,
                    result.log_start_offset,
                    [error_class(*each) for each in result.record_errors],
                    result.message or None,
                )
            )
        topics.append(topic_class(topic.name, topic.topic_id, partitions))
    return response(topics)


def _pieces_around(version: int, topic: str, topic_id: bytes) -> tuple[bytes, bytes]:
    """The bytes of a Produce answer about one partition of `topic`, before and after the partition's figures."""
    response = wire.ProduceResponse
    marked = (0x7A5A5A5A, 0, -2, -3, -4)
    partition = response.PartitionProduceResponse(*marked)
    message = response([response.TopicProduceResponse(topic, topic_id, [partition])])
    before, figures, after = encode(message, version).partition(_PRODUCED.pack(*marked))
    assert figures, f"ProduceResponse v{version} has another layout"
    return before, after


def _refused(key: TopicPartition, error: ApiError) -> ProducedPartition:
    return ProducedPartition(*key, int(error.code), Offset(-1), message=str(error), record_errors=error.record_errors)


def _check_topic(request: Request, topic: str) -> None:
    if topic in request.denied.topics:
        raise api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _or_error(attempt: Callable[[], _T], refusal: Callable[[int], _S]) -> _T | _S:
    try:
        return attempt()
    except ApiError as error:
        return refusal(int(error.code))
