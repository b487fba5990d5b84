"""kafkalite beside Apache Kafka in one run: every row where one event loop could show, and speed, failover, start and memory.

    python -m bench.beside_kafka [--kafka 4.4.0] [--tree CHECKOUT ...] [--python INTERPRETER ...] [--rounds 3] [--rows REGEX] [--json FILE]

Three nodes of each system (of each --tree, too, and of this checkout with each --python, an interpreter that has the packages; this checkout
if none is given) run all the time; in each round every row is measured on
each of them in turn, and each round begins with another one. The table shows medians, once for the screen and once in Markdown; --json has every
figure, and is written after each row. A row that fails is shown as failed, its nodes are started again, and the run goes on. All clients
are librdkafka and franz-go, and raw sockets for the requests that no client sends. About 15 minutes per round on an idle machine with two cores.
`sysctl kernel.task_delayacct=1` is needed for the figures that wait for the disk. Needs Java, Maven, pip (confluent-kafka) and Go.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.beside_kafka_rows import ROWS, Row, median_row
from bench.beside_kafka_system import System, versions
from bench.figures import json_option, write_json
from bench.peers import ROOT, KafkaSide, Side
from kafkalite.testing.apache_kafka import NEWEST_VERSION

console = Console(width=160)
Found = dict[str, dict[str, list[Row]]]


def table(found: Found, names: list[str]) -> Table:
    shown = Table("row", "figure", *names)
    for row, by_name in found.items():
        for number, (column, cells) in enumerate(_cells(by_name, names)):
            shown.add_row("" if number else row, column, *cells)
    return shown


def _cells(by_name: dict[str, list[Row]], names: list[str]) -> list[tuple[str, list[str]]]:
    """(figure, a cell for each system) of a row."""
    middle = {name: median_row(by_name.get(name, [])) for name in names}
    columns = dict.fromkeys(column for each in middle.values() for column in each)
    return [
        (column, [f"{middle[name][column]:,.1f}" if column in middle[name] else "failed" for name in names])
        for column in columns
    ]


def markdown(found: Found, names: list[str]) -> str:
    """The same for docs/performance.md: a line per row, its figures with their names in the first column."""
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row, by_name in found.items():
        cells = _cells(by_name, names)
        by_system = ("; ".join(each[number] for _, each in cells) for number in range(len(names)))
        lines.append(f"| {row}: {'; '.join(column for column, _ in cells)} | " + " | ".join(by_system) + " |")
    return "\n".join(lines)


class Run:
    """Rounds over all rows and systems; what is found is on the disk after each row."""

    def __init__(
        self, systems: list[System], wanted: re.Pattern[str], described: dict[str, str], json_file: Path | None
    ) -> None:
        self._systems = systems
        self._rows = {name: measure for name, measure in ROWS.items() if wanted.search(name)}
        self._described = described
        self._json_file = json_file
        self._failures: list[str] = []
        self.found: Found = {name: {system.name: [] for system in systems} for name in self._rows}

    def round(self, number: int) -> None:
        first = number % len(self._systems)
        for name in self._rows:
            for system in self._systems[first:] + self._systems[:first]:
                self._measure(name, system)
                self._save()

    def _measure(self, name: str, system: System) -> None:
        os.sync()  # nobody waits for what the one before has left to the disk
        began = time.monotonic()
        try:
            row = self._rows[name](system)
        except Exception as error:  # noqa: BLE001 -- whatever a peer or a client does, the other rows are measured
            said = f"{name}: {system.name}: failed: {type(error).__name__}: {error}"
            self._failures.append(said)
            console.print(said, highlight=False, markup=False)
            try:
                console.print(f"{system.name}: started again: {system.revive()}", highlight=False)
            except (OSError, RuntimeError) as again:
                self._failures.append(f"{system.name}: not started again: {again}")
            return
        self.found[name][system.name].append(row)
        cells = ", ".join(f"{column} {value:,.1f}" for column, value in row.items())
        took = time.monotonic() - began
        console.print(f"{name}: {system.name}: {cells}; {took:.0f} s, load {os.getloadavg()[0]:.1f}", highlight=False)

    def _save(self) -> None:
        write_json({"versions": self._described, "rows": self.found, "failures": self._failures}, self._json_file)


@click.command(help=__doc__)
@click.option("--kafka", "version", default=NEWEST_VERSION, show_default=True, help="empty: only the checkouts")
@click.option("--tree", "trees", type=click.Path(path_type=Path, exists=True), multiple=True)
@click.option("--python", "pythons", type=click.Path(path_type=Path, exists=True), multiple=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--rows", default="", help="only rows that match this regular expression")
@json_option
def main(
    version: str, trees: tuple[Path, ...], pythons: tuple[Path, ...], rounds: int, rows: str, json_file: Path | None
) -> None:
    checkouts = [tree.resolve() for tree in trees] or ([] if pythons else [ROOT])
    described: dict[str, Any] = versions(version, checkouts)
    for name, value in described.items():
        console.print(f"{name}: {value}", highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="beside-kafka-", ignore_cleanup_errors=True) as scratch,
        contextlib.ExitStack() as stack,
    ):
        makers: list[Callable[..., Side]] = [partial(Side, tree=tree) for tree in checkouts]
        makers += [partial(Side, python=python) for python in pythons]
        if version:
            makers.append(partial(KafkaSide, version=version))
        systems = [System(make, Path(scratch) / f"side-{number}" / "nodes") for number, make in enumerate(makers)]
        for system in systems:
            stack.enter_context(system.side.cluster)
            stack.callback(system.load.close)
        for system in systems:
            system.prepare()
        run = Run(systems, re.compile(rows), described, json_file)
        try:
            for number in range(rounds):
                run.round(number)
        finally:
            names = [system.name for system in systems]
            console.print(table(run.found, names))
            print(markdown(run.found, names))
    for name, value in described.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
