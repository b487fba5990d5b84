"""`kafkalite top`: the whole cluster in a terminal, live."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
import termios
import tty
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import click

from kafkalite.client.admin.cluster_status import problems_by_kind, status_value
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError, api_error, error_code
from kafkalite.extension.messages.watching import BrokerStatus, StatusRequest, StatusResponse
from kafkalite.model import BrokerId
from kafkalite.wording import number_of
from kafkalite_cli.admin.move_progress import duration
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import ids_text, run_async, size_text
from kafkalite_cli.parameters import Real, Whole

#: user: without internal topics.
STATES = ("user", "all", "troubled", "offline", "moving", "internal")
#: Lines of the screen that are not rows of partitions: the headings.
_MIN_ROWS = 5
#: Columns that go first where the terminal is narrow, and those whose cells may be cut there.
_LEAST_IMPORTANT = ("kafka", "epoch", "rack", "hw", "rate", "replicas", "disks")
_MAY_BE_CUT = ("disks", "partition", "moving", "rack")
#: Characters that "disks" needs at least; between columns.
_LEAST_DISKS = 24
_GAP = 2
#: Longer cells may be cut: a state can be an error.
_LONGEST_KEPT = 22
_STATE_TEXTS = {"": "all", "user": "without internal topics"}
_HELP = "q quit · ↑↓ or n/p page · s next state filter"


@click.command()
@click.option(
    "--once", is_flag=True, help="Print the present state and end; the default in a pipe, and with TERM=dumb."
)
@click.option("--interval", type=Real(0.2, 3600), default=2.0, show_default=True, metavar="SECONDS")
@click.option("--filter", "text", default="", help="Only partitions whose TOPIC-P contains this.")
@click.option("--topic", default="", help="Only this topic's partitions.")
@click.option(
    "--state",
    type=click.Choice(STATES),
    help="Only partitions in this state [default: user, without internal topics; with --topic or --filter all].",
)
@click.option("--broker", type=Whole(0), help="Only partitions with a replica on this broker.")
@click.option(
    "--limit", type=click.IntRange(0, 200), help="Rows of partitions [default: the terminal's height, otherwise 50]."
)
@client_options
def top(
    cli: Invocation,
    *,
    once: bool,
    interval: float,
    text: str,
    topic: str,
    state: str | None,
    broker: int | None,
    limit: int | None,
) -> None:
    """Brokers, disks, problems, moves and partitions of the whole cluster, as they are now.

    Examples:

    \b
      kafkalite top                            live; q quits
      kafkalite top --state troubled           only what is offline or not all in sync
      kafkalite top --once --topic flights     one look, for a pipe
      kafkalite top --json | jq .problems
    """
    wanted = state or ("all" if text or topic else "user")
    request = StatusRequest(
        text=text,
        topic=topic,
        state="" if wanted == "all" else wanted,
        broker_id=BrokerId(-1 if broker is None else broker),
        limit=50 if limit is None else limit,
    )
    if (
        once
        or cli.out.as_json
        or not (sys.stdout.isatty() and sys.stdin.isatty())
        or os.environ.get("TERM") in ("dumb", "unknown")
    ):
        run_async(_once(cli, request))
    else:
        run_async(_until_sigterm(_live(cli, request, limit, interval)))


async def read_status(client: AsyncClient, request: StatusRequest) -> StatusResponse:
    """Ask any node. Raises ApiError, RpcError."""
    answer = await client.request(request, StatusResponse)
    if answer.error:
        code = error_code(answer.error)
        raise api_error(code, answer.message or code.name)
    return answer


async def _once(cli: Invocation, request: StatusRequest) -> None:
    async with cli.connect() as client:
        answer = await read_status(client, request)
    if cli.out.as_json:
        cli.out.value(status_value(answer))
        return
    click.echo(_headline(answer))
    for problem in _problem_lines(answer):
        click.echo(problem)
    for columns, rows in _tables(answer):
        if rows and sys.stdout.isatty():
            from rich.console import Console

            console = Console()
            console.print("", _grid(columns, rows, console.width))
        elif rows:
            click.echo("")
            cli.out.table(columns, rows)
    if len(answer.partitions) < answer.partitions_matched:
        click.echo(
            f"{len(answer.partitions)} of {number_of(answer.partitions_matched, 'partition')}; see --filter, --limit"
        )


def _headline(answer: StatusResponse) -> str:
    controller = "no controller" if answer.controller_id < 0 else f"controller {answer.controller_id}"
    alive = sum(not broker.error for broker in answer.brokers)
    return (
        f"cluster {answer.cluster_id}, {controller} (epoch {answer.controller_epoch}), {alive} of {len(answer.brokers)} "
        f"brokers answer, {number_of(answer.topics_total, 'topic')}, {number_of(answer.partitions_total, 'partition')}, "
        f"{answer.partitions_offline:,} offline, {answer.partitions_troubled:,} not all in sync, "
        f"{number_of(answer.moves_total, 'move')}"
    )


def _problem_lines(answer: StatusResponse) -> list[str]:
    lines: list[str] = []
    for problem in problems_by_kind(answer):
        since = f" for {duration((answer.at_ms - problem['since_ms']) / 1000)}" if problem["since_ms"] else ""
        more = f" (and {problem['total'] - 1:,} more)" if problem["total"] > 1 else ""
        lines.append(f"! {problem['what']}{since}: {problem['cases'][0]['detail']}{more}")
        lines.append(f"    {problem['do']}")
    return lines


def _tables(answer: StatusResponse) -> Iterator[tuple[tuple[str, ...], list[tuple[object, ...]]]]:
    yield (
        ("broker", "state", "kafka", "rack", "leads", "replicas", "not in sync", "disks"),
        [
            (
                b.broker_id,
                _broker_state(b, answer),
                b.kafka,
                b.rack or "",
                b.leaders,
                b.replicas,
                b.out_of_sync,
                ", ".join(
                    f"{d.state}{f', {size_text(d.free_bytes)} free' if d.free_bytes >= 0 else ''}: {d.path}"
                    for d in sorted(b.disks, key=lambda disk: disk.state == "online")
                ),
            )
            for b in answer.brokers
        ],
    )
    yield (
        ("moving", "now", "in the end", "state", "copied", "rate", "left"),
        [
            (
                f"{m.topic}-{m.partition}",
                ids_text(m.replicas),
                ids_text(m.target),
                "under way" if m.is_under_way else "waits",
                f"{size_text(m.done_bytes)} of {size_text(m.total_bytes)}",
                f"{size_text(m.bytes_per_s)}/s",
                duration(m.eta_s) if m.eta_s >= 0 else "",
            )
            for m in answer.moves
        ],
    )
    yield (
        ("partition", "leader", "epoch", "isr", "replicas", "hw", "leo", "lag", "size"),
        [
            (
                f"{p.topic}-{p.partition}",
                "none" if p.leader < 0 else p.leader,
                p.leader_epoch,
                ids_text(p.isr),
                ids_text(p.replicas),
                _count(p.high_watermark),
                _count(p.log_end_offset),
                _count(p.lag),
                size_text(p.size_bytes) if p.size_bytes >= 0 else "",
            )
            for p in answer.partitions
        ],
    )


def _broker_state(broker: BrokerStatus, answer: StatusResponse) -> str:
    """alive, controller or why it does not answer; and that it takes no new replicas."""
    state = broker.error or ("controller" if broker.broker_id == answer.controller_id else "alive")
    if broker.broker_state == "drained":
        return f"{state}, drained: may be stopped"
    return state if broker.broker_state == "active" else f"{state}, {broker.broker_state}"


def _count(value: int) -> str:
    return "" if value < 0 else str(value)


# --- live --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _keys() -> Iterator[asyncio.Queue[str]]:
    """The keys that are pressed, without echo; the terminal is as it was afterwards."""
    queue: asyncio.Queue[str] = asyncio.Queue(maxsize=64)
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    loop = asyncio.get_running_loop()

    def read() -> None:
        pressed = os.read(file, 16)
        if pressed and not queue.full():
            queue.put_nowait(pressed.decode(errors="replace"))
        elif not pressed:
            loop.remove_reader(file)

    tty.setcbreak(file)
    loop.add_reader(file, read)
    try:
        yield queue
    finally:
        loop.remove_reader(file)
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def turn(request: StatusRequest, key: str, answer: StatusResponse | None, rows: int) -> StatusRequest | None:
    """What to ask after a key was pressed; None: the end."""
    if key in ("q", "Q", "\x03", "\x04"):
        return None
    matched = 0 if answer is None else answer.partitions_matched
    if key in ("n", " ", "\x1b[B", "\x1b[6~") and request.offset + rows < matched:
        return dataclasses.replace(request, offset=request.offset + rows)
    if key in ("p", "\x1b[A", "\x1b[5~"):
        return dataclasses.replace(request, offset=max(0, request.offset - rows))
    if key == "s":
        names = ["" if state == "all" else state for state in STATES]
        state = names[(names.index(request.state) + 1) % len(names)]
        return dataclasses.replace(request, state=state, offset=0)
    return request


async def _until_sigterm(work: Coroutine[Any, Any, None]) -> None:
    """SIGTERM ends it as Ctrl-C does: the terminal is as it was. Raises Exit."""
    task = asyncio.current_task()
    assert task is not None
    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        await work
    except asyncio.CancelledError:
        if not is_stopped:
            raise
        raise click.exceptions.Exit(128 + signal.SIGTERM) from None


async def _live(cli: Invocation, request: StatusRequest, limit: int | None, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    answer: StatusResponse | None = None
    error = ""
    async with cli.connect() as client:
        with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            asked: StatusRequest | None = request
            while asked is not None:
                request = asked
                rows = limit if limit is not None else max(_MIN_ROWS, console.height - _used(answer))
                request = dataclasses.replace(request, limit=max(rows, 1))
                try:
                    answer, error = await read_status(client, request), ""
                except KafkaliteError as failure:
                    if answer is None:
                        raise
                    error = str(failure)
                live.update(_screen(answer, request, error, console.width), refresh=True)
                try:
                    async with asyncio.timeout(interval):
                        asked = turn(request, await keys.get(), answer, rows)
                except TimeoutError:
                    pass


def _used(answer: StatusResponse | None) -> int:
    """Lines that are taken before the first row of partitions."""
    if answer is None:
        return 14
    moves = len(answer.moves) + 2 if answer.moves else 0
    return 9 + len(_problem_lines(answer)) + len(answer.brokers) + moves


def fitted(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> list[int]:
    """Indexes of the columns that a terminal of `width` characters has room for: the least important go first, and empty ones."""

    def taken(index: int) -> int:
        if columns[index] == "disks":  # may be cut
            return _LEAST_DISKS
        return max(len(columns[index]), *(len(str(row[index])) for row in rows)) + _GAP

    kept = [index for index in range(len(columns)) if any(str(row[index]) for row in rows)]
    for name in _LEAST_IMPORTANT:
        if sum(map(taken, kept)) <= width:
            break
        kept = [index for index in kept if columns[index] != name]
    return kept


def _grid(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> Any:
    """A table without frames. What is too long for its column ends with an ellipsis; brokers' numbers and states are never cut for paths of disks."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    kept = fitted(columns, rows, width)
    for index in kept:
        cells = [str(row[index]) for row in rows]
        is_number = all(cell.isdigit() or not cell for cell in cells)
        least = (
            None if columns[index] in _MAY_BE_CUT else min(_LONGEST_KEPT, max(len(columns[index]), *map(len, cells)))
        )
        table.add_column(
            columns[index], justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis", min_width=least
        )
    for row in rows:
        table.add_row(*(Text(str(row[index])) for index in kept))
    return table


def _screen(answer: StatusResponse, request: StatusRequest, error: str, width: int) -> Any:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(_headline(answer), style="bold")]
    if error:
        parts.append(Text(f"no answer: {error}", style="bold red"))
    parts += [
        Text(line, style="red" if line.startswith("!") else "yellow", no_wrap=True, overflow="ellipsis")
        for line in _problem_lines(answer)
    ]
    for columns, rows in _tables(answer):
        if not rows:
            continue
        parts += [Text(""), _grid(columns, rows, width)]
    first = request.offset + 1 if answer.partitions else 0
    last = request.offset + len(answer.partitions)
    shown = f"{first:,}–{last:,} of {answer.partitions_matched:,} partitions ({_STATE_TEXTS.get(request.state, request.state)}) · {_HELP}"
    return Group(*parts, Text(shown, style="dim"))
