"""What consumers ask of a leader: committed records, and offsets."""

from __future__ import annotations

from kafkalite.errors import ApiError, ErrorCode, StorageError, api_error
from kafkalite.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
)
from kafkalite.partition_values import AbortedTransaction, FetchedPartition, ListedOffset
from kafkalite.replica.damage import give_up_damaged
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.replica.produce import MAX_WAITING, missing
from kafkalite.replica.purgatory import DelayedFetch, FetchDone, ResponseLimit
from kafkalite.replica.requests import (
    FetchPartition,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)


class ConsumerFetchHandler:
    """Reads below the high watermark (or the last stable offset), from the leader only (invariant 53)."""

    def __init__(self, hosted: HostedPartitions, metadata: MetadataCache, *, fetch_max_bytes: int) -> None:
        self._hosted = hosted
        self._metadata = metadata
        self._fetch_max_bytes = fetch_max_bytes

    def fetch(self, request: FetchRequest, done: FetchDone, room: ResponseLimit | None = None) -> None:
        """Call `done` once: at once if there are min_bytes, or an error to tell; else when they come, or max_wait.

        `room`: how many bytes the answer may have when it is read (0: none; else at least one batch is in it).
        """
        answers, body, size_bytes, is_error = self._read(request, room)
        # Who asks for more than there is room for would wait in vain for the rest.
        needed = request.min_bytes if room is None else min(request.min_bytes, max(1, room() // 2))
        counters = self._hosted.counters
        counters.fetch_requests += len(request.partitions)
        wheel = self._hosted.wheel
        if (
            size_bytes >= needed
            or is_error
            or request.max_wait_ms <= 0
            or not request.partitions
            or len(wheel) >= MAX_WAITING
        ):
            counters.bytes_out += size_bytes
            counters.failed_fetch_requests += is_error
            done(answers, body)
            return
        del answers, body  # a long poll holds no record bytes

        def complete() -> None:
            again, records, total, failed = self._read(request, room)
            counters.bytes_out += total
            counters.failed_fetch_requests += failed
            done(again, records)

        delayed = DelayedFetch(wheel, needed - size_bytes, complete)
        for wanted in request.partitions:
            partition = self._hosted.get(TopicPartition(wanted.topic, wanted.partition))
            if partition is not None and delayed not in partition.fetch_waiters:
                partition.fetch_waiters[delayed] = None
                delayed.partitions.append(partition)
        wheel.add(delayed, request.max_wait_ms)

    def _read(
        self, request: FetchRequest, room: ResponseLimit | None
    ) -> tuple[tuple[FetchedPartition, ...], list[Buffer], int, bool]:
        """All partitions of the request: answers, record bytes, how many of them, whether anything was refused."""
        answers: list[FetchedPartition] = []
        body: list[Buffer] = []
        left = min(request.max_bytes, self._fetch_max_bytes)
        is_full = False
        if room is not None:
            size = room()
            is_full, left = size <= 0, min(left, size)
        total = 0
        is_error = False
        for wanted in request.partitions:
            try:
                is_first = total == 0 and not is_full
                answer, records = self._read_one(wanted, left, request.isolation, is_first=is_first)
            except ApiError as error:
                is_error = True
                answers.append(
                    FetchedPartition(wanted.topic, wanted.partition, error.code, NO_OFFSET, NO_OFFSET, NO_OFFSET, 0)
                )
                continue
            answers.append(answer)
            body.extend(records)
            total += answer.records_size
            left -= answer.records_size
        return tuple(answers), body, total, is_error

    def _read_one(
        self, wanted: FetchPartition, left: int, isolation: int, *, is_first: bool
    ) -> tuple[FetchedPartition, list[Buffer]]:
        partition = self._led(TopicPartition(wanted.topic, wanted.partition), wanted.current_leader_epoch)
        leader = partition.leader
        assert leader is not None
        log = partition.log
        offset = wanted.fetch_offset
        high_watermark = leader.high_watermark
        if offset < log.log_start_offset or offset > log.log_end_offset:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE)
        aborted: tuple[AbortedTransaction, ...] = ()
        records: list[Buffer] = []
        size_bytes = 0
        try:
            stable = min(log.last_stable_offset(high_watermark), high_watermark)
            limit = stable if isolation == 1 else high_watermark
            # Between the high watermark and the log's end: nothing yet, and no error (invariant 32).
            if offset < limit and (left > 0 or is_first):
                info = log.read(offset, min(wanted.max_bytes, max(left, 0)), max_offset=limit, min_one_batch=is_first)
                records.extend(info.records)
                size_bytes = info.size_bytes
                if isolation == 1 and size_bytes:
                    found = log.aborted_transactions(offset, info.next_offset)
                    aborted = tuple(
                        AbortedTransaction(ProducerId(one.producer_id), Offset(one.first_offset)) for one in found
                    )
        except StorageError as error:
            self._hosted.fail_storage(partition, error)
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR) from None
        except ApiError as error:
            if give_up_damaged(self._hosted, self._metadata, partition, error):
                raise api_error(ErrorCode.KAFKA_STORAGE_ERROR) from None
            raise
        answer = FetchedPartition(
            wanted.topic,
            wanted.partition,
            ErrorCode.NONE,
            high_watermark,
            stable,
            log.log_start_offset,
            size_bytes,
            aborted,
        )
        return answer, records

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
                timestamp, offset, epoch = await self._list_one(wanted, request.isolation)
            except ApiError as error:
                listed.append(ListedOffset(wanted.topic, wanted.partition, error.code, -1, NO_OFFSET))
                continue
            listed.append(ListedOffset(wanted.topic, wanted.partition, ErrorCode.NONE, timestamp, offset, epoch))
        return ListOffsetsResponse(tuple(listed))

    async def _list_one(self, wanted: ListOffsetsPartition, isolation: int) -> tuple[int, Offset, LeaderEpoch]:
        found: tuple[int, Offset, LeaderEpoch] | None = None
        if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
            found = await self._look_up(wanted)
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

    async def _look_up(self, wanted: ListOffsetsPartition) -> tuple[int, Offset, LeaderEpoch] | None:
        """The record with the timestamp, committed or not. Raises ApiError."""
        partition = self._led(TopicPartition(wanted.topic, wanted.partition), wanted.current_leader_epoch)
        log = partition.log
        try:
            if wanted.timestamp == MAX_TIMESTAMP:
                return await log.max_timestamp_offset()
            return await log.offset_for_timestamp(wanted.timestamp)
        except StorageError as error:
            if partition.log is log and self._hosted.get(partition.topic_partition) is partition:
                self._hosted.fail_storage(partition, error)
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR) from None
