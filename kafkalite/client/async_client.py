"""The native client on asyncio: connections to nodes, metadata, requests that find the node they are for."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from kafkalite.client.bootstrap import parse_bootstrap
from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.retry import Backoff, wants_metadata
from kafkalite.env.real import RealClock, RealNetwork
from kafkalite.env.seams import Buffer, Clock, Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, is_retriable
from kafkalite.model import NO_BROKER_EPOCH, BrokerId, Endpoint, Offset, ProducerId, TopicPartition
from kafkalite.rpc.client import Answer, RpcConnection, RpcDisconnected, RpcError, RpcNotSent, RpcTimeout, error_code
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.data import (
    FetchedPartition,
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
)
from kafkalite.rpc.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    NewTopic,
    TopicResult,
)
from kafkalite.rpc.messages.watching import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    HealthRequest,
    HealthResponse,
)
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.security.dialling import ClientSecurity

_log = get_logger(__name__)

#: One node's patience for a question that any node can answer.
ANY_NODE_TIMEOUT_S = 5.0
#: ... after so long the next node is asked as well: a stopped process must not hold up the client.
ASK_NEXT_AFTER_S = 0.3
#: A node that was late like that is asked last for so long.
LATE_FOR_S = 5.0
#: An answer that takes so long makes the client look whether the leader is still the same.
PROBE_AFTER_S = 0.5
#: ... and again so often, or less often where the metadata of thousands of partitions take their time.
PROBE_EVERY_S = 0.1
PROBE_EVERY_AT_MOST_S = 0.25
_PROBE_SHARE = 5
#: Of a connection attempt.
CONNECT_TIMEOUT_S = 3.0

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def of_kind(answer: Message, cls: type[M]) -> M:
    """The answer as the class that its request says it has (rpc.client has checked the kind)."""
    assert isinstance(answer, cls)
    return answer


class AsyncClient:
    """A client of the cluster; `async with AsyncClient.connect([...]) as client`.

    Connects when it first has to. Every method takes its deadline in seconds and, until then, follows leaders,
    passes over dead nodes and asks again.
    """

    def __init__(
        self,
        bootstrap: Sequence[Endpoint],
        *,
        network: Network,
        clock: Clock,
        rng: random.Random,
        client_id: str = "kafkalite",
        request_timeout_s: float = 30.0,
        metadata_max_age_s: float = 300.0,
    ) -> None:
        self.view = ClusterView()
        self.clock = clock
        self.random = rng
        self.client_id = client_id
        self.request_timeout_s = request_timeout_s
        self.backoff = Backoff(rng)
        #: Set when a task of the client met a bug: everything that waits is told.
        self.broken: BaseException | None = None
        self.supervisor = Supervisor(self._break)
        self._bootstrap = list(bootstrap)
        self._network = network
        self._metadata_max_age_s = metadata_max_age_s
        self._connections: dict[Endpoint, RpcConnection] = {}
        self._dialing: dict[Endpoint, asyncio.Task[RpcConnection | KafkaliteError]] = {}
        self._dial_failures: dict[Endpoint, tuple[int, float, str]] = {}
        #: Nodes that were late -> until when they are asked last.
        self._late: dict[Endpoint, float] = {}
        self._refreshing: asyncio.Task[KafkaliteError | None] | None = None
        self._rotation = rng.randrange(1 << 16)
        self._topics: set[str] = set()
        self._refreshed_at = float("-inf")
        self._refresh_took_s = 0.0
        self._updated: asyncio.Event = asyncio.Event()
        self._closed = False

    @classmethod
    def connect(
        cls,
        bootstrap: Sequence[str] | str,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        client_id: str = "kafkalite",
        request_timeout_s: float = 30.0,
        security: ClientSecurity | None = None,
    ) -> AsyncClient:
        """A client for these "host:port"s; the real network, clock and randomness by default.

        Raises ValueError for them, ConfigError for what `security` names.
        """
        network = network or RealNetwork()
        if security is not None:
            from kafkalite.rpc.authenticated import AuthenticatedNetwork  # only who uses it loads it

            network = AuthenticatedNetwork(network, security.open(), os.urandom)
        text = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        return cls(
            parse_bootstrap(text),
            network=network,
            clock=clock or RealClock(),
            rng=rng or random.Random(),
            client_id=client_id,
            request_timeout_s=request_timeout_s,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; what waits for an answer fails."""
        self._closed = True
        for connection in list(self._connections.values()):
            await connection.close()
        await self.supervisor.stop()

    def now(self) -> float:
        """Seconds on the loop's clock: for deadlines."""
        return asyncio.get_running_loop().time()

    def _break(self, error: BaseException) -> None:
        self.broken = error
        self._updated.set()

    # --- connections -------------------------------------------------------------------------

    async def connection_to(self, endpoint: Endpoint) -> RpcConnection:
        """The one connection to this address. Raises RpcNotSent (also while a failed dial is recent), ApiError."""
        known = self._connections.get(endpoint)
        if known is not None and not known.closed:
            return known
        if self._closed:
            raise RpcNotSent("the client is closed")
        task = self._dialing.get(endpoint)
        if task is None:
            _, not_before, why = self._dial_failures.get(endpoint, (0, float("-inf"), ""))
            if self.now() < not_before:
                raise RpcNotSent(f"{endpoint}: could not connect a moment ago ({why})")
            task = self.supervisor.spawn(f"client.dial[{endpoint}]", self._dial(endpoint), Policy.ISOLATED)
            self._dialing[endpoint] = task
        outcome = await self._join(task)
        if isinstance(outcome, KafkaliteError):
            raise outcome
        return outcome

    async def _join(self, task: asyncio.Task[T]) -> T | RpcNotSent:
        """Wait for a task that others wait for too. One that was cancelled: the client is being closed."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not task.cancelled() or (current is not None and current.cancelling()):
                raise
            return RpcNotSent("the client is closed")

    async def _dial(self, endpoint: Endpoint) -> RpcConnection | KafkaliteError:
        hello = HelloRequest(self.view.cluster_id, BrokerId(-1), NO_BROKER_EPOCH, client_id=self.client_id)
        try:
            connection = await RpcConnection.open(
                self._network, endpoint, hello, supervisor=self.supervisor, timeout_s=CONNECT_TIMEOUT_S
            )
        except (RpcError, ApiError) as error:
            failures = self._dial_failures.get(endpoint, (0, 0.0, ""))[0] + 1
            self._dial_failures[endpoint] = (failures, self.now() + self.backoff.pause_s(failures), str(error))
            return error
        finally:
            del self._dialing[endpoint]
        self._dial_failures.pop(endpoint, None)
        self._connections[endpoint] = connection
        return connection

    async def connection(self, broker_id: BrokerId) -> RpcConnection:
        """The connection to a broker. Raises RpcNotSent, ApiError."""
        endpoint = self.view.endpoint(broker_id)
        if endpoint is None:
            raise RpcNotSent(f"broker {broker_id}: address not known")
        connection = await self.connection_to(endpoint)
        if connection.peer.node_id != broker_id:
            connection.abort("another node")
            raise RpcNotSent(f"{endpoint}: is node {connection.peer.node_id}, not {broker_id}")
        return connection

    def open_connection(self, broker_id: BrokerId) -> RpcConnection | None:
        """The connection to a broker if there is one already."""
        endpoint = self.view.endpoint(broker_id)
        connection = self._connections.get(endpoint) if endpoint is not None else None
        if connection is None or connection.closed or connection.peer.node_id != broker_id:
            return None
        return connection

    def _endpoints(self) -> list[Endpoint]:
        """Every address we know, each time beginning with the next: a node that is cut off from the cluster, but
        not from us, must not be the only one we listen to. Those that could not be reached come last."""
        known = [Endpoint(b.rpc_host, b.rpc_port) for _, b in sorted(self.view.brokers.items())]
        known += [endpoint for endpoint in self._bootstrap if endpoint not in known]
        self._rotation += 1
        start = self._rotation % len(known)
        now = self.now()
        return sorted(
            known[start:] + known[:start],
            key=lambda endpoint: endpoint in self._dial_failures or self._late.get(endpoint, now) > now,
        )

    # --- requests ----------------------------------------------------------------------------

    async def call_node(
        self, broker_id: BrokerId, message: Message, body: Sequence[Buffer] = (), *, timeout_s: float
    ) -> Answer:
        """Ask one broker, once. Raises RpcError, ApiError."""
        connection = await self.connection(broker_id)
        return await self._call(connection, message, body, timeout_s)

    async def _call(
        self, connection: RpcConnection, message: Message, body: Sequence[Buffer], timeout_s: float
    ) -> Answer:
        try:
            return await connection.call(message, body, timeout_s=timeout_s)
        except RpcTimeout:
            # Everything behind the unanswered request would wait as well.
            connection.abort("a request was not answered")
            raise

    async def call_leader(
        self,
        broker_id: BrokerId,
        message: Message,
        keys: Collection[TopicPartition],
        *,
        timeout_s: float,
        wait_s: float = 0.0,
    ) -> Answer:
        """Ask the leader of `keys`, once; given up as soon as another node leads one of them, for its process may have
        been stopped and may never answer. For requests that do no harm twice.

        Args:
            wait_s: how long a leader that is well may take.
        Raises:
            RpcError, ApiError.
        """
        connection = await self.connection(broker_id)
        deadline = self.now() + timeout_s
        future = connection.send_nowait(message)
        pause = wait_s + PROBE_AFTER_S
        try:
            while True:
                try:
                    async with asyncio.timeout(max(0.0, min(pause, deadline - self.now()))):
                        return await asyncio.shield(future)
                except TimeoutError:
                    pause = self.probe_every_s
                if self.now() >= deadline:
                    connection.abort("a request was not answered")
                    raise RpcTimeout(f"{type(message).__name__} was not answered within {timeout_s:g} s")
                leaders = [self.view.leader(key) for key in keys]
                if any(leader is not None and leader.broker_id != broker_id for leader in leaders):
                    raise RpcTimeout(f"broker {broker_id} has not answered, and does not lead any more")
                self.refresh_soon()
        finally:
            future.cancel()

    async def call_any(self, message: Message, *, timeout_s: float) -> Message:
        """Ask any node; each that is late lets the next be asked as well, and the first answer counts. For requests
        that do no harm twice.

        Raises:
            ApiError: a refusal that another node or a later time would not change.
            RpcError: nobody answered in time.
        """
        deadline = self.now() + timeout_s
        attempts = 0
        while True:
            outcome = await self._ask_overlapping(message, deadline)
            if not isinstance(outcome, KafkaliteError):
                return outcome
            attempts += 1
            pause = self.backoff.pause_s(attempts)
            if self.broken is not None or self.now() + pause >= deadline:
                raise outcome
            await asyncio.sleep(pause)

    async def _ask_overlapping(self, message: Message, deadline: float) -> Message | KafkaliteError:
        """One round over all nodes: the first answer, or the last error. Raises ApiError."""
        waiting = self._endpoints()
        outcomes: asyncio.Queue[tuple[Endpoint, Message | KafkaliteError]] = asyncio.Queue(len(waiting))
        asked: dict[Endpoint, asyncio.Task[None]] = {}
        error: KafkaliteError = RpcNotSent("no node is known")
        try:
            while waiting or asked:
                if waiting:
                    endpoint = waiting.pop(0)
                    question = self._ask_into(
                        outcomes, endpoint, message, min(deadline, self.now() + ANY_NODE_TIMEOUT_S)
                    )
                    asked[endpoint] = self.supervisor.spawn(f"client.ask[{endpoint}]", question, Policy.ISOLATED)
                try:
                    async with asyncio.timeout(ASK_NEXT_AFTER_S if waiting else None):
                        endpoint, outcome = await outcomes.get()
                except TimeoutError:
                    self._late.update(dict.fromkeys(asked, self.now() + LATE_FOR_S))
                    continue
                del asked[endpoint]
                if not isinstance(outcome, KafkaliteError):
                    self._late.pop(endpoint, None)
                    return outcome
                if isinstance(outcome, ApiError) and not is_retriable(outcome.code):
                    raise outcome
                error = outcome
            return error
        finally:
            for task in asked.values():
                task.cancel()

    async def _ask_into(
        self,
        outcomes: asyncio.Queue[tuple[Endpoint, Message | KafkaliteError]],
        endpoint: Endpoint,
        message: Message,
        until: float,
    ) -> None:
        """Ask one node; what comes of it goes into `outcomes`, whatever it is."""
        outcome: Message | KafkaliteError = RpcNotSent(f"{endpoint}: the client is closed")
        try:
            connection = await self.connection_to(endpoint)
            outcome, _ = await self._call(connection, message, (), max(0.0, until - self.now()))
        except (RpcError, ApiError) as failure:
            outcome = failure
        finally:
            outcomes.put_nowait((endpoint, outcome))

    async def _ask_around(self, message: Message, *, timeout_s: float, node_timeout_s: float) -> tuple[Message, bool]:
        """The answer, and whether an earlier try may have been executed."""
        deadline = self.now() + timeout_s
        attempts = 0
        maybe_executed = False
        error: KafkaliteError = RpcNotSent("no node is known")
        while True:
            for endpoint in self._endpoints():
                left = deadline - self.now()
                if left <= 0:
                    raise error
                try:
                    connection = await self.connection_to(endpoint)
                    answer, _ = await self._call(connection, message, (), min(left, node_timeout_s))
                    return answer, maybe_executed
                except RpcError as failure:
                    maybe_executed = maybe_executed or isinstance(failure, RpcDisconnected | RpcTimeout)
                    error = failure
                except ApiError as refusal:
                    if not is_retriable(refusal.code):
                        raise
                    error = refusal
                if self.broken is not None:
                    raise error
            attempts += 1
            pause = self.backoff.pause_s(attempts)
            if self.now() + pause >= deadline:
                raise error
            await asyncio.sleep(pause)

    # --- metadata ----------------------------------------------------------------------------

    async def metadata(self, topics: Iterable[str] | None = None, *, timeout_s: float = 30.0) -> MetadataResponse:
        """Ask for topics (None: all) and remember the answer. Raises ApiError, RpcError."""
        asked = None if topics is None else tuple(sorted(set(topics)))
        answer = of_kind(await self.call_any(MetadataRequest(asked), timeout_s=timeout_s), MetadataResponse)
        self.view.update(answer)
        self._updated.set()
        self._updated = asyncio.Event()
        return answer

    def follow(self, topic: str) -> None:
        """Keep this topic's metadata fresh."""
        self._topics.add(topic)

    def refresh_soon(self) -> None:
        """Ask for the followed topics' metadata in the background, at most one question at a time."""
        if self._refreshing is None and not self._closed:
            self._refreshing = self.supervisor.spawn("client.metadata", self._refresh(), Policy.ISOLATED)

    @property
    def metadata_is_old(self) -> bool:
        return self.now() - self._refreshed_at > self._metadata_max_age_s

    @property
    def probe_every_s(self) -> float:
        """How often to look for a new leader while the one that was asked does not answer."""
        return min(PROBE_EVERY_AT_MOST_S, max(PROBE_EVERY_S, _PROBE_SHARE * self._refresh_took_s))

    async def refresh(self) -> KafkaliteError | None:
        """Wait for the question under way, or a new one; the error if nobody answered."""
        self.refresh_soon()
        if self._refreshing is None:
            return RpcNotSent("the client is closed")
        return await self._join(self._refreshing)

    async def _refresh(self) -> KafkaliteError | None:
        began = self.now()
        try:
            await self.metadata(self._topics, timeout_s=self.request_timeout_s)
            self._refreshed_at = self.now()
            self._refresh_took_s = self._refreshed_at - began
        except (RpcError, ApiError) as error:
            return error
        finally:
            self._refreshing = None
            self._updated.set()
            self._updated = asyncio.Event()
        return None

    async def known_topic(self, topic: str, *, timeout_s: float = 60.0) -> int:
        """The topic's number of partitions, waiting for its metadata if need be.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION when the cluster says so for as long as the timeout; others at once.
            RpcError: nobody answers.
        """
        self.follow(topic)
        deadline = self.now() + timeout_s
        attempts = 0
        while not (count := self.view.partition_count(topic)):
            error = await self.refresh()
            if count := self.view.partition_count(topic):
                break
            if error is None:
                entry = self.view.topics.get(topic)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if entry is None else error_code(entry.error)
                error = api_error(code, f"topic {topic}: {code.name}")
                if not is_retriable(code) and code is not ErrorCode.NONE:
                    raise error
            attempts += 1
            pause = self.backoff.pause_s(attempts)
            if self.now() + pause > deadline:
                raise error
            await asyncio.sleep(pause)
        return count

    # --- partitions --------------------------------------------------------------------------

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0, timeout_s: float = 30.0
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets for timestamps (LATEST_TIMESTAMP, ...), from the leaders. Raises ApiError, RpcError."""
        found: dict[TopicPartition, ListedOffset] = {}
        deadline = self.now() + timeout_s
        attempts = 0
        last: KafkaliteError = api_error(ErrorCode.LEADER_NOT_AVAILABLE)
        for topic in sorted({key.topic for key in wanted}):
            await self.known_topic(topic, timeout_s=timeout_s)
        while len(found) < len(wanted):
            by_node: dict[BrokerId, list[ListOffsetsPartition]] = {}
            for key in sorted(wanted.keys() - found.keys()):
                leader = self.view.leader(key)
                if leader is not None:
                    entry = ListOffsetsPartition(key.topic, key.partition, wanted[key], leader.leader_epoch)
                    by_node.setdefault(leader.broker_id, []).append(entry)
            for node, entries in by_node.items():
                try:
                    timeout = min(self.request_timeout_s, max(0.1, deadline - self.now()))
                    request = ListOffsetsRequest(tuple(entries), isolation)
                    keys = [TopicPartition(each.topic, each.partition) for each in entries]
                    answer, _ = await self.call_leader(node, request, keys, timeout_s=timeout)
                except RpcError as error:
                    last = error
                    continue
                for told in of_kind(answer, ListOffsetsResponse).partitions:
                    key = TopicPartition(told.topic, told.partition)
                    if not told.error:
                        found[key] = told
                        continue
                    code = error_code(told.error)
                    last = api_error(code, f"{key}: {code.name}")
                    if not is_retriable(code):
                        raise last
            if len(found) < len(wanted):
                attempts += 1
                await self._pause_and_refresh(attempts, deadline, last)
        return found

    async def _pause_and_refresh(self, attempts: int, deadline: float, last: KafkaliteError) -> None:
        """Before another try of something that needs leaders. Raises `last` when there is no time for one."""
        pause = self.backoff.pause_s(attempts)
        if self.now() + pause > deadline:
            raise last
        await asyncio.sleep(pause)
        await self.refresh()

    async def fetch_raw(
        self,
        key: TopicPartition,
        offset: Offset,
        max_bytes: int = 1 << 20,
        *,
        max_wait_ms: int = 500,
        isolation: int = 0,
        timeout_s: float = 30.0,
    ) -> tuple[FetchedPartition, memoryview]:
        """Committed record batches from `offset` on, from the leader; the first batch may begin below it.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE and others that asking again does not change.
            RpcError: the leader could not be reached in time.
        """
        deadline = self.now() + timeout_s
        attempts = 0
        last: KafkaliteError = api_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{key}: no leader")
        await self.known_topic(key.topic, timeout_s=timeout_s)
        while True:
            leader = self.view.leader(key)
            if leader is not None:
                entry = FetchPartition(key.topic, key.partition, offset, max_bytes, leader.leader_epoch)
                request = FetchRequest(max_wait_ms, 1, max_bytes, (entry,), isolation)
                timeout = max_wait_ms / 1000 + min(self.request_timeout_s, max(0.1, deadline - self.now()))
                try:
                    answer, body = await self.call_leader(
                        leader.broker_id, request, [key], timeout_s=timeout, wait_s=max_wait_ms / 1000
                    )
                    fetched = of_kind(answer, FetchResponse).partitions[0]
                    code = error_code(fetched.error)
                    if not fetched.error:
                        return fetched, body[: fetched.records_size]
                    last = api_error(code, f"{key}: {code.name} at offset {offset}")
                    if not (is_retriable(code) or wants_metadata(code)):
                        raise last
                except RpcError as error:
                    last = error
            attempts += 1
            await self._pause_and_refresh(attempts, deadline, last)

    async def init_producer_id(self, *, timeout_s: float = 60.0) -> tuple[ProducerId, int]:
        """A new producer id and its epoch. Raises ApiError, RpcError."""
        deadline = self.now() + timeout_s
        attempts = 0
        while True:
            left = max(0.1, deadline - self.now())
            answer = of_kind(await self.call_any(InitProducerIdRequest(), timeout_s=left), InitProducerIdResponse)
            if not answer.error:
                return answer.producer_id, answer.producer_epoch
            code = error_code(answer.error)
            attempts += 1
            pause = self.backoff.pause_s(attempts)
            if not is_retriable(code) or self.now() + pause > deadline:
                raise api_error(code, "no producer id")
            await asyncio.sleep(pause)

    # --- admin -------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_s: float = 30.0, validate_only: bool = False
    ) -> tuple[TopicResult, ...]:
        """Create topics; one result each. After a try whose outcome was lost, "exists already" is success."""
        request = CreateTopicsRequest(tuple(topics), int(timeout_s * 1000), validate_only)
        answer, again = await self._ask_around(request, timeout_s=timeout_s, node_timeout_s=timeout_s)
        results = of_kind(answer, CreateTopicsResponse).topics
        return _forgive(results, ErrorCode.TOPIC_ALREADY_EXISTS) if again else results

    async def delete_topics(self, topics: Sequence[str], *, timeout_s: float = 30.0) -> tuple[TopicResult, ...]:
        """Delete topics; one result each."""
        request = DeleteTopicsRequest(tuple(topics), int(timeout_s * 1000))
        answer, again = await self._ask_around(request, timeout_s=timeout_s, node_timeout_s=timeout_s)
        results = of_kind(answer, DeleteTopicsResponse).topics
        return _forgive(results, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if again else results

    async def order(self, request: Message, answer: type[M], *, timeout_s: float = 30.0) -> M:
        """Give an order that does no harm twice to any node, and return its answer, which may be a refusal."""
        found, _ = await self._ask_around(request, timeout_s=timeout_s, node_timeout_s=timeout_s)
        return of_kind(found, answer)

    async def describe_cluster(self, *, timeout_s: float = 30.0) -> DescribeClusterResponse:
        """Brokers and controller, as one node sees them."""
        return of_kind(await self.call_any(DescribeClusterRequest(), timeout_s=timeout_s), DescribeClusterResponse)

    async def every_node(
        self, message: Message, *, timeout_s: float = 10.0
    ) -> dict[BrokerId, Message | KafkaliteError]:
        """Ask every live broker at once; an answer or an error for each, by broker id."""
        # Who lives now, and who did when we last asked: that one of them is gone is an answer, too.
        known = self.view.brokers.keys()
        await self.metadata((), timeout_s=timeout_s)
        nodes = sorted(known | self.view.brokers.keys())
        return await self.ask_nodes(dict.fromkeys(nodes, message), timeout_s=timeout_s)

    async def ask_nodes(
        self, questions: Mapping[BrokerId, Message], *, timeout_s: float = 10.0
    ) -> dict[BrokerId, Message | KafkaliteError]:
        """Ask these brokers at once, each its own question; an answer or an error for each."""
        tasks = {
            node: self.supervisor.spawn(f"client.ask[{node}]", self._ask_one(node, message, timeout_s), Policy.ISOLATED)
            for node, message in questions.items()
        }
        return {node: await task for node, task in tasks.items()}

    async def ask_node(self, node: BrokerId, message: Message, *, timeout_s: float = 10.0) -> Message | KafkaliteError:
        """Ask one live broker; an error if there is no such broker."""
        if not self.view.brokers:
            await self.metadata((), timeout_s=timeout_s)
        if node not in self.view.brokers:
            return api_error(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not alive")
        return await self._ask_one(node, message, timeout_s)

    async def _ask_one(self, node: BrokerId, message: Message, timeout_s: float) -> Message | KafkaliteError:
        try:
            return (await self.call_node(node, message, timeout_s=timeout_s))[0]
        except (RpcError, ApiError) as error:
            return error

    async def describe_replicas(
        self, topics: Sequence[str] = (), *, timeout_s: float = 10.0
    ) -> dict[BrokerId, DescribeReplicasResponse | KafkaliteError]:
        """What every node knows of the partitions it hosts."""
        answers = await self.every_node(DescribeReplicasRequest(tuple(topics)), timeout_s=timeout_s)
        return {
            n: a if isinstance(a, KafkaliteError) else of_kind(a, DescribeReplicasResponse) for n, a in answers.items()
        }

    async def health(self, *, timeout_s: float = 10.0) -> dict[BrokerId, HealthResponse | KafkaliteError]:
        """What every node sees wrong."""
        answers = await self.every_node(HealthRequest(), timeout_s=timeout_s)
        return {n: a if isinstance(a, KafkaliteError) else of_kind(a, HealthResponse) for n, a in answers.items()}


def _forgive(results: tuple[TopicResult, ...], code: ErrorCode) -> tuple[TopicResult, ...]:
    return tuple(TopicResult(r.topic, 0, topic_id=r.topic_id) if r.error == code else r for r in results)
