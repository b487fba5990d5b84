"""`kafkalite admin disk …`: the log directories of every node, and taking one into service again."""

from __future__ import annotations

import dataclasses

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode, KafkaliteError, api_error
from kafkalite.model import BrokerId
from kafkalite.rpc.client import error_code
from kafkalite.rpc.messages import (
    DescribeDisksRequest,
    DescribeDisksResponse,
    DiskDescription,
    DiskOnlineRequest,
    DiskOnlineResponse,
)
from kafkalite_cli.output import Output, client_options, connect, run_async, size_text


@click.group()
def disk() -> None:
    """Disks (log directories) of the nodes."""


@disk.command("list")
@click.option("--broker", type=int, help="Only this node's.")
@client_options
def list_disks(broker: int | None, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Every disk: state, room, what is on it. Exits 1 if one is offline or full, or a node does not answer.

    Example:

    \b
      kafkalite admin disk list
    """
    out = Output(as_json)

    async def work() -> int:
        async with connect(bootstrap, timeout_s) as client:
            answers = await client.every_node(DescribeDisksRequest(), timeout_s=timeout_s)
            now_ms = client.clock.wall_ms()
        if broker is not None:
            answers = {node: answer for node, answer in answers.items() if node == broker}
        if not answers:
            raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, "no live broker" if broker is None else f"broker {broker}")
        disks: list[tuple[BrokerId, DiskDescription]] = []
        unreachable: dict[BrokerId, str] = {}
        for node, answer in answers.items():
            if isinstance(answer, DescribeDisksResponse):
                disks += [(node, each) for each in answer.disks]
            else:
                unreachable[node] = str(answer)
        if as_json:
            told = [{"broker_id": node, **dataclasses.asdict(each)} for node, each in disks]
            failed = [{"broker_id": node, "error": text} for node, text in sorted(unreachable.items())]
            out.value({"disks": told, "unreachable": failed}, "")
        else:
            columns = ("broker", "directory", "state", "partitions", "size", "free", "of", "since", "why")
            out.table("", columns, [_row(node, each, now_ms) for node, each in disks])
            for node, text in sorted(unreachable.items()):
                click.echo(f"kafkalite: broker {node} did not answer: {text}", err=True)
        return 1 if unreachable or any(each.state != "online" for _, each in disks) else 0

    code = run_async(work())
    if code:
        raise click.exceptions.Exit(code)


def _row(node: BrokerId, each: DiskDescription, now_ms: int) -> tuple[object, ...]:
    since = f"{max(0, now_ms - each.since_ms) // 1000} s" if each.since_ms else ""
    lost = f"; {each.offline_replicas} replicas offline" if each.offline_replicas else ""
    free, total = (size_text(n) if n >= 0 else "" for n in (each.free_bytes, each.total_bytes))
    size = size_text(each.size_bytes)
    return (node, each.path, each.state, each.partitions, size, free, total, since, f"{each.reason}{lost}")


@disk.command("online")
@click.argument("directory")
@click.option("--broker", type=int, required=True, help="The node whose disk it is.")
@client_options
def bring_online(directory: str, broker: int, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Take DIRECTORY into service again, after a swap or a repair; no restart is needed.

    Example:

    \b
      kafkalite admin disk online /disk2 --broker 3
    """

    async def work() -> None:
        async with connect(bootstrap, timeout_s) as client:
            answer = await _ask(client, BrokerId(broker), directory, timeout_s)
        if answer.error:
            code = error_code(answer.error)
            raise api_error(code, answer.message or code.name)
        told = {"broker_id": broker, "directory": directory, "online": True, "logs": answer.logs}
        Output(as_json).value(told, f"broker {broker}: {directory} is online, with {answer.logs} partitions in it")

    run_async(work())


async def _ask(client: AsyncClient, broker: BrokerId, directory: str, timeout_s: float) -> DiskOnlineResponse:
    answer = await client.ask_node(broker, DiskOnlineRequest(directory), timeout_s=timeout_s)
    if isinstance(answer, KafkaliteError):
        raise answer
    assert isinstance(answer, DiskOnlineResponse)
    return answer
