"""Random and damaged frames at live nodes for a while: do they stay up, does memory stay bounded, do others notice?

    python -m bench.fuzz_kafka [--seconds 120] [--seed 1] [--json FILE]

Real processes. Every API and version gets messages that make sense (names that exist, batches with a right CRC), that
make none, and bytes that are no message; a producer with acks=all writes to a topic of its own beside it. Exit status 1
and the reasons if a node ended, logged an exception, closed a connection that had only sent well-formed requests,
failed or slowed down the producer, or kept growing.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.figures import json_option, write_json
from kafkalite.kafka.apis import OFFERED
from kafkalite.protocol import wire
from kafkalite.protocol.schema import schemas
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.kafka_client import FrameClient, frame
from kafkalite.testing.kafka_messages import TOPICS, MessageMaker
from kafkalite.testing.processes import ProcessCluster

SETTINGS = {
    "group.initial.rebalance.delay.ms": 100,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "queued.max.request.bytes": 64 << 20,
    "max.partitions.per.topic": 50,
}
PROBE = "probe"
WORKERS = 8
#: A node may grow by this between the first fifth of the run and its end: caches fill, topics are made.
GROWTH_BYTES = 96 << 20
#: An acknowledgement of the producer beside it, at worst: the nodes share their processors with the attacker.
SLOWEST_ACK_S = 10.0
console = Console()


class Attacker:
    """Connections that come and go, each with some frames."""

    def __init__(self, endpoints: list[tuple[str, int]], source: random.Random) -> None:
        self._endpoints = endpoints
        self._source = source
        self.sent: collections.Counter[str] = collections.Counter()
        self.answers = 0
        #: The request that a connection with nothing but well-formed ones was waiting for when it was closed.
        self.findings: collections.Counter[str] = collections.Counter()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._connection()

    async def _connection(self) -> None:
        source = self._source
        reader, writer = await asyncio.open_connection(*source.choice(self._endpoints))
        waiting: dict[int, str] = {}
        is_clean = source.random() < 0.5
        try:
            for number in range(source.choice((1, 1, 5, 30))):
                name, data = self._well_formed(number, allow_silence=not is_clean)
                if not is_clean:
                    kind, data = self._damaged(data)
                    self.sent[kind] += 1
                else:
                    self.sent["well formed"] += 1
                    waiting[number] = name
                writer.write(data)
                await writer.drain()
            async with asyncio.timeout(source.choice((0.05, 0.5, 2))):
                while True:
                    size = int.from_bytes(await reader.readexactly(4))
                    answer = await reader.readexactly(size)
                    self.answers += 1
                    waiting.pop(int.from_bytes(answer[:4]), None)
                    if is_clean and not waiting:
                        return
        except TimeoutError:
            return  # it waits for a group, for records, for the rest of a frame: all fine
        except (OSError, asyncio.IncompleteReadError):
            if is_clean:
                self.findings[next(iter(waiting.values()), "after the last answer")] += 1
        finally:
            if source.random() < 0.5:
                writer.transport.abort()
            writer.close()

    def _well_formed(self, number: int, *, allow_silence: bool) -> tuple[str, bytes]:
        source = self._source
        name = source.choice(sorted(OFFERED))
        schema = schemas()[name + "Request"]
        version = source.choice(list(schema.versions))
        message = MessageMaker(source, schema, version).message()
        if name == "Produce" and not allow_silence:
            message.acks = source.choice((1, -1))  # with acks=0 an error closes the connection, as it should
        return f"{name} v{version}", frame(message, version, number, source.choice(("", "fuzz", "ü" * 50)))

    def _damaged(self, data: bytes) -> tuple[str, bytes]:
        source = self._source
        raw = bytearray(data)
        match source.choice(("flipped", "cut", "longer", "lying", "header", "noise", "half", "varint")):
            case "flipped":
                for _ in range(source.choice((1, 3, 20))):
                    raw[source.randrange(4, len(raw))] ^= 1 << source.randrange(8)
                return "flipped bits", bytes(raw)
            case "cut":
                body = raw[4 : source.randrange(4, len(raw) + 1)]
                return "cut short", len(body).to_bytes(4) + body
            case "longer":
                body = raw[4:] + source.randbytes(source.choice((1, 100, 10_000)))
                return "bytes behind", len(body).to_bytes(4) + body
            case "lying":
                size = source.choice((0, 1, 7, len(raw), 2**20, 2**24 + 1, 2**31 - 1, 2**32 - 1))
                return "a lying length", size.to_bytes(4) + raw[4:]
            case "header":
                raw[4:8] = source.randrange(100).to_bytes(2) + source.choice((0, 1, 9, 99, 2**15)).to_bytes(2)
                return "another API or version", bytes(raw)
            case "noise":
                return "noise", source.randbytes(source.choice((3, 50, 5_000)))
            case "half":
                return "half a frame", bytes(raw[: source.randrange(1, len(raw))])
            case _:
                at = source.randrange(min(14, len(raw) - 1), len(raw))
                raw[at:at] = b"\xff\xff\xff\xff\x0f"
                return "a huge count", (len(raw) - 4).to_bytes(4) + raw[4:]


class FuzzProbe:
    """A producer with acks=all beside it; every record is looked for at the end."""

    def __init__(self, endpoints: dict[int, tuple[str, int]]) -> None:
        self._endpoints = endpoints
        self.acked = 0
        self.errors: collections.Counter[str] = collections.Counter()
        self.slowest_s = 0.0
        self._client: FrameClient | None = None

    async def setup(self) -> None:
        client = await self._any()
        request = wire.CreateTopicsRequest
        topics = [request.CreatableTopic(PROBE, 1, 3)] + [request.CreatableTopic(name, 3, 3) for name in TOPICS[:3]]
        await client.ask(request(topics, 30_000), 5)
        client.close()
        await self._leader()

    async def _any(self) -> FrameClient:
        client = FrameClient()
        await client.connect(*next(iter(self._endpoints.values())))
        return client

    async def _leader(self) -> FrameClient:
        if self._client is None:
            asker = await self._any()
            topic = wire.MetadataRequest.MetadataRequestTopic(name=PROBE)
            answer = await asker.ask(wire.MetadataRequest([topic], allow_auto_topic_creation=False), 9)
            asker.close()
            self._client = FrameClient()
            await self._client.connect(*self._endpoints[answer.topics[0].partitions[0].leader_id])
        return self._client

    async def run(self) -> None:
        request = wire.ProduceRequest
        while True:
            builder = RecordBatchBuilder()
            builder.append(None, str(self.acked).encode(), (), 1_000)
            data = request.TopicProduceData(PROBE, partition_data=[request.PartitionProduceData(0, builder.build())])
            began = time.monotonic()
            try:
                client = await self._leader()
                answer = await client.ask(request(acks=-1, timeout_ms=5_000, topic_data=[data]), 9)
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self.errors[type(error).__name__] += 1
                self._client = None
                continue
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                self.errors[f"code {code}"] += 1
            else:
                self.acked += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            await asyncio.sleep(0.02)

    async def records(self) -> int:
        """What the log has of it."""
        request = wire.ListOffsetsRequest
        self._client = None  # on the old connection the answer to its last record may still be on its way
        client = await self._leader()
        topic = request.ListOffsetsTopic(PROBE, [request.ListOffsetsPartition(0, -1, -1)])
        answer = await client.ask(request(-1, 0, [topic]), 5)
        return int(answer.topics[0].partitions[0].offset)


def _exceptions(cluster: ProcessCluster) -> list[str]:
    """What the nodes' logs say of bugs, each kind once: the end of the trace, and where it was raised."""
    found: dict[str, None] = {}
    for node in cluster.nodes.values():
        trace: list[str] = []
        for line in node.log_path.read_text(errors="replace").splitlines():
            if "task.failed" in line:
                event = json.loads(line)
                found[f"{event['task']}: {event.get('exception', event['error'])[-1500:]}"] = None
            elif line.startswith("Traceback"):
                trace = [line]
            elif trace:
                trace.append(line)
                if not line.startswith(" "):
                    found["\n".join(trace[-12:])] = None
                    trace = []
    return list(found)


