"""What a consumer reads: the partitions of its fetch or of its fetch session (KIP-227), what is new in them, and its long poll.

A partition marks the entries that watch it when more of it can be read, or its role changes. A read looks at marked
entries only, so what a wake-up costs grows with what has changed, not with what is listed. A session's entries watch
their partitions as long as the session lasts; those of a single fetch only while it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kafkalite.env.fair_queue import Owner
from kafkalite.errors import ErrorCode
from kafkalite.model import (
    NO_LEADER,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TOPIC_ID,
    Buffer,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from kafkalite.partition_values import AbortedTransaction
from kafkalite.replica.decisions.follower import Divergence
from kafkalite.replica.purgatory import DeadlineWheel, Waiting

if TYPE_CHECKING:
    from kafkalite.env.residency import NotResident

READ_COMMITTED = 1
#: Another one is UNKNOWN_SERVER_ERROR, as in Kafka (IsolationLevel.forId).
ISOLATION_LEVELS = (0, READ_COMMITTED)
#: Entries that are read, or encoded, in one step; light steps only mark them, or take them apart.
STEP, LIGHT_STEP = 50, 1_000

_T = TypeVar("_T")
#: Work on many entries, in steps.
Steps = Generator[None, None, _T]


class FetchAnswer(NamedTuple):
    """An answer that is encoded. From then on, its entries are a session's if `opens_session`."""

    send: Callable[[], None]
    opens_session: bool = False


#: Encodes what a fetch has read (ClientFetch.due); None: it is not sent.
FetchDone = Callable[[], Steps[FetchAnswer | None]]


class Pacing(Protocol):
    """Turns of the loop for a fetch of many partitions, and the memory that it holds between them."""

    def run(self, steps: Steps[None]) -> None:
        """The first step now, the others each when there is a turn."""
        ...

    def hold(self, size_bytes: int) -> None:
        """Count records that are in memory from now on; a negative size: that are not any more."""
        ...


class AtOnce:
    """All steps in one turn."""

    def run(self, steps: Steps[None]) -> None:
        for _ in steps:
            pass

    def hold(self, size_bytes: int) -> None:
        return


AT_ONCE = AtOnce()


