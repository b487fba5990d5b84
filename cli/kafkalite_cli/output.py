"""How a command runs, asks, and writes its results: for people, pipes and programs."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import click
import uvloop

from kafkalite.lazy_dataclass import dataclass
from kafkalite.telemetry import logs
from kafkalite_cli.visible import visible

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine. Logs are for developers here: silent unless KAFKALITE_LOG_LEVEL says otherwise."""
    level = os.environ.get("KAFKALITE_LOG_LEVEL", "").lower()
    with (
        logs.configured(level=level if level in logs.LEVELS else "critical"),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        try:
            return runner.run(work)
        except asyncio.CancelledError:  # by a second signal, see `on_stop`
            raise KeyboardInterrupt from None


def run_watch(work: Coroutine[Any, Any, T], how_to_return: str) -> T:
    """`run_async` for what goes on in the cluster if the command is interrupted: Ctrl-C says so, and how to come back. Exits 130 then."""
    try:
        return run_async(work)
    except KeyboardInterrupt:
        click.echo(f"\n{how_to_return}", err=True)
        raise click.exceptions.Exit(130) from None


def on_stop(callback: Callable[[], object]) -> None:
    """At Ctrl-C or SIGTERM (`timeout`, systemd, a container that is stopped) end in order; a second one ends at once. Call it in the loop."""
    loop, command = asyncio.get_running_loop(), asyncio.current_task()
    assert command is not None

    def on_signal(call: Callable[[], object]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, call)

    def stop() -> None:
        on_signal(command.cancel)
        callback()

    on_signal(stop)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal before something is destroyed. Raises UsageError where nobody can be asked and there is no --yes, Abort on no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: add --yes")
    answer = None
    while answer is None:
        said = _line_of_terminal(f"{question} [y/N]: ").strip().lower()
        answer = {"y": True, "yes": True, "n": False, "no": False, "": False}.get(said)
    if not answer:
        raise click.Abort


def _line_of_terminal(question: str) -> str:
    """Empty at the end of the input. Raises Abort at Ctrl-C, which asyncio would only note the first time.

    A signal that comes just before a read does not interrupt it, so the read waits for the signals' pipe, too.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    wakeup = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    try:
        click.echo(question, nl=False, err=True)
        while sys.stdin not in select.select([sys.stdin, woken], [], [])[0]:
            os.read(woken, 1)
        return sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)
        raise click.Abort from None
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, handler)
        os.close(woken)
        os.close(wakes)


@dataclass(frozen=True, slots=True)
class Output:
    """Writes a command's results to stdout: JSON if asked for, tables on a terminal, aligned text in a pipe."""

    as_json: bool

    def value(self, value: Any, text: str = "") -> None:
        """One result: `value` for programs, `text` for people (none where they get a table)."""
        click.echo(json.dumps(value) if self.as_json else visible(text, keeps_lines=True))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
        """A table for people; nothing with --json (see `value`)."""
        if self.as_json:
            return
        cells = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
        if sys.stdout.isatty() and _has_room(columns):
            self._rich_table(columns, cells, title)
            return
        header = [column.upper() for column in columns]
        widths = [max(len(row[i]) for row in [header, *cells]) for i in range(len(columns))]
        for row in [header, *cells]:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def listing(self, value: Any, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """The same result twice: `value` for programs, or else a table."""
        if self.as_json:
            self.value(value)
        self.table(columns, rows)

    def _rich_table(self, columns: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title or None, title_justify="left")
        for index, column in enumerate(columns):
            numeric = bool(cells) and all(row[index].lstrip("-").isdigit() for row in cells)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)


def _has_room(columns: Sequence[str]) -> bool:
    """Whether the terminal is wide enough to fold these columns; in less a table would be frames around nothing."""
    longest_words = (max(map(len, column.split()), default=0) for column in columns)
    return sum(width + 3 for width in longest_words) + 1 <= shutil.get_terminal_size().columns


def ids_text(ids: Iterable[int]) -> str:
    """1,2,3"""
    return ",".join(map(str, ids))


def size_text(size_bytes: int) -> str:
    """1234567 -> 1.2 MB."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
