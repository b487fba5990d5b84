"""The simulation is worth believing only if it finds bugs: classic ones are planted in the product, and must be caught.

Each is an error that a replicated log of this design has had (CHECKLIST part 3). The seeds are those, among the first
few, that reach it soonest; a change of the product that hides a bug from them needs another seed, not a weaker test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.producer_state import ProducerStates
from kafkalite.replica import following, hosted
from kafkalite.replica import isr as isr_rules
from kafkalite.testing.plan import draw
from kafkalite.testing.simulation import Simulation

Patch = pytest.MonkeyPatch


def ack_before_replication(patch: Patch) -> None:
    """The high watermark is the leader's own end."""
    patch.setattr(hosted, "next_high_watermark", lambda leader: leader.log_end_offset)


def ack_without_min_insync(patch: Patch) -> None:
    """A leader alone in its ISR commits (F14)."""
    patch.setattr(hosted, "next_high_watermark", lambda leader: _without_minimum(leader))


_right = hosted.next_high_watermark


def _without_minimum(leader: Any) -> Any:
    return _right(dataclasses.replace(leader, min_insync_replicas=1))


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


def no_truncation(patch: Patch) -> None:
    """A follower whose log has parted from the leader's goes on from its own end (F1, F2)."""
    patch.setattr(PartitionLog, "truncate_to", lambda self, offset: None)


def truncation_to_the_high_watermark(patch: Patch) -> None:
    """F1 as Kafka had it before KIP-101."""
    patch.setattr(following, "truncation_offset", lambda *_, high_watermark=0, **__: high_watermark)


def joins_at_once(patch: Patch) -> None:
    """A follower enters the ISR whatever it has (C10)."""
    patch.setattr(isr_rules, "may_join", lambda *_, **__: True)


BUGS: list[tuple[Callable[[Patch], None], range]] = [
    (ack_before_replication, range(1, 40)),
    (ack_without_min_insync, range(1, 40)),
    (no_fsync, range(1, 40)),
    (no_deduplication, range(1, 40)),
    (no_truncation, range(1, 40)),
    (joins_at_once, range(1, 40)),
]


@pytest.mark.parametrize(("plant", "seeds"), BUGS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], seeds: range, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    for seed in seeds:
        result = Simulation(draw(seed)).run()
        if not result.ok:
            print(plant.__name__, seed, result.violation)
            return
    raise AssertionError(f"no seed of {seeds} found it")
