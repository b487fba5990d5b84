"""Share groups in their coordinator's log (KIP-932): a record is appended, then applied; it counts when it is replicated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence

from kafkalite.coordinators.append_sizes import cuts
from kafkalite.coordinators.committed import CommittedAppends
from kafkalite.coordinators.groups.decisions.share.group import PartitionsWithState, ShareGroup, ShareRecord, tombstones
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition
from kafkalite.coordinators.groups.records import share as share_records
from kafkalite.coordinators.internal_log import InternalLog, KeyValue
from kafkalite.env.turns import result_of
from kafkalite.errors import ErrorCode, api_error

#: How often records are made in steps, if the group changes each time.
_ATTEMPTS = 3


class ShareGroupLog:
    """See the module. Methods raise ApiError."""

    def __init__(self, log: InternalLog[GroupPartition]) -> None:
        self._log = log
        self._appends = CommittedAppends(log)

    def is_current(self, entry: GroupEntry, group: ShareGroup) -> bool:
        """Whether this node coordinates the group, and it is still the same one."""
        is_loaded = self._log.ready_state(entry.partition.index) is entry.partition
        return is_loaded and entry.share is group and not group.is_dead

    def _is_there(self, entry: GroupEntry) -> bool:
        """Whether this node coordinates the group, and it was not forgotten, as one is that has not become a share group yet."""
        partition = entry.partition
        is_loaded = self._log.ready_state(partition.index) is partition
        return is_loaded and partition.entries.get(entry.group.group_id) is entry

    def check_current(self, entry: GroupEntry, group: ShareGroup) -> None:
        """Raises ApiError NOT_COORDINATOR."""
        if not self.is_current(entry, group):
            raise api_error(ErrorCode.NOT_COORDINATOR)

    def write(self, entry: GroupEntry, group: ShareGroup, records: Sequence[ShareRecord]) -> None:
        """Append and apply, without waiting for replication. Raises ApiError: nothing was appended, and nothing has changed."""
        if records:
            self._write(entry, group, records, _encoded(group, records))

    async def write_in_steps(
        self, entry: GroupEntry, group: ShareGroup, records: Callable[[], Sequence[ShareRecord]]
    ) -> None:
        """As `write`. The records of a group that shares very many topics are encoded in steps, between which the loop serves others. If the
        group has changed meanwhile, that is repeated. Those of other groups are made, encoded and written at once.

        `records` may raise ApiError.
        """
        known, runtime = entry.share, entry.share_runtime
        for _ in range(_ATTEMPTS):
            if len(group.shared.initializing) + len(group.shared.initialized) > share_records.TOPICS_PER_STEP:
                await asyncio.sleep(0)
            shared, epoch, deletions = group.shared, group.epoch, runtime.deletions
            made = records()
            pairs = await result_of(_encoding(group, made))
            if entry.share is not known or not self._is_there(entry):
                raise api_error(ErrorCode.NOT_COORDINATOR)
            if known is None and not entry.is_new:
                raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a share group.")
            if group.shared is shared and (group.epoch, runtime.deletions) == (epoch, deletions):
                if made:
                    self._write(entry, group, made, pairs)
                return
        self.write(entry, group, records())

    def write_each(self, entry: GroupEntry, group: ShareGroup, records: Sequence[ShareRecord]) -> None:
        """As `write`, of records that mean something without those behind them, in as many appends as they need."""
        pairs = _encoded(group, records)
        start = 0
        for end in cuts(pairs):
            self._write(entry, group, records[start:end], pairs[start:end])
            start = end

    def _write(
        self, entry: GroupEntry, group: ShareGroup, records: Sequence[ShareRecord], pairs: Sequence[KeyValue]
    ) -> None:
        def apply(_: object) -> None:
            entry.share = group
            for record in records:
                group.apply(record)

        self._appends.append(entry.partition, pairs, apply)

    async def replicated(self, entry: GroupEntry) -> None:
        """Return when all that was written is replicated."""
        await self._appends.wait(entry.partition)

    async def stored(self, entry: GroupEntry, group: ShareGroup) -> None:
        """Return when all that the group has written is replicated.

        States change after that only: a coordinator that did not know why would take them for what they were.
        """
        await self.replicated(entry)
        self.check_current(entry, group)

    async def delete(self, entry: GroupEntry, group: ShareGroup) -> None:
        """Delete all its records, and forget it."""

        def forget(_: object) -> None:
            group.is_dead = True
            entry.partition.entries.pop(group.group_id, None)

        pairs = [share_records.encode_record(group.group_id, record) for record in tombstones(group)]
        await self._appends.store(entry.partition, pairs, forget)

    def loaded(self, entry: GroupEntry) -> None:
        """What was loaded has to be replicated before anything is answered."""
        written = entry.partition.written
        written.end = max(written.end, self._log.bounds(entry.partition.index)[0])


def need_share_group(entry: GroupEntry | None) -> ShareGroup:
    """Raises ApiError GROUP_ID_NOT_FOUND."""
    if entry is None or entry.share is None or entry.share.is_dead:
        raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such share group")
    return entry.share


def _encoding(group: ShareGroup, records: Sequence[ShareRecord]) -> Generator[None, None, list[KeyValue]]:
    pairs = []
    for record in records:
        if isinstance(record, PartitionsWithState) and len(record.initializing) > share_records.TOPICS_PER_STEP:
            yield  # to make it has taken a while, too
        pairs.append((yield from share_records.encoding_record(group.group_id, record)))
    return pairs


def _encoded(group: ShareGroup, records: Sequence[ShareRecord]) -> list[KeyValue]:
    return [share_records.encode_record(group.group_id, record) for record in records]
