"""Planted errors of group coordinators: what is deleted, begun and set beside each other, and what counts after a transaction."""

from __future__ import annotations

from typing import Any

from kafkalite.coordinators.groups.offsets import GroupOffsets
from kafkalite.coordinators.groups.partition import GroupEntry
from kafkalite.coordinators.groups.removal import GroupRemoval
from kafkalite.coordinators.groups.share.states import ShareGroupStates
from kafkalite.coordinators.shares.coordinator import ShareCoordinator
from kafkalite.model import TopicPartition
from kafkalite.testing.simulation.plants.patch import Patch


def topology_of_a_deleted_group(patch: Patch) -> None:
    """A streams group is there until its tombstones are replicated: who joins meanwhile does not say its topology again."""
    drop, forget = GroupEntry.drop_newer, GroupRemoval._forget

    async def planted(self: GroupRemoval, entry: Any, doomed: Any, *, and_group: bool = False) -> None:
        await forget(self, entry, doomed, and_group=and_group)
        if and_group and entry.is_empty and entry.offsets.is_empty():
            drop(entry)
            entry.partition.entries.pop(entry.group.group_id, None)

    patch(GroupEntry, "drop_newer", lambda self: None)
    patch(GroupRemoval, "_forget", planted)


def deletes_before_beginnings_end(patch: Patch) -> None:
    """A share group's state is deleted while a request that begins it is under way: it begins afterwards, though its topic is gone. The share
    coordinator does not look whether it is."""

    async def planted(self: ShareGroupStates, runtime: Any, key: Any) -> None:
        await self.persister().delete(key)

    patch(ShareGroupStates, "_erase", planted)
    patch(ShareCoordinator, "_is_deleted", lambda self, topic_id: False)


def reads_unstable_offsets(patch: Patch) -> None:
    """Readers of stable offsets do not wait for the markers of a transaction that is committed (KIP-447)."""
    patch(GroupOffsets, "is_unstable", lambda self, partition: False)


def last_marker_wins(patch: Patch) -> None:
    """The end of a transaction commits its offsets over those that were committed since without one."""

    def planted(self: GroupOffsets, partition: TopicPartition, offset: Any) -> None:
        self.was_used = True
        self.committed[partition] = offset

    patch(GroupOffsets, "commit", planted)
