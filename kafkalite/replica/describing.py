"""What this node can report to people about its replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite.env.seams import Clock
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.topics import DescribeReplicasResponse, ReplicaDescription, ReplicaProgress
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    NO_LEADER,
    NO_OFFSET,
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    TopicId,
    TopicPartition,
    is_under_replicated,
)
from kafkalite.replica import doubts
from kafkalite.replica.decisions.isr import holding_up
from kafkalite.replica.decisions.leader import NEVER_MS, PartitionLeader, on_idle_fetch
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.offline_replicas import OfflineReplicas
from kafkalite.replica.open_transactions import OpenTransactions
from kafkalite.replica.partition import Partition
from kafkalite.replica.stray_logs import StrayLogs
from kafkalite.telemetry.history import Event
from kafkalite.wording import number_of

if TYPE_CHECKING:
    from kafkalite.log.log_manager import LogManager

#: Maximum number of problems of one kind that are listed individually; the rest is counted.
MAX_DETAILS = 20
#: Replicas described between two yields, and looked at: about half a millisecond.
_STEP = 100
_LOOKED_AT = 200
#: Digits of a partition's number: it has 32 bits.
_MAX_DIGITS = 11
#: The share of replica.lag.time.max.ms after which a member of the ISR that holds up acks=all is reported: a follower without a problem takes far less.
_SLOW_SHARE = 3

#: Problems that come and go with roles and ISRs.
_STANDINGS = _OFFLINE, _UNDER_MIN_ISR, _UNDER_REPLICATED = (
    "partition.offline", "partition.under_min_isr", "partition.under_replicated",
)  # fmt: skip


#: Kafka's names of counts.
_TOTALS = (
    "PartitionCount",
    "LeaderCount",
    "UnderReplicatedPartitions",
    "UnderMinIsrPartitionCount",
    "AtMinIsrPartitionCount",
    "OfflineReplicaCount",
    "PartitionsWithLateTransactionsCount",
    "ProducerIdCount",
)


@dataclass(slots=True)
class Figures:
    """Of the replicas here, for metrics. By topic: bytes and segments of their logs. In records: how far the slowest follower here, and the slowest
    follower of a partition led here, is behind."""

    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOTALS, 0))
    size_bytes: dict[str, int] = field(default_factory=dict)
    segments: dict[str, int] = field(default_factory=dict)
    fetch_lag: int = 0
    follower_lag: int = 0


@dataclass(slots=True)
class _Kind:
    """The problems of one kind: the first ones, and how many more, with the time of the earliest of these."""

    subjects: set[str] = field(default_factory=set)
    listed: list[tuple[str, str]] = field(default_factory=list)
    more: int = 0
    more_since_ms: int = 0

    def add(self, subject: str, detail: str, since_ms: int) -> None:
        self.subjects.add(subject)
        if len(self.listed) < MAX_DETAILS:
            self.listed.append((subject, detail))
        else:
            self.more_since_ms = min(self.more_since_ms, since_ms) if self.more else since_ms
            self.more += 1


class Describing:
    """Read-only, but for remembering since when a problem has stood."""

    def __init__(
        self,
        *,
        hosted: HostedPartitions,
        strays: StrayLogs,
        offline_replicas: OfflineReplicas,
        logs: LogManager,
        metadata: MetadataCache,
        open_transactions: OpenTransactions,
        clock: Clock,
        identity: Callable[[], tuple[BrokerId, BrokerEpoch]],
        lag_time_max_ms: int,
    ) -> None:
        self._logs = logs
        self._metadata = metadata
        self._hosted = hosted
        self._strays = strays
        self._offline_replicas = offline_replicas
        self._open_transactions = open_transactions
        self._clock = clock
        self._identity = identity
        self._slow_ms = lag_time_max_ms // _SLOW_SHARE
        #: Kind of a problem -> its subjects.
        self._since: dict[str, dict[str, int]] = {}
        hosted.history.listeners.append(self._happened)

    def describe(
        self, topics: Sequence[str], partitions: Sequence[tuple[str, int]] = ()
    ) -> Generator[None, None, DescribeReplicasResponse]:
        """Every replica hosted here, those of `topics`, or of them only `partitions` (invariant 12). In steps: anybody may ask, and a node may have
        many replicas."""
        broker_id, broker_epoch = self._identity()
        if partitions:
            found = [self._hosted.get(TopicPartition(topic, number)) for topic, number in sorted(set(partitions))]
            chosen = [partition for partition in found if partition is not None]
        elif topics:
            chosen = [p for t in sorted(set(topics)) for p in self._hosted.of_topic(t)]
        else:
            chosen = self._hosted.all()
        chosen.sort(key=lambda partition: partition.topic_partition)
        replicas: list[ReplicaDescription] = []
        for number, partition in enumerate(chosen, 1):
            if self._hosted.get(partition.topic_partition) is partition:  # else it has gone since the first step
                replicas.append(self._one(partition))
            if not number % _STEP:
                yield
        return DescribeReplicasResponse(broker_id, broker_epoch, tuple(replicas))

    def _one(self, partition: Partition) -> ReplicaDescription:
        topic, number = partition.topic_partition
        leader = partition.leader
        log = partition.log
        is_usable = partition.storage_error is None
        transactions = self._open_transactions.of(partition)
        followers: list[ReplicaProgress] = []
        if leader is not None:
            now_ms = self._hosted.now_ms()
            for replica_id, follower in leader.followers.items():
                entry = partition.entries.get(replica_id)
                if entry is not None:
                    on_idle_fetch(leader, follower, entry.session.last_fetch_ms)
                ago = -1 if follower.last_caught_up_ms == NEVER_MS else max(now_ms - follower.last_caught_up_ms, 0)
                followers.append(ReplicaProgress(replica_id, follower.log_end_offset, ago))
        return ReplicaDescription(
            topic=topic,
            partition=number,
            topic_id=partition.topic_id,
            is_leader=leader is not None,
            leader=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            isr=partition.current_isr,
            replicas=partition.replicas,
            partition_epoch=partition.partition_epoch,
            high_watermark=partition.high_watermark,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            size_bytes=log.size_bytes,
            directory=log.directory,
            followers=tuple(followers),
            error=ErrorCode.NONE if is_usable else ErrorCode.KAFKA_STORAGE_ERROR,
            last_stable_offset=log.last_stable_offset(partition.high_watermark) if is_usable else NO_OFFSET,
            open_transaction_ms=transactions[0].open_ms if transactions else -1,
            elr=partition.current_elr,
            is_doubtful=partition.is_doubtful,
            is_read_only=partition.is_read_only,
        )

    def figures(self) -> Generator[None, None, Figures]:
        """What metrics show of the replicas here. In steps."""
        found = Figures()
        total, sizes, segments = found.totals, found.size_bytes, found.segments
        number = led = producers = 0
        for number, partition in enumerate(self._hosted.in_order(), 1):
            topic, log, leader = partition.topic_partition.topic, partition.log, partition.leader
            producers += len(log.active_producers())
            sizes[topic] = sizes.get(topic, 0) + log.size_bytes
            segments[topic] = segments.get(topic, 0) + log.segment_count
            if partition.storage_error is not None:
                total["OfflineReplicaCount"] += 1
            if leader is not None:
                led += 1
                self._count_led(found, partition, leader)
            elif partition.fetch_lag > found.fetch_lag:
                found.fetch_lag = partition.fetch_lag
            if not number % _LOOKED_AT:
                yield
        total["PartitionCount"], total["LeaderCount"], total["ProducerIdCount"] = number, led, producers
        counters = self._hosted.counters
        total["ReplicaRestarts"] = self._offline_replicas.restarts
        total["IsrShrinks"] = counters.isr_shrinks
        total["IsrExpands"] = counters.isr_expands
        total["FailedIsrUpdates"] = counters.failed_isr_updates
        total["DelayedOperations"] = len(self._hosted.wheel)
        return found

    def _count_led(self, found: Figures, partition: Partition, leader: PartitionLeader) -> None:
        total = found.totals
        if self._is_short(partition, leader):
            total["UnderReplicatedPartitions"] += 1
        if self._open_transactions.late(partition) is not None:
            total["PartitionsWithLateTransactionsCount"] += 1
        if leader.is_under_min_isr:
            total["UnderMinIsrPartitionCount"] += 1
        elif len(leader.committed_isr) == leader.effective_min_insync_replicas:
            total["AtMinIsrPartitionCount"] += 1
        end = leader.log_end_offset
        for follower in leader.followers.values():
            if 0 <= follower.log_end_offset < end:
                found.follower_lag = max(found.follower_lag, end - follower.log_end_offset)

    def problems(self) -> Generator[None, None, tuple[HealthProblem, ...]]:
        """What is wrong with the replicas here. In steps."""
        found: dict[str, _Kind] = {}
        now_ms, has_lease = self._clock.wall_ms(), self._hosted.usable()

        def report(what: str, subject: str, detail: str) -> None:
            since = self._since_of(what)
            if subject not in since:
                since[subject] = self._began(subject, now_ms)
            kind = found.get(what)
            if kind is None:
                kind = found[what] = _Kind()
            kind.add(subject, detail, since[subject])

        for number, partition in enumerate(self._hosted.in_order(), 1):
            for what, detail in self._problems_of(partition, has_lease=has_lease):
                report(what, str(partition.topic_partition), detail)
            if not number % _LOOKED_AT:
                yield
                has_lease = self._hosted.usable()
        unserved = yield from self._strays.unserved()
        self._report_unserved(unserved, report)
        if self._strays.refusal:
            report("replica.strays_refused", "", self._strays.refusal)
        for what in self._since.keys() - found.keys():
            self._since[what].clear()
        problems: list[HealthProblem] = []
        for what, kind in found.items():
            yield
            since = self._since_of(what)
            for subject in since.keys() - kind.subjects:
                del since[subject]
            # Something may just have happened to it: else the time is known.
            problems += [
                HealthProblem(what, since.get(subject) or self._began(subject, now_ms), detail, subject)
                for subject, detail in kind.listed
            ]
            if kind.more:
                more = f"and {kind.more} more of this kind"
                problems.append(HealthProblem(what, kind.more_since_ms, more, count=kind.more))
        return tuple(problems)

    def problems_of(self, subjects: Collection[str]) -> tuple[HealthProblem, ...]:
        """What is wrong with these partitions, without an end of the list."""
        wanted = set(subjects)
        if not wanted:
            return ()
        now_ms, has_lease = self._clock.wall_ms(), self._hosted.usable()
        return tuple(
            HealthProblem(what, self._since_of(what).get(name) or self._began(name, now_ms), detail, name)
            for name in sorted(wanted)
            if (partition := self._named(name)) is not None
            for what, detail in self._problems_of(partition, has_lease=has_lease)
        )

    def _named(self, subject: str) -> Partition | None:
        """What somebody has asked about, which may be anything."""
        topic, _, number = subject.rpartition("-")
        is_number = number.isascii() and number.isdecimal() and len(number) < _MAX_DIGITS
        partition = self._hosted.get(TopicPartition(topic, int(number))) if is_number else None
        return partition if partition is not None and str(partition.topic_partition) == subject else None

    def _problems_of(self, partition: Partition, *, has_lease: bool) -> Iterator[tuple[str, str]]:
        """(what, detail)."""
        name = partition.topic_partition  # as text only where there is a problem
        if partition.storage_error is not None:
            what = "replica.last_copy" if self._offline_replicas.is_last_copy(partition) else "replica.offline"
            yield what, f"{name} is offline: {partition.storage_error}; {self._offline_replicas.standing(partition)}"
            return
        if partition.log.damaged_at is not None:
            damage = f"{name}: damaged bytes on disk at offset {partition.log.damaged_at}"
            if self._offline_replicas.is_last_copy(partition):
                yield "replica.last_copy_damaged", f"{damage}; no other replica is in sync"
            else:
                yield "replica.damaged", damage
        if partition.leader is not None:
            yield from self._problems_of_leader(partition, partition.leader, has_lease=has_lease)
        elif partition.leader_id == NO_LEADER:
            yield "partition.offline", f"{name} has no leader"
            if partition.is_doubtful:
                yield "replica.doubtful", f"{name}: {doubts.lasting(partition)}"

    def _problems_of_leader(
        self, partition: Partition, leader: PartitionLeader, *, has_lease: bool
    ) -> Iterator[tuple[str, str]]:
        name = partition.topic_partition
        if not has_lease and (reason := self._hosted.refusal(partition, -1)):
            yield "partition.fenced", f"{name} accepts no records: ZooKeeper has not answered, and {reason}"
        standing = self._standing(partition)
        if standing == _UNDER_MIN_ISR:
            need = leader.effective_min_insync_replicas
            yield "partition.under_min_isr", f"{name}: {len(leader.committed_isr)} in sync, {need} needed"
        elif standing:
            present = (*leader.committed_isr, *self._adding(partition))
            missing = [each for each in leader.replicas if each not in present]
            yield "partition.under_replicated", f"{name}: not in sync: {', '.join(map(str, missing))}"
        if waits_for := self._waits_for(partition, leader):
            replicas = ", ".join(map(str, waits_for))
            yield "partition.waits", f"{name}: records wait for replicas that do not fetch them: {replicas}"
        if (late := self._open_transactions.late(partition)) is not None:
            yield "transaction.late", f"{name}: {late.text()}"

    def _report_unserved(
        self, unserved: Mapping[TopicPartition, TopicId], report: Callable[[str, str, str], None]
    ) -> None:
        """Replicas of topics that have vanished: in their places, or set aside because a later topic has the name."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for key in sorted(unserved):
            by_topic.setdefault(key.topic, []).append(key)
        for topic, keys in by_topic.items():
            topic_id = unserved[keys[0]] or "none"
            detail = f"no topic {topic} in ZooKeeper: {number_of(len(keys), 'replica')} kept here and not served (topic id: {topic_id})"
            report("topic.vanished", topic, detail)
        for stray in self._logs.removals.strays():
            key = stray.topic_partition
            by_id, by_name = self._metadata.topic_name(stray.topic_id), self._metadata.topic(key.topic)
            is_known = by_id is not None or (stray.topic_id == NO_TOPIC_ID and by_name is not None)
            if not (stray.is_requested or is_known) and self._metadata.controller_epoch >= 0:
                detail = f"{stray.path}: of an earlier topic {key.topic}, which was not deleted by a request"
                report("replica.kept", str(key), detail)

    def _waits_for(self, partition: Partition, leader: PartitionLeader) -> tuple[BrokerId, ...]:
        if leader.high_watermark >= leader.log_end_offset:  # most partitions, at each look
            return ()
        now_ms = self._hosted.now_ms()
        found = holding_up(leader, at_ms=now_ms, longer_than_ms=self._slow_ms)
        if found:
            behind_ms = now_ms - min(leader.followers[each].last_caught_up_ms for each in found)
            since_ms = self._clock.wall_ms() - behind_ms
            self._since_of("partition.waits").setdefault(str(partition.topic_partition), since_ms)
        return found

    def _adding(self, partition: Partition) -> tuple[BrokerId, ...]:
        """Replicas that a reassignment is adding. The controller updates all nodes when it is over."""
        known = self._metadata.partition(partition.topic_partition)
        return partition.adding_replicas if known is None else known.adding_replicas

    def _is_short(self, partition: Partition, leader: PartitionLeader) -> bool:
        replicas, isr = leader.replicas, leader.committed_isr
        return len(isr) < len(replicas) and is_under_replicated(replicas, isr, self._adding(partition))

    def _standing(self, partition: Partition) -> str:
        """What is wrong with its leader and its ISR, as far as this node has to say it; of the kinds the worst."""
        leader = partition.leader
        if leader is None:
            return _OFFLINE if partition.leader_id == NO_LEADER else ""
        if leader.is_under_min_isr:
            return _UNDER_MIN_ISR
        return _UNDER_REPLICATED if self._is_short(partition, leader) else ""

    def _happened(self, subject: str, _event: Event) -> None:
        """A problem that is over by this is another one if it comes back, also if nobody asks in between."""
        known = [what for what in _STANDINGS if subject in self._since_of(what)]
        if known:
            topic, _, number = subject.rpartition("-")
            partition = self._hosted.get(TopicPartition(topic, int(number)))
            standing = "" if partition is None else self._standing(partition)
            for what in known:
                if what != standing:
                    del self._since[what][subject]

    def _began(self, subject: str, now_ms: int) -> int:
        """A problem that nobody has asked about before stands since the last thing that happened to its partition."""
        events = self._hosted.history.of(subject)
        return events[-1].at_ms if events else now_ms

    def _since_of(self, what: str) -> dict[str, int]:
        return self._since.setdefault(what, {})
