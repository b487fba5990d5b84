"""Producers whose requests name many partitions, and the check that only what they sent is appended.

Most of these partitions do not exist: a broker looks through all of them in several turns of the loop, and meanwhile receives what other
connections send. A record is sent once, several requests are under way on a connection, and each connection counts for itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafkalite.env.seams import Env
from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.simulation.checkers.cluster import RecordHistory, Violation
from kafkalite.testing.simulation.plan import Plan
from kafkalite.testing.simulation.workloads.kafka import NONE, SimKafkaClient, Unanswered

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

_PRODUCE = 9
#: Partitions that no topic has, in each request: more than fit in one step, fewer than make every handler take a copy.
_MISSING = 130
_FIRST_MISSING = 1_000
#: All records have this length, so that one request's stand where another's stood.
_RECORD_BYTES = 60
#: What a broker says of records that are not as they were sent.
_DAMAGED = {ErrorCode.CORRUPT_MESSAGE.value, ErrorCode.INVALID_RECORD.value}


class WideProducers:
    """None where the plan has none."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._plan = simulation.plan
        self._producers: list[_WideProducer] = []

    def start(self) -> None:
        """Start the programs."""
        for number in range(1, self._plan.wide + 1):
            producer = _WideProducer(f"wide{number}", self._plan, self._simulation.history)
            self._producers.append(producer)
            self._simulation.world.start(producer.name, producer.run, self._simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: nothing more is sent."""
        for producer in self._producers:
            producer.stopping.set()

    def stats(self) -> dict[str, int]:
        if not self._plan.wide:
            return {}
        producers = self._producers
        return {
            "wide": sum(each.acknowledged for each in producers),
            "wide_failed": sum(each.failed for each in producers),
        }


class _WideProducer:
    def __init__(self, name: str, plan: Plan, history: RecordHistory) -> None:
        self.name = name
        self.stopping = asyncio.Event()
        self.acknowledged = 0
        #: Records without an acknowledgement: they are not sent again.
        self.failed = 0
        self._plan = plan
        self._history = history
        self._lives = 0
        self._count = 0

    async def run(self, env: Env) -> None:
        """The program. Raises Violation."""
        client = SimKafkaClient(self._plan, env)
        partitions = [(topic, number) for topic, count in self._plan.topics.items() for number in range(count)]
        while not self.stopping.is_set():
            where = env.random.choice(partitions)
            sent: dict[int, str] = {}
            try:
                await self._round(client, env, where, sent)
            except Unanswered:
                # What was on its way may arrive after what is sent next, on another connection.
                self._lives += 1
                client.forget_leader(*where)
            for name in sent.values():
                self._history.fail(name)
            self.failed += len(sent)
            await asyncio.sleep(env.random.expovariate(3.0))
        client.close()

    async def _round(self, client: SimKafkaClient, env: Env, where: tuple[str, int], sent: dict[int, str]) -> None:
        """Requests at once, and their answers. `sent` keeps what was not acknowledged. Raises Unanswered, Violation."""
        host = await client.leader(*where)
        messages = []
        for number in range(env.random.randint(1, 3)):
            name = f"{self.name}.{self._lives}/{where[0]}-{where[1]}:{self._count:06}"
            self._count += 1
            sent[number] = name
            messages.append(self._request(where, name, env.clock.wall_ms()))
        for number, answer in enumerate(await client.ask_all(host, messages, _PRODUCE)):
            (mine,) = (each for each in answer.responses[0].partition_responses if each.index == where[1])
            damaged = [each for each in answer.responses[0].partition_responses if each.error_code in _DAMAGED]
            if damaged:
                raise Violation(f"records are appended as they were sent: {sent[number]}: {damaged[0]}")
            if mine.error_code == NONE:
                self.acknowledged += 1
                self._history.ack(where, mine.base_offset, sent.pop(number))
            else:
                client.forget_leader(*where)

    def _request(self, where: tuple[str, int], name: str, now_ms: int) -> Any:
        request = wire.ProduceRequest
        self._history.sent += 1
        builder = RecordBatchBuilder()
        builder.append(None, f"{name} ".encode().ljust(_RECORD_BYTES, b"."), (), now_ms)
        batch = bytes(builder.build())
        data = [request.PartitionProduceData(_FIRST_MISSING + number, batch) for number in range(_MISSING)]
        data.append(request.PartitionProduceData(where[1], batch))
        return request(None, -1, 5_000, [request.TopicProduceData(where[0], partition_data=data)])
