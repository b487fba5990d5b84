"""The consumer on asyncio: committed records of assigned partitions, in offset order per partition.

One fetch at a time is under way per leader; a partition is fetched again when what it brought last is read.
Groups: see `membership`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from kafkalite.client import messages
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumed import ConsumedRecord, committed_records
from kafkalite.client.fetch_session import ConsumerFetchSession
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code, is_retriable
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_LEADER,
    NO_LEADER_EPOCH,
    BrokerId,
    TopicPartition,
)
from kafkalite.partition_values import FetchedPartition
from kafkalite.rpc.answers import RpcError
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

EARLIEST = "earliest"
LATEST = "latest"
#: For how many seconds a follower is read without asking the leader again (Kafka: metadata.max.age.ms).
_PREFERRED_S = 300.0
#: Errors of a fetch after which it is enough to list everything again.
_SESSION_GONE = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
#: For how many seconds the leader is read after it has named a replica that could not be read: it would name it again at once.
_LED_S = 1.0


@dataclass(slots=True)
class _Assigned:
    """One partition's progress. `position` is the next offset to fetch; `buffer` what was fetched before it."""

    key: TopicPartition
    position: int | str
    buffer: deque[ConsumedRecord] = field(default_factory=deque)
    high_watermark: int = -1
    log_start_offset: int = -1
    #: Leader epoch of the last batch that was read; -1: none was.
    read_epoch: int = -1
    #: Leader epoch at which the log is known to have what was read; -1: not known.
    checked_epoch: int = -1
    fetching: bool = False
    failures: int = 0
    not_before: float = 0.0
    error: KafkaliteError | None = None
    #: The follower to read from, and until when (seconds); then the leader is asked again.
    preferred: BrokerId = NO_LEADER
    preferred_until: float = 0.0
    #: Until when the leader is asked for records, not for a replica (seconds).
    led_until: float = 0.0


