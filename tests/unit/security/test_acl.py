"""Entries that may be written, memory that stays small, and the audit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from kafkalite.security import access as access_module
from kafkalite.security import authorizer as authorizer_module
from kafkalite.security.access import MAX_LINES, Access
from kafkalite.security.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    AclEntry,
    Binding,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    known_or_unknown,
)
from kafkalite.security.authorizer import Authorizer, parse_super_users
from kafkalite.security.principal import Principal

T, C = ResourceType.TOPIC, ResourceType.CLUSTER
ALLOW = AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW)


@dataclass
class Someone:
    principal: Principal
    client_host: str = "10.0.0.1"


ANN = Someone(Principal("User", "ann"))


@pytest.mark.parametrize(
    ("pattern", "entry", "why"),
    [
        (Pattern(T, "t"), ALLOW, None),
        (Pattern(T, "*"), ALLOW, None),
        (Pattern(T, ""), ALLOW, "empty"),
        (Pattern(T, "a/b"), ALLOW, "no '/'"),
        (Pattern(T, ".."), ALLOW, "nor"),
        (Pattern(T, "a\x00"), ALLOW, "znode"),
        (Pattern(T, "\ud800"), ALLOW, "znode"),
        (Pattern(ResourceType.GROUP, "\U0001f600"), AclEntry("User:a", "*", Operation.READ, Permission.ALLOW), "znode"),
        (Pattern(T, "t", PatternType.MATCH), ALLOW, "literal or prefixed"),
        (Pattern(ResourceType.ANY, "t"), ALLOW, "one type"),
        (Pattern(C, "mine"), AclEntry("User:a", "*", Operation.ALTER, Permission.ALLOW), "only valid name"),
        (Pattern(C, CLUSTER_NAME), AclEntry("User:a", "*", Operation.ALTER, Permission.ALLOW), None),
        (Pattern(C, CLUSTER_NAME), ALLOW, None),
        (Pattern(T, "t"), AclEntry("ann", "*", Operation.READ, Permission.ALLOW), "no principal"),
        (Pattern(T, "t"), AclEntry("User:a", "", Operation.READ, Permission.ALLOW), "host"),
        (Pattern(T, "t"), AclEntry("User:a", "*", Operation.READ, Permission.ANY), "allows or denies"),
        (Pattern(T, "t"), AclEntry("User:a", "*", Operation.ANY, Permission.ALLOW), "one operation"),
        (
            Pattern(ResourceType.TRANSACTIONAL_ID, "t"),
            AclEntry("User:a", "*", known_or_unknown(Operation, 15), Permission.ALLOW),  # TWO_PHASE_COMMIT (KIP-939)
            None,
        ),
    ],
)
def test_what_may_be_written(pattern: Pattern, entry: AclEntry, why: str | None) -> None:
    problem = Binding(pattern, entry).problem()
    assert (problem is None) == (why is None)
    assert why is None or why in str(problem)


def test_a_filter_of_an_unknown_kind_is_known_as_such() -> None:
    assert Filter(ResourceType.UNKNOWN).is_unknown()
    assert not Filter().is_unknown()


def test_super_users() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c;") == {"User:a", "User:CN=b,O=c"}
    with pytest.raises(ValueError, match="KIND:NAME"):
        parse_super_users("a")


def test_nodes_may_act_as_nodes_whatever_is_written_and_nothing_else() -> None:
    authorizer = Authorizer(nodes=frozenset({"User:ann"}))
    authorizer.put(Pattern(C, CLUSTER_NAME), {AclEntry("User:*", "*", Operation.ALL, Permission.DENY)})
    for operation in OPERATIONS[C]:
        allowed = authorizer.authorize(ANN.principal, "h", operation, C, CLUSTER_NAME)
        assert allowed == (operation in (Operation.CLUSTER_ACTION, Operation.DESCRIBE))
    assert not authorizer.authorize(ANN.principal, "h", Operation.READ, T, "t")
    assert not authorizer.authorize(Principal("User", "bob"), "h", Operation.CLUSTER_ACTION, C, CLUSTER_NAME)


def test_decisions_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "MAX_DECISIONS", 3)
    authorizer = Authorizer()
    authorizer.put(Pattern(T, "t5"), {ALLOW})
    for number in range(20):
        allowed = authorizer.authorize(ANN.principal, "h", Operation.READ, T, f"t{number}")
        assert allowed == (number == 5)
        authorizer.authorize_any(Principal("User", str(number)), "h", Operation.READ, T)
        assert len(authorizer._decisions) <= 3
        assert len(authorizer._any_decisions) <= 3


def test_decisions_about_long_names_are_not_kept_and_all_of_them_are_bounded_by_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authorizer_module, "MAX_DECISION_BYTES", 3000)
    authorizer = Authorizer()
    for number in range(100):
        assert not authorizer.authorize(ANN.principal, "h", Operation.READ, T, f"{number}" + "x" * 30_000)
    assert not authorizer._decisions
    for number in range(100):
        assert not authorizer.authorize(ANN.principal, "h", Operation.READ, T, f"{number:0200}")
        assert 0 < len(authorizer._decisions) <= 6


def test_many_prefixes_come_and_go() -> None:
    authorizer = Authorizer()
    for number in range(100):
        authorizer.put(Pattern(T, f"p{number}", PatternType.PREFIXED), {ALLOW})
    assert authorizer._rules._lengths[T] == {2: 10, 3: 90}
    for number in range(10, 100):
        authorizer.put(Pattern(T, f"p{number}", PatternType.PREFIXED), ())
    assert authorizer._rules._lengths[T] == {2: 10}
    assert authorizer.authorize(ANN.principal, "h", Operation.READ, T, "p7x")


def test_refusals_are_counted_all_and_told_in_part() -> None:
    now = [0.0]
    access = Access(Authorizer(), lambda: now[0])
    with capture_logs() as lines:
        for _ in range(MAX_LINES + 7):
            assert not access.may(ANN, Operation.READ, T, "t")
        now[0] = access_module._LINES_WINDOW_S
        assert not access.may(ANN, Operation.WRITE, T, "t")
        assert not access.may(ANN, Operation.WRITE, T, "t", is_logged=False)
    assert len(lines) == MAX_LINES + 1
    assert lines[0]["suppressed"] == 0
    assert (lines[-1]["suppressed"], lines[-1]["principal"], lines[-1]["operation"]) == (7, "User:ann", "WRITE")
    assert access.denials == {(Operation.READ, T): MAX_LINES + 7, (Operation.WRITE, T): 1}


def test_without_an_authorizer_everything_may_be_done() -> None:
    access = Access()
    assert access.may(ANN, Operation.ALTER, C)
    for kind, operations in OPERATIONS.items():
        assert access.authorized_operations(ANN, kind, "x") == sum(1 << each for each in operations)
    # Kafka's own figure for a topic: READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS
    assert access.authorized_operations(ANN, T, "x") == 3576
