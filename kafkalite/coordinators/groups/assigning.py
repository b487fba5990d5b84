"""Brings the target assignments of consumer groups up to date: topics, regular expressions, the assignor (KIP-848).

One task per group that needs it. It works in pieces, between which the loop serves others, and on what was there when it
began: members that come meanwhile are served by the next round, all at once. After a round it pauses for as long as the
round took, so that a group that grows by a member at a time does not take the node's whole time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

from kafkalite.coordinators.groups.consumer_groups import ConsumerGroups
from kafkalite.coordinators.groups.decisions.assignment import AssignedMember, AssignmentInput, NewTargets
from kafkalite.coordinators.groups.decisions.assignors import ASSIGNORS
from kafkalite.coordinators.groups.decisions.consumer_group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.members import (
    GroupEpoch,
    Record,
    RegexTopics,
    ResolvedRegex,
    TargetEpoch,
    TargetMember,
)
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition
from kafkalite.coordinators.groups.topics import GroupTopics, matching, metadata_hash
from kafkalite.coordinators.internal_log import InternalLog
from kafkalite.coordinators.patterns import full_match
from kafkalite.coordinators.services import Services
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import TopicId
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: A group's topics are compared at most this often, whatever else changes in the metadata.
_COMPARE_MS = 1_000
#: Targets in one append.
_CHUNK = 50
#: Members that are prepared for the assignor between two yields.
_PIECE = 250


class TargetAssignments:
    """See the module."""

    def __init__(self, services: Services, log: InternalLog[GroupPartition], topics: GroupTopics) -> None:
        self._services = services
        self._log = log
        self._topics = topics
        #: Set once both exist.
        self.groups: ConsumerGroups

    def work(self, partition: GroupPartition, entry: GroupEntry) -> None:
        """See to it that the group's target is up to date soon."""
        runtime, group = entry.runtime, entry.consumer
        if group is None or runtime.is_working or not self._is_due(entry, group):
            return
        runtime.is_working = True
        name = f"groups.assign.{group.group_id}"
        self._services.supervisor.spawn(name, self._run(partition, entry, group), Policy.ISOLATED)

    def _now(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    def _is_due(self, entry: GroupEntry, group: ConsumerGroup) -> bool:
        runtime = entry.runtime
        if not group.members:
            return False
        if group.needs_assignment or any(regex not in group.regexes for regex in runtime.visible):
            return True
        return runtime.topics_version != self._topics.version and self._now() - runtime.compared_ms >= _COMPARE_MS

    async def _run(self, partition: GroupPartition, entry: GroupEntry, group: ConsumerGroup) -> None:
        runtime, clock = entry.runtime, self._services.clock

        def is_current() -> bool:
            is_loaded = self._log.ready_state(partition.index) is partition
            return is_loaded and entry.consumer is group and entry.runtime is runtime

        try:
            while is_current() and self._is_due(entry, group):
                began = clock.monotonic()
                await self._round(partition, entry, group, is_current)
                await asyncio.sleep(clock.monotonic() - began)
        except ApiError as error:
            _log.info("group.not_assigned", group=group.group_id, error=error.code.name)
            if is_current():
                self.groups.fail(entry, error.code)
        finally:
            runtime.is_working = False

    async def _round(
        self, partition: GroupPartition, entry: GroupEntry, group: ConsumerGroup, is_current: Callable[[], bool]
    ) -> None:
        """One new target, or none if nothing has changed. Raises ApiError: something could not be appended."""
        runtime = entry.runtime
        version = self._topics.version
        await self._match(partition, entry, group, is_current)
        if not is_current():
            return
        topics = self._topics.lookup(group.subscribed_topics())
        runtime.topics_version, runtime.compared_ms = version, self._now()
        await asyncio.sleep(0)
        found = metadata_hash(topics)
        if not is_current() or not group.members:
            return
        if found != group.metadata_hash:
            # A group that needs a new target anyway needs no further epoch.
            epoch = group.epoch if group.needs_assignment else group.epoch + 1
            self.groups.write(partition, entry, group, [GroupEpoch(epoch, found)])
        if not group.needs_assignment:
            return
        epoch = group.epoch
        by_name = {name: topic.topic_id for name, topic in topics.items()}
        given = AssignmentInput(await _members(group, by_name), {topic.topic_id: topic for topic in topics.values()})
        targets = await self._targets(group, given)
        await self._store(partition, entry, group, targets, epoch, is_current)

    async def _targets(self, group: ConsumerGroup, given: AssignmentInput) -> NewTargets:
        name = group.assignor(self._services.config.group_consumer_assignors)
        steps = ASSIGNORS[name](given)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                targets: NewTargets = end.value
                return targets
            await asyncio.sleep(0)

    async def _store(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        group: ConsumerGroup,
        targets: NewTargets,
        epoch: int,
        is_current: Callable[[], bool],
    ) -> None:
        """Write the targets that have changed, then that they are complete. In between, the old epoch holds."""
        changed = [name for name, target in targets.items() if group.targets.get(name) != target]
        for start in range(0, len(changed), _CHUNK):
            # Who has left meanwhile has no target any more.
            records: list[Record] = [
                TargetMember(name, targets[name]) for name in changed[start : start + _CHUNK] if name in group.members
            ]
            if records:
                self.groups.write(partition, entry, group, records)
            await asyncio.sleep(0)
            if not is_current():
                return
        self.groups.write(partition, entry, group, [TargetEpoch(epoch, self._services.clock.wall_ms())])
        _log.info("group.assigned", group=group.group_id, epoch=epoch, members=len(targets), changed=len(changed))
        for _ in self.groups.settle(partition, entry, group):
            await asyncio.sleep(0)
            if not is_current():
                return

    # --- regular expressions ---

    async def _match(
        self, partition: GroupPartition, entry: GroupEntry, group: ConsumerGroup, is_current: Callable[[], bool]
    ) -> None:
        runtime = entry.runtime
        used = sorted(group.used_regexes())
        runtime.visible = {regex: runtime.visible[regex] for regex in used if regex in runtime.visible}
        if not used:
            return
        names = tuple(self._topics.names())
        age_ms = self._now() - runtime.matched_ms
        is_stale = (
            names != runtime.matched_names or age_ms >= self._services.config.group_consumer_regex_refresh_interval_ms
        )
        for regex in used:
            known = group.regexes.get(regex)
            if known is not None and not is_stale:
                continue
            found = await self._matching(regex, names, runtime.visible.get(regex))
            if found is None or not is_current():
                continue
            if known is None or known.topics != found:
                version = 1 if known is None else known.version + 1
                resolved = ResolvedRegex(found, version, self._services.clock.wall_ms())
                self.groups.write(partition, entry, group, [RegexTopics(regex, resolved)])
        if is_stale:
            runtime.matched_names, runtime.matched_ms = names, self._now()

    async def _matching(
        self, regex: str, names: Sequence[str], is_visible: Callable[[str], bool] | None
    ) -> tuple[str, ...] | None:
        """None: it cannot be said now (no member has come since this node coordinates the group)."""
        if is_visible is None:
            return None
        try:
            matches = full_match(regex)
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise
            return ()  # stored by a coordinator that could read it
        found: list[str] = []
        for name in matching(names, matches, is_visible):
            if name is None:
                await asyncio.sleep(0)
            else:
                found.append(name)
        return tuple(found)


async def _members(group: ConsumerGroup, by_name: dict[str, TopicId]) -> tuple[AssignedMember, ...]:
    """All members in the order of their ranks; those that subscribe alike share one set."""
    sets: dict[tuple[tuple[str, ...], str], frozenset[TopicId]] = {}
    found: list[AssignedMember] = []
    members = iter(list(group.members.values()))
    while piece := list(islice(members, _PIECE)):
        for member in piece:
            key = (member.topics, member.regex)
            topics = sets.get(key)
            if topics is None:
                names = group.topics_of(member.topics, member.regex)
                topics = sets[key] = frozenset(by_name[name] for name in names if name in by_name)
            found.append(
                AssignedMember(
                    member.member_id, member.instance_id, member.rack_id, topics, group.target_of(member.member_id)
                )
            )
        await asyncio.sleep(0)
    return tuple(sorted(found, key=lambda each: each.rank))
