"""`kafkalite admin balance status | plan | run | why`."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import click

from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.balancing import DescribeBalanceResponse, PlannedMove
from kafkalite.extension.messages.reassignment import WantedReassignment
from kafkalite.extension.messages.watching import HistoryRequest, HistoryResponse
from kafkalite.model import TopicPartition
from kafkalite.wording import number_of
from kafkalite_cli.admin.broker import COLUMNS, balance_of, broker_rows
from kafkalite_cli.admin.move_progress import watch
from kafkalite_cli.admin.move_requests import HOW_TO_RETURN, request_moves
from kafkalite_cli.admin.refusals import known_partitions, refuse_forbidden
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.output import Output, confirm, ids_text, run_watch, size_text
from kafkalite_cli.parameters import Bytes, Whole, parse_partition, yes_option
from kafkalite_cli.zookeeper_note import note_zookeeper

#: Moves that a plan shows and `run` orders unless --moves says something else.
_MOVES = 100
#: What the controller's balancer, and the one of a node's disks, record begins with this.
_EVENTS = ("controller.balancer.", "balancer.")
#: The subject of all that it recorded.
_SUBJECT = "balancer"


@click.group("balance")
@group_options
def balance(bootstrap: str | None) -> None:
    """How even the load is; what would move, and why."""


@balance.command("status")
@client_options
async def status(cli: Invocation) -> None:
    """The share of each broker, and whether the balancer has something to do.

    Example:

    \b
      kafkalite admin balance status
    """
    async with cli.connect() as client:
        answer = await balance_of(client, refresh=True)
        await note_zookeeper(client, cli.out)
    out = cli.out
    if out.as_json:
        value = dataclasses.asdict(answer)
        del value["moves"], value["has_more"]
        out.value(value)
        return
    out.table(COLUMNS, broker_rows(answer.brokers))
    click.echo(f"\n{_headline(answer)}")
    for each in answer.stuck:
        click.echo(f"waits: {each.topic}-{each.partition}: {each.reason}")


def _headline(answer: DescribeBalanceResponse) -> str:
    even = "every broker is" if answer.is_even else "some broker is not"
    count = answer.under_way
    moving = f"; {count} {'partition is' if count == 1 else 'partitions are'} being moved" if count else ""
    hint = "" if answer.is_even or answer.mode == "on" else "; `kafkalite admin balance plan` shows what would move"
    return f"balancer.mode={answer.mode}: {even} within {answer.tolerance_percent} % of the mean{moving}{hint}"


@balance.command("plan")
@click.option("--moves", type=Whole(1, 1_000), default=_MOVES, show_default=True, help="Most partitions to move.")
@client_options
async def plan(cli: Invocation, moves: int) -> None:
    """What the balancer would move, and why; nothing is moved.

    Example:

    \b
      kafkalite admin balance plan
    """
    async with cli.connect() as client:
        answer = await balance_of(client, moves=moves, refresh=True)
        await note_zookeeper(client, cli.out)
    _show_plan(answer, cli.out)


def _show_plan(answer: DescribeBalanceResponse, out: Output) -> None:
    if out.as_json:
        value = dataclasses.asdict(answer)
        out.value({"moves": value["moves"], "has_more": value["has_more"], "stuck": value["stuck"]})
        return
    if not answer.moves:
        click.echo("nothing has to move")
    else:
        rows = [
            (
                f"{m.topic}-{m.partition}",
                ids_text(m.replicas),
                ids_text(m.target),
                size_text(m.copied_bytes),
                m.goal,
                m.reason,
            )
            for m in answer.moves
        ]
        out.table(("partition", "now", "then", "to copy", "goal", "why"), rows)
        total = size_text(sum(each.copied_bytes for each in answer.moves))
        count = len(answer.moves)
        more = "; there is more to move after these (--moves)" if answer.has_more else ""
        click.echo(f"\n{count} {'partition changes' if count == 1 else 'partitions change'}, {total} are copied{more}")
    for each in answer.stuck:
        click.echo(f"cannot move: {each.topic}-{each.partition}: {each.reason}")


@balance.command("run")
@click.option("--moves", type=Whole(1, 1_000), default=_MOVES, show_default=True, help="Most partitions to move.")
@click.option(
    "--throttle",
    type=Bytes(),
    metavar="BYTES_PER_S",
    help="Limit per leader [default: balancer.throttle.bytes.per.second].",
)
@click.option(
    "--max-partitions", type=Whole(1), metavar="P", help="Partitions moved at once [default: balancer.max.moves]."
)
@click.option("--dry-run", is_flag=True, help="Show the plan only.")
@yes_option
@click.option("--no-watch", is_flag=True, help="Return at once; the moves go on.")
@client_options
def run(
    cli: Invocation,
    moves: int,
    throttle: int | None,
    max_partitions: int | None,
    *,
    dry_run: bool,
    yes: bool,
    no_watch: bool,
) -> None:
    """Make the load even once, whatever balancer.mode says: the moves of `balance plan`, as one request.

    Example:

    \b
      kafkalite admin balance run --throttle 50MB
    """
    out = cli.out

    async def work() -> None:
        async with cli.connect() as client:
            answer = await balance_of(client, moves=moves, refresh=True)
            _show_plan(answer, out)
            if dry_run or not answer.moves:
                return
            confirm(f"Move {number_of(len(answer.moves), 'partition')}?", yes=yes)
            limits = (0, max_partitions or answer.max_moves, 0)
            wanted = tuple(_wanted(each, throttle or answer.throttle) for each in answer.moves)
            await request_moves(client, wanted, limits=limits)
            if not no_watch:
                targets = {TopicPartition(each.topic, each.partition): each.target for each in answer.moves}
                await watch(client, out, wanted=targets)

    run_watch(work(), HOW_TO_RETURN)


def _wanted(move: PlannedMove, throttle: int) -> WantedReassignment:
    return WantedReassignment(move.topic, move.partition, move.target, throttle)


@balance.command("why")
@click.argument("partition", required=False, metavar="[TOPIC-P]")
@client_options
async def why(cli: Invocation, partition: str | None) -> None:
    """Why the balancer moved a partition; without one, its last moves.

    The broker that is named was the controller, or moved the replica between its disks. Brokers keep the last 24 events of each partition,
    also over a restart.

    Examples:

    \b
      kafkalite admin balance why
      kafkalite admin balance why flights-3
    """
    key = None if partition is None else parse_partition(partition)
    subject = _SUBJECT if key is None else str(key)

    async with cli.connect() as client:
        answers = await client.every_node(HistoryRequest((subject,)), timeout_s=cli.timeout_s)
        refuse_forbidden(answers.values())
        found = sorted(
            (event.at_ms, node, event.what.rpartition(".")[2], event.detail)
            for node, answer in answers.items()
            if isinstance(answer, HistoryResponse)
            for event in answer.events
            if event.what.startswith(_EVENTS)
        )
        if key is not None and not found:  # of a topic that is deleted, something may be remembered
            await known_partitions(client, [key])
    out = cli.out
    if out.as_json:
        names = ("at_ms", "broker_id", "goal", "detail")
        out.value({"events": [dict(zip(names, each, strict=True)) for each in found]})
        return
    if not found:
        click.echo("no broker remembers a move of the balancer")
    for at_ms, node, goal, detail in found:
        at = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        click.echo(f"{at}Z  {goal}  {detail}  (broker {node})")
    for node, answer in sorted(answers.items()):
        if isinstance(answer, KafkaliteError):
            click.echo(f"kafkalite: broker {node} did not answer: {answer}", err=True)
