"""Share groups of the partitions that this node coordinates (KIP-932): the shell around `decisions.share`.

A decision returns records. They are appended, then applied; the answer goes out when they are replicated. The states of
partitions that a group begins to share are initialized at the share coordinator by a task per group. A member that joins
waits for it for a while, so that it need not wait for its next heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from kafkalite.coordinators.committed import CommittedAppends
from kafkalite.coordinators.groups.decisions.members import LEAVE_EPOCH, CurrentAssignment
from kafkalite.coordinators.groups.decisions.share import heartbeats as rules
from kafkalite.coordinators.groups.decisions.share.group import (
    SharedTopic,
    SharedTopics,
    ShareGroup,
    ShareRecord,
    joined,
    only,
    partitions_of,
    tombstones,
    without,
    without_topics,
)
from kafkalite.coordinators.groups.decisions.share.heartbeats import ShareHeartbeat
from kafkalite.coordinators.groups.partition import GroupEntry, ShareRuntime
from kafkalite.coordinators.groups.parts import GroupParts
from kafkalite.coordinators.groups.records import share as share_records
from kafkalite.coordinators.groups.settings import int_setting
from kafkalite.coordinators.groups.share.states import due, each_of, keys_of
from kafkalite.coordinators.groups.topics import metadata_hash
from kafkalite.coordinators.shares.persistence import ShareKey, SharePersister
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_OFFSET, Offset, TopicId, TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: A group's topics are compared at most this often, whatever else changes in the metadata.
_COMPARE_MS = 1_000
#: A member that joins waits for this long until the partitions of its topics can be assigned.
_PATIENCE_S = 3.0
#: States that are initialized or deleted at a time.
_CHUNK = 100
#: The pause after states of removed partitions could not be deleted, in seconds.
_DELETE_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class ShareHeartbeatAnswer:
    """`assigned` None: as before."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assigned: Mapping[TopicId, frozenset[int]] | None = None


