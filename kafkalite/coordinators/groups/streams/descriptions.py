"""Descriptions of topologies, for people (KIP-1331): the coordinator asks a member for one, and keeps it in its memory.

Kafka leaves that to a plug-in. Here it is lost with the coordinator, and the next one asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.members import StreamsMember
from kafkalite.coordinators.groups.partition import GroupEntry
from kafkalite.coordinators.services import Services
from kafkalite.errors import ErrorCode, api_error
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode
from kafkalite.security.fair_room import FairRoom

if TYPE_CHECKING:  # the classes are made when a request of their kind comes
    Description = wire.StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription
else:
    Description = object

#: One group's, as it comes over the wire.
MAX_BYTES = 1024 * 1024
#: What a node or a name takes beside its characters: a node may have 7 bytes.
_PART_BYTES = 300
#: Of all groups together, in memory. Users share it (`security.fair_room`).
MAX_TOTAL_BYTES = 64 * 1024 * 1024
#: Time (ms) after which another member is asked, if the first one has sent nothing.
_ASK_AGAIN_MS = 10_000


class TopologyDescriptions:
    """See the module. Methods raise ApiError.

    Args:
        find: the entry of a group; None: there is none.
    """

    def __init__(self, services: Services, find: Callable[[str], GroupEntry | None]) -> None:
        self._services = services
        self._find = find
        #: Group -> (topology epoch, description, bytes in memory).
        self._stored: dict[str, tuple[int, Description, int]] = {}
        #: Group -> (topology epoch, when it may be asked for again).
        self._asked: dict[str, tuple[int, int]] = {}

    def find(self, group: StreamsGroup) -> Description | None:
        """The description of the group's topology as it is now."""
        known = self._stored.get(group.group_id)
        is_current = known is not None and group.topology is not None and known[0] == group.topology.epoch
        return known[1] if known is not None and is_current else None

    def is_wanted(self, group_id: str, member: StreamsMember) -> bool:
        """Whether this member should send a description; nobody else is asked for a while then."""
        entry = self._find(group_id)
        group = None if entry is None else entry.streams
        if group is None or group.topology is None or member.topology_epoch != group.topology.epoch:
            return False
        if self.find(group) is not None:
            return False
        now = int(self._services.clock.monotonic() * 1000)
        epoch, until = self._asked.get(group_id, (-1, 0))
        if epoch == group.topology.epoch and now < until:
            return False
        self._asked[group_id] = (group.topology.epoch, now + _ASK_AGAIN_MS)
        return True

    def store(self, group_id: str, member_id: str, epoch: int, description: Description) -> None:
        """Keep what a member has sent."""
        entry = self._find(group_id)
        group = None if entry is None else entry.streams
        if entry is None or group is None or group.topology is None:
            raise api_error(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no streams group {group_id!r}")
        group.member(member_id)
        if epoch != group.topology.epoch:
            text = f"The topology epoch {epoch} is not the group's, {group.topology.epoch}."
            raise api_error(ErrorCode.INVALID_REQUEST, text)
        self._forget_others()
        request = wire.StreamsGroupTopologyDescriptionUpdateRequest(group_id, member_id, epoch, description)
        parts = _parts(description)
        size = len(encode(request, 0))
        taken = size + _PART_BYTES * parts
        if size > MAX_BYTES or not self._has_room(group_id, entry.user, taken):
            self._asked[group_id] = (epoch, 2**63)
            text = f"The description has {size} bytes, and {parts} nodes and names: there is no room for it."
            raise api_error(ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, text)
        self._stored[group_id] = (epoch, description, taken)

    def _has_room(self, group_id: str, user: str, size: int) -> bool:
        """Whether the user's group may have a description of this size, besides those of all other groups."""
        by_user: dict[str, int] = {}
        for name, (_, _, taken) in self._stored.items():
            entry = self._find(name)
            if entry is not None and name != group_id:
                by_user[entry.user] = by_user.get(entry.user, 0) + taken
        room = FairRoom(lambda: MAX_TOTAL_BYTES)
        room.replace(by_user)
        return room.has_room(user, size)

    def _forget_others(self) -> None:
        """Those of groups that are not coordinated here any more."""
        for kept in (self._stored, self._asked):
            for group_id in list(kept):
                entry = self._find(group_id)
                if entry is None or entry.streams is None:
                    del kept[group_id]


def _parts(description: Description) -> int:
    nodes = [node for each in description.subtopologies for node in each.nodes]
    nodes += [node for each in description.global_stores for node in (each.source, each.processor)]
    names = sum(len(node.source_topics) + len(node.stores) + len(node.successors) for node in nodes)
    return len(description.subtopologies) + len(nodes) + names