class Consumer:
    """Reads assigned partitions.

    Args:
        max_bytes: per partition and fetch.
        read_committed: leave out records of transactions that were aborted or are still open.
        on_out_of_range: "earliest" or "latest": where to go on when the position is gone; None raises.
        client_rack: read from a replica in this rack if the brokers allow it (replica.selector.class); empty: from leaders.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 500,
        read_committed: bool = False,
        on_out_of_range: str | None = EARLIEST,
        client_rack: str = "",
    ) -> None:
        self._client = client
        self._max_bytes = max_bytes
        self._max_wait_ms = max_wait_ms
        #: As requests say it: 1, committed records only.
        self.isolation = 1 if read_committed else 0
        self._on_out_of_range = on_out_of_range
        self._client_rack = client_rack
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._sessions: dict[BrokerId, ConsumerFetchSession] = {}
        #: Fetches that followers have answered.
        self.followers_asked = 0
        self._busy: set[BrokerId] = set()
        self._news = asyncio.Event()
        self._error: KafkaliteError | None = None
        self._turn = 0
        self.closed = False

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def assign(self, partitions: Mapping[TopicPartition, int | str]) -> None:
        """Read these partitions from an offset, "earliest" or "latest" on; replaces the earlier assignment.

        Raises ValueError: a number is no offset.
        """
        _check_offsets(partitions)
        self._assigned = {}
        self.add(partitions)
        self._error = None

    def add(self, partitions: Mapping[TopicPartition, int | str]) -> None:
        """Read these partitions, too. Raises ValueError: a number is no offset."""
        _check_offsets(partitions)
        for key, position in sorted(partitions.items()):
            self._assigned[key] = _Assigned(key, position)
        self._client.follow(*{key.topic for key in partitions})

    async def assign_topics(self, topics: Iterable[str], position: int | str = EARLIEST) -> None:
        """Read all partitions of these topics. Raises ApiError when one does not exist."""
        wanted: dict[TopicPartition, int | str] = {}
        for topic in topics:
            for partition in range(await self._client.known_topic(topic)):
                wanted[TopicPartition(topic, partition)] = position
        self.assign(wanted)

    def position(self, key: TopicPartition) -> int | None:
        """The offset of the next record that `poll` gives; None while it is not resolved."""
        entry = self._assigned[key]
        if entry.buffer:
            return entry.buffer[0].offset
        return entry.position if isinstance(entry.position, int) else None

    def high_watermark(self, key: TopicPartition) -> int:
        """The high watermark of the last fetch; -1 before."""
        return self._assigned[key].high_watermark

    def last_error(self, key: TopicPartition) -> KafkaliteError | None:
        """Why the last fetch of a partition failed; None if it did not."""
        return self._assigned[key].error

    def close(self) -> None:
        """Fetch nothing more."""
        self.closed = True
        self._news.set()

    async def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """Up to `max_records` records; empty if none arrived in time.

        Raises:
            ApiError: the position is out of range and nothing says where to go on; a record batch is broken.
        """
        deadline = self._client.now() + timeout_s
        while True:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            records = self._take(max_records)
            self._start_fetches()
            left = deadline - self._client.now()
            if records or left <= 0 or self.closed:
                return records
            self._news.clear()
            try:
                # Not longer than a moment: backoffs end without an event.
                async with asyncio.timeout(min(left, 0.1)):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        while not self.closed:
            for record in await self.poll():
                yield record

    # --- inside ------------------------------------------------------------------------------

    def _take(self, count: int) -> list[ConsumedRecord]:
        records: list[ConsumedRecord] = []
        entries = list(self._assigned.values())
        if not entries:
            return records
        # Every poll begins with another partition, so that none starves.
        self._turn = (self._turn + 1) % len(entries)
        for entry in entries[self._turn :] + entries[: self._turn]:
            while entry.buffer and len(records) < count:
                records.append(entry.buffer.popleft())
        return records

    def _start_fetches(self) -> None:
        now = self._client.now()
        by_node: dict[BrokerId, list[_Assigned]] = {}
        unresolved: list[_Assigned] = []
        unchecked: dict[BrokerId, list[_Assigned]] = {}
        for entry in self._assigned.values():
            if entry.fetching or entry.buffer or now < entry.not_before:
                continue
            node = self._node_for(entry, now)
            if node is None:
                self._without_leader(entry)
            elif isinstance(entry.position, str):
                unresolved.append(entry)
            elif (leader := self._unchecked(entry)) is not None:
                unchecked.setdefault(leader, []).append(entry)
            elif node not in self._busy:
                by_node.setdefault(node, []).append(entry)
        if unresolved:
            self._start("consumer.resolve", unresolved, self._resolve(unresolved))
        for node, entries in unchecked.items():
            self._start(f"consumer.check[{node}]", entries, self._check(node, entries))
        for node, entries in by_node.items():
            self._busy.add(node)
            self._start(f"consumer.fetch[{node}]", entries, self._fetch(node, entries))

    def _without_leader(self, entry: _Assigned) -> None:
        topic = self._client.view.topics.get(entry.key.topic)
        code = ErrorCode.NONE if topic is None else error_code(topic.error)
        if code is not ErrorCode.NONE and not is_retriable(code):
            self._failed(entry, api_error(code, f"{entry.key}: {code.name}"))
        self._client.follow(entry.key.topic)
        self._client.refresh_soon()

    def _start(self, name: str, entries: list[_Assigned], work: Coroutine[Any, Any, None]) -> None:
        self._client.follow(*{entry.key.topic for entry in entries})
        for entry in entries:
            entry.fetching = True
        self._client.supervisor.spawn(name, work, Policy.ISOLATED)

    @contextmanager
    def _under_way(self, entries: list[_Assigned]) -> Iterator[None]:
        try:
            yield
        except (RpcError, ApiError) as error:
            for entry in entries:
                if self._is_assigned(entry):
                    self._failed(entry, error)
        finally:
            for entry in entries:
                entry.fetching = False
            self._news.set()

    def _node_for(self, entry: _Assigned, now: float) -> BrokerId | None:
        """The replica that the leader has named, as long as it is known; else the leader."""
        preferred = entry.preferred
        if preferred != NO_LEADER:
            if now < entry.preferred_until:
                if self._client.view.endpoint(preferred) is not None:
                    return preferred
                self._not_readable(entry)
            entry.preferred = NO_LEADER
        leader = self._client.view.leader(entry.key)
        return leader.broker_id if leader is not None else None

    def _not_readable(self, entry: _Assigned) -> None:
        """The replica that the leader has named is not known (any more), or refuses: the leader has to be read for a while."""
        entry.preferred = NO_LEADER
        entry.led_until = self._client.now() + _LED_S
        self._client.refresh_soon()

    async def _resolve(self, entries: list[_Assigned]) -> None:
        """Turn "earliest" and "latest" into offsets."""
        stamps = {e.key: EARLIEST_TIMESTAMP if e.position == EARLIEST else LATEST_TIMESTAMP for e in entries}
        with self._under_way(entries):
            found = await self._client.list_offsets(stamps, isolation=self.isolation)
            for entry in entries:
                entry.position = int(found[entry.key].offset)

    def _unchecked(self, entry: _Assigned) -> BrokerId | None:
        """The leader, if it is another one than the position was read from: its log may have other records there (KIP-320)."""
        leader = self._client.view.leader(entry.key)
        if leader is None or entry.read_epoch < 0 or leader.leader_epoch <= entry.checked_epoch:
            return None
        return leader.broker_id

    async def _check(self, node: BrokerId, entries: list[_Assigned]) -> None:
        """Ask where the epoch ends that was read last. An election of a replica out of sync may have cut off what was read then."""
        by_key = {entry.key: entry for entry in entries}
        epochs = self._client.routing.epochs(by_key)
        request = messages.epoch_ends_request({key: entry.read_epoch for key, entry in by_key.items()}, epochs)
        with self._under_way(entries):
            response = await self._client.call_leader(
                node, request, by_key.keys(), timeout_s=self._client.request_timeout_s
            )
            for key, code, end_offset in messages.epoch_ends(response):
                if (entry := by_key.get(key)) is not None and self._is_assigned(entry):
                    self._take_end(entry, code, end_offset, epochs.get(key, NO_LEADER_EPOCH))

    def _take_end(self, entry: _Assigned, code: ErrorCode, end_offset: int, leader_epoch: int) -> None:
        assert isinstance(entry.position, int)
        if code is not ErrorCode.NONE and is_retriable(code):
            self._failed(entry, api_error(code, f"{entry.key}: {code.name}"))
            return
        entry.checked_epoch = leader_epoch
        if code is not ErrorCode.NONE or end_offset >= entry.position:
            return  # the fetch reports any other error
        text = f"{entry.key}: read up to {entry.position}, and an election has cut off the log at {max(end_offset, 0)}"
        if end_offset < 0 or self._on_out_of_range is None:
            self._failed(entry, api_error(ErrorCode.OFFSET_OUT_OF_RANGE, text))
            return
        _log.warning("consumer.truncated", partition=str(entry.key), position=entry.position, end=end_offset)
        entry.position = end_offset

    async def _fetch(self, node: BrokerId, entries: list[_Assigned]) -> None:
        try:
            with self._under_way(entries):
                await self._fetch_from(node, entries)
        finally:
            self._busy.discard(node)

    async def _fetch_from(self, node: BrokerId, entries: list[_Assigned]) -> None:
        by_key = {entry.key: entry for entry in entries}
        positions = {entry.key: entry.position for entry in entries if isinstance(entry.position, int)}
        epochs = self._client.routing.epochs(positions)
        session = self._sessions.setdefault(node, ConsumerFetchSession())
        request = session.request(
            positions,
            epochs,
            max_wait_ms=self._max_wait_ms,
            max_bytes=self._max_bytes * min(len(positions), 8),
            partition_max_bytes=self._max_bytes,
            isolation=self.isolation,
            rack="" if any(self._client.now() < entry.led_until for entry in entries) else self._client_rack,
        )
        wait_s = self._max_wait_ms / 1000
        led = [entry.key for entry in entries if entry.preferred == NO_LEADER]
        try:
            response = await self._client.call_leader(
                node, request, led, timeout_s=wait_s + self._client.request_timeout_s, wait_s=wait_s
            )
        except BaseException:
            session.failed()
            raise
        code = session.answered(response)
        if code is not ErrorCode.NONE:
            if code not in _SESSION_GONE:
                for entry in entries:
                    self._pause(entry)
            return  # the next request lists everything
        self.followers_asked += len(led) < len(entries)
        for fetched, records in messages.fetched(response):
            entry_or_none = by_key.pop(TopicPartition(fetched.topic, fetched.partition), None)
            if entry_or_none is not None and self._is_assigned(entry_or_none):
                self._accept(entry_or_none, fetched, records, epochs.get(entry_or_none.key, NO_LEADER_EPOCH))

    def _is_assigned(self, entry: _Assigned) -> bool:
        """Whether the partition is still assigned as it was when it was asked for."""
        return self._assigned.get(entry.key) is entry

    def _accept(self, entry: _Assigned, fetched: FetchedPartition, records: memoryview, leader_epoch: int) -> None:
        if fetched.error and entry.preferred != NO_LEADER:  # the leader knows more
            self._not_readable(entry)
            return
        if fetched.preferred != NO_LEADER:
            entry.preferred = fetched.preferred
            entry.preferred_until = self._client.now() + _PREFERRED_S
            return
        if fetched.error:
            code = error_code(fetched.error)
            self._failed(entry, api_error(code, f"{entry.key}: {code.name} at offset {entry.position}"))
            return
        assert isinstance(entry.position, int)
        aborted = fetched.aborted if self.isolation else ()
        try:
            found = committed_records(entry.key, records, entry.position, aborted)
        except ApiError as error:
            self._failed(entry, error)
            return
        entry.failures = 0
        entry.error = None
        entry.high_watermark = max(entry.high_watermark, fetched.high_watermark)
        entry.log_start_offset = fetched.log_start_offset
        entry.position = found.position
        if found.leader_epoch >= 0:
            entry.read_epoch = found.leader_epoch
        if entry.checked_epoch < 0:
            entry.checked_epoch = leader_epoch
        entry.buffer.extend(found.records)

    def _pause(self, entry: _Assigned) -> None:
        """Do not fetch it again at once."""
        entry.failures += 1
        entry.not_before = self._client.now() + self._client.backoff.pause_s(entry.failures)

    def _failed(self, entry: _Assigned, error: RpcError | ApiError) -> None:
        self._pause(entry)
        entry.error = error
        if entry.preferred != NO_LEADER:
            self._not_readable(entry)
        self._client.refresh_soon()
        if isinstance(error, RpcError):
            return
        # A batch may stay corrupt for ever: the caller has to learn why no records come.
        if is_retriable(error.code) and error.code is not ErrorCode.CORRUPT_MESSAGE:
            return
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and self._on_out_of_range is not None:
            entry.position = self._on_out_of_range
            return
        self._error = error


def _check_offsets(partitions: Mapping[TopicPartition, int | str]) -> None:
    for key, position in partitions.items():
        if isinstance(position, int) and not 0 <= position < 2**63:
            raise ValueError(f"{key}: {position} is not an offset")
