"""Commands in README and docs/ are executed from the pages (tests/documented); here: none escapes, and how pages are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documented.compare import difference
from tests.documented.pages import ROOT, SHELL, fences, pages

#: Fences in these languages hold no commands.
OTHERS = ("text", "python", "toml", "yaml", "ini", "properties", "json", "{toctree}")
#: What a command begins with.
_COMMAND = re.compile(
    r"^ *(?:\$ )?(?:kafkalite|pip|pipx|make|docker|systemctl|curl|apt|apt-get|python3?|openssl|kafka-[a-z-]+) "
)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
#: A page without any: what is in it is for people who read code, or is generated without commands.
IDS = [str(path.relative_to(ROOT)) for path in pages()]


@pytest.mark.parametrize("path", pages(), ids=IDS)
def test_no_command_escapes(path: Path) -> None:
    """Every fence has a language; every one with commands is executed, or says why it is not."""
    for fence in fences(path.read_text(encoding="utf-8")):
        assert fence.language in SHELL + OTHERS, f"line {fence.line}: ```{fence.language}"
        if fence.language in SHELL:
            reason = fence.words.get("not run")
            assert reason is None or len(reason) > 10, f"line {fence.line}: why is it not run?"
            if fence.language == "console":
                assert fence.session()
        elif fence.language == "text" and path.name != "commands.md":
            assert not [line for line in fence.body.splitlines() if line.startswith("$ ")], f"line {fence.line}"


@pytest.mark.parametrize("path", pages(), ids=IDS)
def test_no_command_stands_outside_of_a_fence(path: Path) -> None:
    """Blocks that are only indented are not seen by the runner."""
    prose = _FENCE.sub("", re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    assert [line for line in prose.splitlines() if line.startswith("    ") and _COMMAND.match(line)] == []


def test_few_blocks_are_left_out() -> None:
    """A marker is for what no test machine has. More of them than now need a reason in the commit."""
    shell = [each for path in pages() for each in fences(path.read_text(encoding="utf-8")) if each.language in SHELL]
    left_out = [each for each in shell if "not run" in each.words]
    assert len(left_out) <= 32
    assert len(shell) - len(left_out) >= 30


def test_benchmarks_in_the_documents_exist() -> None:
    """They take too long to be run here."""
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    modules = re.findall(r"python -m (bench\.\w+)", text) + re.findall(r"python (bench/\w+)\.py", text)
    assert modules
    for module in modules:
        assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module


def test_how_a_page_is_read() -> None:
    page = """# A page
<!-- cluster: --nodes 4 -->
Text.

<!-- set-up
kafkalite admin create-topic t
-->
<!-- varies: a -->
<!-- varies: b -->
```console
$ kafkalite admin \\
    health
all is well
$ false
[exit 1]
```

<!-- not run: needs docker -->
```sh
docker run x
```
<!-- soon: health|list -->
```sh
kafkalite admin create-topic t
kafkalite admin health   # exits with 1 while a replica is behind
```
<!-- soon -->
Text in between: the comment is not about the next fence.

```sh
true
```
"""
    first, second, shows, third = fences(page)
    assert first.words == {"cluster": "--nodes 4", "set-up": "kafkalite admin create-topic t", "varies": "a|b"}
    assert [(each.text, each.prints, each.exit) for each in first.session()] == [
        ("kafkalite admin \\\n    health", ["all is well"], 0),
        ("false", [], 1),
    ]
    assert second.words == {"not run": "needs docker"}
    assert third.words == {}
    assert shows.script().splitlines() == [
        "kafkalite admin create-topic t",
        "until kafkalite admin health   # exits with 1 while a replica is behind",
        "do sleep 0.2; done",
    ]
    assert [each.is_repeated("kafkalite admin list-topics") for each in (first, shows, third)] == [False, True, False]


@pytest.mark.parametrize(
    ("expected", "actual", "is_same"),
    [
        (["a  5.4 MB"], ["a 17 kB"], True),
        (["a 5 B"], ["b 5 B"], False),
        (["first", "…", "last"], ["first", "x", "y", "last"], True),
        (["first", "…", "last"], ["first", "last"], True),
        (["by … with"], ["by somebody with"], True),
        (["0 of 4 partitions done, 2 under way", "done"], ["done"], True),
        (["one"], ["one", "two"], False),
        (
            ["created t"],
            [
                "note: no broker answers yet: 127.0.0.1:1: Connection refused; waiting up to 30 s (--timeout)",
                "created t",
            ],
            True,
        ),
        (["created t: 1 partition"], ["created t: 1 partition; not every node knows its leaders yet"], True),
        ([], ["printed"], False),
        (["at 13:52:58.829"], ["at 07:00:00.001"], True),
    ],
)
def test_what_counts_as_the_same(expected: list[str], actual: list[str], *, is_same: bool) -> None:
    assert (difference(expected, actual) is None) is is_same
