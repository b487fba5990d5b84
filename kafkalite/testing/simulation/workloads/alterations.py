"""Clients that change settings of one topic at the same time, each a setting of its own, and the check that no confirmed change is lost."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from kafkalite.coordination import paths
from kafkalite.env.seams import Env
from kafkalite.protocol import wire
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.workloads.kafka import NONE, SimKafkaClient, Unanswered

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

_VERSION = 1
_TOPIC, _SET = 2, 0
#: Settings that mean nothing for a topic that is not compacted, and that no fault changes.
_KEYS = ("delete.retention.ms", "min.compaction.lag.ms")


class Alterations:
    """Nothing where the plan has none."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._topic = next(iter(simulation.plan.topics))
        self._stopping = asyncio.Event()
        self._confirmed = 0

    def start(self) -> None:
        """Start the programs."""
        if self._simulation.plan.alters:
            for key in _KEYS:
                alterer = _Alterer(self._simulation, self, key)
                self._simulation.world.start(f"alter-{key}", alterer.run, self._simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: nothing more is changed."""
        self._stopping.set()

    def stats(self) -> dict[str, int]:
        return {"alterations": self._confirmed} if self._simulation.plan.alters else {}

    @property
    def is_over(self) -> bool:
        return self._stopping.is_set()

    @property
    def topic(self) -> str:
        return self._topic

    def confirmed(self) -> None:
        """One more change."""
        self._confirmed += 1

    def value(self, key: str) -> str | None:
        """The setting as ZooKeeper has it."""
        found = self._simulation.world.zookeeper.peek(paths.config_entity("topics", self._topic))
        value = None if found is None else json.loads(found[0])["config"].get(key)
        return None if value is None else str(value)


class _Alterer:
    """Sets one setting to 1, 2, 3, ….

    A change without an answer may be made at any later time, over a newer one, too.
    """

    def __init__(self, simulation: Simulation, all_of_them: Alterations, key: str) -> None:
        self._plan = simulation.plan
        self._all = all_of_them
        self._key = key
        self._last: str | None = None
        self._unknown: set[str] = set()

    async def run(self, env: Env) -> None:
        """The program. Raises Violation."""
        client = SimKafkaClient(self._plan, env)
        count = 0
        while not self._all.is_over:
            count += 1
            await self._alter(client, str(count))
            await asyncio.sleep(env.random.expovariate(2.0))
            self._check()
        client.close()

    async def _alter(self, client: SimKafkaClient, value: str) -> None:
        request = wire.IncrementalAlterConfigsRequest
        change = request.AlterableConfig(self._key, _SET, value)
        resource = request.AlterConfigsResource(_TOPIC, self._all.topic, [change])
        try:
            answer = await client.ask(client.any_host(), request([resource], validate_only=False), _VERSION)
        except Unanswered:
            self._unknown.add(value)
            return
        if answer.responses[0].error_code != NONE:
            self._unknown.add(value)
            return
        self._last = value
        self._all.confirmed()

    def _check(self) -> None:
        value = self._all.value(self._key)
        if value != self._last and value not in self._unknown:
            raise Violation(f"confirmed settings stay: {self._key} was set to {self._last}, and is {value}")
