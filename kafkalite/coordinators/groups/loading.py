"""Replays a partition of `__consumer_offsets`: classic groups, consumer groups, and offsets with their transactions."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.members import GroupEpoch
from kafkalite.coordinators.groups.decisions.share.group import ShareGroup
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.members import StreamsGroupMetadata
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition
from kafkalite.coordinators.groups.records import common as records
from kafkalite.coordinators.groups.records.consumer import ConsumerRecord
from kafkalite.coordinators.groups.records.share import ShareGroupRecord
from kafkalite.coordinators.groups.records.streams import StreamsGroupRecord
from kafkalite.coordinators.services import Services
from kafkalite.model import Offset, ProducerId
from kafkalite.protocol.errors import WireError
from kafkalite.record.batch import BatchHeader
from kafkalite.record.reader import EndTransactionMarker, Record
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)


class GroupReplay:
    """See the module."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clock = services.clock
        self._repeats = Repeats(services.clock.monotonic)

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def make(self, partition: GroupPartition, group_id: str) -> GroupEntry:
        """A new group without members."""
        group = Group(group_id, initial_rebalance_delay_ms=self._services.config.group_initial_rebalance_delay_ms)
        group.stored_ms = self._clock.wall_ms()
        entry = partition.entries[group_id] = GroupEntry(partition, group)
        return entry

    def replay(
        self, partition: GroupPartition, header: BatchHeader, data: list[Record], marker: EndTransactionMarker | None
    ) -> None:
        producer_id = ProducerId(header.producer_id)
        if marker is not None:
            end_transaction(partition, producer_id, is_committed=marker.commit)
            return
        for record in data:
            key, value = record.key, record.value
            if key is not None and key[:2] in records.OFFSET_KEYS:
                if value is None:
                    partition.unsettled.pop(key, None)
                elif not header.is_transactional:
                    partition.unsettled[key] = (value, Offset(record.offset))
                    continue
            try:
                parsed = records.parse(key, value, record.offset)
            except WireError as error:
                self._skip(partition, record.offset, error)
                continue
            match parsed:
                case records.OffsetRecord():
                    self._replay_offset(partition, parsed, record.offset, producer_id)
                case records.GroupRecord():
                    self._replay_group(partition, parsed)
                case ConsumerRecord():
                    self._replay_consumer(partition, parsed)
                case StreamsGroupRecord():
                    self._replay_streams(partition, parsed)
                case ShareGroupRecord():
                    self._replay_share(partition, parsed)

    def settle(self, partition: GroupPartition) -> Iterator[None]:
        """Take the committed offsets that `replay` has put aside, in steps.

        Most records of a log are offsets that were committed again soon: only the last record of each is parsed. What comes
        between them does not change what they mean: the offset whose record is the later one holds (`GroupOffsets`), and a
        tombstone takes what is put aside with it.
        """
        aside, partition.unsettled = partition.unsettled, {}
        for key, (value, record_offset) in aside.items():
            yield
            try:
                parsed = records.parse(key, value, record_offset)
            except WireError as error:
                self._skip(partition, record_offset, error)
                continue
            assert isinstance(parsed, records.OffsetRecord) and parsed.value is not None
            entry = partition.entries.get(parsed.group_id) or self.make(partition, parsed.group_id)
            entry.offsets.commit(parsed.partition, parsed.value)

    def _skip(self, partition: GroupPartition, record_offset: int, error: WireError) -> None:
        suppressed = self._repeats.admit(("group.record_skipped", partition.index))
        if suppressed is not None:
            _log.error(
                "group.record_skipped",
                partition=partition.index,
                offset=record_offset,
                error=str(error),
                suppressed=suppressed,
            )

    def _replay_offset(
        self,
        partition: GroupPartition,
        parsed: records.OffsetRecord,
        record_offset: int,
        producer_id: ProducerId,
    ) -> None:
        """A tombstone, or a commit in a transaction."""
        entry = partition.entries.get(parsed.group_id) or self.make(partition, parsed.group_id)
        if parsed.value is None:
            entry.offsets.forget(parsed.partition, record_offset)
        else:
            entry.offsets.commit_in_transaction(producer_id, parsed.partition, parsed.value)
            partition.transactions.setdefault(producer_id, {})[parsed.group_id] = None

    def _replay_group(self, partition: GroupPartition, parsed: records.GroupRecord) -> None:
        if parsed.is_tombstone:
            entry = partition.entries.get(parsed.group_id)
            if entry is not None:
                entry.group = Group(
                    parsed.group_id,
                    initial_rebalance_delay_ms=self._services.config.group_initial_rebalance_delay_ms,
                )
            return
        entry = partition.entries.get(parsed.group_id) or self.make(partition, parsed.group_id)
        entry.consumer = entry.streams = None
        entry.group.restore(
            parsed.protocol_type,
            parsed.protocol,
            parsed.generation,
            parsed.leader,
            parsed.members,
            parsed.since_ms,
            self._now(),
        )

    def _entry_of(
        self, partition: GroupPartition, parsed: ConsumerRecord | StreamsGroupRecord | ShareGroupRecord
    ) -> GroupEntry | None:
        """The group that a record is about; None: there is none, and the record makes none."""
        known = partition.entries.get(parsed.group_id)
        return self.make(partition, parsed.group_id) if known is None and not parsed.is_tombstone else known

    def _replay_consumer(self, partition: GroupPartition, parsed: ConsumerRecord) -> None:
        entry = self._entry_of(partition, parsed)
        if entry is None or (entry.consumer is None and parsed.is_tombstone):
            return
        entry.consumer = entry.consumer or ConsumerGroup(parsed.group_id)
        entry.consumer.apply(parsed.record)
        if parsed.record == GroupEpoch(None):
            entry.consumer = None

    def _replay_streams(self, partition: GroupPartition, parsed: StreamsGroupRecord) -> None:
        entry = self._entry_of(partition, parsed)
        if entry is None or (entry.streams is None and parsed.is_tombstone):
            return
        entry.streams = entry.streams or StreamsGroup(parsed.group_id)
        entry.streams.apply(parsed.record)
        if parsed.record == StreamsGroupMetadata(None):
            entry.streams = None

    def _replay_share(self, partition: GroupPartition, parsed: ShareGroupRecord) -> None:
        entry = self._entry_of(partition, parsed)
        if entry is None or (entry.share is None and parsed.is_tombstone):
            return
        entry.share = entry.share or ShareGroup(parsed.group_id)
        entry.share.apply(parsed.record)
        if parsed.record == GroupEpoch(None):
            del partition.entries[parsed.group_id]
            beginnings = records.offset_keys_begin(parsed.group_id)
            for key in [key for key in partition.unsettled if key.startswith(beginnings)]:
                del partition.unsettled[key]


def end_transaction(partition: GroupPartition, producer_id: ProducerId, *, is_committed: bool) -> None:
    for group_id in partition.transactions.pop(producer_id, {}):
        entry = partition.entries.get(group_id)
        if entry is not None:
            entry.offsets.end_transaction(producer_id, is_committed=is_committed)