class ShareGroups:
    """See the module. Methods raise ApiError."""

    def __init__(self, parts: GroupParts) -> None:
        self._services = parts.services
        self._log = parts.log
        self._topics = parts.topics
        self._schedule = parts.schedule
        self._appends = CommittedAppends(parts.log)
        #: Set once the share coordinator exists.
        self.persister: SharePersister

    def _now(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    # --- members ---

    async def heartbeat(self, entry: GroupEntry, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """A member joins, is there, or leaves."""
        if request.epoch == LEAVE_EPOCH:
            return await self._leave(entry, request.member_id)
        group = entry.share or ShareGroup(entry.group.group_id)
        records = rules.heartbeat(group, request, self._services.config.group_share_max_size)
        self._write(entry, group, records)
        session_ms = int_setting(self._services, group.group_id, "share.session.timeout.ms")
        deadline = group.deadlines[request.member_id] = self._now() + session_ms
        self._schedule(entry, deadline)
        self._refresh(entry, group)
        if not request.epoch and due(entry, group):
            await self._begun(entry)
            if not self._is_current(entry, group):
                raise api_error(ErrorCode.NOT_COORDINATOR)
            self._refresh(entry, group)
        before = group.member(request.member_id)
        after = rules.reached(group, before)
        if after is not before:
            self._write(entry, group, [CurrentAssignment(after.member_id, after)])
        await self._appends.wait(entry.partition)
        interval_ms = int_setting(self._services, group.group_id, "share.heartbeat.interval.ms")
        shows = request.topics is not None or request.epoch != after.epoch
        return ShareHeartbeatAnswer(after.member_id, after.epoch, interval_ms, after.assigned if shows else None)

    async def _leave(self, entry: GroupEntry, member_id: str) -> ShareHeartbeatAnswer:
        group = self._group(entry)
        self._write(entry, group, rules.removed(group, [group.member(member_id)]))
        self._refresh(entry, group)
        await self._appends.wait(entry.partition)
        return ShareHeartbeatAnswer(member_id, LEAVE_EPOCH, 0)

    def _group(self, entry: GroupEntry | None) -> ShareGroup:
        if entry is None or entry.share is None or entry.share.is_dead:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such share group")
        return entry.share

    def _is_current(self, entry: GroupEntry, group: ShareGroup) -> bool:
        is_loaded = self._log.ready_state(entry.partition.index) is entry.partition
        return is_loaded and entry.share is group and not group.is_dead

    def _refresh(self, entry: GroupEntry, group: ShareGroup) -> None:
        """Bring states and the target up to date with members and topics."""
        runtime, version = entry.share_runtime, self._topics.version
        is_changed = runtime.topics_version != version and self._now() - runtime.compared_ms >= _COMPARE_MS
        # What is too early now is done with a later heartbeat of any member.
        is_early = self._now() < runtime.assigned_ms + int_setting(
            self._services, group.group_id, "share.assignment.interval.ms"
        )
        if group.members and (is_changed or group.epoch > group.target_epoch) and not is_early:
            runtime.topics_version, runtime.compared_ms = version, self._now()
            before = group.target_epoch
            topics = self._topics.lookup(group.subscribed_topics())
            self._write(entry, group, rules.topics_compared(group, topics, metadata_hash(topics)))
            self._write(entry, group, rules.new_target(group, topics, self._services.clock.wall_ms()))
            # A first target assigns nothing: the states of the partitions are not begun yet.
            if group.target_epoch != before and any(group.targets.values()):
                runtime.assigned_ms = self._now()
        if group.shared.deleting and not runtime.is_deleting:
            runtime.is_deleting = True
            name = f"groups.share_deletion.{group.group_id}"
            self._services.supervisor.spawn(name, self._resume_deletion(entry, group), Policy.ISOLATED)
        if due(entry, group) and not runtime.is_initializing:
            runtime.is_initializing = True
            name = f"groups.share.{group.group_id}"
            self._services.supervisor.spawn(name, self._initialize(entry, group), Policy.ISOLATED)

    # --- states of partitions ---

    async def _stored(self, entry: GroupEntry, group: ShareGroup) -> None:
        """Return when all that the group has written is replicated.

        States change after that only: a coordinator that did not know why would take them for what they were. Raises ApiError.
        """
        await self._appends.wait(entry.partition)
        if not self._is_current(entry, group):
            raise api_error(ErrorCode.NOT_COORDINATOR)

    async def _begun(self, entry: GroupEntry) -> None:
        """Return when the states are initialized, or after a while."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await entry.share_runtime.begun.wait()
        except TimeoutError:
            pass

    async def _initialize(self, entry: GroupEntry, group: ShareGroup) -> None:
        """Begin the states of partitions that are new. What cannot be begun now is tried again by a later heartbeat."""
        runtime = entry.share_runtime
        try:
            while self._is_current(entry, group):
                keys = keys_of(group.group_id, due(entry, group))[:_CHUNK]
                epoch = group.epoch
                await self._stored(entry, group)
                begun = await each_of([self._begin(runtime, topic_id, key, epoch, NO_OFFSET) for topic_id, key in keys])
                done: dict[TopicId, set[int]] = {}
                for (topic_id, key), error in zip(keys, begun, strict=True):
                    if error is None:
                        done.setdefault(topic_id, set()).add(key.partition)
                if not done or not self._is_current(entry, group):
                    return
                found = {topic_id: frozenset(numbers) for topic_id, numbers in done.items()}
                self._write(entry, group, rules.initialized(group, found))
        except ApiError as error:
            _log.info("group.share_not_begun", group=group.group_id, error=error.code.name)
        finally:
            runtime.is_initializing = False
            begun_before, runtime.begun = runtime.begun, asyncio.Event()
            begun_before.set()

    async def _begin(
        self, runtime: ShareRuntime, topic_id: TopicId, key: ShareKey, epoch: int, start_offset: Offset
    ) -> None:
        """Begin the state of one partition, or set where it begins. Raises ApiError."""
        if key.partition in runtime.doubtful.get(topic_id, ()):
            await self.persister.delete(key)
            runtime.doubtful[topic_id].discard(key.partition)
        await self.persister.initialize(key, epoch, start_offset)

    async def delete_states(self, entry: GroupEntry, topic_ids: Iterable[TopicId]) -> dict[TopicId, ApiError | None]:
        """Forget how far the group is on these topics, and what became of each. Members get them no more meanwhile."""
        group = self._group(entry)
        doomed = {key: each for key, each in rules.begun(group).items() if key in set(topic_ids)}
        self._write(entry, group, [without_topics(group.shared, doomed)] if doomed else [])
        return await self._delete(entry, group, doomed)

    async def _delete(
        self, entry: GroupEntry, group: ShareGroup, doomed: SharedTopics
    ) -> dict[TopicId, ApiError | None]:
        """Delete the states of topics that are noted as being deleted."""
        runtime = entry.share_runtime
        runtime.is_deleting = True
        runtime.deletions += 1
        try:
            await self._stored(entry, group)
            keys = keys_of(group.group_id, doomed)
            failed: dict[TopicId, ApiError | None] = dict.fromkeys(doomed)
            for start in range(0, len(keys), _CHUNK):
                chunk = keys[start : start + _CHUNK]
                errors = await each_of([self.persister.delete(key) for _, key in chunk])
                for (topic_id, _), error in zip(chunk, errors, strict=True):
                    failed[topic_id] = failed[topic_id] or error
            if not self._is_current(entry, group):
                raise api_error(ErrorCode.NOT_COORDINATOR)
            self._write(entry, group, rules.deleted(group, doomed, [key for key in doomed if failed[key]]))
        finally:
            runtime.is_deleting = False
        await self._appends.wait(entry.partition)
        return failed

    async def _resume_deletion(self, entry: GroupEntry, group: ShareGroup) -> None:
        """What a coordinator before this one, or an attempt that failed, has begun to delete."""
        names = group.shared.deleting
        known = {topic.topic_id: topic for topic in self._topics.lookup(set(names.values())).values()}
        doomed = {
            topic_id: SharedTopic(name, frozenset(range(known[topic_id].partitions if topic_id in known else 0)))
            for topic_id, name in names.items()
        }
        try:
            await self._delete(entry, group, doomed)
        except ApiError as error:
            _log.info("group.share_states_kept", group=group.group_id, error=error.code.name)

    async def alter_offsets(
        self,
        entry: GroupEntry,
        wanted: Mapping[TopicId, tuple[str, Mapping[int, Offset]]],
    ) -> dict[tuple[TopicId, int], ApiError | None]:
        """Set start offsets of an empty group, which may be new. What was acknowledged from there on is forgotten."""
        group, runtime = entry.share or ShareGroup(entry.group.group_id), entry.share_runtime
        if group.members:
            raise api_error(ErrorCode.NON_EMPTY_GROUP, "the group has members")
        if not runtime.is_deleting and not wanted.keys().isdisjoint(group.shared.deleting):
            await self._resume_deletion(entry, group)
        if not wanted.keys().isdisjoint(group.shared.deleting):
            raise _not_deleted()
        deletions = runtime.deletions
        # Under a new epoch: what the partitions' leaders may still write is fenced.
        self._write(entry, group, rules.next_epoch(group))
        epoch = group.epoch
        await self._stored(entry, group)
        keys = [
            (topic_id, ShareKey.of(group.group_id, topic_id, number))
            for topic_id, (_, each) in wanted.items()
            for number in each
        ]
        results: dict[tuple[TopicId, int], ApiError | None] = {}
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            errors = await each_of(
                [
                    self._begin(runtime, topic_id, key, epoch, wanted[topic_id][1][key.partition])
                    for topic_id, key in chunk
                ]
            )
            for (topic_id, key), error in zip(chunk, errors, strict=True):
                results[topic_id, key.partition] = error
        if not self._is_current(entry, group):
            raise api_error(ErrorCode.NOT_COORDINATOR)
        if runtime.deletions != deletions:
            raise _not_deleted()
        done = {
            topic_id: (name, frozenset(number for number in each if results[topic_id, number] is None))
            for topic_id, (name, each) in wanted.items()
        }
        self._write(entry, group, rules.set_by_hand(group, done))
        await self._appends.wait(entry.partition)
        return results

    async def topics_deleted(self, names: Iterable[str]) -> None:
        """States of topics that are no more are deleted."""
        gone = set(names)
        for partition in list(self._log.states()):
            for entry in list(partition.entries.values()):
                if entry.share is None:
                    continue
                doomed = [
                    topic_id
                    for topic_id, topic in rules.begun(entry.share).items()
                    if topic.name in gone and self._topics.topic_id(topic.name) != topic_id
                ]
                if doomed:
                    try:
                        await self.delete_states(entry, doomed)
                    except ApiError as error:
                        _log.info("group.share_states_kept", group=entry.share.group_id, error=error.code.name)

    async def partitions_removed(self, keys: Iterable[TopicPartition]) -> None:
        """States of partitions that topics do not have any more are deleted."""
        wanted: dict[str, set[int]] = {}
        for key in keys:
            wanted.setdefault(key.topic, set()).add(key.partition)
        gone = self._still_gone(wanted)
        await each_of(
            [
                self._delete_removed(entry, entry.share, doomed)
                for partition in self._log.states()
                for entry in partition.entries.values()
                if entry.share is not None and (doomed := only(rules.begun(entry.share), gone))
            ]
        )

    def _still_gone(self, numbers: Mapping[str, Iterable[int]]) -> dict[TopicId, frozenset[int]]:
        return {
            topic.topic_id: frozenset(number for number in numbers[name] if number >= topic.partitions)
            for name, topic in self._topics.lookup(numbers).items()
        }

    async def _delete_removed(self, entry: GroupEntry, group: ShareGroup, doomed: SharedTopics) -> None:
        """Delete the states of partitions that were removed from their topics, however often it fails.

        Until then these are partitions whose states have yet to begin: they begin again if the topics get them back.
        """
        runtime = entry.share_runtime
        runtime.leaving = joined(runtime.leaving, doomed)
        try:
            self._write(entry, group, rules.beginning_again(group, doomed))
            await self._stored(entry, group)
            keys = keys_of(group.group_id, doomed)
            while keys and self._is_current(entry, group):
                errors = await each_of([self.persister.delete(key) for _, key in keys[:_CHUNK]])
                failed = [key for key, error in zip(keys, errors, strict=False) if error is not None]
                keys = [*failed, *keys[_CHUNK:]]
                if failed:
                    await asyncio.sleep(_DELETE_AGAIN_S)
            gone = self._still_gone({topic.name: topic.partitions for topic in doomed.values()})
            if self._is_current(entry, group):
                self._write(entry, group, rules.forgotten(group, only(doomed, gone)))
        finally:
            runtime.leaving = without(runtime.leaving, partitions_of(doomed))

    async def delete_group(self, entry: GroupEntry) -> None:
        """Raises ApiError NON_EMPTY_GROUP too; and the group is left with the states that could not be deleted."""
        group = self._group(entry)
        if group.members:
            raise api_error(ErrorCode.NON_EMPTY_GROUP)
        if group.shared.deleting:
            await self._resume_deletion(entry, group)
        failed = await self.delete_states(entry, list(rules.begun(group)))
        for error in failed.values():
            if error is not None:
                raise error
        self._group(entry)  # raises if it was deleted meanwhile: by now there may be another one of this name
        if group.members:
            raise api_error(ErrorCode.NON_EMPTY_GROUP)

        def forget(_: object) -> None:
            group.is_dead = True
            entry.partition.entries.pop(group.group_id, None)

        pairs = [share_records.encode_record(group.group_id, record) for record in tombstones(group)]
        await self._appends.store(entry.partition, pairs, forget)

    # --- time ---

    def tick(self, entry: GroupEntry) -> None:
        """Remove members that are overdue."""
        group = entry.share
        assert group is not None
        gone = group.overdue(self._now())
        if not gone:
            return
        try:
            self._write(entry, group, rules.removed(group, gone))
        except ApiError:  # not written: a later tick tries again
            for member in gone:
                group.deadlines[member.member_id] = self._now() + 1_000
            return
        for member in gone:
            _log.info(
                "group.member_removed", group=group.group_id, member=member.member_id, reason="its session expired"
            )
        with suppress(ApiError):  # the next heartbeat tries again
            self._refresh(entry, group)

    def loaded(self, entry: GroupEntry) -> None:
        """Members get a whole session to find their new coordinator."""
        group = entry.share
        assert group is not None
        session_ms = int_setting(self._services, group.group_id, "share.session.timeout.ms")
        group.deadlines = dict.fromkeys(group.members, self._now() + session_ms)
        self._schedule(entry, group.next_deadline())
        entry.share_runtime.doubtful = {
            topic_id: set(numbers) for topic_id, numbers in partitions_of(group.shared.initializing).items()
        }
        written = entry.partition.written
        written.end = max(written.end, self._log.bounds(entry.partition.index)[0])

    def unloaded(self, entry: GroupEntry) -> None:
        """Another node coordinates the group."""
        if entry.share is not None:
            entry.share.is_dead = True

    # --- the log ---

    def _write(self, entry: GroupEntry, group: ShareGroup, records: Sequence[ShareRecord]) -> None:
        """Append and apply, without waiting for replication. Raises ApiError: nothing was appended, and nothing has changed."""

        def apply(_: object) -> None:
            entry.share = group
            for record in records:
                group.apply(record)

        if records:
            pairs = [share_records.encode_record(group.group_id, record) for record in records]
            self._appends.append(entry.partition, pairs, apply)


def _not_deleted() -> Exception:
    """What is set while offsets are deleted may be deleted, too. A client that gets this error asks again."""
    return api_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "offsets of the group are being deleted")
