"""A hundred thousand ACLs: what an answer costs does not grow with the rules that are not about the question."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite.security.acl import (
    EVERYBODY,
    WILDCARD,
    AclEntry,
    Binding,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from kafkalite.security.authorizer import Authorizer
from kafkalite.security.principal import Principal
from tests.support.calls import calls

ANN = Principal("User", "ann")
TOPIC = ResourceType.TOPIC


def allow(user: str, operation: Operation = Operation.READ, host: str = "*") -> AclEntry:
    return AclEntry(f"User:{user}", host, operation, Permission.ALLOW)


def many_patterns(number: int) -> Authorizer:
    authorizer = Authorizer()
    for each in range(number):
        kind = PatternType.PREFIXED if each % 3 == 0 else PatternType.LITERAL
        authorizer.put(Pattern(TOPIC, f"t{each:06}", kind), {allow(f"user{each}")})
    return authorizer


def many_entries(number: int) -> Authorizer:
    authorizer = Authorizer()
    authorizer.put(Pattern(TOPIC, WILDCARD), {allow(f"user{each}") for each in range(number)})
    return authorizer


QUESTIONS: dict[str, Callable[[Authorizer], object]] = {
    "a resource": lambda rules: rules.authorize(ANN, "10.0.0.1", Operation.READ, TOPIC, "t000003x"),
    "any resource": lambda rules: rules.authorize_any(ANN, "10.0.0.1", Operation.WRITE, TOPIC),
    "the entries of one name": lambda rules: list(rules.matching(Filter(TOPIC, "t000003", PatternType.LITERAL))),
    "what covers one name": lambda rules: list(rules.matching(Filter(TOPIC, "t000003x", PatternType.MATCH))),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_costs_the_same_with_many_patterns(question: str) -> None:
    few, many = many_patterns(50), many_patterns(5_000)
    QUESTIONS[question](many_patterns(5))  # what is compiled at the first call
    assert calls(lambda: QUESTIONS[question](many)) <= calls(lambda: QUESTIONS[question](few)) + 10


@pytest.mark.parametrize("question", ["a resource", "any resource"])
def test_a_question_costs_the_same_with_many_entries_of_one_pattern(question: str) -> None:
    few, many = many_entries(50), many_entries(5_000)
    QUESTIONS[question](many_entries(5))
    assert calls(lambda: QUESTIONS[question](many)) <= calls(lambda: QUESTIONS[question](few)) + 10


def test_entries_of_a_large_pattern_count_like_those_of_a_small_one() -> None:
    authorizer = many_entries(100)
    question = ("10.0.0.1", Operation.READ, TOPIC, "t")
    assert authorizer.authorize(Principal("User", "user7"), *question)
    assert not authorizer.authorize(ANN, *question)
    entries = {allow(f"user{each}") for each in range(100)}
    authorizer.put(Pattern(TOPIC, WILDCARD), {*entries, allow("*")})
    assert authorizer.authorize(ANN, *question)
    denial = AclEntry(EVERYBODY, "10.0.0.1", Operation.READ, Permission.DENY)
    authorizer.put(Pattern(TOPIC, WILDCARD), {*entries, allow("*"), denial})
    assert not authorizer.authorize(Principal("User", "user7"), *question)
    authorizer.put(Pattern(TOPIC, WILDCARD), {allow("ann")})
    assert authorizer.authorize(ANN, *question)
    assert not authorizer.authorize(Principal("User", "user7"), *question)


def test_a_permission_for_any_resource_goes_with_the_last_host_that_has_it() -> None:
    authorizer = Authorizer()
    pattern = Pattern(TOPIC, "t")
    authorizer.put(pattern, {allow("ann", host="10.0.0.1"), allow("ann", host="10.0.0.2")})
    assert authorizer.authorize_any(ANN, "10.0.0.2", Operation.READ, TOPIC)
    authorizer.put(pattern, {allow("ann", host="10.0.0.2")})
    assert authorizer.authorize_any(ANN, "10.0.0.2", Operation.READ, TOPIC)
    assert not authorizer.authorize_any(ANN, "10.0.0.1", Operation.READ, TOPIC)
    authorizer.put(pattern, ())
    assert not authorizer.authorize_any(ANN, "10.0.0.2", Operation.READ, TOPIC)
    assert authorizer._rules._allowing == {}


def test_what_matches_comes_pattern_by_pattern_and_may_change_meanwhile() -> None:
    authorizer = many_patterns(10)
    found = authorizer.matching(Filter(principal="User:user4"))
    first, entries = next(found)
    assert (first.name, entries) == ("t000000", [])
    authorizer.put(Pattern(TOPIC, "t000004"), ())
    authorizer.put(Pattern(TOPIC, "t000005"), {allow("user4")})
    assert [(pattern.name, entries) for pattern, entries in found if entries] == [("t000005", [allow("user4")])]


def test_all_are_in_the_order_in_which_bindings_compare() -> None:
    authorizer = Authorizer()
    for number in (3, 1, 2):
        for kind in (PatternType.PREFIXED, PatternType.LITERAL):
            for resource_type in (ResourceType.GROUP, TOPIC):
                authorizer.put(Pattern(resource_type, f"t{number}", kind), {allow("b"), allow("a", Operation.WRITE)})
    found = authorizer.bindings(Filter())
    assert found == sorted(found)
    assert len(found) == 24
    assert found[0] == Binding(Pattern(TOPIC, "t1"), allow("a", Operation.WRITE))
