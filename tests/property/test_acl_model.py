"""The authorizer against a twin that is slow and plain: no index, no memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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

NAMES = st.sampled_from(["a", "ab", "abc", "b", "ba"])
TYPES = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
OPERATIONS = st.sampled_from(
    [Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS]
)
USERS = st.sampled_from(["ann", "bob", "root"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2"])

patterns = st.builds(Pattern, TYPES, NAMES, st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])) | st.builds(
    Pattern, TYPES, st.just(WILDCARD)
)
entries = st.builds(
    AclEntry,
    st.sampled_from(["User:ann", "User:bob", EVERYBODY]),
    HOSTS | st.just(WILDCARD),
    OPERATIONS | st.just(Operation.ALL),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
bindings = st.lists(st.builds(Binding, patterns, entries), max_size=8)
questions = st.lists(st.tuples(USERS, HOSTS, OPERATIONS, TYPES, NAMES), min_size=1, max_size=8)

_GIVES = {
    Operation.READ: {Operation.READ, Operation.DESCRIBE},
    Operation.WRITE: {Operation.WRITE, Operation.DESCRIBE},
    Operation.ALTER_CONFIGS: {Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS},
}


def naive(
    rules: list[Binding],
    user: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    allow_if_none: bool,
) -> bool:
    """One sentence of Kafka's documentation after the other."""
    if user == "root":
        return True
    about = []
    for binding in rules:
        pattern = binding.pattern
        if pattern.resource_type is not kind:
            continue
        if pattern.pattern_type is PatternType.PREFIXED:
            if name.startswith(pattern.name):
                about.append(binding.entry)
        elif pattern.name in ("*", name):
            about.append(binding.entry)
    if not about:
        return allow_if_none
    mine = [each for each in about if each.principal in ("User:*", f"User:{user}") and each.host in ("*", host)]
    for entry in mine:
        if entry.permission is Permission.DENY and entry.operation in (Operation.ALL, operation):
            return False
    for entry in mine:
        given = {Operation.ALL: set(Operation)}.get(entry.operation) or _GIVES.get(entry.operation, {entry.operation})
        if entry.permission is Permission.ALLOW and operation in given:
            return True
    return False


def authorizer_with(rules: list[Binding], *, allow_if_none: bool) -> Authorizer:
    made = Authorizer(frozenset({"User:root"}), allow_if_none=allow_if_none)
    by_pattern: dict[Pattern, set[AclEntry]] = {}
    for binding in rules:
        by_pattern.setdefault(binding.pattern, set()).add(binding.entry)
    for pattern, found in by_pattern.items():
        made.put(pattern, found)
    return made


@given(first=bindings, then=bindings, asked=questions, allow_if_none=st.booleans())
@settings(max_examples=400)
def test_agrees_with_the_naive_model_before_and_after_a_change(
    first: list[Binding],
    then: list[Binding],
    asked: list[tuple[str, str, Operation, ResourceType, str]],
    *,
    allow_if_none: bool,
) -> None:
    authorizer = authorizer_with(first, allow_if_none=allow_if_none)

    def check(rules: list[Binding]) -> None:
        for user, host, operation, kind, name in asked * 2:  # the second answer comes from memory
            expected = naive(rules, user, host, operation, kind, name, allow_if_none=allow_if_none)
            assert authorizer.authorize(Principal("User", user), host, operation, kind, name) == expected

    check(first)
    for pattern in authorizer.patterns():
        authorizer.put(pattern, ())
    assert authorizer.patterns() == []
    for pattern in {binding.pattern: None for binding in then}:
        authorizer.put(pattern, {binding.entry for binding in then if binding.pattern == pattern})
    check(then)
    assert authorizer.bindings(Filter()) == sorted(set(then))


@given(rules=bindings, user=USERS, host=HOSTS, operation=OPERATIONS, kind=TYPES, allow_if_none=st.booleans())
@settings(max_examples=300)
def test_any_resource_agrees_with_asking_for_many(
    rules: list[Binding], user: str, host: str, operation: Operation, kind: ResourceType, *, allow_if_none: bool
) -> None:
    """KIP-679 looks at permissions only as they are written (a READ gives no DESCRIBE there), hence no implied ones."""
    if operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS):
        operation = Operation.READ
    authorizer = authorizer_with(rules, allow_if_none=allow_if_none)
    # Names that the rules could tell apart: those that occur, longer ones under each prefix, and one that no rule names.
    names = {binding.pattern.name for binding in rules if binding.pattern.name != "*"}
    names |= {f"{name}{end}" for name in set(names) for end in ("~", "a~", "b~", "c~", "bc~")} | {"stranger"}
    possible = any(
        naive(rules, user, host, operation, kind, name, allow_if_none=allow_if_none) for name in sorted(names)
    )
    answer = authorizer.authorize_any(Principal("User", user), host, operation, kind)
    if not allow_if_none:
        assert answer == possible
    elif possible:
        # With allow.everyone.if.no.acl.found there is always a name that no rule is about, unless all are denied.
        assert answer


@given(bindings, st.builds(Filter, TYPES, st.none() | NAMES, st.sampled_from(list(PatternType)[1:])))
def test_filters(rules: list[Binding], wanted: Filter) -> None:
    def is_named(pattern: Pattern) -> bool:
        if wanted.name is None:
            return True
        if wanted.pattern_type is not PatternType.MATCH:
            return pattern.name == wanted.name
        is_prefix = pattern.pattern_type is PatternType.PREFIXED
        return wanted.name.startswith(pattern.name) if is_prefix else pattern.name in ("*", wanted.name)

    expected = sorted(
        {
            binding
            for binding in rules
            if binding.pattern.resource_type is wanted.resource_type
            and (wanted.pattern_type in (PatternType.ANY, PatternType.MATCH, binding.pattern.pattern_type))
            and is_named(binding.pattern)
        }
    )
    assert authorizer_with(rules, allow_if_none=False).bindings(wanted) == expected


@pytest.mark.parametrize("pattern_type", [PatternType.LITERAL, PatternType.PREFIXED])
def test_what_cannot_be_read_denies_all_it_covers_but_to_super_users(pattern_type: PatternType) -> None:
    authorizer = Authorizer(frozenset({"User:root"}), allow_if_none=True)
    pattern = Pattern(ResourceType.TOPIC, "t", pattern_type)
    allow = AclEntry("User:ann", "*", Operation.ALL, Permission.ALLOW)
    authorizer.put(pattern, {allow})
    ann, root = Principal("User", "ann"), Principal("User", "root")
    question = ("h", Operation.READ, ResourceType.TOPIC, "t")
    assert authorizer.authorize(ann, *question)
    assert authorizer.put(pattern, None)
    assert not authorizer.authorize(ann, *question)
    assert authorizer.authorize(root, *question)
    assert authorizer.bindings(Filter()) == []
    assert not authorizer.put(pattern, None)
    assert authorizer.put(pattern, {allow})
    assert authorizer.authorize(ann, *question)
