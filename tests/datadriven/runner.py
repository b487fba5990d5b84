"""Replays scenario files: commands, a line of four dashes, what each command printed.

A file holds blocks separated by blank lines. A block is comment lines (#), command lines, `----`, and the
expected output. A command line is `verb key=value ...`. With KAFKALITE_REWRITE=1 in the environment the expected
output is rewritten: look at the difference and only commit it if you understand what caused it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

Handler = Callable[[str, dict[str, str]], str]


def _parse(line: str) -> tuple[str, dict[str, str]]:
    verb, *words = line.split()
    arguments: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        arguments[key] = value
    return verb, arguments


def run(path: Path, handler: Handler) -> None:
    """Feed every command of the file to `handler` and compare what it returns."""
    blocks = path.read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    rewritten: list[str] = []
    failures: list[str] = []
    for block in blocks:
        lines = block.split("\n")
        if "----" not in lines:  # a block of comments only
            rewritten.append(block)
            continue
        cut = lines.index("----")
        commands, expected = lines[:cut], lines[cut + 1 :]
        printed: list[str] = []
        for line in commands:
            if line and not line.startswith("#"):
                printed.extend(handler(*_parse(line)).split("\n"))
        if printed != expected:
            failures.append("\n".join([*commands, "---- expected", *expected, "---- got", *printed]))
        rewritten.append("\n".join([*commands, "----", *printed]))
    if os.environ.get("KAFKALITE_REWRITE") == "1":
        path.write_text("\n\n".join(rewritten) + "\n", encoding="utf-8")
        return
    assert not failures, f"{path.name}:\n" + "\n\n".join(failures)
