"""Brings the target assignments of streams groups up to date: topics, settings, the assignor (KIP-1071).

`target_work` says when; after a new target it pauses for `streams.assignment.interval.ms`. The work is done in pieces, between which
the loop serves others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from kafkalite.coordinators.groups.decisions.streams.assignor import StreamsAssigned, assign
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.members import (
    StreamsGroupMetadata,
    TaskSets,
)
from kafkalite.coordinators.groups.decisions.streams.topology import ConfiguredSubtopology, Topology, configure
from kafkalite.coordinators.groups.partition import GroupEntry, StreamsRuntime
from kafkalite.coordinators.groups.streams.groups import StreamsGroups
from kafkalite.coordinators.groups.streams.settings import assignment_interval_s, streams_settings
from kafkalite.coordinators.groups.target_work import TargetWork
from kafkalite.env.turns import result_of


class StreamsTargets(TargetWork[StreamsGroup, StreamsRuntime]):
    """See the module."""

    #: Set once both exist.
    groups: StreamsGroups

    def _of(self, entry: GroupEntry) -> tuple[StreamsGroup | None, StreamsRuntime]:
        return entry.streams, entry.streams_runtime

    def _is_assignable(self, group: StreamsGroup) -> bool:
        return bool(group.members) and group.topology is not None

    def _needs_round(self, group: StreamsGroup, progress: StreamsRuntime) -> bool:
        return group.configured is None or (group.needs_assignment and not group.delayed_until)

    def _pause_s(self, group: StreamsGroup) -> float:
        return assignment_interval_s(self._services, group.group_id)

    async def _round(self, entry: GroupEntry, group: StreamsGroup, is_current: Callable[[], bool]) -> None:
        """One new target, or none if nothing has changed. Raises ApiError: something could not be appended."""
        assert group.topology is not None
        self._compare(entry, group, group.topology)
        if not group.needs_assignment or group.delayed_until:
            return
        await asyncio.sleep(0)
        configured = group.configured
        if configured is None or not is_current():
            return
        epoch = group.epoch
        targets = await self._targets(group, configured.subtopologies if configured.is_ready else ())
        if is_current():
            await self._store(entry, group, targets, epoch, is_current)

    def _compare(self, entry: GroupEntry, group: StreamsGroup, topology: Topology) -> None:
        """See whether the topics and the settings are still what the group's epoch was made for."""
        runtime = entry.streams_runtime
        runtime.topics_version, runtime.compared_ms = self._topics.version, self._now()
        found, existing = self.groups.topics_of(topology)
        configured = configure(topology, existing)
        validated = topology.epoch if configured.is_ready else -1
        settings = streams_settings(self._services, group.group_id).assignment
        if (found, validated, settings) != (group.metadata_hash, group.validated_epoch, group.settings):
            # A group that needs a new target anyway needs no further epoch.
            epoch = group.epoch if group.needs_assignment else group.epoch + 1
            self.groups.write(entry, group, [StreamsGroupMetadata(epoch, found, validated, settings)])
        group.configured = configured
        self.groups.watch(entry, group)

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
        return await result_of(steps)
