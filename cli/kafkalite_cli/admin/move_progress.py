"""Progress of reassignments: partitions, bytes, rate and time left; a live view on a terminal, lines in a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from kafkalite.client.admin.moves import MIN_WINDOW_S, Part, Tracker, part_of
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.wording import number_of
from kafkalite_cli.admin.move_requests import moves_in_progress
from kafkalite_cli.output import Output, ids_text, size_text

SAMPLE_S = 0.5
#: How often the replicas are read at the end, before they count as others than those requested: some seconds.
_LOOKS = 6
#: Partitions shown one by one.
MAX_SHOWN = 12


class MovesEnded(KafkaliteError):
    """Moves were cancelled or replaced before they were done."""


def named(absent: Sequence[BrokerId]) -> str:
    """Brokers that take over replicas, and are not alive: "broker 4, which is not alive"."""
    names = ids_text(absent)
    return f"broker {names}, which is not alive" if len(absent) == 1 else f"brokers {names}, which are not alive"


def line(tracker: Tracker, absent: Sequence[BrokerId] = ()) -> str:
    """For people. `absent`: see `absent_of`."""
    under_way = sum(part.is_under_way for part in tracker.parts)
    text = f"{tracker.finished} of {number_of(len(tracker.totals), 'partition')} done, {under_way} under way"
    if tracker.total_bytes:
        share = 100 * tracker.done_bytes // tracker.total_bytes
        text += f", {size_text(tracker.done_bytes)} of {size_text(tracker.total_bytes)} ({share} %)"
    if tracker.rate > 0:
        text += f", {size_text(int(tracker.rate))}/s"
    if tracker.eta_s is not None and tracker.parts:
        text += f", about {duration(tracker.eta_s)} left"
    if absent:
        text += f"; waits for {named(absent)}"
    return text


def duration(seconds: float) -> str:
    """75 -> 1 min 15 s."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


async def sample(client: AsyncClient) -> list[Part]:
    """What is under way now, measured on every node that answers."""
    found = await moves_in_progress(client)
    if not found:
        return []
    await client.metadata(())
    topics = sorted({each.topic for each in found})
    held: dict[tuple[TopicPartition, BrokerId], int] = {}
    for node, reported in (await client.describe_replicas(topics, timeout_s=min(client.timeout_s, 5.0))).items():
        if not isinstance(reported, KafkaliteError):
            held |= {(TopicPartition(r.topic, r.partition), node): r.size_bytes for r in reported.replicas}
    return [part_of(each, held) for each in found]


def absent_of(client: AsyncClient, parts: Sequence[Part]) -> list[BrokerId]:
    """The brokers that are not alive, of those that are to get replicas: such a move ends when they return, or is cancelled."""
    return sorted({BrokerId(each) for part in parts for each in part.target} - client.view.brokers.keys())


async def show(client: AsyncClient, out: Output) -> None:
    """Two samples, for a rate; then a table."""
    tracker = Tracker()
    tracker.take(await sample(client), client.now())
    if tracker.parts:
        await asyncio.sleep(MIN_WINDOW_S)
        tracker.take(await sample(client), client.now())
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
        absent = absent_of(client, tracker.parts)
        out.value({**tracker.value(), "waits_for": absent, "reassignments": parts})
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
    out.table(("partition", "before", "now", "in the end", "state", "copied"), rows)
    click.echo(line(tracker, absent_of(client, tracker.parts)))


async def watch(
    client: AsyncClient, out: Output, *, wanted: Mapping[TopicPartition, Sequence[int]] | None = None
) -> None:
    """Until nothing is under way any more.

    Args:
        wanted: the replicas that this command has requested. The moves may be done already. None: what was seen to be requested.

    Raises:
        MovesEnded: partitions have other replicas in the end. ApiError, RpcError.
    """
    tracker = Tracker()
    if sys.stdout.isatty() and not out.as_json:
        await _watch_live(client, tracker)
    else:
        await _watch_lines(client, tracker, out)
    if requested := wanted or tracker.wanted:
        await _require(client, requested)
    has_moved = bool(tracker.totals or wanted)
    out.value(tracker.value(), "all reassignments are done" if has_moved else "no reassignment is in progress")


async def _watch_lines(client: AsyncClient, tracker: Tracker, out: Output) -> None:
    last = ""
    while True:
        tracker.take(await sample(client), client.now())
        text = line(tracker, absent_of(client, tracker.parts))
        if text != last or out.as_json:
            last = text
            if tracker.parts:
                out.value(tracker.value(), last)
        if not tracker.parts:
            return
        await asyncio.sleep(SAMPLE_S)


async def _require(client: AsyncClient, wanted: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Raises MovesEnded: partitions that there still are do not have these replicas. A node may hear of the end of a move a moment later."""
    for attempts in range(1, _LOOKS + 1):
        topics = (await client.metadata({each.topic for each in wanted})).topics
        found = {TopicPartition(t.topic, each.partition): each.replicas for t in topics for each in t.partitions}
        others = [each for each in sorted(wanted) if each in found and tuple(found[each]) != tuple(wanted[each])]
        if not others:
            return
        await asyncio.sleep(client.backoff.pause_s(attempts))
    count, first = f"{len(others)} of {number_of(len(wanted), 'partition')}", others[0]
    has = f"{first} has {ids_text(found[first])} and not {ids_text(wanted[first])}"
    raise MovesEnded(f"{count} did not get the requested replicas: {has}; the moves were cancelled or replaced")


async def _watch_live(client: AsyncClient, tracker: Tracker) -> None:
    from rich.live import Live

    with Live(refresh_per_second=4) as live:
        while True:
            tracker.take(await sample(client), client.now())
            live.update(_view(tracker, absent_of(client, tracker.parts)))
            if not tracker.parts:
                break
            await asyncio.sleep(SAMPLE_S)


def _view(tracker: Tracker, absent: Sequence[BrokerId]) -> Any:
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
    return Group(table, ProgressBar(total=whole, completed=done, width=60), Text(line(tracker, absent)))
