"""Committed offsets of groups: who may commit, when a commit counts, what is committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import suppress
from functools import partial

from kafkalite.coordinators.append_sizes import APPEND_BYTES
from kafkalite.coordinators.groups.decisions.assigned_group import check_commit, check_fetch
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import held_since, is_classic
from kafkalite.coordinators.groups.decisions.members import Committer
from kafkalite.coordinators.groups.decisions.share.group import partitions_of
from kafkalite.coordinators.groups.decisions.share.states import begun
from kafkalite.coordinators.groups.loading import end_transaction
from kafkalite.coordinators.groups.offsets import MAX_METADATA_BYTES, CommittedOffset, GroupOffsets
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition
from kafkalite.coordinators.groups.records import common as records
from kafkalite.coordinators.groups.topics import GroupTopics
from kafkalite.coordinators.internal_log import InternalLog
from kafkalite.env.seams import Clock
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import NO_TOPIC_ID, Offset, ProducerId, TopicPartition
from kafkalite.record.builder import RecordBatchBuilder

CommitResults = dict[TopicPartition, ErrorCode]
#: Offsets per step.
_STEP = 100


def settled(log: InternalLog[GroupPartition], entry: GroupEntry) -> GroupOffsets:
    """The group's offsets, with what was in doubt and is replicated by now."""
    offsets = entry.offsets
    if offsets.in_doubt:
        with suppress(ApiError):  # another node coordinates the group
            offsets.settle(log.bounds(entry.partition.index)[1])
    return offsets


