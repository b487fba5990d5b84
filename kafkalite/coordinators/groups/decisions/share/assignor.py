"""The assignor "simple" of share groups: each member has a partition, each partition a member (KIP-932). Pure.

It is a generator, as those of the other groups (`decisions.assignment`).
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Mapping, Sequence

from kafkalite.coordinators.groups.decisions.members import Assignment
from kafkalite.model import TopicId

_Place = tuple[TopicId, int]
#: Members whose targets are put together in one step.
_MEMBERS = 50


def simple(
    members: Mapping[str, tuple[str, ...]],
    known: Mapping[str, Assignment],
    topics: Mapping[str, tuple[TopicId, frozenset[int]]],
) -> Generator[None, None, dict[str, Assignment]]:
    """The new target. Topics that the same members subscribe to are a set: these share out all its partitions, whatever else they subscribe to.
    What they have stays if it may. A step for each subscription, and for each set.

    Args:
        members: with the names of the topics that they subscribe to.
        known: the targets of before.
        topics: by name, with the partitions that may be assigned.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for member_id, names in sorted(members.items()):
        alike.setdefault(names, []).append(member_id)
    takers: dict[str, list[int]] = {}
    for number, subscribed in enumerate(alike):
        for name in subscribed:
            if name in topics:
                takers.setdefault(name, []).append(number)
        yield
    sets: dict[tuple[int, ...], list[str]] = {}
    for name in sorted(takers):
        sets.setdefault(tuple(takers[name]), []).append(name)
    subscribers = list(alike.values())
    found: dict[str, list[_Place]] = {member_id: [] for member_id in members}
    for numbers, together in sets.items():
        places = [(topics[name][0], partition) for name in together for partition in sorted(topics[name][1])]
        # What is left over goes to those that have least of the sets before.
        member_ids = [member_id for number in numbers for member_id in subscribers[number]]
        member_ids.sort(key=lambda member_id: (len(found[member_id]), member_id))
        for member_id, taken in _spread(member_ids, places, known).items():
            found[member_id] += taken
        yield
    targets: dict[str, Assignment] = {}
    for member_id, places in found.items():
        targets[member_id] = _assignment(places)
        if len(targets) % _MEMBERS == 0:
            yield
    return targets


def _spread(
    member_ids: Sequence[str], places: Sequence[_Place], known: Mapping[str, Assignment]
) -> Mapping[str, Sequence[_Place]]:
    if not places:
        return {}
    topic_ids = {topic_id for topic_id, _ in places}
    shared = dict.fromkeys(places, 0)
    taken: dict[str, list[_Place]] = {member_id: [] for member_id in member_ids}
    most = max(1, len(places) // len(member_ids))
    more = len(places) % len(member_ids) if len(places) > len(member_ids) else 0
    most_shared = -(-len(member_ids) // len(places))
    for member_id in member_ids:
        before = known.get(member_id, {})
        for topic_id in sorted(topic_ids & before.keys()):
            for partition in sorted(before[topic_id]):
                has, place = taken[member_id], (topic_id, partition)
                is_extra = len(has) == most
                if shared.get(place, most_shared) >= most_shared or len(has) > most or (is_extra and not more):
                    continue
                more -= is_extra
                has.append(place)
                shared[place] += 1
    _cover(member_ids, shared, taken)
    return taken


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
