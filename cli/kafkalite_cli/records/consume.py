"""`kafkalite consume`: a topic's records to stdout."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Mapping, Sequence

import click
from click.core import ParameterSource

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumed import ConsumedRecord
from kafkalite.client.consumer import EARLIEST, Consumer
from kafkalite.client.membership import CHECK_TIMEOUT_S, PARTITIONS_CHECKED_S
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.model import TopicPartition
from kafkalite.wording import number_of
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import on_stop
from kafkalite_cli.parameters import At, Whole
from kafkalite_cli.records.consume_group import GroupReading
from kafkalite_cli.records.last import last_records
from kafkalite_cli.records.lines import encode_record
from kafkalite_cli.records.positions import choose_topics, existing_topics, parse_start, record_filter, resolve
from kafkalite_cli.records.printer import Printer
from kafkalite_cli.records.produce import TOPIC_TIMEOUT_S
from kafkalite_cli.records.shown import Shown
from kafkalite_cli.records.to_the_end import ToTheEnd
from kafkalite_cli.visible import visible

#: They are kept in memory to be put in order.
MAX_LAST = 1_000_000
_FIELDS: Mapping[str, Callable[[ConsumedRecord], bytes]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: str(record.partition).encode(),
    "offset": lambda record: str(record.offset).encode(),
    "timestamp": lambda record: str(record.timestamp).encode(),
    "key": lambda record: record.key or b"",
    "value": lambda record: record.value or b"",
    "headers": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
}
_FIELD = re.compile(rf"\{{({'|'.join(_FIELDS)})\}}")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}


@click.command()
@click.argument("topics", nargs=-1, metavar="TOPIC…")
@click.option("--pattern", metavar="REGEX", help="Also all topics whose whole name matches; no internal ones.")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    default="end",
    show_default=True,
    help="beginning, end, an OFFSET, a time (2026-11-22T10:00:00Z), or a time ago (-15m, -2h, -1d).",
)
@click.option("--last", type=Whole(1, MAX_LAST), metavar="N", help="The last N records, oldest first; then the end.")
@click.option("--partition", type=Whole(0), help="Only this one [default: all].")
@click.option("--max", "maximum", type=Whole(0), metavar="N", help="Stop after N records.")
@click.option("--key", "wanted_key", metavar="TEXT", help="Only records with this key.")
@click.option("--grep", metavar="REGEX", help="Only records whose value matches.")
@click.option(
    "--header", "wanted_headers", multiple=True, metavar="NAME[=VALUE]", help="Only records with this header."
)
@click.option(
    "--exit-at-end",
    is_flag=True,
    help="Stop at the log's end at the time of the start; fail if nothing can be read for --timeout.",
)
@click.option(
    "--format",
    "template",
    default="{value}\\n",
    show_default=True,
    help="Fields: {topic} {partition} {offset} {timestamp} {key} {value} {headers}; \\n \\t \\0.",
)
@click.option("--raw", is_flag=True, help="Do not escape control characters on a terminal.")
@click.option("--group", metavar="G", help="Read as a member of this group, from its committed offsets, and commit.")
@click.option("--read-committed", is_flag=True, help="Skip aborted and open transactions.")
@client_options
async def consume(
    cli: Invocation,
    topics: tuple[str, ...],
    pattern: str | None,
    start: str,
    last: int | None,
    partition: int | None,
    maximum: int | None,
    wanted_key: str | None,
    grep: str | None,
    wanted_headers: tuple[str, ...],
    *,
    exit_at_end: bool,
    template: str,
    raw: bool,
    group: str | None,
    read_committed: bool,
) -> None:
    """Print committed records, by default one value per line; until Ctrl-C or SIGTERM, --max or the end.

    With --json one object per line, as `produce --input json` reads them; keys and values that are not UTF-8 come as key_base64 and
    value_base64.

    On a terminal control characters are shown as \\x1b, \\r and so on, so that a record cannot change the terminal; line breaks and tabs stay. A
    pipe or a file gets the bytes as they are.

    Partitions that are added, and new topics that match --pattern, are read from their first record on; it may take half a minute.

    With --group the topic's partitions are shared among all members, Kafka's clients included (assignor "range"). Each
    partition is read from the group's committed offset, or from --from if it has none. The offsets of printed records are committed.

    Examples:

    \b
      kafkalite consume flights --from beginning --max 5
      kafkalite consume flights --from -15m --grep '"status":"late"'
      kafkalite consume flights --last 10
      kafkalite consume --pattern 'flights[.].*' --from beginning --exit-at-end --json | jq -r .key
      kafkalite consume flights --group billing --format '{partition}:{offset} {value}\\n'
    """
    position = parse_start(start)
    _check_usage(topics, pattern, position, partition, last, group)
    show = encode_record if cli.out.as_json else formatter(template, escapes=sys.stdout.isatty() and not raw)
    shown = Shown(show, record_filter(wanted_key, grep, wanted_headers), maximum, exit_at_end)

    async with cli.connect() as client:
        found = await _found(client, topics, pattern)
        keys = [TopicPartition(t, n) for t, count in found.items() for n in range(count) if partition in (None, n)]
        if not keys:
            topic, count = next(iter(found.items()))
            text = f"{topic}-{partition}: the topic has {number_of(count, 'partition')}"
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if group is not None:
            assert isinstance(position, str)
            await GroupReading(client, group, topics[0], position, read_committed, shown).run()
            return
        strict = None if isinstance(position, int) and last is None else EARLIEST
        async with Consumer(client, read_committed=read_committed, on_out_of_range=strict) as consumer:
            if last is not None:
                await _show_last(client, consumer, keys, last, shown)
                return
            consumer.assign(await resolve(client, keys, position))
            if partition is None and not exit_at_end:
                adding = add_partitions(client, consumer, keys, topics, pattern)
                client.supervisor.spawn("consume.partitions", adding, Policy.ISOLATED)
            await _copy(client, consumer, keys, shown)


def _check_usage(
    topics: Sequence[str],
    pattern: str | None,
    position: int | str | At,
    partition: int | None,
    last: int | None,
    group: str | None,
) -> None:
    """Raises click.UsageError: arguments that contradict each other."""
    if not topics and pattern is None:
        raise click.UsageError("Missing argument 'TOPIC…' (or --pattern).")
    if regex := next((each for each in topics if re.search(r"[*+?\[(|^$\\]", each)), None):
        raise click.UsageError(f"{regex!r} is no topic's name; --pattern {regex!r} reads the topics that match")
    if isinstance(position, int) and (partition is None or len(topics) != 1 or pattern is not None):
        raise click.UsageError("--from OFFSET needs one TOPIC and --partition: each partition counts its own offsets")
    if group is not None and (partition is not None or last is not None or pattern is not None or len(topics) != 1):
        raise click.UsageError(
            "--group assigns the partitions of one TOPIC: do not use it with --partition, --last or --pattern"
        )
    if group is not None and not isinstance(position, str):
        raise click.UsageError("--group begins at the group's committed offsets: --from must be beginning or end")
    has_start = click.get_current_context().get_parameter_source("start") is not ParameterSource.DEFAULT
    if has_start and last is not None:
        raise click.UsageError("give one of --from and --last")


async def _found(client: AsyncClient, topics: Sequence[str], pattern: str | None) -> dict[str, int]:
    """Topic -> number of partitions. Raises ApiError."""
    try:
        return await choose_topics(client, topics, pattern, patience_s=min(client.timeout_s, TOPIC_TIMEOUT_S))
    except ApiError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and pattern is None:
            named = ", ".join(map(repr, topics))
            raise api_error(
                error.code, f"there is no topic {named}" if len(topics) == 1 else f"one of {named} is no topic"
            ) from None
        raise


def formatter(template: str, *, escapes: bool = False) -> Callable[[ConsumedRecord], bytes]:
    """A function that writes a record as `template` says. `escapes`: control characters of the record become text.

    Raises click.BadParameter: a field that no record has.
    """
    if unknown := next((name for name in re.findall(r"\{([a-z_]+)\}", template) if name not in _FIELDS), None):
        raise click.BadParameter(f"{{{unknown}}} is not a field of a record", param_hint="--format")
    if not _FIELD.search(template):
        *first, last = (f"{{{name}}}" for name in _FIELDS)
        raise click.BadParameter(f"{template!r} has no field: {', '.join(first)} or {last}", param_hint="--format")
    text = re.sub(r"\\[nt0\\]", lambda match: _ESCAPES[match.group()], template)
    start, *rest = _FIELD.split(text)
    if (start, rest) == ("", ["value", "\n"]) and not escapes:
        return lambda record: (record.value or b"") + b"\n"
    fields = [(_FIELDS[name], literal.encode()) for name, literal in zip(rest[::2], rest[1::2], strict=True)]
    head, shown = start.encode(), _for_terminal if escapes else bytes

    def show(record: ConsumedRecord) -> bytes:
        return head + b"".join(shown(read(record)) + literal for read, literal in fields)

    return show


def _for_terminal(data: bytes) -> bytes:
    """Bytes that are not UTF-8, and control characters, become text: \\x1b."""
    lines = data.decode(errors="backslashreplace").split("\n")
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in lines).encode()


async def _copy(client: AsyncClient, consumer: Consumer, keys: Sequence[TopicPartition], shown: Shown) -> None:
    end = await ToTheEnd.of(client, consumer, keys) if shown.exit_at_end else None
    on_stop(consumer.close)
    printer = Printer()
    left = shown.most
    while left > 0 and not consumer.closed:
        pieces: list[bytes] = []
        for record in await consumer.poll(max_records=min(left, 5000) if shown.wanted is None else 5000):
            if not shown.has(record):
                continue
            if end is None or end.is_before(TopicPartition(record.topic, record.partition), record.offset):
                pieces.append(shown.show(record))
                if len(pieces) == left:
                    break
        printer.add(pieces)
        left -= await printer.write(lambda: consumer.closed)
        if end is not None and end.is_reached():
            return


async def _show_last(
    client: AsyncClient,
    consumer: Consumer,
    keys: Sequence[TopicPartition],
    count: int,
    shown: Shown,
) -> None:
    """The last `count` records of all partitions by their timestamps, as they are now; filters choose among these."""
    chosen = await last_records(client, consumer, keys, count)
    on_stop(consumer.close)
    printer = Printer()
    for at in range(0, len(chosen), 5000):
        printer.add([shown.show(record) for record in chosen[at : at + 5000] if shown.has(record)])
        await printer.write(lambda: consumer.closed)


async def add_partitions(
    client: AsyncClient, consumer: Consumer, keys: Sequence[TopicPartition], topics: Sequence[str], pattern: str | None
) -> None:
    """Read partitions that come later, and topics that match the pattern then, from their first record on; report topics that are
    deleted. It never ends."""
    known = set(keys)
    missing: set[str] = set()
    while True:
        await asyncio.sleep(PARTITIONS_CHECKED_S)
        try:
            found = await existing_topics(client, topics, pattern, CHECK_TIMEOUT_S)
        except KafkaliteError:
            continue
        absent = {key.topic for key in known} - found.keys()
        for topic in sorted(absent & missing):  # twice: a node may not know it for a moment
            click.echo(f"note: there is no topic {topic!r} any more", err=True)
            known = {key for key in known if key.topic != topic}
        missing = absent
        new = {TopicPartition(topic, number) for topic, count in found.items() for number in range(count)} - known
        consumer.add(dict.fromkeys(new, EARLIEST))
        known |= new
