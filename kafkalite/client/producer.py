"""The producer on asyncio: performs what `producer_core` decides."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from kafkalite.client import messages
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.batching import ProducerBatch
from kafkalite.client.connection import Connection
from kafkalite.client.partitioner import StickyPartitioner, partition_for_key
from kafkalite.client.producer_core import Completion, Dispatch, ProducerCore
from kafkalite.client.producer_settings import MAX_RECORD_BYTES, ProducerSettings
from kafkalite.client.retry import PROBE_AFTER_S
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, api_error, error_code
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.record.builder import Headers
from kafkalite.record.compression import codec_named
from kafkalite.rpc.answers import RpcError, RpcNotSent
from kafkalite.telemetry.logs import get_logger
from kafkalite.wording import number_of

_log = get_logger(__name__)

#: Maximum number of unsent bytes of a connection; above it no further request is sent.
MAX_BACKLOG_BYTES = 8 * 1024 * 1024
#: `send` waits while more than this is not delivered (Kafka's buffer.memory).
BUFFER_BYTES = 32 * 1024 * 1024
#: With more partitions than this waiting (a leader of thousands is gone), the sender looks through them less often
#: than at every record: this delay for each of them, about three times the cost of checking one.
MANY_PARTITIONS = 256
PACE_PER_PARTITION_S = 5e-6


class RecordMetadata(NamedTuple):
    """Where a record went. `offset` -1: delivered (or acks=0), offset not known."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class _Sent(NamedTuple):
    at: float
    connection: Connection


