"""Short runs of fault schedules (kafkalite.testing.schedules); each of these has lost records, or stood still for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.testing import network, schedules

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

needs_hosts = pytest.mark.skipif(not network.available(), reason="needs root, iproute2 and nsenter")


@pytest.mark.parametrize(
    "name",
    [
        "suspend-all",
        # Found: the empty one led, and the others cut their logs to nothing.
        "power-loss-empty-disk",
        # Found: one of its two disks was, and it was all that was left of the ISR.
        "power-loss-one-disk",
        # Found: the ISR was left to the one that did not come back.
        "power-loss-one-stays-down",
        # Found: a cut off node took office again and again, and nobody noticed.
        pytest.param("net-controller", marks=needs_hosts),
        # Found: the ISR was left to the one whose host did not answer.
        pytest.param("net-host-gone", marks=needs_hosts),
    ],
)
async def test_a_schedule(name: str, tmp_path: Path) -> None:
    said: list[str] = []
    verdict = await schedules.run(name, tmp_path, seed=1, rate=200, pace=0.3, say=said.append)
    assert not verdict.wrong, (said, verdict.wrong)
    assert verdict.census.read >= len(verdict.tally.acked) > 0
