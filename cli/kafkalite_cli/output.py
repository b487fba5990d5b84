"""What every command shares: the options of a client, and output for people, pipes and programs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import structlog
import uvloop

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.bootstrap import DEFAULT_PORT, parse_bootstrap

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def _bootstrap(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Checked. What stands before the verb (`admin --bootstrap … verb`) counts if nothing stands after it."""
    if ctx.get_parameter_source("bootstrap") is not click.core.ParameterSource.COMMANDLINE:
        parent = ctx.parent
        while parent is not None:
            if parent.params.get("bootstrap") is not None:
                return str(parent.params["bootstrap"])
            parent = parent.parent
    if value is None:
        return None
    try:
        parse_bootstrap(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def group_options(command: F) -> F:
    """--bootstrap for a group: its verbs take it over."""
    return click.option("--bootstrap", metavar="HOST:PORT,…", callback=_bootstrap, help="RPC addresses of some nodes.")(
        command
    )


def client_options(command: F) -> F:
    """--bootstrap, --timeout and --json."""
    options = [
        click.option(
            "--bootstrap",
            metavar="HOST:PORT,…",
            envvar="KAFKALITE_BOOTSTRAP",
            default=f"localhost:{DEFAULT_PORT}",
            show_default=True,
            show_envvar=True,
            callback=_bootstrap,
            help="RPC addresses of some nodes.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(0.1, 86_400),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help="Give up after so long.",
        ),
        click.option("--json", "as_json", is_flag=True, help="JSON on stdout."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def connect(bootstrap: str, timeout_s: float) -> AsyncClient:
    """The client for a command."""
    return AsyncClient.connect(bootstrap, client_id="kafkalite-cli", request_timeout_s=timeout_s)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine. Logs are for developers here: silent unless KAFKALITE_LOG_LEVEL says otherwise."""
    level = getattr(logging, os.environ.get("KAFKALITE_LOG_LEVEL", "").upper(), logging.CRITICAL)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@dataclass(frozen=True, slots=True)
class Output:
    """Writes a command's results to stdout: JSON if asked for, tables on a terminal, aligned text in a pipe."""

    as_json: bool

    def value(self, value: Any, text: str) -> None:
        """One result: `value` for programs, `text` for people."""
        click.echo(json.dumps(value) if self.as_json else text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table for people; nothing with --json (see `value`)."""
        if self.as_json:
            return
        cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
        if sys.stdout.isatty():
            self._rich_table(title, columns, cells)
            return
        header = [column.upper() for column in columns]
        widths = [max(len(row[i]) for row in [header, *cells]) for i in range(len(columns))]
        for row in [header, *cells]:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def _rich_table(self, title: str, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
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


def size_text(size_bytes: int) -> str:
    """1234567 -> 1.2 MB."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
