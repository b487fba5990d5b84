"""One group's committed offsets, and those that wait for the end of a transaction. Pure.

An offset counts once its record is replicated; until then it is pending and readers see the one before, also after the answer
that it was not replicated in time. Offsets that were committed in a transaction stay pending until its marker comes (KIP-98).
`require_stable` readers have to wait for both (KIP-447).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_TOPIC_ID, Offset, ProducerId, TopicId, TopicPartition

#: offset.metadata.max.bytes
MAX_METADATA_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """`record_offset` is where in `__consumer_offsets` it stands: of two, the later one holds.

    `topic_id`: of the topic when it was committed; NO_TOPIC_ID: it is not known.
    """

    offset: Offset
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    record_offset: int = -1
    topic_id: TopicId = NO_TOPIC_ID

    def at(self, record_offset: int) -> CommittedOffset:
        """The same, once its record is there."""
        return CommittedOffset(
            self.offset, self.leader_epoch, self.metadata, self.commit_ms, self.expire_ms, record_offset, self.topic_id
        )

    def is_of_another(self, topic_id: TopicId) -> bool:
        """Whether it was committed for another topic of the same name."""
        return self.topic_id != topic_id and NO_TOPIC_ID not in (self.topic_id, topic_id)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The partitions with offsets of a group at a moment, where the log ended then, and how many partitions' commits had
    been appended until then."""

    partitions: tuple[TopicPartition, ...]
    log_end: Offset
    appends: int


