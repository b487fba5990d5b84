"""The leader's side of replication: followers' fetches, in incremental sessions.

A fetch does three things here: it reports how far the follower's log goes (which may move the high watermark and
bring the follower into the ISR), it is checked for divergence, and it is answered with records or waits for some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.env.residency import NotResident
from kafkalite.errors import NO_ERROR, ApiError, ErrorCode, StorageError
from kafkalite.log.cold_reads import ATTEMPTS, ColdReads
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.reading import ReadInfo
from kafkalite.model import (
    NO_BROKER_EPOCH,
    NO_OFFSET,
    NO_TOPIC_ID,
    BrokerId,
    Buffer,
    Offset,
    TopicPartition,
    new_topic_partition,
)
from kafkalite.replica.damage import give_up_damaged
from kafkalite.replica.decisions.follower import Divergence, OutOfRange, find_divergence
from kafkalite.replica.decisions.leader import on_follower_fetch
from kafkalite.replica.fetch_session import ReplicaFetchDone, ReplicaFetchSession, SessionEntry
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.replica.produce import missing
from kafkalite.replica.throttle import NO_RATE, Throttle, is_listed, is_throttled
from kafkalite.rpc.messages.replication import (
    ReplicaFetchedPartition,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchWake,
)
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Sessions at once; the longest silent one makes room.
MAX_SESSIONS = 1_000
#: Records of one answer, whatever is asked for, unless one batch has more (2 GiB): a frame has room for both.
_MAX_ANSWER_BYTES = 1 << 30
#: Until a partition is read again for which descriptors or memory were short.
_SHORTAGE_PAUSE_MS = 100
#: Reads up to this size are kept for the next follower.
_KEPT_BYTES = 64 * 1024


class ReplicaFetchHandler:
    """All sessions of followers with this node as the leader.

    Args:
        on_caught_up: a follower outside the ISR may be ready to join it.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        metadata: MetadataCache,
        cold: ColdReads,
        *,
        response_max_bytes: int,
        on_caught_up: Callable[[Partition], None],
    ) -> None:
        self._hosted = hosted
        self._metadata = metadata
        self._cold = cold
        self._response_max_bytes = response_max_bytes
        self._on_caught_up = on_caught_up
        self._sessions: dict[int, ReplicaFetchSession] = {}
        self._next_session_id = 1
        self._throttle = Throttle()
        self._last_question: tuple[object, ...] = ()
        self._last_read: ReadInfo | None = None
        #: leader.replication.throttled.rate: bytes/s of what this node leads, for topics that list it.
        self.throttled_rate = NO_RATE

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(self, request: ReplicaFetchRequest, done: ReplicaFetchDone) -> None:
        """Call `done` once: at once if there is something to return, or after max_wait_ms."""
        if self._metadata.broker_epochs.get(request.replica_id, NO_BROKER_EPOCH) > request.broker_epoch:
            done(_failed(ErrorCode.STALE_BROKER_EPOCH), [])  # an earlier incarnation of that broker (invariant F15)
            return
        now_ms = self._hosted.now_ms()
        if request.session_id == 0:
            session = self._open(request)
        else:
            found = self._sessions.get(request.session_id)
            if found is None or found.replica_id != request.replica_id or found.broker_epoch != request.broker_epoch:
                done(_failed(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), [])
                return
            if found.epoch + 1 != request.session_epoch:
                done(_failed(ErrorCode.INVALID_FETCH_SESSION_EPOCH), [])
                return
            session = found
            if session.done is not None:
                self._answer(session)
            session.epoch = request.session_epoch
        session.last_fetch_ms = now_ms
        for topic, number in request.forgotten:
            entry = session.entries.get(TopicPartition(topic, number))
            if entry is not None:
                session.drop(entry)
        moved: list[Partition] = []
        for wanted in request.partitions:
            partition = self._list(session, wanted, now_ms)
            if partition is not None:
                moved.append(partition)
        session.done = done
        session.min_bytes = max(request.min_bytes, 1)
        session.max_bytes = min(request.max_bytes, self._response_max_bytes, _MAX_ANSWER_BYTES)
        session.pending_bytes = 0
        # Marks first, watermarks then: a produce that is acked in there may append, which must find the session whole.
        for partition in moved:
            self._hosted.advance(partition)
        if session.done is not done:  # answered meanwhile
            return
        if session.answers or session.with_records or request.session_id == 0 or request.max_wait_ms <= 0:
            self._answer(session)
        else:
            self._hosted.wheel.add(session, request.max_wait_ms)

    def wake(self, message: ReplicaFetchWake) -> None:
        """The follower has changes to send: its waiting fetch is answered as it is."""
        session = self._sessions.get(message.session_id)
        if session is not None:
            self._hosted.wake(session)

    def expire(self, silent_ms: int) -> None:
        """Remove sessions that have been inactive for this time, and those of earlier broker epochs."""
        now_ms = self._hosted.now_ms()
        for session in list(self._sessions.values()):
            is_old = self._metadata.broker_epochs.get(session.replica_id, NO_BROKER_EPOCH) > session.broker_epoch
            if is_old or now_ms - session.last_fetch_ms > silent_ms:
                self._close(session)
        throttled = {
            p.topic_partition
            for p in self._hosted.all()
            if p.leader is not None and (p.throttle or p.config.leader_replication_throttled_replicas)
        }
        self._throttle.retain(throttled)

    def close(self) -> None:
        """Answer and forget every session."""
        for session in list(self._sessions.values()):
            self._close(session)

    def _open(self, request: ReplicaFetchRequest) -> ReplicaFetchSession:
        if len(self._sessions) >= MAX_SESSIONS:
            self._close(min(self._sessions.values(), key=lambda session: (session.last_fetch_ms, session.session_id)))
        session = ReplicaFetchSession(self._next_session_id, request.replica_id, request.broker_epoch, self._answer)
        self._sessions[session.session_id] = session
        self._next_session_id += 1
        return session

    def _close(self, session: ReplicaFetchSession) -> None:
        self._sessions.pop(session.session_id, None)
        for entry in list(session.entries.values()):
            session.drop(entry)
        self._answer(session)

    def _list(self, session: ReplicaFetchSession, wanted: ReplicaFetchPartition, now_ms: int) -> Partition | None:
        """Take in one listed partition; returns it if its high watermark may move now."""
        key = new_topic_partition((wanted.topic, wanted.partition))
        partition = self._hosted.get(key)
        error = self._refusal(partition, session.replica_id, wanted)
        if error is not NO_ERROR or partition is None:
            stale = session.entries.get(key)
            if stale is not None:
                session.drop(stale)
            session.answers.append(_refused(key, error))
            return None
        leader = partition.leader
        assert leader is not None
        entry = session.entries.get(key)
        if entry is None or entry.partition is not partition:
            entry = self._enter(session, partition)
        log = partition.log
        entry.fetch_offset = wanted.fetch_offset
        entry.max_bytes = wanted.max_bytes
        entry.is_sent = False
        divergence = find_divergence(
            log.epoch_and_end_offset_for,
            latest_epoch=log.latest_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            fetch_offset=wanted.fetch_offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
        )
        if divergence is not None:
            self._report_divergence(session, entry, divergence)
            return None
        on_follower_fetch(
            leader,
            session.replica_id,
            fetch_offset=wanted.fetch_offset,
            broker_epoch=session.broker_epoch,
            at_ms=now_ms,
            log_start_offset=wanted.log_start_offset,
        )
        self._hosted.settle_starts(partition)
        if wanted.fetch_offset < log.log_end_offset and not entry.is_held_back:
            session.with_records[entry] = None
        else:
            session.with_records.pop(entry, None)
        if entry.sent_high_watermark != leader.high_watermark or entry.sent_log_start != log.log_start_offset:
            session.with_news[entry] = None
        if session.replica_id not in leader.maximal_isr:
            self._on_caught_up(partition)
        return partition

    def _enter(self, session: ReplicaFetchSession, partition: Partition) -> SessionEntry:
        """A new entry; the same follower's entry in another session of it is superseded.

        If that session is the newer one, it hears of it: this may be a late request of a connection that is over, and without a
        word the follower would wait for ever. (Or the partition moves between its fetchers; then the word means nothing.)
        """
        before = partition.entries.get(session.replica_id)
        if before is not None:
            other = before.session
            other.drop(before)
            if other.session_id > session.session_id:
                other.answers.append(_refused(partition.topic_partition, ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
                self._hosted.wake(other)
        entry = SessionEntry(session, partition)
        session.entries[partition.topic_partition] = entry
        partition.entries[session.replica_id] = entry
        return entry

    def _refusal(self, partition: Partition | None, replica_id: BrokerId, wanted: ReplicaFetchPartition) -> ErrorCode:
        if partition is None or partition.leader is None:
            return missing(self._hosted, self._metadata, TopicPartition(wanted.topic, wanted.partition))
        if NO_TOPIC_ID not in (wanted.topic_id, partition.topic_id) and wanted.topic_id != partition.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if error := partition.epoch_error(wanted.leader_epoch):
            return error
        if replica_id not in partition.leader.followers:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return NO_ERROR

    def _report_divergence(
        self, session: ReplicaFetchSession, entry: SessionEntry, divergence: Divergence | OutOfRange
    ) -> None:
        partition = entry.partition
        topic, number = partition.topic_partition
        entry.is_sent = True
        session.with_records.pop(entry, None)
        mark, start = partition.high_watermark, partition.log.log_start_offset
        if isinstance(divergence, OutOfRange):
            answer = ReplicaFetchedPartition(topic, number, ErrorCode.OFFSET_OUT_OF_RANGE, mark, start, 0)
        else:
            answer = ReplicaFetchedPartition(
                topic, number, NO_ERROR, mark, start, 0, divergence.epoch, divergence.end_offset
            )
        session.answers.append(answer)

    def _answer(self, session: ReplicaFetchSession) -> None:
        """Answer the session's waiting fetch, if one waits, with all that is new for it up to its size limit."""
        session.is_waking = False
        done = session.done
        if done is None:
            return
        session.done = None
        self._hosted.wheel.discard(session)
        answers, session.answers = session.answers, []
        body: list[Buffer] = []
        left = session.max_bytes
        for entry in list(session.with_records):
            if left <= 0:
                break
            if entry not in session.with_records:  # its disk has failed with the read before
                continue
            size_bytes = self._read(session, entry, left, body, answers)
            left -= size_bytes
        news, session.with_news = session.with_news, {}
        for entry in news:
            answers.append(_fetched_partition(entry, 0))
        done(ReplicaFetchResponse(NO_ERROR, session.session_id, tuple(answers)), body)

    def _read(
        self,
        session: ReplicaFetchSession,
        entry: SessionEntry,
        left: int,
        body: list[Buffer],
        answers: list[ReplicaFetchedPartition],
    ) -> int:
        """Add one partition's records to the answer; returns their size. What does not fit stays for the next one."""
        partition = entry.partition
        log = partition.log
        is_slowed = self._is_slowed(partition, session.replica_id)
        if is_slowed:
            wait_ms = self._wait_ms(session, entry)
            if wait_ms:
                self._hold_back(session, entry, wait_ms)
                return 0
        try:
            if entry.fetch_offset < log.log_start_offset:  # retention was faster
                self._report_divergence(session, entry, OutOfRange())
                answers.append(session.answers.pop())
                return 0
            # A follower checks every CRC itself before it appends; one that copies old records would ask for damaged ones
            # for ever.
            is_copying = session.replica_id not in partition.current_isr
            limit = min(entry.max_bytes, left)
            if is_slowed:
                limit = min(limit, self._throttle.allowance)
            is_first = is_slowed or not body
            info = self._read_once(
                log,
                entry.fetch_offset,
                limit,
                is_first=is_first,
                verify=is_copying,
                may_wait=entry.cold_reads >= ATTEMPTS,
            )
            entry.cold_reads = 0
        except NotResident as missing:
            self._load(session, entry, missing)
            return 0
        except StorageError as failure:
            self._hosted.fail_storage(partition, failure)
            answers.extend(session.answers)
            session.answers = []
            if partition.storage_error is None:
                # Descriptors or memory are short: the follower would ask again at once, for ever.
                self._hold_back(session, entry, _SHORTAGE_PAUSE_MS)
            return 0
        except ApiError as failure:
            if give_up_damaged(self._hosted, self._metadata, partition, failure):
                answers.extend(session.answers)
                session.answers = []
                return 0
            suppressed = self._hosted.repeats.admit(("unreadable", partition.topic_partition))
            if suppressed is not None:
                _log.error(
                    "replica.unreadable",
                    partition=str(partition.topic_partition),
                    error=str(failure),
                    suppressed=suppressed,
                )
            session.drop(entry)
            answers.append(_refused(partition.topic_partition, failure.code))
            return 0
        if info.size_bytes == 0 and entry.fetch_offset < log.log_end_offset:
            return 0  # the next batch is larger than what is left: next time it is first
        del session.with_records[entry]
        if info.size_bytes == 0:
            return 0
        if is_slowed:
            self._throttle.take(info.size_bytes)
        entry.is_sent = True
        session.with_news.pop(entry, None)
        body.extend(info.records)
        answers.append(_fetched_partition(entry, info.size_bytes))
        self._hosted.counters.replication_bytes_out += info.size_bytes
        return info.size_bytes

    def _read_once(
        self, log: PartitionLog, offset: Offset, limit: int, *, is_first: bool, verify: bool, may_wait: bool
    ) -> ReadInfo:
        """What the other follower has just got is not read a second time: most answers to two followers are the same."""
        question = (log, offset, log.log_end_offset, log.changes, limit, is_first, verify)
        if self._last_question == question and self._last_read is not None:
            return self._last_read
        info = log.read(offset, limit, min_one_batch=is_first, verify=verify, may_wait=may_wait)
        if info.size_bytes <= _KEPT_BYTES:
            self._last_question, self._last_read = question, info
        return info

    # --- throttled replicas --------------------------------------------------------------------

    def _is_slowed(self, partition: Partition, replica_id: BrokerId) -> bool:
        leader = partition.leader
        if leader is None or replica_id in leader.maximal_isr:
            return False
        if is_throttled(partition.throttle, replica_id, leader.maximal_isr, partition.adding_replicas):
            return True
        listed = partition.config.leader_replication_throttled_replicas
        return self.throttled_rate < NO_RATE and is_listed(
            listed, partition.topic_partition.partition, leader.broker_id
        )

    def _wait_ms(self, session: ReplicaFetchSession, entry: SessionEntry) -> int:
        partition = entry.partition
        now_ms = self._hosted.now_ms()
        lag = partition.log.log_end_offset - entry.fetch_offset
        key = partition.topic_partition
        ordered = partition.throttle or self.throttled_rate
        rate = self._throttle.rate(key, session.replica_id, ordered, lag=lag, now_ms=now_ms)
        return self._throttle.wait_ms(rate, now_ms)

    def _hold_back(self, session: ReplicaFetchSession, entry: SessionEntry, wait_ms: int) -> None:
        """Its records wait; what else the session has goes on."""
        session.with_records.pop(entry, None)
        entry.is_held_back = True
        asyncio.get_running_loop().call_later(wait_ms / 1000, self._let_go, entry)

    def _load(self, session: ReplicaFetchSession, entry: SessionEntry, missing: NotResident) -> None:
        """Its records come from the disk first; what else the session has goes on."""
        session.with_records.pop(entry, None)
        entry.is_held_back = True
        entry.cold_reads += 1
        directory = entry.partition.log.directory
        self._cold.then(("replica", session.replica_id), directory, missing, lambda: self._let_go(entry))

    def _let_go(self, entry: SessionEntry) -> None:
        entry.is_held_back = False
        session, partition = entry.session, entry.partition
        if session.entries.get(partition.topic_partition) is not entry or entry.is_sent:
            return
        if partition.storage_error is None and entry.fetch_offset < partition.log.log_end_offset:
            session.with_records[entry] = None
            self._hosted.wake(session)


def _fetched_partition(entry: SessionEntry, records_size: int) -> ReplicaFetchedPartition:
    partition = entry.partition
    topic, number = partition.topic_partition
    leader = partition.leader
    assert leader is not None
    entry.sent_high_watermark = leader.high_watermark
    entry.sent_log_start = partition.log.log_start_offset
    return ReplicaFetchedPartition(
        topic,
        number,
        NO_ERROR,
        entry.sent_high_watermark,
        entry.sent_log_start,
        records_size,
        epoch_start_offset=leader.epoch_start_offset,
    )


def _refused(key: TopicPartition, error: ErrorCode) -> ReplicaFetchedPartition:
    return ReplicaFetchedPartition(key.topic, key.partition, error, NO_OFFSET, NO_OFFSET, 0)


def _failed(error: ErrorCode) -> ReplicaFetchResponse:
    return ReplicaFetchResponse(error, 0, ())
