"""A topic that gets partitions, one after the other. Every request for one must end when the faults are over (`FinalChecks`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite.coordination import paths
from kafkalite.env.seams import Env
from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.testing.simulation.workloads.kafka import NONE, SimKafkaClient, Unanswered

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

_TOPIC = "growing"
_CREATE, _GROW = 7, 3
_TIMEOUT_MS = 2_000
#: Enough for a run; each is a replica on three nodes.
_LARGEST = 24


class GrowingTopic:
    """Nothing where the plan does not have it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._stopping = asyncio.Event()
        self._partitions = 1

    def start(self) -> None:
        """Start the program."""
        if self._simulation.plan.grows:
            self._simulation.world.start("growing", self._run, self._simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: nothing more is requested."""
        self._stopping.set()

    def stats(self) -> dict[str, int]:
        return {"partitions_added": self._partitions - 1} if self._simulation.plan.grows else {}

    async def _run(self, env: Env) -> None:
        client = SimKafkaClient(self._simulation.plan, env)
        is_there = False
        while not self._stopping.is_set():
            try:
                if not is_there:
                    is_there = await self._create(client)
                elif self._partitions < _LARGEST:
                    await self._grow(client)
            except Unanswered:
                pass
            await asyncio.sleep(env.random.uniform(0.1, 0.6))
        client.close()

    async def _create(self, client: SimKafkaClient) -> bool:
        create = wire.CreateTopicsRequest
        request = create([create.CreatableTopic(_TOPIC, 1, 3, [], [])], _TIMEOUT_MS, validate_only=False)
        answer = (await client.ask(client.any_host(), request, _CREATE)).topics[0]
        return answer.error_code in (NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _grow(self, client: SimKafkaClient) -> None:
        grow = wire.CreatePartitionsRequest
        topic = grow.CreatePartitionsTopic(_TOPIC, self._partitions + 1, None)
        request = grow([topic], _TIMEOUT_MS, validate_only=False)
        answer = (await client.ask(client.any_host(), request, _GROW)).results[0]
        if answer.error_code in (NONE, ErrorCode.INVALID_PARTITIONS):  # an earlier one was carried out late
            self._partitions += 1


def standing(simulation: Simulation) -> str | None:
    """A request for partitions that nobody has carried out or refused."""
    names = simulation.world.zookeeper.tree.children(paths.partitions_add(_TOPIC))
    return f"requests for the partitions {names} of {_TOPIC} stand" if names else None
