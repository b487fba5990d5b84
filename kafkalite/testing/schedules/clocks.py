"""Wall clocks that jump. Needs libfaketime (Debian's package of that name); monotonic clocks stay what they are."""

from __future__ import annotations

import os
from pathlib import Path

from kafkalite.testing.processes import Process, ProcessCluster
from kafkalite.testing.schedules.stage import Stage, schedule

_LIBRARY = "faketime/libfaketimeMT.so.1"
_LIBRARY_DIRECTORIES = (Path("/usr/lib"), Path("/usr/local/lib"), *sorted(Path("/usr/lib").glob("*-linux-gnu")))
_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S


def library() -> Path | None:
    """libfaketime, if there is one; KAFKALITE_LIBFAKETIME says where if it is elsewhere."""
    if given := os.environ.get("KAFKALITE_LIBFAKETIME"):
        return Path(given)
    return next((each / _LIBRARY for each in _LIBRARY_DIRECTORIES if (each / _LIBRARY).exists()), None)


class ClockedCluster(ProcessCluster):
    """Nodes whose wall clocks can be set, each for itself, while they run."""

    def set_clock(self, broker_id: int, ahead_s: int) -> None:
        """From now on, this number of seconds ahead of the truth (behind, if negative)."""
        written = self._clock_file(broker_id).with_suffix(".new")
        written.write_text(f"{ahead_s:+d}\n")
        written.rename(self._clock_file(broker_id))

    def _clock_file(self, broker_id: int) -> Path:
        return self.directory / f"clock-{broker_id}"

    def _node(self, broker_id: int) -> Process:
        found = library()
        assert found is not None, "no libfaketime"
        if not self._clock_file(broker_id).exists():
            self.set_clock(broker_id, 0)
        node = super()._node(broker_id)
        node.before = (
            "env",
            f"LD_PRELOAD={found}",
            f"FAKETIME_TIMESTAMP_FILE={self._clock_file(broker_id)}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )
        return node


@schedule("clock-jumps", clocks=True, transactions=True)
async def clock_jumps(stage: Stage) -> None:
    """Wall clocks jump by seconds, hours and days, forward and back, of one node, of all; nodes are killed meanwhile."""
    cluster = stage.cluster
    assert isinstance(cluster, ClockedCluster)
    for ahead_s in (30, -30, _HOUR_S, -_HOUR_S, 3 * _DAY_S, -3 * _DAY_S, 0):
        victim = stage.shuffled()[0]
        cluster.set_clock(victim, ahead_s)
        await stage.watch(f"the clock of node {victim} is {ahead_s} s ahead", 4.0)
    for _ in range(6):
        ahead = {broker_id: stage.rng.choice((0, 5, -5, _HOUR_S, -_HOUR_S, 2 * _DAY_S)) for broker_id in cluster.nodes}
        for broker_id, ahead_s in ahead.items():
            cluster.set_clock(broker_id, ahead_s)
        stage.note(f"clocks are ahead by {ahead}")
        victim = stage.shuffled()[0]
        cluster.nodes[victim].kill()
        await stage.sleep(stage.rng.uniform(0.0, 4.0))
        cluster.restart(victim, wait=False)
        await stage.all_ready()
        await stage.going_on()
    for broker_id in cluster.nodes:
        cluster.set_clock(broker_id, 0)
    await stage.going_on()
    for broker_id, node in cluster.nodes.items():
        if "transaction.timed_out" in node.log_path.read_text(errors="replace"):
            stage.wrong(f"node {broker_id} aborted a transaction that was open for seconds")
