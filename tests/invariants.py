"""The numbered sentences of docs/invariants.md, and who cites or holds them. `python -m tests.invariants` fills its last column.

A test holds a sentence by `@pytest.mark.checklist(N)`; a scenario file by naming the invariant in a comment.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "invariants.md"
_NUMBER = r"[CF]?\d{1,2}"
_ROW = re.compile(rf"^\| (?P<number>{_NUMBER}) \| (?P<text>.*) \| (?P<source>.*) \| ?(?P<held>.*?) ?\|$")
CITATION = re.compile(
    rf"\binvariants?(?: | ?\n[ \t]*(?:#:? ?)?)(?P<numbers>{_NUMBER}(?:(?:, | and | to )(?:#\s*)?{_NUMBER})*)\b",
    re.IGNORECASE,
)


def order(number: str) -> tuple[str, int]:
    """1 to 94, then C1, C2 …, then F1 …"""
    return number.rstrip("0123456789"), int(number.lstrip("CF"))


def numbers() -> list[str]:
    """All numbers of the document, in its order."""
    return [row["number"] for line in DOCUMENT.read_text().splitlines() if (row := _ROW.match(line))]


def cited(text: str) -> list[str]:
    """The numbers that `text` cites: "invariant 30", "invariants 46, 47 and F8", "invariants C14 to C16"."""
    found: list[str] = []
    for citation in CITATION.finditer(text):
        parts = re.split(r"(, | and | to )", citation["numbers"])
        for joint, number in zip(["", *parts[1::2]], parts[::2], strict=True):
            if joint == " to ":
                series, last = order(number)
                found += [f"{series}{each}" for each in range(order(found[-1])[1] + 1, last)]
            found.append(number)
    return found


def _marks(tree: ast.AST) -> list[str]:
    return [
        str(ast.literal_eval(argument))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.checklist"
        for argument in node.args
    ]


def holders() -> dict[str, list[str]]:
    """Per number: the test and scenario files that hold it, relative to tests/."""
    found: dict[str, list[str]] = defaultdict(list)
    tests = ROOT / "tests"
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text()
        if "pytest.mark.checklist" in text and path != Path(__file__):
            for number in dict.fromkeys(_marks(ast.parse(text))):
                found[number].append(str(path.relative_to(tests)))
    for number, paths in scenarios().items():
        found[number] += paths
    return found


def scenarios() -> dict[str, list[str]]:
    """Per number: the scenario files whose comments name it."""
    found: dict[str, list[str]] = defaultdict(list)
    tests = ROOT / "tests"
    for path in sorted((tests / "datadriven").rglob("*.txt")):
        comments = "\n".join(line.removeprefix("#") for line in path.read_text().splitlines() if line.startswith("#"))
        for number in dict.fromkeys(cited(re.sub(r"\s+", " ", comments))):
            found[number].append(str(path.relative_to(tests)))
    return found


def rendered() -> str:
    """The document with its last column as the tests have it today."""
    held = holders()
    lines = []
    for line in DOCUMENT.read_text().splitlines():
        if row := _ROW.match(line):
            links = ", ".join(
                f"[{Path(path).stem.removeprefix('test_')}](../tests/{path})" for path in held[row["number"]]
            )
            line = f"| {row['number']} | {row['text']} | {row['source']} | {links} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(rendered())