@dataclass(slots=True)
class GroupOffsets:
    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    #: Producer -> what its open transaction will commit.
    in_transactions: dict[ProducerId, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    #: In how many of these each partition is: readers of stable offsets ask for each of theirs.
    unstable: Counter[TopicPartition] = field(default_factory=Counter)
    #: Commits, plain or in a transaction, whose append is under way: how many of each partition.
    appending: dict[TopicPartition, int] = field(default_factory=dict)
    #: Those of all partitions that have ever begun, and the number of the last one of each partition in `appending`.
    appends: int = 0
    last_appends: dict[TopicPartition, int] = field(default_factory=dict)
    #: How many batches of commits have begun to be appended, how many of these have ended, and who waits for how many ends.
    batches: int = 0
    ended: int = 0
    waiting: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    #: What was not replicated in time, and may be yet: of each partition the last one. Where its record is; None is a tombstone.
    in_doubt: dict[TopicPartition, tuple[int, CommittedOffset | None]] = field(default_factory=dict)
    #: Something was committed once, also if nothing of it is left.
    was_used: bool = False

    def begin_append(self, partitions: Iterable[TopicPartition]) -> None:
        """Records of commits are about to be appended, in one batch."""
        self.batches += 1
        for partition in partitions:
            self.appending[partition] = self.appending.get(partition, 0) + 1
            self.appends += 1
            self.last_appends[partition] = self.appends

    def end_append(self, partitions: Iterable[TopicPartition]) -> None:
        """They are durable, or failed."""
        for partition in partitions:
            left = self.appending.pop(partition) - 1
            if left:
                self.appending[partition] = left
            else:
                del self.last_appends[partition]
        self.ended += 1
        due = [done for number, done in self.waiting if number <= self.ended]
        if due:
            self.waiting = [each for each in self.waiting if each[0] > self.ended]
            for done in due:
                done()

    def when_ended(self, done: Callable[[], None]) -> None:
        """Call `done` when as many batches have ended as have begun by now, before what the last one has stored counts: it is to look later.

        (One that is refused at once may end before others: then these are still under way.)
        """
        if self.ended >= self.batches:
            done()
        else:
            self.waiting.append((self.batches, done))

    def commit(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        """The record of a plain commit is durable."""
        self.was_used = True
        known = self.committed.get(partition)
        if known is None or known.record_offset <= offset.record_offset:
            self.committed[partition] = offset
            self._end_doubt(partition, offset.record_offset)

    def doubt(self, partition: TopicPartition, record_offset: int, offset: CommittedOffset | None) -> None:
        """The record of a plain commit, or a tombstone, is in the log, and was not replicated in time."""
        known, doubted = self.committed.get(partition), self.in_doubt.get(partition)
        if known is not None and known.record_offset > record_offset:
            return
        if doubted is None or doubted[0] <= record_offset:
            self.in_doubt[partition] = record_offset, offset

    def settle(self, high_watermark: Offset) -> None:
        """The log is replicated up to here."""
        for partition, (record_offset, offset) in list(self.in_doubt.items()):
            if record_offset >= high_watermark:
                continue
            if offset is None:
                self.forget(partition, record_offset)
            else:
                self.commit(partition, offset)

    def _end_doubt(self, partition: TopicPartition, record_offset: int) -> None:
        """What stands at this offset is replicated, and so is all before it."""
        doubted = self.in_doubt.get(partition)
        if doubted is not None and doubted[0] <= record_offset:
            del self.in_doubt[partition]

    def commit_in_transaction(
        self, producer_id: ProducerId, partition: TopicPartition, offset: CommittedOffset
    ) -> None:
        """The record of a transactional commit is durable."""
        self.was_used = True
        pending = self.in_transactions.setdefault(producer_id, {})
        known = pending.get(partition)
        if known is None:
            self.unstable[partition] += 1
        if known is None or known.record_offset <= offset.record_offset:
            pending[partition] = offset

    def end_transaction(self, producer_id: ProducerId, *, is_committed: bool) -> None:
        """The marker of the producer's transaction is in the log."""
        pending = self.in_transactions.pop(producer_id, {})
        for partition in pending:
            self._ends(partition)
        if is_committed:
            for partition, offset in pending.items():
                self.commit(partition, offset)

    def _ends(self, partition: TopicPartition) -> None:
        """One transaction less has an offset of it."""
        self.unstable[partition] -= 1
        if not self.unstable[partition]:
            del self.unstable[partition]

    def forget(self, partition: TopicPartition, record_offset: int) -> None:
        """A tombstone: what was committed before it does not count any more, nor does what waits for the end of a transaction."""
        self._end_doubt(partition, record_offset)
        for producer_id, offsets in (None, self.committed), *list(self.in_transactions.items()):
            known = offsets.get(partition)
            if known is not None and known.record_offset <= record_offset:
                del offsets[partition]
                if producer_id is not None:
                    self._ends(partition)
                    if not offsets:
                        del self.in_transactions[producer_id]

    def is_of(self, partition: TopicPartition, topic_id: TopicId) -> bool:
        """Whether it has a committed offset, and not one for another topic of this name."""
        known = self.committed.get(partition)
        return known is not None and not known.is_of_another(topic_id)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether what is under way or in doubt, or an open transaction, may change this partition's offset."""
        return partition in self.appending or partition in self.in_doubt or partition in self.unstable

    @property
    def is_pending(self) -> bool:
        """Whether anything is under way, in doubt, or waits for the end of a transaction."""
        return bool(self.appending or self.in_doubt or self.in_transactions)

    def is_empty(self) -> bool:
        return not self.committed and not self.is_pending

    def expired(self, now_ms: int, retention_ms: int, idle_since_ms: int | None) -> list[TopicPartition]:
        """The partitions whose offsets have outlived `retention_ms` (KIP-211).

        Args:
            idle_since_ms: since when the group has had no members; None for one that never had any: then each
                commit's own age counts.
        """
        return sorted(
            partition
            for partition, offset in self.committed.items()
            if not self.is_unstable(partition)
            and (
                offset.expire_ms <= now_ms
                if offset.expire_ms >= 0
                else max(offset.commit_ms, idle_since_ms if idle_since_ms is not None else 0) + retention_ms <= now_ms
            )
        )

    def snapshot(self, is_meant: Callable[[TopicPartition], bool], log_end: Offset) -> Snapshot:
        """Which of these partitions have offsets now, in their order: committed, on their way, in doubt, or in an open transaction."""
        held: list[Iterable[TopicPartition]] = [
            self.committed, self.appending, self.in_doubt, *self.in_transactions.values(),
        ]  # fmt: skip
        return self.snapshot_of({key for each in held for key in each if is_meant(key)}, log_end)

    def snapshot_of(self, partitions: Iterable[TopicPartition], log_end: Offset) -> Snapshot:
        """These partitions now, in their order."""
        return Snapshot(tuple(sorted(partitions)), log_end, self.appends)

    def is_as_in(self, snapshot: Snapshot, partition: TopicPartition) -> bool:
        """Whether no commit for this partition has been appended since, not even one that is not durable yet."""
        held = [self.committed, *self.in_transactions.values()]
        is_older = all(each[partition].record_offset < snapshot.log_end for each in held if partition in each)
        doubted = self.in_doubt.get(partition)
        if doubted is not None and doubted[1] is not None:
            is_older &= doubted[0] < snapshot.log_end
        return is_older and self.last_appends.get(partition, 0) <= snapshot.appends
