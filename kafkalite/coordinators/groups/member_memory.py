"""The memory that members of groups take: what they say of themselves, and what they subscribe to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkalite.coordinators.groups.decisions.classic.members import ClassicGroupMember
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import ConsumerHeartbeat
from kafkalite.coordinators.groups.decisions.share.heartbeats import ShareHeartbeat
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.heartbeats import StreamsHeartbeat
from kafkalite.coordinators.groups.decisions.streams.members import Task
from kafkalite.coordinators.groups.decisions.streams.topology import Topology
from kafkalite.coordinators.groups.partition import GroupEntry
from kafkalite.security.fair_room import FairRoom

#: Of all members of the groups that one node coordinates. A member's share is 100 bytes per topic, as a rule.
MAX_BYTES = 256 * 2**20
#: Least time (ms) between two counts: each looks at all members. A count may take this part of the time at most.
_COUNT_AGAIN_MS = 1_000
_COUNT_SHARE = 50
#: Users that are remembered without a count.
_MOST_USERS = 10_000
#: What a string takes beside its characters, and a part of a topology beside its name.
_STRING_BYTES, _PART_BYTES = 60, 150
#: What the offset of one task takes.
_OFFSET_BYTES = 250
#: What a group takes beside its members: a name costs its client nothing.
_GROUP_BYTES = 2_700

Said = ConsumerHeartbeat | StreamsHeartbeat | ShareHeartbeat
#: Fields of a heartbeat and of a member.
_TEXTS = ("member_id", "instance_id", "rack_id", "client_id", "client_host", "regex", "assignor", "process_id")


class MemberMemory:
    """Counts what members of groups say of themselves, by user.

    Args:
        counted: how much the members of each user take now.
    """

    def __init__(self, counted: Callable[[], Mapping[str, int]], now_ms: Callable[[], int]) -> None:
        self._counted = counted
        self._now_ms = now_ms
        #: At least as much as they take: what members give back is not noticed before it is counted again.
        self._room = FairRoom(lambda: MAX_BYTES)
        self._count_at = 0

    def take(self, user: str, size: int) -> bool:
        """Whether a member of this user (see `fair_room.user_of`) may say that much."""
        now = self._now_ms()
        is_full = self._room.taken + size > MAX_BYTES or len(self._room) > _MOST_USERS
        if is_full and now >= self._count_at:
            self._room.replace(self._counted())
            ended = self._now_ms()
            self._count_at = ended + max(_COUNT_AGAIN_MS, _COUNT_SHARE * (ended - now))
        return self._room.take(user, size)


def bytes_by_user(entries: Iterable[GroupEntry]) -> dict[str, int]:
    """What the members of these groups take. One that was read from the log counts for its host."""
    taken: dict[str, int] = {}

    def take(user: str, host: str, size: int) -> None:
        name = user or host.removeprefix("/")
        taken[name] = taken.get(name, 0) + size

    for entry in entries:
        # One without members that is listed has committed offsets, or had members: the log has it, too.
        if entry.member_count or not entry.is_listed or entry.group.pending_members:
            take(entry.user, _a_host(entry), _GROUP_BYTES)
        for member in entry.group.members.values():
            take(member.user, member.client_host, classic_bytes(member))
        if entry.group.pending_members:
            take(entry.user, "", _texts_bytes(entry.group.pending_members))
        group = entry.newer
        if group is None:
            continue
        host = ""
        for each in group.members.values():
            host = each.client_host
            take(entry.user, host, _said_bytes(each))
        if entry.consumer is not None:  # the names of topics are there once
            take(entry.user, host, sum(8 * len(each.topics) for each in entry.consumer.regexes.values()))
        if entry.streams is not None and entry.streams.topology is not None:
            take(entry.user, host, topology_bytes(entry.streams.topology))
            take(entry.user, host, sum(map(_offsets_bytes, entry.streams.task_offsets.values())))
    return taken


def _a_host(entry: GroupEntry) -> str:
    return next((member.client_host for member in (entry.newer or entry.group).members.values()), "")


def group_bytes(entry: GroupEntry | None) -> int:
    """What a group takes beside its members, if there is none yet."""
    return 0 if entry is not None else _GROUP_BYTES


def size_of(protocols: Iterable[tuple[str, bytes]], *texts: str | None) -> int:
    """What a member of a classic group says, in bytes. `texts`: its ids."""
    return sum(len(name) + len(metadata) for name, metadata in protocols) + _texts_bytes(each or "" for each in texts)


def classic_bytes(member: ClassicGroupMember) -> int:
    """The same, of one that is there."""
    return size_of(member.protocols, member.member_id, member.instance_id, member.client_id)


def more_bytes(entry: GroupEntry | None, said: Said) -> int:
    """What a heartbeat adds; nothing if it says what is known."""
    group = None if entry is None else entry.newer
    known = None if group is None else group.members.get(said.member_id)
    more = group_bytes(entry) + max(0, _said_bytes(said, known) - (0 if known is None else _said_bytes(known)))
    if isinstance(said, StreamsHeartbeat) and said.topology is not None and (group is None or not group.members):
        more += topology_bytes(said.topology)
    if isinstance(said, StreamsHeartbeat) and entry is not None and entry.streams is not None:
        more += _more_offsets_bytes(entry.streams, said)
    return more


def _more_offsets_bytes(group: StreamsGroup, said: StreamsHeartbeat) -> int:
    """Those of tasks that there are not are not kept."""
    configured = group.configured
    tasks = 0 if configured is None else sum(each.tasks for each in configured.subtopologies)
    known = group.task_offsets.get(said.member_id, ({}, {}))
    pairs = zip((said.offsets, said.end_offsets), known, strict=True)
    return max(0, _OFFSET_BYTES * sum(min(tasks, len(new)) - len(before) for new, before in pairs if new is not None))


def _offsets_bytes(offsets: Iterable[Mapping[Task, int]]) -> int:
    return _OFFSET_BYTES * sum(map(len, offsets))


def _said_bytes(*sources: object) -> int:
    """Of a member of a newer protocol, but for what it is assigned: for each field what the first of these says."""

    def said(name: str) -> Any:
        return next((found for each in sources if (found := getattr(each, name, None)) is not None), None)

    texts = [text for name in _TEXTS if (text := said(name))]
    texts += said("topics") or ()
    texts += [text for tag in said("tags") or () for text in tag]
    texts += (said("endpoint") or ())[:1]
    classic = said("classic")
    return _texts_bytes(texts) + (0 if classic is None else size_of(classic.protocols))


def topology_bytes(topology: Topology) -> int:
    """As it is kept with its group."""
    size = 0
    for each in topology.subtopologies:
        names = [each.subtopology_id, *each.inputs, *each.repartition_sinks, *(topic.name for topic in each.changelogs)]
        topics = (*each.changelogs, *each.repartition_sources)
        settings = [text for topic in topics for pair in topic.configs for text in pair]
        size += _PART_BYTES * (len(names) + len(each.copartition_groups)) + _texts_bytes(names + settings)
    return size


def _texts_bytes(texts: Iterable[str]) -> int:
    known = list(texts)
    return sum(map(len, known)) + _STRING_BYTES * len(known)
