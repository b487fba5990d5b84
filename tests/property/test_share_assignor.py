"""The assignor "simple" of share groups: everybody has work, nothing is left out, and what can stay stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinators.groups.decisions.members import Assignment
from kafkalite.coordinators.groups.decisions.share.assignor import simple
from kafkalite.model import TopicId

_TOPICS = {name: TopicId(letter * 21 + "A") for name, letter in (("a", "x"), ("b", "y"), ("c", "z"))}
_SUBSCRIPTION = st.sets(st.sampled_from(sorted(_TOPICS)), min_size=1).map(lambda names: tuple(sorted(names)))
_MEMBERS = st.dictionaries(st.sampled_from([f"m{number}" for number in range(9)]), _SUBSCRIPTION, min_size=1)
_COUNTS = st.fixed_dictionaries(dict.fromkeys(_TOPICS, st.integers(0, 12)))


def places(target: Assignment) -> set[tuple[TopicId, int]]:
    return {(topic_id, number) for topic_id, numbers in target.items() for number in numbers}


def check(members: dict[str, tuple[str, ...]], counts: dict[str, int], targets: dict[str, Assignment]) -> None:
    assert targets.keys() == members.keys()
    for names in set(members.values()):
        alike = [member for member, subscribed in members.items() if subscribed == names]
        every = {(_TOPICS[name], number) for name in names for number in range(counts[name])}
        assert set().union(*(places(targets[member]) for member in alike)) == every
        loads = [len(places(targets[member])) for member in alike]
        if every:
            assert min(loads) >= 1
            assert max(loads) - min(loads) <= 1
        if len(every) >= len(alike):
            assert sum(loads) == len(every)  # nobody shares what there is enough of


def assigned(
    members: dict[str, tuple[str, ...]],
    known: dict[str, Assignment],
    topics: dict[str, tuple[TopicId, frozenset[int]]],
) -> dict[str, Assignment]:
    steps = simple(members, known, topics)
    for _ in range(len(set(members.values())) - 1):  # others are served between them
        next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    found: dict[str, Assignment] = end.value.value
    return found


@given(_MEMBERS, _COUNTS, _MEMBERS, _COUNTS)
def test_after_any_change_all_have_work(
    before: dict[str, tuple[str, ...]], some: dict[str, int], after: dict[str, tuple[str, ...]], more: dict[str, int]
) -> None:
    def topics(counts: dict[str, int]) -> dict[str, tuple[TopicId, frozenset[int]]]:
        return {name: (topic_id, frozenset(range(counts[name]))) for name, topic_id in _TOPICS.items()}

    first = assigned(before, {}, topics(some))
    check(before, some, first)
    assert assigned(before, first, topics(some)) == first
    second = assigned(after, first, topics(more))
    check(after, more, second)
    assert assigned(after, second, topics(more)) == second
