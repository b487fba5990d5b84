"""An operator who makes the segments of the internal topics small, so that they roll, are compacted and pruned within a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite.env.seams import Env
from kafkalite.model import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from kafkalite.protocol import wire
from kafkalite.testing.simulation.plan import Plan
from kafkalite.testing.simulation.workloads.kafka import NONE, SimKafkaClient, Unanswered

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

SEGMENT_BYTES = 2_048
_SETTINGS = {
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "1000",
}
_VERSION = 1
_TOPIC, _SET = 2, 0


def internal_topics(plan: Plan) -> list[str]:
    """Those that the plan's clients need."""
    found = []
    is_grouped = plan.members or plan.streams or plan.shares or plan.administered or plan.deletes
    if is_grouped or plan.transactions or plan.commits:
        found.append(GROUP_TOPIC)
    if plan.transactions or plan.commits:
        found.append(TRANSACTION_TOPIC)
    if plan.shares or plan.administered:
        found.append(SHARE_TOPIC)
    return found


class SmallSegments:
    """It does nothing if the plan leaves the topics as they are."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Start the program."""
        if self._simulation.plan.rolls:
            self._simulation.world.start("internal-topics", self._run, self._simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: what does not exist by now stays as it is."""
        self._stopping.set()

    def stats(self) -> dict[str, int]:
        return {}

    async def _run(self, env: Env) -> None:
        client = SimKafkaClient(self._simulation.plan, env)
        missing = internal_topics(self._simulation.plan)
        request = wire.IncrementalAlterConfigsRequest
        changes = [request.AlterableConfig(name, _SET, value) for name, value in _SETTINGS.items()]
        while missing and not self._stopping.is_set():
            resources = [request.AlterConfigsResource(_TOPIC, topic, changes) for topic in missing]
            try:
                answer = await client.ask(client.any_host(), request(resources, validate_only=False), _VERSION)
            except Unanswered:
                continue
            missing = [each.resource_name for each in answer.responses if each.error_code != NONE]
            await asyncio.sleep(0.5)
        client.close()
