"""A simulated cluster whose listeners ask for SASL: everything goes on, and sessions are renewed (KIP-368)."""

from __future__ import annotations

import pytest

from kafkalite.testing.simulation.plan import Fault, FaultKind
from kafkalite.testing.simulation.run import Simulation
from tests.sim.three_nodes import three_nodes


@pytest.mark.parametrize("reauth_ms", [0, 2_000])
def test_nodes_and_clients_log_in_again_while_nodes_die(reauth_ms: int) -> None:
    faults = [Fault(3.0 + 3.0 * number, FaultKind.CRASH, f"node{1 + number % 3}", 1.0) for number in range(3)]
    drawn = three_nodes(*faults, topics={"topic1": 2}, fault_time_s=12.0, transactions=1, reauth_ms=reauth_ms)
    seen: list[str] = []
    result = Simulation(drawn, watch=seen.append).run()
    assert result.violation is None, result.line()
    assert result.stats["acked"] == result.stats["sent"]
    assert result.stats["committed"] > 0
    # The transactional client lets its sessions end, and dials again.
    ended = [line for line in seen if "the session has ended and was not renewed" in line]
    refused = [line for line in seen if "authentication.failed" in line]
    assert ended == refused
    assert bool(ended) == bool(reauth_ms)
