"""Which node gets which request, and what to do when it fails: leaders, coordinators and the controller are followed.

No I/O. A flow is a generator that yields effects (below) and is sent what came of them; `cluster_requests` performs
them on asyncio, `blocking` on plain sockets. An effect that fails raises RpcError or ApiError at the yield.

Times are seconds on one monotonic clock of the caller's.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kafkalite.client import messages
from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.exchange import Request
from kafkalite.client.results import FetchedPartition, ListedOffset, Metadata, ProducedPartition
from kafkalite.client.retry import Backoff, Verdict, judge_produce, wants_metadata
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code, is_retriable
from kafkalite.extension.messages.topics import CreateTopicsRequest, DeleteTopicsRequest, NewTopic, TopicResult
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Buffer, Endpoint, LeaderEpoch, Offset, ProducerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.rpc.answers import RpcDisconnected, RpcError, RpcNotSent, RpcTimeout
from kafkalite.rpc.messages.base import Message

T = TypeVar("T")

#: Every batch write of Spark's is a group of its own: no more coordinators are remembered.
_COORDINATORS_KEPT = 1000
#: These say that another node is the coordinator by now, or is about to be.
FIND_AGAIN = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_LEAST_S = 0.1
#: Where a record batch holds its producer id.
_PRODUCER_ID = struct.Struct(">q")
_PRODUCER_ID_AT = 43


# --- effects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToNode:
    """Ask this node, once: the response."""

    node: BrokerId | Endpoint
    request: Request
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ToAny:
    """Ask nodes until one answers: the response. For requests that do no harm twice."""

    request: Request
    timeout_s: float


@dataclass(frozen=True, slots=True)
class LeaderRequest:
    """`keys`: given up as soon as another node leads one of them. Empty: waited for, whoever leads. `about`: all of them."""

    node: BrokerId
    request: Request
    keys: tuple[TopicPartition, ...]
    has_response: bool = True
    about: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ToLeaders:
    """Ask these leaders, all at once, each once: a list of responses or errors in the same order.

    `wait_s`: how long a leader that is well may take.
    """

    requests: tuple[LeaderRequest, ...]
    timeout_s: float
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Refresh:
    """Ask for these topics' metadata: None, or the error."""

    topics: frozenset[str]
    timeout_s: float


Effect = ToNode | ToAny | ToLeaders | Pause | Refresh
Flow = Generator[Effect, Any, T]
#: (partition, its error, more about it)
Outcome = tuple[TopicPartition, ErrorCode, str]
#: What an error of a partition means: False, asking again does not help.
IsPassing = Callable[[ErrorCode], bool]


def _is_passing(code: ErrorCode) -> bool:
    return is_retriable(code) or wants_metadata(code)


# --- flows ---------------------------------------------------------------------------------------


