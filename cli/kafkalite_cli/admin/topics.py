"""Verbs about topics: create, delete, list, describe."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.messages import metadata_of, metadata_request
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code
from kafkalite.extension.messages.topics import NewTopic, TopicResult
from kafkalite.model import BrokerId, is_under_replicated
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite.protocol import wire
from kafkalite.wording import number_of
from kafkalite_cli.admin.losses import counted, record_counts, report_counts
from kafkalite_cli.admin.node_answers import report_unreachable
from kafkalite_cli.admin.refusals import raise_for_topic, refuse_forbidden
from kafkalite_cli.admin.topic_settings import note_of_min_isr, parse_settings
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import Output, confirm, ids_text, size_text
from kafkalite_cli.parameters import Whole, is_whole, parse_brokers, yes_option
from kafkalite_cli.zookeeper_note import note_zookeeper

#: How long `create-topic` waits until every node knows the new leaders.
SPREAD_TIMEOUT_S = 10.0


def parse_assignment(text: str) -> dict[int, tuple[BrokerId, ...]]:
    """ "0=1,2;1=2,3" as partition -> replicas, the preferred leader first. Raises click.BadParameter."""
    assignment: dict[int, tuple[BrokerId, ...]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        partition, equals, brokers = part.partition("=")
        if not equals or not is_whole(partition.strip()):
            raise click.BadParameter(f"{part!r} is not PARTITION=BROKER,…", param_hint="--assignment")
        number = int(partition)
        if number in assignment:
            raise click.BadParameter(f"partition {number} twice", param_hint="--assignment")
        assignment[number] = parse_brokers(brokers, "--assignment")
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        raise click.BadParameter("partitions must be numbered 0, 1, 2, …", param_hint="--assignment")
    return assignment


def raise_for(result: TopicResult) -> None:
    """The refusal in a topic's result, if it is one."""
    if result.error:
        code = error_code(result.error)
        message = result.message or code.name
        raise api_error(
            code, message if not result.topic or repr(result.topic) in message else f"{result.topic}: {message}"
        )


@click.command("create-topic")
@click.argument("name")
@click.option("--partitions", type=Whole(1), help="Number of partitions [default: the cluster's].")
@click.option("--replication-factor", type=Whole(1), help="Replicas each [default: the cluster's].")
@click.option("--assignment", metavar='"0=1,2;1=2,3"', help="Replicas by partition, preferred leader first.")
@click.option("--placement", type=click.Choice(["shifted", "mod"]), default="shifted", show_default=True)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A configuration of the topic.")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is left as it is: exit code 0.")
@client_options
async def create_topic(
    cli: Invocation,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    assignment: str | None,
    placement: str,
    settings: tuple[str, ...],
    *,
    if_not_exists: bool,
) -> None:
    """Create a topic; returns when every node knows its leaders.

    Examples:

    \b
      kafkalite admin create-topic flights --partitions 6 --replication-factor 3 --set min.insync.replicas=2
      kafkalite admin create-topic small --assignment "0=1,2;1=2,3"
    """
    if assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError(
            "--assignment already gives the numbers of partitions and replicas: do not use it with --partitions or --replication-factor"
        )
    topic = NewTopic(
        name,
        -1 if partitions is None else partitions,
        -1 if replication_factor is None else replication_factor,
        None if assignment is None else parse_assignment(assignment),
        placement,
        parse_settings(settings) or None,
    )
    async with cli.connect() as client:
        (result,) = await client.create_topics([topic])
        if if_not_exists and result.error == ErrorCode.TOPIC_ALREADY_EXISTS:
            text = f"there is a topic {topic.topic} already: nothing was changed"
            cli.out.value({"topic": topic.topic, "existed": True}, text)
            return
        raise_for(result)
        spread = await wait_until_spread(client, topic.topic)
        reported = {
            "topic": result.topic,
            "topic_id": result.topic_id,
            "partitions": result.partitions,
            "replication_factor": result.replication_factor,
            "ready": spread,
        }
        count, factor = result.partitions, result.replication_factor
        counts = f"{number_of(count, 'partition')}, {number_of(factor, 'replica')} each"
        known = f": {counts}" if count >= 0 and factor >= 0 else ""  # not after an answer that was lost
        late = "" if spread else "; not every node knows its leaders yet"
        cli.out.value(reported, f"created topic {result.topic}{known}{late}")
        if note := note_of_min_isr(result.topic, factor, topic.configs or {}):
            click.echo(note, err=True)


async def wait_until_spread(client: AsyncClient, topic: str, count: int | None = None) -> bool:
    """Whether every live node came to know a leader for each partition, or `count` partitions, within SPREAD_TIMEOUT_S."""
    deadline = client.now() + min(client.timeout_s, SPREAD_TIMEOUT_S)
    attempts = 0
    while True:
        await client.metadata([topic])
        answers = (await client.every_node(metadata_request([topic]), timeout_s=client.timeout_s)).values()
        if answers and not any(isinstance(each, KafkaliteError) or not _has_leaders(each, count) for each in answers):
            return True
        attempts += 1
        if client.now() > deadline:
            return False
        await asyncio.sleep(client.backoff.pause_s(min(attempts, 3)))


def _has_leaders(response: wire.MetadataResponse, count: int | None) -> bool:
    topics = metadata_of(response).topics
    if count is not None:  # others may be without a leader for long
        return all(len(t.partitions) == count for t in topics)
    return all(not t.error and t.partitions and all(p.leader >= 0 for p in t.partitions) for t in topics)


