"""`kafkalite produce`: lines from stdin to a topic."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer, RecordMetadata
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, RecordFate, api_error
from kafkalite.protocol import wire
from kafkalite.wording import number_of
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import Output, on_stop
from kafkalite_cli.parameters import MAX_ID, Bytes, Real, Whole
from kafkalite_cli.records.lines import LineError, RecordLine, decode_record

READ_BYTES = 256 * 1024
#: A line longer than this is no line.
MAX_LINE_BYTES = 64 * 1024 * 1024
#: A new topic may not be known everywhere yet.
TOPIC_TIMEOUT_S = 3.0


@click.command()
@click.argument("topic")
@click.option(
    "--input",
    "kind",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: a line is an object with value, key, headers, timestamp and partition, as consume --json writes it.",
)
@click.option("--key-separator", metavar="TEXT", help="A line is KEY<TEXT>VALUE.")
@click.option("--key", "fixed_key", metavar="TEXT", help="The key of all records.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of all records; repeat it.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option("--partition", type=Whole(0), help="All to this one [default: by key, or in turn].")
@click.option("--idempotent/--no-idempotent", default=None, help="No duplicates [default: with --acks all].")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    help="Codec of the batches.",
)
@click.option("--batch-bytes", type=Bytes(most=MAX_ID), default=131_072, show_default=True)
@click.option("--linger-ms", type=Real(0), default=5, show_default=True)
@client_options
async def produce(
    cli: Invocation,
    topic: str,
    kind: str,
    key_separator: str | None,
    fixed_key: str | None,
    headers: tuple[str, ...],
    acks: str,
    partition: int | None,
    *,
    idempotent: bool | None,
    compression: str,
    batch_bytes: int,
    linger_ms: float,
) -> int:
    """Send the lines of stdin as records; print how many are acknowledged.

    --timeout is how long a record may take to be delivered. A topic that does not exist is created if the cluster does that for
    clients (auto.create.topics.enable). In JSON a value of null is a tombstone; key_base64 and value_base64 hold bytes.

    Examples:

    \b
      seq 1 100000 | kafkalite produce flights
      kafkalite produce flights --key-separator : < lines.txt
      kafkalite produce flights --key LH1 --header source=ops <<< late
      kafkalite produce flights --input json <<< '{"key": "LH1", "value": {"late": 5}, "headers": {"source": "ops"}}'
    """
    if idempotent and acks != "all":
        raise click.UsageError("--idempotent needs --acks all")
    if key_separator == "":
        raise click.BadParameter("is empty", param_hint="--key-separator")
    if kind == "json" and (key_separator is not None or fixed_key is not None or headers):
        raise click.UsageError("--key, --key-separator and --header are for text: with --input json a line has its own")
    if key_separator is not None and fixed_key is not None:
        raise click.UsageError("give one of --key and --key-separator")
    separator = None if key_separator is None else key_separator.encode()
    common = RecordLine(None if fixed_key is None else fixed_key.encode(), None, tuple(map(_header, headers)))

    async with cli.connect() as client:
        await _known_or_created(client, topic)
        producer = Producer(
            client,
            acks=acks,
            idempotent=idempotent,
            compression=compression,
            batch_bytes=batch_bytes,
            linger_ms=linger_ms,
            delivery_timeout_ms=int(cli.timeout_s * 1000),
            max_block_ms=int(cli.timeout_s * 1000),
            max_record_bytes=2 * MAX_LINE_BYTES,  # the topic decides
        )
        run = _Run(client, topic, partition, separator, common, is_json=kind == "json")
        async with producer:
            await run.send_lines(producer)
        return run.report(cli.out)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode()


async def _known_or_created(client: AsyncClient, topic: str) -> None:
    """Wait for the topic; one that is not there is created if the cluster does so for clients. Raises ApiError."""
    patience_s = min(client.timeout_s, TOPIC_TIMEOUT_S)
    request = wire.MetadataRequest
    wanted = request([request.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    await client.call_any(wanted)
    try:
        await client.known_topic(topic, timeout_s=patience_s)
    except ApiError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise api_error(error.code, f"there is no topic {topic!r}") from None
        raise


class _Run:
    """Counts what becomes of the lines."""

    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        partition: int | None,
        separator: bytes | None,
        common: RecordLine,
        *,
        is_json: bool,
    ) -> None:
        """`common`: key and headers of lines of text."""
        self._client = client
        self._topic = topic
        self._partition = partition
        self._separator = separator
        self._common = common
        self._is_json = is_json
        self._started = client.now()
        self._lines = 0
        self.acked = 0
        #: Records that were not acknowledged, by what became of them.
        self.failed: Counter[RecordFate] = Counter()
        self.first_error: BaseException | None = None
        self.bad_line: str | None = None
        #: Why the rest of the input could not be read.
        self.unread: OSError | None = None
        #: Why the producer did not take a line.
        self.not_taken: KafkaliteError | None = None

    async def send_lines(self, producer: Producer) -> None:
        progress = _Progress(self)
        ticking = self._client.supervisor.spawn("produce.progress", progress.run())
        try:
            async for lines in stdin_lines():
                taken = await self._send(producer, lines)
                if taken < len(lines) or self.first_error is not None:
                    self.failed[RecordFate.NEVER_SENT] += sum(
                        1 for line in lines[taken:] if line.strip() or not self._is_json
                    )
                    return
        except LineError as error:
            self.bad_line = str(error)
        except OSError as error:
            self.unread = error
        finally:
            await producer.flush()
            # The futures' callbacks run one turn of the loop after they are done.
            await asyncio.sleep(0)
            ticking.cancel()
            progress.end()

    async def _send(self, producer: Producer, lines: list[bytes]) -> int:
        """How many lines the producer has taken; fewer than all after the first failure."""
        for index, line in enumerate(lines):
            self._lines += 1
            if self._is_json and not line.strip():
                continue
            record = None if self.first_error is not None else self._parsed(line)
            if record is None:
                return index
            try:
                future = await producer.send(
                    self._topic,
                    record.key,
                    record.value,
                    partition=record.partition if self._partition is None else self._partition,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            except KafkaliteError as error:
                self.not_taken = error
                return index
            future.add_done_callback(self._count)
        return len(lines)

    def _parsed(self, line: bytes) -> RecordLine | None:
        """None: it is no record, and `bad_line` says why."""
        if self._is_json:
            try:
                return decode_record(line)
            except LineError as error:
                self.bad_line = f"line {self._lines}: {error}"
                return None
        if self._separator is None:
            return RecordLine(self._common.key, line, self._common.headers)
        key, separator, value = line.partition(self._separator)
        if not separator:
            self.bad_line = f"line {self._lines} has no key: {line[:60].decode(errors='replace')!r}"
            return None
        return RecordLine(key, value, self._common.headers)

    def _count(self, future: asyncio.Future[RecordMetadata]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is None:
            self.acked += 1
            return
        fate = error.fate if isinstance(error, ApiError) else None
        self.failed[fate or RecordFate.UNKNOWN] += 1
        self.first_error = self.first_error or error

    def report(self, out: Output) -> int:
        """Raises UsageError: a line is no record. OSError: the input cannot be read. KafkaliteError: why a line was not taken, if no
        other record has failed."""
        seconds = self._client.now() - self._started
        failed = self.failed.total()
        reported = {
            "topic": self._topic,
            "acked": self.acked,
            "failed": failed,
            "unknown": self.failed[RecordFate.UNKNOWN],
            "refused": self.failed[RecordFate.REFUSED],
            "never_sent": self.failed[RecordFate.NEVER_SENT],
            "seconds": round(seconds, 3),
        }
        out.value(reported, f"{self.acked} acked")
        if self.first_error is not None:
            parts = [f"{count:,} {_FATES[fate]}" for fate in _FATES if (count := self.failed[fate])]
            counts = f"{number_of(failed, 'record')} failed ({', '.join(parts)})"
            click.echo(f"kafkalite: {counts}: {self.first_error}", err=True)
        elif isinstance(self.not_taken, ApiError):
            raise api_error(self.not_taken.code, f"{self.not_taken}; {number_of(failed, 'line')} not sent")
        elif self.not_taken is not None:
            raise self.not_taken
        if self.bad_line is not None:
            raise click.UsageError(self.bad_line)
        if self.unread is not None:
            raise OSError(self.unread.errno, self.unread.strerror, "stdin")
        return 1 if failed else 0


#: The words of the report.
_FATES = {
    RecordFate.UNKNOWN: "may or may not be in the log",
    RecordFate.REFUSED: "refused",
    RecordFate.NEVER_SENT: "never sent",
}


class _Progress:
    """A line on stderr, if that is a terminal and stdin is not."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._shown = sys.stderr.isatty() and not sys.stdin.isatty()

    async def run(self) -> None:
        if not self._shown:
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
        )
        from rich.console import Console

        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            total = _stdin_size()
            task = bar.add_task("producing", total=total, rate="")
            before = 0
            while True:
                await asyncio.sleep(0.2)
                acked = self._run.acked
                position = os.lseek(0, 0, os.SEEK_CUR) if total is not None else None
                rate = f"{acked:,} acked, {(acked - before) * 5:,}/s"
                bar.update(task, completed=position, rate=rate)
                before = acked

    def end(self) -> None:
        if self._shown:
            sys.stderr.flush()


