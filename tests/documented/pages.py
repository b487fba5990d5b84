"""What of a page is executed. Pure: text in, steps out.

Comments of HTML before a fence, each on lines of its own:

    <!-- cluster: --nodes 4 -->       `kafkalite dev --nodes 4` runs from here to the end of the page, or to the next such comment
    <!-- set-up                       commands that run before the next fence
    kafkalite admin … -->
    <!-- not run: needs docker -->    this fence is not executed, for this reason
    <!-- in the background -->        its commands do not end, and the next fence runs beside them
    <!-- varies: REGEX -->            what matches may be different; several are joined
    <!-- soon: REGEX -->              commands that match only show a state: they are repeated until they print this (in a script:
                                      until they exit with 0); without REGEX, all of the fence
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Fences in these languages hold commands; `text` and the others do not.
SHELL = ("sh", "console")
_PIECE = re.compile(
    r"^ *<!--\s*(?P<comment>.*?)\s*-->|^(?P<indent> *)```(?P<language>[\w{}-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_WORDS = re.compile(r"(cluster|set-up|not run|in the background|varies|soon)\b:?\s*(.*)", re.DOTALL)


@dataclass
class Command:
    """One command of a session, and the lines that it prints."""

    text: str
    prints: list[str] = field(default_factory=list)
    exit: int = 0


@dataclass
class Fence:
    """One fenced block with commands, and what the comments before it say."""

    line: int
    language: str
    body: str
    words: dict[str, str]

    def is_repeated(self, command: str) -> bool:
        """Whether a command only shows a state, which the cluster may reach a moment later."""
        return "soon" in self.words and re.search(self.words["soon"], command) is not None

    def script(self) -> str:
        """The commands of a `sh` fence, as they are run."""
        lines = self.body.splitlines()
        return "\n".join(f"until {each}\ndo sleep 0.2; done" if self.is_repeated(each) else each for each in lines)

    def session(self) -> list[Command]:
        """The commands of a `console` fence. Raises ValueError if it does not begin with one."""
        commands: list[Command] = []
        for line in self.body.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line[2:]))
            elif commands and not commands[-1].prints and commands[-1].text.endswith("\\"):
                commands[-1].text += "\n" + line
            elif commands and (exit_code := re.fullmatch(r"\[exit (\d+)\]", line)):
                commands[-1].exit = int(exit_code[1])
            elif commands:
                commands[-1].prints.append(line)
            elif line:
                raise ValueError(f"line {self.line}: a session begins with `$ `")
        for command in commands:
            while command.prints and not command.prints[-1]:
                command.prints.pop()
        return commands


def fences(text: str) -> Iterator[Fence]:
    """Every fence of a page, in any language, and the comments that stand directly before it."""
    words: dict[str, str] = {}
    end = 0
    for piece in _PIECE.finditer(text):
        if text[end : piece.start()].strip():
            # Comments that concern the whole page or prepare something stay until a fence follows.
            words = {name: value for name, value in words.items() if name in ("cluster", "set-up")}
        end = piece.end()
        if piece["comment"] is not None:
            if known := _WORDS.fullmatch(piece["comment"]):
                joined = {"varies": "|", "set-up": "\n"}.get(known[1])
                before = words.get(known[1])
                words[known[1]] = known[2] if before is None or joined is None else before + joined + known[2]
            continue
        indent = len(piece["indent"])
        body = "".join(line[indent:] for line in piece["body"].splitlines(keepends=True))
        yield Fence(text.count("\n", 0, piece.start()) + 1, piece["language"], body, words)
        words = {}


def pages() -> list[Path]:
    """README and every page under docs/ that may hold commands for users."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def executed(path: Path) -> list[Fence]:
    """The fences of a page that are run."""
    return [
        each
        for each in fences(path.read_text(encoding="utf-8"))
        if each.language in SHELL and "not run" not in each.words
    ]
