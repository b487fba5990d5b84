"""The partitions that this node hosts, and what happens to those who wait when one of them moves.

Every append and every move of a high watermark goes through here, whichever request caused it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from typing import Protocol

from kafkalite.coordination.session import SessionKeeper
from kafkalite.env.pulse import Pulse
from kafkalite.env.seams import Clock
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ErrorCode, StorageError, api_error
from kafkalite.log.failures import FaultScope, fault_scope
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import BrokerId, Offset, TopicPartition
from kafkalite.replica import authority, purgatory
from kafkalite.replica.counters import Counters, Traffic
from kafkalite.replica.decisions.leader import low_watermark, next_high_watermark, on_append, on_flushed, on_idle_fetch
from kafkalite.replica.fetch_session import ReplicaFetchSession
from kafkalite.replica.partition import Partition
from kafkalite.replica.purgatory import DeadlineWheel
from kafkalite.rpc.messages.replication import ReplicaFetchedPartition
from kafkalite.security.fair_room import FairRoom
from kafkalite.telemetry.history import History
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

#: The pause after a flush that found no descriptor or no memory.
SHORTAGE_PAUSE_S = 0.5
#: The pause before a fenced node checks again whether it may commit.
FENCE_RECHECK_S = 0.05
#: For this time (ms) after a consumer was sent to a follower, it may read there without asking the leader again: twice
#: the default of metadata.max.age.ms, after which consumers ask.
READ_ELSEWHERE_MS = 600_000
#: Partitions looked at between two yields: well below a millisecond.
_STEP = 200


class ReplicaEvents(Protocol):
    """Receives what happens to hosted replicas."""

    def replica_offline(self, partition: Partition, error: StorageError) -> None:
        """Called once for each replica that goes offline."""

    def log_synced(self, partition: Partition) -> None:
        """A follower's log is on the disk as far as it goes."""

    def start_moved(self, partition: Partition) -> None:
        """The log start has to become durable; then call `start_saved`."""


