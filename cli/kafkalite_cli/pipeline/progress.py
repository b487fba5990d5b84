"""How a pipeline that runs looks: a panel on a terminal, a line per batch in a pipe, JSON lines for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Protocol

import click

from kafkalite.wording import number_of

if TYPE_CHECKING:
    from rich.table import Table

    from kafkalite_pipelines import Pipeline
    from kafkalite_pipelines.control import PipelineProgress

#: Batches that the panel shows.
_SHOWN = 8


class View(Protocol):
    def __enter__(self) -> View: ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, progress: PipelineProgress) -> None: ...


def progress_view(pipeline: Pipeline, *, as_json: bool) -> View:
    if as_json:
        return _JsonLines()
    return _Panel(pipeline) if sys.stdout.isatty() else _LinePerBatch(pipeline)


class _JsonLines:
    def __enter__(self) -> _JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def show(self, progress: PipelineProgress) -> None:
        click.echo(json.dumps(dataclasses.asdict(progress)))


class _LinePerBatch:
    """A line per batch."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __enter__(self) -> _LinePerBatch:
        click.echo(f"{self._pipeline.name}: starting Spark", err=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def show(self, progress: PipelineProgress) -> None:
        click.echo(line(progress))


def line(progress: PipelineProgress) -> str:
    """One batch in words."""
    parts = [
        f"batch {progress.batch}: {number_of(progress.records, 'record')} in {progress.seconds:.1f} s, {progress.records_per_s:,.0f} a second"
    ]
    if progress.behind is not None:
        parts.append(f"{progress.behind:,} behind")
    if progress.bad:
        parts.append(f"{progress.bad:,} not decoded")
    parts += [f"{name} +{rows:,}" for name, rows in progress.rows.items() if rows]
    parts += progress.maintenance
    return "; ".join(parts)


class _Panel:
    """The last batches and the sums, drawn in place."""

    def __init__(self, pipeline: Pipeline) -> None:
        from rich.console import Console
        from rich.live import Live

        self._pipeline = pipeline
        self._batches: list[PipelineProgress] = []
        self._records = self._bad = 0
        self._live = Live(console=Console(), refresh_per_second=4, get_renderable=self._table)

    def __enter__(self) -> _Panel:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, progress: PipelineProgress) -> None:
        self._records += progress.records
        self._bad += progress.bad
        self._batches = [*self._batches, progress][-_SHOWN:]
        self._live.refresh()

    def _table(self) -> Table:
        from rich.table import Table

        sums = f"{self._records:,} records" + (f", {self._bad:,} not decoded" if self._bad else "")
        title = f"pipeline {self._pipeline.name}: {sums if self._batches else 'starting Spark'}"
        table = Table(
            title=title,
            title_justify="left",
            caption="Ctrl-C or `kafkalite pipeline stop` ends it",
            caption_justify="left",
        )
        for column in ("batch", "records", "seconds", "records a second", "behind", "not decoded", "rows"):
            table.add_column(column, justify="left" if column == "rows" else "right")
        for each in self._batches:
            rows = ", ".join([*(f"{name} +{count:,}" for name, count in each.rows.items()), *each.maintenance])
            behind = "" if each.behind is None else f"{each.behind:,}"
            table.add_row(
                str(each.batch),
                f"{each.records:,}",
                f"{each.seconds:.1f}",
                f"{each.records_per_s:,.0f}",
                behind,
                str(each.bad),
                rows,
            )
        return table
