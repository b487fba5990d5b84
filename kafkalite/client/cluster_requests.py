"""Requests that find the node they are for, on asyncio: what `routing` decides is performed here, and metadata kept fresh."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.connection import Connection
from kafkalite.client.connections import Connections, join, now
from kafkalite.client.effects import Effect, Flow, LeaderRequest, Pause, Refresh, ToAny, ToLeaders, ToNode
from kafkalite.client.exchange import Request
from kafkalite.client.flows import Flows
from kafkalite.client.results import Metadata
from kafkalite.client.retry import ANY_NODE_TIMEOUT_S, ASK_NEXT_AFTER_S, PROBE_AFTER_S, Backoff
from kafkalite.client.routing import can_be_topic
from kafkalite.env.seams import Clock, Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, is_retriable
from kafkalite.model import BrokerId, Endpoint, TopicPartition
from kafkalite.rpc.answers import RpcError, RpcNotSent, RpcTimeout

if TYPE_CHECKING:
    from kafkalite.security.dialling import Dialling

#: Interval of the checks after PROBE_AFTER_S; longer if the metadata of thousands of partitions take longer.
PROBE_EVERY_S = 0.1
PROBE_EVERY_AT_MOST_S = 0.25
_PROBE_SHARE = 5
#: A topic that nobody has named for this time (seconds) is not asked for any more (Kafka: metadata.max.idle.ms).
TOPIC_IDLE_S = 300.0


T = TypeVar("T")


class ClusterRequests:
    """Asks nodes, as the verbs of `AsyncClient` need it. Connects when it first has to."""

    def __init__(
        self,
        bootstrap: Sequence[Endpoint],
        *,
        network: Network,
        clock: Clock,
        rng: random.Random,
        client_id: str = "kafkalite",
        timeout_s: float = 30.0,
        request_timeout_s: float = 30.0,
        metadata_max_age_s: float = 300.0,
        dialling: Dialling | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.view = ClusterView()
        self.clock = clock
        self.random = rng
        self.client_id = client_id
        #: The deadline of a call that has none of its own; `request_timeout_s`: of one attempt.
        self.timeout_s = timeout_s
        self.request_timeout_s = request_timeout_s
        self.backoff = Backoff(rng)
        #: Set if a task of the client failed with a bug: all waiting callers get the error.
        self.broken: BaseException | None = None
        self.supervisor = Supervisor(self._break)
        self.connections = Connections(
            bootstrap, network=network, view=self.view, backoff=self.backoff, supervisor=self.supervisor, rng=rng,
            client_id=client_id, dialling=dialling, entropy=entropy,
        )  # fmt: skip
        self.routing = Flows(self.view, self.connections.in_turn, now, rng, request_timeout_s=request_timeout_s)
        self._metadata_max_age_s = metadata_max_age_s
        self._refreshing: asyncio.Task[KafkaliteError | None] | None = None
        #: Followed topics: when each was named last (seconds).
        self._topics: dict[str, float] = {}
        self._refreshed_at = float("-inf")
        self._refresh_took_s = 0.0
        self._updated: asyncio.Event = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; what waits for an answer fails."""
        await self.connections.close()
        await self.supervisor.stop()

    def now(self) -> float:
        """Seconds on the loop's clock: for deadlines."""
        return now()

    def _break(self, error: BaseException) -> None:
        self.broken = error
        self._updated.set()

    # --- requests ----------------------------------------------------------------------------

    async def run(self, flow: Flow[T]) -> T:
        """Perform a flow's effects; what it returns. Raises RpcError, ApiError."""
        try:
            effect = next(flow)
            while True:
                try:
                    came = await self._perform(effect)
                except (RpcError, ApiError) as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(came)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            flow.close()

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case ToNode(node, request, timeout_s):
                return await self.call_node(node, request, timeout_s=timeout_s)
            case ToAny(request, timeout_s):
                return await self.call_any(request, timeout_s=timeout_s)
            case ToLeaders():
                return await self._ask_leaders(effect)
            case Pause(seconds):
                if self.broken is not None:
                    raise RpcNotSent(f"the client is broken: {self.broken!r}")
                await asyncio.sleep(seconds)
            case Refresh(topics, timeout_s):
                self.follow(*topics)
                try:
                    async with asyncio.timeout(timeout_s):  # the question under way may be somebody else's
                        return await self.refresh()
                except TimeoutError:
                    why = self.connections.failure() or "no node has answered"
                    return RpcTimeout(f"no metadata within {timeout_s:g} s: {why}")
        return None

    def patience_s(self, timeout_s: float | None) -> float:
        """How long a call that was given `timeout_s` may take."""
        return self.timeout_s if timeout_s is None else timeout_s

    async def call_node(self, node: BrokerId | Endpoint, request: Request, *, timeout_s: float | None = None) -> Any:
        """Ask one broker, once. Raises RpcError, ApiError."""
        if isinstance(node, Endpoint):
            connection = await self.connections.at(node)
        else:
            connection = await self.connections.to(node)
        return await self._call(connection, request, self.patience_s(timeout_s))

    async def _call(self, connection: Connection, request: Request, timeout_s: float) -> Any:
        try:
            return await connection.call(request, timeout_s=timeout_s)
        except RpcTimeout:
            # Everything behind the unanswered request would wait as well.
            connection.abort("a request was not answered")
            raise

    async def _ask_leaders(self, asked: ToLeaders) -> list[Any]:
        """Responses and errors, in the order of the requests."""
        if len(asked.requests) == 1:
            return [await self._ask_leader(asked.requests[0], asked)]
        tasks = [
            self.supervisor.spawn(f"client.leader[{each.node}]", self._ask_leader(each, asked), Policy.ISOLATED)
            for each in asked.requests
        ]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()

    async def _ask_leader(self, each: LeaderRequest, asked: ToLeaders) -> Any:
        try:
            return await self.call_leader(
                each.node, each.request, each.keys, timeout_s=asked.timeout_s, wait_s=asked.wait_s
            )
        except (RpcError, ApiError) as error:
            return error

    async def call_leader(
        self,
        broker_id: BrokerId,
        request: Request,
        keys: Collection[TopicPartition],
        *,
        timeout_s: float,
        wait_s: float = 0.0,
    ) -> Any:
        """Ask the leader of `keys`, once; given up as soon as another node leads one of them, for its process may have
        been stopped and may never answer. For requests that do no harm twice.

        Args:
            wait_s: how long a leader that is well may take.
        Raises:
            RpcError, ApiError.
        """
        self.follow(*{key.topic for key in keys})
        connection = await self.connections.to(broker_id)
        deadline = self.now() + timeout_s
        future = connection.send_nowait(request)
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
                    raise RpcTimeout(f"{type(request).__name__} was not answered within {timeout_s:g} s")
                leaders = [self.view.leader(key) for key in keys]
                if any(leader is not None and leader.broker_id != broker_id for leader in leaders):
                    raise RpcTimeout(f"broker {broker_id} has not answered, and does not lead any more")
                self.refresh_soon()
        finally:
            future.cancel()

    async def call_coordinator(
        self,
        kind: int,
        key: str,
        request: Request,
        error_of: Callable[[Any], tuple[int, str]],
        *,
        timeout_s: float | None = None,
        done: ErrorCode | None = None,
    ) -> tuple[BrokerId, Any]:
        """(coordinator, its response, without an error); see Router.to_coordinator. Raises RpcError, ApiError."""
        flow = self.routing.to_coordinator(kind, key, request, error_of, self.patience_s(timeout_s), done)
        return await self.run(flow)

    async def call_controller(
        self,
        request: Request,
        codes_of: Callable[[Any], Collection[int]] = lambda _: (),
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """The response to a request that does no harm twice; see Router.to_controller. Raises RpcError, ApiError."""
        return (await self.run(self.routing.to_controller(request, self.patience_s(timeout_s), codes_of)))[0]

    async def call_any(self, request: Request, *, timeout_s: float | None = None) -> Any:
        """Ask any node; each that is late lets the next be asked as well, and the first answer counts. For requests
        that do no harm twice.

        Raises:
            ApiError: a refusal that another node or a later time would not change.
            RpcError: nobody answered in time.
        """
        deadline = self.now() + self.patience_s(timeout_s)
        attempts = 0
        while True:
            outcome = await self._ask_overlapping(request, deadline)
            if not isinstance(outcome, KafkaliteError):
                return outcome
            attempts += 1
            pause = self.backoff.pause_s(attempts)
            if self.broken is not None or self.now() + pause >= deadline:
                raise outcome
            await asyncio.sleep(pause)

    async def _ask_overlapping(self, request: Request, deadline: float) -> Any:
        """One round over all nodes: the first response, or the last error. Raises ApiError."""
        waiting = self.connections.in_turn()
        outcomes: asyncio.Queue[tuple[Endpoint, Any]] = asyncio.Queue(len(waiting))
        asked: dict[Endpoint, asyncio.Task[None]] = {}
        error: KafkaliteError = RpcNotSent("no node is known")
        try:
            while waiting or asked:
                if waiting:
                    endpoint = waiting.pop(0)
                    question = self._ask_into(
                        outcomes, endpoint, request, min(deadline, self.now() + ANY_NODE_TIMEOUT_S)
                    )
                    asked[endpoint] = self.supervisor.spawn(f"client.ask[{endpoint}]", question, Policy.ISOLATED)
                try:
                    async with asyncio.timeout(ASK_NEXT_AFTER_S if waiting else None):
                        endpoint, outcome = await outcomes.get()
                except TimeoutError:
                    self.connections.was_late(asked)
                    continue
                del asked[endpoint]
                if not isinstance(outcome, KafkaliteError):
                    self.connections.was_in_time(endpoint)
                    return outcome
                if isinstance(outcome, ApiError) and not is_retriable(outcome.code):
                    raise outcome
                error = outcome
            return error
        finally:
            for task in asked.values():
                task.cancel()

    async def _ask_into(
        self, outcomes: asyncio.Queue[tuple[Endpoint, Any]], endpoint: Endpoint, request: Request, until: float
    ) -> None:
        """Ask one node; what comes of it goes into `outcomes`, whatever it is."""
        outcome: Any = RpcNotSent(f"{endpoint}: the client is closed")
        try:
            connection = await self.connections.at(endpoint)
            outcome = await self._call(connection, request, max(0.0, until - self.now()))
        except (RpcError, ApiError) as failure:
            outcome = failure
        finally:
            outcomes.put_nowait((endpoint, outcome))

    # --- metadata ----------------------------------------------------------------------------

    async def metadata(self, topics: Iterable[str] | None = None, *, timeout_s: float | None = None) -> Metadata:
        """Ask for topics (None: all) and remember the answer. Raises ApiError, RpcError."""
        found = await self.run(self.routing.metadata(topics, self.patience_s(timeout_s)))
        self._updated.set()
        self._updated = asyncio.Event()
        return found

    def follow(self, *topics: str) -> None:
        """Keep these topics' metadata fresh, until nobody names them for TOPIC_IDLE_S."""
        at = self.now()
        for topic in topics:
            if can_be_topic(topic):
                self._topics[topic] = at

    def _forget_idle(self) -> None:
        oldest = self.now() - TOPIC_IDLE_S
        for topic in [topic for topic, at in self._topics.items() if at < oldest]:
            del self._topics[topic]
            self.view.forget(topic)

    def refresh_soon(self) -> None:
        """Ask for the followed topics' metadata in the background, at most one question at a time."""
        if self._refreshing is None and not self.connections.closed:
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
        return await join(self._refreshing)

    async def _refresh(self) -> KafkaliteError | None:
        began = self.now()
        self._forget_idle()
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
        return await self.run(self.routing.known_topic(topic, timeout_s))
