"""`kafkalite admin groups` and `kafkalite admin offsets`: consumer groups and what they have committed."""

from __future__ import annotations

import dataclasses

import click

from kafkalite.client.admin.groups import GroupDescription, GroupMember, Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.offset_reset import EARLIEST, LATEST, OFFSET, SHIFT, TIME, Reset, ends_of, new_offsets
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import LATEST_TIMESTAMP, TopicPartition
from kafkalite.rpc.answers import RpcError
from kafkalite.wording import number_of
from kafkalite_cli.admin.refusals import known_partitions
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.output import confirm
from kafkalite_cli.parameters import MAX_LONG, MOMENTS, At, Whole, is_whole, parse_moment, parse_partition, yes_option
from kafkalite_cli.visible import visible

_NOBODY = "Dead"


@click.group("groups")
@group_options
def groups(bootstrap: str | None) -> None:
    """Consumer groups: members, offsets, lag."""


@click.group("offsets")
@group_options
def offsets(bootstrap: str | None) -> None:
    """Committed offsets of a group, one partition at a time."""


@groups.command("list")
@client_options
async def list_groups(cli: Invocation) -> None:
    """Every group with its state and number of members.

    Example:

    \b
      kafkalite admin groups list
    """
    async with cli.connect() as client:
        found = await Groups(client).list()
    value = {"groups": [{**dataclasses.asdict(group), "coordinator": node} for node, group in found]}
    rows = [
        (group.group, group.state, group.members, group.group_type, group.protocol_type, node) for node, group in found
    ]
    cli.out.listing(value, ("group", "state", "members", "type", "protocol type", "coordinator"), rows)


@groups.command("describe")
@click.argument("group")
@client_options
async def describe(cli: Invocation, group: str) -> None:
    """A group's members, its offsets, and how far it is behind.

    Examples:

    \b
      kafkalite admin groups describe billing
      kafkalite admin groups describe billing --json | jq '[.offsets[].lag] | add'
    """
    async with cli.connect() as client:
        node, reported = await _existing(Groups(client), group)
        keys = [TopicPartition(each.topic, each.partition) for each in reported.offsets]
        ends = await ends_of(client, keys, LATEST_TIMESTAMP)
    owners: dict[tuple[str, int], list[str]] = {}
    for member in reported.members:
        for partition in member.partitions:
            owners.setdefault(partition, []).append(member.member_id)
    rows: list[dict[str, object]] = []
    for each in reported.offsets:
        end = ends.get(TopicPartition(each.topic, each.partition))
        held_by = ", ".join(owners.get((each.topic, each.partition), ()))
        lag = None if end is None else max(0, end - each.offset)
        if each.lag is not None:  # a share group: records behind its start may be done
            lag = each.lag if each.lag >= 0 else None
        row = {"topic": each.topic, "partition": each.partition, "offset": each.offset, "end": end, "lag": lag}
        rows.append({**row, "member_id": held_by, "metadata": each.metadata})
    out = cli.out
    if out.as_json:
        value = {"group": group, "coordinator": node, "state": reported.state, "protocol": reported.protocol}
        value["type"] = reported.group_type
        members = [_as_json(member) for member in reported.members]
        out.value({**value, "members": members, "offsets": rows})
        return
    kind = f"{reported.group_type} group"
    click.echo(
        f"{kind} {visible(group)}: {reported.state}, {number_of(len(reported.members), 'member')}, coordinator {node}"
    )
    if reported.members:
        out.table(
            ("member", "client", "host", "partitions"),
            [
                (m.member_id, m.client_id, m.client_host, ", ".join(f"{t}-{p}" for t, p in m.partitions))
                for m in reported.members
            ],
        )
    columns = ("topic", "partition", "offset", "end", "lag", "member_id")
    out.table(columns, [[row[column] for column in columns] for row in rows])


async def _existing(admin: Groups, group: str) -> tuple[int, GroupDescription]:
    node, reported = await admin.describe(group)
    if reported.state == _NOBODY:
        raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
    return node, reported


