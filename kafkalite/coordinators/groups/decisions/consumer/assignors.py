"""The server-side assignors `uniform` and `range` (KIP-848). Pure.

Both are sticky (a member keeps what it has as far as its share allows) and rack aware (KIP-881): a partition goes to a
member in a rack of one of its replicas, if the shares stay even.

uniform: all partitions of all topics are shared out evenly.
range: those of each topic are; partitions of one number of topics with the same subscribers and the same number of
partitions go to the same member, so that it can join them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from heapq import heapify, heapreplace

from kafkalite.coordinators.groups.decisions.assignment import (
    PIECE,
    AssignedMember,
    AssignedTopic,
    AssignmentInput,
    Assignor,
    NewTargets,
    Steps,
)
from kafkalite.coordinators.groups.decisions.sharing import NOBODY, share_out
from kafkalite.model import TopicId

#: Topic -> each partition's member.
_Owners = dict[TopicId, list[int]]


def uniform(given: AssignmentInput) -> Steps:
    """See the module."""
    if not given.members:
        return {}
    owners = yield from _kept(given)
    if all(member.topics == given.members[0].topics for member in given.members):
        topics = [topic for topic in given.by_name() if topic.topic_id in given.members[0].topics]
        yield from _share_as_one(given, topics, owners)
    else:
        yield from _uneven(given, owners)
    return (yield from _targets(given, owners))


def range_(given: AssignmentInput) -> Steps:
    """See the module."""
    owners = yield from _kept(given)
    together: dict[tuple[tuple[int, ...], int], list[AssignedTopic]] = {}
    for topic in given.by_name():
        takers = tuple(index for index, member in enumerate(given.members) if topic.topic_id in member.topics)
        if takers:
            together.setdefault((takers, topic.partitions), []).append(topic)
        yield
    for (takers, count), topics in together.items():
        position = {member: place for place, member in enumerate(takers)}
        slots = [_common(owners, topics, number, position) for number in range(count)]
        racks = [_common_racks(topics, number) for number in range(count)] if topics[0].racks else []
        member_racks = [given.members[member].rack_id for member in takers]
        shared = yield from share_out(slots, member_racks, racks, in_blocks=True)
        for topic in topics:
            owners[topic.topic_id] = [takers[place] for place in shared]
            yield
    return (yield from _targets(given, owners))


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_}


def _kept(given: AssignmentInput) -> Generator[None, None, _Owners]:
    """The present owner of each partition, if the partition exists and the owner still subscribes to its topic."""
    owners = {topic.topic_id: [NOBODY] * topic.partitions for topic in given.topics.values()}
    for index, member in enumerate(given.members):
        for topic_id, partitions in member.target.items():
            slots = owners.get(topic_id)
            if slots is None or topic_id not in member.topics:
                continue
            for partition in partitions:
                if partition < len(slots) and slots[partition] == NOBODY:
                    slots[partition] = index
        if not (index + 1) % (PIECE // 4):
            yield
    return owners


def _targets(given: AssignmentInput, owners: _Owners) -> Generator[None, None, NewTargets]:
    found: list[dict[TopicId, list[int]]] = [{} for _ in given.members]
    for topic_id, slots in owners.items():
        for partition, owner in enumerate(slots):
            if owner != NOBODY:
                found[owner].setdefault(topic_id, []).append(partition)
        yield
    targets: NewTargets = {}
    for index, (member, shares) in enumerate(zip(given.members, found, strict=True)):
        targets[member.member_id] = {topic_id: frozenset(partitions) for topic_id, partitions in shares.items()}
        if not (index + 1) % (PIECE // 4):
            yield
    return targets


def _share_as_one(
    given: AssignmentInput, topics: Sequence[AssignedTopic], owners: _Owners
) -> Generator[None, None, None]:
    slots = [owner for topic in topics for owner in owners[topic.topic_id]]
    racks: list[frozenset[str]] = []
    if any(topic.racks for topic in topics):
        racks = [
            rack for topic in topics for rack in (topic.racks if topic.racks else [frozenset()] * topic.partitions)
        ]
    shared = yield from share_out(slots, [member.rack_id for member in given.members], racks, in_blocks=False)
    first = 0
    for topic in topics:
        owners[topic.topic_id] = shared[first : first + topic.partitions]
        first += topic.partitions


def _common(owners: _Owners, topics: Sequence[AssignedTopic], number: int, position: Mapping[int, int]) -> int:
    """The member that has this partition of the first of the topics where anybody has it; its place in `position`."""
    for topic in topics:
        place = position.get(owners[topic.topic_id][number], NOBODY)
        if place != NOBODY:
            return place
    return NOBODY


def _common_racks(topics: Sequence[AssignedTopic], number: int) -> frozenset[str]:
    common = topics[0].racks[number]
    for topic in topics[1:]:
        common &= topic.racks[number] if topic.racks else frozenset()
    return common


# --- members with different topics ---


def _uneven(given: AssignmentInput, owners: _Owners) -> Generator[None, None, None]:
    """Members subscribe to different topics: each partition goes to the one of its subscribers that has least, and then
    partitions move from members that have more than one more than another subscriber."""
    members = given.members
    loads = [0] * len(members)
    for slots in owners.values():
        for owner in slots:
            if owner != NOBODY:
                loads[owner] += 1
    takers: dict[TopicId, list[int]] = {topic_id: [] for topic_id in given.topics}
    for index, member in enumerate(members):
        for topic_id in member.topics:
            if topic_id in takers:
                takers[topic_id].append(index)
        if not (index + 1) % (PIECE // 4):
            yield
    topics = [topic for topic in given.by_name() if takers[topic.topic_id]]
    topics.sort(key=lambda topic: len(takers[topic.topic_id]))
    for topic in topics:
        yield from _fill(owners[topic.topic_id], topic, takers[topic.topic_id], loads, members)
    yield from _level(topics, owners, takers, loads)


def _fill(
    slots: list[int],
    topic: AssignedTopic,
    takers: Sequence[int],
    loads: list[int],
    members: Sequence[AssignedMember],
) -> Generator[None, None, None]:
    heap = [(loads[member], member) for member in takers]
    heapify(heap)
    yield
    for partition, owner in enumerate(slots):
        if not (partition + 1) % (PIECE // 20):  # one in another rack costs as much as a heap of all members
            yield
        if owner != NOBODY:
            continue
        load, member = heap[0]
        if topic.racks and members[member].rack_id not in topic.racks[partition]:
            near = [each for each in heap[:8] if each[0] == load and members[each[1]].rack_id in topic.racks[partition]]
            if near:
                member = min(near)[1]
        slots[partition] = member
        loads[member] += 1
        if member == heap[0][1]:
            heapreplace(heap, (load + 1, member))
        else:
            heap[heap.index((load, member))] = (load + 1, member)
            heapify(heap)


def _level(
    topics: Sequence[AssignedTopic], owners: _Owners, takers: Mapping[TopicId, Sequence[int]], loads: list[int]
) -> Generator[None, None, None]:
    """Each move makes the sum of the squares of the loads smaller, so there is an end."""
    moved = True
    while moved:
        moved = False
        for topic in topics:
            slots = owners[topic.topic_id]
            mine: dict[int, list[int]] = {}
            for partition, owner in enumerate(slots):
                mine.setdefault(owner, []).append(partition)
            low = [(loads[member], member) for member in takers[topic.topic_id]]
            heapify(low)
            for owner in sorted(mine, key=lambda member: (-loads[member], member)):
                while mine[owner] and loads[owner] > low[0][0] + 1:
                    load, member = low[0]
                    if loads[member] != load:
                        heapreplace(low, (loads[member], member))
                        continue
                    slots[mine[owner].pop()] = member
                    loads[owner] -= 1
                    loads[member] += 1
                    heapreplace(low, (load + 1, member))
                    moved = True
            yield
