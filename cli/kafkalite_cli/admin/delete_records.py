"""`kafkalite admin delete-records`: a topic begins later."""

from __future__ import annotations

from collections.abc import Mapping

import click

from kafkalite.client.admin.records import delete_before
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import TopicPartition
from kafkalite.wording import number_of
from kafkalite_cli.admin.refusals import raise_for_topic
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import Output, confirm
from kafkalite_cli.parameters import Whole, yes_option
from kafkalite_cli.records.positions import parse_start, resolve


@click.command("delete-records")
@click.argument("topic")
@click.option(
    "--before",
    required=True,
    metavar="WHERE",
    help="An OFFSET (with --partition), a time (2026-11-22T10:00:00Z), a time ago (-7d), or end: all records.",
)
@click.option("--partition", type=Whole(0), help="Only this one [default: all].")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; nothing is deleted.")
@yes_option
@client_options
async def delete_records(
    cli: Invocation, topic: str, before: str, partition: int | None, *, dry_run: bool, yes: bool
) -> int:
    """Delete the oldest records of a topic, up to an offset or a time. They cannot be brought back.

    Examples:

    \b
      kafkalite admin delete-records flights --before -7d
      kafkalite admin delete-records flights --partition 0 --before 1000
    """
    where = parse_start(before, "--before")
    if where == "earliest":
        raise click.BadParameter("nothing is before the beginning", param_hint="--before")
    if isinstance(where, int) and partition is None:
        raise click.UsageError("--before OFFSET needs --partition: each partition counts its own offsets")

    async with cli.connect() as client:
        metadata = (await client.metadata([topic])).topics[0]
        raise_for_topic(metadata)
        leaders = {
            TopicPartition(topic, each.partition): each.leader
            for each in metadata.partitions
            if partition in (None, each.partition)
        }
        if not leaders:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}")
        keys = sorted(leaders)
        begins = await client.beginning_offsets(keys)
        ends = await client.end_offsets(keys)
        found = await resolve(client, keys, where)
        if isinstance(where, int) and where > (end := ends[keys[0]]):
            reason = f"{keys[0]} ends at {end}, before {where}"
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        target = {key: at if isinstance(at := found[key], int) else ends[key] for key in keys}
        count = {key: max(0, min(target[key], ends[key]) - begins[key]) for key in keys}
        wanted = {key: at for key, at in target.items() if count[key] or isinstance(where, int)}
        rows = {key: (begins[key], target[key], count[key]) for key in keys}
        if dry_run or not wanted:
            _report(cli.out, rows, {}, is_done=False)
            return 0
        confirm(f"Delete {number_of(sum(count.values()), 'record')} of {topic}?", yes=yes)
        errors = await delete_before(client, wanted, leaders)
        _report(cli.out, rows, errors, is_done=True)
        return 1 if errors else 0


def _report(
    out: Output,
    rows: Mapping[TopicPartition, tuple[int, int, int]],
    errors: Mapping[TopicPartition, str],
    *,
    is_done: bool,
) -> None:
    if out.as_json:
        value = [
            {
                "topic": k.topic,
                "partition": k.partition,
                "begins": b,
                "before": t,
                "records": n,
                "error": errors.get(k, ""),
            }
            for k, (b, t, n) in rows.items()
        ]
        out.value({"deleted": is_done, "partitions": value})
        return
    columns = (
        ("partition", "begins at", "before", "records", "error")
        if errors
        else ("partition", "begins at", "before", "records")
    )
    out.table(columns, [(str(k), *each, *([errors.get(k, "")] if errors else [])) for k, each in rows.items()])
    total = sum(count for key, (_, _, count) in rows.items() if key not in errors)
    if is_done:
        click.echo(f"\ndeleted {number_of(total, 'record')}")
    else:
        click.echo(f"\n{number_of(total, 'record')} would be deleted")
