"""Programs of a simulated cluster that are started and stopped, and asked nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalite.testing.simulation.workloads.alterations import Alterations
from kafkalite.testing.simulation.workloads.growing import GrowingTopic
from kafkalite.testing.simulation.workloads.internal_topics import SmallSegments
from kafkalite.testing.simulation.workloads.recreated import RecreatedTopic
from kafkalite.testing.simulation.workloads.wide import WideProducers

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation


class Workload(Protocol):
    """One of them; it does nothing where the plan has none."""

    def start(self) -> None:
        """The faults begin."""

    def stop(self) -> None:
        """The faults are over."""

    def stats(self) -> dict[str, int]:
        """What it has done, by name."""


def others(simulation: Simulation) -> tuple[Workload, ...]:
    """All of them."""
    return (
        WideProducers(simulation),
        Alterations(simulation),
        RecreatedTopic(simulation),
        GrowingTopic(simulation),
        SmallSegments(simulation),
    )
