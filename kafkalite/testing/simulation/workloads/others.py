"""Programs of a simulated cluster that are started and stopped; of some it is asked in the end whether all is as it should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalite.testing.simulation.workloads.administered import AdministeredShareGroups
from kafkalite.testing.simulation.workloads.alterations import Alterations
from kafkalite.testing.simulation.workloads.committing import CommittingProducers
from kafkalite.testing.simulation.workloads.deleted_groups import DeletedGroups
from kafkalite.testing.simulation.workloads.growing import GrowingTopic
from kafkalite.testing.simulation.workloads.internal_topics import SmallSegments
from kafkalite.testing.simulation.workloads.promise import Promise
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


class JudgedWorkload(Workload, Protocol):
    """It has to come to an end when the faults are over."""

    def promises(self) -> Sequence[Promise]:
        """One after the other."""


def judged(simulation: Simulation) -> tuple[JudgedWorkload, ...]:
    """All that come to an end."""
    return CommittingProducers(simulation), DeletedGroups(simulation), AdministeredShareGroups(simulation)


def others(simulation: Simulation) -> tuple[Workload, ...]:
    """All of them."""
    return (
        WideProducers(simulation),
        Alterations(simulation),
        RecreatedTopic(simulation),
        GrowingTopic(simulation),
        SmallSegments(simulation),
    )
