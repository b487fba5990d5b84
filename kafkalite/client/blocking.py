"""The client on plain sockets, without asyncio: for Spark's executors and for scripts.

Confined to one thread. Its configuration is a plain value that pickles, so that a driver can hand it to workers.
Produces and fetches whole record batches; what is in them is the caller's business. A batch with producer id and
sequence is deduplicated by the broker, so it may be sent again after a lost answer.

What is asked of which node, `routing` decides; here its effects are performed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from kafkalite.client import messages
from kafkalite.client.blocking_connection import BlockingConnection, ConnectTimeout
from kafkalite.client.bootstrap import parse_bootstrap
from kafkalite.client.bootstrap_rotation import BootstrapRotation
from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.effects import Effect, Flow, LeaderRequest, Pause, Refresh, ToAny, ToLeaders, ToNode
from kafkalite.client.exchange import Request
from kafkalite.client.flows import Flows
from kafkalite.client.results import Metadata
from kafkalite.client.retry import ANY_NODE_TIMEOUT_S, ASK_NEXT_AFTER_S, PROBE_AFTER_S, BootstrapFailed
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, is_retriable
from kafkalite.extension.messages.topics import NewTopic, TopicResult
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Endpoint, Offset, ProducerId, TopicPartition
from kafkalite.partition_values import AbortedTransaction, ListedOffset, ProducedPartition
from kafkalite.rpc.answers import RpcError, RpcNotSent, RpcTimeout

if TYPE_CHECKING:
    from kafkalite.security.dialling import ClientSecurity

#: Of the check after PROBE_AFTER_S, while the leader may answer any moment.
PROBE_TIMEOUT_S = 2.0
#: A leader's first connection attempt; after a failed one, connect_timeout_ms.
FIRST_DIAL_S = 1.0
#: Metadata between two tries.
_REFRESH_TIMEOUT_S = 5.0
_NO_BELIEF = frozenset({ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BlockingClientConfig:
    """Everything that a client needs; pickles."""

    bootstrap: str
    client_id: str = "kafkalite-blocking"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 3_000
    delivery_timeout_ms: int = 120_000
    #: If no address of `bootstrap` has ever answered, give up with BootstrapFailed: after this time if each of them fails at once,
    #: at the deadline of the request if one is silent. None: an RpcError at the deadline.
    first_answer_ms: int | None = None
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

    def __init__(self, config: BlockingClientConfig | str) -> None:
        self.config = BlockingClientConfig(config) if isinstance(config, str) else config
        self.view = ClusterView()
        self._dialling = self.config.security.open() if self.config.security is not None else None
        self._random = random.Random()
        self._rotation = BootstrapRotation(parse_bootstrap(self.config.bootstrap), self.view, self._random)
        self._connections: dict[Endpoint, BlockingConnection] = {}
        self._unreachable: set[Endpoint] = set()
        #: Connections with an answer to come, which nothing else may be asked on meanwhile.
        self._awaited: set[Endpoint] = set()
        self.routing = Flows(
            self.view, self._endpoints, time.monotonic, self._random,
            request_timeout_s=self.config.request_timeout_ms / 1000,
        )  # fmt: skip

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

    # --- questions -------------------------------------------------------------------------------

    def metadata(
        self, topics: Iterable[str] | None = None, *, timeout_ms: int | None = None, allow_auto_create: bool = False
    ) -> Metadata:
        """Metadata of topics (None: all), remembered. With `allow_auto_create` the cluster may make those that are missing
        (auto.create.topics.enable). Raises ApiError, RpcError."""
        flow = self.routing.metadata(topics, self._request_s(timeout_ms), allow_auto_create=allow_auto_create)
        return self.run(flow)

    def init_producer_id(
        self,
        transactional_id: str | None = None,
        *,
        transaction_timeout_ms: int = 60_000,
        timeout_ms: int | None = None,
    ) -> tuple[ProducerId, int]:
        """A producer id and its epoch; of a transactional id, its next epoch. Raises ApiError, RpcError."""
        timeout_s = self._request_s(timeout_ms)
        return self.run(self.routing.init_producer_id(transactional_id, transaction_timeout_ms, timeout_s))

    def create_topics(self, topics: Sequence[NewTopic], *, timeout_ms: int | None = None) -> tuple[TopicResult, ...]:
        """Create topics; one result each. After a try whose outcome was lost, "exists already" is success."""
        return self.run(self.routing.create_topics(topics, self._request_s(timeout_ms), validate_only=False))

    def call_any(self, request: Request, *, timeout_ms: int | None = None) -> Any:
        """Ask nodes until one answers; for requests that do no harm twice. Raises ApiError, RpcError, BootstrapFailed."""
        return self._perform(ToAny(request, self._request_s(timeout_ms)))

    def call_node(self, node: BrokerId, request: Request, *, timeout_ms: int | None = None) -> Any:
        """Ask one node, once. Raises ApiError, RpcError."""
        return self._perform(ToNode(node, request, self._request_s(timeout_ms)))

    # --- coordinators ------------------------------------------------------------------------

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None:
        """Of a group without members. All of them, or an error. Raises ApiError (UNKNOWN_MEMBER_ID: it has members), RpcError."""
        request = messages.commit_offsets_request(group_id, offsets)
        timeout_s = self._request_s(timeout_ms)
        self.run(self.routing.to_coordinator(messages.GROUP, group_id, request, messages.first_commit_error, timeout_s))

    def committed_offsets(self, group_id: str, *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """What a group has committed; empty if there is no such group. Raises ApiError, RpcError."""

        def error_of(response: Any) -> tuple[int, str]:
            return messages.fetched_error(response), ""

        timeout_s, request = self._request_s(timeout_ms), messages.fetch_offsets_request(group_id)
        _, found = self.run(self.routing.to_coordinator(messages.GROUP, group_id, request, error_of, timeout_s))
        return {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in messages.fetched_topics(found)
            for each in topic.partitions
            if not each.error_code and each.committed_offset >= 0
        }

    # --- leaders -----------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets for timestamps (LATEST_TIMESTAMP, ...), from the leaders. Raises ApiError, RpcError."""
        return self.run(self.routing.list_offsets(wanted, isolation, self._request_s(timeout_ms)))

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
        timeout_s = self._request_s(timeout_ms) + max_wait_ms / 1000
        flow = self.routing.fetch_raw(key, offset, max_bytes, max_wait_ms, isolation, timeout_s)
        head, records = self.run(flow)
        return RawFetch(records, head.high_watermark, head.log_start_offset, head.last_stable_offset, head.aborted)

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
        timeout_s = (timeout_ms or self.config.delivery_timeout_ms) / 1000
        return self.run(self.routing.produce(batches, acks, timeout_s, transactional_id=transactional_id))

    # --- effects -----------------------------------------------------------------------------

    def run(self, flow: Flow[T]) -> T:
        """Perform a flow's effects; what it returns. Raises RpcError, ApiError, BootstrapFailed."""
        try:
            effect = next(flow)
            while True:
                try:
                    came = self._perform(effect)
                except (RpcError, ApiError) as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(came)
        except StopIteration as done:
            result: T = done.value
            return result

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case ToNode(node, request, timeout_s):
                until = time.monotonic() + timeout_s
                if isinstance(node, Endpoint):
                    return self._connection_to(node, until).call(request, until)
                return self._node(node, until).call(request, until)
            case ToAny(request, timeout_s):
                return self._ask_any(request, time.monotonic() + timeout_s)
            case ToLeaders():
                return self._ask_leaders(effect, time.monotonic() + effect.timeout_s)
            case Pause(seconds):
                time.sleep(seconds)
            case Refresh(topics, timeout_s):
                try:
                    self.run(self.routing.metadata(topics, min(timeout_s, _REFRESH_TIMEOUT_S)))
                except (RpcError, ApiError) as error:
                    return error
        return None

    def _ask_any(self, request: Request, deadline: float) -> Any:
        error: KafkaliteError = RpcNotSent("no node is known")
        attempts = 0
        patience_s = ASK_NEXT_AFTER_S  # in the first round over all nodes
        first_answer_ms = self.config.first_answer_ms
        gives_up_at = float("inf") if first_answer_ms is None else time.monotonic() + first_answer_ms / 1000
        while True:
            was_late = False
            endpoints = self._endpoints()
            for endpoint in endpoints:
                until = min(deadline, time.monotonic() + (patience_s if len(endpoints) > 1 else ANY_NODE_TIMEOUT_S))
                try:
                    return self._ask_endpoint(endpoint, request, until)
                except (RpcError, ApiError) as failure:
                    if isinstance(failure, ApiError) and not is_retriable(failure.code):
                        raise
                    error = failure
                    was_late = was_late or isinstance(failure, RpcTimeout | ConnectTimeout)
                if time.monotonic() >= deadline:
                    raise self._at_the_deadline(error)
            if not self.view.brokers and not was_late and time.monotonic() >= gives_up_at:
                raise BootstrapFailed(str(error))
            attempts += 1
            patience_s = min(ANY_NODE_TIMEOUT_S, 4 * patience_s)
            pause = self.routing.backoff.pause_s(attempts)
            if time.monotonic() + pause >= deadline:
                raise self._at_the_deadline(error)
            time.sleep(pause)

    def _ask_endpoint(self, endpoint: Endpoint, request: Request, until: float) -> Any:
        try:
            return self._connection_to(endpoint, until).call(request, until)
        except RpcTimeout:
            self._rotation.was_late([endpoint], time.monotonic())
            raise

    def _at_the_deadline(self, error: KafkaliteError) -> KafkaliteError:
        """A caller that wants to know that no address has ever answered (`first_answer_ms`) need not try again then."""
        if self.config.first_answer_ms is None or self.view.brokers or not isinstance(error, RpcError):
            return error
        return BootstrapFailed(str(error))

    def _ask_leaders(self, asked: ToLeaders, until: float) -> list[Any]:
        """Send everything, then receive everything: one slow leader does not keep the others from working."""
        sent: list[tuple[BlockingConnection, int] | KafkaliteError] = []
        for each in asked.requests:
            try:
                connection = self._node(each.node, until)
                sent.append((connection, connection.send(each.request, until, has_response=each.has_response)))
                if each.has_response:
                    self._awaited.add(connection.endpoint)
            except (RpcError, ApiError) as error:
                sent.append(error)
        try:
            return [
                way if isinstance(way, KafkaliteError) else self._receive(*way, each, until, asked.wait_s)
                for each, way in zip(asked.requests, sent, strict=True)
            ]
        finally:
            self._awaited.clear()

    def _receive(
        self, connection: BlockingConnection, number: int, asked: LeaderRequest, until: float, wait_s: float
    ) -> Any:
        """A leader's response, or the error; given up as soon as another node leads one of its keys: its process may have
        been stopped."""

        def check_leaders() -> None:
            if not self._endpoints():
                return
            left_s = max(0.001, min(until - time.monotonic(), PROBE_TIMEOUT_S))
            try:
                self.run(self.routing.metadata({key.topic for key in asked.keys}, left_s))
            except (RpcError, ApiError):
                return
            leaders = [self.view.leader(key) for key in asked.keys]
            if any(leader is not None and leader.broker_id != asked.node for leader in leaders):
                raise RpcTimeout(f"broker {asked.node} has not answered, and does not lead any more")

        if not asked.has_response:
            return None
        try:
            if not asked.keys:
                return connection.receive(asked.request, number, until)
            wait_s += PROBE_AFTER_S
            return connection.receive(asked.request, number, until, wait_s=wait_s, on_silence=check_leaders)
        except (RpcError, ApiError) as error:
            return error
        finally:
            self._awaited.discard(connection.endpoint)

    # --- connections -------------------------------------------------------------------------

    def _node(self, node: BrokerId, deadline: float) -> BlockingConnection:
        endpoint = self.view.endpoint(node)
        if endpoint is None:
            raise RpcNotSent(f"broker {node}: address not known")
        if endpoint not in self._unreachable:
            deadline = min(deadline, time.monotonic() + FIRST_DIAL_S)
        return self._connection_to(endpoint, deadline)

    def _connection_to(self, endpoint: Endpoint, deadline: float) -> BlockingConnection:
        known = self._connections.get(endpoint)
        if known is not None and not known.closed:
            try:
                if endpoint not in self._awaited:
                    known.renew(deadline)
                return known
            except RpcError:
                self._connections.pop(endpoint, None)  # it may be another process by now: dial
        timeout_s = min(self.config.connect_timeout_ms / 1000, max(0.001, deadline - time.monotonic()))
        try:
            connection = BlockingConnection(endpoint, self.config.client_id, timeout_s, self._dialling)
        except ApiError as error:
            if error.code in _NO_BELIEF:
                raise  # no other node, and no later time, would believe us
            self._unreachable.add(endpoint)
            raise RpcNotSent(str(error)) from None
        except RpcNotSent:
            self._unreachable.add(endpoint)
            raise
        self._unreachable.discard(endpoint)
        self._connections[endpoint] = connection
        return connection

    def _endpoints(self) -> list[Endpoint]:
        in_turn = self._rotation.in_turn(time.monotonic(), self._unreachable)
        return [endpoint for endpoint in in_turn if endpoint not in self._awaited]

    def _request_s(self, timeout_ms: int | None) -> float:
        return (timeout_ms or self.config.request_timeout_ms) / 1000
