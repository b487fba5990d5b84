"""Verbs about the cluster as a whole: its brokers, its health."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import click

from kafkalite.errors import ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.watching import HealthResponse
from kafkalite.model import BrokerId, Endpoint
from kafkalite.partition_values import TopicMetadata
from kafkalite.telemetry.advice import advice, severity
from kafkalite.wording import number_of
from kafkalite_cli.admin.refusals import refuse_forbidden
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import Output
from kafkalite_cli.zookeeper_note import note_zookeeper

_UNREACHABLE = "broker.unreachable"
#: Of each kind of problem in the table: a broker that is gone is a problem of each partition that it has.
_MOST_ROWS = 10
#: What `top --state troubled` shows.
_OF_PARTITIONS = frozenset({"partition.offline", "partition.under_min_isr", "partition.under_replicated"})


@click.command("describe-cluster")
@client_options
async def describe_cluster(cli: Invocation) -> None:
    """Brokers with their addresses and versions, and the controller.

    Example:

    \b
      kafkalite admin describe-cluster
    """
    async with cli.connect() as client:
        answer = await client.describe_cluster()
        await note_zookeeper(client, cli.out)
    out = cli.out
    if out.as_json:
        out.value(dataclasses.asdict(answer))
        return
    controller = "none" if answer.controller_id < 0 else f"broker {answer.controller_id}"
    click.echo(f"cluster {answer.cluster_id}, controller {controller}, controller epoch {answer.controller_epoch}")
    rows = [
        (
            b.broker_id,
            str(Endpoint(b.rpc_host, b.rpc_port)),
            str(Endpoint(b.kafka_host, b.kafka_port)) if b.kafka_port >= 0 else "",
            b.http,
            b.rack or "",
            b.release,
            b.broker_epoch,
            "controller" if b.broker_id == answer.controller_id else "",
        )
        for b in sorted(answer.brokers, key=lambda broker: broker.broker_id)
    ]
    out.table(("broker", "rpc", "kafka", "console", "rack", "version", "broker epoch", "role"), rows)


@click.command("health")
@client_options
async def health(cli: Invocation) -> int:
    """The problems that any node sees, and what to do about each; exits 1 if there are any.

    Examples:

    \b
      kafkalite admin health
      kafkalite admin health --json | jq -r '.problems[].what' | sort | uniq -c
    """
    async with cli.connect() as client:
        answers = await client.health(timeout_s=cli.timeout_s)
        topics = (await client.metadata()).topics
        now_ms = client.clock.wall_ms()
    if not answers:
        raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, "no live broker")
    refuse_forbidden(answers.values())
    problems = _problems(answers, topics, now_ms)
    out = cli.out
    closed = {
        node: answer.broker_state
        for node, answer in sorted(answers.items())
        if not isinstance(answer, KafkaliteError) and answer.broker_state != "active"
    }
    if out.as_json:
        states = {str(node): state for node, state in closed.items()}
        value = {"healthy": not problems, "brokers": sorted(answers), "problems": problems, "broker_states": states}
        out.value(value)
    elif not problems:
        click.echo(f"healthy: {number_of(len(answers), 'broker')}, no problems")
    else:
        _print_problems(problems, out, now_ms)
    if not out.as_json:
        for node, state in closed.items():
            click.echo(f"note: broker {node} is {state}: it takes no new replicas")
    return 1 if problems else 0


def _problems(
    answers: Mapping[BrokerId, HealthResponse | KafkaliteError], topics: Sequence[TopicMetadata], now_ms: int
) -> list[dict[str, object]]:
    """What the nodes report, brokers that are gone or silent, and what to do about each."""
    assigned = Counter(broker for topic in topics for entry in topic.partitions for broker in entry.replicas)
    problems = [
        _unreachable(broker, f"not alive; it should have {number_of(assigned[broker], 'replica')}", 0)
        for broker in sorted(assigned.keys() - answers.keys())
    ]
    for node, answer in answers.items():
        if isinstance(answer, KafkaliteError):
            problems.append(_unreachable(node, str(answer), now_ms))
        else:
            problems += [{"broker_id": node, **dataclasses.asdict(reported)} for reported in answer.problems]
    return [problem | dataclasses.asdict(advice(str(problem["what"]))) for problem in problems]


def _print_problems(problems: Sequence[dict[str, object]], out: Output, now_ms: int) -> None:
    """A table of the problems, and below it what to do about each kind."""
    rows: list[tuple[object, ...]] = []
    shown: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    summed_up: set[str] = set()
    for p in problems:
        kind, subject, since_ms = str(p["what"]), str(p["subject"]), int(str(p["since_ms"]))
        represents = int(str(p.get("count", 1)))
        if represents > 1:
            summed_up.add(kind)
        if represents > 1 or shown[kind] == _MOST_ROWS:
            left_out[kind] += represents
            continue
        shown[kind] += 1
        seen_by = "" if kind == _UNREACHABLE else p["broker_id"]
        since = f"{max(0, now_ms - since_ms) // 1000} s" if since_ms else ""
        rows.append((kind, subject, seen_by, since, str(p["detail"]).removeprefix(f"{subject}: ")))
    rows += [
        (kind, f"and {count:,} more", "", "", _where_the_others_are(kind, is_summed_up=kind in summed_up))
        for kind, count in left_out.items()
    ]
    rows.sort(key=lambda row: severity(str(row[0])))
    out.table(("problem", "subject", "seen by", "for", "detail"), rows)
    for kind in sorted({str(p["what"]) for p in problems}, key=severity):
        said = advice(kind)
        click.echo(f"\n{kind}: {said.doing}".rstrip(": "))
        click.echo(f"  you: {said.do}")


def _where_the_others_are(kind: str, *, is_summed_up: bool) -> str:
    """A node names some of a kind, and counts the others."""
    if not is_summed_up:
        return "--json lists all"
    return "`kafkalite top --state troubled` lists them" if kind in _OF_PARTITIONS else ""


def _unreachable(broker: BrokerId, detail: str, since_ms: int) -> dict[str, object]:
    return {"broker_id": broker, "what": _UNREACHABLE, "since_ms": since_ms, "detail": detail, "subject": str(broker)}
