"""Chaos on real processes: numbered records under acks=all while nodes are killed, paused and restarted, then a census.

    python -m kafkalite.testing.chaos --seconds 120 --seed 7

The schedule comes from the seed; what the processes make of it does not, so a run is not repeatable to the letter.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import Consumer
from kafkalite.client.producer import Producer
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition
from kafkalite.testing.processes import ProcessCluster, kazoo_client

TOPIC = "chaos"
#: Time in seconds that a node has to report its state.
_ANSWER_S = 2.0
Say = Callable[[str], None]


@dataclass
class Tally:
    """What was sent and what came of it."""

    #: (partition, offset) of each acknowledged record, by its number.
    acked: dict[int, tuple[int, int]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    #: Longest silence between two acknowledgements, seconds.
    longest_silence_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    #: How many were acknowledged when each fault was done.
    acked_at_fault: list[int] = field(default_factory=list)


@dataclass
class Census:
    """What a reader found in the end."""

    read: int
    lost: list[int]
    duplicates: list[int]
    #: Pairs of numbers that stand in the wrong order within a partition.
    disordered: list[tuple[int, int]]
    #: Acknowledged at one offset, found at another.
    moved: list[int]

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicates or self.disordered or self.moved)


class Faults:
    """Does one fault after the other; at its end everything runs again.

    Args:
        pace: factor of every wait; below 1 the faults follow each other faster.
    """

    def __init__(
        self, cluster: ProcessCluster, rng: random.Random, tally: Tally, say: Say, *, pace: float = 1.0
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._tally = tally
        self._say = say
        self._pace = pace

    async def run(self, until: float) -> None:
        """Return after `until`, when each kind has been done at least once."""
        actions = [self._kill, self._kill, self._pause, self._terminate, self._kill_controller, self._zookeeper]
        # Each kind once in random order, then at random.
        queue = self._rng.sample(actions, len(actions))
        await asyncio.sleep(1.0)
        while queue or time.monotonic() < until:
            action = queue.pop() if queue else self._rng.choice(actions)
            await action()
            await self._wait(1.0, 4.0)

    async def _wait(self, low_s: float, high_s: float) -> None:
        await asyncio.sleep(self._rng.uniform(low_s, high_s) * self._pace)

    def _note(self, kind: str, detail: str) -> None:
        self._tally.faults[kind] += 1
        self._tally.acked_at_fault.append(len(self._tally.acked))
        self._say(f"  {kind}: {detail}")

    async def _restart(self, broker_id: int) -> None:
        await self._wait(0.0, 6.0)
        await asyncio.to_thread(self._cluster.restart, broker_id)

    async def _kill(self) -> None:
        broker_id = self._rng.choice(sorted(self._cluster.nodes))
        self._note("kill -9", f"node {broker_id}")
        self._cluster.nodes[broker_id].kill()
        await self._restart(broker_id)

    async def _kill_controller(self) -> None:
        # The fault before may have left the cluster without one for the length of a session.
        broker_id = await asyncio.to_thread(any_controller, self._cluster)
        self._note("kill -9 controller", f"node {broker_id}")
        self._cluster.nodes[broker_id].kill()
        await self._restart(broker_id)

    async def _terminate(self) -> None:
        broker_id = self._rng.choice(sorted(self._cluster.nodes))
        self._note("SIGTERM", f"node {broker_id}")
        code = await asyncio.to_thread(self._cluster.nodes[broker_id].terminate)
        assert code == 0, f"node {broker_id} ended with {code} after SIGTERM"
        await self._restart(broker_id)

    async def _pause(self) -> None:
        broker_id = self._rng.choice(sorted(self._cluster.nodes))
        seconds = self._rng.uniform(0.5, 8.0)
        self._note("SIGSTOP", f"node {broker_id} for {seconds * self._pace:.1f} s")
        self._cluster.nodes[broker_id].signal(signal.SIGSTOP)
        await asyncio.sleep(seconds * self._pace)
        self._cluster.nodes[broker_id].signal(signal.SIGCONT)

    async def _zookeeper(self) -> None:
        server = self._cluster.zookeeper
        if server is None:
            return
        self._note("ZooKeeper restart", "kill -9")
        server.kill()
        await self._wait(0.0, 2.0)
        await asyncio.to_thread(self._cluster.start_zookeeper)


def controller_of(cluster: ProcessCluster) -> int:
    """The id in /controller, through another client's eyes; -1 while there is none."""
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    try:
        with kazoo_client(cluster.zookeeper_connect, session_s=4, start_s=5) as client:
            return int(json.loads(client.get("/controller")[0])["brokerid"])
    except (KazooException, OSError, ValueError, KazooTimeoutError):
        return -1


