"""What consumers ask of a leader: committed records, and offsets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
from kafkalite.replica.client_fetch import READ_COMMITTED, ClientFetch, FetchEntry, FetchTerms
from kafkalite.replica.damage import give_up_damaged
from kafkalite.replica.decisions.nearby import preferred_replica
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.replica.produce import MAX_WAITING, missing
from kafkalite.replica.purgatory import FetchDone, ResponseLimit
from kafkalite.replica.requests import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse

#: How long a fetch waits for records that have to come from the disk (milliseconds), whatever its own patience is: a poll that does not
#: wait would never get them.
COLD_WAIT_MS = 5_000
#: Partitions of one fetch that are loaded at the same time.
_MOST_LOADS = 8
#: A partition, bytes and records of it in a response.
_Sent = tuple[Partition, int, int]


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

    def fetch(self, fetch: ClientFetch, terms: FetchTerms, done: FetchDone, room: ResponseLimit | None = None) -> None:
        """Call `done` once: at once if there are min_bytes, or an error; else when they come, or max_wait.

        `room`: how many bytes the answer may have when it is read (0: none; else at least one batch is in it).
        """
        self._hosted.counters.fetch_requests += len(fetch.ready)
        sent: list[_Sent] = []

        def answer(size_bytes: int, *, is_error: bool) -> None:
            counters = self._hosted.counters
            counters.bytes_out += size_bytes
            for partition, some_bytes, records in sent:
                partition.fetched_bytes += some_bytes
                partition.fetched_records += records
            counters.failed_fetch_requests += is_error
            is_sent = done()
            if not fetch.is_session:
                fetch.end()
            elif is_sent:
                fetch.commit()
            else:
                fetch.drop_records()

        def attempt(*, has_waited: bool = False) -> None:
            sent.clear()
            fetch.has_missed = False
            if has_waited and not fetch.is_session:
                fetch.unwatch()
            size_bytes, is_error = self._read(fetch, terms, room, sent)
            # Who asks for more than there is room for would wait in vain for the rest.
            needed = terms.min_bytes if room is None else min(terms.min_bytes, max(1, room() // 2))
            wait_ms = 0 if has_waited else terms.max_wait_ms
            is_loading = self._load(fetch, terms.reader)
            if is_loading and not size_bytes:
                # There are records, but the disk has to give them first: an empty answer would say that there are none.
                wait_ms, needed = max(wait_ms, COLD_WAIT_MS), max(needed, 1)
            wheel = self._hosted.wheel
            may_wait = len(wheel) < MAX_WAITING and not wheel.is_closed
            if size_bytes >= needed or is_error or wait_ms <= 0 or not fetch.entries or not may_wait:
                answer(size_bytes, is_error=is_error)
                return
            sent.clear()
            if not fetch.is_session:
                for entry in fetch.entries.values():
                    entry.watch(self._hosted.get(entry.key))
            fetch.wait(wheel, wait_ms, needed - size_bytes, partial(attempt, has_waited=True))

        attempt()

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
        wheel = self._hosted.wheel
        if len(wheel) >= MAX_WAITING or wheel.is_closed:
            return False
        for entry in fetch.entries.values():
            entry.watch(self._hosted.get(entry.key))
        fetch.wait(wheel, wait_ms, 1, complete)
        return True

    def sent(self, entry: FetchEntry, size_bytes: int, records: int) -> None:
        """Records of an entry were given to a member: for the metrics."""
        self._hosted.counters.bytes_out += size_bytes
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

    def _read(
        self, fetch: ClientFetch, terms: FetchTerms, room: ResponseLimit | None, sent: list[_Sent]
    ) -> tuple[int, bool]:
        """Read what is marked, as far as it fits: bytes of records, and whether anything was refused or has to be read
        elsewhere, which the consumer should hear at once. Whose records they are: `sent`."""
        left = min(terms.max_bytes, self._fetch_max_bytes)
        is_full = False
        if room is not None:
            size = room()
            is_full, left = size <= 0, min(left, size)
        total = 0
        is_error = False
        is_session = fetch.is_session
        ready = fetch.ready
        for entry in list(ready):
            if is_session:
                if left <= 0 and (total or is_full):
                    entry.is_news = False  # not read, so not sent: it stays marked
                    continue
                entry.watch(self._hosted.get(entry.key))
            try:
                if entry.refusal:
                    raise api_error(entry.refusal)
                self._read_one(entry, left, fetch.isolation, sent, is_first=total == 0 and not is_full)
            except ApiError as error:
                is_error = True
                entry.refuse(int(error.code))
                continue
            is_error = is_error or entry.preferred != NO_LEADER
            total += entry.records_size
            left -= entry.records_size
            if not entry.has_more and (not is_session or not entry.is_news):
                del ready[entry]
        return total, is_error

    def _read_one(self, entry: FetchEntry, left: int, isolation: int, sent: list[_Sent], *, is_first: bool) -> None:
        """Raises ApiError."""
        partition = self._readable(entry)
        if entry.topic_id not in (NO_TOPIC_ID, partition.topic_id) and partition.topic_id:
            raise api_error(ErrorCode.INCONSISTENT_TOPIC_ID)
        log = partition.log
        offset = entry.fetch_offset
        high_watermark = partition.high_watermark
        start = log.log_start_offset
        if offset < start or offset > log.log_end_offset:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE)
        if entry.records_size:
            entry.drop_records()
        entry.error = 0
        entry.missing = None
        entry.directory = log.directory
        entry.preferred = self._preferred(partition, entry)
        try:
            stable = min(log.last_stable_offset(high_watermark), high_watermark)
            limit = stable if isolation == READ_COMMITTED else high_watermark
            # Between the high watermark and the log's end: nothing yet, and no error (invariant 32).
            entry.has_more = offset < limit
            if offset < limit and (left > 0 or is_first) and entry.preferred == NO_LEADER:
                max_bytes = min(entry.max_bytes, max(left, 0))
                if entry.cold_reads >= ATTEMPTS:
                    reached = _read_records(entry, log, max_bytes, limit, isolation, is_first=is_first)
                else:
                    with ResidentOnly():
                        reached = _read_records(entry, log, max_bytes, limit, isolation, is_first=is_first)
                entry.cold_reads = 0
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
        )

    def _preferred(self, partition: Partition, entry: FetchEntry) -> BrokerId:
        """The replica from which the consumer should read instead of this leader; NO_LEADER: it reads here."""
        rack = entry.fetch.rack
        if not self._selects_by_rack or not rack or partition.leader is None:
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
        """The partition, if this node leads it in the epoch that the client knows. Raises ApiError."""
        partition = self._hosted.get(topic_partition)
        if partition is None or partition.leader is None:
            raise api_error(missing(self._hosted, self._metadata, topic_partition))
        if current_leader_epoch != NO_LEADER_EPOCH and (error := partition.epoch_error(current_leader_epoch)):
            raise api_error(error)
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
            return -1, partition.log.log_start_offset, leader.leader_epoch
        is_behind = leader.high_watermark < leader.epoch_start_offset
        limit = leader.high_watermark
        if isolation == 1:
            limit = min(limit, partition.log.last_stable_offset(limit))
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


def _read_records(
    entry: FetchEntry, log: PartitionLog, max_bytes: int, limit: Offset, isolation: int, *, is_first: bool
) -> int:
    """The offset behind what was read. Raises ApiError, StorageError; NotResident, and then nothing was read."""
    info = log.read(entry.fetch_offset, max_bytes, max_offset=limit, min_one_batch=is_first)
    if isolation == READ_COMMITTED and info.size_bytes:
        entry.aborted = tuple(
            AbortedTransaction(ProducerId(one.producer_id), Offset(one.first_offset))
            for one in log.aborted_transactions(entry.fetch_offset, info.next_offset)
        )
    entry.records, entry.records_size = info.records, info.size_bytes
    return info.next_offset
