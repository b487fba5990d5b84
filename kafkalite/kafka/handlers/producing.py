"""Produce."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.coordinators.services import Services
from kafkalite.env.supervisor import Policy
from kafkalite.errors import NO_ERROR, ApiError, ErrorCode
from kafkalite.kafka import stepped
from kafkalite.kafka.current_leaders import CurrentLeaders
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.kafka.topic_names import name_topics, naming
from kafkalite.log.record_checks import CheckBudget, RecordRules, is_costly, prepare
from kafkalite.model import INTERNAL_TOPICS, Buffer, Offset, TopicPartition, new_topic_partition
from kafkalite.partition_values import ProducedPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.codec import encode
from kafkalite.record.batch import HEADER_SIZE, LOG_OVERHEAD
from kafkalite.security.quotas import Kind

if TYPE_CHECKING:
    from kafkalite.coordinators.transactions.verifier import TransactionVerifier

_LENGTH_AND_MAGIC = struct.Struct(">8xi4xb").unpack_from
_ATTRIBUTES = struct.Struct(">21xh").unpack_from
#: What `_LENGTH_AND_MAGIC` reads.
_HEAD_BYTES = 17
#: Kafka's smallest record of the oldest format.
_SMALLEST_BATCH_LENGTH = 14
#: One partition of a Produce answer: index, error, base offset, log append time, log start offset.
_PRODUCED = struct.Struct(">ihqqq")
#: From this version on, nothing but constants follows them: no record errors, no message, no throttling.
_PREBUILT_FROM = 8
_MAX_PREBUILT = 10_000
#: Topics and partitions of a request that takes one step: its records are views of the buffer in which it was received.
MOST_IN_PLACE = STEP - 1
_ZSTD = 4
_TRANSACTIONAL = 0x10
#: Versions of Produce that know TRANSACTION_ABORTABLE, and that leave it to the leader to add the partition (KIP-890).
_ABORTABLE_FROM = 11
_ADDS_FROM = 12
#: From this version on, Produce names topics by id.
_IDS_FROM = 13
#: From this version on, an answer says where the leader is (KIP-951).
_LEADERS_FROM = 10


def records_error(records: Buffer | None, version: int) -> ErrorCode:
    """Whether a Produce request of this version may carry these records; the log looks at the rest.

    Source: Kafka's ProduceRequest.validateRecords: exactly one batch of format version 2; zstd from version 7 on.
    """
    if records is None or len(records) < _HEAD_BYTES:
        return ErrorCode.INVALID_RECORD
    length, magic = _LENGTH_AND_MAGIC(records)
    size, have = length + LOG_OVERHEAD, len(records)
    if magic != 2 or size != have or have < HEADER_SIZE:
        if not 0 <= magic <= 2 or length < _SMALLEST_BATCH_LENGTH:
            return ErrorCode.CORRUPT_MESSAGE
        # Cut short, of an older format, or more than one batch: it would be wrong again if it were sent again.
        return (
            ErrorCode.INVALID_RECORD if magic != 2 or size > have or size >= HEADER_SIZE else ErrorCode.CORRUPT_MESSAGE
        )
    if version < 7 and _ATTRIBUTES(records)[0] & 7 == _ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return NO_ERROR


def _error_of(request: Request, message: wire.ProduceRequest, topic: str, records: Buffer | None) -> ErrorCode:
    """What refuses one partition of a request before anything is known of its log."""
    if message.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if not topic and request.version >= _IDS_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic in request.denied.topics:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    error = records_error(records, request.version)
    if not error and records and message.transactional_id is None and _ATTRIBUTES(records)[0] & _TRANSACTIONAL:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # nobody would ever end that transaction
    return error


class ProduceHandlers:
    def __init__(self, services: Services, verifier: Callable[[], TransactionVerifier]) -> None:
        self._services = services
        self._partitions = services.partitions
        self._verifier = verifier
        #: (version, topic, its id if the version has it) -> what comes before and after the figures of the one partition of an answer.
        self._prebuilt: dict[tuple[int, str, bytes], tuple[bytes, bytes]] = {}

    def table(self) -> dict[str, Handler]:
        return {"Produce": self.produce}

    def produce(self, request: Request, message: wire.ProduceRequest) -> Steps[None] | None:
        if len(message.topic_data) == 1 and (count := len(message.topic_data[0].partition_data)) < STEP:
            if count == 1:  # what most requests are
                self._produce_one(request, message)
            else:
                next(self._producing(request, message), None)
            return None
        return self._producing(request, message)

    def _produce_one(self, request: Request, message: wire.ProduceRequest) -> None:
        """As `_producing`, for one partition."""
        if request.version >= _IDS_FROM:
            name_topics(self._services, message.topic_data)
        [topic] = message.topic_data
        [partition] = topic.partition_data
        key, records = new_topic_partition((topic.name, partition.index)), partition.records
        if request.throttle is not None:
            request.throttle.count(Kind.PRODUCE, len(records or b""))
        error = _error_of(request, message, topic.name, records)
        if error or records is None:
            self._note_unknown(topic, partition.index, records, error)
            self._append(request, message, [], {key: ProducedPartition(*key, int(error), Offset(-1))})
            return
        rules = self._partitions.record_rules(key)
        try:
            costly = rules is not None and is_costly(records, rules, self._services.clock.wall_ms())
        except ApiError as wrong:
            self._append(request, message, [], {key: _refused(key, wrong)})
            return
        if costly and rules is not None:
            self._prepare_first(request, message, [(key, records)], {}, {key: rules})
        else:
            self._append(request, message, [(key, records)], {})

    def _producing(self, request: Request, message: wire.ProduceRequest) -> Steps[None]:
        if request.version >= _IDS_FROM:
            yield from naming(self._services, message.topic_data)
        accepted, refused = yield from self._sort_out(request, message)
        costly, wrong = yield from self._costly(accepted)
        if wrong:
            accepted = [(key, records) for key, records in accepted if key not in wrong]
            refused |= wrong
        if costly:
            self._prepare_first(request, message, accepted, refused, costly)
        else:
            self._append(request, message, accepted, refused)

    def _sort_out(
        self, request: Request, message: wire.ProduceRequest
    ) -> Steps[tuple[list[tuple[TopicPartition, Buffer]], dict[tuple[str, int], ProducedPartition]]]:
        """What may be appended as far as the request alone says, and the answers for the other partitions."""
        accepted: list[tuple[TopicPartition, Buffer]] = []
        refused: dict[tuple[str, int], ProducedPartition] = {}
        size = number = 0
        seen: set[TopicPartition] = set()
        twice: set[TopicPartition] = set()
        for topic in message.topic_data:
            name = topic.name
            for partition in topic.partition_data:
                number += 1
                if not number % STEP:
                    yield
                records = partition.records
                size += len(records or b"")
                error = _error_of(request, message, name, records)
                key = TopicPartition(name, partition.index)
                if name:  # ids that no topic has would all be one
                    (twice if key in seen else seen).add(key)
                if error or records is None:
                    self._note_unknown(topic, partition.index, records, error)
                    refused[key] = ProducedPartition(name, partition.index, int(error), Offset(-1))
                else:
                    accepted.append((key, records))
        if twice:
            # The answers would have one offset for both batches.
            accepted = [(key, records) for key, records in accepted if key not in twice]
            refused |= {key: ProducedPartition(*key, int(ErrorCode.INVALID_REQUEST), Offset(-1)) for key in twice}
        if request.throttle is not None:
            request.throttle.count(Kind.PRODUCE, size)
        return accepted, refused

    def _note_unknown(
        self, topic: wire.ProduceRequest.TopicProduceData, partition: int, records: Buffer | None, error: ErrorCode
    ) -> None:
        """The topic may be too new for this node, and known before the producer's next batch arrives."""
        if error is ErrorCode.UNKNOWN_TOPIC_ID and records and (topic_id := topic_ids.from_wire(topic.topic_id)):
            self._partitions.refused(TopicPartition(topic_id, partition), records, error)

    def _costly(
        self, accepted: list[tuple[TopicPartition, Buffer]]
    ) -> Steps[tuple[dict[TopicPartition, RecordRules], dict[tuple[str, int], ProducedPartition]]]:
        """The partitions whose batches are not looked into on the loop, and those with batches that are wrong."""
        costly: dict[TopicPartition, RecordRules] = {}
        wrong: dict[tuple[str, int], ProducedPartition] = {}
        now_ms = 0
        budget = CheckBudget()
        for number, (key, records) in enumerate(accepted, 1):
            if not number % STEP:
                yield
            rules = self._partitions.record_rules(key)
            if rules is None:
                continue
            now_ms = now_ms or self._services.clock.wall_ms()
            try:
                if is_costly(records, rules, now_ms, budget):
                    costly[key] = rules
            except ApiError as error:
                wrong[key] = _refused(key, error)
        return costly, wrong

    def _prepare_first(
        self,
        request: Request,
        message: wire.ProduceRequest,
        accepted: list[tuple[TopicPartition, Buffer]],
        refused: dict[tuple[str, int], ProducedPartition],
        costly: dict[TopicPartition, RecordRules],
    ) -> None:
        """The requests behind it wait: a producer's batches are appended in its order. So does the client's memory."""
        request.connection.hold_requests()
        accepted = [(key, bytes(records)) for key, records in accepted]
        checking = self._prepare(request, message, accepted, refused, costly)
        self._services.supervisor.spawn("kafka.Produce.records", checking, Policy.ISOLATED)

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
                    prepared, seconds = await connection.listener.executor.run(owner, work)
                except ApiError as error:
                    refused[key] = _refused(key, error)
                except OSError as error:
                    code = int(ErrorCode.KAFKA_STORAGE_ERROR)
                    refused[key] = ProducedPartition(*key, code, Offset(-1), message=str(error))
                else:
                    passed.append((key, prepared))
                    if request.throttle is not None:
                        request.throttle.work_s += seconds
            if request.version >= _IDS_FROM:
                # That took a while: another topic may have the name now.
                named = {topic.name: topic_ids.from_wire(topic.topic_id) for topic in message.topic_data}
                gone = {name for name, topic_id in named.items() if self._services.topic_name(topic_id) != name}
                unknown = [key for key, _ in passed if key.topic in gone]
                refused |= {
                    key: ProducedPartition(*key, int(ErrorCode.UNKNOWN_TOPIC_ID), Offset(-1)) for key in unknown
                }
                passed = [(key, records) for key, records in passed if key.topic not in gone]
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
        done = partial(self._produced, request, message, acks, refused)
        if not accepted:
            done(())
        elif message.transactional_id is None:
            self._partitions.produce(acks, message.timeout_ms, accepted, done, client=request.client)
        else:
            from kafkalite.coordinators.transactions import (
                transactional_produce,  # loaded only where transactions are used
            )

            transactional_produce.produce(
                self._services,
                self._verifier(),
                message.transactional_id,
                acks,
                message.timeout_ms,
                accepted,
                done,
                adds=request.version >= _ADDS_FROM,
                knows_abortable=request.version >= _ABORTABLE_FROM,
                client=request.client,
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
        leaders = CurrentLeaders(self._services, request) if request.version >= _LEADERS_FROM else None
        stepped.respond(request, _answer_about(message, by_key, leaders))

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


def _answer_about(
    message: wire.ProduceRequest, by_key: dict[tuple[str, int], ProducedPartition], leaders: CurrentLeaders | None
) -> Steps[wire.ProduceResponse]:
    """`leaders`: for versions that say where the leader is."""
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
            leader = None
            if leaders is not None and result.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                found = leaders.of(TopicPartition(topic.name, partition.index))
                if found is not None:
                    leader = response.LeaderIdAndEpoch(found.broker_id, found.leader_epoch)
            partitions.append(
                partition_class(
                    partition.index,
                    result.error,
                    result.base_offset,
                    result.log_append_time_ms,
                    result.log_start_offset,
                    [error_class(*each) for each in result.record_errors],
                    result.message or None,
                    leader,
                )
            )
        topics.append(topic_class(topic.name, topic.topic_id, partitions))
    endpoints = leaders.endpoints() if leaders is not None else []
    return response(topics, node_endpoints=[response.NodeEndpoint(*endpoint) for endpoint in endpoints])


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
