"""The assignor "simple" of share groups: each member has a partition, each partition a member (KIP-932). Pure.

It is a generator, as those of the other groups (`decisions.assignment`): members that subscribe to different topics have all partitions
of theirs, so the work is that of members times partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Mapping, Sequence

from kafkalite.coordinators.groups.decisions.members import Assignment
from kafkalite.model import TopicId

_Place = tuple[TopicId, int]


def simple(
    members: Mapping[str, tuple[str, ...]],
    known: Mapping[str, Assignment],
    topics: Mapping[str, tuple[TopicId, frozenset[int]]],
) -> Generator[None, None, dict[str, Assignment]]:
    """The new target, a step for each set of topics. Members with the same topics share out all partitions of these; what they have stays if it may.

    Args:
        members: with the names of the topics that they subscribe to.
        known: the targets of before.
        topics: by name, with the partitions that may be assigned.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for member_id, names in sorted(members.items()):
        alike.setdefault(names, []).append(member_id)
    found: dict[str, Assignment] = {}
    for names, member_ids in alike.items():
        places = [
            (topics[name][0], partition) for name in names if name in topics for partition in sorted(topics[name][1])
        ]
        if found:
            yield
        found.update(_spread(member_ids, places, known))
    return found


def _spread(
    member_ids: Sequence[str], places: Sequence[_Place], known: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    if not places:
        return {member_id: {} for member_id in member_ids}
    shared = dict.fromkeys(places, 0)
    taken: dict[str, list[_Place]] = {member_id: [] for member_id in member_ids}
    most = max(1, len(places) // len(member_ids))
    more = len(places) % len(member_ids) if len(places) > len(member_ids) else 0
    most_shared = -(-len(member_ids) // len(places))
    for member_id in member_ids:
        for topic_id, partitions in sorted(known.get(member_id, {}).items()):
            for partition in sorted(partitions):
                has, place = taken[member_id], (topic_id, partition)
                is_extra = len(has) == most
                if shared.get(place, most_shared) >= most_shared or len(has) > most or (is_extra and not more):
                    continue
                more -= is_extra
                has.append(place)
                shared[place] += 1
    _cover(member_ids, shared, taken)
    return {member_id: _assignment(has) for member_id, has in taken.items()}


def _cover(member_ids: Sequence[str], shared: dict[_Place, int], taken: dict[str, list[_Place]]) -> None:
    """Give partitions that nobody has to those with the fewest, and members without any the least shared ones."""
    loads = [(len(taken[member_id]), order, member_id) for order, member_id in enumerate(member_ids)]
    heapq.heapify(loads)
    for place, count in shared.items():
        if not count:
            load, order, member_id = loads[0]
            heapq.heapreplace(loads, (load + 1, order, member_id))
            taken[member_id].append(place)
            shared[place] = 1
    uses = [(count, order, place) for order, (place, count) in enumerate(shared.items())]
    heapq.heapify(uses)
    for member_id in member_ids:
        if not taken[member_id]:
            count, order, place = uses[0]
            heapq.heapreplace(uses, (count + 1, order, place))
            taken[member_id].append(place)


def _assignment(places: Sequence[_Place]) -> Assignment:
    found: dict[TopicId, set[int]] = {}
    for topic_id, partition in places:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}
