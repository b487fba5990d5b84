"""Plain English in documents, help, docstrings and comments: words and habits that a reader stumbles over do not come back.

The list is of patterns that were found in reviews, each with what to write instead. Identifiers are not looked at: their names
are those of docs/glossary.md and of Kafka.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Pattern -> what to write instead.
BANNED = {
    r"\banew\b": "again; recreated; rebuilt",
    r"\b(?:is|are|was|were|be|been|being) told\b|\bunless told\b|\btold (?:by|that|once|apart)\b": "reported, sent, logged",
    r"\btells? (?:of|whether|how|which|what|who|when|where|it)\b": "shows, returns, contains",
    r"\b[Ww]hoever\b": "name the subject: a client, a caller, a node",
    r"\bis no more\b": "was removed; does not exist any more",
    r"\bso (?:many|often|late|long|much|few)\b(?! (?:as|that)\b)": "this number of; interval; time after which",
    r"\bholds? nothing against\b": "does not suspect",
    r"(?m)(?:^|[.;:] )(?:Dies|Goes|Comes|Has|Does|Was|Were) (?:the|a|an|it|one|node|nobody|this|that)\b[^?\n]*,": "If …, …",
    r"\b(?:by|without) a hand\b": "without an operator; from outside",
    r"\bjudge[sd]?\b|\bjudgements?\b": "examine, classify, check",
    r"\b(?:unseat|depose)[sd]?\b": "replace, resign",
    r"\b(?:take|takes|took|taken|in|of|leave|leaves) office\b": "is elected; is the controller; resigns",
    r"\bstrangers?\b": "unauthenticated peer",
    r"\bma(?:de|kes?|king) (?:it |them |the [\w ]{1,30})?again\b": "recreated; rebuilt; repeated",
    r"\b(?:earlier|another|new|newer|former) (?:life|lives)\b|\bthis life of\b": "incarnation; broker epoch; process",
    r"\bby (?:itself|themselves)\b|\bof its own accord\b": "without a request; alone",
    r"\border was wrong\b": "the arguments are invalid; the cluster rejects the request",
    r"\bmilliards?\b": "billions",
}
_RULES = [(re.compile(pattern), instead) for pattern, instead in BANNED.items()]
#: A file whose text this does not match breaks no rule. To parse all files would take ten seconds.
_SUSPECT = re.compile("|".join(pattern.removeprefix("(?m)(?:^|[.;:] )") for pattern in BANNED))
ROOTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "kafkalite", "cli", "spark", "bench")
#: Decisions are records of their time.
EXEMPT = ("docs/adr/",)


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    """(first line, text) of all that is written for people."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, re.sub(r"```.*?```", lambda block: "\n" * block.group().count("\n"), text, flags=re.S)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _found(first: int, text: str) -> Iterator[tuple[int, str, str]]:
    for rule, instead in _RULES:
        for match in rule.finditer(text):
            yield first + text.count("\n", 0, match.start()), match.group(), instead


def _files() -> Iterator[Path]:
    for name in ROOTS:
        root = ROOT / name
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            is_read = path.suffix in (".md", ".py") and not path.relative_to(ROOT).as_posix().startswith(EXEMPT)
            if is_read and _is_suspect(path.read_text(encoding="utf-8")):
                yield path


def _is_suspect(source: str) -> bool:
    """With strings that go on in the next line put together, and escapes as the spaces that they mean."""
    return bool(_SUSPECT.search(re.sub(r"\\[nt]", " ", re.sub(r'"\s*\n\s*[rf]*"', "", source))))


def test_nothing_is_written_that_readers_stumble_over() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {found!r}; better: {instead}"
        for path in _files()
        for first, text in _prose(path)
        for line, found, instead in _found(first, text)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "sentence",
    [
        "The replica is made anew.",
        "Dies node 1, the producer hears nothing.",
        "Was it alone in sync, its partitions stay offline.",
        "fsync after so many records",
        "Whoever dials checks the host.",
        "The controller leaves office.",
    ],
)
def test_the_habits_are_found(sentence: str) -> None:
    assert list(_found(1, sentence))


@pytest.mark.parametrize(
    "sentence", ["If node 1 dies, the producer gets no response.", "as many as there are, so long as it is open"]
)
def test_plain_sentences_are_not(sentence: str) -> None:
    assert not list(_found(1, sentence))