class Producer:
    """Sends records in batches; use as `async with Producer(client) as producer`, or close it.

    Args:
        acks: "all" (or -1), 1 or 0.
        idempotent: no duplicates and order kept, also over failovers; needs acks="all". Default: if acks is "all".
        retries: without idempotence, how often a batch is sent again (message.send.max.retries); None: 3. An
            idempotent producer tries until the delivery timeout.
        linger_ms: how long a record waits for others.
        max_record_bytes: `send` refuses larger ones, before compression.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        acks: str | int = "all",
        idempotent: bool | None = None,
        linger_ms: float = 5,
        batch_bytes: int = 131_072,
        compression: str | None = None,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        max_in_flight: int = 5,
        retries: int | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        max_block_ms: int = 60_000,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        number = -1 if acks in ("all", "-1") else int(acks)
        wants_idempotence = number == -1 if idempotent is None else idempotent
        self.settings = ProducerSettings(
            acks=number,
            idempotent=wants_idempotence,
            linger_s=linger_ms / 1000,
            batch_bytes=batch_bytes,
            codec=codec_named(compression),
            delivery_timeout_s=delivery_timeout_ms / 1000,
            request_timeout_s=request_timeout_ms / 1000,
            max_in_flight=max_in_flight,
            retries=None if wants_idempotence else 3 if retries is None else retries,
            max_record_bytes=max_record_bytes,
        )
        self._client = client
        self._core = ProducerCore(self.settings, client.random)
        self._sticky = StickyPartitioner(client.random)
        self._buffer_bytes = buffer_bytes
        self._max_block_s = max_block_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        #: Replaced and set whenever records finish: flush and full buffers look again.
        self._finished: asyncio.Event = asyncio.Event()
        #: Requests under way by broker, oldest first.
        self._requests: dict[BrokerId, dict[int, _Sent]] = {}
        self._next_request = 0
        self._dialing: set[BrokerId] = set()
        #: Leaders of what could be sent that we have no connection to.
        self._unconnected: set[BrokerId] = set()
        #: Topics of records that were taken since the sender last ran.
        self._named: set[str] = set()
        self._seen_version = -1
        self._probed_at = 0.0
        self._closed = False
        self._sender = client.supervisor.spawn("producer.sender", self._run())
        self._sender.add_done_callback(self._sender_ended)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(flush=kind is None)

    # --- records in --------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Take a record; the future is done when it is delivered or failed.

        Waits only for the topic's metadata and for room in the buffer.

        Raises:
            ApiError: no such topic or partition, record too large, no room within max_block_ms.
            RpcError: no node answers.
            ValueError: `timestamp_ms` is neither -1 (the record has no time) nor a time.
        """
        if timestamp_ms is not None and not -1 <= timestamp_ms < 2**63:
            raise ValueError(f"timestamp {timestamp_ms} ms is neither -1 nor a time")
        self._check_open()
        # Also when somebody else has asked for the topic before: its leaders are ours to follow from now on.
        if topic not in self._named:
            self._named.add(topic)
            self._client.follow(topic)
        if self._core.buffered_bytes >= self._buffer_bytes:
            await self._wait_for_room()
        # Then the topic, which may have been deleted meanwhile.
        if not (count := self._client.view.partition_count(topic)):
            count = await self._client.known_topic(topic, timeout_s=self._max_block_s)
            self._wake.set()
        self._check_open()  # again: it may have been closed meanwhile
        sticky = False
        if partition is None:
            if key is not None:
                partition = partition_for_key(key, count)
            else:
                sticky = True
                partition = self._sticky.partition(topic, self._client.view.available(topic)) if count > 1 else 0
        elif not 0 <= partition < count:
            text = f"{topic}-{partition}: the topic has {number_of(count, 'partition')}"
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        now_ms = self._client.clock.wall_ms() if timestamp_ms is None else timestamp_ms
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        where = TopicPartition(topic, partition)
        if self._core.append(where, key, value, headers, now_ms, self._loop.time(), future):
            self._wake.set()
            if sticky and count > 1:
                self._sticky.next_batch(topic, self._client.view.available(topic))
        return future

    def _check_open(self) -> None:
        """Raises ApiError."""
        if self._closed:
            raise api_error(ErrorCode.INVALID_REQUEST, "the producer is closed")

    async def _wait_for_room(self) -> None:
        self._wake.set()
        try:
            async with asyncio.timeout(self._max_block_s):
                while self._core.buffered_bytes >= self._buffer_bytes and not self._closed:
                    await self._finished.wait()
        except TimeoutError:
            raise api_error(
                ErrorCode.REQUEST_TIMED_OUT, "no buffer memory for the record: nothing is being delivered"
            ) from None

    async def flush(self) -> None:
        """Wait until everything taken so far is delivered or failed."""
        self._core.begin_flush()
        self._wake.set()
        last = self._core.next_number
        while self._core.unfinished_before(last):
            await self._finished.wait()

    async def close(self, *, flush: bool = True) -> None:
        """Deliver what is waiting (or fail it), then stop."""
        self._closed = True
        if flush and not self._sender.done():
            await self.flush()
        self._sender.cancel()
        self._complete(self._core.fail_all(api_error(ErrorCode.REQUEST_TIMED_OUT, "the producer was closed")))

    # --- the sender --------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self._named.clear()
            now = self._loop.time()
            completions, next_expiry = self._core.expire(now)
            self._complete(completions)
            self._notice_new_leaders(now)
            if self._core.needs_producer_id and self._core.waiting_partitions():
                await self._get_producer_id()
                continue
            self._unconnected.clear()
            dispatches, ready_at, no_leader = self._core.plan(now, self._leader_of, self._has_room)
            for dispatch in dispatches:
                self._send(dispatch, now)
            for node in sorted(self._unconnected - self._dialing):
                self._dial(node)
            probe_at = self._cut_silent_and_probe(now)
            if no_leader or self._client.metadata_is_old:
                self._client.follow(*{topic for topic, _ in self._core.waiting_partitions()})
                self._client.refresh_soon()
                ready_at = _sooner(ready_at, now + 0.1)
            if self.settings.acks == 0 and self._core.waiting_partitions():
                # No answer will wake us when the peer has taken its backlog.
                ready_at = _sooner(ready_at, now + 0.01)
            wake_at = _sooner(_sooner(ready_at, next_expiry), probe_at)
            if self._core.busy_partitions > MANY_PARTITIONS:
                await asyncio.sleep(self._core.busy_partitions * PACE_PER_PARTITION_S)
            await self._sleep_until(wake_at)

    async def _sleep_until(self, wake_at: float | None) -> None:
        if wake_at is None:
            await self._wake.wait()
            return
        pause = wake_at - self._loop.time()
        if pause <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _get_producer_id(self) -> None:
        try:
            producer_id, epoch = await self._client.init_producer_id(timeout_s=5.0)
        except RpcError:
            return
        except ApiError as error:
            if error.retriable:
                return
            self._complete(self._core.fail_all(error))
            return
        self._core.set_producer_id(producer_id, epoch)

    def _leader_of(self, key: TopicPartition) -> BrokerId | None:
        leader = self._client.view.leader(key)
        return None if leader is None else leader.broker_id

    def _has_room(self, node: BrokerId) -> bool:
        if len(self._requests.get(node, ())) >= self.settings.max_in_flight:
            return False
        connection = self._client.connections.open_to(node)
        if connection is None:
            self._unconnected.add(node)
            return False
        return connection.write_backlog < MAX_BACKLOG_BYTES

    def _dial(self, node: BrokerId) -> None:
        self._dialing.add(node)
        self._client.supervisor.spawn(f"producer.dial[{node}]", self._dial_node(node), Policy.ISOLATED)

    async def _dial_node(self, node: BrokerId) -> None:
        try:
            await self._client.connections.to(node)
        except (RpcError, ApiError):
            # Dead, or moved: somebody else may lead by now.
            self._client.refresh_soon()
            await asyncio.sleep(self._client.backoff.pause_s(2))
        finally:
            self._dialing.discard(node)
            self._wake.set()

    def _notice_new_leaders(self, now: float) -> None:
        view = self._client.view
        if view.version == self._seen_version:
            return
        self._seen_version = view.version
        for batch in self._core.oldest_attempt_under_way():
            leader = view.leader(batch.topic_partition)
            if leader is not None:
                self._complete(self._core.on_leader_changed(batch.topic_partition, leader.broker_id, now))

    def _cut_silent_and_probe(self, now: float) -> float | None:
        """Cut connections whose oldest request is overdue; look for new leaders while answers are slow."""
        oldest: float | None = None
        for requests in self._requests.values():
            if not requests:
                continue
            sent_at, connection = next(iter(requests.values()))
            if now - sent_at > self.settings.request_timeout_s:
                # Not the connection that is open to the node: a node that has died, and that the metadata does not name any more, has none.
                connection.abort("a request was not answered")
                continue
            oldest = sent_at if oldest is None else min(oldest, sent_at)
        if oldest is None:
            return None
        every = self._client.probe_every_s
        due = max(oldest + PROBE_AFTER_S, self._probed_at + every)
        if now >= due:
            self._probed_at = now
            self._client.refresh_soon()
            due = now + every
        return due

    # --- one request -------------------------------------------------------------------------

    def _send(self, dispatch: Dispatch, now: float) -> None:
        connection = self._client.connections.open_to(dispatch.node)
        assert connection is not None, "plan() asks has_room first"
        request = messages.produce_request(
            {batch.topic_partition: batch.encoded(self.settings.codec) for batch in dispatch.batches},
            self.settings.acks,
            int(self.settings.request_timeout_s * 1000),
        )
        try:
            if self.settings.acks == 0:
                connection.oneway(request)
                self._complete([self._core.on_sent_without_acks(batch) for batch in dispatch.batches])
                return
            future = connection.send_nowait(request)
        except RpcError as error:
            self._lost(dispatch, str(error), was_sent=False)
            return
        except ApiError as error:
            self._refused(dispatch, error)
            return
        number = self._next_request
        self._next_request += 1
        self._requests.setdefault(dispatch.node, {})[number] = _Sent(now, connection)
        future.add_done_callback(lambda done: self._answered(dispatch, number, done))

    def _answered(self, dispatch: Dispatch, number: int, future: asyncio.Future[Any]) -> None:
        self._requests[dispatch.node].pop(number, None)
        self._wake.set()
        if future.cancelled():
            self._lost(dispatch, "cancelled", was_sent=True)
            return
        error = future.exception()
        if isinstance(error, ApiError):
            self._refused(dispatch, error)
            return
        if error is not None:
            self._lost(dispatch, str(error), was_sent=not isinstance(error, RpcNotSent))
            return
        entries = {(entry.topic, entry.partition): entry for entry in messages.produced(future.result())}
        for batch, attempt in zip(dispatch.batches, dispatch.attempts, strict=True):
            entry = entries.get(batch.topic_partition)
            if entry is None:
                code, offset, time_ms, text = ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, "not in the answer"
            else:
                code, offset = error_code(entry.error), int(entry.base_offset)
                time_ms, text = entry.log_append_time_ms, entry.message
            self._settle(batch, attempt, code, offset, time_ms, text)

    def _refused(self, dispatch: Dispatch, error: ApiError) -> None:
        for batch, attempt in zip(dispatch.batches, dispatch.attempts, strict=True):
            self._settle(batch, attempt, error.code, -1, -1, str(error))

    def _settle(
        self, batch: ProducerBatch, attempt: int, code: ErrorCode, offset: int, time_ms: int, text: str
    ) -> None:
        now = self._loop.time()
        completion, stale = self._core.on_answer(batch, attempt, code, offset, time_ms, text, now)
        if completion is not None:
            self._complete([completion])
        if stale:
            self._client.refresh_soon()

    def _lost(self, dispatch: Dispatch, reason: str, *, was_sent: bool) -> None:
        now = self._loop.time()
        for batch, attempt in zip(dispatch.batches, dispatch.attempts, strict=True):
            completion = self._core.on_lost(batch, attempt, reason, now, was_sent=was_sent)
            if completion is not None:
                self._complete([completion])
        self._client.refresh_soon()
        self._wake.set()

    # --- results -----------------------------------------------------------------------------

    def _complete(self, completions: list[Completion]) -> None:
        if not completions:
            return
        for completion in completions:
            batch = completion.batch
            topic, partition = batch.topic_partition
            if completion.error is not None:
                _log.info("producer.failed", partition=str(batch.topic_partition), error=str(completion.error))
                for future in batch.tokens:
                    if not future.done():
                        future.set_exception(completion.error)
                        future.exception()  # a caller that does not examine the future has read the log line
                continue
            offset, append_ms = completion.base_offset, completion.log_append_time_ms
            for index, future in enumerate(batch.tokens):
                if not future.done():
                    at = offset + index if offset >= 0 else -1
                    time_ms = append_ms if append_ms >= 0 else batch.timestamps[index]
                    future.set_result(RecordMetadata(topic, partition, at, time_ms))
        finished, self._finished = self._finished, asyncio.Event()
        finished.set()

    def _sender_ended(self, task: asyncio.Task[None]) -> None:
        """However the sender ends, nobody may wait for ever."""
        self._closed = True
        error = api_error(ErrorCode.REQUEST_TIMED_OUT, "the producer was closed")
        if not task.cancelled() and task.exception() is not None:
            error = api_error(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer broke: {task.exception()!r}")
        self._complete(self._core.fail_all(error))


def _sooner(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
