"""What consumers ask of a leader: committed records, and offsets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from kafkalite.env.fair_queue import Owner
from kafkalite.env.residency import NotResident, ResidentOnly
from kafkalite.errors import ApiError, ErrorCode, StorageError, api_error
from kafkalite.log.cold_reads import ATTEMPTS, ColdReads
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_LEADER,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
)
from kafkalite.partition_values import AbortedTransaction, ListedOffset
from kafkalite.replica.client_fetch import (
    AT_ONCE,
    READ_COMMITTED,
    STEP,
    ClientFetch,
    FetchDone,
    FetchEntry,
    FetchTerms,
    Pacing,
    Steps,
)
from kafkalite.replica.damage import give_up_damaged
from kafkalite.replica.decisions.follower import Divergence, OutOfRange, reader_divergence
from kafkalite.replica.decisions.nearby import preferred_replica
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.replica.produce import missing
from kafkalite.replica.purgatory import ResponseLimit
from kafkalite.replica.requests import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse
from kafkalite.security.fair_room import user_of
from kafkalite.security.principal import Principal

#: How long a fetch waits for records that have to come from the disk (milliseconds), whatever its own patience is: a poll that does not
#: wait would never get them.
COLD_WAIT_MS = 5_000
#: Partitions of one fetch that are loaded at the same time.
_MOST_LOADS = 8
#: A partition, bytes and records of it in a response.
_Sent = tuple[Partition, int, int]


class _FetchCall:
    """One call of `fetch`, with its arguments."""

    __slots__ = ("_held", "done", "fetch", "pacing", "room", "terms")

    def __init__(
        self, fetch: ClientFetch, terms: FetchTerms, done: FetchDone, room: ResponseLimit | None, pacing: Pacing
    ) -> None:
        self.fetch = fetch
        self.terms = terms
        self.done = done
        self.room = room
        self.pacing = pacing
        #: Bytes of records that it has between two steps.
        self._held = 0

    def hold(self, size_bytes: int) -> None:
        """The bytes of records that are in memory now."""
        if size_bytes != self._held:
            self.pacing.hold(size_bytes - self._held)
            self._held = size_bytes


class ConsumerFetchHandler:
    """Reads below the high watermark, or the last stable offset (invariant 53).

    A follower reads below the high watermark that its leader has sent it, for consumers that know of followers.

    Args:
        selects_by_rack: consumers are sent to a follower in their own rack (replica.selector.class).
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        metadata: MetadataCache,
        cold: ColdReads,
        *,
        fetch_max_bytes: int,
        selects_by_rack: bool,
    ) -> None:
        self._hosted = hosted
        self._metadata = metadata
        self._cold = cold
        self._fetch_max_bytes = fetch_max_bytes
        self._selects_by_rack = selects_by_rack

    def fetch(
        self,
        fetch: ClientFetch,
        terms: FetchTerms,
        done: FetchDone,
        room: ResponseLimit | None = None,
        pacing: Pacing = AT_ONCE,
    ) -> None:
        """Call `done` once: at once if there are min_bytes, or an error; else when they come, or max_wait.

        `room`: how many bytes the answer may have when it is read (0: none; else at least one batch is in it). `pacing`: of the steps of
        a fetch of many partitions. If the fetch is interrupted between them, `done` is called with what was read until then.
        """
        self._hosted.counters.fetch_requests += len(fetch.ready)
        pacing.run(self._attempt(_FetchCall(fetch, terms, done, room, pacing), has_waited=False))

    def _attempt(self, call: _FetchCall, *, has_waited: bool) -> Steps[None]:
        """Read, and then answer or wait."""
        try:
            yield from self._attempt_reading(call, call.fetch.begin_reading(), has_waited=has_waited)
        finally:
            call.hold(0)

    def _attempt_reading(self, call: _FetchCall, reading: int, *, has_waited: bool) -> Steps[None]:
        fetch, terms, room = call.fetch, call.terms, call.room
        fetch.has_missed = False
        if has_waited and not fetch.is_session:
            yield from fetch.unwatching()
        sent: list[_Sent] = []
        size_bytes, available, is_error = yield from self._read(call, sent, reading)
        # A client that asks for more than there is room for would wait in vain for the rest.
        needed = min(terms.min_bytes, terms.max_bytes, self._fetch_max_bytes)
        if room is not None:
            needed = min(needed, max(1, room() // 2))
        wait_ms = 0 if has_waited else terms.max_wait_ms
        is_loading = self._load(fetch, terms.reader)
        if is_loading and not size_bytes:
            # There are records, but the disk has to give them first: an empty answer would say that there are none.
            wait_ms, needed = max(wait_ms, COLD_WAIT_MS), max(needed, 1)
        # Those of a session are counted with it.
        size = 0 if fetch.is_session else len(fetch.entries)
        if available < needed and not is_error and wait_ms > 0 and fetch.entries and self._may_wait(terms.reader, size):
            if not fetch.is_session and (has_waited or len(fetch.entries) <= STEP):  # otherwise they do so already
                yield from fetch.watching(self._hosted.get, reading)
            if fetch.reads == reading and self._may_wait(terms.reader, size):

                def attempt_again() -> None:
                    call.pacing.run(self._attempt(call, has_waited=True))

                again = self._counted(terms.reader, size, attempt_again)
                fetch.wait(self._hosted.wheel, wait_ms, needed - available, again, since_reading=True)
                return
        yield from self._answer(call, sent, reading, is_error=is_error)

    def _may_wait(self, reader: Owner, size: int) -> bool:
        """Whether there may be another long poll with this number of partitions of its own."""
        hosted, user = self._hosted, _user(reader)
        return hosted.long_polls.has_room(user) and hosted.polled.has_room(user, size) and not hosted.wheel.is_closed

    def _counted(self, reader: Owner, size: int, complete: Callable[[], None]) -> Callable[[], None]:
        """A long poll begins, and ends when what is returned is called, which calls `complete`."""
        long_polls, polled, user = self._hosted.long_polls, self._hosted.polled, _user(reader)
        long_polls.give(user, -1)
        polled.give(user, -size)

        def over() -> None:
            long_polls.give(user)
            polled.give(user, size)
            complete()

        return over

    def _answer(self, call: _FetchCall, sent: list[_Sent], reading: int, *, is_error: bool) -> Steps[None]:
        fetch, counters = call.fetch, self._hosted.counters
        for partition, size_bytes, records in sent:
            counters.bytes_out += size_bytes
            counters.messages_out += records
            partition.fetched_bytes += size_bytes
            partition.fetched_records += records
        counters.failed_fetch_requests += is_error
        answer = yield from call.done()
        if answer is None:
            if not fetch.is_session:
                yield from fetch.ending()
            elif fetch.reads == reading:
                fetch.drop_records()
        elif fetch.is_session or answer.opens_session:
            # Before it is sent: the next request of the session must find it as this answer leaves it.
            if fetch.is_session:
                yield from fetch.committing(reading)
            else:
                yield from fetch.beginning_session(reading)
            answer.send()
        else:
            answer.send()
            yield from fetch.ending()

    # --- for share groups, which read only when they can also give the records to a member ---

    def read(self, entry: FetchEntry, max_bytes: int, *, is_first: bool) -> None:
        """Read one entry of a single fetch now; what it gives, refuses, or misses in the page cache is in the entry."""
        try:
            self._read_one(entry, max_bytes, entry.fetch.isolation, [], is_first=is_first)
        except ApiError as error:
            entry.refuse(int(error.code))

    def wait(self, fetch: ClientFetch, wait_ms: int, reader: Owner, complete: Callable[[], None]) -> bool:
        """Call `complete` once: when more of one of its entries can be read, at a change, or after `wait_ms`.

        What entries missed in the page cache is loaded. False: too many wait already, or the node stops.
        """
        self._load(fetch, reader)
        if not self._may_wait(reader, 0):
            return False
        for entry in fetch.entries.values():
            entry.watch(self._hosted.get(entry.key))
        fetch.wait(self._hosted.wheel, wait_ms, 1, self._counted(reader, 0, complete))
        return True

    def sent(self, entry: FetchEntry, size_bytes: int, records: int) -> None:
        """Records of an entry were given to a member: for the metrics."""
        self._hosted.counters.bytes_out += size_bytes
        self._hosted.counters.messages_out += records
        partition = self._hosted.get(entry.key)
        if partition is not None:
            partition.fetched_bytes += size_bytes
            partition.fetched_records += records

    def _load(self, fetch: ClientFetch, reader: Owner) -> bool:
        """Begin to load what was not in the page cache, some of it; whether anything is being loaded."""
        if not fetch.has_missed:
            return False
        loading = sum(entry.is_loading for entry in fetch.ready)
        for entry in fetch.ready:
            missing = entry.missing
            if missing is None or entry.is_loading or loading >= _MOST_LOADS:
                continue
            loading += 1
            entry.is_loading = True
            self._cold.then(reader, entry.directory, missing, entry.on_loaded)
        return loading > 0

    def _read(self, call: _FetchCall, sent: list[_Sent], reading: int) -> Steps[tuple[int, int, bool]]:
        """Read what is marked, as far as it fits: bytes of records, bytes that are there (`FetchEntry.available`), and whether anything was refused or has to be read
        elsewhere, which the consumer should hear at once. Whose records they are: `sent`."""
        fetch, room = call.fetch, call.room
        left = min(call.terms.max_bytes, self._fetch_max_bytes)
        is_full = False
        if room is not None:
            size = room()
            is_full, left = size <= 0, min(left, size)
        total = available = 0
        is_error = False
        is_session = fetch.is_session
        ready = fetch.ready
        marked = list(ready)
        # What becomes readable between two steps must be noticed.
        must_watch = is_session or len(marked) > STEP
        for number, entry in enumerate(marked):
            if number and not number % STEP:
                call.hold(total)
                yield
                if fetch.reads != reading:
                    break
                if room is not None:
                    left = min(left, room())
            if is_session and left <= 0 and (total or is_full):
                entry.is_news = False  # not read, so not sent: it stays marked
                continue
            if must_watch:
                entry.watch(self._hosted.get(entry.key))
            try:
                if entry.refusal:
                    raise api_error(entry.refusal)
                self._read_one(entry, left, fetch.isolation, sent, is_first=total == 0 and not is_full)
            except ApiError as error:
                is_error = True
                entry.refuse(int(error.code))
                continue
            is_error = is_error or entry.preferred != NO_LEADER or entry.divergence is not None
            total += entry.records_size
            available += entry.available
            left -= entry.records_size
            if not entry.has_more and (not is_session or not entry.is_news):
                ready.pop(entry, None)
        if len(marked) > STEP:
            call.hold(total)
        return total, available, is_error

    def _read_one(self, entry: FetchEntry, left: int, isolation: int, sent: list[_Sent], *, is_first: bool) -> None:
        """Raises ApiError."""
        partition = self._readable(entry)
        if entry.topic_id not in (NO_TOPIC_ID, partition.topic_id) and partition.topic_id:
            raise api_error(ErrorCode.INCONSISTENT_TOPIC_ID)
        log = partition.log
        offset = entry.fetch_offset
        high_watermark = partition.high_watermark
        start = log.log_start_offset
        divergence = self._check_offset(partition, offset, start, entry.last_fetched_epoch)
        if entry.records_size:
            entry.drop_records()
        entry.error = entry.available = 0
        entry.missing = None
        entry.wire = b""
        entry.directory = log.directory
        entry.preferred = self._preferred(partition, entry) if self._selects_by_rack else NO_LEADER
        entry.divergence = divergence if entry.preferred == NO_LEADER else None
        try:
            stable = log.last_stable_offset(high_watermark)
            limit = stable if isolation == READ_COMMITTED else high_watermark
            # Between the high watermark and the log's end: nothing yet, and no error (invariant 32).
            entry.has_more = offset < limit or divergence is not None
            if offset < limit and (left > 0 or is_first) and entry.preferred == NO_LEADER and divergence is None:
                reached = _read_records(entry, log, left, limit, isolation, is_first=is_first)
                if entry.records_size:
                    sent.append((partition, entry.records_size, reached - offset))
        except NotResident as missing:
            entry.missing = missing
            entry.fetch.has_missed = True
        except StorageError as error:
            self._hosted.fail_storage(partition, error)
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR) from None
        except ApiError as error:
            if give_up_damaged(self._hosted, self._metadata, partition, error):
                raise api_error(ErrorCode.KAFKA_STORAGE_ERROR) from None
            raise
        entry.high_watermark, entry.last_stable_offset, entry.log_start_offset = high_watermark, stable, start
        entry.is_news = (
            entry.records_size > 0
            or high_watermark != entry.sent_high_watermark
            or start != entry.sent_log_start
            or entry.preferred != NO_LEADER
            or divergence is not None
        )

    def _check_offset(
        self, partition: Partition, offset: Offset, start: Offset, last_fetched_epoch: LeaderEpoch
    ) -> Divergence | None:
        """Where the client's log and this one part, if they do. Raises ApiError if the offset is not in this log."""
        log = partition.log
        is_beyond = offset > log.log_end_offset
        if is_beyond and partition.leader is not None and self._hosted.may_be_replaced(partition):
            # Its successor may have these records. A consumer that hears "out of range" goes back to its beginning, or leaves some out.
            raise api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        divergence = _divergence(log, offset, last_fetched_epoch) if last_fetched_epoch >= 0 else None
        if offset < start or (is_beyond and divergence is None):
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE)
        return divergence

    def _preferred(self, partition: Partition, entry: FetchEntry) -> BrokerId:
        """The replica from which the consumer should read instead of this leader; NO_LEADER: it reads here."""
        rack = entry.fetch.rack
        if not rack or partition.leader is None:
            return NO_LEADER
        found = preferred_replica(partition.leader, entry.fetch_offset, rack, self._metadata.rack_of)
        if found is None:
            return NO_LEADER
        self._hosted.is_read_at(partition, found)
        return found

    def _readable(self, entry: FetchEntry) -> Partition:
        """The partition, if this node leads it, or follows and may answer. Raises ApiError."""
        if entry.fetch.reads_followers:
            partition = self._hosted.get(entry.key)
            if partition is not None and partition.is_following:
                epoch = entry.leader_epoch
                if epoch != NO_LEADER_EPOCH and (error := partition.epoch_error(epoch)):
                    raise api_error(error)
                return partition
        return self._led(entry.key, entry.leader_epoch)

    def _led(self, topic_partition: TopicPartition, current_leader_epoch: LeaderEpoch) -> Partition:
        """The partition, if this node leads it in the epoch that the client knows. Raises ApiError.

        A follower, too, checks the epoch first: the client hears whether its metadata are older or newer (Partition.getLocalLog).
        """
        partition = self._hosted.get(topic_partition)
        if partition is None or partition.storage_error is not None:
            raise api_error(missing(self._hosted, self._metadata, topic_partition))
        if current_leader_epoch != NO_LEADER_EPOCH and (error := partition.epoch_error(current_leader_epoch)):
            raise api_error(error)
        if partition.leader is None:
            raise api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Offsets by time. What is not committed is not there; OFFSET_NOT_AVAILABLE while a new leader's high
        watermark has not reached the start of its epoch: the true one may be higher than what it knows (invariant F10)."""
        listed: list[ListedOffset] = []
        for wanted in request.partitions:
            try:
                timestamp, offset, epoch = await self._list_one(wanted, request.isolation, request.reader)
            except ApiError as error:
                listed.append(ListedOffset(wanted.topic, wanted.partition, error.code, -1, NO_OFFSET))
                continue
            listed.append(ListedOffset(wanted.topic, wanted.partition, ErrorCode.NONE, timestamp, offset, epoch))
        return ListOffsetsResponse(tuple(listed))

    async def _list_one(
        self, wanted: ListOffsetsPartition, isolation: int, reader: Owner
    ) -> tuple[int, Offset, LeaderEpoch]:
        found: tuple[int, Offset, LeaderEpoch] | None = None
        if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
            found = await self._look_up(wanted, reader)
        elif wanted.timestamp not in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            raise api_error(ErrorCode.UNSUPPORTED_VERSION)
        # What holds now: a look-up by time takes a while.
        partition = self._led(TopicPartition(wanted.topic, wanted.partition), wanted.current_leader_epoch)
        leader = partition.leader
        assert leader is not None
        if wanted.timestamp == EARLIEST_TIMESTAMP:
            start = partition.log.log_start_offset
            return -1, start, partition.log.epoch_at(start)
        is_behind = leader.high_watermark < leader.epoch_start_offset
        limit = leader.high_watermark
        if isolation == 1:
            limit = partition.log.last_stable_offset(limit)
        if wanted.timestamp == LATEST_TIMESTAMP:
            if is_behind:
                raise api_error(ErrorCode.OFFSET_NOT_AVAILABLE)
            return -1, limit, leader.leader_epoch
        if found is not None and found[1] < limit:
            return found
        if is_behind and found is not None:
            raise api_error(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, NO_OFFSET, NO_LEADER_EPOCH

    async def _look_up(self, wanted: ListOffsetsPartition, reader: Owner) -> tuple[int, Offset, LeaderEpoch] | None:
        """The record with the timestamp, committed or not. Raises ApiError."""
        partition = self._led(TopicPartition(wanted.topic, wanted.partition), wanted.current_leader_epoch)
        log = partition.log
        try:
            if wanted.timestamp == MAX_TIMESTAMP:
                return await log.max_timestamp_offset(self._cold, reader)
            return await log.offset_for_timestamp(wanted.timestamp, self._cold, reader)
        except StorageError as error:
            if partition.log is log and self._hosted.get(partition.topic_partition) is partition:
                self._hosted.fail_storage(partition, error)
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR) from None


def _user(reader: Owner) -> str:
    """The name under which its long polls are counted."""
    match reader[0]:
        case (str(name), str(host)):
            return user_of(Principal("User", name), host)
    return ""


def _divergence(log: PartitionLog, offset: Offset, last_fetched_epoch: LeaderEpoch) -> Divergence | None:
    """Raises ApiError."""
    end = log.epoch_end_for_clients(last_fetched_epoch)
    found = reader_divergence(*end, fetch_offset=offset, last_fetched_epoch=last_fetched_epoch)
    if isinstance(found, OutOfRange):
        raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE)
    return found


def _read_records(
    entry: FetchEntry, log: PartitionLog, left: int, limit: Offset, isolation: int, *, is_first: bool
) -> int:
    """The offset behind what was read. Raises ApiError, StorageError; NotResident, and then nothing was read."""
    if entry.max_bytes < 0 or (is_first and left < 0):
        raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, "a size below 0")  # as in Kafka (LogSegment.read)
    max_bytes = min(entry.max_bytes, max(left, 0))
    with ResidentOnly() if entry.cold_reads < ATTEMPTS else contextlib.nullcontext():
        info = log.read(entry.fetch_offset, max_bytes, max_offset=limit, min_one_batch=is_first)
        if isolation == READ_COMMITTED and info.size_bytes:
            entry.aborted = tuple(
                AbortedTransaction(ProducerId(one.producer_id), Offset(one.first_offset))
                for one in log.aborted_transactions(entry.fetch_offset, info.next_offset)
            )
    entry.records, entry.records_size = info.records, info.size_bytes
    entry.cold_reads = 0
    entry.available = info.size_bytes
    # The first batch comes whatever its size. If none has come, offsets are missing up to the limit (compaction).
    if info.next_offset < limit and (info.size_bytes or not is_first):
        entry.available = max(info.size_bytes, max_bytes)
    return info.next_offset
