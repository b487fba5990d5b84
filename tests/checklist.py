"""`pytest --collect-only --checklist`: the sentences of docs/invariants.md and the tests that hold them (`make checklist`)."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests import invariants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--checklist", action="store_true", help="print the invariants and the tests that hold them")


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.getoption("--checklist"):
        return
    proofs: dict[str, list[str]] = defaultdict(list)
    for item in session.items:
        for marker in item.iter_markers("checklist"):
            for number in marker.args:
                name = item.nodeid.split("[")[0]
                if name not in proofs[str(number)]:
                    proofs[str(number)].append(name)
    for number, paths in invariants.scenarios().items():
        proofs[number] += [f"tests/{path}" for path in paths]
    for number in sorted(proofs, key=invariants.order):
        print(f"{number:>4}  {'  '.join(proofs[number])}")
    known = invariants.numbers()
    missing = [number for number in known if number not in proofs]
    unknown = sorted(proofs.keys() - set(known), key=invariants.order)
    print(
        f"{len(known)} invariants; without a test: {' '.join(missing) or 'none'}; not in the document: {' '.join(unknown) or 'none'}"
    )
    if missing or unknown:
        session.exitstatus = 1
        pytest.exit("docs/invariants.md and the tests differ", returncode=1)
