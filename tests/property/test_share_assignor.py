"""The assignor "simple" of share groups: everybody has work, nothing is left out, and what can stay stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinators.groups.decisions.members import Assignment
from kafkalite.coordinators.groups.decisions.share.assignor import simple
from kafkalite.model import TopicId
from tests.support.fetching import run_to_end

_TOPICS = {name: TopicId(letter * 21 + "A") for name, letter in (("a", "x"), ("b", "y"), ("c", "z"))}
_SUBSCRIPTION = st.sets(st.sampled_from(sorted(_TOPICS)), min_size=1).map(lambda names: tuple(sorted(names)))
_MEMBERS = st.dictionaries(st.sampled_from([f"m{number}" for number in range(9)]), _SUBSCRIPTION, min_size=1)
_COUNTS = st.fixed_dictionaries(dict.fromkeys(_TOPICS, st.integers(0, 12)))


def places(target: Assignment) -> set[tuple[TopicId, int]]:
    return {(topic_id, number) for topic_id, numbers in target.items() for number in numbers}


def check(members: dict[str, tuple[str, ...]], counts: dict[str, int], targets: dict[str, Assignment]) -> None:
    """Topics with the same subscribers are shared out among all of these, whatever else they subscribe to."""
    assert targets.keys() == members.keys()
    together: dict[tuple[str, ...], set[str]] = {}
    for name in _TOPICS:
        takers = tuple(member for member, names in sorted(members.items()) if name in names)
        together.setdefault(takers, set()).add(name)
    for takers, names in together.items():
        every = {(_TOPICS[name], number) for name in names for number in range(counts[name])}
        shares = [places(targets[member]) & every for member in takers]
        assert set().union(*shares) == (every if takers else set())
        loads = [len(share) for share in shares]
        if every and takers:
            assert min(loads) >= 1
            assert max(loads) - min(loads) <= 1
        if len(every) >= len(takers) > 0:
            assert sum(loads) == len(every)  # nobody shares what there is enough of
    for member, subscribed in members.items():
        assert targets[member].keys() <= {_TOPICS[name] for name in subscribed}


def assigned(
    members: dict[str, tuple[str, ...]],
    known: dict[str, Assignment],
    topics: dict[str, tuple[TopicId, frozenset[int]]],
) -> dict[str, Assignment]:
    return run_to_end(simple(members, known, topics))


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


def test_a_member_that_subscribes_to_more_takes_its_share_only() -> None:
    """As with Kafka's assignor. Each set of topics had all partitions of its topics once more: all of them for the last member of an old one."""
    topics = {"a": (_TOPICS["a"], frozenset(range(6))), "b": (_TOPICS["b"], frozenset(range(3)))}
    members = {"m0": ("a",), "m1": ("a",), "m2": ("a", "b")}
    targets = assigned(members, {}, topics)
    check(members, {"a": 6, "b": 3, "c": 0}, targets)
    assert sorted(len(places(target)) for target in targets.values()) == [2, 2, 5]


def test_what_is_left_over_goes_to_those_with_least() -> None:
    topics = {name: (_TOPICS[name], frozenset(range(3))) for name in _TOPICS}
    members = {"m0": ("a", "b"), "m1": ("a", "b"), "m2": ("a", "b", "c"), "m3": ("b", "c")}
    loads = [len(places(target)) for target in assigned(members, {}, topics).values()]
    assert max(loads) - min(loads) <= 1


def test_others_are_served_between_topics_with_different_subscribers() -> None:
    topics = {name: (_TOPICS[name], frozenset(range(3))) for name in _TOPICS}
    assert sum(1 for _ in simple({"m0": ("a", "b", "c"), "m1": ("a", "b"), "m2": ("a",)}, {}, topics)) == 6
