"""`kafkalite admin reassign plan | execute | status | list | cancel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kafkalite.admin.decisions.planner import Goal, ReassignmentPlan, make_plan
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.reassignment import (
    Reassignment,
    WantedReassignment,
)
from kafkalite.extension.messages.watching import StatusRequest, StatusResponse
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.wording import number_of
from kafkalite_cli.admin.move_progress import show, watch
from kafkalite_cli.admin.move_requests import HOW_TO_RETURN, cancel_moves, moves_in_progress, request_moves
from kafkalite_cli.admin.plan_files import plan_document, read_plan, save_plan
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.output import Output, ids_text, run_watch, size_text
from kafkalite_cli.parameters import Bytes, Count, Whole, parse_brokers, parse_partition


@click.group("reassign")
@group_options
def reassign(bootstrap: str | None) -> None:
    """Move partitions between brokers, in small steps."""


@reassign.command("plan")
@click.option("--brokers", metavar="1,2,3", help="Spread the partitions over these brokers.")
@click.option("--drain-broker", type=Whole(0), multiple=True, help="Move all replicas away from this broker.")
@click.option("--topic", "topics", multiple=True, help="Only these topics [default: all].")
@click.option(
    "--replicas",
    type=Count(1, "--replicas is how many each partition has, --brokers names brokers"),
    help="Number of replicas of each partition.",
)
@click.option("-o", "--output", "path", type=click.Path(dir_okay=False, writable=True), help="Write the plan here.")
@client_options
async def plan(
    cli: Invocation,
    brokers: str | None,
    drain_broker: tuple[int, ...],
    topics: tuple[str, ...],
    replicas: int | None,
    path: str | None,
) -> None:
    """Compute a plan with few movements and show it; nothing is moved.

    Examples:

    \b
      kafkalite admin reassign plan --brokers 2,3,4 -o plan.json
      kafkalite admin reassign plan --drain-broker 1 -o plan.json
    """
    if brokers is None and not drain_broker and replicas is None:
        raise click.UsageError("give --brokers, --drain-broker or --replicas")
    allowed = None if brokers is None else frozenset(parse_brokers(brokers, "--brokers"))

    async with cli.connect() as client:
        assignment, racks = await _assignment(client)
        sizes = await _sizes(client)
        # What is being moved counts where it will be: until then it has replicas of both.
        moving = {TopicPartition(m.topic, m.partition): m.target for m in await moves_in_progress(client)}
        assignment = {partition: moving.get(partition, has) for partition, has in assignment.items()}
        closed = {
            each.broker_id: each.broker_state
            for each in (await client.request(StatusRequest(limit=0), StatusResponse)).brokers
            if each.broker_state != "active"
        }
    live = frozenset(racks)
    gone = frozenset(BrokerId(each) for each in drain_broker)
    missing = sorted({*topics} - {partition.topic for partition in assignment})
    if missing:
        raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {missing[0]!r}")
    chosen = [p for p in assignment if (p.topic in topics if topics else True)]
    if shut := sorted((allowed or frozenset()) & closed.keys()):
        reason = f"broker {shut[0]} is {closed[shut[0]]}: it takes no new replicas (kafkalite admin broker uncordon {shut[0]})"
        raise api_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    # A cordoned broker keeps what it has, and gets nothing new.
    goal = Goal(
        (live if allowed is None else allowed) - gone,
        replicas,
        is_spread=allowed is not None,
        closed=frozenset(closed),
    )
    if not goal.brokers:
        raise api_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker is left for the replicas")
    unknown = sorted(gone - live - {broker for replicas in assignment.values() for broker in replicas})
    if unknown:
        reason = f"broker {unknown[0]} is not alive and has no replica: nothing to drain"
        raise api_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    made = make_plan(goal, assignment, chosen=chosen, racks=racks, sizes=sizes)
    document = plan_document(made, assignment)
    if path is not None:
        save_plan(path, document)
    _show_plan(made, assignment, sizes, document, path, cli.out)
    if again := [each for each in made.targets if each in moving]:
        verb = "is" if len(again) == 1 else "are"
        which = f"{number_of(len(again), 'partition')} of the plan, such as {again[0]}, {verb} being moved now"
        click.echo(f"note: {which}: NOW is where that move ends, and `execute` needs --replace", err=True)


async def _assignment(
    client: AsyncClient,
) -> tuple[dict[TopicPartition, tuple[BrokerId, ...]], dict[BrokerId, str | None]]:
    answer = await client.metadata()
    assignment = {
        TopicPartition(topic.topic, entry.partition): entry.replicas
        for topic in sorted(answer.topics, key=lambda each: each.topic)
        for entry in sorted(topic.partitions, key=lambda each: each.partition)
    }
    return assignment, {broker.broker_id: broker.rack for broker in answer.brokers}


async def _sizes(client: AsyncClient) -> dict[TopicPartition, int]:
    """Bytes of each partition, as its leader has it."""
    sizes: dict[TopicPartition, int] = {}
    for answer in (await client.describe_replicas(timeout_s=client.timeout_s)).values():
        if isinstance(answer, KafkaliteError):
            continue
        for replica in answer.replicas:
            if replica.is_leader:
                sizes[TopicPartition(replica.topic, replica.partition)] = replica.size_bytes
    return sizes


def _show_plan(
    made: ReassignmentPlan,
    assignment: Mapping[TopicPartition, tuple[BrokerId, ...]],
    sizes: Mapping[TopicPartition, int],
    document: dict[str, Any],
    path: str | None,
    out: Output,
) -> None:
    copied = {p: sum(b not in assignment[p] for b in made.targets[p]) * sizes.get(p, 0) for p in made.targets}
    moved = sum(sum(b not in assignment[p] for b in target) for p, target in made.targets.items())
    if out.as_json:
        reported = {"plan": document, "replicas_to_copy": moved, "bytes_to_copy": sum(copied.values()), "file": path}
        out.value(reported)
        return
    if not made.targets:
        click.echo("nothing has to move")
        return
    rows = [
        (str(p), ids_text(assignment[p]), ids_text(target), size_text(copied[p])) for p, target in made.targets.items()
    ]
    out.table(("partition", "now", "then", "to copy"), rows)
    after = {**assignment, **made.targets}
    brokers = sorted({broker for replicas in [*assignment.values(), *after.values()] for broker in replicas})
    loads = [
        (
            broker,
            sum(broker in replicas for replicas in assignment.values()),
            sum(broker in replicas for replicas in after.values()),
            sum(replicas[0] == broker for replicas in assignment.values()),
            sum(replicas[0] == broker for replicas in after.values()),
        )
        for broker in brokers
    ]
    click.echo("")
    out.table(("broker", "replicas now", "then", "preferred leader now", "then "), loads)
    total = size_text(sum(copied.values()))
    where = f"; written to {path}" if path is not None else "; give -o FILE to keep the plan"
    changes = "1 partition changes" if len(made.targets) == 1 else f"{len(made.targets)} partitions change"
    copies = f"{number_of(moved, 'replica')} ({total}) {'is' if moved == 1 else 'are'} copied"
    click.echo(f"\n{changes}, {copies}{where}")


def _what_permits(code: ErrorCode, *, allow_rf_change: bool, replace: bool) -> str:
    """The option without which a plan is refused for this; empty: there is none, or it was given."""
    if code == ErrorCode.INVALID_REPLICATION_FACTOR and not allow_rf_change:
        return "--allow-rf-change permits it"
    if code == ErrorCode.REASSIGNMENT_IN_PROGRESS and not replace:
        return "--replace takes this plan instead"
    return ""


@reassign.command("execute")
@click.argument("plan_path", metavar="PLAN", type=click.Path(dir_okay=False))
@click.option("--max-replicas", type=Whole(1), metavar="R", help="Replicas of one partition moved at once.")
@click.option("--max-partitions", type=Whole(1), metavar="P", help="Partitions moved at once.")
@click.option("--max-leader-movements", type=Whole(1), metavar="L", help="Leaders moved at once.")
@click.option(
    "--throttle",
    type=Bytes(),
    default=None,
    metavar="BYTES_PER_S",
    help="Limit per leader, for replicas that are not in sync.",
)
@click.option("--allow-rf-change", is_flag=True, help="The plan may change the number of replicas.")
@click.option("--replace", is_flag=True, help="Replace reassignments that are in progress.")
@click.option("--watch", "is_watched", is_flag=True, help="Show the progress until all is done.")
@client_options
def execute(
    cli: Invocation,
    plan_path: str,
    max_replicas: int | None,
    max_partitions: int | None,
    max_leader_movements: int | None,
    throttle: int | None,
    *,
    allow_rf_change: bool,
    replace: bool,
    is_watched: bool,
) -> None:
    """Start the moves of a plan: all of them, or none if one line of it is wrong.

    Examples:

    \b
      kafkalite admin reassign execute plan.json --max-replicas 1 --max-partitions 2 --watch
      kafkalite admin reassign execute plan.json --throttle 50MB
    """
    targets = read_plan(plan_path)
    limits = (max_replicas or 0, max_partitions or 0, max_leader_movements or 0)

    async def work() -> None:
        out = cli.out
        async with cli.connect() as client:
            wanted = (WantedReassignment(p.topic, p.partition, r, throttle or 0) for p, r in sorted(targets.items()))
            try:
                await request_moves(client, wanted, limits=limits, allow_rf_change=allow_rf_change, may_replace=replace)
            except ApiError as error:
                hint = _what_permits(error.code, allow_rf_change=allow_rf_change, replace=replace)
                if not hint:
                    raise
                raise api_error(error.code, f"{error}; {hint}") from None
            if is_watched:
                await watch(client, out, wanted=targets)
                return
            out.value(
                {"ordered": len(targets)},
                f"reassignment of {number_of(len(targets), 'partition')} submitted; see `kafkalite admin reassign status --watch`",
            )

    run_watch(work(), HOW_TO_RETURN)


@reassign.command("status")
@click.option("--watch", "is_watched", is_flag=True, help="Repeat until all is done.")
@client_options
def status(cli: Invocation, *, is_watched: bool) -> None:
    """How far the reassignments are: partitions, bytes, rate, time left.

    Example:

    \b
      kafkalite admin reassign status --watch
    """

    async def work() -> None:
        async with cli.connect() as client:
            if is_watched:
                await watch(client, cli.out)
            else:
                await show(client, cli.out)

    run_watch(work(), HOW_TO_RETURN)


@reassign.command("list")
@client_options
async def list_(cli: Invocation) -> None:
    """The whole plan; partitions that have a step are the current batch.

    Example:

    \b
      kafkalite admin reassign list
    """
    async with cli.connect() as client:
        found = await moves_in_progress(client)
    out = cli.out
    if out.as_json:
        plan_ = [_as_dict(each) for each in found]
        batch = [entry for entry in plan_ if entry["step"] or entry["dropping"]]
        out.value({"reassignments": plan_, "current_batch": batch})
        return
    if not found:
        click.echo("no reassignment is in progress")
        return
    rows = [
        (
            f"{each.topic}-{each.partition}",
            ids_text(each.origin),
            ids_text(each.replicas),
            ids_text(each.step) or ("dropping " + ids_text(each.dropping) if each.dropping else ""),
            ids_text(each.target),
            ids_text(each.isr),
        )
        for each in found
    ]
    out.table(("partition", "before", "now", "this step", "in the end", "isr"), rows)


def _as_dict(each: Reassignment) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "origin": list(each.origin),
        "replicas": list(each.replicas),
        "step": list(each.step),
        "dropping": list(each.dropping),
        "target": list(each.target),
        "isr": list(each.isr),
        "leader": each.leader,
        "throttle": each.throttle,
    }


@reassign.command("cancel")
@click.argument("partitions", nargs=-1, metavar="[TOPIC-P]…")
@client_options
async def cancel(cli: Invocation, partitions: tuple[str, ...]) -> None:
    """Roll reassignments back to the replicas there were before (default: all of them).

    Examples:

    \b
      kafkalite admin reassign cancel
      kafkalite admin reassign cancel flights-3
    """
    named = [parse_partition(each) for each in partitions]

    async with cli.connect() as client:
        chosen = named or [TopicPartition(r.topic, r.partition) for r in await moves_in_progress(client)]
        if not chosen:
            cli.out.value({"cancelled": 0}, "no reassignment is in progress")
            return
        count = len(await cancel_moves(client, chosen, is_atomic=bool(named)))
        cli.out.value({"cancelled": count}, f"rolling back {number_of(count, 'partition')}")
