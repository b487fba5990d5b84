"""`kafkalite admin disk strays …`: directories that the nodes have set aside on their disks."""

from __future__ import annotations

import dataclasses

import click

from kafkalite.client.admin.refusals import refuse
from kafkalite.extension.messages.disks import (
    AlterStrayRequest,
    AlterStrayResponse,
    StrayDescription,
)
from kafkalite.model import BrokerId
from kafkalite_cli.admin.node_answers import answer_of, disks_of, entries_of, report_unreachable
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import confirm, size_text
from kafkalite_cli.parameters import Whole, yes_option


@click.group()
def strays() -> None:
    """Directories of replicas that were set aside (-stray), and may hold the last copy of records."""


@strays.command("list")
@click.option("--broker", type=Whole(0), help="Only this node's.")
@client_options
async def list_strays(cli: Invocation, broker: int | None) -> int:
    """Every directory that was set aside, with its partition, its size, and whether its records are elsewhere. Exits 1 if a node does not
    answer.

    Example:

    \b
      kafkalite admin disk strays list
    """
    out = cli.out
    async with cli.connect() as client:
        answers = await disks_of(client, broker)
        now_ms = client.clock.wall_ms()
    found = entries_of(answers, lambda answer: answer.strays)
    unreachable = report_unreachable(answers)
    if out.as_json:
        listed = [{"broker_id": node, **dataclasses.asdict(each)} for node, each in found]
        out.value({"strays": listed, "unreachable": unreachable})
    elif not found and not unreachable:
        click.echo("nothing was set aside")
    else:
        columns = ("broker", "path", "partition", "size", "since", "removal")
        out.table(columns, [_row(node, each, now_ms) for node, each in found])
    return 1 if unreachable else 0


def _row(node: BrokerId, each: StrayDescription, now_ms: int) -> tuple[object, ...]:
    since = f"{max(0, now_ms - each.since_ms) // 1000} s"
    removal = "after the delay: in sync elsewhere" if each.is_elsewhere else "only on request: no other copy is known"
    return node, each.path, f"{each.topic}-{each.partition}", size_text(each.size_bytes), since, removal


@strays.command("remove")
@click.argument("path")
@click.option("--broker", type=Whole(0), required=True, help="The node that set it aside.")
@yes_option
@client_options
async def remove_stray(cli: Invocation, path: str, broker: int, *, yes: bool) -> None:
    """Remove PATH, which was set aside, for good. If it is the last copy of its records, they are lost. Asks on a terminal.

    Example:

    \b
      kafkalite admin disk strays remove /disk2/orders-3.0000019f0b7c2a110000000000000001-stray --broker 3 --yes
    """
    confirm(f"Remove {path} of broker {broker}, even if no other copy of its records is known?", yes=yes)
    await _alter(cli, path, broker, "remove", "is removed")


@strays.command("restore")
@click.argument("path")
@click.option("--broker", type=Whole(0), required=True, help="The node that set it aside.")
@client_options
async def restore_stray(cli: Invocation, path: str, broker: int) -> None:
    """Make PATH, which was set aside, the log of its replica again, if that is offline.

    If no other replica is in sync, this one leads with the records in PATH, and records that were written after it was set
    aside are lost. Otherwise it copies missing records from the leader.

    Example:

    \b
      kafkalite admin disk strays restore /disk2/orders-3.0000019f0b7c2a110000000000000001-stray --broker 3
    """
    await _alter(cli, path, broker, "restore", "is the log of its replica again")


async def _alter(cli: Invocation, path: str, broker: int, action: str, done: str) -> None:
    async with cli.connect() as client:
        request = AlterStrayRequest(path, action)
        answer = await answer_of(client, broker, request, AlterStrayResponse)
    refuse(answer.error, answer.message)
    cli.out.value({"broker_id": broker, "path": path, "action": action}, f"broker {broker}: {path} {done}")