class OffsetCommits:
    """See the module. Methods raise ApiError."""

    def __init__(
        self,
        clock: Clock,
        log: InternalLog[GroupPartition],
        topics: GroupTopics,
        find: Callable[[str], GroupEntry | None],
        make: Callable[[str], GroupEntry],
    ) -> None:
        self._clock = clock
        self._log = log
        self._topics = topics
        self._find = find
        self._make = make

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def committing(
        self,
        committer: Committer,
        offsets: Mapping[TopicPartition, CommittedOffset],
        done: Callable[[CommitResults], None],
        *,
        guard: int | None = None,
    ) -> Generator[None, None, None]:
        """Commit offsets in steps; `done` gets each one's outcome.

        Whether the member may commit is decided in the last step, in which the records are appended: those of a transaction in one batch,
        others in as many as they need. `guard`: with which the transaction was verified; None: it was not.
        """
        group_id, producer = committer.group_id, committer.producer
        results: CommitResults = {}
        accepted: dict[TopicPartition, CommittedOffset] = {}
        builder = self._log.builder(producer)
        batches = [(builder, accepted)]
        now = self._clock.wall_ms()
        for number, (topic_partition, offset) in enumerate(offsets.items(), 1):
            if not number % _STEP:
                yield
            if len(offset.metadata.encode()) > MAX_METADATA_BYTES:
                results[topic_partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            if builder.size_bytes > APPEND_BYTES and producer is None:
                builder, accepted = self._log.builder(), {}
                batches.append((builder, accepted))
            accepted[topic_partition] = offset
            builder.append(
                records.offset_key(group_id, topic_partition), records.offset_value(offset), timestamp_ms=now
            )
        entry, is_made = self._admit(committer, offsets)
        if not accepted:
            if is_made:
                entry.forget_if_unused()
            done(results)
            return
        left = len(batches)

        def stored(some: Collection[TopicPartition], error: ErrorCode) -> None:
            nonlocal left
            left -= 1
            results.update(dict.fromkeys(some, error))
            if not left:
                if is_made:
                    entry.forget_if_unused()
                done(results)

        for builder, accepted in batches:
            self._append(entry, producer, builder, accepted, partial(stored, accepted), guard=guard)

    def _append(
        self,
        entry: GroupEntry,
        producer: tuple[ProducerId, int] | None,
        builder: RecordBatchBuilder,
        accepted: Mapping[TopicPartition, CommittedOffset],
        done: Callable[[ErrorCode], None],
        *,
        guard: int | None,
    ) -> None:
        """Append one batch, which has these offsets."""
        known = entry.offsets

        def stored(error: ErrorCode, base_offset: Offset) -> None:
            known.end_append(accepted)
            is_in_doubt = is_appended and error is ErrorCode.COORDINATOR_NOT_AVAILABLE
            if error and not is_in_doubt:
                done(error)
                return
            for record_offset, (topic_partition, offset) in enumerate(accepted.items(), base_offset):
                placed = offset.at(record_offset)
                if producer is not None:  # it counts with the marker, which will stand behind it in the log
                    known.commit_in_transaction(producer[0], topic_partition, placed)
                elif is_in_doubt:
                    known.doubt(topic_partition, record_offset, placed)
                else:
                    known.commit(topic_partition, placed)
            if producer is not None:
                entry.partition.transactions.setdefault(producer[0], {})[entry.group.group_id] = None
            done(error)

        # From here on the log may hold a commit for which a reader of stable offsets has to wait.
        known.begin_append(accepted)
        is_appended = False
        self._log.append_batch(entry.partition.index, entry.partition, builder, stored, guard=guard)
        is_appended = True

    def _admit(self, committer: Committer, offsets: Collection[TopicPartition]) -> tuple[GroupEntry, bool]:
        """The group, if this member may commit these offsets, and whether it was made for that, because there is none."""
        group_id, member_id, instance_id, generation, producer, knows_epochs = committer
        is_transactional = producer is not None
        # Kafka answers a member of a group without a name as one of any group that is not there.
        is_named = group_id or is_transactional or generation < 0
        entry = self._find(group_id) if is_named else None
        is_made = entry is None
        if entry is None:
            if generation >= 0 and knows_epochs:
                raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
            if generation >= 0:
                raise api_error(ErrorCode.ILLEGAL_GENERATION)
            entry = self._make(group_id)
        if entry.share is not None:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is a share group.")
        if entry.streams is not None:
            streams = entry.streams
            check_commit(streams, "streams", committer, offsets, streams.held_since, lambda member: False)
        elif entry.consumer is not None:
            held = held_since(self._topics.topic_id)
            check_commit(entry.consumer, "consumer", committer, offsets, held, is_classic)
        else:
            error = entry.group.commit_error(
                member_id, instance_id, generation, self._now(), is_transactional=is_transactional
            )
            if error:
                raise api_error(error)
        return entry, is_made

    def end_transaction(self, index: int, producer_id: ProducerId, *, is_committed: bool) -> None:
        """A producer's marker is in this partition of `__consumer_offsets`."""
        partition = self._log.ready_state(index)
        if partition is not None:
            end_transaction(partition, producer_id, is_committed=is_committed)

    def offsets_of(self, group_id: str, member_id: str | None = None, epoch: int = -1) -> GroupOffsets:
        """The group's offsets; an unknown group has none. `member_id`, `epoch`: as a member of a consumer group says."""
        if not group_id:  # as with Kafka, for the oldest of clients
            return GroupOffsets()
        entry = self._find(group_id)
        if entry is None:
            return GroupOffsets()
        if entry.streams is not None:
            check_fetch(entry.streams, member_id, epoch, lambda member: False)
        elif entry.consumer is not None:
            check_fetch(entry.consumer, member_id, epoch, is_classic)
        return settled(self._log, entry)

    def committed(
        self, wanted: Collection[TopicPartition]
    ) -> tuple[tuple[int, ...], dict[TopicPartition, tuple[Offset, int, bool]]]:
        """The partitions of `__consumer_offsets` that are coordinated here; and for each of `wanted` that any group has an
        offset for: the lowest, how many groups, and whether an open transaction may change one, or a share group reads it (how far it
        is, its share coordinator knows). Offsets of former topics do not count."""
        found: dict[TopicPartition, tuple[Offset, int, bool]] = {}
        ids = {name: self._topics.topic_id(name) or NO_TOPIC_ID for name in {key.topic for key in wanted}}
        loaded: list[GroupPartition] = []
        for each in self._log.states():
            with suppress(ApiError):  # another node coordinates its groups
                loaded.append(self._log.state_of(each.index))
        for partition in loaded:
            for entry in partition.entries.values():
                shared = {} if entry.share is None else partitions_of(begun(entry.share))
                offsets = settled(self._log, entry)
                for key in wanted:
                    offset = offsets.committed.get(key)
                    if offset is not None and offset.is_of_another(ids[key.topic]):
                        offset = None
                    is_shared = key.partition in shared.get(ids[key.topic], ())
                    is_unstable = is_shared or offsets.is_unstable(key)
                    if offset is None and not is_unstable:
                        continue
                    lowest, groups, unstable = found.get(key, (Offset(2**63 - 1), 0, False))
                    if offset is not None:
                        lowest = min(lowest, offset.offset)
                    found[key] = (lowest, groups + 1, unstable or is_unstable)
        return tuple(sorted(partition.index for partition in loaded)), found