@groups.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="GROUP…")
@yes_option
@client_options
async def delete(cli: Invocation, names: tuple[str, ...], *, yes: bool) -> None:
    """Delete groups that have no members, with their offsets. Asks on a terminal.

    Example:

    \b
      kafkalite admin groups delete billing-test --yes
    """
    confirm(f"Delete {', '.join(names)} with all committed offsets?", yes=yes)

    async with cli.connect() as client:
        admin = Groups(client)
        for at, name in enumerate(names):
            try:
                await admin.delete(name)
            except ApiError as error:
                before = f"; deleted before it: {', '.join(names[:at])}" if at else ""
                raise api_error(error.code, f"{error}{before}") from None
    cli.out.value({"deleted": list(names)}, f"deleted {', '.join(names)}")


@groups.command("reset-offsets")
@click.argument("group")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[-P]", help="Only these [default: all committed].")
@click.option("--to-earliest", is_flag=True, help="The first record in the log.")
@click.option("--to-latest", is_flag=True, help="After the last record.")
@click.option(
    "--to-datetime",
    "moment",
    metavar="TIME",
    help="The first record from this time on (ISO; UTC if no zone is given), or from a time ago on: -15m, -2h, -7d.",
)
@click.option("--to-offset", type=Whole(0, MAX_LONG), help="This offset, kept within the log.")
@click.option(
    "--shift-by",
    type=int,
    help="Move the committed offset by this number of records (may be negative), kept within the log.",
)
@click.option("--execute", is_flag=True, help="Execute the change; without this it is only shown.")
@client_options
async def reset_offsets(
    cli: Invocation,
    group: str,
    topics: tuple[str, ...],
    moment: str | None,
    to_offset: int | None,
    shift_by: int | None,
    *,
    to_earliest: bool,
    to_latest: bool,
    execute: bool,
) -> None:
    """Move the offsets of a group without members; shows the new ones, and sets them with --execute.

    Examples:

    \b
      kafkalite admin groups reset-offsets billing --to-earliest
      kafkalite admin groups reset-offsets billing --topic orders --to-datetime 2024-05-01T00:00:00+00:00 --execute
      kafkalite admin groups reset-offsets billing --to-datetime -7d
      kafkalite admin groups reset-offsets billing --topic orders-3 --shift-by -100 --execute
    """
    if to_earliest + to_latest + sum(each is not None for each in (moment, to_offset, shift_by)) != 1:
        raise click.UsageError("give one of --to-earliest, --to-latest, --to-datetime, --to-offset and --shift-by")
    at = None if moment is None else _moment(moment)

    async with cli.connect() as client:
        at_ms = None if at is None else at.at_ms(client.clock.wall_ms())
        reset = _reset(LATEST if to_latest else EARLIEST, at_ms, to_offset, shift_by)
        admin = Groups(client)
        # A group may be given offsets of topics before it has any; without topics, where should they be?
        _, reported = await (admin.describe(group) if topics else _existing(admin, group))
        if execute:
            _refuse_members(group, len(reported.members))
        before = {TopicPartition(each.topic, each.partition): int(each.offset) for each in reported.offsets}
        keys = await _chosen(client, topics, before)
        after = await new_offsets(client, keys, before, reset)
        if execute:
            try:
                await admin.commit(group, after)
            except RpcError as error:
                if shift_by is None:
                    raise
                hint = f"the change may have been made, and a second --shift-by would move the offsets again: see `kafkalite admin offsets get {group}`"
                raise api_error(ErrorCode.REQUEST_TIMED_OUT, f"{error}; {hint}") from None
    out = cli.out
    rows = [(key.topic, key.partition, before.get(key), offset) for key, offset in after.items()]
    if out.as_json:
        names = ("topic", "partition", "before", "after")
        changed = [dict(zip(names, row, strict=True)) for row in rows]
        out.value({"group": group, "executed": execute, "offsets": changed})
        return
    out.table(("topic", "partition", "before", "after"), rows)
    click.echo("done" if execute else "nothing was changed: add --execute")


def _as_json(member: GroupMember) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "partitions": member.partitions,
    }


