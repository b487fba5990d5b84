"""Followers' side of replication: one task per leader broker and fetcher index, one fetch in flight each.

What a command changes takes effect at once: a partition that was removed or given another epoch meanwhile has
another `FetchPosition` object, or none, and whatever still comes for the old one is dropped (invariants F3 and 28).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from random import Random

from kafkalite.config import BrokerConfig
from kafkalite.env.seams import Network
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import NO_ERROR, ApiError, ErrorCode, ProtocolError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    Endpoint,
    LeaderEpoch,
    TopicPartition,
    new_topic_partition,
)
from kafkalite.replica.partition import Partition
from kafkalite.rpc.answers import RpcError
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.framing import LARGEST_FRAME_BYTES
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.replication import (
    ReplicaFetchedPartition,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchWake,
)
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

BACKOFF_MIN_MS = 20
#: Partitions, and bytes, taken in from one answer before the loop gets its turn.
SLICE_PARTITIONS = 64
SLICE_BYTES = 4 * 1024 * 1024


@dataclass(slots=True, eq=False)
class FetchPosition:
    """One partition in a fetcher, under one leader epoch."""

    partition: Partition
    leader_epoch: LeaderEpoch
    #: Whether the leader has it in our session, listed under this epoch.
    is_listed: bool = False
    #: 0 while all is well; else the pause after the latest error.
    backoff_ms: int = 0
    #: It waits for its throttle.
    is_held_back: bool = False


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """What fetchers need of the node.

    `take` is `FollowerFetch.take`. `is_synced`: whether a partition's LEO may be sent; if not, it is listed
    again through `Fetchers.list_again` once it may. `wait_ms`: of `FollowerFetch`.
    """

    config: BrokerConfig
    network: Network
    supervisor: Supervisor
    random: Random
    local: LocalBroker
    endpoint: Callable[[BrokerId], Endpoint | None]
    is_synced: Callable[[Partition], bool]
    take: Callable[[Partition, ReplicaFetchedPartition, memoryview, Callable[[], None]], ErrorCode | None]
    wait_ms: Callable[[Partition], int]


class ReplicaFetcher:
    """All partitions that one task fetches from one leader."""

    def __init__(self, context: FetcherContext, leader_id: BrokerId, index: int) -> None:
        self._context = context
        self.leader_id = leader_id
        self.index = index
        self.partitions: dict[TopicPartition, FetchPosition] = {}
        #: To be listed in the next request.
        self._changed: dict[TopicPartition, FetchPosition] = {}
        self._forgotten: dict[TopicPartition, None] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._connection: RpcConnection | None = None
        #: Where the leader was when the connection was begun, and the attempt at one.
        self._endpoint: Endpoint | None = None
        self._opening: asyncio.Timeout | None = None
        self._is_waiting = False
        self._work = asyncio.Event()
        #: Of the answer that is being taken in, for the log.
        self._paused: list[tuple[TopicPartition, ErrorCode, int]] = []
        #: The pause after a failure may end: the leader may have come back, or is another process now.
        self._retry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_connected = False

    def start(self) -> None:
        name = f"replica.fetcher[{self.leader_id}:{self.index}]"
        self._task = self._context.supervisor.spawn(name, self._run())

    def stop(self) -> None:
        """No more partitions; the task ends."""
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.abort("fetcher stopped")

    def retry(self) -> None:
        """If it pauses after a failure, try again now. If the leader has another address, do not wait for the one of before."""
        self._retry.set()
        if self._context.endpoint(self.leader_id) in (None, self._endpoint):
            return
        if self._connection is not None:
            self._connection.abort("the leader has another address")
        elif self._opening is not None and not self._opening.expired():
            self._opening.reschedule(0)

    def add(self, partition: Partition) -> None:
        """Fetch it from its log's end, under its present epoch."""
        key = partition.topic_partition
        fetched = FetchPosition(partition, partition.leader_epoch)
        self.partitions[key] = fetched
        self._changed[key] = fetched
        self._forgotten.pop(key, None)
        self._cut_long_poll()

    def remove(self, key: TopicPartition) -> None:
        """From now on nothing that comes for it is taken."""
        fetched = self.partitions.pop(key, None)
        self._changed.pop(key, None)
        if fetched is not None and fetched.is_listed:
            self._forgotten[key] = None

    def _cut_long_poll(self) -> None:
        """There is something to say: cut the leader's long poll short."""
        self._work.set()
        if self._is_waiting and self._session_id and self._connection is not None:
            self._is_waiting = False
            try:
                self._connection.oneway(ReplicaFetchWake(self._session_id))
            except RpcError:
                return  # the fetch in flight hears of it

    def list_again(self, key: TopicPartition) -> None:
        """The partition may report its LEO now."""
        fetched = self.partitions.get(key)
        if fetched is not None:
            self._list_again(key, fetched)

    def _list_again(self, key: TopicPartition, fetched: FetchPosition) -> None:
        if self.partitions.get(key) is not fetched or fetched.is_held_back:
            return
        if wait_ms := self._context.wait_ms(fetched.partition):
            fetched.is_held_back = True
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._let_go, key, fetched)
            return
        self._changed[key] = fetched
        self._cut_long_poll()

    def _let_go(self, key: TopicPartition, fetched: FetchPosition) -> None:
        fetched.is_held_back = False
        self._list_again(key, fetched)

    # --- the task ------------------------------------------------------------------------------

    async def _run(self) -> None:
        config = self._context.config
        failures = 0
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._fetch_until_it_breaks()
            except (RpcError, ApiError, ProtocolError) as error:
                if self.is_connected or failures & (failures - 1) == 0:
                    _log.warning("fetcher.broken", leader=self.leader_id, index=self.index, error=str(error))
            finally:
                self.is_connected = False
                self._is_waiting = False
                if self._connection is not None:
                    self._connection.abort("fetcher starts over")
                    self._connection = None
            if asyncio.get_running_loop().time() - started > config.replica_fetch_backoff_ms / 1000:
                failures = 0
            pause_ms = min(BACKOFF_MIN_MS << min(failures, 10), config.replica_fetch_backoff_ms)
            failures += 1
            self._retry.clear()
            try:
                async with asyncio.timeout(pause_ms / 1000 * self._context.random.uniform(0.5, 1.0)):
                    await self._retry.wait()
            except TimeoutError:
                continue

    async def _fetch_until_it_breaks(self) -> None:
        context = self._context
        endpoint = context.endpoint(self.leader_id)
        if endpoint is None:
            raise ProtocolError(f"broker {self.leader_id} is not known to be alive")
        broker_id, broker_epoch = context.local.identity()
        self._endpoint = endpoint
        try:
            async with asyncio.timeout(None) as self._opening:
                self._connection = await RpcConnection.open(
                    context.network,
                    endpoint,
                    context.local.hello(f"replica-{broker_id}"),
                    supervisor=context.supervisor,
                    # Whatever the leader has appended must be copied, also a batch that is larger than a node's listener accepts.
                    max_frame_bytes=LARGEST_FRAME_BYTES,
                    timeout_s=context.config.replica_socket_timeout_ms / 1000,
                )
        except TimeoutError:
            raise ProtocolError(f"broker {self.leader_id} is not at {endpoint} any more") from None
        finally:
            self._opening = None
        if self._connection.peer.node_id != self.leader_id:
            raise ProtocolError(f"{endpoint} is broker {self._connection.peer.node_id}, not {self.leader_id}")
        self.is_connected = True
        self._start_session()
        while True:
            while self._session_id == 0 and not self._changed:
                self._work.clear()
                await self._work.wait()
            await self._fetch_once(self._connection, broker_id, broker_epoch)
            if context.local.broker_epoch != broker_epoch:
                raise ProtocolError("this broker has registered again")

    def _start_session(self) -> None:
        """Everything is to be listed again, except what pauses after an error or waits for its flush."""
        self._session_id = 0
        self._session_epoch = 0
        self._forgotten.clear()
        for key, fetched in self.partitions.items():
            if fetched.is_listed:
                fetched.is_listed = False
                self._changed[key] = fetched

    async def _fetch_once(self, connection: RpcConnection, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        config = self._context.config
        self._work.clear()
        request = self._next_request(broker_id, broker_epoch)
        self._is_waiting = True
        timeout_s = (config.replica_fetch_wait_max_ms + config.replica_socket_timeout_ms) / 1000
        answer, body = await connection.call(request, timeout_s=timeout_s)
        self._is_waiting = False
        assert isinstance(answer, ReplicaFetchResponse)
        if answer.error in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
            _log.info("fetcher.session_lost", leader=self.leader_id, error=answer.error)
            self._start_session()
            return
        if answer.error:
            raise ProtocolError(f"fetch refused with error {answer.error}")
        self._session_id = answer.session_id
        await self._take(answer, body)

    def _next_request(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> ReplicaFetchRequest:
        config = self._context.config
        changed, self._changed = self._changed, {}
        listed: list[ReplicaFetchPartition] = []
        for key, fetched in changed.items():
            if self.partitions.get(key) is not fetched or not self._context.is_synced(fetched.partition):
                continue
            partition = fetched.partition
            log = partition.log
            fetched.is_listed = True
            listed.append(
                ReplicaFetchPartition(
                    key.topic,
                    key.partition,
                    partition.topic_id,
                    fetched.leader_epoch,
                    log.log_end_offset,
                    log.last_record_epoch,
                    log.durable_start_offset,
                    config.replica_fetch_max_bytes,
                )
            )
        forgotten = tuple(self._forgotten)
        self._forgotten.clear()
        if self._session_id:
            self._session_epoch += 1
        return ReplicaFetchRequest(
            replica_id=broker_id,
            broker_epoch=broker_epoch,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            partitions=tuple(listed),
            forgotten=forgotten,
        )

    async def _take(self, answer: ReplicaFetchResponse, body: memoryview) -> None:
        """Each partition's part into its log, with a pause for others after every slice."""
        position = 0
        count = size_bytes = 0
        self._paused.clear()
        for one in answer.partitions:
            records = body[position : position + one.records_size]
            if len(records) != one.records_size:
                raise ProtocolError("a fetch response has fewer bytes of records than it says")
            position += one.records_size
            self._take_one(one, records)
            count += 1
            size_bytes += one.records_size
            # A truncation may read the headers of a whole segment, to find its producers.
            if count >= SLICE_PARTITIONS or size_bytes >= SLICE_BYTES or one.diverging_epoch != NO_LEADER_EPOCH:
                count = size_bytes = 0
                await asyncio.sleep(0)
        if self._paused:
            # One line, not one for each of thousands of partitions whose leader has changed.
            first, error, pause_ms = self._paused[0]
            _log.info(
                "fetcher.paused",
                partitions=len(self._paused),
                first=str(first),
                leader=self.leader_id,
                error=error.name,
                pause_ms=pause_ms,
            )

    def _take_one(self, one: ReplicaFetchedPartition, records: memoryview) -> None:
        key = new_topic_partition((one.topic, one.partition))
        fetched = self.partitions.get(key)
        if fetched is None or not fetched.is_listed:  # removed, or under another epoch now: too late
            return

        def resume() -> None:
            self._list_again(key, fetched)

        error = self._context.take(fetched.partition, one, records, resume)
        if error is NO_ERROR:
            fetched.backoff_ms = 0
        elif error is not None:
            self._pause(key, fetched, error)

    def _pause(self, key: TopicPartition, fetched: FetchPosition, error: ErrorCode) -> None:
        """After an error the leader has dropped it from the session: list it again after a while."""
        fetched.is_listed = False
        longest = self._context.config.replica_fetch_backoff_ms
        fetched.backoff_ms = min(max(fetched.backoff_ms * 2, BACKOFF_MIN_MS), longest)
        self._paused.append((key, error, fetched.backoff_ms))
        delay_s = fetched.backoff_ms / 1000
        asyncio.get_running_loop().call_later(delay_s, self._list_again, key, fetched)


class Fetchers:
    """Leader broker and index -> fetcher; a fetcher without partitions is stopped."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._of: dict[TopicPartition, ReplicaFetcher] = {}
        self._idle: dict[ReplicaFetcher, None] = {}
        #: For each leader.
        self._count = context.config.num_replica_fetchers

    def __len__(self) -> int:
        return len(self._fetchers)

    def follow(self, partition: Partition, leader_id: BrokerId) -> None:
        """Fetch `partition` from `leader_id` from now on, under its present epoch; nothing else for it counts."""
        key = partition.topic_partition
        index = self._index(key)
        fetcher = self._fetchers.get((leader_id, index))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, index] = ReplicaFetcher(self._context, leader_id, index)
            fetcher.start()
        before = self._of.get(key)
        if before is not None:
            before.remove(key)
            self._idle[before] = None
        self._of[key] = fetcher
        fetcher.add(partition)
        fetcher.retry()

    def _index(self, key: TopicPartition) -> int:
        """The same partition always takes the same fetcher, wherever its leader is."""
        return (zlib.crc32(key.topic.encode()) + key.partition) % self._count

    def resize(self, count: int) -> None:
        """From now on, this number of fetchers for each leader (num.replica.fetchers).

        A partition that changes its fetcher goes on from its log's end: what still comes for it in the old one's session is
        not taken, and for the leader the new session supersedes the old one.
        """
        if count == self._count:
            return
        self._count = count
        moving = [(key, fetcher) for key, fetcher in self._of.items() if fetcher.index != self._index(key)]
        for key, fetcher in moving:
            self.follow(fetcher.partitions[key].partition, fetcher.leader_id)
        self.drop_idle()
        _log.info("fetchers.resized", count=count, partitions=len(moving))

    def retry(self) -> None:
        """The live brokers have changed: no fetcher needs to wait out its pause."""
        for fetcher in self._fetchers.values():
            fetcher.retry()

    def stop(self, key: TopicPartition) -> None:
        """Not one byte more for this partition."""
        fetcher = self._of.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)
            self._idle[fetcher] = None

    def list_again(self, key: TopicPartition) -> None:
        """The partition's log is on the disk as far as it goes."""
        fetcher = self._of.get(key)
        if fetcher is not None:
            fetcher.list_again(key)

    def drop_idle(self) -> None:
        """End the tasks that have nothing left to fetch (after a whole command, as partitions move in bulk)."""
        idle, self._idle = self._idle, {}
        for fetcher in idle:
            name = (fetcher.leader_id, fetcher.index)
            if not fetcher.partitions and self._fetchers.get(name) is fetcher:
                fetcher.stop()
                del self._fetchers[name]

    def close(self) -> None:
        """End all."""
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()
        self._of.clear()
