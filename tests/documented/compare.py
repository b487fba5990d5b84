"""Does a command print what the page shows? Pure.

The same by definition: sizes, rates, durations and percentages of any value, columns of any width, lines of progress. `…` in
a page stands for any text, on a line of its own for any lines.
"""

from __future__ import annotations

import re

_VARIES = re.compile(
    r"\d+(?:\.\d+)? (?:[kMGT]?B(?:/s)?|m?s|%)(?!\w)"  # sizes, rates, durations, percentages
    r"|\d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?"  # times, dates
    r"|\d+\.\d+(?: (?=\d+\.\d+))?"  # milliseconds in tables
)
#: How many lines of progress there are depends on the machine, and whether a command had to wait for a broker.
_PROGRESS = re.compile(
    r"\d+ of \d+ partitions done, |broker \d+: \d+ replicas left|note: no broker answers yet: .*; waiting up to"
)
#: What a command adds on a machine that is slow at that moment.
_SLOW = re.compile(r"; not every node knows its leaders yet$")


def _plain(line: str, varies: str | None) -> str:
    line = _SLOW.sub("", line)
    if varies:
        line = re.sub(varies, "~", line)
    return " ".join(_VARIES.sub("~", line).split())


def difference(expected: list[str], actual: list[str], varies: str | None = None) -> str | None:
    """What is different, for a person; None if nothing is."""
    wanted = [_plain(line, varies) for line in expected if not _PROGRESS.match(line)]
    found = [_plain(line, varies) for line in actual if line.strip() and not _PROGRESS.match(line)]
    pattern = ""
    for line in wanted:
        if line == "…":
            pattern += r"(?:[^\n]*\n)*?"
        elif line:
            pattern += ".*?".join(re.escape(part) for part in line.split("…")) + r"\n"
    if re.fullmatch(pattern, "".join(line + "\n" for line in found)):
        return None
    return "the page shows\n  " + "\n  ".join(expected) + "\nbut it printed\n  " + "\n  ".join(actual)
