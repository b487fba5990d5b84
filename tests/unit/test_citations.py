"""Citations lead somewhere: numbers are in docs/invariants.md, each has a test, and no user has to know them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import invariants
from tests.invariants import ROOT

SHIPPED = ("kafkalite", "cli", "spark")
OURS = (*SHIPPED, "bench", "tests", "docs")
#: These are about the numbers; ADRs may cite them.
ABOUT = {
    "docs/invariants.md",
    "docs/sources.md",
    "tests/unit/test_citations.py",
    "tests/invariants.py",
    "tests/checklist.py",
}
#: A number without "invariant" before it. In quotes, and after --plant, it names an error that the simulation can plant.
BARE = re.compile(r"(?<![\w\"'#%./&-])(?<!--plant )[FC]\d{1,2}(?![\w\"'%-])")
#: Documents that are not in the repository.
ELSEWHERE = re.compile(
    r"\bV3\b|\bK435\b|\bK18\b|\b[Ss]tatements? \d|\bDESIGN\b|\bFACTS\b|\bCHECKLIST\b|\bSTYLE\b|\b[Ii]ssue \d"
)


def _files(*roots: str) -> Iterator[tuple[str, str]]:
    paths = [path for root in roots for path in (ROOT / root).rglob("*")] + list(ROOT.glob("*.md"))
    for path in sorted(paths):
        name = str(path.relative_to(ROOT))
        if path.suffix in {".py", ".md", ".txt", ".html", ".toml"} and "__pycache__" not in name and name not in ABOUT:
            yield name, path.read_text()


def test_the_glossary_names_parts_that_exist() -> None:
    named = re.findall(r"`([a-z_][a-z_/]*(?:\.py)?)`", (ROOT / "docs/glossary.md").read_text())
    missing = [each for each in named if not (ROOT / "kafkalite" / each).exists()]
    assert len(named) > 20 and not missing


def _without_citations(text: str) -> str:
    return invariants.CITATION.sub("", text)


def _user_documents() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))):
        name = str(path.relative_to(ROOT))
        if name not in ABOUT:
            yield name, path.read_text()


def _strings(tree: ast.Module) -> Iterator[str]:
    """String literals that are not docstrings: messages, help, texts of settings and metrics."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def test_every_number_that_is_cited_exists() -> None:
    known = set(invariants.numbers())
    found = {(name, number) for name, text in _files(*OURS) for number in invariants.cited(text)}
    assert [(name, number) for name, number in sorted(found) if number not in known] == []


def test_every_citation_says_what_it_is() -> None:
    found = [
        f"{name}:{at}: {line.strip()}"
        for name, text in _files(*OURS)
        for at, line in enumerate(_without_citations(text).splitlines(), start=1)
        if "mark.checklist" not in line
        if ELSEWHERE.search(line) or (Path(name).suffix != ".html" and BARE.search(line))
    ]
    assert found == []


def test_every_invariant_has_a_test_and_the_document_names_it() -> None:
    held = invariants.holders()
    assert [number for number in invariants.numbers() if not held[number]] == []
    assert sorted(held.keys() - set(invariants.numbers())) == []
    assert invariants.DOCUMENT.read_text() == invariants.rendered(), "run `make docs`"


def test_numbers_are_listed_once_and_without_gaps() -> None:
    everything = [str(n) for n in range(1, 95)] + [f"C{n}" for n in range(1, 22)] + [f"F{n}" for n in range(1, 32)]
    assert invariants.numbers() == everything


def test_no_number_stands_in_what_users_read() -> None:
    texts = [*_user_documents()]
    texts += [
        (f"docs/man/{path.name}", path.read_text()) for path in (ROOT / "docs" / "man").glob("*.1")
    ]  # the CLI's help
    for root in SHIPPED:
        for path in sorted((ROOT / root).rglob("*.py")):
            source = path.read_text()
            if _cites(source):  # parsing all takes seconds
                texts += [(str(path.relative_to(ROOT)), text) for text in _strings(ast.parse(source))]
    assert [(name, text[:200]) for name, text in texts if _cites(text)] == []


def _cites(text: str) -> bool:
    return bool(invariants.cited(text) or re.search(r"\([FC]\d{1,2}[,)]", text))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("as invariant 30 says", ["30"]),
        ("(invariants 46, 47 and F8)", ["46", "47", "F8"]),
        ("invariants C14 to C16", ["C14", "C15", "C16"]),
        ("Invariant F4: whoever", ["F4"]),
        ("an invariant of 3 brokers", []),
    ],
)
def test_what_a_citation_is(text: str, numbers: list[str]) -> None:
    assert invariants.cited(text) == numbers
