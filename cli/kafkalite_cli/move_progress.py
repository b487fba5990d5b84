"""Progress of reassignments: partitions, bytes, rate and time left; a live view on a terminal, lines in a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.rpc.messages import ListReassignmentsRequest, ListReassignmentsResponse, Reassignment
from kafkalite_cli.output import Output, size_text
from kafkalite_cli.partitions import refuse

SAMPLE_S = 0.5
#: The rate is that of so many seconds.
RATE_WINDOW_S = 10.0
#: Partitions shown one by one.
MAX_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Part:
    """One partition: bytes that its new replicas will have, and have."""

    partition: TopicPartition
    total_bytes: int
    done_bytes: int
    is_under_way: bool
    replicas: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(slots=True)
class Tracker:
    """What was seen since the watch began. A partition that is not listed any more is done."""

    totals: dict[TopicPartition, int] = field(default_factory=dict)
    done: dict[TopicPartition, int] = field(default_factory=dict)
    history: list[tuple[float, int]] = field(default_factory=list)
    parts: Sequence[Part] = ()

    def take(self, parts: Sequence[Part], now: float) -> None:
        """A new sample; `now` in seconds."""
        self.parts = parts
        listed = {part.partition for part in parts}
        for part in parts:
            self.totals[part.partition] = max(part.total_bytes, self.totals.get(part.partition, 0))
            # A replica that starts anew does not take back what was shown.
            self.done[part.partition] = max(part.done_bytes, self.done.get(part.partition, 0))
        for partition in self.totals.keys() - listed:
            self.done[partition] = self.totals[partition]
        self.history.append((now, self.done_bytes))
        while len(self.history) > 2 and now - self.history[1][0] >= RATE_WINDOW_S:
            self.history.pop(0)

    @property
    def total_bytes(self) -> int:
        return sum(self.totals.values())

    @property
    def done_bytes(self) -> int:
        return sum(self.done.values())

    @property
    def finished(self) -> int:
        return len(self.totals) - len(self.parts)

    @property
    def rate(self) -> float:
        """Bytes/s."""
        (start, first), (end, last) = self.history[0], self.history[-1]
        return (last - first) / (end - start) if end > start else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds left; None while that cannot be told."""
        return (self.total_bytes - self.done_bytes) / self.rate if self.rate > 0 else None

    def value(self) -> dict[str, Any]:
        """For programs."""
        return {
            "partitions": len(self.totals),
            "finished": self.finished,
            "under_way": sum(part.is_under_way for part in self.parts),
            "bytes_total": self.total_bytes,
            "bytes_done": self.done_bytes,
            "bytes_per_s": round(self.rate),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
            "done": not self.parts,
        }

    def line(self) -> str:
        """For people."""
        under_way = sum(part.is_under_way for part in self.parts)
        text = f"{self.finished} of {len(self.totals)} partitions done, {under_way} under way"
        if self.total_bytes:
            share = 100 * self.done_bytes // self.total_bytes
            text += f", {size_text(self.done_bytes)} of {size_text(self.total_bytes)} ({share} %)"
        if self.rate > 0:
            text += f", {size_text(int(self.rate))}/s"
        if self.eta_s is not None and self.parts:
            text += f", about {duration(self.eta_s)} left"
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
    answer = await client.order(ListReassignmentsRequest(), ListReassignmentsResponse, timeout_s=timeout_s)
    refuse(answer.error, answer.message)
    if not answer.reassignments:
        return []
    await client.metadata((), timeout_s=timeout_s)
    topics = sorted({each.topic for each in answer.reassignments})
    held: dict[tuple[TopicPartition, BrokerId], int] = {}
    for node, told in (await client.describe_replicas(topics, timeout_s=min(timeout_s, 5.0))).items():
        if not isinstance(told, KafkaliteError):
            held |= {(TopicPartition(r.topic, r.partition), node): r.size_bytes for r in told.replicas}
    return [_part(each, held) for each in answer.reassignments]


def _part(move: Reassignment, held: dict[tuple[TopicPartition, BrokerId], int]) -> Part:
    partition = TopicPartition(move.topic, move.partition)
    full = held.get((partition, move.leader), 0)
    new = [broker for broker in move.target if broker not in move.origin]
    done = sum(full if broker in move.isr else min(held.get((partition, broker), 0), full) for broker in new)
    under_way = bool(move.step or move.dropping)
    return Part(partition, full * len(new), done, under_way, tuple(move.replicas), tuple(move.target))


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
                "under_way": part.is_under_way,
                "bytes_total": part.total_bytes,
                "bytes_done": part.done_bytes,
            }
            for part in tracker.parts
        ]
        out.value({**tracker.value(), "reassignments": parts}, "")
        return
    if not tracker.totals:
        click.echo("no reassignment is under way")
        return
    rows = [
        (
            str(part.partition),
            ",".join(map(str, part.replicas)),
            ",".join(map(str, part.target)),
            "under way" if part.is_under_way else "waits",
            f"{size_text(part.done_bytes)} of {size_text(part.total_bytes)}",
        )
        for part in tracker.parts
    ]
    out.table("", ("partition", "now", "in the end", "state", "copied"), rows)
    click.echo(tracker.line())


async def watch(client: AsyncClient, out: Output, *, timeout_s: float) -> None:
    """Until nothing is under way any more."""
    tracker = Tracker()
    if sys.stdout.isatty() and not out.as_json:
        await _watch_live(client, tracker, timeout_s)
        return
    last = ""
    while True:
        tracker.take(await sample(client, timeout_s), client.now())
        if tracker.line() != last or out.as_json:
            last = tracker.line()
            if tracker.parts:
                out.value(tracker.value(), last)
        if not tracker.parts:
            break
        await asyncio.sleep(SAMPLE_S)
    text = "all reassignments are done" if tracker.totals else "no reassignment is under way"
    out.value(tracker.value(), text)


async def _watch_live(client: AsyncClient, tracker: Tracker, timeout_s: float) -> None:
    from rich.live import Live

    with Live(refresh_per_second=4) as live:
        while True:
            tracker.take(await sample(client, timeout_s), client.now())
            live.update(_view(tracker))
            if not tracker.parts:
                break
            await asyncio.sleep(SAMPLE_S)
    click.echo("all reassignments are done" if tracker.totals else "no reassignment is under way")


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
            Text(f"{','.join(map(str, part.replicas))} → {','.join(map(str, part.target))}"),
            ProgressBar(total=total, completed=part.done_bytes if part.total_bytes else 0, width=24),
            Text(f"{size_text(part.done_bytes)} of {size_text(part.total_bytes)}"),
        )
    whole = max(tracker.total_bytes, 1)
    done = tracker.done_bytes if tracker.total_bytes else 0
    return Group(table, ProgressBar(total=whole, completed=done, width=60), Text(tracker.line()))
