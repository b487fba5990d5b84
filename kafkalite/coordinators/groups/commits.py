"""Committed offsets of groups: who may commit, when a commit counts, what is committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from kafkalite.coordinators.groups.decisions.consumer.heartbeats import check_commit, check_fetch
from kafkalite.coordinators.groups.loading import end_transaction
from kafkalite.coordinators.groups.offsets import MAX_METADATA_BYTES, CommittedOffset, GroupOffsets
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition
from kafkalite.coordinators.groups.records import common as records
from kafkalite.coordinators.groups.topics import GroupTopics
from kafkalite.coordinators.internal_log import InternalLog
from kafkalite.env.seams import Clock
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Offset, ProducerId, TopicPartition

CommitResults = dict[TopicPartition, ErrorCode]


class OffsetCommits:
    """See the module. Methods raise ApiError."""

    def __init__(
        self,
        clock: Clock,
        log: InternalLog[GroupPartition],
        topics: GroupTopics,
        find: Callable[[str], tuple[GroupPartition, GroupEntry | None]],
        make: Callable[[GroupPartition, str], GroupEntry],
    ) -> None:
        self._clock = clock
        self._log = log
        self._topics = topics
        self._find = find
        self._make = make

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        done: Callable[[CommitResults], None],
        *,
        producer: tuple[ProducerId, int] | None = None,
        guard: int | None = None,
        knows_epochs: bool = False,
    ) -> None:
        """Commit offsets, in a transaction if `producer` (id, epoch) is given; `done` gets each one's outcome.

        `guard`: with which the transaction was verified; None: it was not. `knows_epochs`: see `check_commit`.
        """
        partition, entry = self._find(group_id)
        if entry is None:
            if generation >= 0 and producer is None:
                raise api_error(ErrorCode.ILLEGAL_GENERATION)
            entry = self._make(partition, group_id)
        if entry.share is not None:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is a share group.")
        if entry.streams is not None:
            entry.streams.check_commit(
                member_id,
                generation,
                list(offsets),
                is_transactional=producer is not None,
                knows_epochs=knows_epochs,
            )
        elif entry.consumer is not None:
            check_commit(
                entry.consumer,
                member_id,
                generation,
                list(offsets),
                self._topics.topic_id,
                is_transactional=producer is not None,
                knows_epochs=knows_epochs,
            )
        else:
            error = entry.group.commit_error(
                member_id, instance_id, generation, self._now(), is_transactional=producer is not None
            )
            if error:
                raise api_error(error)
        results = {
            topic_partition: ErrorCode.OFFSET_METADATA_TOO_LARGE
            for topic_partition, offset in offsets.items()
            if len(offset.metadata.encode()) > MAX_METADATA_BYTES
        }
        accepted = {key: value for key, value in offsets.items() if key not in results}
        if not accepted:
            done(results)
            return

        def stored(error: ErrorCode, base_offset: Offset) -> None:
            entry.offsets.end_append(accepted)
            for index, (topic_partition, offset) in enumerate(accepted.items()):
                results[topic_partition] = error
                if error:
                    continue
                placed = replace(offset, record_offset=base_offset + index)
                if producer is None:
                    entry.offsets.commit(topic_partition, placed)
                else:
                    entry.offsets.commit_in_transaction(producer[0], topic_partition, placed)
                    partition.transactions.setdefault(producer[0], {})[group_id] = None
            done(results)

        producer_id, producer_epoch = producer if producer is not None else (-1, -1)
        pairs = [(records.offset_key(group_id, key), records.offset_value(value)) for key, value in accepted.items()]
        # From here on the log may hold a commit for which a reader of stable offsets has to wait.
        entry.offsets.begin_append(accepted)
        self._log.append(
            partition.index,
            pairs,
            stored,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            guard=guard,
        )

    def end_transaction(self, index: int, producer_id: ProducerId, *, is_committed: bool) -> None:
        """A producer's marker is in this partition of `__consumer_offsets`."""
        partition = self._log.ready_state(index)
        if partition is not None:
            end_transaction(partition, producer_id, is_committed=is_committed)

    def offsets_of(self, group_id: str, member_id: str | None = None, epoch: int = -1) -> GroupOffsets:
        """The group's offsets; an unknown group has none. `member_id`, `epoch`: as a member of a consumer group says."""
        _, entry = self._find(group_id)
        if entry is None:
            return GroupOffsets()
        if entry.streams is not None:
            entry.streams.check_fetch(member_id, epoch)
        elif entry.consumer is not None:
            check_fetch(entry.consumer, member_id, epoch)
        return entry.offsets

    def committed(
        self, wanted: Collection[TopicPartition]
    ) -> tuple[tuple[int, ...], dict[TopicPartition, tuple[Offset, int, bool]]]:
        """The partitions of `__consumer_offsets` that are loaded here; and for each of `wanted` that any group has an
        offset for: the lowest, how many groups, and whether an open transaction may change one."""
        found: dict[TopicPartition, tuple[Offset, int, bool]] = {}
        loaded = list(self._log.states())
        for partition in loaded:
            for entry in partition.entries.values():
                for key in wanted:
                    offset = entry.offsets.committed.get(key)
                    is_unstable = entry.offsets.is_unstable(key)
                    if offset is None and not is_unstable:
                        continue
                    lowest, groups, unstable = found.get(key, (Offset(2**63 - 1), 0, False))
                    if offset is not None:
                        lowest = min(lowest, offset.offset)
                    found[key] = (lowest, groups + 1, unstable or is_unstable)
        return tuple(sorted(partition.index for partition in loaded)), found