def _moment(text: str) -> At:
    """Raises click.BadParameter."""
    try:
        return parse_moment(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not {MOMENTS}", param_hint="--to-datetime") from None


def _reset(place: str, at_ms: int | None, to_offset: int | None, shift_by: int | None) -> Reset:
    """`place`, unless one of the others is given."""
    if to_offset is not None:
        return Reset(OFFSET, to_offset)
    if shift_by is not None:
        return Reset(SHIFT, shift_by)
    return Reset(place) if at_ms is None else Reset(TIME, at_ms)


async def _chosen(
    client: AsyncClient, topics: tuple[str, ...], committed: dict[TopicPartition, int]
) -> list[TopicPartition]:
    """Raises ApiError: no such topic, no such partition."""
    if not topics:
        return sorted(committed)
    counts = {topic.topic: len(topic.partitions) for topic in (await client.metadata()).topics}
    keys: list[TopicPartition] = []
    for text in topics:
        if text in counts:
            keys += [TopicPartition(text, number) for number in range(counts[text])]
            continue
        topic, _, number = text.rpartition("-")
        if topic not in counts or not is_whole(number):
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {text!r}")
        if int(number) >= counts[topic]:
            raise api_error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{text}: the topic has {number_of(counts[topic], 'partition')}"
            )
        keys.append(TopicPartition(topic, int(number)))
    return keys


def _refuse_members(group: str, members: int) -> None:
    """Their next commits would replace what is set here. Raises ApiError."""
    if members:
        raise api_error(
            ErrorCode.NON_EMPTY_GROUP, f"{group} has {number_of(members, 'member')}: stop all of them first"
        )


@offsets.command("get")
@click.argument("group")
@click.argument("partitions", nargs=-1, metavar="[TOPIC-P]…")
@client_options
async def get(cli: Invocation, group: str, partitions: tuple[str, ...]) -> None:
    """What a group has committed.

    Examples:

    \b
      kafkalite admin offsets get billing
      kafkalite admin offsets get billing orders-0 orders-1
    """
    wanted = [parse_partition(each) for each in partitions]

    async with cli.connect() as client:
        _, reported = await _existing(Groups(client), group)
        committed = {TopicPartition(each.topic, each.partition) for each in reported.offsets}
        await known_partitions(client, {*wanted} - committed)
    shown = [each for each in reported.offsets if not wanted or TopicPartition(each.topic, each.partition) in wanted]
    value = {"group": group, "offsets": [dataclasses.asdict(each) for each in shown]}
    rows = [(e.topic, e.partition, e.offset, e.metadata) for e in shown]
    cli.out.listing(value, ("topic", "partition", "offset", "metadata"), rows)


@offsets.command("set")
@click.argument("group")
@click.argument("pairs", nargs=-1, required=True, metavar="TOPIC-P=OFFSET…")
@client_options
async def set_(cli: Invocation, group: str, pairs: tuple[str, ...]) -> None:
    """Set offsets of a group without members; TOPIC-P= without a number deletes one.

    Examples:

    \b
      kafkalite admin offsets set billing orders-0=1200 orders-1=0
      kafkalite admin offsets set billing orders-2=
    """
    wanted: dict[TopicPartition, int] = {}
    gone: list[TopicPartition] = []
    for pair in pairs:
        name, equals, value = pair.rpartition("=")
        if not equals or (value and not is_whole(value, MAX_LONG)):
            raise click.BadParameter(f"{pair!r} is not TOPIC-P=OFFSET", param_hint="TOPIC-P=OFFSET")
        if value:
            wanted[parse_partition(name)] = int(value)
        else:
            gone.append(parse_partition(name))

    async with cli.connect() as client:
        await known_partitions(client, [*wanted, *gone])
        admin = Groups(client)
        _refuse_members(group, len((await admin.describe(group))[1].members))
        await admin.commit(group, wanted, deletions=gone)
    reported = {str(key): offset for key, offset in sorted(wanted.items())}
    text = ", ".join([f"{key} at {offset}" for key, offset in reported.items()] + [f"{key} forgotten" for key in gone])
    cli.out.value({"group": group, "set": reported, "forgotten": [str(key) for key in gone]}, text)
