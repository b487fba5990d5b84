"""`kafkalite admin trace`: the requests of clients for a while, and where their time goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime

import click

from kafkalite.errors import ErrorCode, KafkaliteError, api_error, error_code
from kafkalite.extension.messages.tracing import (
    TracedRequest,
    TraceRequest,
    TraceResponse,
)
from kafkalite_cli.hints import closest
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import Output, size_text
from kafkalite_cli.parameters import Whole, is_whole

_MARGIN_S = 10.0


@click.command("trace")
@click.argument("topic", required=False, metavar="[TOPIC[-P]]")
@click.option("--seconds", type=Whole(1, 60), default=5, show_default=True, help="For how long to watch.")
@click.option("--client-id", default="", metavar="ID", help="Only requests of this client.id.")
@click.option("--api", default="", metavar="NAME", help="Only this Kafka API, such as Produce or Fetch.")
@click.option("--min-ms", type=Whole(0), default=0, metavar="MS", help="Only requests that took at least this long.")
@click.option("--slowest", type=Whole(0, 500), default=10, show_default=True, help="How many single requests to show.")
@client_options
async def trace(
    cli: Invocation, topic: str | None, seconds: int, client_id: str, api: str, min_ms: int, slowest: int
) -> None:
    """Watch the requests of clients on every broker, and show where their time goes.

    OWN is the broker's own work. WAIT is the time until the response was there: followers that acks=all waits for, records that a
    fetch waits for. THROTTLE is the time for which a quota keeps the client away after that. A consumer names its partitions in its
    first fetch of a session only: to see all fetches, leave TOPIC away.

    Examples:

    \b
      kafkalite admin trace orders --api Produce
      kafkalite admin trace orders-3 --seconds 20 --min-ms 100
      kafkalite admin trace --client-id billing --json
    """
    _check_api(api)
    name, _, number = (topic or "").rpartition("-")

    async with cli.connect() as client:
        known = (await client.metadata()).topics if topic else ()
        names = {each.topic: len(each.partitions) for each in known}
        is_whole_topic = not topic or topic in names or not is_whole(number)
        if topic and topic not in names and (is_whole_topic or int(number) >= names.get(name, 0)):
            missing = f"no partition {topic}" if name in names and not is_whole_topic else f"no topic {topic!r}"
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is {missing}")
        wanted = TraceRequest(
            duration_ms=seconds * 1000,
            topic=(topic or "") if is_whole_topic else name,
            partition=-1 if is_whole_topic else int(number),
            client_id=client_id,
            api=api,
            min_ms=min_ms,
            limit=slowest,
        )
        answers = await client.every_node(wanted, timeout_s=seconds + _MARGIN_S)
    _show(answers.values(), slowest, cli.out)


def _check_api(name: str) -> None:
    """A misspelt name would watch for nothing. Raises click.BadParameter."""
    if not name:
        return
    from kafkalite.kafka.apis import OFFERED  # only this option needs it

    if name not in OFFERED:
        close = closest(name, sorted(OFFERED)) or closest(name.capitalize(), sorted(OFFERED))
        hint = f"; did you mean {close!r}?" if close else ""
        raise click.BadParameter(f"{name!r} is no API of Kafka{hint}", param_hint="--api")


def _show(answers: Iterable[TraceResponse | KafkaliteError], slowest: int, out: Output) -> None:
    """Raises the first error."""
    found: list[TraceResponse] = []
    for answer in answers:
        if isinstance(answer, KafkaliteError):
            raise answer
        if answer.error:
            raise api_error(error_code(answer.error), f"broker {answer.broker_id}: {answer.message}")
        found.append(answer)
    if out.as_json:
        out.value({"brokers": [dataclasses.asdict(answer) for answer in found]})
        return
    groups = [
        (
            answer.broker_id, each.api, each.client_id, each.count, _ms(each.p50_us), _ms(each.p99_us), _ms(each.max_us),
            _ms(each.own_us / each.count), _ms(each.wait_us / each.count), _ms(each.throttle_us / each.count),
        )
        for answer in found
        for each in answer.groups
    ]  # fmt: skip
    if not groups:
        click.echo("no such request came")
        return
    columns = ("broker", "request", "client.id", "count", "p50 ms", "p99 ms", "max ms", "own", "wait", "throttle")
    out.table(columns, groups)
    rows = [(answer.broker_id, each) for answer in found for each in answer.slowest]
    rows.sort(key=lambda row: -(row[1].own_us + row[1].wait_us))
    if rows[:slowest]:
        click.echo()
        shown = [_row(broker, each) for broker, each in rows[:slowest]]
        out.table(("at", "broker", "request", "client.id", "from", "what", "size", "own", "wait", "throttle"), shown)


def _row(broker: int, each: TracedRequest) -> tuple[object, ...]:
    at = datetime.fromtimestamp(each.at_ms / 1000).strftime("%H:%M:%S.%f")[:-3]
    what = each.what + (f" and {each.partitions - 3} more" if each.partitions > 3 else "")
    size = size_text(each.size_bytes) if each.size_bytes else ""
    request = f"{each.api} v{each.version}"
    times = _ms(each.own_us), _ms(each.wait_us), _ms(each.throttle_us)
    return at, broker, request, each.client_id, each.host, what, size, *times


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1000:.1f}"
