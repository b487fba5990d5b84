"""`kafkalite consume`: a topic's records to stdout."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import sys
from collections.abc import Callable, Sequence

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import EARLIEST, LATEST, ConsumedRecord, Consumer
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import TopicPartition
from kafkalite_cli.consume_group import consume_in_group
from kafkalite_cli.output import client_options, connect, run_async
from kafkalite_cli.parameters import MAX_LONG, Whole, is_whole
from kafkalite_cli.produce import TOPIC_TIMEOUT_S
from kafkalite_cli.to_the_end import ToTheEnd

_FIELD = re.compile(r"\{(topic|partition|offset|timestamp|key|value|headers)\}")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}


@click.command()
@click.argument("topic")
@click.option("--from", "start", metavar="beginning|end|OFFSET", default="end", show_default=True)
@click.option("--partition", type=Whole(0), help="Only this one [default: all].")
@click.option("--max", "maximum", type=Whole(0), metavar="N", help="Stop after N records.")
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
@click.option("--group", metavar="G", help="Read as a member of this group, from its committed offsets, and commit.")
@click.option("--read-committed", is_flag=True, help="Skip aborted and open transactions.")
@client_options
def consume(
    topic: str,
    start: str,
    partition: int | None,
    maximum: int | None,
    exit_at_end: bool,
    template: str,
    group: str | None,
    read_committed: bool,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Print committed records, by default one value per line; until SIGINT, --max or the end.

    With --json one object per line; keys and values that are not UTF-8 come as key_base64 and value_base64.

    With --group the topic's partitions are shared among all members, Kafka's clients included (assignor "range"); each
    goes on where the group is, or at --from where it has never been, and what is printed is committed.

    Examples:

    \b
      kafkalite consume flights --from beginning --max 5
      kafkalite consume flights --from beginning --exit-at-end --json | jq -r .key | sort | uniq -c
      kafkalite consume flights --group billing --format '{partition}:{offset} {value}\n'
    """
    position = parse_start(start)
    if isinstance(position, int) and partition is None:
        raise click.UsageError("--from OFFSET needs --partition: each partition counts its own offsets")
    if group is not None and partition is not None:
        raise click.UsageError("--group assigns the partitions: do not use it with --partition")
    show = json_line if as_json else formatter(template)

    async def work() -> None:
        async with connect(bootstrap, timeout_s) as client:
            count = await client.known_topic(topic, timeout_s=min(timeout_s, TOPIC_TIMEOUT_S))
            if partition is not None and partition >= count:
                text = f"{topic}-{partition}: the topic has {count} partitions"
                raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            keys = [TopicPartition(topic, number) for number in range(count) if partition in (None, number)]
            if group is not None:
                assert isinstance(position, str)  # an offset needs --partition
                await consume_in_group(
                    client, group, topic, position, maximum, exit_at_end, read_committed, timeout_s, show
                )
                return
            strict = None if isinstance(position, int) else EARLIEST
            async with Consumer(client, read_committed=read_committed, on_out_of_range=strict) as consumer:
                consumer.assign(dict.fromkeys(keys, position))
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, consumer.close)
                await _copy(client, consumer, keys, maximum, exit_at_end, timeout_s, show)

    run_async(work())


def parse_start(text: str) -> int | str:
    """Where to begin. Raises click.BadParameter."""
    if text in ("beginning", EARLIEST):
        return EARLIEST
    if text in ("end", LATEST):
        return LATEST
    if is_whole(text, MAX_LONG):
        return int(text)
    raise click.BadParameter(f"{text!r} is not beginning, end or an OFFSET", param_hint="--from")


def formatter(template: str) -> Callable[[ConsumedRecord], bytes]:
    """A function that writes a record as `template` says."""
    text = re.sub(r"\\[nt0\\]", lambda match: _ESCAPES[match.group()], template)
    parts = _FIELD.split(text)
    if parts == ["", "value", "\n"]:
        return lambda record: (record.value or b"") + b"\n"
    literal = [part.encode() for part in parts]

    def show(record: ConsumedRecord) -> bytes:
        pieces = []
        for index, part in enumerate(parts):
            if index % 2 == 0:
                pieces.append(literal[index])
            elif part == "headers":
                pieces.append(b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers))
            else:
                value = getattr(record, part)
                pieces.append(b"" if value is None else value if isinstance(value, bytes) else str(value).encode())
        return b"".join(pieces)

    return show


def json_line(record: ConsumedRecord) -> bytes:
    """A record as one line of JSON."""
    reported: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            reported[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            reported[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    if record.headers:
        reported["headers"] = [
            [name, None if value is None else value.decode("utf-8", "backslashreplace")]
            for name, value in record.headers
        ]
    return json.dumps(reported).encode() + b"\n"


async def _copy(
    client: AsyncClient,
    consumer: Consumer,
    keys: Sequence[TopicPartition],
    maximum: int | None,
    exit_at_end: bool,
    timeout_s: float,
    show: Callable[[ConsumedRecord], bytes],
) -> None:
    end = await ToTheEnd.of(client, consumer, list(keys), timeout_s) if exit_at_end else None
    out = sys.stdout.buffer
    left = sys.maxsize if maximum is None else maximum
    while left > 0 and not consumer.closed:
        for record in await consumer.poll(max_records=min(left, 5000)):
            if end is None or end.is_before(TopicPartition(record.topic, record.partition), record.offset):
                out.write(show(record))
                left -= 1
        out.flush()
        if end is not None and end.is_reached():
            return
