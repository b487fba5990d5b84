"""Requests that find the node they are for: leaders followed, silent nodes passed over, metadata kept fresh."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.connections import Connections, join, now
from kafkalite.client.retry import Backoff
from kafkalite.env.seams import Clock, Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code, is_retriable
from kafkalite.model import BrokerId, Buffer, Endpoint, TopicPartition
from kafkalite.rpc.client import Answer, RpcConnection, RpcDisconnected, RpcError, RpcNotSent, RpcTimeout
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.data import (
    MetadataRequest,
    MetadataResponse,
)

#: One node's patience for a question that any node can answer.
ANY_NODE_TIMEOUT_S = 5.0
#: ... after so long the next node is asked as well: a stopped process must not hold up the client.
ASK_NEXT_AFTER_S = 0.3
#: An answer that takes so long makes the client look whether the leader is still the same.
PROBE_AFTER_S = 0.5
#: ... and again so often, or less often where the metadata of thousands of partitions take their time.
PROBE_EVERY_S = 0.1
PROBE_EVERY_AT_MOST_S = 0.25
_PROBE_SHARE = 5


M = TypeVar("M", bound=Message)


def of_kind(answer: Message, cls: type[M]) -> M:
    """The answer as the class that its request says it has (rpc.client has checked the kind)."""
    assert isinstance(answer, cls)
    return answer


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
        self.connections = Connections(
            bootstrap, network=network, view=self.view, backoff=self.backoff, supervisor=self.supervisor, rng=rng,
            client_id=client_id,
        )  # fmt: skip
        self._metadata_max_age_s = metadata_max_age_s
        self._refreshing: asyncio.Task[KafkaliteError | None] | None = None
        self._topics: set[str] = set()
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

    async def call_node(
        self, broker_id: BrokerId, message: Message, body: Sequence[Buffer] = (), *, timeout_s: float
    ) -> Answer:
        """Ask one broker, once. Raises RpcError, ApiError."""
        connection = await self.connections.to(broker_id)
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
        connection = await self.connections.to(broker_id)
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
        waiting = self.connections.in_turn()
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
        self,
        outcomes: asyncio.Queue[tuple[Endpoint, Message | KafkaliteError]],
        endpoint: Endpoint,
        message: Message,
        until: float,
    ) -> None:
        """Ask one node; what comes of it goes into `outcomes`, whatever it is."""
        outcome: Message | KafkaliteError = RpcNotSent(f"{endpoint}: the client is closed")
        try:
            connection = await self.connections.at(endpoint)
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
            for endpoint in self.connections.in_turn():
                left = deadline - self.now()
                if left <= 0:
                    raise error
                try:
                    connection = await self.connections.at(endpoint)
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
