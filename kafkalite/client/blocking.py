"""The native client on plain sockets, without asyncio: for Spark's executors and for scripts.

Confined to one thread. Its configuration is a plain value that pickles, so that a driver can hand it to workers.
Produces and fetches whole record batches; what is in them is the caller's business. A batch with producer id and
sequence is deduplicated by the broker, so it may be sent again after a lost answer.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from kafkalite.client.blocking_connection import BlockingConnection
from kafkalite.client.bootstrap import parse_bootstrap
from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.retry import Backoff, Verdict, judge_produce, wants_metadata
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code, is_retriable
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    BrokerId,
    Endpoint,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
)
from kafkalite.rpc.answers import Answer, RpcError, RpcNotSent, RpcTimeout
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.data import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListedOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)

if TYPE_CHECKING:
    from kafkalite.security.dialling import ClientSecurity

#: One node's patience for a question that any node can answer.
ANY_NODE_TIMEOUT_S = 5.0
#: ... in the first round over all nodes; four times as long in each further one: a stopped process must not hold us up.
ASK_NEXT_AFTER_S = 0.3
#: A node that was late like that is asked last for so long.
LATE_FOR_S = 5.0
#: An answer that takes so long makes the client look whether the leader is still the same.
PROBE_AFTER_S = 0.5
#: Of that look, while the leader may answer any moment.
PROBE_TIMEOUT_MS = 2_000
#: A leader's first connection attempt; after a failed one, connect_timeout_ms.
FIRST_DIAL_S = 1.0
#: Where a record batch holds its producer id.
_PRODUCER_ID = struct.Struct(">q")
_PRODUCER_ID_AT = 43
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class BlockingClientConfig:
    """Everything that a client needs; pickles."""

    bootstrap: str
    client_id: str = "kafkalite-blocking"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 3_000
    delivery_timeout_ms: int = 120_000
    #: TLS, and who we are; None: plain text.
    security: ClientSecurity | None = None


class RawFetch(NamedTuple):
    """Record batches as they are in the log; the first may begin below the offset asked for."""

    records: memoryview
    high_watermark: Offset
    log_start_offset: Offset
    last_stable_offset: Offset
    #: Of transactions that reach into `records` (isolation 1).
    aborted: tuple[AbortedTransaction, ...] = ()


class BlockingClient:
    """Follows leaders and retries until its deadlines; see AsyncClient for the sibling on asyncio."""

    def __init__(self, config: BlockingClientConfig | str, *, rng: random.Random | None = None) -> None:
        self.config = BlockingClientConfig(config) if isinstance(config, str) else config
        self.view = ClusterView()
        self._dialling = self.config.security.open() if self.config.security is not None else None
        self._bootstrap = parse_bootstrap(self.config.bootstrap)
        self._random = rng or random.Random()
        self._backoff = Backoff(self._random)
        self._connections: dict[Endpoint, BlockingConnection] = {}
        self._unreachable: set[Endpoint] = set()
        #: Nodes that were late -> until when (monotonic seconds) they are asked last.
        self._late: dict[Endpoint, float] = {}
        #: Connections with an answer to come, which nothing else may be asked on meanwhile.
        self._awaited: set[Endpoint] = set()
        self._rotation = self._random.randrange(1 << 16)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- questions for any node --------------------------------------------------------------

    def metadata(
        self, topics: Iterable[str] | None = None, *, timeout_ms: int | None = None, allow_auto_create: bool = False
    ) -> MetadataResponse:
        """Metadata of topics (None: all), remembered. With `allow_auto_create` the cluster may make those that are missing
        (auto.create.topics.enable). Raises ApiError, RpcError."""
        asked = None if topics is None else tuple(sorted(set(topics)))
        answer = self.call_any(MetadataRequest(asked, allow_auto_create), MetadataResponse, timeout_ms=timeout_ms)
        self.view.update(answer)
        return answer

    def init_producer_id(self, *, timeout_ms: int | None = None) -> tuple[ProducerId, int]:
        """A new producer id and its epoch. Raises ApiError, RpcError."""
        deadline = self._deadline(timeout_ms or self.config.request_timeout_ms)
        attempts = 0
        while True:
            answer = self.call_any(InitProducerIdRequest(), InitProducerIdResponse, timeout_ms=left_ms(deadline))
            if not answer.error:
                return answer.producer_id, answer.producer_epoch
            code = error_code(answer.error)
            attempts += 1
            if not is_retriable(code):
                raise api_error(code, "no producer id")
            self._pause(attempts, deadline, api_error(code, "no producer id"))

    def call_any(self, message: Message, answer_class: type[M], *, timeout_ms: int | None = None) -> M:
        """Ask nodes until one answers; for requests that do no harm twice. Raises ApiError, RpcError."""
        deadline = self._deadline(timeout_ms or self.config.request_timeout_ms)
        error: KafkaliteError = RpcNotSent("no node is known")
        attempts = 0
        patience_s = ASK_NEXT_AFTER_S
        while True:
            endpoints = self._endpoints()
            for endpoint in endpoints:
                until = min(deadline, time.monotonic() + (patience_s if len(endpoints) > 1 else ANY_NODE_TIMEOUT_S))
                try:
                    answer, _ = self._connection_to(endpoint, until).call(message, (), until)
                    assert isinstance(answer, answer_class)
                    return answer
                except RpcError as failure:
                    error = failure
                    if isinstance(failure, RpcTimeout):
                        self._late[endpoint] = time.monotonic() + LATE_FOR_S
                except ApiError as refusal:
                    if not is_retriable(refusal.code):
                        raise
                    error = refusal
                if time.monotonic() >= deadline:
                    raise error
            attempts += 1
            patience_s = min(ANY_NODE_TIMEOUT_S, 4 * patience_s)
            self._pause(attempts, deadline, error)

    # --- leaders -----------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets for timestamps (LATEST_TIMESTAMP, ...), from the leaders. Raises ApiError, RpcError."""
        deadline = self._deadline(timeout_ms or self.config.request_timeout_ms)
        found: dict[TopicPartition, ListedOffset] = {}

        def attempt() -> KafkaliteError | None:
            last: KafkaliteError | None = None
            for node, keys in self._by_leader(sorted(wanted.keys() - found.keys())).items():
                entries = tuple(
                    ListOffsetsPartition(key.topic, key.partition, wanted[key], self._epoch_of(key)) for key in keys
                )
                try:
                    answer, _ = self._call_leader(node, ListOffsetsRequest(entries, isolation), keys, deadline)
                except RpcError as error:
                    last = error
                    continue
                assert isinstance(answer, ListOffsetsResponse)
                for entry in answer.partitions:
                    key = TopicPartition(entry.topic, entry.partition)
                    if entry.error:
                        last = _retriable_or_raise(entry.error, key)
                    else:
                        found[key] = entry
            return last

        self._until(lambda: len(found) == len(wanted), attempt, wanted, deadline)
        return found

    def fetch_raw(
        self,
        key: TopicPartition,
        offset: int,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 500,
        *,
        isolation: int = 0,
        timeout_ms: int | None = None,
    ) -> RawFetch:
        """Committed batches from `offset` on, perhaps none. Raises ApiError (OFFSET_OUT_OF_RANGE, ...), RpcError."""
        deadline = self._deadline((timeout_ms or self.config.request_timeout_ms) + max_wait_ms)
        result: list[RawFetch] = []

        def attempt() -> KafkaliteError | None:
            for node in self._by_leader([key]):
                entry = FetchPartition(key.topic, key.partition, Offset(offset), max_bytes, self._epoch_of(key))
                request = FetchRequest(max_wait_ms, 1, max_bytes, (entry,), isolation)
                try:
                    answer, body = self._call_leader(node, request, [key], deadline, wait_s=max_wait_ms / 1000)
                except RpcError as error:
                    return error
                assert isinstance(answer, FetchResponse)
                got = answer.partitions[0]
                if got.error:
                    return _retriable_or_raise(got.error, key)
                records = body[: got.records_size]
                ends = (got.high_watermark, got.log_start_offset, got.last_stable_offset)
                result.append(RawFetch(records, *ends, got.aborted))
            return None

        self._until(lambda: bool(result), attempt, [key], deadline)
        return result[0]

    def produce_raw(
        self, key: TopicPartition, batch: bytes | memoryview, acks: int = -1, timeout_ms: int | None = None
    ) -> ProducedPartition:
        """Append one batch; see `produce_many`."""
        return self.produce_many({key: batch}, acks=acks, timeout_ms=timeout_ms)[key]

    def produce_many(
        self,
        batches: Mapping[TopicPartition, bytes | memoryview],
        acks: int = -1,
        timeout_ms: int | None = None,
        *,
        transactional_id: str | None = None,
    ) -> dict[TopicPartition, ProducedPartition]:
        """Append one batch to each partition, pipelined over the leaders; returns when all are acknowledged.

        Retried until the deadline (default delivery_timeout_ms) on everything that may pass. A batch without
        producer id can be in the log twice after a lost answer; with one it cannot. DUPLICATE_SEQUENCE_NUMBER
        counts as delivered (offset -1).

        `transactional_id`: of the transaction that the batches belong to. The leaders verify them with its coordinator.

        Raises:
            ApiError: what retrying does not change, for any of the batches (OUT_OF_ORDER_SEQUENCE_NUMBER too:
                the caller owns the sequence); others may have been appended.
            RpcError: the deadline came first; it is not known what was appended.
        """
        deadline = self._deadline(timeout_ms or self.config.delivery_timeout_ms)
        done: dict[TopicPartition, ProducedPartition] = {}

        def attempt() -> KafkaliteError | None:
            last: KafkaliteError | None = None
            sent: list[tuple[BlockingConnection, int, list[TopicPartition], BrokerId]] = []
            until = min(deadline, time.monotonic() + self.config.request_timeout_ms / 1000)
            for node, keys in self._by_leader(sorted(batches.keys() - done.keys())).items():
                entries = tuple(ProducePartition(key.topic, key.partition, len(batches[key])) for key in keys)
                request = ProduceRequest(acks, max(1, left_ms(until)), entries, transactional_id)
                try:
                    connection = self._node(node, until)
                    number = connection.send(request, [batches[key] for key in keys], until)
                    sent.append((connection, number, keys, node))
                except RpcError as error:
                    last = error
            failure: ApiError | None = None
            if acks != 0:
                self._awaited = {connection.endpoint for connection, *_ in sent}
            for connection, number, keys, node in sent:
                if acks == 0:
                    done.update({key: ProducedPartition(key.topic, key.partition, 0, Offset(-1)) for key in keys})
                    continue
                # What the broker cannot recognise is not sent twice before it must be.
                leaves = all(_has_producer_id(batches[key]) for key in keys)
                try:
                    answer, _ = self._receive(connection, ProduceRequest, number, node, keys if leaves else (), until)
                except RpcError as error:
                    last = error
                    continue
                except ApiError as error:
                    if is_retriable(error.code):
                        last = error
                    else:
                        failure = error
                    continue
                assert isinstance(answer, ProduceResponse)
                for entry in answer.partitions:
                    key = TopicPartition(entry.topic, entry.partition)
                    code = error_code(entry.error)
                    verdict = judge_produce(code, idempotent=False)
                    if verdict is Verdict.DELIVERED:
                        done[key] = entry
                        continue
                    error_here = api_error(code, f"{key}: {entry.message or code.name}")
                    if verdict is Verdict.FAILED:
                        failure = error_here
                    last = error_here
            # Only when every answer is in: an unread one would be taken for the next request's.
            if failure is not None:
                raise failure
            return last

        self._until(lambda: len(done) == len(batches), attempt, batches, deadline)
        return done

    # --- inside ------------------------------------------------------------------------------

    def _until(
        self,
        finished: Callable[[], bool],
        attempt: Callable[[], KafkaliteError | None],
        keys: Collection[TopicPartition],
        deadline: float,
    ) -> None:
        """Try until finished, refreshing metadata in between. Raises the last error at the deadline."""
        attempts = 0
        topics = {key.topic for key in keys}
        last: KafkaliteError = api_error(ErrorCode.LEADER_NOT_AVAILABLE, "no leader is known")
        if any(not self.view.partition_count(topic) for topic in topics):
            self.metadata(topics, timeout_ms=left_ms(deadline))
        while True:
            last = attempt() or self._leaderless(keys) or last
            if finished():
                return
            attempts += 1
            self._pause(attempts, deadline, last)
            try:
                self.metadata(topics, timeout_ms=min(left_ms(deadline), 5_000))
            except RpcError as error:
                last = error
            for topic in sorted(topics):
                entry = self.view.topics.get(topic)
                code = ErrorCode.NONE if entry is None else error_code(entry.error)
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    last = api_error(code, f"topic {topic}: {code.name}")

    def _leaderless(self, keys: Iterable[TopicPartition]) -> ApiError | None:
        """Of partitions whose topic exists: that one does not is another error."""
        missing = sorted(key for key in keys if self.view.partition_count(key.topic) and self.view.leader(key) is None)
        if not missing:
            return None
        shown = ", ".join(map(str, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        return api_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{shown}: no leader is known")

    def _by_leader(self, keys: Iterable[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
        found: dict[BrokerId, list[TopicPartition]] = {}
        for key in keys:
            leader = self.view.leader(key)
            if leader is not None:
                found.setdefault(leader.broker_id, []).append(key)
        return found

    def _epoch_of(self, key: TopicPartition) -> LeaderEpoch:
        leader = self.view.leader(key)
        return NO_LEADER_EPOCH if leader is None else leader.leader_epoch

    def _call_node(
        self, node: BrokerId, message: Message, body: Iterable[bytes | memoryview], deadline: float
    ) -> Answer:
        until = min(deadline, time.monotonic() + self.config.request_timeout_ms / 1000)
        return self._node(node, until).call(message, body, until)

    def _call_leader(
        self, node: BrokerId, message: Message, keys: Sequence[TopicPartition], deadline: float, *, wait_s: float = 0.0
    ) -> Answer:
        """Ask the leader of `keys`, which may take `wait_s` when it is well; for what does no harm twice."""
        until = min(deadline, time.monotonic() + self.config.request_timeout_ms / 1000)
        connection = self._node(node, until)
        number = connection.send(message, (), until)
        return self._receive(connection, type(message), number, node, keys, until, wait_s=wait_s)

    def _receive(
        self,
        connection: BlockingConnection,
        request: type[Message],
        number: int,
        node: BrokerId,
        keys: Sequence[TopicPartition],
        until: float,
        *,
        wait_s: float = 0.0,
    ) -> Answer:
        """A leader's answer; given up as soon as another node leads one of `keys`: its process may have been stopped."""

        def look() -> None:
            if not self._endpoints():
                return
            try:
                self.metadata({key.topic for key in keys}, timeout_ms=min(left_ms(until), PROBE_TIMEOUT_MS))
            except (RpcError, ApiError):
                return
            leaders = [self.view.leader(key) for key in keys]
            if any(leader is not None and leader.broker_id != node for leader in leaders):
                raise RpcTimeout(f"broker {node} has not answered, and does not lead any more")

        self._awaited.add(connection.endpoint)
        try:
            if not keys:
                return connection.receive(request, number, until)
            return connection.receive(request, number, until, wait_s=wait_s + PROBE_AFTER_S, on_silence=look)
        finally:
            self._awaited.discard(connection.endpoint)

    def _node(self, node: BrokerId, deadline: float) -> BlockingConnection:
        endpoint = self.view.endpoint(node)
        if endpoint is None:
            raise RpcNotSent(f"broker {node}: address not known")
        if endpoint not in self._unreachable:
            deadline = min(deadline, time.monotonic() + FIRST_DIAL_S)
        connection = self._connection_to(endpoint, deadline)
        if connection.peer.node_id != node:
            connection.close()
            raise RpcNotSent(f"{endpoint}: is node {connection.peer.node_id}, not {node}")
        return connection

    def _connection_to(self, endpoint: Endpoint, deadline: float) -> BlockingConnection:
        known = self._connections.get(endpoint)
        if known is not None and not known.closed:
            try:
                if endpoint not in self._awaited:
                    known.renew(deadline)
                return known
            except RpcError:
                self._connections.pop(endpoint, None)  # it may be another process by now: dial
        hello = HelloRequest(self.view.cluster_id, BrokerId(-1), NO_BROKER_EPOCH, client_id=self.config.client_id)
        timeout_s = min(self.config.connect_timeout_ms / 1000, max(0.001, deadline - time.monotonic()))
        try:
            connection = BlockingConnection(endpoint, hello, timeout_s, self._dialling)
        except ApiError as error:
            if error.code in (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
                raise  # no other node, and no later time, would believe us
            self._unreachable.add(endpoint)
            raise RpcNotSent(str(error)) from None
        except RpcNotSent as error:
            self._unreachable.add(endpoint)
            raise RpcNotSent(str(error)) from None
        self._unreachable.discard(endpoint)
        self._connections[endpoint] = connection
        return connection

    def _endpoints(self) -> list[Endpoint]:
        known = [Endpoint(b.rpc_host, b.rpc_port) for _, b in sorted(self.view.brokers.items())]
        known += [endpoint for endpoint in self._bootstrap if endpoint not in known]
        # Each time another one first: a node that is cut off from the cluster may answer for ever from memory.
        self._rotation += 1
        start = self._rotation % len(known)
        now = time.monotonic()
        asked = [endpoint for endpoint in known[start:] + known[:start] if endpoint not in self._awaited]
        return sorted(asked, key=lambda endpoint: endpoint in self._unreachable or self._late.get(endpoint, now) > now)

    def _deadline(self, timeout_ms: int) -> float:
        return time.monotonic() + timeout_ms / 1000

    def _pause(self, attempts: int, deadline: float, error: KafkaliteError) -> None:
        pause = self._backoff.pause_s(attempts)
        if time.monotonic() + pause >= deadline:
            raise error
        time.sleep(pause)


def left_ms(deadline: float) -> int:
    return max(1, int((deadline - time.monotonic()) * 1000))


def _has_producer_id(batch: bytes | memoryview) -> bool:
    return len(batch) >= _PRODUCER_ID_AT + 8 and _PRODUCER_ID.unpack_from(batch, _PRODUCER_ID_AT)[0] >= 0


def _retriable_or_raise(number: int, key: TopicPartition) -> ApiError:
    code = error_code(number)
    error = api_error(code, f"{key}: {code.name}")
    if not (is_retriable(code) or wants_metadata(code)):
        raise error
    return error
