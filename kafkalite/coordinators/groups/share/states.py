"""The kept states of the partitions that a share group shares: which ones, and requests for several of them side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from kafkalite.coordinators.groups.decisions.share.group import (
    SharedTopic,
    SharedTopics,
    ShareGroup,
    partitions_of,
    without,
)
from kafkalite.coordinators.groups.partition import GroupEntry
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.errors import ApiError
from kafkalite.model import TopicId


def due(entry: GroupEntry, group: ShareGroup) -> dict[TopicId, SharedTopic]:
    """The partitions whose states are to begin now."""
    return without(group.shared.initializing, partitions_of(entry.share_runtime.leaving))


def keys_of(group_id: str, topics: SharedTopics) -> list[tuple[TopicId, ShareKey]]:
    """The keys of all these partitions, sorted, each with its topic."""
    return [
        (topic_id, ShareKey.of(group_id, topic_id, number))
        for topic_id, numbers in sorted(partitions_of(topics).items())
        for number in sorted(numbers)
    ]


async def each_of(work: Sequence[Coroutine[object, object, None]]) -> list[ApiError | None]:
    """Do all side by side; the error of each."""

    async def one(each: Coroutine[object, object, None]) -> ApiError | None:
        try:
            await each
        except ApiError as error:
            return error
        return None

    async with asyncio.TaskGroup() as tasks:
        found = [tasks.create_task(one(each)) for each in work]
    return [task.result() for task in found]