def any_controller(cluster: ProcessCluster, within_s: float = math.inf) -> int:
    """Wait until there is one. Raises TimeoutError."""
    until = time.monotonic() + within_s
    while (broker_id := controller_of(cluster)) not in cluster.nodes:
        if time.monotonic() > until:
            raise TimeoutError("no controller")
        time.sleep(0.1)
    return broker_id


async def produce(cluster: ProcessCluster, tally: Tally, enough: asyncio.Event, *, rate: float) -> None:
    """Numbered records, `rate` a second, until `enough`; returns when each has its answer."""
    async with AsyncClient.connect(cluster.bootstrap) as client:
        producer = Producer(client, acks="all", idempotent=True, linger_ms=5, delivery_timeout_ms=120_000)
        last = time.monotonic()

        def done(number: int, future: asyncio.Future) -> None:  # type: ignore[type-arg]
            nonlocal last
            now = time.monotonic()
            if future.cancelled() or future.exception() is not None:
                tally.failed.add(number)
                return
            tally.longest_silence_s = max(tally.longest_silence_s, now - last)
            last = now
            metadata = future.result()
            tally.acked[number] = (metadata.partition, metadata.offset)

        number = 0
        began = time.monotonic()
        while not enough.is_set():
            due = int((time.monotonic() - began) * rate)
            while number < due:
                future = await producer.send(TOPIC, b"key-%d" % (number % 97), b"%d" % number)
                future.add_done_callback(partial(done, number))
                number += 1
            await asyncio.sleep(0.01)
        await producer.flush()
        await producer.close()


async def read_all(
    cluster: ProcessCluster, topic: str
) -> AsyncIterator[tuple[TopicPartition, int, bytes | None, bytes | None]]:
    """(partition, offset, key, value) of every committed record, up to the ends as they are at the beginning."""
    async with AsyncClient.connect(cluster.bootstrap) as client, Consumer(client) as consumer:
        count = await client.known_topic(topic)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        ends = await client.end_offsets(partitions)
        consumer.assign(dict.fromkeys((tp for tp in partitions if ends[tp] > 0), "earliest"))
        left = {tp for tp in partitions if ends[tp] > 0}
        while left:
            for record in await consumer.poll(max_records=5_000, timeout_s=30.0):
                tp = TopicPartition(record.topic, record.partition)
                if record.offset < ends[tp]:
                    yield tp, record.offset, record.key, record.value
                if record.offset >= ends[tp] - 1:
                    left.discard(tp)


async def census(cluster: ProcessCluster, tally: Tally) -> Census:
    """Read every partition from its beginning to its end and compare with the tally."""
    seen: dict[int, tuple[int, int]] = {}
    duplicates: list[int] = []
    disordered: list[tuple[int, int]] = []
    read = 0
    last_of_key: dict[tuple[int, bytes], int] = {}
    async for tp, offset, key, value in read_all(cluster, TOPIC):
        read += 1
        number = int(value or b"-1")
        if number in seen:
            duplicates.append(number)
        seen[number] = (tp.partition, offset)
        before = last_of_key.get((tp.partition, key or b""), -1)
        if before > number:
            disordered.append((before, number))
        last_of_key[tp.partition, key or b""] = number
    lost = [number for number in tally.acked if number not in seen]
    moved = [number for number, where in tally.acked.items() if number in seen and seen[number] != where]
    return Census(read, lost, duplicates, disordered, moved)


