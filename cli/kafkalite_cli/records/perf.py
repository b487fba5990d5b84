"""`kafkalite perf produce | consume | e2e`: how fast the cluster is for one client of kafkalite."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import struct
from collections.abc import Callable
from typing import Any

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import EARLIEST, Consumer
from kafkalite.client.producer import Producer, RecordMetadata
from kafkalite.errors import ErrorCode, KafkaliteError, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.output import Output, size_text
from kafkalite_cli.parameters import MAX_ID, Bytes, Real, with_options
from kafkalite_cli.records.latencies import percentiles, percentiles_text, plot
from kafkalite_cli.records.produce import TOPIC_TIMEOUT_S
from kafkalite_cli.records.to_the_end import ToTheEnd

#: Latencies that are kept: 8 bytes each.
MAX_RECORDS = 50_000_000
#: A record of `perf e2e` begins with these and the time at which it was sent.
_MARK = b"kafkalite-perf"
_STAMP = struct.Struct(">16sd")


@click.group("perf")
@group_options
def perf(bootstrap: str | None) -> None:
    """Measure how fast the cluster is for one client of kafkalite; other clients differ (docs/performance.md)."""


@dataclass(frozen=True, slots=True)
class _PerfLoad:
    """What is sent. `size`: bytes of a value; `rate`: records a second (None: as fast as it can)."""

    records: int
    size: int
    rate: float | None
    acks: str
    linger_ms: float
    batch_bytes: int
    compression: str

    def producer(self, client: AsyncClient) -> Producer:
        return Producer(
            client,
            acks=self.acks,
            compression=self.compression,
            batch_bytes=self.batch_bytes,
            linger_ms=self.linger_ms,
            delivery_timeout_ms=int(client.timeout_s * 1000),
            max_block_ms=int(client.timeout_s * 1000),
        )


def load_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """What is sent: as a `_PerfLoad`, the argument `load` of the verb."""

    @functools.wraps(verb)
    def command(**given: Any) -> Any:
        load = _PerfLoad(**{each.name: given.pop(each.name) for each in dataclasses.fields(_PerfLoad)})
        return verb(load=load, **given)

    options = [
        click.option("--records", type=click.IntRange(1, MAX_RECORDS), default=100_000, show_default=True),
        click.option("--size", type=Bytes(1, 10_000_000), default=100, show_default=True, help="Bytes of a value."),
        click.option("--rate", type=Real(0.1), help="Records a second [default: as fast as it can]."),
        click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True),
        click.option("--linger-ms", type=Real(0), default=5, show_default=True),
        click.option("--batch-bytes", type=Bytes(most=MAX_ID), default=131_072, show_default=True),
        click.option(
            "--compression",
            type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            default="none",
            help="Codec of the batches.",
        ),
    ]
    return with_options(command, options)


class _TimedProducer:
    """Sends records, and keeps the time that each took to be acknowledged."""

    def __init__(self, client: AsyncClient, topic: str, load: _PerfLoad) -> None:
        self._client = client
        self._topic = topic
        self._records = load.records
        self._rate = load.rate
        self._padding = os.urandom(load.size)
        self.acked_ms: list[float] = []
        self.failed = 0
        self.first_error: BaseException | None = None

    async def run(self, producer: Producer, *, mark: bytes | None = None) -> float:
        """Seconds until all are acknowledged. With `mark` each value begins with it and the time."""
        began = self._client.now()
        for number in range(self._records):
            if self._rate is not None and (ahead := began + number / self._rate - self._client.now()) > 0:
                await asyncio.sleep(ahead)
            now = self._client.now()
            value = self._padding if mark is None else _STAMP.pack(mark, now) + self._padding[_STAMP.size :]
            future = await producer.send(self._topic, None, value)
            future.add_done_callback(functools.partial(self._count, sent=now))
            if number % 100 == 99 and self._rate is None:
                await asyncio.sleep(0)  # also a producer that is never full lets responses be read
        await producer.flush()
        await asyncio.sleep(0)  # the futures' callbacks run one turn of the loop after they are done
        return self._client.now() - began

    def _count(self, future: asyncio.Future[RecordMetadata], sent: float) -> None:
        error = None if future.cancelled() else future.exception()
        if error is None:
            self.acked_ms.append((self._client.now() - sent) * 1000)
            return
        self.failed += 1
        self.first_error = self.first_error or error

    def refuse_failures(self) -> None:
        """Raises ApiError if not all were acknowledged."""
        if self.failed:
            reason = f"{self.failed} of {self._records} records failed: {self.first_error}"
            raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, reason)


def _report(out: Output, what: str, records: int, size_bytes: int, seconds: float, latencies_ms: list[float]) -> None:
    ordered = sorted(latencies_ms)
    found = percentiles(ordered)
    value = {
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_s": round(records / seconds, 1) if seconds else 0,
        "bytes_per_s": round(size_bytes / seconds) if seconds else 0,
        "latency_ms": found,
    }
    if out.as_json:
        out.value(value)
        return
    rate = records / seconds if seconds else 0.0
    speed = size_text(int(size_bytes / seconds)) if seconds else "0 B"
    click.echo(f"{records:,} records {what} in {seconds:.2f} s: {rate:,.0f}/s, {speed}/s")
    if ordered:
        click.echo(f"latency: {percentiles_text(found)}\n")
        for line in plot(ordered):
            click.echo(line)


@perf.command("produce")
@click.argument("topic")
@load_options
@client_options
async def perf_produce(cli: Invocation, topic: str, load: _PerfLoad) -> None:
    """Send records, and show how long each took to be acknowledged. The values are random bytes.

    Example:

    \b
      kafkalite perf produce flights --records 100000 --size 500 --rate 5000
    """
    async with cli.connect() as client:
        await client.known_topic(topic, timeout_s=min(cli.timeout_s, TOPIC_TIMEOUT_S))
        timed = _TimedProducer(client, topic, load)
        async with load.producer(client) as producer:
            seconds = await timed.run(producer)
        timed.refuse_failures()
        _report(cli.out, "acknowledged", load.records, load.records * load.size, seconds, timed.acked_ms)


@perf.command("consume")
@click.argument("topic")
@click.option(
    "--records", type=click.IntRange(1, MAX_RECORDS), default=100_000, show_default=True, help="Most records."
)
@client_options
async def perf_consume(cli: Invocation, topic: str, records: int) -> None:
    """Read a topic from its beginning, and show how fast that was.

    Example:

    \b
      kafkalite perf consume flights --records 1000000
    """
    async with cli.connect() as client:
        count = await client.known_topic(topic, timeout_s=min(cli.timeout_s, TOPIC_TIMEOUT_S))
        keys = [TopicPartition(topic, number) for number in range(count)]
        ends = await client.end_offsets(keys)
        read = size = 0
        began = client.now()
        async with Consumer(client) as consumer:
            consumer.assign(dict.fromkeys(keys, EARLIEST))
            end = ToTheEnd(client, consumer, ends)
            while not end.is_reached() and read < records:
                for record in await consumer.poll(max_records=min(5_000, records - read), timeout_s=0.1):
                    read += 1
                    size += len(record.value or b"") + len(record.key or b"")
        _report(cli.out, "read", read, size, client.now() - began, [])


@perf.command("e2e")
@click.argument("topic")
@load_options
@client_options
async def perf_e2e(cli: Invocation, topic: str, load: _PerfLoad) -> None:
    """Send records and read them at the same time, and show how long each took from one to the other.

    Records of other clients are skipped. Values have at least 24 bytes.

    Example:

    \b
      kafkalite perf e2e flights --records 10000 --rate 1000 --linger-ms 0
    """
    load = dataclasses.replace(load, size=max(load.size, _STAMP.size))
    async with cli.connect() as client:
        count = await client.known_topic(topic, timeout_s=min(cli.timeout_s, TOPIC_TIMEOUT_S))
        keys = [TopicPartition(topic, number) for number in range(count)]
        ends = await client.end_offsets(keys)
        mark = _MARK + os.urandom(2)
        timed = _TimedProducer(client, topic, load)
        latencies: list[float] = []
        async with Consumer(client) as consumer, load.producer(client) as producer:
            consumer.assign(ends)
            reading = client.supervisor.spawn("perf.read", _read(client, consumer, mark, load.records, latencies))
            seconds = await timed.run(producer, mark=mark)
            timed.refuse_failures()
            await reading
        if len(latencies) < load.records:
            reason = (
                f"{load.records - len(latencies)} of {load.records} records were not read within {cli.timeout_s:g} s"
            )
            raise api_error(ErrorCode.REQUEST_TIMED_OUT, reason)
        _report(cli.out, "sent and read", load.records, load.records * load.size, seconds, latencies)


async def _read(client: AsyncClient, consumer: Consumer, mark: bytes, records: int, latencies_ms: list[float]) -> None:
    """Until all records with this mark were read, or none came for the client's `timeout_s`."""
    last = client.now()
    while len(latencies_ms) < records and client.now() - last < client.timeout_s:
        try:
            found = await consumer.poll(max_records=5_000, timeout_s=0.1)
        except KafkaliteError:
            await asyncio.sleep(0.1)
            continue
        now = client.now()
        for record in found:
            if record.value is not None and len(record.value) >= _STAMP.size and record.value.startswith(mark):
                latencies_ms.append((now - _STAMP.unpack_from(record.value)[1]) * 1000)
                last = now
