"""`kafkalite admin why TOPIC-P`: what is wrong with a partition, since when, what led there, and what to do."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import click

from kafkalite.client.admin.why import Diagnosis, ask, diagnose
from kafkalite_cli.admin.move_progress import duration
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.parameters import parse_partition


@click.command("why")
@click.argument("partition", metavar="TOPIC-P")
@click.argument("number", required=False, metavar="")
@client_options
async def why(cli: Invocation, partition: str, number: str | None) -> int:
    """What is wrong with a partition, since when, what led there, and what to do; exits 1 if anything is.

    TOPIC P, in two words, works, too.

    Every node returns its last 24 events of each partition; events from before its restart are marked.

    Examples:

    \b
      kafkalite admin why flights-3
      kafkalite admin why flights-3 --json | jq .findings
    """
    key = parse_partition(partition if number is None else f"{partition}-{number}")

    async with cli.connect() as client:
        known = await ask(client, key)
        now_ms = client.clock.wall_ms()
    reported = diagnose(known)
    out = cli.out
    if out.as_json:
        unreachable = {str(node): text for node, text in sorted(known.unreachable.items())}
        out.value({**dataclasses.asdict(reported), "at_ms": now_ms, "unreachable": unreachable})
    else:
        _print(reported, now_ms)
    return 1 if reported.findings else 0


def _print(reported: Diagnosis, now_ms: int) -> None:
    leader = "nobody leads" if reported.leader < 0 else f"leader {reported.leader}"
    eligible = f", eligible {list(reported.elr)}" if reported.elr else ""
    click.echo(
        f"{reported.partition}: {leader}, epoch {reported.leader_epoch}, in sync {list(reported.isr)} of {list(reported.replicas)}{eligible}"
    )
    if not reported.findings:
        click.echo("nothing is wrong with it")
    for finding in reported.findings:
        since = f", for {duration(max(0, now_ms - finding.since_ms) / 1000)}" if finding.since_ms else ""
        click.echo(f"\n{finding.what}{since}: {finding.detail}")
        if finding.doing:
            click.echo(f"  the cluster: {finding.doing}")
        click.echo(f"  you: {finding.do}")
    if reported.progress:
        click.echo("\nprogress of the replicas")
    for line in reported.progress:
        click.echo(f"  {line}")
    click.echo("\nhistory")
    for node, event in reported.events:
        about = "" if event.subject == str(reported.partition) or not event.subject else f" broker {event.subject}"
        text = f"{event.what}{about}: {event.detail}".rstrip(": ")
        earlier = " (before its restart)" if event.is_earlier else ""
        click.echo(f"  {_time(event.at_ms, now_ms)}Z  on {node}  {text}{earlier}")


def _time(at_ms: int, now_ms: int) -> str:
    """With the date if that is not today's."""
    at, now = (datetime.fromtimestamp(each / 1000, UTC) for each in (at_ms, now_ms))
    return at.strftime("%H:%M:%S.%f" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S.%f")[:-3]
