"""What a controller reads from ZooKeeper: a number for each source of events, and for the admin znodes how each becomes an event.

A new admin znode is one entry of `ADMIN` here, its path (`coordination.paths`) and format (`coordination.admin_znodes`), its
event, and the decision about it (`controller.decisions`). The effect `RemoveAdminRequest` removes it when it is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum

from kafkalite.controller.decisions.events import (
    DeletionsRequested,
    Event,
    PreferredElectionRequested,
    ReassignmentRequested,
)
from kafkalite.controller.storage import Storage
from kafkalite.coordination import admin_znodes, paths
from kafkalite.coordination.coordinator import Watch
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.lazy_dataclass import dataclass


class EventSource(IntEnum):
    """What can have changed, in the order in which it is read."""

    BROKERS = 1
    TOPICS = 2
    DELETIONS = 3
    RESTARTS = 4
    PREFERRED_ELECTION = 5
    PARTITION_REQUESTS = 6
    REASSIGNMENT = 7
    MOVES = 8
    TICK = 9
    STATES = 10


@dataclass(frozen=True, slots=True)
class AdminSource:
    """One kind of admin znode. `read` sets the watch, too."""

    read: Callable[[Storage, Watch], Awaitable[Event]]
    #: It may name a topic that is newer than our list, and unknown names are dropped: topics are read first.
    names_topics: bool = True
    #: Requests from before an election are read by the new controller, with everything else.
    is_read_at_start: bool = False


async def _deletions(storage: Storage, watch: Watch) -> Event:
    return DeletionsRequested(*await storage.read_deletions(watch))


async def _preferred_election(storage: Storage, watch: Watch) -> Event:
    found = await storage.read_request(paths.PREFERRED_REPLICA_ELECTION, watch)
    if found is None:
        return PreferredElectionRequested((), -1)
    data, version = found
    try:
        election = admin_znodes.decode_preferred_election(data)
        return PreferredElectionRequested(election.partitions, version, unclean=election.unclean)
    except ZnodeError as error:
        return PreferredElectionRequested((), version, error.reason)


async def _reassignment(storage: Storage, watch: Watch) -> Event:
    found = await storage.read_request(paths.REASSIGN_PARTITIONS, watch)
    if found is None:
        return ReassignmentRequested({})
    try:
        data = found[0]
        targets, throttles = admin_znodes.decode_reassignment(data), admin_znodes.decode_throttles(data)
        return ReassignmentRequested(targets, throttles, limits=admin_znodes.decode_request_limits(data), is_there=True)
    except ZnodeError as error:
        return ReassignmentRequested({}, malformed=error.reason)


ADMIN: Mapping[EventSource, AdminSource] = {
    EventSource.DELETIONS: AdminSource(_deletions, is_read_at_start=True),
    EventSource.RESTARTS: AdminSource(Storage.read_restarts, names_topics=False),
    EventSource.PREFERRED_ELECTION: AdminSource(_preferred_election),
    EventSource.PARTITION_REQUESTS: AdminSource(Storage.read_partition_requests),
    EventSource.REASSIGNMENT: AdminSource(_reassignment),
}