async def wait_in_sync(cluster: ProcessCluster, topic: str, replicas: int, deadline_s: float = 90.0) -> float:
    """Wait until every partition has a leader and a full ISR, as far as any node that answers knows; the seconds it took.

    Every node is asked: one that was just cut off still returns its earlier view. Raises TimeoutError.
    """
    began = time.monotonic()
    async with asyncio.timeout(deadline_s):
        while not await _all_see_in_sync(cluster.bootstrap, topic, replicas):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.1)
    return time.monotonic() - began


async def _all_see_in_sync(addresses: Sequence[str], topic: str, replicas: int) -> bool:
    heard = 0
    for address in addresses:
        try:
            # A client of its own for each question: one that knows more nodes may ask any.
            async with asyncio.timeout(_ANSWER_S), AsyncClient.connect([address]) as client:
                found = (await client.metadata([topic])).topics[0]
        except (KafkaliteError, OSError):  # a TimeoutError is an OSError
            continue
        if not found.partitions or not all(p.leader >= 0 and len(p.isr) >= replicas for p in found.partitions):
            return False
        heard += 1
    return heard > 0


async def run(directory: Path, *, seconds: float, seed: int, rate: float, say: Say) -> tuple[Tally, Census]:
    """The whole of it: cluster, load, faults, healing, census."""
    rng = random.Random(seed)
    settings = {
        "zookeeper.session.timeout.ms": 3_000,
        "replica.lag.time.max.ms": 4_000,
        "controlled.shutdown.max.wait.ms": 5_000,
        "http.port": -1,
    }
    tally = Tally()
    cluster = ProcessCluster(directory, nodes=3, settings=settings)
    with cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, 6, 3, configs={"min.insync.replicas": "2"})])
        await wait_in_sync(cluster, TOPIC, 3)
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(cluster, tally, enough, rate=rate))
            await Faults(cluster, rng, tally, say, pace=min(1.0, seconds / 60)).run(time.monotonic() + seconds)
            enough.set()
        healed = await wait_in_sync(cluster, TOPIC, 3)
        say(f"  healed: every ISR full {healed:.1f} s after the last fault")
        found = await census(cluster, tally)
    return tally, found


@click.command()
@click.option("--seconds", default=120.0, show_default=True)
@click.option("--seed", default=None, type=int, help="Default: drawn, and printed.")
@click.option("--rate", default=2_000.0, show_default=True, help="Records a second.")
def main(seconds: float, seed: int | None, rate: float) -> None:
    """Numbered records under acks=all while nodes are killed, paused and restarted; then count."""
    seed = seed if seed is not None else random.SystemRandom().randrange(10**6)
    click.echo(f"chaos: {seconds:.0f} s, seed {seed}, {rate:.0f} records/s, RF 3, min.insync.replicas 2, acks=all")
    with tempfile.TemporaryDirectory(prefix="kafkalite-chaos-") as directory:
        tally, found = asyncio.run(run(Path(directory), seconds=seconds, seed=seed, rate=rate, say=click.echo))
    faults = ", ".join(f"{kind} x{count}" for kind, count in sorted(tally.faults.items()))
    click.echo(f"faults: {faults}")
    click.echo(
        f"acked = {len(tally.acked)}, failed = {len(tally.failed)}, read = {found.read}, lost = {len(found.lost)}, "
    )
    click.echo(
        f"duplicates = {len(found.duplicates)}, out of order = {len(found.disordered)}, moved = {len(found.moved)}, "
        f"longest silence = {tally.longest_silence_s:.1f} s"
    )
    if not found.clean:
        click.echo(f"FAILED: lost {found.lost[:10]} duplicates {found.duplicates[:10]} moved {found.moved[:10]}")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