def _stdin_size() -> int | None:
    info = os.fstat(0)
    return info.st_size if stat.S_ISREG(info.st_mode) else None


async def stdin_lines(fd: int = 0) -> AsyncIterator[list[bytes]]:
    """The lines of stdin without their ends, as they come, until its end, Ctrl-C or SIGTERM; then the beginning of a line is no line.

    Raises LineError: a line is too long. OSError: the input cannot be read. A thread reads: stdin may be a file, a pipe or a terminal, and must not hold up the loop. It is a daemon, because
    nothing can wake it from a read.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(8)
    is_stopped = False
    failure: OSError | None = None

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        chunks.put_nowait(b"")

    def read() -> None:
        nonlocal failure
        while True:
            room.acquire()
            try:
                data = os.read(fd, READ_BYTES)
            except OSError as error:
                failure, data = error, b""
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, data)
            except RuntimeError:  # the loop is closed: nobody wants it any more
                return
            if not data:
                return

    on_stop(stop)
    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest: list[bytes] = []
    size = 0
    while data := await chunks.get():
        room.release()
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            rest.append(data)
            size += len(data)
            if size > MAX_LINE_BYTES:
                raise LineError(f"a line of more than {MAX_LINE_BYTES} bytes")
            continue
        rest.append(head)
        lines = b"".join(rest).split(b"\n")
        rest, size = [tail], len(tail)
        yield [line.removesuffix(b"\r") for line in lines]
    if is_stopped:
        return
    if failure is not None:
        raise failure
    if last := b"".join(rest):
        yield [last]
