"""Keeps the target assignments of groups up to date, whatever their protocol: one task per group that needs it.

A task works in rounds, on what was there when a round began. Members that come meanwhile are served by the next round, all at once.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from kafkalite.coordinators.groups.assigned_groups import AssignedGroups
from kafkalite.coordinators.groups.decisions.assigned_group import AssignedGroup
from kafkalite.coordinators.groups.decisions.members import TargetEpoch, TargetMember
from kafkalite.coordinators.groups.partition import AssignedRuntime, GroupEntry
from kafkalite.coordinators.groups.parts import GroupParts
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

#: A group's topics are compared at most this often (ms), whatever else changes in the metadata.
_COMPARE_MS = 1_000
#: The pause after a target that could not be stored, in seconds.
_AGAIN_S = 1.0
#: Targets that are written in one step.
_CHUNK = 50


G = TypeVar("G", bound=AssignedGroup[Any, Any])
R = TypeVar("R", bound=AssignedRuntime[Any, Any])
T = TypeVar("T")


class TargetWork(ABC, Generic[G, R]):
    """See the module. A subclass is one group protocol."""

    #: The protocol's groups; set once they exist.
    groups: AssignedGroups[G, Any, Any, Any]

    def __init__(self, parts: GroupParts) -> None:
        self._services = parts.services
        self._log = parts.log
        self._topics = parts.topics
        self._repeats = Repeats(parts.services.clock.monotonic)

    @abstractmethod
    def _of(self, entry: GroupEntry) -> tuple[G | None, R]:
        """The entry's group of this protocol, and what is kept beside it."""

    @abstractmethod
    def _needs_round(self, group: G, progress: R) -> bool:
        """Whether there is something to do besides comparing the topics."""

    @abstractmethod
    def _is_assignable(self, group: G) -> bool:
        """Whether anybody could be assigned anything."""

    @abstractmethod
    async def _round(self, entry: GroupEntry, group: G, is_current: Callable[[], bool]) -> None:
        """One new target, or none if nothing has changed. Raises ApiError: something could not be appended."""

    def _pause_s(self, group: G) -> float:
        """The least time in seconds between two new targets."""
        return 0.0

    def work(self, entry: GroupEntry) -> None:
        """See to it that the group's target is up to date soon."""
        group, progress = self._of(entry)
        if group is None or progress.is_working or not self._is_due(group, progress):
            return
        progress.is_working = True
        name = f"groups.assign.{group.group_id}"
        self._services.supervisor.spawn(name, self._run(entry, group, progress), Policy.ISOLATED)

    def _now(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    def _is_due(self, group: G, progress: R) -> bool:
        if not self._is_assignable(group):
            return False
        if self._needs_round(group, progress):
            return True
        return progress.topics_version != self._topics.version and self._now() - progress.compared_ms >= _COMPARE_MS

    async def _run(self, entry: GroupEntry, group: G, progress: R) -> None:
        clock = self._services.clock

        def is_current() -> bool:
            known, kept = self._of(entry)
            return (
                self._log.ready_state(entry.partition.index) is entry.partition and known is group and kept is progress
            )

        try:
            while is_current() and self._is_due(group, progress):
                began, epoch = clock.monotonic(), group.target_epoch
                try:
                    await self._round(entry, group, is_current)
                    pause_s = self._pause_s(group) if group.target_epoch != epoch else 0.0
                except ApiError as error:
                    pause_s = _AGAIN_S
                    if (suppressed := self._repeats.admit(("group.not_assigned", error.code))) is not None:
                        _log.info(
                            "group.not_assigned", group=group.group_id, error=error.code.name, suppressed=suppressed
                        )
                    if is_current():
                        self.groups.fail(entry, error.code)
                # A group that grows by a member at a time must not take the node's whole time.
                await asyncio.sleep(max(clock.monotonic() - began, pause_s))
        finally:
            progress.is_working = False

    async def _store(
        self,
        entry: GroupEntry,
        group: G,
        targets: Mapping[str, T],
        epoch: int,
        is_current: Callable[[], bool],
    ) -> None:
        """Write the targets that have changed, then that they are complete. In between, the old epoch holds."""
        changed = [name for name, target in targets.items() if group.targets.get(name) != target]
        for start in range(0, len(changed), _CHUNK):
            # A member that has left meanwhile has no target any more.
            names = [name for name in changed[start : start + _CHUNK] if name in group.members]
            if names:
                self.groups.write_each(entry, group, [TargetMember(name, targets[name]) for name in names])
            await asyncio.sleep(0)
            if not is_current():
                return
        if group.epoch == epoch and not group.members.keys() <= targets.keys():
            return  # a static member is back under another id, which has no target: the next round has one
        self.groups.write(entry, group, [TargetEpoch(epoch, self._services.clock.wall_ms())])
        _log.info("group.assigned", group=group.group_id, epoch=epoch, members=len(targets), changed=len(changed))
        for _ in self.groups.settle(entry, group):
            await asyncio.sleep(0)
            if not is_current():
                return