class FetchTerms(NamedTuple):
    """What one request of a consumer asks for, whatever its partitions are."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    #: Whose turn reads from the disk take.
    reader: Owner = ("", "")


class Watched(Protocol):
    """A replica: it marks the entries that watch it when there is something new."""

    fetch_waiters: dict[FetchEntry, None]


class FetchEntry:
    """One partition: what the consumer wants of it, and the answer."""

    __slots__ = (
        "aborted", "available", "cold_reads", "directory", "divergence", "error", "fetch", "fetch_offset", "has_more", "high_watermark", "is_loading", "is_news", "key",
        "last_fetched_epoch", "last_stable_offset", "leader_epoch", "listed", "log_start_offset", "max_bytes", "missing", "partition", "preferred", "records",
        "records_size", "refusal", "sent_high_watermark", "sent_log_start", "topic_id", "wire",
    )  # fmt: skip

    def __init__(
        self,
        fetch: ClientFetch,
        key: TopicPartition,
        fetch_offset: Offset,
        max_bytes: int,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        topic_id: TopicId = NO_TOPIC_ID,
        last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    ) -> None:
        self.fetch = fetch
        self.key = key
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        #: The leader's epoch as the consumer knows it.
        self.leader_epoch = leader_epoch
        #: The epoch of the last record that the client has, if it says so (KIP-595): then it hears where its log and this one part.
        self.last_fetched_epoch = last_fetched_epoch
        #: By which the consumer asks for the topic; NO_TOPIC_ID: by its name.
        self.topic_id = topic_id
        #: Why nothing of it is read at all: the consumer may not, or nobody knows the topic's id.
        self.refusal = ErrorCode.NONE
        #: The replica that it watches.
        self.partition: Watched | None = None
        #: What a session has sent last; -1: nothing, or an error.
        self.sent_high_watermark: Offset = NO_OFFSET
        self.sent_log_start: Offset = NO_OFFSET
        #: Records are left, or a refusal that may end: it stays marked.
        self.has_more = False
        #: The answer.
        self.is_news = False
        self.error = 0
        self.high_watermark: Offset = NO_OFFSET
        self.last_stable_offset: Offset = NO_OFFSET
        self.log_start_offset: Offset = NO_OFFSET
        self.records: Sequence[Buffer] = ()
        self.records_size = 0
        #: Bytes that are there for it, at most as many as it may give; if whole batches do not fill that, it gives fewer.
        self.available = 0
        self.aborted: tuple[AbortedTransaction, ...] = ()
        #: What was not in the page cache when it was read last, and on which disk; whether that is being loaded; how often in a row.
        self.missing: NotResident | None = None
        self.directory = ""
        self.is_loading = False
        self.cold_reads = 0
        #: The replica to read from instead; then there are no records.
        self.preferred = NO_LEADER
        #: Where the client's log and this one part; then there are no records either.
        self.divergence: Divergence | None = None
        #: The answer as it was encoded, in a fetch that `lists_all`; b"": it was read again since, or has records.
        self.wire = b""
        #: The last request that has listed it.
        self.listed = -1

    def refuse(self, error: int) -> None:
        """The answer is this error."""
        self.error = error
        self.high_watermark = self.last_stable_offset = self.log_start_offset = NO_OFFSET
        self.has_more = self.is_news = True
        self.preferred = NO_LEADER
        self.divergence = None
        self.wire = b""
        if self.records_size:
            self.drop_records()

    def drop_records(self) -> None:
        """What waits, or has been sent, holds no bytes of records."""
        self.records = ()
        self.records_size = 0
        self.aborted = ()

    def on_loaded(self) -> None:
        """What was missing has come from the disk."""
        self.is_loading = False
        self.missing = None
        self.cold_reads += 1
        self.fetch.schedule()

    def on_readable(self, size_bytes: int, stable_offset: Offset) -> None:
        """About this many more bytes of its partition can be read; of committed transactions, up to `stable_offset`."""
        fetch = self.fetch
        fetch.ready[self] = None
        fetch.readable_bytes += size_bytes
        if fetch.isolation == READ_COMMITTED and self.fetch_offset >= stable_offset:
            return  # all of it is for later: the bytes count, but no long poll ends
        if fetch.is_waiting and fetch.readable_bytes >= fetch.awaited_bytes:
            fetch.schedule()

    def on_news(self) -> None:
        """Its log starts elsewhere: the next response says so, but no long poll ends for it."""
        self.fetch.ready[self] = None

    def on_change(self) -> None:
        """Its partition has another role here, or none."""
        self.fetch.ready[self] = None
        self.fetch.schedule()

    def watch(self, partition: Watched | None) -> None:
        """From now on `partition` marks it, and no other one."""
        if self.partition is not partition:
            if self.partition is not None:
                self.partition.fetch_waiters.pop(self, None)
            self.partition = partition
            if partition is not None:
                partition.fetch_waiters[self] = None


class ClientFetch(Waiting):
    """One consumer's entries, and its long poll if it waits."""

    __slots__ = (
        "_complete", "_wheel", "awaited_bytes", "entries", "has_changed", "has_missed", "has_unknown_topics", "is_scheduled", "is_session", "is_waiting",
        "isolation", "listed", "lists_all", "rack", "readable_bytes", "reads", "reads_followers", "ready", "request",
    )  # fmt: skip

    def __init__(self, isolation: int = 0) -> None:
        super().__init__()
        #: 0 reads up to the high watermark, READ_COMMITTED up to the last stable offset.
        self.isolation = isolation
        #: Whether followers may answer (the consumer knows of them), and the consumer's rack ("": not known).
        self.reads_followers = False
        self.rack = ""
        #: By what the consumer calls them: (topic, or topic id; partition).
        self.entries: dict[tuple[str, int], FetchEntry] = {}
        #: Marked entries, in the order in which they are read.
        self.ready: dict[FetchEntry, None] = {}
        #: Answers contain only what is new, and the entries go on to watch.
        self.is_session = False
        #: Its client knows no sessions, and lists all partitions in each request: the answers contain all, too. Only what has changed is
        #: read. `request` counts such requests, `listed` the partitions of the last one.
        self.lists_all = False
        self.request = 0
        self.listed = 0
        #: It lists topics by ids that nobody knows; they may be known later.
        self.has_unknown_topics = False
        #: Something was not in the page cache when it was read last.
        self.has_missed = False
        #: Which reading of its entries is under way, or was the last.
        self.reads = 0
        self.is_waiting = False
        self.is_scheduled = False
        self.awaited_bytes = 0
        #: What has come since the reading began: bytes, and whether a partition has another role.
        self.readable_bytes = 0
        self.has_changed = False
        self._wheel: DeadlineWheel | None = None
        self._complete: Callable[[], None] | None = None

    def list(
        self,
        key: TopicPartition,
        fetch_offset: Offset,
        max_bytes: int,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        topic_id: TopicId = NO_TOPIC_ID,
        last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    ) -> FetchEntry:
        """The consumer lists a partition, for the first time or with another offset."""
        name = (topic_id or key.topic, key.partition)
        entry = self.entries.get(name)
        if entry is None:
            entry = FetchEntry(self, key, fetch_offset, max_bytes, leader_epoch, topic_id, last_fetched_epoch)
            self.entries[name] = entry
            self.ready[entry] = None
        else:
            if (
                not self.lists_all
                or entry.fetch_offset != fetch_offset
                or entry.leader_epoch != leader_epoch
                or entry.last_fetched_epoch != last_fetched_epoch
            ):
                self.ready[entry] = None
            entry.fetch_offset, entry.max_bytes, entry.leader_epoch = fetch_offset, max_bytes, leader_epoch
            entry.last_fetched_epoch = last_fetched_epoch
        if entry.listed != self.request:
            entry.listed = self.request
            self.listed += 1
        return entry

    def begin_listing(self) -> None:
        """The next request lists all partitions that it wants."""
        self.request += 1
        self.listed = 0
        self.has_unknown_topics = False

    def forget(self, topic: str, number: int) -> None:
        """The consumer removes a partition, by its topic's name or id."""
        entry = self.entries.pop((topic, number), None)
        if entry is not None:
            entry.watch(None)
            self.ready.pop(entry, None)

    def forgetting_unlisted(self) -> Steps[None]:
        """What the last request has not listed is not asked for any more."""
        for number, (name, entry) in enumerate(list(self.entries.items()), 1):
            if entry.listed != self.request:
                self.forget(*name)
            if not number % LIGHT_STEP:
                yield

    def drop_records(self) -> None:
        """What was read is not sent: it holds no bytes until it is read again."""
        for entry in self.ready:
            if entry.records_size:
                entry.drop_records()

    def due(self) -> Collection[FetchEntry]:
        """The entries of the next answer: all of them, or those that have changed for the session."""
        if not self.is_session or self.lists_all:
            return self.entries.values()
        return self._news()

    def _news(self) -> Collection[FetchEntry]:
        return [entry for entry in self.ready if entry.is_news]

    def begin_reading(self) -> int:
        """Its entries are read from now on; which reading that is."""
        self.reads += 1
        self.readable_bytes, self.has_changed = 0, False
        return self.reads

    def interrupt(self) -> None:
        """End the reading that is under way, if there is one, at its next step: its result is not needed any more."""
        self.reads += 1

    def committing(self, reading: int) -> Steps[None]:
        """The answer is on its way. A partition with records is read last the next time."""
        for number, entry in enumerate(self._news() if self.is_session else self.entries.values(), 1):
            entry.sent_high_watermark = NO_OFFSET if entry.error else entry.high_watermark
            entry.sent_log_start = entry.log_start_offset
            entry.is_news = False
            self.ready.pop(entry, None)
            if entry.has_more or (self.lists_all and entry.preferred != NO_LEADER):
                self.ready[entry] = None
            if entry.records_size:
                entry.drop_records()
            if not number % LIGHT_STEP:
                yield
                if self.reads != reading:
                    return

    def beginning_session(self, reading: int) -> Steps[None]:
        """All is on its way; from now on only what is new. All are read once more, for what came meanwhile."""
        yield from self.committing(reading)
        for number, entry in enumerate(self.entries.values(), 1):
            if self.reads != reading:
                return
            self.ready.pop(entry, None)
            self.ready[entry] = None
            if not number % LIGHT_STEP:
                yield
        if self.reads == reading:
            self.is_session = True

    def watching(self, partition_of: Callable[[TopicPartition], Watched | None], reading: int) -> Steps[None]:
        """All entries watch their partitions."""
        for number, entry in enumerate(self.entries.values(), 1):
            entry.watch(partition_of(entry.key))
            if not number % LIGHT_STEP:
                yield
                if self.reads != reading:
                    return

    def unwatching(self) -> Steps[None]:
        """No entry watches its partition any more."""
        return _unwatching(self.entries.values())

    def unwatch(self) -> None:
        """The same at once."""
        AT_ONCE.run(self.unwatching())

    def ending(self) -> Steps[None]:
        """The session is over with this call, or the fetch, and the steps free its memory. Entries and fetch know each other: without this,
        their memory waits for the collector of cycles."""
        entries = self.entries
        self.interrupt()
        self.is_session = False
        self.entries = {}
        self.ready = {}
        return _freeing(entries)

    def end(self) -> None:
        """The same at once."""
        AT_ONCE.run(self.ending())

    # --- the long poll ---------------------------------------------------------------------------

    def wait(
        self,
        wheel: DeadlineWheel,
        wait_ms: int,
        awaited_bytes: int,
        complete: Callable[[], None],
        *,
        since_reading: bool = False,
    ) -> None:
        """Call `complete` once: when about `awaited_bytes` more can be read, at a change, or after `wait_ms`.

        `since_reading`: what has come since `begin_reading` counts, too. (Of what came before its partition was read, that is too much: the
        answer may then be smaller than was asked for.)
        """
        assert not self.is_waiting
        self.drop_records()
        self.is_waiting = True
        self.awaited_bytes = awaited_bytes
        if not since_reading:
            self.readable_bytes, self.has_changed = 0, False
        self._wheel, self._complete = wheel, complete
        wheel.add(self, wait_ms)
        if self.has_changed or self.readable_bytes >= awaited_bytes:
            self.schedule()

    def schedule(self) -> None:
        """Answer after what is under way now, once however many partitions ask for it."""
        self.has_changed = True
        if self.is_waiting and not self.is_scheduled:
            self.is_scheduled = True
            asyncio.get_running_loop().call_soon(self.expire)

    def expire(self) -> None:
        """The wait is over."""
        self.is_scheduled = False
        if not self.is_waiting:
            return
        self.is_waiting = False
        assert self._wheel is not None and self._complete is not None
        self._wheel.discard(self)
        complete, self._complete = self._complete, None
        complete()


def _unwatching(entries: Iterable[FetchEntry]) -> Steps[None]:
    for number, entry in enumerate(entries, 1):
        entry.watch(None)
        if not number % LIGHT_STEP:
            yield


def _freeing(entries: dict[tuple[str, int], FetchEntry]) -> Steps[None]:
    yield from _unwatching(entries.values())
    while len(entries) > LIGHT_STEP:
        for _ in range(LIGHT_STEP):
            entries.popitem()
        yield
