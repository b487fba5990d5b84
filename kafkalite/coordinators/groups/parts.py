"""What the groups of every protocol need of their coordinator."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition
from kafkalite.coordinators.groups.topics import GroupTopics
from kafkalite.coordinators.internal_log import InternalLog
from kafkalite.coordinators.services import Services
from kafkalite.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GroupParts:
    """What one node's groups share.

    Attributes:
        log: the partitions of `__consumer_offsets` that this node leads.
        schedule: has an entry's groups ticked at this moment (monotonic ms); None: nothing is due.
    """

    services: Services
    log: InternalLog[GroupPartition]
    topics: GroupTopics
    schedule: Callable[[GroupEntry, int | None], None]
