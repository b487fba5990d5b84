"""A short chaos on real processes; `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.testing import chaos

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

KINDS = {"kill -9", "kill -9 controller", "SIGSTOP", "SIGTERM", "ZooKeeper restart"}


@pytest.mark.checklist(18, 56, "F25")
async def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    said: list[str] = []
    tally, found = await chaos.run(tmp_path, seconds=25, seed=7, rate=1_000, say=said.append)
    assert found.clean, (said, found)
    assert not tally.failed, said
    assert tally.faults.keys() == KINDS, said
    # A cluster that had stopped taking records would lose none either: it went on between the faults.
    went_on = sum(after > before for before, after in zip(tally.acked_at_fault, tally.acked_at_fault[1:], strict=False))
    assert went_on * 2 > len(tally.acked_at_fault) - 1, tally.acked_at_fault
    assert found.read >= len(tally.acked) > 0
