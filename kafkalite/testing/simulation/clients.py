"""The clients of a simulated cluster that every plan has: producers, consumers, the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from kafkalite.env.seams import Env
from kafkalite.errors import ApiError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.rpc.answers import RpcError
from kafkalite.testing.simulation.workloads.clients import (
    ConsumerWorkload,
    NearbyConsumerWorkload,
    ProducerWorkload,
    client_of,
)
from kafkalite.testing.simulation.workloads.operator import OperatorWorkload
from kafkalite.testing.simulation.workloads.promise import CONVERGE_S

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation


class Clients:
    """See the module. `operator` None: the plan has no requests of an administrator, or they have not begun."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._plan = simulation.plan
        self.operator: OperatorWorkload | None = None
        self._producers: list[ProducerWorkload] = []

    async def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create them, through a client. Raises Violation: it takes too long."""
        simulation = self._simulation
        created: list[str] = []

        async def program(env: Env) -> None:
            async with client_of(self._plan, env, "admin") as client:
                while not created:
                    try:
                        created.extend(result.topic for result in await client.create_topics(topics))
                    except (ApiError, RpcError):
                        await asyncio.sleep(0.5)

        simulation.world.start("admin", program, simulation.client_ended)
        await simulation.until(lambda: None if created else "no answer", CONVERGE_S, "topics are created")

    def start(self) -> None:
        """Start all of them."""
        simulation = self._simulation
        programs: list[tuple[str, Callable[[Env], Coroutine[Any, Any, None]]]] = []
        for number in range(1, self._plan.producers + 1):
            producer = ProducerWorkload(f"producer{number}", self._plan, simulation.history)
            self._producers.append(producer)
            programs.append((producer.name, producer.run))
        for number in range(1, self._plan.consumers + 1):
            consumer = ConsumerWorkload(f"consumer{number}", self._plan, simulation.history)
            programs.append((consumer.name, consumer.run))
        for number in range(2 if self._plan.racks else 0):
            nearby = NearbyConsumerWorkload(f"nearby{number}", f"rack{number}", self._plan, simulation.history)
            programs.append((nearby.name, nearby.run))
        if self._plan.orders:
            self.operator = OperatorWorkload(self._plan)
            for topic in self._plan.topics:
                for number, replicas in simulation.assignment(topic).items():
                    self.operator.assignments[topic, number] = {replicas}
            programs.append((self.operator.name, self.operator.run))
        for name, program in programs:
            simulation.world.start(name, program, simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: nothing more is sent or requested."""
        for producer in self._producers:
            producer.stopping.set()
        if self.operator is not None:
            self.operator.stopping.set()

    def not_delivered(self) -> str | None:
        """What the producers still hold; None: nothing."""
        late = [f"{each.name} holds {each.outstanding} records" for each in self._producers if not each.done]
        return ", ".join(late) or None
