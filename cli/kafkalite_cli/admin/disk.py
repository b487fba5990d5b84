"""`kafkalite admin disk …`: the log directories of every node, and taking one into service again."""

from __future__ import annotations

import asyncio
import dataclasses
from os.path import normpath

import click

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.disks import (
    DescribeDisksRequest,
    DescribeDisksResponse,
    DiskDescription,
    DiskMove,
    DiskOnlineRequest,
    DiskOnlineResponse,
    MoveReplicasRequest,
    MoveReplicasResponse,
    RequestedDiskMove,
)
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.wording import number_of
from kafkalite_cli.admin.node_answers import answer_of, disks_of, entries_of, report_unreachable
from kafkalite_cli.admin.refusals import known_partitions, refuse_unknown_broker
from kafkalite_cli.admin.strays import strays
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import ids_text, size_text
from kafkalite_cli.parameters import Bytes, Whole, parse_partition

#: How often `disk move --watch` asks.
_WATCH_S = 1.0


@click.group()
def disk() -> None:
    """Disks (log directories) of the nodes."""


disk.add_command(strays)


@disk.command("list")
@click.option("--broker", type=Whole(0), help="Only this node's.")
@client_options
async def list_disks(cli: Invocation, broker: int | None) -> int:
    """Every disk: state, room, what is on it. Exits 1 if one is offline or full, or a node does not answer.

    Example:

    \b
      kafkalite admin disk list
    """
    out = cli.out
    async with cli.connect() as client:
        answers = await disks_of(client, broker)
        now_ms = client.clock.wall_ms()
    disks = entries_of(answers, lambda answer: answer.disks)
    columns = ("broker", "directory", "state", "partitions", "size", "free", "of", "since", "why")
    out.table(columns, [_row(node, each, now_ms) for node, each in disks])
    unreachable = report_unreachable(answers)
    if out.as_json:
        reported = [{"broker_id": node, **dataclasses.asdict(each)} for node, each in disks]
        out.value({"disks": reported, "unreachable": unreachable})
    return 1 if unreachable or any(each.state != "online" for _, each in disks) else 0


def _row(node: BrokerId, each: DiskDescription, now_ms: int) -> tuple[object, ...]:
    since = f"{max(0, now_ms - each.since_ms) // 1000} s" if each.since_ms else ""
    lost = f"; {number_of(each.offline_replicas, 'replica')} offline" if each.offline_replicas else ""
    free, total = (size_text(n) if n >= 0 else "" for n in (each.free_bytes, each.total_bytes))
    size = size_text(each.size_bytes)
    aside = f"{each.strays} set aside hold {size_text(each.stray_bytes)}" if each.strays else ""
    why = "; ".join(part for part in (f"{each.reason}{lost}".removeprefix("; "), aside) if part)
    state = f"{each.state}, cordoned" if each.is_cordoned else each.state
    return (node, each.path, state, each.partitions, size, free, total, since, why)


@disk.command("online")
@click.argument("directory")
@click.option("--broker", type=Whole(0), required=True, help="The node of the disk.")
@client_options
async def bring_online(cli: Invocation, directory: str, broker: int) -> None:
    """Take DIRECTORY into service again, after a swap or a repair; no restart is needed.

    If it is in service, its offline replicas are opened again, with the records that are there now.

    Example:

    \b
      kafkalite admin disk online /disk2 --broker 3
    """
    async with cli.connect() as client:
        answer = await answer_of(client, broker, DiskOnlineRequest(directory), DiskOnlineResponse)
    refuse(answer.error, answer.message)
    reported = {"broker_id": broker, "directory": directory, "online": True, "logs": answer.logs}
    cli.out.value(reported, f"broker {broker}: {directory} is online, with {number_of(answer.logs, 'partition')} in it")


