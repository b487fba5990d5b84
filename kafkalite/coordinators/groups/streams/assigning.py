"""Brings the target assignments of streams groups up to date: topics, settings, the assignor (KIP-1071).

One task per group that needs it, as for consumer groups: it works in pieces, on what was there when it began, and then pauses
for `streams.assignment.interval.ms`. Members that come meanwhile are served by the next round, all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from kafkalite.coordinators.groups.decisions.streams.assignor import StreamsAssigned, assign
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.members import (
    StreamsGroupMetadata,
    StreamsRecord,
    StreamsTargetEpoch,
    StreamsTargetMember,
    TaskSets,
)
from kafkalite.coordinators.groups.decisions.streams.topology import ConfiguredSubtopology, Topology, configure
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition
from kafkalite.coordinators.groups.streams.groups import StreamsGroups
from kafkalite.coordinators.groups.streams.settings import assignment_interval_s, streams_settings
from kafkalite.coordinators.groups.topics import GroupTopics
from kafkalite.coordinators.internal_log import InternalLog
from kafkalite.coordinators.services import Services
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: A group's topics are compared at most this often, whatever else changes in the metadata.
_COMPARE_MS = 1_000
#: Targets in one append.
_CHUNK = 50


class StreamsTargets:
    """See the module."""

    def __init__(self, services: Services, log: InternalLog[GroupPartition], topics: GroupTopics) -> None:
        self._services = services
        self._log = log
        self._topics = topics
        #: Set once both exist.
        self.groups: StreamsGroups

    def work(self, partition: GroupPartition, entry: GroupEntry) -> None:
        """See to it that the group's target is up to date soon."""
        runtime, group = entry.streams_runtime, entry.streams
        if group is None or runtime.is_working or not self._is_due(entry, group):
            return
        runtime.is_working = True
        name = f"groups.assign.{group.group_id}"
        self._services.supervisor.spawn(name, self._run(partition, entry, group), Policy.ISOLATED)

    def _now(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    def _is_due(self, entry: GroupEntry, group: StreamsGroup) -> bool:
        runtime = entry.streams_runtime
        if not group.members or group.topology is None:
            return False
        if group.configured is None or (group.needs_assignment and not group.delayed_until):
            return True
        return runtime.topics_version != self._topics.version and self._now() - runtime.compared_ms >= _COMPARE_MS

    async def _run(self, partition: GroupPartition, entry: GroupEntry, group: StreamsGroup) -> None:
        runtime, clock = entry.streams_runtime, self._services.clock

        def is_current() -> bool:
            is_loaded = self._log.ready_state(partition.index) is partition
            return is_loaded and entry.streams is group and entry.streams_runtime is runtime

        try:
            while is_current() and self._is_due(entry, group):
                began, epoch = clock.monotonic(), group.target_epoch
                await self._round(partition, entry, group, is_current)
                is_new = group.target_epoch != epoch
                pause_s = assignment_interval_s(self._services, group.group_id) if is_new else 0.0
                await asyncio.sleep(max(clock.monotonic() - began, pause_s))
        except ApiError as error:
            _log.info("group.not_assigned", group=group.group_id, error=error.code.name)
            if is_current():
                self.groups.fail(entry, error.code)
        finally:
            runtime.is_working = False

    async def _round(
        self, partition: GroupPartition, entry: GroupEntry, group: StreamsGroup, is_current: Callable[[], bool]
    ) -> None:
        """One new target, or none if nothing has changed. Raises ApiError: something could not be appended."""
        assert group.topology is not None
        self._compare(partition, entry, group, group.topology)
        if not group.needs_assignment or group.delayed_until:
            return
        await asyncio.sleep(0)
        configured = group.configured
        if configured is None or not is_current():
            return
        epoch = group.epoch
        targets = await self._targets(group, configured.subtopologies if configured.is_ready else ())
        if is_current():
            await self._store(partition, entry, group, targets, epoch, is_current)

    def _compare(self, partition: GroupPartition, entry: GroupEntry, group: StreamsGroup, topology: Topology) -> None:
        """See whether the topics and the settings are still what the group's epoch was made for."""
        runtime = entry.streams_runtime
        runtime.topics_version, runtime.compared_ms = self._topics.version, self._now()
        found, existing = self.groups.topics_of(topology)
        configured = configure(topology, existing)
        validated = topology.epoch if configured.is_ready else -1
        settings = streams_settings(self._services, group.group_id).assignment
        if (found, validated, settings) != (group.metadata_hash, group.validated_epoch, group.settings):
            # A group that needs a new target anyway needs no further epoch.
            epoch = group.epoch if group.needs_assignment else group.next_epoch
            self.groups.write(partition, entry, group, [StreamsGroupMetadata(epoch, found, validated, settings)])
        group.configured = configured
        self.groups.watch(partition, entry, group)

    async def _targets(
        self, group: StreamsGroup, subtopologies: Sequence[ConfiguredSubtopology]
    ) -> Mapping[str, TaskSets]:
        members = [
            StreamsAssigned(
                member.member_id,
                member.process_id or member.member_id,
                group.target_of(member.member_id) or member.assigned,
            )
            for member in group.members.values()
        ]
        steps = assign(members, subtopologies, streams_settings(self._services, group.group_id).standby_replicas)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                targets: Mapping[str, TaskSets] = end.value
                return targets
            await asyncio.sleep(0)

    async def _store(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        group: StreamsGroup,
        targets: Mapping[str, TaskSets],
        epoch: int,
        is_current: Callable[[], bool],
    ) -> None:
        """Write the targets that have changed, then that they are complete. In between, the old epoch holds."""
        changed = [name for name, target in targets.items() if group.targets.get(name) != target]
        for start in range(0, len(changed), _CHUNK):
            # Who has left meanwhile has no target any more.
            records: list[StreamsRecord] = [
                StreamsTargetMember(name, targets[name])
                for name in changed[start : start + _CHUNK]
                if name in group.members
            ]
            if records:
                self.groups.write(partition, entry, group, records)
            await asyncio.sleep(0)
            if not is_current():
                return
        self.groups.write(partition, entry, group, [StreamsTargetEpoch(epoch, self._services.clock.wall_ms())])
        _log.info("group.assigned", group=group.group_id, epoch=epoch, members=len(targets), changed=len(changed))
        for _ in self.groups.settle(partition, entry, group):
            await asyncio.sleep(0)
            if not is_current():
                return