async def fuzz(cluster: ProcessCluster, seconds: float, seed: int) -> dict[str, Any]:
    endpoints = {}
    for broker_id, text in zip(cluster.nodes, cluster.bootstrap, strict=True):
        host, _, port = text.rpartition(":")
        endpoints[broker_id] = (host, int(port))
    probe = FuzzProbe(endpoints)
    await probe.setup()
    attackers = [Attacker(list(endpoints.values()), random.Random(f"{seed}/{at}")) for at in range(WORKERS)]
    samples: list[dict[str, float]] = []
    began = time.monotonic()

    async def sample() -> None:
        while True:
            memory = {
                f"node {each}": node.memory_bytes() / 2**20 for each, node in cluster.nodes.items() if node.running
            }
            samples.append({"s": time.monotonic() - began, **memory})
            console.print("  ".join(f"{name}: {value:.0f}" for name, value in samples[-1].items()))
            await asyncio.sleep(max(1.0, seconds / 20))

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            group.create_task(probe.run())
            for attacker in attackers:
                group.create_task(attacker.run())
            group.create_task(sample())
    problems = [f"{node.name} has ended" for node in cluster.nodes.values() if not node.running]
    problems += _exceptions(cluster)
    closed: collections.Counter[str] = collections.Counter()
    sent: collections.Counter[str] = collections.Counter()
    for attacker in attackers:
        closed += attacker.findings
        sent += attacker.sent
    problems += [f"closed on a well-formed {what}: {times} times" for what, times in sorted(closed.items())]
    if probe.errors:
        problems.append(f"the producer beside it failed: {dict(probe.errors)}")
    if probe.slowest_s > SLOWEST_ACK_S:
        problems.append(f"the producer beside it waited {probe.slowest_s:.1f} s")
    if not problems and (there := await probe.records()) < probe.acked:
        problems.append(f"{probe.acked} acknowledged, {there} there")
    warm = samples[len(samples) // 5]
    growth = {name: samples[-1].get(name, 0) - value for name, value in warm.items() if name != "s"}
    problems += [f"{name} grew by {by:.0f} MiB" for name, by in growth.items() if by > GROWTH_BYTES / 2**20]
    return {
        "seed": seed,
        "seconds": seconds,
        "sent": dict(sorted(sent.items())),
        "answers": sum(attacker.answers for attacker in attackers),
        "acked beside it": probe.acked,
        "slowest ack ms": probe.slowest_s * 1000,
        "memory MiB": samples,
        "growth MiB": growth,
        "problems": problems,
    }


@click.command()
@click.option("--seconds", type=float, default=120.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@json_option
def main(seconds: float, seed: int, json_file: Path | None) -> None:
    """Run it, print what was sent and seen."""
    with (
        tempfile.TemporaryDirectory(prefix="kafkalite-fuzz-") as directory,
        ProcessCluster(Path(directory), nodes=3, settings=SETTINGS) as cluster,
    ):
        result = asyncio.run(fuzz(cluster, seconds, seed))
    table = Table("frames", "sent")
    for name, times in result["sent"].items():
        table.add_row(name, f"{times:,}")
    console.print(table)
    console.print({key: value for key, value in result.items() if key not in ("sent", "memory MiB", "problems")})
    for problem in result["problems"][:50]:
        console.print(f"PROBLEM {problem}", markup=False)
    write_json(result, json_file)
    sys.exit(1 if result["problems"] else 0)


if __name__ == "__main__":
    main()