class HostedPartitions:
    """Partition -> its replica here.

    Args:
        session: not usable while it may have expired; then `authority` decides (fenced).
        trust_ms: how recent a follower's fetch must be to count there.
        silence_ms: a leader that no follower has asked for longer may be one that the controller has replaced.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        supervisor: Supervisor,
        session: SessionKeeper,
        trust_ms: int,
        silence_ms: int,
        events: ReplicaEvents,
    ) -> None:
        self._clock = clock
        self._supervisor = supervisor
        self._events = events
        self.monotonic = clock.monotonic
        self.usable = session.usable
        self.trust_ms = trust_ms
        self._silence_ms = silence_ms
        #: For lines that come for every partition, or with every request.
        self.repeats = Repeats(clock.monotonic)
        self.wheel = DeadlineWheel()
        #: How many of the operations in it are long polls of consumers, and whose. They keep nobody from writing, and no other user from waiting.
        self.long_polls = FairRoom(lambda: purgatory.MAX_WAITING)
        #: The partitions that they wait for, but for those of sessions.
        self.polled = FairRoom(lambda: purgatory.MAX_POLLED)
        self.counters = Counters()
        self.history = History(clock.wall_ms)
        self._partitions: dict[TopicPartition, Partition] = {}
        #: Look one up.
        self.get = self._partitions.get
        self._by_topic: dict[str, dict[int, Partition]] = {}
        #: Topic -> what partitions had counted that have left; as long as others of the topic are here.
        self._left_behind: dict[str, Traffic] = {}
        #: Those whose high watermark may move as soon as the node is no longer fenced.
        self._withheld: dict[Partition, None] = {}
        #: Beats whenever this node begins or ends to lead a partition.
        self.leadership = Pulse()
        self._recheck: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        """The monotonic clock of all lag bookkeeping."""
        return int(self._clock.monotonic() * 1000)

    def all(self) -> list[Partition]:
        """A copy, in the order of being added."""
        return list(self._partitions.values())

    def in_order(self) -> Iterator[Partition]:
        """By topic, then number; for a look at all of them in steps: what goes between two of them is left out."""
        for topic in sorted(self._by_topic):
            for partition in self.of_topic(topic):
                if self._partitions.get(partition.topic_partition) is partition:
                    yield partition

    def of_topic(self, topic: str) -> list[Partition]:
        """In the order of their numbers."""
        members = self._by_topic.get(topic, {})
        return [members[number] for number in sorted(members)]

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition) -> None:
        key = partition.topic_partition
        assert key not in self._partitions, f"{key} is hosted already"
        self._partitions[key] = partition
        self._by_topic.setdefault(key.topic, {})[key.partition] = partition

    def remove(self, partition: Partition) -> None:
        """Forget it; its waiters were failed before, and consumers that watch it look for another one."""
        key = partition.topic_partition
        assert partition.leader is None
        del self._partitions[key]
        members = self._by_topic[key.topic]
        del members[key.partition]
        if members:
            self._left_behind[key.topic] = self._left_behind.get(key.topic, Traffic()).and_of(partition)
        else:
            del self._by_topic[key.topic]
            self._left_behind.pop(key.topic, None)
        self._withheld.pop(partition, None)
        for watching in partition.fetch_waiters:
            watching.on_change()
            watching.partition = None
        partition.fetch_waiters = {}

    def traffic(self) -> Generator[None, None, dict[str, Traffic]]:
        """By topic: of all its partitions, led or not, while any of them is here, so that it never goes back. In steps."""
        found: dict[str, Traffic] = {}
        number = 0
        for topic in list(self._by_topic):
            # Both in one moment: a partition that leaves after it counts as one that is here.
            before, partitions = self._left_behind.get(topic), list(self._by_topic.get(topic, {}).values())
            is_shown = before is not None
            bytes_in, bytes_out, messages_in, messages_out = before or Traffic()
            for partition in partitions:
                number += 1
                if partition.appended_bytes or partition.fetched_bytes or partition.leader is not None:
                    is_shown = True
                    bytes_in += partition.appended_bytes
                    bytes_out += partition.fetched_bytes
                    messages_in += partition.appended_records
                    messages_out += partition.fetched_records
                if not number % _STEP:
                    yield
            if is_shown:
                found[topic] = Traffic(bytes_in, bytes_out, messages_in, messages_out)
        return found

    # --- appending and committing --------------------------------------------------------------

    def appended(self, partition: Partition, log_end_offset: Offset, size_bytes: int) -> None:
        """The leader's log has grown: followers that wait are woken, a flush is begun if acks need it."""
        leader = partition.leader
        assert leader is not None
        for replica_id, entry in partition.entries.items():
            session = entry.session
            on_idle_fetch(leader, leader.followers[replica_id], session.last_fetch_ms)
            if entry.is_sent or entry.is_held_back:
                continue
            session.with_records[entry] = None
            if session.done is not None:
                session.pending_bytes += size_bytes
                if session.pending_bytes >= session.min_bytes:
                    self.wake(session)
        partition.appended_bytes += size_bytes
        self.counters.bytes_in += size_bytes
        records = log_end_offset - leader.log_end_offset
        partition.appended_records += records
        self.counters.messages_in += records
        is_flush_needed = partition.config.log_flush_before_ack
        on_append(leader, log_end_offset, is_flush_needed=is_flush_needed)
        if is_flush_needed:
            self.ensure_flushing(partition)
        self.advance(partition)

    def producers_dropped(self, partition: Partition, count: int) -> None:
        """Idempotent producers were forgotten to keep within a limit (max.producer.ids, max.producer.ids.per.broker)."""
        self.counters.dropped_producers += count
        if partition.leader is None:
            return  # the leader says so, and knows the client
        suppressed = self.repeats.admit(("producers_dropped", partition.topic_partition.topic))
        if suppressed is not None:
            _log.warning(
                "producers.dropped",
                partition=str(partition.topic_partition),
                kept=len(partition.log.active_producers()),
                newest_of=partition.newest_client or "nobody since the start",
                suppressed=suppressed,
            )

    def is_synced(self, partition: Partition) -> bool:
        """Whether a follower may report its LEO. If acks need a flush that is missing, it begins, and the report follows it."""
        if not partition.config.log_flush_before_ack or partition.log.synced_offset >= partition.log.log_end_offset:
            return True
        self.ensure_flushing(partition)
        return False

    def ensure_flushing(self, partition: Partition) -> None:
        """Bring the log to the disk, off the loop."""
        if not partition.is_flushing:
            partition.is_flushing = True
            self._supervisor.spawn(f"replica.flush[{partition.topic_partition}]", self._flush(partition))

    async def _flush(self, partition: Partition) -> None:
        """Flush until all that was appended is on the disk: one fsync serves all appends since the one before."""
        try:
            while True:
                log = partition.log
                try:
                    synced = await log.flush()
                except StorageError as error:
                    if partition.log is not log:  # it has moved to another disk meanwhile
                        continue
                    if fault_scope(error) is not FaultScope.SHORTAGE or log.is_failed:
                        raise
                    await asyncio.sleep(SHORTAGE_PAUSE_S)
                    if partition.storage_error is not None or self.get(partition.topic_partition) is not partition:
                        return
                    continue
                if partition.log is not log:
                    continue
                if partition.leader is not None:
                    on_flushed(partition.leader, synced)
                    self.advance(partition)
                if synced >= log.log_end_offset or partition.storage_error is not None:
                    break
        except StorageError as error:
            if self.get(partition.topic_partition) is partition:  # else it was stopped meanwhile
                self.fail_storage(partition, error)
        finally:
            partition.is_flushing = False
        if partition.leader is None and partition.storage_error is None:
            self._events.log_synced(partition)

    def advance(self, partition: Partition) -> None:
        """Let the high watermark go as far as it may, and serve all that waited for it."""
        leader = partition.leader
        if leader is None:
            return
        mark = next_high_watermark(leader)
        before = leader.high_watermark
        if mark == before:
            return
        if not authority.may_commit(leader) and not self.usable():
            self._withhold(partition)
            return
        leader.high_watermark = mark
        partition.log.forget_ended(mark)
        if mark == leader.log_end_offset:
            readable = partition.appended_bytes
        else:
            share = (mark - before) / (leader.log_end_offset - before)
            readable = partition.readable_bytes + int((partition.appended_bytes - partition.readable_bytes) * share)
        grown = readable - partition.readable_bytes
        partition.readable_bytes = readable
        for replica_id, entry in partition.entries.items():
            if not entry.is_sent:
                entry.session.with_news[entry] = None
                if partition.read_at and partition.read_at.get(replica_id, 0) > self.now_ms():
                    self.wake(entry.session)
        waiters = partition.produce_waiters
        while waiters and waiters[0].required_offset <= leader.high_watermark:
            waiters.popleft().settle()
        if partition.fetch_waiters:
            partition.serve_readers(max(grown, 1))

    def is_read_at(self, partition: Partition, replica_id: BrokerId) -> None:
        """Consumers read at this follower from now on: it gets each new high watermark at once (KIP-392)."""
        partition.read_at[replica_id] = self.now_ms() + READ_ELSEWHERE_MS

    def follower_advanced(self, partition: Partition, before: Offset, size_bytes: int) -> None:
        """The replica has copied `size_bytes`, or got another high watermark: consumers may read on here."""
        partition.copied_bytes += size_bytes
        mark, end = partition.follower_high_watermark, partition.log.log_end_offset
        if mark <= before:
            return
        grown = partition.copied_bytes
        if mark < end:
            grown = int(grown * (mark - before) / (end - before))
        partition.copied_bytes -= grown
        partition.serve_readers(max(grown, 1))

    def changed(self, partition: Partition) -> None:
        """Consumers that read here may have to go elsewhere."""
        for watching in partition.fetch_waiters:
            watching.on_change()

    def refusal(self, partition: Partition, acks: int) -> str:
        """Why this node, without a lease, takes no records for a partition that it leads; empty if it does."""
        return authority.refusal(partition, acks=acks, at_ms=self.now_ms(), within_ms=self.trust_ms)

    def may_be_replaced(self, partition: Partition) -> bool:
        """Whether another node may lead by now: nobody follows, or there is no lease and `refusal`."""
        if authority.is_alone(partition, at_ms=self.now_ms(), within_ms=self._silence_ms):
            return True
        return not self.usable() and bool(self.refusal(partition, -1))

    def serves(self) -> Generator[None, None, bool]:
        """False: this node leads partitions, and none of them accepts records. In steps."""
        leads = False
        if self.usable():
            return True
        for number, partition in enumerate(self.all(), 1):
            if partition.leader is not None:
                leads = True
                if not self.refusal(partition, -1):
                    return True
            if not number % _STEP:
                yield
        return not leads

    def _withhold(self, partition: Partition) -> None:
        """Fenced: remember it until the lease is back."""
        self._withheld[partition] = None
        if self._recheck is None:
            self._recheck = asyncio.get_running_loop().call_later(FENCE_RECHECK_S, self._release_withheld)

    def _release_withheld(self) -> None:
        self._recheck = None
        if not self._withheld:
            return
        if not self.usable():
            self._recheck = asyncio.get_running_loop().call_later(FENCE_RECHECK_S, self._release_withheld)
            return
        withheld, self._withheld = self._withheld, {}
        for partition in withheld:
            self.advance(partition)

    def wake(self, session: ReplicaFetchSession) -> None:
        """Answer the session's waiting fetch after what is under way now, once for all appends of this wake-up."""
        if session.done is not None and not session.is_waking:
            session.is_waking = True
            asyncio.get_running_loop().call_soon(session.expire)

    # --- deleting records ------------------------------------------------------------------------

    def delete_records(self, partition: Partition, before: Offset) -> asyncio.Future[Offset]:
        """Begin the log at `before` or behind it. The future gets the log start when neither a failover nor the death of every
        replica can bring the records back.

        Raises StorageError, after the replica went offline.
        """
        assert partition.leader is not None
        try:
            partition.log.advance_log_start_offset(before)
        except StorageError as error:
            self.fail_storage(partition, error)
            raise
        waiter: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        partition.start_waiters = [each for each in partition.start_waiters if not each[1].done()]
        partition.start_waiters.append((before, waiter))
        self.start_moved(partition)
        for watching in partition.fetch_waiters:
            watching.on_news()
        for entry in partition.entries.values():
            if not entry.is_sent:
                entry.session.with_news[entry] = None
                self.wake(entry.session)
        self.settle_starts(partition)
        return waiter

    def start_moved(self, partition: Partition) -> None:
        """The log start of a replica has moved: it becomes durable soon, then `start_saved` is called."""
        self._events.start_moved(partition)

    def start_saved(self, partition: Partition) -> None:
        """The log start of a replica is durable."""
        if self.get(partition.topic_partition) is not partition or partition.storage_error is not None:
            return
        for watching in partition.fetch_waiters:
            watching.on_news()
        if partition.leader is not None:
            self.settle_starts(partition)
        else:
            self._events.log_synced(partition)

    def settle_starts(self, partition: Partition) -> None:
        """The own log start is durable, a follower has reported its own, or the ISR has changed."""
        if not partition.start_waiters or partition.leader is None:
            return
        mark = low_watermark(partition.leader, partition.log.durable_start_offset)
        waiting = partition.start_waiters
        partition.start_waiters = [each for each in waiting if each[0] > mark]
        for before, waiter in waiting:
            if before <= mark and not waiter.done():
                waiter.set_result(partition.log.log_start_offset)

    def _fail_start_waiters(self, partition: Partition, error: ErrorCode) -> None:
        waiting, partition.start_waiters = partition.start_waiters, []
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(api_error(error))

    # --- losing a role -------------------------------------------------------------------------

    def fail_produce_waiters(self, partition: Partition, error: ErrorCode) -> None:
        """All requests that wait for acks on this partition are answered at once (invariant F30)."""
        waiters = list(partition.produce_waiters)
        partition.produce_waiters.clear()
        for waiter in waiters:
            waiter.settle(error)

    def drop_entries(self, partition: Partition, error: ErrorCode) -> None:
        """Followers listed it under a leadership that is over; each gets `error` once. NONE: they know."""
        for entry in list(partition.entries.values()):
            session = entry.session
            session.drop(entry)
            if error is not ErrorCode.NONE:
                topic, number = partition.topic_partition
                session.answers.append(ReplicaFetchedPartition(topic, number, error, Offset(-1), Offset(-1), 0))
                self.wake(session)

    def demote(self, partition: Partition, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """This node does not lead the partition any more (if it did)."""
        leader = partition.leader
        if leader is None:
            return
        partition.follower_high_watermark = leader.high_watermark
        partition.isr = leader.committed_isr
        partition.elr = leader.elr
        partition.leader = None
        self.leadership.beat()
        partition.read_at = {}
        self._withheld.pop(partition, None)
        self.fail_produce_waiters(partition, error)
        self._fail_start_waiters(partition, error)
        self.drop_entries(partition, error)
        self.changed(partition)

    def record(self, partition: Partition, what: str, detail: str) -> None:
        """One event, for `admin why`."""
        self.history.record(str(partition.topic_partition), what, detail, topic_id=partition.topic_id)

    def resign(self, partition: Partition, reason: str) -> None:
        """Stop acting as the leader without a command; the command may still come, with the same epoch."""
        if partition.leader is not None:
            # A lost session ends thousands of leaderships at once.
            suppressed = self.repeats.admit(("resigned", reason))
            if suppressed is not None:
                _log.warning(
                    "replica.resigned", partition=str(partition.topic_partition), reason=reason, suppressed=suppressed
                )
            self.record(partition, "replica.resigned", reason)
            partition.is_settled = False
            self.demote(partition)

    def exchanged(self, old: PartitionLog, new: PartitionLog) -> None:
        """The replica goes on with another log that holds the same: it has moved to another disk."""
        partition = self._partitions.get(old.topic_partition)
        if partition is not None and partition.log is old:
            partition.log = new
            self.start_moved(partition)

    def fail_storage(self, partition: Partition, error: StorageError, *, is_certain: bool = False) -> None:
        """The replica goes offline (KIP-18); the node decides what else that means.

        If descriptors or memory are short and the log is unchanged, only this operation fails.

        Args:
            is_certain: whatever the error is: the replica could not take its role.
        """
        if partition.storage_error is not None:
            return
        if fault_scope(error) is FaultScope.SHORTAGE and not partition.log.is_failed and not is_certain:
            suppressed = self.repeats.admit(("refused", partition.topic_partition))
            if suppressed is not None:
                name = str(partition.topic_partition)
                _log.warning("replica.operation_refused", partition=name, error=str(error), suppressed=suppressed)
            return
        partition.storage_error = error
        # One of thousands that go with their disk says nothing more than the disk's own line, and holds up the others.
        log = _log.debug if error.path == error.directory else _log.error
        log(
            "replica.offline",
            partition=str(partition.topic_partition),
            directory=error.directory,
            path=error.path,
            error=str(error),
        )
        self.record(partition, "replica.offline", f"{error.directory}: {error}")
        self.demote(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        self.changed(partition)
        self._events.replica_offline(partition, error)

    def close(self) -> None:
        """The node stops: everybody who still waits is answered."""
        if self._recheck is not None:
            self._recheck.cancel()
        for partition in self.all():
            self.fail_produce_waiters(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._fail_start_waiters(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wheel.expire_all()
