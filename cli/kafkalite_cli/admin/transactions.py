"""`kafkalite admin transactions`: open transactions, those that hang, and how to end them."""

from __future__ import annotations

import dataclasses

import click

from kafkalite.client.admin.hanging_transactions import STATES, TransactionAdmin
from kafkalite.extension.messages.open_transactions import PartitionTransaction
from kafkalite.model import ProducerId
from kafkalite_cli.admin.move_progress import duration
from kafkalite_cli.admin.refusals import known_partitions, raise_for_topic
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.parameters import MAX_LONG, Real, Whole, parse_partition

#: Kafka's default of transaction.max.timeout.ms.
_MAX_TIMEOUT_MIN = 15.0
_MAX_EPOCH = 2**15 - 1


@click.group("transactions")
@group_options
def transactions(bootstrap: str | None) -> None:
    """Find open transactions, and end those that hang."""


@transactions.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help="Only in this state, Ongoing for example.",
)
@client_options
async def list_transactions(cli: Invocation, states: tuple[str, ...]) -> None:
    """Every transactional id with its coordinator and its state.

    Examples:

    \b
      kafkalite admin transactions list
      kafkalite admin transactions list --state Ongoing
    """
    async with cli.connect() as client:
        found = await TransactionAdmin(client).listed(states)
    value = {"transactions": [{**dataclasses.asdict(each), "coordinator": node} for node, each in found]}
    rows = [(each.transactional_id, each.state, each.producer_id, node) for node, each in found]
    cli.out.listing(value, ("transactional id", "state", "producer", "coordinator"), rows)


@transactions.command("describe")
@click.argument("transactional_id")
@client_options
async def describe(cli: Invocation, transactional_id: str) -> None:
    """One transactional id: its producer, its state, and the partitions of its transaction.

    Example:

    \b
      kafkalite admin transactions describe billing-1
    """
    async with cli.connect() as client:
        node, reported = await TransactionAdmin(client).describe(transactional_id)
        now_ms = client.clock.wall_ms()
    out = cli.out
    open_ms = max(0, now_ms - reported.started_ms) if reported.started_ms >= 0 else None
    if out.as_json:
        value = dataclasses.asdict(reported)
        out.value({**value, "coordinator": node, "open_ms": open_ms})
        return
    click.echo(
        f"{transactional_id}: {reported.state}, producer {reported.producer_id} epoch {reported.producer_epoch}, "
        f"timeout {reported.timeout_ms} ms, coordinator {node}"
    )
    if open_ms is not None:
        click.echo(f"begun {duration(open_ms / 1000)} ago")
    for topic, number in reported.partitions:
        click.echo(f"  {topic}-{number}")


@transactions.command("find-hanging")
@click.option("--topic", "topics", multiple=True, help="Only partitions of this topic.")
@click.option(
    "--max-transaction-timeout",
    "min_open_min",
    type=Real(0, 1e9),
    default=_MAX_TIMEOUT_MIN,
    show_default=True,
    metavar="MINUTES",
    help="Only transactions that have been open for at least this time.",
)
@client_options
async def find_hanging(cli: Invocation, topics: tuple[str, ...], min_open_min: float) -> int:
    """Transactions that are open on a partition and that no coordinator will end; exits 1 if there are any.

    Readers of committed records wait at the first of them. The command asks the partitions, then the
    coordinators, then the partitions again. So it does not report a transaction that is simply under way.

    Examples:

    \b
      kafkalite admin transactions find-hanging
      kafkalite admin transactions find-hanging --topic flights --max-transaction-timeout 1
    """
    async with cli.connect() as client:
        if topics:
            for topic in (await client.metadata(topics)).topics:
                raise_for_topic(topic)
        asking = TransactionAdmin(client)
        found = await asking.find_hanging(int(min_open_min * 60_000), topics=topics)
    out = cli.out
    if out.as_json:
        rows = [
            {
                **dataclasses.asdict(each.transaction),
                "leader": node,
                "transactional_id": each.transactional_id or None,
                "reason": each.reason,
            }
            for node, each in found
        ]
        out.value({"hanging": rows})
    elif not found:
        click.echo("no transaction hangs")
    else:
        out.table(
            ("topic", "partition", "start offset", "producer", "epoch", "open for", "why"),
            [(*_columns(each.transaction), each.reason) for _, each in found],
        )
        click.echo("\nend one with: kafkalite admin transactions abort TOPIC-P --start-offset OFFSET")
    return 1 if found else 0


def _columns(each: PartitionTransaction) -> tuple[object, ...]:
    age = duration(each.open_ms / 1000)
    return each.topic, each.partition, each.start_offset, each.producer_id, each.producer_epoch, age


@transactions.command("abort")
@click.argument("partition", metavar="TOPIC-P")
@click.option(
    "--start-offset", type=Whole(0, MAX_LONG), help="Offset at which the transaction starts in the partition."
)
@click.option(
    "--producer-id", type=Whole(0, MAX_LONG), help="Producer of the transaction, instead of the start offset."
)
@click.option("--producer-epoch", type=Whole(0, _MAX_EPOCH), help="The epoch of that producer.")
@click.option(
    "--force",
    is_flag=True,
    help="Abort it even if its coordinator has it open; this breaks the transaction's atomicity.",
)
@client_options
async def abort(
    cli: Invocation,
    partition: str,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    *,
    force: bool,
) -> None:
    """End a transaction that hangs on one partition: its records there are aborted, and readers go on.

    The command refuses if the coordinator has the transaction open: it will end, at its timeout at the latest.

    Examples:

    \b
      kafkalite admin transactions abort flights-3 --start-offset 4711
      kafkalite admin transactions abort flights-3 --producer-id 1000 --producer-epoch 2
    """
    key = parse_partition(partition)
    producer = None
    if producer_id is not None and producer_epoch is not None:
        producer = ProducerId(producer_id), producer_epoch
    if (start_offset is None) is (producer is None) or (producer_id is None) is not (producer_epoch is None):
        raise click.UsageError("give either --start-offset, or --producer-id and --producer-epoch")

    async with cli.connect() as client:
        await known_partitions(client, [key])
        ended = await TransactionAdmin(client).abort(key, start_offset=start_offset, producer=producer, force=force)
    cli.out.value(
        {**dataclasses.asdict(ended), "aborted": True},
        f"aborted the transaction of producer {ended.producer_id} on {key}, from offset {ended.start_offset} on",
    )