class Router:
    """What both clients know of the cluster, and the flows that use it."""

    def __init__(
        self, view: ClusterView, in_turn: Callable[[], list[Endpoint]], now: Callable[[], float], rng: random.Random,
        *, request_timeout_s: float,
    ) -> None:  # fmt: skip
        self.view = view
        self.backoff = Backoff(rng)
        self.request_timeout_s = request_timeout_s
        self._in_turn = in_turn
        self._now = now
        self._coordinators: dict[tuple[int, str], BrokerId] = {}

    def _left(self, deadline: float) -> float:
        return max(_LEAST_S, deadline - self._now())

    def _pause(self, attempts: int, deadline: float, error: KafkaliteError) -> Flow[None]:
        """Before another try. Raises `error` when there is no time for one."""
        pause = self.backoff.pause_s(attempts)
        if self._now() + pause >= deadline:
            raise error
        yield Pause(pause)

    # --- metadata --------------------------------------------------------------------------------

    def metadata(
        self, topics: Iterable[str] | None, timeout_s: float, *, allow_auto_create: bool = False
    ) -> Flow[Metadata]:
        """Ask for topics (None: all), and remember the answer."""
        request = messages.metadata_request(topics, allow_auto_create=allow_auto_create)
        found = messages.metadata_of((yield ToAny(request, timeout_s)))
        self.view.update(found)
        return found

    def describe_topics(self, topics: Iterable[str] | None, timeout_s: float) -> Flow[Metadata]:
        """With what other APIs tell: eligible leader replicas (KIP-966) and replicas that are being added (KIP-455)."""
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

    def known_topic(self, topic: str, timeout_s: float) -> Flow[int]:
        """The topic's number of partitions.

        Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION when the cluster says so until the end; others at once.
        """
        deadline = self._now() + timeout_s
        attempts = 0
        while not (count := self.view.partition_count(topic)):
            error = yield Refresh(frozenset((topic,)), self._left(deadline))
            if count := self.view.partition_count(topic):
                break
            if error is None:
                error = self._topic_error(topic) or api_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic}")
                if not is_retriable(error.code):
                    raise error
            attempts += 1
            yield from self._pause(attempts, deadline, error)
        return count

    def _topic_error(self, topic: str) -> ApiError | None:
        entry = self.view.topics.get(topic)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if entry is None else error_code(entry.error)
        return None if code is ErrorCode.NONE else api_error(code, f"topic {topic}: {code.name}")

    # --- leaders ---------------------------------------------------------------------------------

    def by_leader(self, keys: Iterable[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
        """Those that have a leader."""
        found: dict[BrokerId, list[TopicPartition]] = {}
        for key in keys:
            leader = self.view.leader(key)
            if leader is not None:
                found.setdefault(leader.broker_id, []).append(key)
        return found

    def epochs(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderEpoch]:
        """The leader epochs that are known."""
        leaders = ((key, self.view.leader(key)) for key in keys)
        return {key: leader.leader_epoch for key, leader in leaders if leader is not None}

    def ask_leaders(
        self,
        keys: Collection[TopicPartition],
        request_of: Callable[[BrokerId, list[TopicPartition], float], LeaderRequest],
        take: Callable[[LeaderRequest, Any], Iterable[Outcome]],
        deadline: float,
        *,
        wait_s: float = 0.0,
        is_passing: IsPassing = _is_passing,
    ) -> Flow[None]:
        """Ask the leaders of `keys` until each partition is done.

        Args:
            request_of: the request for partitions of one leader, which may take so many seconds.
            take: keeps what a response says, and returns what it means for each partition.
        Raises:
            ApiError: what asking again does not change. All leaders that were asked have answered then.
            RpcError: a leader could not be reached in time.
        """
        topics = frozenset(key.topic for key in keys)
        waiting = set(keys)
        attempts = 0
        for topic in sorted(topics):
            yield from self.known_topic(topic, self._left(deadline))
        while waiting:
            patience = wait_s + min(self.request_timeout_s, self._left(deadline))
            requests = tuple(request_of(node, part, patience) for node, part in self.by_leader(sorted(waiting)).items())
            last: KafkaliteError | None = None
            failure: ApiError | None = None
            for asked, outcome in zip(requests, (yield ToLeaders(requests, patience, wait_s)), strict=True):
                if isinstance(outcome, KafkaliteError):
                    last = outcome
                    if isinstance(outcome, ApiError) and not is_retriable(outcome.code):
                        failure = outcome
                    continue
                for key, code, text in take(asked, outcome):
                    if code is ErrorCode.NONE:
                        waiting.discard(key)
                        continue
                    last = api_error(code, f"{key}: {text or code.name}")
                    if not is_passing(code):
                        failure = last
            if failure is not None:
                raise failure
            if not waiting:
                return
            attempts += 1
            yield from self._pause(attempts, deadline, last or self._leaderless(waiting))
            yield Refresh(topics, self._left(deadline))

    def _leaderless(self, keys: Iterable[TopicPartition]) -> ApiError:
        for topic in sorted({key.topic for key in keys}):
            if (error := self._topic_error(topic)) is not None:
                return error
        missing = sorted(key for key in keys if self.view.leader(key) is None)
        shown = ", ".join(map(str, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        return api_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{shown}: no leader is known")

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
                delivered = judge_produce(code, idempotent=False) is Verdict.DELIVERED
                yield key, ErrorCode.NONE if delivered else code, each.message

        def is_passing(code: ErrorCode) -> bool:
            return judge_produce(code, idempotent=False) is not Verdict.FAILED

        yield from self.ask_leaders(batches.keys(), request_of, take, self._now() + timeout_s, is_passing=is_passing)
        return done

    # --- coordinators ----------------------------------------------------------------------------

    def to_coordinator(
        self,
        kind: int,
        key: str,
        request: Request,
        error_of: Callable[[Any], tuple[int, str]],
        timeout_s: float,
    ) -> Flow[tuple[BrokerId, Any]]:
        """(coordinator, its response), which has no error. For requests that do no harm twice.

        Args:
            kind: messages.GROUP or messages.TRANSACTION.
            error_of: (error, message) of a response.
        """
        deadline = self._now() + timeout_s
        attempts = 0
        while True:
            error: KafkaliteError
            try:
                node = yield from self.coordinator(kind, key, self._left(deadline))
                response = yield ToNode(node, request, min(self.request_timeout_s, self._left(deadline)))
                number, text = error_of(response)
                if not number:
                    return node, response
                code = error_code(number)
                error = api_error(code, text or code.name)
                if code in FIND_AGAIN:
                    self._coordinators.pop((kind, key), None)
                elif not is_retriable(code):
                    raise error
            except RpcError as failure:
                self._coordinators.pop((kind, key), None)
                error = failure
            except ApiError as refusal:
                if not is_retriable(refusal.code):
                    raise
                error = refusal
            attempts += 1
            yield from self._pause(attempts, deadline, error)

    def coordinator(self, kind: int, key: str, timeout_s: float) -> Flow[BrokerId]:
        """Which node coordinates a group or a transactional id."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        deadline = self._now() + timeout_s
        attempts = 0
        while True:
            response = yield ToAny(messages.find_coordinator_request(key, kind), self._left(deadline))
            number, text, node = messages.coordinator_of(response)
            if not number:
                break
            code = error_code(number)
            error = api_error(code, f"no coordinator for {key}: {text or code.name}")
            if not is_retriable(code):
                raise error
            attempts += 1
            yield from self._pause(attempts, deadline, error)
        self.view.learn(node)
        if len(self._coordinators) >= _COORDINATORS_KEPT:
            self._coordinators.clear()
        self._coordinators[kind, key] = node.broker_id
        return node.broker_id

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

    # --- the controller --------------------------------------------------------------------------

    def to_controller(
        self,
        request: Request,
        timeout_s: float,
        codes_of: Callable[[Any], Collection[int]] = lambda _: (),
    ) -> Flow[tuple[Any, bool]]:
        """(response, whether an earlier try may have been executed). Any node is asked: those of kafkalite, and of Apache Kafka
        without ZooKeeper, all take it. Where one refuses because it is not the controller, the controller is asked."""
        deadline = self._now() + timeout_s
        attempts = 0
        maybe_executed = False
        error: KafkaliteError = RpcNotSent("no node is known")
        only_controller = False
        while True:
            controller = self.view.endpoint(self.view.controller_id) if only_controller else None
            for node in self._in_turn() if controller is None else [controller]:
                left = deadline - self._now()
                if left <= 0:
                    raise error
                try:
                    response = yield ToNode(node, request, left)
                    if ErrorCode.NOT_CONTROLLER not in codes_of(response):
                        return response, maybe_executed
                    error = api_error(ErrorCode.NOT_CONTROLLER, f"{node} is not the controller")
                    only_controller = True
                    break
                except RpcError as failure:
                    maybe_executed = maybe_executed or isinstance(failure, RpcDisconnected | RpcTimeout)
                    error = failure
                except ApiError as refusal:
                    if not is_retriable(refusal.code):
                        raise
                    error = refusal
            attempts += 1
            yield from self._pause(attempts, deadline, error)
            yield Refresh(frozenset(), self._left(deadline))

    def create_topics(
        self, topics: Sequence[NewTopic], timeout_s: float, validate_only: bool
    ) -> Flow[tuple[TopicResult, ...]]:
        """One result each. After a try whose outcome was lost, "exists already" is success."""
        request: Request
        timeout_ms = int(timeout_s * 1000)
        if any(topic.placement != "shifted" for topic in topics):
            request = CreateTopicsRequest(tuple(topics), timeout_ms, validate_only)
        else:
            request = messages.create_topics_request(topics, timeout_ms, validate_only)
        results, again = yield from self._topics_request(request, messages.created, timeout_s)
        return _forgive(results, ErrorCode.TOPIC_ALREADY_EXISTS) if again else results

    def delete_topics(self, topics: Sequence[str], timeout_s: float, vanished: bool) -> Flow[tuple[TopicResult, ...]]:
        """One result each. `vanished`: also replicas that brokers keep of topics that have vanished (kafkalite's own)."""
        request: Request
        timeout_ms = int(timeout_s * 1000)
        if vanished:
            request = DeleteTopicsRequest(tuple(topics), timeout_ms, True)
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


def _forgive(results: tuple[TopicResult, ...], code: ErrorCode) -> tuple[TopicResult, ...]:
    return tuple(TopicResult(r.topic, 0, topic_id=r.topic_id) if r.error == code else r for r in results)


def _has_producer_id(batch: Buffer) -> bool:
    return len(batch) >= _PRODUCER_ID_AT + 8 and _PRODUCER_ID.unpack_from(batch, _PRODUCER_ID_AT)[0] >= 0
