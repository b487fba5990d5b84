"""The simulation is worth believing only if it finds bugs: classic ones are planted in the product, and must be caught.

Each is an error that a replicated log of this design has had (CHECKLIST part 3), under a plan that brings it out;
without the bug the same plan passes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.producer_state import ProducerStates
from kafkalite.replica import hosted
from kafkalite.replica import isr as isr_rules
from kafkalite.testing.plan import Fault, FaultKind, Plan, draw
from kafkalite.testing.sim_network import Link
from kafkalite.testing.simulation import Simulation

Patch = pytest.MonkeyPatch


def ack_before_replication(patch: Patch) -> None:
    """The high watermark is the leader's own end."""
    patch.setattr(hosted, "next_high_watermark", lambda leader: leader.log_end_offset)


def no_fsync(patch: Patch) -> None:
    """With log.flush.before.ack, a flush that does nothing."""

    async def flush(self: PartitionLog) -> Any:
        self.synced_offset = self.log_end_offset
        return self.synced_offset

    patch.setattr(PartitionLog, "flush", flush)


def no_deduplication(patch: Patch) -> None:
    """A producer's retry is appended again (F25)."""
    patch.setattr(ProducerStates, "find_duplicate", lambda self, header: None)
    patch.setattr("kafkalite.log.producer_state._check_sequence", lambda entry, header: None)


def joins_at_once(patch: Patch) -> None:
    """A follower enters the ISR whatever it has (C10)."""
    patch.setattr(isr_rules, "may_join", lambda *_, **__: True)


def plan(seed: int, flush_before_ack: bool, *faults: Fault) -> Plan:
    """Three nodes, three partitions, a fast network, and these faults."""
    drawn = draw(1)
    return dataclasses.replace(
        drawn,
        seed=seed,
        nodes=3,
        topics={"topic1": 3},
        flush_before_ack=flush_before_ack,
        log_dirs=("/data1",),
        fault_time_s=20.0,
        settings={**drawn.settings, "zookeeper.session.timeout.ms": 1_500, "replica.lag.time.max.ms": 2_000},
        topic_settings={**drawn.topic_settings, "log.flush.before.ack": str(flush_before_ack).lower()},
        link=Link(),
        producers=2,
        batches_per_s=15.0,
        consumers=1,
        faults=faults,
    )


def each_node(kind: FaultKind, for_s: float, every_s: float = 2.5) -> list[Fault]:
    """One node after the other."""
    return [Fault(2.0 + every_s * number, kind, f"node{1 + number % 3}", for_s) for number in range(6)]


NODES = ("node1", "node2", "node3")

BUGS: list[tuple[Callable[[Patch], None], Plan]] = [
    (ack_before_replication, plan(1, False, *each_node(FaultKind.ISOLATE, 4.0, 5.0))),
    (no_fsync, plan(1, True, *(Fault(5.0, FaultKind.POWER, node, 0.5) for node in NODES))),
    (
        no_deduplication,  # answers that come later than a producer's patience
        dataclasses.replace(plan(1, False), link=Link(spikes_per_mille=20, spike_ns=15_000_000_000)),
    ),
    (joins_at_once, plan(1, False, *each_node(FaultKind.SLOW, 6.0))),
]


@pytest.mark.parametrize(("plant", "plan"), BUGS, ids=[plant.__name__ for plant, _ in BUGS])
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], plan: Plan, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    result = Simulation(plan).run()
    assert result.violation is not None, result.line()


@pytest.mark.parametrize("plan", [plan for _, plan in BUGS], ids=[plant.__name__ for plant, _ in BUGS])
def test_without_the_bug_the_same_plan_passes(plan: Plan) -> None:
    result = Simulation(plan).run()
    assert result.violation is None, "\n".join([*result.log[-20:], result.line()])
