"""The counting of `make soak`: every kind of fault planted into a sound run is found, and the sound run is clean."""

from __future__ import annotations

import pytest

from bench.soak.checks import SoakVersion, copied, keyed, numbered, steady, transactions

ACKED = {(0, 0): "w:1:1", (0, 1): "w:1:2", (1, 0): "w:1:3"}
LOG = {0: [(0, "w:1:1"), (1, "w:1:2"), (2, "w:1:4")], 1: [(0, "w:1:3")]}


def kinds(findings: list[str]) -> list[str]:
    return [finding.split(": ")[0] for finding in findings]


def test_numbered_records_that_are_all_there() -> None:
    assert numbered("t", ACKED, LOG) == []


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ({0: [(0, "w:1:1"), (1, "w:1:2")], 1: []}, "t LOST"),
        ({0: [(0, "w:1:1"), (1, "w:1:2")]}, "t LOST"),
        ({0: [(0, "w:1:1"), (2, "w:1:2")], 1: [(0, "w:1:3")]}, "t MOVED"),
        ({0: [(0, "w:1:1"), (1, "w:1:2"), (2, "w:1:2")], 1: [(0, "w:1:3")]}, "t DOUBLED"),
        ({0: [(0, "w:1:1"), (1, "w:1:2"), (2, "w:1:0")], 1: [(0, "w:1:3")]}, "t DISORDERED"),
    ],
)
def test_numbered_records_that_are_not(log: dict[int, list[tuple[int, str]]], kind: str) -> None:
    assert kind in kinds(numbered("t", ACKED, log))


def test_acknowledgements_without_an_offset() -> None:
    assert numbered("t", ACKED, LOG, [(0, "w:1:4")]) == []
    assert kinds(numbered("t", ACKED, LOG, [(0, "w:1:4"), (1, "w:1:5"), (2, "w:1:6")])) == ["t LOST"]


OUTCOMES = {("p", 1): ("committed", 2), ("p", 2): ("aborted", 2), ("p", 3): ("unknown", 2)}
SEEN = ["p:1:0:2", "p:1:1:2"]


@pytest.mark.parametrize("more", [[], ["p:3:0:2", "p:3:1:2"]])
def test_transactions_that_are_atomic(more: list[str]) -> None:
    assert transactions("t", OUTCOMES, SEEN + more) == []


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        ([], "t COMMITTED BUT LOST"),
        (["p:1:0:2"], "t TORN"),
        ([*SEEN, "p:3:1:2"], "t TORN"),
        ([*SEEN, "p:4:1:2"], "t TORN"),
        ([*SEEN, "p:2:0:2"], "t ABORTED BUT VISIBLE"),
        ([*SEEN, "p:1:0:2"], "t DOUBLED"),
    ],
)
def test_transactions_that_are_not(seen: list[str], kind: str) -> None:
    assert kinds(transactions("t", OUTCOMES, seen)) == [kind]


SENT = {
    "a": [SoakVersion(1, is_tombstone=False), SoakVersion(2, is_tombstone=False), SoakVersion(3, is_tombstone=False)],
    "b": [SoakVersion(1, is_tombstone=False), SoakVersion(2, is_tombstone=True)],
}
NEWEST = {"a": SoakVersion(2, is_tombstone=False, at=10.0), "b": SoakVersion(2, is_tombstone=True, at=10.0)}


@pytest.mark.parametrize(
    "log",
    [
        {"a": [SoakVersion(2, is_tombstone=False)], "b": []},
        {"a": [SoakVersion(1, is_tombstone=False), SoakVersion(3, is_tombstone=False)]},
        {"a": [SoakVersion(2, is_tombstone=False)], "b": [SoakVersion(2, is_tombstone=True)]},
    ],
)
def test_keys_with_their_newest_values(log: dict[str, list[SoakVersion]]) -> None:
    assert keyed("t", SENT, NEWEST, log) == []


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ({"a": [SoakVersion(1, is_tombstone=False)]}, "t LOST"),
        ({}, "t LOST"),
        ({"a": [SoakVersion(2, is_tombstone=False)], "b": [SoakVersion(1, is_tombstone=False)]}, "t DELETE UNDONE"),
        ({"a": [SoakVersion(3, is_tombstone=False), SoakVersion(2, is_tombstone=False)]}, "t DISORDERED"),
        ({"a": [SoakVersion(2, is_tombstone=False), SoakVersion(4, is_tombstone=False)]}, "t NEVER SENT"),
        ({"a": [SoakVersion(2, is_tombstone=False)], "c": [SoakVersion(1, is_tombstone=False)]}, "t NEVER SENT"),
    ],
)
def test_keys_without_them(log: dict[str, list[SoakVersion]], kind: str) -> None:
    assert kind in kinds(keyed("t", SENT, NEWEST, log))


def test_expired_keys_may_be_gone_but_a_delete_stays() -> None:
    assert keyed("t", SENT, NEWEST, {}, expired_before=11.0) == []
    assert kinds(keyed("t", SENT, NEWEST, {"b": [SoakVersion(1, is_tombstone=False)]}, expired_before=11.0)) == [
        "t DELETE UNDONE"
    ]


def test_a_pipeline() -> None:
    assert copied({"1", "2"}, ["1", "2", "3"]) == []
    assert kinds(copied({"1", "2"}, ["1"])) == ["pipeline LOST"]
    assert kinds(copied({"1"}, ["1", "1"])) == ["pipeline DOUBLED"]


def test_figures_that_grow() -> None:
    assert steady("memory", [50.0] * 40, allowance=20) == []
    assert steady("memory", [50.0 + 10 * n for n in range(40)], allowance=20) != []
    assert steady("memory", [50.0, 500.0], allowance=20) == []
