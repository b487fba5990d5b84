"""What both clients can ask of a cluster, as flows (see `routing`). No I/O.

Every flow raises ApiError: asking again would not change it; RpcError: nobody answered in time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafkalite.client import messages
from kafkalite.client.effects import Flow, LeaderRequest, ToAny
from kafkalite.client.exchange import Request
from kafkalite.client.results import Metadata
from kafkalite.client.retry import ProduceOutcome, produce_outcome
from kafkalite.client.routing import Outcome, Router
from kafkalite.errors import ApiError, ErrorCode, api_error, error_code, is_retriable
from kafkalite.extension.messages.topics import CreateTopicsRequest, DeleteTopicsRequest, NewTopic, TopicResult
from kafkalite.model import BrokerId, Buffer, Offset, ProducerId, TopicPartition
from kafkalite.partition_values import FetchedPartition, ListedOffset, ProducedPartition
from kafkalite.protocol import wire
from kafkalite.rpc.messages.base import Message

#: Where a record batch holds its producer id.
_PRODUCER_ID = struct.Struct(">q")
_PRODUCER_ID_AT = 43


class Flows(Router):
    """Timeouts are seconds."""

    # --- topics ----------------------------------------------------------------------------------

    def describe_topics(self, topics: Iterable[str] | None, timeout_s: float) -> Flow[Metadata]:
        """With what other APIs return: eligible leader replicas (KIP-966) and replicas that are being added (KIP-455)."""
        deadline = self._now() + timeout_s
        found = yield from self.metadata(topics, timeout_s)
        names = [topic.topic for topic in found.topics if not topic.error]
        more: dict[TopicPartition, dict[str, Any]] = {}
        try:
            cursor = None
            while names:
                request = messages.describe_partitions_request(names, cursor)
                response = yield ToAny(request, self._left(deadline))
                messages.take_eligible(response, more)
                cursor = response.next_cursor
                if cursor is None:
                    break
            if names:
                response = yield ToAny(wire.ListPartitionReassignmentsRequest(1000, None), self._left(deadline))
                messages.take_adding(response, more)
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
        return messages.completed(found, more)

    def create_topics(
        self, topics: Sequence[NewTopic], timeout_s: float, *, validate_only: bool
    ) -> Flow[tuple[TopicResult, ...]]:
        """One result each. After a try whose outcome was lost, "exists already" is success."""
        request: Request
        timeout_ms = int(timeout_s * 1000)
        if any(topic.placement != "shifted" for topic in topics):
            request = CreateTopicsRequest(tuple(topics), timeout_ms, validate_only)
        else:
            request = messages.create_topics_request(topics, timeout_ms, validate_only=validate_only)
        results, again = yield from self._topics_request(request, messages.created, timeout_s)
        if not again:
            return results
        wanted = {topic.topic: topic for topic in topics}
        forgiven = _forgive(results, ErrorCode.TOPIC_ALREADY_EXISTS)
        return tuple(each if each.partitions >= 0 else _counted(each, wanted[each.topic]) for each in forgiven)

    def delete_topics(
        self, topics: Sequence[str], timeout_s: float, *, vanished: bool
    ) -> Flow[tuple[TopicResult, ...]]:
        """One result each. `vanished`: also replicas that brokers keep of topics that have vanished (kafkalite's own)."""
        request: Request
        timeout_ms = int(timeout_s * 1000)
        if vanished:
            request = DeleteTopicsRequest(tuple(topics), timeout_ms, vanished=True)
        else:
            request = messages.delete_topics_request(topics, timeout_ms)
        results, again = yield from self._topics_request(request, messages.deleted, timeout_s)
        return _forgive(results, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if again else results

    def _topics_request(
        self, request: Request, results_of: Callable[[Any], tuple[TopicResult, ...]], timeout_s: float
    ) -> Flow[tuple[tuple[TopicResult, ...], bool]]:
        def results(response: Any) -> tuple[TopicResult, ...]:
            if not isinstance(response, Message):
                return results_of(response)
            return response.topics  # type: ignore[attr-defined,no-any-return]

        response, again = yield from self.to_controller(
            request, timeout_s, lambda response: [each.error for each in results(response)]
        )
        return results(response), again

    # --- partitions ------------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int, timeout_s: float
    ) -> Flow[dict[TopicPartition, ListedOffset]]:
        """Offsets for timestamps (LATEST_TIMESTAMP, ...)."""
        found: dict[TopicPartition, ListedOffset] = {}

        def request_of(node: BrokerId, part: list[TopicPartition], patience_s: float) -> LeaderRequest:
            stamps = {key: wanted[key] for key in part}
            request = messages.list_offsets_request(stamps, self.epochs(part), isolation, int(patience_s * 1000))
            return LeaderRequest(node, request, tuple(part))

        def take(_: LeaderRequest, response: Any) -> Iterable[Outcome]:
            for each in messages.listed_offsets(response):
                key = TopicPartition(each.topic, each.partition)
                found[key] = each
                yield key, error_code(each.error), ""

        yield from self.ask_leaders(wanted.keys(), request_of, take, self._now() + timeout_s)
        return found

    def fetch_raw(
        self, key: TopicPartition, offset: int, max_bytes: int, max_wait_ms: int, isolation: int, timeout_s: float
    ) -> Flow[tuple[FetchedPartition, memoryview]]:
        """Record batches from `offset` on."""
        found: list[tuple[FetchedPartition, memoryview]] = []

        def request_of(node: BrokerId, part: list[TopicPartition], _: float) -> LeaderRequest:
            request = messages.fetch_request(
                {key: offset}, self.epochs(part), max_wait_ms=max_wait_ms, max_bytes=max_bytes,
                partition_max_bytes=max_bytes, isolation=isolation,
            )  # fmt: skip
            return LeaderRequest(node, request, (key,))

        def take(_: LeaderRequest, response: Any) -> Iterable[Outcome]:
            for each, records in messages.fetched(response):
                code = error_code(each.error)
                if code is ErrorCode.NONE:
                    found.append((each, records))
                yield key, code, f"{code.name} at offset {offset}"

        deadline = self._now() + timeout_s
        yield from self.ask_leaders([key], request_of, take, deadline, wait_s=max_wait_ms / 1000)
        return found[0]

    def produce(
        self,
        batches: Mapping[TopicPartition, Buffer],
        acks: int,
        timeout_s: float,
        *,
        transactional_id: str | None = None,
    ) -> Flow[dict[TopicPartition, ProducedPartition]]:
        """Append one batch to each partition. One that the broker cannot recognise (no producer id) is not given up while
        an answer may come, so that it is not written twice before it must be."""
        done: dict[TopicPartition, ProducedPartition] = {}

        def request_of(node: BrokerId, part: list[TopicPartition], patience_s: float) -> LeaderRequest:
            mine = {key: batches[key] for key in part}
            request = messages.produce_request(mine, acks, max(1, int(patience_s * 1000)), transactional_id)
            leaves = all(_has_producer_id(batch) for batch in mine.values())
            return LeaderRequest(node, request, tuple(part) if leaves else (), acks != 0, tuple(part))

        def take(asked: LeaderRequest, response: Any) -> Iterable[Outcome]:
            if acks == 0:
                entries = [ProducedPartition(*key, 0, Offset(-1)) for key in asked.about]
            else:
                entries = list(messages.produced(response))
            for each in entries:
                key = TopicPartition(each.topic, each.partition)
                done[key] = each
                code = error_code(each.error)
                delivered = produce_outcome(code, idempotent=False) is ProduceOutcome.DELIVERED
                yield key, ErrorCode.NONE if delivered else code, each.message

        def is_passing(code: ErrorCode) -> bool:
            return produce_outcome(code, idempotent=False) is not ProduceOutcome.FAILED

        yield from self.ask_leaders(batches.keys(), request_of, take, self._now() + timeout_s, is_passing=is_passing)
        return done

    # --- producers -------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str | None, transaction_timeout_ms: int, timeout_s: float
    ) -> Flow[tuple[ProducerId, int]]:
        """A new producer id and its epoch; of a transactional id, the next epoch: its earlier producer is fenced."""
        request = wire.InitProducerIdRequest(transactional_id, transaction_timeout_ms)
        if transactional_id is not None:
            _, response = yield from self.to_coordinator(
                messages.TRANSACTION, transactional_id, request, lambda r: (r.error_code, ""), timeout_s
            )
            return ProducerId(response.producer_id), response.producer_epoch
        deadline = self._now() + timeout_s
        attempts = 0
        while True:
            response = yield ToAny(request, self._left(deadline))
            code = error_code(response.error_code)
            if code is ErrorCode.NONE:
                return ProducerId(response.producer_id), response.producer_epoch
            error = api_error(code, f"no producer id: {code.name}")
            if not is_retriable(code):
                raise error
            attempts += 1
            yield from self._pause(attempts, deadline, error)


def _forgive(results: tuple[TopicResult, ...], code: ErrorCode) -> tuple[TopicResult, ...]:
    return tuple(TopicResult(r.topic, 0, topic_id=r.topic_id) if r.error == code else r for r in results)


def _counted(result: TopicResult, wanted: NewTopic) -> TopicResult:
    """The result with the request's numbers of partitions and replicas; -1: left to the broker, and not known."""
    partitions, replicas = wanted.partitions, wanted.replication_factor
    if wanted.assignment:
        partitions, replicas = len(wanted.assignment), max(map(len, wanted.assignment.values()))
    return replace(result, partitions=partitions, replication_factor=replicas)


def _has_producer_id(batch: Buffer) -> bool:
    return len(batch) >= _PRODUCER_ID_AT + 8 and _PRODUCER_ID.unpack_from(batch, _PRODUCER_ID_AT)[0] >= 0
