"""`pytest --collect-only --checklist`: the checklist's statements and the tests that prove them (`make checklist`)."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

#: The statements of the areas that are finished: each needs at least one test.
FINISHED: frozenset[str] = frozenset(
    [str(line) for line in (*range(1, 8), *range(15, 31), *range(34, 41), *range(45, 59))]
    + ["F1", "F3", "F4", "F5", "F6", "F8", "F12"]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--checklist", action="store_true", help="print the statements and the tests that prove them")


def _order(statement: str) -> tuple[str, int]:
    match = re.fullmatch(r"([A-Z]*)(\d+)", statement)
    return (match[1], int(match[2])) if match else (statement, 0)


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.getoption("--checklist"):
        return
    proofs: dict[str, list[str]] = defaultdict(list)
    for item in session.items:
        for marker in item.iter_markers("checklist"):
            for statement in marker.args:
                name = item.nodeid.split("[")[0]
                if name not in proofs[str(statement)]:
                    proofs[str(statement)].append(name)
    for statement in sorted(proofs, key=_order):
        print(f"{statement:>4}  {'  '.join(proofs[statement])}")
    missing = sorted(FINISHED - proofs.keys(), key=_order)
    print(f"{len(proofs)} statements have tests; of the finished areas these have none: {' '.join(missing) or 'none'}")
    if missing:
        session.exitstatus = 1
        pytest.exit(f"statements without a test: {' '.join(missing)}", returncode=1)
