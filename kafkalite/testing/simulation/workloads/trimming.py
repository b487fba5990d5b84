"""A client that writes to a topic and deletes its records (DeleteRecords), and the check that they stay deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.env.seams import Env
from kafkalite.protocol import wire
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.simulation.checkers.cluster import ReplicaView, StateZnode, Violation
from kafkalite.testing.simulation.plan import TRIMMED, Plan
from kafkalite.testing.simulation.workloads.kafka import NONE, SimKafkaClient, Unanswered, produce_request

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

#: Versions of the requests.
_PRODUCE, _DELETE = 9, 1


class Trimming:
    """Nothing where the plan does not have the topic."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.stopping = asyncio.Event()
        #: The highest log start that was answered without an error.
        self.deleted = 0
        self.answers = 0

    def start(self, simulation: Simulation) -> None:
        if self._plan.trims:
            simulation.world.start("trimmer", self.run, simulation.client_ended)

    async def run(self, env: Env) -> None:
        """The program: a batch, and now and then everything up to an earlier one is deleted."""
        source = env.random
        client = SimKafkaClient(self._plan, env)
        written: list[int] = []
        while not self.stopping.is_set():
            try:
                written.append(await self._write(client, env))
                if len(written) > 2 and source.random() < 0.5:
                    # Not the newest ones: the checker has to see a record before it goes.
                    await self._delete(client, written[-2])
                    del written[:-2]
            except Unanswered:
                client.forget_leader(TRIMMED, 0)
            await asyncio.sleep(source.uniform(0.1, 0.5))
        client.close()

    async def _write(self, client: SimKafkaClient, env: Env) -> int:
        """The offset of the record. Raises Unanswered."""
        builder = RecordBatchBuilder()
        builder.append(b"key", b"to be deleted" + b" " * env.random.randrange(400), (), env.clock.wall_ms())
        answer = await self._ask(client, produce_request(TRIMMED, 0, builder.build()), _PRODUCE)
        one = answer.responses[0].partition_responses[0]
        if one.error_code != NONE:
            raise Unanswered(f"Produce: {one.error_code}")
        return int(one.base_offset)

    async def _delete(self, client: SimKafkaClient, before: int) -> None:
        """Raises Unanswered."""
        request = wire.DeleteRecordsRequest
        topic = request.DeleteRecordsTopic(TRIMMED, [request.DeleteRecordsPartition(0, before)])
        answer = await self._ask(client, request([topic], timeout_ms=3_000), _DELETE)
        one = answer.topics[0].partitions[0]
        if one.error_code != NONE:
            raise Unanswered(f"DeleteRecords: {one.error_code}")
        self.deleted = max(self.deleted, one.low_watermark)
        self.answers += 1

    async def _ask(self, client: SimKafkaClient, request: Any, version: int) -> Any:
        return await client.ask(await client.leader(TRIMMED, 0), request, version)

    def check(self, views: Iterable[ReplicaView], states: Mapping[tuple[str, int], StateZnode]) -> None:
        """The present leader serves no record that was deleted. Raises Violation."""
        state = states.get((TRIMMED, 0))
        if state is None or not self.deleted:
            return
        for view in views:
            leads = view.is_leader and (view.broker, view.leader_epoch) == (state.leader, state.leader_epoch)
            if view.partition == (TRIMMED, 0) and leads and view.log_start_offset < self.deleted:
                raise Violation(f"deleted records stay deleted: {view}, deleted up to {self.deleted}")
