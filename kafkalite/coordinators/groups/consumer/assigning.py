"""Brings the target assignments of consumer groups up to date: topics, regular expressions, the assignor (KIP-848).

`target_work` says when. The work is done in pieces, between which the loop serves others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import islice

from kafkalite.coordinators.groups.consumer.groups import ConsumerGroups
from kafkalite.coordinators.groups.decisions.assignment import AssignedMember, AssignmentInput, NewTargets
from kafkalite.coordinators.groups.decisions.consumer.assignors import ASSIGNORS
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.members import (
    GroupEpoch,
    Record,
    RegexTopics,
    ResolvedRegex,
)
from kafkalite.coordinators.groups.decisions.subscription import NAMES_AT_ONCE, subscribed
from kafkalite.coordinators.groups.partition import ConsumerRuntime, GroupEntry, Matching
from kafkalite.coordinators.groups.parts import GroupParts
from kafkalite.coordinators.groups.settings import int_setting
from kafkalite.coordinators.groups.target_work import TargetWork
from kafkalite.coordinators.groups.topics import metadata_hash
from kafkalite.coordinators.patterns import full_match, matching_texts, text_pieces
from kafkalite.env.fair_executor import FairExecutor
from kafkalite.env.turns import result_of
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import TopicId

#: What it costs to prepare a member for the assignor, in names that it subscribes to.
_MEMBER_COST = 4


class TargetAssignments(TargetWork[ConsumerGroup, ConsumerRuntime]):
    """See the module."""

    #: Set once both exist.
    groups: ConsumerGroups

    def __init__(self, parts: GroupParts) -> None:
        super().__init__(parts)
        #: One expression at a time, hosts in turn: a few bytes of it may keep a processor busy for seconds.
        self._executor = FairExecutor(parts.services.run_blocking, parts.services.clock, at_once=1)

    def _of(self, entry: GroupEntry) -> tuple[ConsumerGroup | None, ConsumerRuntime]:
        return entry.consumer, entry.runtime

    def _is_assignable(self, group: ConsumerGroup) -> bool:
        return bool(group.members)

    def _needs_round(self, group: ConsumerGroup, progress: ConsumerRuntime) -> bool:
        is_unknown = any(regex not in group.regexes for regex in progress.visible)
        return group.needs_assignment or is_unknown or bool(progress.matching)

    def _pause_s(self, group: ConsumerGroup) -> float:
        return int_setting(self._services, group.group_id, "consumer.assignment.interval.ms") / 1000

    async def _round(self, entry: GroupEntry, group: ConsumerGroup, is_current: Callable[[], bool]) -> None:
        """One new target, or none if nothing has changed. Raises ApiError: something could not be appended."""
        runtime = entry.runtime
        version = self._topics.version
        await self._match(entry, group, is_current)
        if not is_current():
            return
        # The target is for this epoch: members that come while others are served may subscribe to other topics.
        epoch = group.epoch
        lists = [group.topics_of(member.topics, member.regex) for member in group.members.values()]
        topics = self._topics.lookup(await result_of(subscribed(lists, self._topics.existing())))
        runtime.topics_version, runtime.compared_ms = version, self._now()
        await asyncio.sleep(0)
        found = metadata_hash(topics)
        if not is_current() or not group.members:
            return
        if found != group.metadata_hash:
            # A group that needs a new target anyway needs no further epoch.
            epoch += not group.needs_assignment
            self.groups.write(entry, group, [GroupEpoch(max(epoch, group.epoch), found)])
        if epoch <= group.target_epoch:
            return
        by_name = {name: topic.topic_id for name, topic in topics.items()}
        given = AssignmentInput(await _members(group, by_name), {topic.topic_id: topic for topic in topics.values()})
        targets = await self._targets(group, given)
        await self._store(entry, group, targets, epoch, is_current)

    async def _targets(self, group: ConsumerGroup, given: AssignmentInput) -> NewTargets:
        name = group.assignor(self._services.config.group_consumer_assignors)
        return await result_of(ASSIGNORS[name](given))

    # --- regular expressions ---

    async def _match(self, entry: GroupEntry, group: ConsumerGroup, is_current: Callable[[], bool]) -> None:
        runtime = entry.runtime
        used = sorted(group.used_regexes())
        runtime.visible = {regex: runtime.visible[regex] for regex in used if regex in runtime.visible}
        runtime.matching = {regex: runtime.matching[regex] for regex in runtime.visible if regex in runtime.matching}
        if not used:
            return
        names = tuple(self._topics.names())
        age_ms = self._now() - runtime.matched_ms
        is_stale = (
            names != runtime.matched_names or age_ms >= self._services.config.group_consumer_regex_refresh_interval_ms
        )
        until = self._services.clock.monotonic() + self._match_s(group)
        for regex in used:
            known = group.regexes.get(regex)
            if known is not None and not is_stale:
                continue
            found = await self._matching(runtime, regex, names, until)
            if found is None or not is_current():
                continue
            if known is None or known.topics != found:
                version = 1 if known is None else known.version + 1
                resolved = ResolvedRegex(found, version, self._services.clock.wall_ms())
                records: list[Record] = [RegexTopics(regex, resolved)]
                if known is None and not group.needs_assignment:  # members have a target without these topics
                    records.append(GroupEpoch(group.epoch + 1, group.metadata_hash))
                self.groups.write(entry, group, records)
        if all(each.is_complete for each in runtime.matching.values()):
            runtime.matching = {}
            if is_stale:
                runtime.matched_names, runtime.matched_ms = names, self._now()

    def _match_s(self, group: ConsumerGroup) -> float:
        """How long members wait for expressions, in seconds. Then they get a target without them, and a later one with them."""
        return self.groups.settings(group.group_id).heartbeat_interval_ms / 1000

    async def _matching(
        self, runtime: ConsumerRuntime, regex: str, names: tuple[str, ...], until: float
    ) -> tuple[str, ...] | None:
        """What it matches. None: it cannot be said now (no member has come since this node coordinates the group), or there was
        not time enough; then the next call goes on."""
        reader = runtime.visible.get(regex)
        if reader is None:
            return None
        is_visible, host = reader
        try:
            matches = full_match(regex)
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise
            return ()  # stored by a coordinator that could read it
        progress = runtime.matching.get(regex)
        if progress is None or progress.names != names:
            progress = runtime.matching[regex] = Matching(names)
        while not progress.is_complete:
            if self._services.clock.monotonic() >= until:
                return None
            piece = next(text_pieces(islice(names, progress.looked_at, None)))
            matching, _ = await self._executor.run((host, regex), partial(matching_texts, matches, piece))
            progress.looked_at += len(piece)
            progress.found += filter(is_visible, matching)
        return tuple(progress.found)


async def _members(group: ConsumerGroup, by_name: dict[str, TopicId]) -> tuple[AssignedMember, ...]:
    """All members in the order of their ranks; those that subscribe alike share one set."""
    sets: dict[tuple[tuple[str, ...], str], frozenset[TopicId]] = {}
    found: list[AssignedMember] = []
    size = 0
    for member in list(group.members.values()):
        key = (member.topics, member.regex)
        topics = sets.get(key)
        if topics is None:
            names = group.topics_of(member.topics, member.regex)
            topics = sets[key] = frozenset(by_name[name] for name in by_name.keys() & names)
        found.append(
            AssignedMember(
                member.member_id, member.instance_id, member.rack_id, topics, group.target_of(member.member_id)
            )
        )
        size += _MEMBER_COST + len(member.topics)
        if size >= NAMES_AT_ONCE:
            size = 0
            await asyncio.sleep(0)
    return tuple(sorted(found, key=lambda each: each.rank))
