"""Share groups of the partitions that this node coordinates (KIP-932): the shell around `decisions.share`.

A decision returns records. They are appended, then applied (`group_log`); the answer goes out when they are replicated. The states
of partitions that a group begins to share are initialized by a task per group (`states`). A member that joins waits for it
for a while, so that it need not wait for its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kafkalite.coordinators.groups.decisions.assignment import AssignedTopic
from kafkalite.coordinators.groups.decisions.members import LEAVE_EPOCH, CurrentAssignment, removed_together
from kafkalite.coordinators.groups.decisions.share import heartbeats as rules
from kafkalite.coordinators.groups.decisions.share.group import ShareGroup
from kafkalite.coordinators.groups.decisions.share.heartbeats import ShareHeartbeat
from kafkalite.coordinators.groups.decisions.subscription import subscribed
from kafkalite.coordinators.groups.partition import GroupEntry
from kafkalite.coordinators.groups.parts import GroupParts
from kafkalite.coordinators.groups.settings import int_setting
from kafkalite.coordinators.groups.share.group_log import ShareGroupLog, need_share_group
from kafkalite.coordinators.groups.share.states import ShareGroupStates
from kafkalite.coordinators.groups.topics import metadata_hash
from kafkalite.env.supervisor import Policy
from kafkalite.env.turns import result_of
from kafkalite.errors import ApiError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicId
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: A group's topics are compared at most this often, whatever else changes in the metadata.
_COMPARE_MS = 1_000


@dataclass(frozen=True, slots=True)
class ShareHeartbeatAnswer:
    """`assigned` None: as before."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assigned: Mapping[TopicId, frozenset[int]] | None = None


class ShareGroups:
    """See the module. Methods raise ApiError."""

    def __init__(self, parts: GroupParts, group_log: ShareGroupLog, states: ShareGroupStates) -> None:
        self._services = parts.services
        self._topics = parts.topics
        self._schedule = parts.schedule
        self._group_log = group_log
        self._states = states

    def _now(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    # --- members ---

    async def heartbeat(self, entry: GroupEntry, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """A member joins, is there, or leaves."""
        if request.epoch == LEAVE_EPOCH:
            return await self._leave(entry, request.member_id)
        group = entry.share or ShareGroup(entry.group.group_id)
        records = rules.heartbeat(group, request, self._services.config.group_share_max_size)
        self._group_log.write(entry, group, records)
        session_ms = int_setting(self._services, group.group_id, "share.session.timeout.ms")
        deadline = group.deadlines[request.member_id] = self._now() + session_ms
        self._schedule(entry, deadline)
        await self._refresh(entry, group)
        if not request.epoch and self._states.has_due(entry, group):
            await self._states.begun(entry)
            self._group_log.check_current(entry, group)
            await self._refresh(entry, group)
        before = group.member(request.member_id)
        after = rules.reached(group, before)
        if after is not before:
            self._group_log.write(entry, group, [CurrentAssignment(after.member_id, after)])
        await self._group_log.replicated(entry)
        interval_ms = int_setting(self._services, group.group_id, "share.heartbeat.interval.ms")
        shows = request.topics is not None or request.epoch != after.epoch
        return ShareHeartbeatAnswer(after.member_id, after.epoch, interval_ms, after.assigned if shows else None)

    async def _leave(self, entry: GroupEntry, member_id: str) -> ShareHeartbeatAnswer:
        group = need_share_group(entry)
        self._group_log.write(entry, group, rules.removed(group, [group.member(member_id)]))
        await self._refresh(entry, group)
        await self._group_log.replicated(entry)
        return ShareHeartbeatAnswer(member_id, LEAVE_EPOCH, 0)

    async def _refresh(self, entry: GroupEntry, group: ShareGroup) -> None:
        """Bring states and the target up to date with members and topics. What somebody else does already is done by them, for all."""
        runtime, version = entry.share_runtime, self._topics.version
        is_changed = runtime.topics_version != version and self._now() - runtime.compared_ms >= _COMPARE_MS
        # What is too early now is done with a later heartbeat of any member.
        is_early = self._now() < runtime.assigned_ms + int_setting(
            self._services, group.group_id, "share.assignment.interval.ms"
        )
        is_due = group.members and (is_changed or group.epoch > group.target_epoch) and not is_early
        if is_due and not runtime.is_assigning:
            runtime.is_assigning = True
            try:
                runtime.topics_version, runtime.compared_ms = version, self._now()
                before = group.target_epoch
                topics = await self._subscribed(entry, group)
                self._group_log.write(entry, group, rules.topics_compared(group, topics, metadata_hash(topics)))
                records = await result_of(rules.new_target(group, topics, self._services.clock.wall_ms()))
                self._group_log.check_current(entry, group)
                self._group_log.write_each(entry, group, records)  # its epoch comes last
                # A first target assigns nothing: the states of the partitions are not begun yet.
                if group.target_epoch != before and any(group.targets.values()):
                    runtime.assigned_ms = self._now()
            finally:
                runtime.is_assigning = False
        self._states.work(entry, group)

    async def _subscribed(self, entry: GroupEntry, group: ShareGroup) -> Mapping[str, AssignedTopic]:
        """The topics of the group's epoch as it is when this returns. Raises ApiError: another node coordinates the group."""
        while True:
            epoch, lists = group.epoch, [member.topics for member in group.members.values()]
            names = await result_of(subscribed(lists, self._topics.existing()))
            self._group_log.check_current(entry, group)
            if group.epoch == epoch:
                return self._topics.lookup(names)

    # --- time ---

    def tick(self, entry: GroupEntry) -> None:
        """Remove members that are overdue, as many as one append may have."""
        group = entry.share
        assert group is not None
        gone = group.overdue(self._now())
        if not gone:
            return
        gone = gone[: removed_together(group.group_id, (member.member_id for member in gone))]
        try:
            self._group_log.write(entry, group, rules.removed(group, gone))
        except ApiError:  # not written: a later tick tries again
            for member in gone:
                group.deadlines[member.member_id] = self._now() + 1_000
            return
        for member in gone:
            _log.info(
                "group.member_removed", group=group.group_id, member=member.member_id, reason="its session expired"
            )
        self._services.supervisor.spawn("shares.refresh", self._refreshed(entry, group), Policy.ISOLATED)

    async def _refreshed(self, entry: GroupEntry, group: ShareGroup) -> None:
        with suppress(ApiError):  # the next heartbeat tries again
            await self._refresh(entry, group)

    def give_time(self, entry: GroupEntry) -> None:
        """Nobody could be heard: the sessions of all members begin again."""
        group = entry.share
        assert group is not None
        session_ms = int_setting(self._services, group.group_id, "share.session.timeout.ms")
        group.deadlines = dict.fromkeys(group.members, self._now() + session_ms)
        self._schedule(entry, group.next_deadline())

    def loaded(self, entry: GroupEntry) -> None:
        """Members have to find their new coordinator."""
        group = entry.share
        assert group is not None
        self.give_time(entry)
        self._states.loaded(entry, group)
        self._group_log.loaded(entry)

    def unloaded(self, entry: GroupEntry) -> None:
        """Another node coordinates the group."""
        if entry.share is not None:
            entry.share.is_dead = True
            self._states.unloaded(entry)
