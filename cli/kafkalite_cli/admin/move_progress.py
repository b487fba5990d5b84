"""Progress of reassignments: partitions, bytes, rate and time left; a live view on a terminal, lines in a pipe."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from kafkalite.client.admin.moves import Part, Tracker, part_of
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.wording import number_of
from kafkalite_cli.admin.move_requests import moves_in_progress
from kafkalite_cli.output import Output, ids_text, size_text

SAMPLE_S = 0.5
#: Partitions shown one by one.
MAX_SHOWN = 12


def line(tracker: Tracker) -> str:
    """For people."""
    under_way = sum(part.is_under_way for part in tracker.parts)
    text = f"{tracker.finished} of {number_of(len(tracker.totals), 'partition')} done, {under_way} under way"
    if tracker.total_bytes:
        share = 100 * tracker.done_bytes // tracker.total_bytes
        text += f", {size_text(tracker.done_bytes)} of {size_text(tracker.total_bytes)} ({share} %)"
    if tracker.rate > 0:
        text += f", {size_text(int(tracker.rate))}/s"
    if tracker.eta_s is not None and tracker.parts:
        text += f", about {duration(tracker.eta_s)} left"
    return text


def duration(seconds: float) -> str:
    """75 -> 1 min 15 s."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


async def sample(client: AsyncClient, timeout_s: float) -> list[Part]:
    """What is under way now, measured on every node that answers."""
    found = await moves_in_progress(client, timeout_s)
    if not found:
        return []
    await client.metadata((), timeout_s=timeout_s)
    topics = sorted({each.topic for each in found})
    held: dict[tuple[TopicPartition, BrokerId], int] = {}
    for node, reported in (await client.describe_replicas(topics, timeout_s=min(timeout_s, 5.0))).items():
        if not isinstance(reported, KafkaliteError):
            held |= {(TopicPartition(r.topic, r.partition), node): r.size_bytes for r in reported.replicas}
    return [part_of(each, held) for each in found]


async def show(client: AsyncClient, out: Output, *, timeout_s: float) -> None:
    """Two samples, for a rate; then a table."""
    tracker = Tracker()
    tracker.take(await sample(client, timeout_s), client.now())
    if tracker.parts:
        await asyncio.sleep(SAMPLE_S)
        tracker.take(await sample(client, timeout_s), client.now())
    if out.as_json:
        parts = [
            {
                "topic": part.partition.topic,
                "partition": part.partition.partition,
                "replicas": list(part.replicas),
                "target": list(part.target),
                "origin": list(part.origin),
                "under_way": part.is_under_way,
                "bytes_total": part.total_bytes,
                "bytes_done": part.done_bytes,
            }
            for part in tracker.parts
        ]
        out.value({**tracker.value(), "reassignments": parts}, "")
        return
    if not tracker.totals:
        click.echo("no reassignment is in progress")
        return
    rows = [
        (
            str(part.partition),
            ids_text(part.origin),
            ids_text(part.replicas),
            ids_text(part.target),
            "under way" if part.is_under_way else "waits",
            f"{size_text(part.done_bytes)} of {size_text(part.total_bytes)}",
        )
        for part in tracker.parts
    ]
    out.table("", ("partition", "before", "now", "in the end", "state", "copied"), rows)
    click.echo(line(tracker))


async def watch(client: AsyncClient, out: Output, *, timeout_s: float, is_requested: bool = False) -> None:
    """Until nothing is under way any more. `is_requested`: this command has requested moves, which may be done already."""
    tracker = Tracker()
    if sys.stdout.isatty() and not out.as_json:
        await _watch_live(client, tracker, timeout_s)
        click.echo(_conclusion(tracker, is_requested=is_requested))
        return
    last = ""
    while True:
        tracker.take(await sample(client, timeout_s), client.now())
        if line(tracker) != last or out.as_json:
            last = line(tracker)
            if tracker.parts:
                out.value(tracker.value(), last)
        if not tracker.parts:
            break
        await asyncio.sleep(SAMPLE_S)
    out.value(tracker.value(), _conclusion(tracker, is_requested=is_requested))


def _conclusion(tracker: Tracker, *, is_requested: bool) -> str:
    return "all reassignments are done" if tracker.totals or is_requested else "no reassignment is in progress"


async def _watch_live(client: AsyncClient, tracker: Tracker, timeout_s: float) -> None:
    from rich.live import Live

    with Live(refresh_per_second=4) as live:
        while True:
            tracker.take(await sample(client, timeout_s), client.now())
            live.update(_view(tracker))
            if not tracker.parts:
                break
            await asyncio.sleep(SAMPLE_S)


def _view(tracker: Tracker) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    active = [part for part in tracker.parts if part.is_under_way]
    for part in active[:MAX_SHOWN]:
        total = max(part.total_bytes, 1)
        table.add_row(
            Text(str(part.partition)),
            Text(f"{','.join(map(str, part.origin))} → {','.join(map(str, part.target))}"),
            ProgressBar(total=total, completed=part.done_bytes if part.total_bytes else 0, width=24),
            Text(f"{size_text(part.done_bytes)} of {size_text(part.total_bytes)}"),
        )
    whole = max(tracker.total_bytes, 1)
    done = tracker.done_bytes if tracker.total_bytes else 0
    return Group(table, ProgressBar(total=whole, completed=done, width=60), Text(line(tracker)))
