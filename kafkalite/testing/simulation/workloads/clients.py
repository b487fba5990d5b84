"""The clients of a simulated cluster: the Python client, each in a process of its own on a host of its own.

Every record's value names it: "producer/partition:count" and padding. Counts go up per producer and partition, so a
log alone shows whether something is twice, missing or out of order.
"""

from __future__ import annotations

import asyncio
import math
import random

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import Consumer
from kafkalite.client.producer import Producer, RecordMetadata
from kafkalite.env.seams import Env
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import Endpoint, TopicPartition
from kafkalite.record.reader import read_records
from kafkalite.rpc.answers import RpcError
from kafkalite.testing.simulation import security as sim_security
from kafkalite.testing.simulation.checkers.cluster import RecordHistory
from kafkalite.testing.simulation.plan import Plan
from kafkalite.testing.simulation.workloads.kafka import KAFKA_PORT

#: Maximum number of a producer's unacknowledged records, so that a slow cluster is not overloaded.
_OUTSTANDING_MAX = 100


def record_name(value: bytes) -> str:
    """The name in a record's value."""
    return value.partition(b" ")[0].decode()


def client_of(plan: Plan, env: Env, client_id: str) -> AsyncClient:
    """A client that knows all nodes, each process in an order of its own."""
    bootstrap = [Endpoint(name, KAFKA_PORT) for name in plan.node_names]
    env.random.shuffle(bootstrap)
    return AsyncClient(
        bootstrap,
        network=env.network,
        clock=env.clock,
        rng=env.random,
        client_id=client_id,
        request_timeout_s=5.0,
        dialling=sim_security.dialling() if plan.reauth_ms is not None else None,
        entropy=env.entropy,
    )


class ProducerWorkload:
    """Sends numbered records to every partition until it is stopped, then waits for all to be delivered."""

    def __init__(self, name: str, plan: Plan, history: RecordHistory) -> None:
        self.name = name
        self._plan = plan
        self._history = history
        self._counts: dict[TopicPartition, int] = {}
        self.stopping = asyncio.Event()
        self.done = False
        self.outstanding = 0

    async def run(self, env: Env) -> None:
        """The program."""
        partitions = [
            TopicPartition(topic, number) for topic, count in self._plan.topics.items() for number in range(count)
        ]
        # From a source of its own: producers that live on draw what they always drew.
        lives = random.Random(f"{self._plan.seed}/lives/{self.name}")
        async with client_of(self._plan, env, self.name) as client:
            while not self.stopping.is_set():
                life_s = self._plan.life_s * lives.uniform(0.5, 1.5) or math.inf
                await self._live(client, partitions, env, env.clock.monotonic() + life_s)
        self.done = True

    async def _live(self, client: AsyncClient, partitions: list[TopicPartition], env: Env, until: float) -> None:
        """One producer, which has an id of its own."""
        source = env.random
        async with Producer(
            client,
            linger_ms=source.choice((0, 5, 50)),
            batch_bytes=source.choice((1_000, 16_384)),
            delivery_timeout_ms=self._plan.patience_ms,
            request_timeout_ms=source.choice((3_000, 8_000)),
            max_in_flight=source.choice((1, 5)),
        ) as producer:
            while not self.stopping.is_set() and env.clock.monotonic() < until:
                where = source.choice(partitions)
                if self.outstanding > _OUTSTANDING_MAX:
                    await asyncio.sleep(0.1)
                    continue
                for _ in range(source.choice((1, 1, 2, 5))):
                    await self._send(producer, where, source)
                await asyncio.sleep(source.expovariate(self._plan.batches_per_s))
            await producer.flush()

    async def _send(self, producer: Producer, where: TopicPartition, source: random.Random) -> None:
        count = self._counts.get(where, 0)
        name = f"{self.name}/{where}:{count}"
        value = f"{name} ".encode() + source.randbytes(source.randrange(self._plan.record_bytes))
        try:
            future = await producer.send(where.topic, None, value, partition=where.partition)
        except (ApiError, RpcError):
            return  # nothing was taken
        self._counts[where] = count + 1
        self._history.sent += 1
        self.outstanding += 1

        def delivered(done: asyncio.Future[RecordMetadata]) -> None:
            self.outstanding -= 1
            if done.cancelled() or done.exception() is not None:
                self._history.fail(name)
                return
            self._history.ack((where.topic, where.partition), done.result().offset, name)

        future.add_done_callback(delivered)


class NearbyConsumerWorkload:
    """Reads all partitions in fetch sessions, from replicas in its rack, and reports to the history what it saw."""

    def __init__(self, name: str, rack: str, plan: Plan, history: RecordHistory) -> None:
        self.name = name
        self._rack = rack
        self._plan = plan
        self._history = history

    async def run(self, env: Env) -> None:
        """The program."""
        positions: dict[TopicPartition, int | str] = {
            TopicPartition(topic, number): 0 for topic, n in self._plan.topics.items() for number in range(n)
        }
        async with client_of(self._plan, env, self.name) as client:
            while True:
                async with Consumer(
                    client, max_wait_ms=1_000, on_out_of_range=None, client_rack=self._rack
                ) as consumer:
                    consumer.assign(positions)
                    try:
                        async with asyncio.timeout(env.random.uniform(2, 15)):
                            await self._read(consumer, positions)
                    except TimeoutError:
                        pass  # from now on with another consumer, in other sessions
                    except ApiError as error:
                        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                            self._history.out_of_range((str(error), -1), -1)
                        await asyncio.sleep(0.1)
                    self._history.followers_asked += consumer.followers_asked

    async def _read(self, consumer: Consumer, positions: dict[TopicPartition, int | str]) -> None:
        while True:
            for record in await consumer.poll():
                where = TopicPartition(record.topic, record.partition)
                self._history.consumed(where, record.offset, record_name(record.value or b""))
                positions[where] = record.offset + 1


class ConsumerWorkload:
    """Reads every partition from its beginning, for ever, and records in the history what it saw."""

    def __init__(self, name: str, plan: Plan, history: RecordHistory) -> None:
        self.name = name
        self._plan = plan
        self._history = history
        self.positions: dict[TopicPartition, int] = {}

    async def run(self, env: Env) -> None:
        """The program."""
        async with client_of(self._plan, env, self.name) as client, asyncio.TaskGroup() as group:
            for topic, count in self._plan.topics.items():
                for number in range(count):
                    where = TopicPartition(topic, number)
                    group.create_task(self._follow(client, where), name=f"{self.name}/{where}")

    async def _follow(self, client: AsyncClient, where: TopicPartition) -> None:
        position = 0
        while True:
            try:
                _, body = await client.fetch_raw(where, position, 50_000, max_wait_ms=1_000)
            except RpcError:
                continue
            except ApiError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    # Nothing is ever removed here, and what was read was committed.
                    self._history.out_of_range((where.topic, where.partition), position)
                await asyncio.sleep(0.1)
                continue
            for record in read_records(body):
                if record.offset >= position:
                    self._history.consumed(
                        (where.topic, where.partition), record.offset, record_name(record.value or b"")
                    )
                    position = record.offset + 1
            self.positions[where] = position