@click.command("delete-topic")
@click.argument("name")
@click.option(
    "--vanished",
    is_flag=True,
    help="Also if the topic is not in ZooKeeper: remove the replicas that brokers have kept.",
)
@click.option("--if-exists", is_flag=True, help="If there is no such topic, nothing is done: exit code 0.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; nothing is deleted.")
@yes_option
@client_options
async def delete_topic(
    cli: Invocation, name: str, *, vanished: bool, if_exists: bool, dry_run: bool, yes: bool
) -> None:
    """Delete a topic with all its records.

    Brokers that are down remove their replicas when they return; the name is free at once. Asks on a terminal; a script needs --yes.

    Examples:

    \b
      kafkalite admin delete-topic flights
      kafkalite admin delete-topic --yes --vanished flights    # health says topic.vanished: delete it for good
    """
    if if_exists and vanished:
        raise click.UsageError("--if-exists is about topics in ZooKeeper: do not use it with --vanished")

    async def work() -> None:
        async with cli.connect() as client:
            if not vanished:
                found = await record_counts(client, name, None)
                if dry_run:
                    report_counts(found, cli.out)
                    return
                confirm(f"Delete {name} with {counted(found)}?", yes=yes)
            elif dry_run:
                raise click.UsageError("--dry-run cannot show a topic that has vanished")
            else:
                confirm(f"Delete what brokers have kept of {name}?", yes=yes)
            (result,) = await client.delete_topics([name], vanished=vanished)
            raise_for(result)
            cli.out.value({"topic": name, "deleted": True}, f"deleted topic {name}")

    try:
        await work()
    except ApiError as error:
        if not if_exists or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        cli.out.value({"topic": name, "deleted": False}, f"there is no topic {name}: nothing was deleted")


@click.command("list-topics")
@client_options
async def list_topics(cli: Invocation) -> None:
    """Every topic with its number of partitions and replicas.

    Example:

    \b
      kafkalite admin list-topics --json | jq -r '.topics[].topic'
    """
    async with cli.connect() as client:
        answer = await client.metadata()
        await note_zookeeper(client, cli.out)
    topics = sorted(answer.topics, key=lambda topic: topic.topic)
    rows = [(t.topic, len(t.partitions), max((len(p.replicas) for p in t.partitions), default=0)) for t in topics]
    names = ("topic", "partitions", "replication_factor")
    value = {"topics": [dict(zip(names, row, strict=True)) for row in rows]}
    cli.out.listing(value, ("topic", "partitions", "replicas"), rows)


@click.command("describe")
@click.argument("topics", nargs=-1)
@click.option(
    "--internal", is_flag=True, help="Ask every node for its replicas: high watermark, last stable offset, log end, …"
)
@client_options
async def describe(cli: Invocation, topics: tuple[str, ...], *, internal: bool) -> int:
    """Leaders and replicas of topics (default: all).

    Examples:

    \b
      kafkalite admin describe
      kafkalite admin describe flights --internal
    """
    out = cli.out
    async with cli.connect() as client:
        answer = await client.describe_topics(topics or None)
        found = sorted(answer.topics, key=lambda topic: topic.topic)
        for topic in found:
            raise_for_topic(topic)
        if internal:
            return await _describe_internal(client, topics, out)
        _describe_topics(found, out)
        await note_zookeeper(client, out)
        return 0


def _describe_topics(topics: Sequence[TopicMetadata], out: Output) -> None:
    if out.as_json:
        out.value({"topics": [dataclasses.asdict(topic) for topic in topics]})
        return
    rows = [
        (
            topic.topic,
            entry.partition,
            "none" if entry.leader < 0 else entry.leader,
            entry.leader_epoch,
            ids_text(entry.replicas),
            ids_text(entry.isr),
            ids_text(entry.elr),
            _state(entry),
        )
        for topic in topics
        for entry in sorted(topic.partitions, key=lambda partition: partition.partition)
    ]
    out.table(("topic", "partition", "leader", "epoch", "replicas", "isr", "elr", "state"), rows)


def _state(partition: PartitionMetadata) -> str:
    if partition.leader < 0:
        return "offline"
    if is_under_replicated(partition.replicas, partition.isr, partition.adding):
        return "under-replicated"
    return "ok"


async def _describe_internal(client: AsyncClient, topics: Sequence[str], out: Output) -> int:
    answers = await client.describe_replicas(topics, timeout_s=client.timeout_s)
    refuse_forbidden(answers.values())
    entries = [
        (node, replica)
        for node, answer in answers.items()
        if not isinstance(answer, KafkaliteError)
        for replica in answer.replicas
    ]
    entries.sort(key=lambda entry: (entry[1].topic, entry[1].partition, not entry[1].is_leader, entry[0]))
    columns = (
        "topic", "partition", "broker", "role", "epoch", "hw", "lso", "open txn", "leo", "start", "isr", "size", "directory", "error"
    )  # fmt: skip
    rows = [
        (
            r.topic,
            r.partition,
            node,
            ("leader" if r.is_leader else "follower") + (", draining" if r.is_read_only else ""),
            r.leader_epoch,
            r.high_watermark,
            r.last_stable_offset if r.last_stable_offset >= 0 else "",
            f"{r.open_transaction_ms // 1000} s" if r.open_transaction_ms >= 0 else "",
            r.log_end_offset,
            r.log_start_offset,
            ids_text(r.isr),
            size_text(r.size_bytes),
            r.directory,
            error_code(r.error).name if r.error else "",
        )
        for node, r in entries
    ]
    out.table(columns, rows)
    unreachable = report_unreachable(answers)
    if out.as_json:
        replicas = [{"broker_id": node, **dataclasses.asdict(replica)} for node, replica in entries]
        out.value({"replicas": replicas, "unreachable": unreachable})
    return 1 if unreachable else 0
