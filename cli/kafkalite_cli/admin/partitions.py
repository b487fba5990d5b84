"""`kafkalite admin add-partitions | remove-partitions | elect`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from kafkalite.client.admin import partitions
from kafkalite.client.admin.refusals import refuse
from kafkalite.errors import ApiError, ErrorCode, api_error, error_code
from kafkalite.extension.messages.topics import (
    RemovePartitionsRequest,
    RemovePartitionsResponse,
)
from kafkalite.rpc.answers import RpcError
from kafkalite.wording import number_of
from kafkalite_cli.admin.losses import counted, record_counts, report_counts
from kafkalite_cli.admin.topics import wait_until_spread
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import confirm
from kafkalite_cli.parameters import MAX_ID, Whole, parse_brokers, parse_partition, yes_option

_total_option = click.option(
    "--total", type=Whole(1), help="Number of partitions that the topic has then: such a command may be repeated."
)


@click.command("add-partitions")
@click.argument("topic")
@click.option("--count", type=Whole(1), help="Number of partitions to add.")
@_total_option
@click.option("--assignment", metavar='"1,2;2,3"', help="Replicas of each new one, preferred leader first.")
@client_options
async def add_partitions(
    cli: Invocation, topic: str, count: int | None, total: int | None, assignment: str | None
) -> None:
    """Add partitions to a topic; keyed records may go elsewhere from then on.

    Examples:

    \b
      kafkalite admin add-partitions flights --count 12
      kafkalite admin add-partitions flights --total 18
    """
    if [count, total, assignment].count(None) != 2:
        raise click.UsageError("give one of --count, --total and --assignment")
    given = () if assignment is None else tuple(parse_brokers(each, "--assignment") for each in assignment.split(";"))

    async with cli.connect() as client:
        have = await partitions.partition_count(client, topic)
        wanted = have + (len(given) if count is None else count) if total is None else total
        if wanted > MAX_ID:
            raise click.UsageError(f"--count: {topic} has {number_of(have, 'partition')}, and {wanted:,} are too many")
        reported = {"topic": topic, "added": wanted - have, "partitions": wanted}
        if wanted == have:
            cli.out.value(reported, f"{topic} has {number_of(have, 'partition')} already")
            return
        with _repeated_by(topic, "add-partitions", wanted):
            await partitions.add_partitions(client, topic, wanted, given)
        await wait_until_spread(client, topic, wanted)  # the next command may ask any node
        cli.out.value(
            reported,
            f"added {number_of(wanted - have, 'partition')} to {topic}, which has {wanted} now",
        )


@click.command("remove-partitions")
@click.argument("topic")
@click.option("--count", type=Whole(1), help="Number of partitions to remove, from the end.")
@_total_option
@click.option(
    "--drain",
    is_flag=True,
    help="Accept no more records; remove the partitions when all groups have read them, or retention has emptied them.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; nothing is removed.")
@yes_option
@client_options
async def remove_partitions(
    cli: Invocation, topic: str, count: int | None, total: int | None, *, drain: bool, dry_run: bool, yes: bool
) -> None:
    """Remove a topic's last partitions with their records. Asks on a terminal; a script needs --yes (not with --drain).

    Examples:

    \b
      kafkalite admin remove-partitions flights --count 2 --drain
      kafkalite admin remove-partitions flights --total 6 --yes
    """
    if (count is None) == (total is None):
        raise click.UsageError("give one of --count and --total")

    async with cli.connect() as client:
        have = await partitions.partition_count(client, topic)
        keep = total if total is not None else have - (count or 0)
        if keep == have:
            reported = {"topic": topic, "removed": [], "done": True}
            cli.out.value(reported, f"{topic} has {number_of(have, 'partition')} already")
            return
        if dry_run or not drain:
            found = await record_counts(client, topic, range(max(0, keep), have))
            if dry_run:
                report_counts(found, cli.out)
                return
            confirm(f"Remove {counted(found)} of {topic}?", yes=yes)
        request = RemovePartitionsRequest(topic, keep, drain, int(cli.timeout_s * 1000), before=have)
        with _repeated_by(topic, "remove-partitions", keep):
            answer = await client.request(request, RemovePartitionsResponse, timeout_s=cli.timeout_s + 5)
            refuse(answer.error, f"{topic}: {answer.message}")
        reported = {"topic": topic, "removed": list(answer.partitions), "done": answer.is_done}
        names = ", ".join(f"{topic}-{number}" for number in answer.partitions)
        if answer.is_done:
            await wait_until_spread(client, topic, keep)
            text = f"removed {names}"
        elif drain:
            text = f"draining {names}: no more records are accepted; the partitions are removed when they are empty"
        else:
            text = f"removing {names}: continues in the background (a dead replica must return first)"
        cli.out.value(reported, text)


@contextlib.contextmanager
def _repeated_by(topic: str, verb: str, total: int) -> Iterator[None]:
    """An error after which nobody knows whether it was done names the command that may follow."""
    hint = f"the change may have been made; `kafkalite admin {verb} {topic} --total {total}` repeats it without harm"
    try:
        yield
    except RpcError as error:
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, f"{error}; {hint}") from None
    except ApiError as error:
        if error.code is not ErrorCode.REQUEST_TIMED_OUT:
            raise
        raise api_error(error.code, f"{error}; {hint}") from None


@click.command("elect")
@click.option("--preferred", is_flag=True, help="Give leadership to the first replicas.")
@click.option("--unclean", is_flag=True, help="If no in-sync replica is alive, elect any replica. Loses records.")
@click.option("--all", "everything", is_flag=True, help="Every partition that needs an election.")
@click.argument("names", nargs=-1, metavar="[TOPIC-P]…")
@client_options
async def elect(cli: Invocation, *, preferred: bool, unclean: bool, everything: bool, names: tuple[str, ...]) -> int:
    """Hold elections; exits 1 if one of them could not be held, 2 if there is no such partition.

    Examples:

    \b
      kafkalite admin elect --preferred --all
      kafkalite admin elect --unclean flights-3
    """
    if preferred == unclean:
        raise click.UsageError("give one of --preferred and --unclean")
    if everything == bool(names):
        raise click.UsageError("give --all, or partitions as TOPIC-P")
    wanted = None if everything else [parse_partition(each) for each in names]

    async with cli.connect() as client:
        found = await partitions.elect_leaders(client, wanted, unclean=unclean)
    out = cli.out
    results = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "result": "elected" if not each.error else error_code(each.error).name,
            "message": each.message,
        }
        for each in found
    ]
    failed = [each for each in found if each.error not in (0, ErrorCode.ELECTION_NOT_NEEDED)]
    if out.as_json:
        out.value({"elections": results, "failed": len(failed)})
    elif not results:
        click.echo("every partition is led by its preferred leader" if preferred else "no partition needs an election")
    rows = [(f"{each['topic']}-{each['partition']}", each["result"], each["message"]) for each in results]
    if rows:
        out.table(("partition", "result", "detail"), rows)
    if failed:
        click.echo(f"kafkalite: {len(failed)} of {number_of(len(results), 'election')} could not be held", err=True)
    if any(each.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in failed):
        return 2
    return 1 if failed else 0