@disk.command("move")
@click.argument("partition", metavar="TOPIC-P")
@click.option("--broker", type=Whole(0), required=True, help="The node of the replica.")
@click.option("--to", "directory", required=True, help="Target directory (disk) on that node.")
@click.option("--throttle", type=Bytes(), metavar="BYTES_PER_S", help="Maximum rate of the copy.")
@click.option("--watch", "is_watched", is_flag=True, help="Wait until the move is complete.")
@client_options
async def move(
    cli: Invocation, partition: str, broker: int, directory: str, throttle: int | None, *, is_watched: bool
) -> int:
    """Move a replica to another disk of its node, while it is in use; survives a restart of the node.

    Examples:

    \b
      kafkalite admin disk move flights-0 --broker 1 --to /disks/b --watch
      kafkalite admin disk move flights-0 --broker 1 --to /disks/b --throttle 50MB
    """
    key = parse_partition(partition)
    out = cli.out
    async with cli.connect() as client:
        replicas = (await known_partitions(client, [key]))[key].replicas
        if broker not in replicas:
            await refuse_unknown_broker(client, broker)
            reason = f"{key} has no replica on broker {broker}: its replicas are on {ids_text(replicas)}"
            raise api_error(ErrorCode.INVALID_REQUEST, reason)
        order = MoveReplicasRequest((RequestedDiskMove(*key, directory, throttle or 0),))
        answer = await answer_of(client, broker, order, MoveReplicasResponse)
        refuse(answer.results[0].error, answer.results[0].message)
        found = await _move_of(client, BrokerId(broker), key)
        while is_watched and found is not None and found.state in ("waiting", "copying"):
            if not out.as_json:
                click.echo(_progress(found))
            await asyncio.sleep(_WATCH_S)
            found = await _move_of(client, BrokerId(broker), key)
    if found is None or not _is_same(found.target, directory):  # it was there already
        out.value({"partition": str(key), "state": "done"}, f"{key} is in {directory}")
        return 0
    out.value({"broker_id": broker, **dataclasses.asdict(found)}, _progress(found))
    return 1 if found.state == "failed" else 0


@disk.command("moves")
@click.option("--broker", type=Whole(0), help="Only this node's.")
@client_options
async def list_moves(cli: Invocation, broker: int | None) -> int:
    """Replicas on their way between disks, and the last ones that have arrived or failed. Exits 1 if a node does not answer.

    Examples:

    \b
      kafkalite admin disk moves
      kafkalite admin disk moves --broker 1 --json
    """
    out = cli.out
    async with cli.connect() as client:
        answers = await disks_of(client, broker)
    moves = entries_of(answers, lambda answer: answer.moves)
    unreachable = report_unreachable(answers)
    if out.as_json:
        listed = [{"broker_id": node, **dataclasses.asdict(each)} for node, each in moves]
        out.value({"moves": listed, "unreachable": unreachable})
    elif not moves and not unreachable:
        click.echo("no replica moves between disks")
    else:
        rows = [
            (node, f"{each.topic}-{each.partition}", each.source, each.target, each.state,
             f"{size_text(each.copied_bytes)} of {size_text(each.size_bytes)}", each.lag, each.reason)
            for node, each in moves
        ]  # fmt: skip
        out.table(("broker", "partition", "from", "to", "state", "copied", "lag", "why"), rows)
    return 1 if unreachable else 0


async def _move_of(client: AsyncClient, broker: BrokerId, key: TopicPartition) -> DiskMove | None:
    """The partition's last move on the broker; None if there was none. Raises KafkaliteError."""
    answer = await answer_of(client, broker, DescribeDisksRequest(), DescribeDisksResponse)
    mine = [each for each in answer.moves if (each.topic, each.partition) == key]
    under_way = [each for each in mine if each.state in ("waiting", "copying")]
    return under_way[0] if under_way else mine[-1] if mine else None


def _is_same(path: str, typed: str) -> bool:
    """Completion in a shell adds a slash to a directory."""
    return normpath(path) == normpath(typed)


def _progress(move: DiskMove) -> str:
    name = f"{move.topic}-{move.partition}"
    if move.state == "done":
        return f"{name} is in {move.target}"
    if move.state == "failed":
        return f"{name} stays in {move.source}: {move.reason}"
    return (
        f"{name} -> {move.target}: {size_text(move.copied_bytes)} of {size_text(move.size_bytes)}, "
        f"{move.lag:,} offsets behind"
    )
