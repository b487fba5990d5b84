"""The changes of `make mutate` reach the functions of a module that is loaded already."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafkalite.testing.mutate import Functions, mutants, mutated

SOURCE = """
def is_below(a, b):
    return a < b

class Counter:
    @property
    def next(self):
        return 1 + 1

    @staticmethod
    def both(a, b):
        return a and b
"""


def test_each_change_is_made_in_what_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mutated_here.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    import mutated_here  # type: ignore[import-not-found]

    monkeypatch.setitem(sys.modules, "mutated_here", mutated_here)
    is_below, counter = mutated_here.is_below, mutated_here.Counter()
    functions = Functions("mutated_here")
    seen = {}
    for mutant in mutants("mutated_here", SOURCE):
        functions.take(mutated(SOURCE, mutant))
        seen[mutant.line, mutant.what] = (is_below(1, 1), counter.next, counter.both(0, 1))
    assert seen == {
        (3, "Lt -> LtE"): (True, 2, 0),
        (8, "Add -> Sub"): (False, 0, 0),
        (8, "1 -> 2"): (False, 3, 0),
        (12, "and <-> or"): (False, 2, 1),
    }
