"""What only an operator decides: who leads where no replica knows that it has all that is committed.

Two hosts have lost their power, and the disk of one has lost what it had synced as well. What is left may be complete, and nobody can know: the
cluster waits for `admin elect --unclean` (ADR 16). Nothing is excused for that: each of these faults leaves one copy that is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from kafkalite.errors import KafkaliteError
from kafkalite.protocol import wire
from kafkalite.testing.simulation.plan import FaultKind
from kafkalite.testing.simulation.workloads.clients import client_of

if TYPE_CHECKING:
    from kafkalite.env.seams import Env
    from kafkalite.testing.simulation.checkers.cluster import Partition
    from kafkalite.testing.simulation.run import Simulation

#: Nobody has led for as long as this, although all nodes run.
_PATIENCE_S = 20.0
_TIMEOUT_S = 5.0
_UNCLEAN = 1


class LastResort:
    """An operator who elects leaders where only they can. Never one where a replica may lead without them: a leader must come there."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.elected = 0

    def start(self) -> None:
        """When the faults are over."""
        if any(fault.kind is FaultKind.LIE for fault in self._simulation.plan.faults):
            self._simulation.world.start("last-resort", self._elect, self._simulation.client_ended)

    async def _elect(self, env: Env) -> None:
        undecided = self._undecided()
        async with client_of(self._simulation.plan, env, "last-resort") as client:
            while True:
                await asyncio.sleep(_PATIENCE_S)
                earlier, undecided = undecided, self._undecided()
                for topic, number in sorted(earlier & undecided):
                    which = wire.ElectLeadersRequest.TopicPartitions(topic, [number])
                    request = wire.ElectLeadersRequest(_UNCLEAN, [which], int(_TIMEOUT_S * 1000))
                    with contextlib.suppress(KafkaliteError):
                        await client.call_controller(request, timeout_s=_TIMEOUT_S)
                        self.elected += 1

    def _undecided(self) -> set[Partition]:
        """Nobody leads them, and each of those who may says itself that it may lack something."""
        zk = self._simulation.zk
        return {each for each, state in zk.states.items() if state.leader == -1 and zk.are_all_in_doubt(each, state)}
