"""Chaos on real processes: numbered records under acks=all while nodes are killed, paused and restarted, then a census.

    python -m kafkalite.testing.chaos --seconds 120 --seed 7

The schedule comes from the seed; what the processes make of it does not, so a run is not repeatable to the letter.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import any_controller, wait_in_sync
from kafkalite.testing.numbered_records import TOPIC, Census, Tally, census, produce
from kafkalite.testing.processes import ProcessCluster


class Faults:
    """Does one fault after the other; at its end everything runs again.

    Args:
        pace: factor of every wait; below 1 the faults follow each other faster.
    """

    def __init__(
        self, cluster: ProcessCluster, rng: random.Random, tally: Tally, say: Callable[[str], None], *, pace: float
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._tally = tally
        self._say = say
        self._pace = pace

    async def run(self, until: float) -> None:
        """Return after `until`, when each kind has been done at least once."""
        actions = [self._kill, self._kill, self._pause, self._terminate, self._kill_controller, self._zookeeper]
        # Each kind once in random order, then at random.
        queue = self._rng.sample(actions, len(actions))
        await asyncio.sleep(1.0)
        while queue or time.monotonic() < until:
            action = queue.pop() if queue else self._rng.choice(actions)
            await action()
            await self._wait(1.0, 4.0)

    async def _wait(self, low_s: float, high_s: float) -> None:
        await asyncio.sleep(self._rng.uniform(low_s, high_s) * self._pace)

    def _note(self, kind: str, detail: str) -> None:
        self._tally.faults[kind] += 1
        self._tally.acked_at_fault.append(len(self._tally.acked))
        self._say(f"  {kind}: {detail}")

    async def _restart(self, broker_id: int) -> None:
        await self._wait(0.0, 6.0)
        await asyncio.to_thread(self._cluster.restart, broker_id)

    async def _kill(self) -> None:
        broker_id = self._rng.choice(sorted(self._cluster.nodes))
        self._note("kill -9", f"node {broker_id}")
        self._cluster.nodes[broker_id].kill()
        await self._restart(broker_id)

    async def _kill_controller(self) -> None:
        # The fault before may have left the cluster without one for the length of a session.
        broker_id = await asyncio.to_thread(any_controller, self._cluster)
        self._note("kill -9 controller", f"node {broker_id}")
        self._cluster.nodes[broker_id].kill()
        await self._restart(broker_id)

    async def _terminate(self) -> None:
        broker_id = self._rng.choice(sorted(self._cluster.nodes))
        self._note("SIGTERM", f"node {broker_id}")
        code = await asyncio.to_thread(self._cluster.nodes[broker_id].terminate)
        assert code == 0, f"node {broker_id} ended with {code} after SIGTERM"
        await self._restart(broker_id)

    async def _pause(self) -> None:
        broker_id = self._rng.choice(sorted(self._cluster.nodes))
        seconds = self._rng.uniform(0.5, 8.0)
        self._note("SIGSTOP", f"node {broker_id} for {seconds * self._pace:.1f} s")
        self._cluster.nodes[broker_id].signal(signal.SIGSTOP)
        await asyncio.sleep(seconds * self._pace)
        self._cluster.nodes[broker_id].signal(signal.SIGCONT)

    async def _zookeeper(self) -> None:
        server = self._cluster.zookeeper
        if server is None:
            return
        self._note("ZooKeeper restart", "kill -9")
        server.kill()
        await self._wait(0.0, 2.0)
        await asyncio.to_thread(self._cluster.start_zookeeper)


async def run(
    directory: Path, *, seconds: float, seed: int, rate: float, say: Callable[[str], None]
) -> tuple[Tally, Census]:
    """The whole of it: cluster, load, faults, healing, census."""
    rng = random.Random(seed)
    settings = {
        "zookeeper.session.timeout.ms": 3_000,
        "replica.lag.time.max.ms": 4_000,
        "controlled.shutdown.max.wait.ms": 5_000,
        "http.port": -1,
    }
    tally = Tally()
    cluster = ProcessCluster(directory, nodes=3, settings=settings)
    with cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, 6, 3, configs={"min.insync.replicas": "2"})])
        await wait_in_sync(cluster, TOPIC, 3)
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(cluster, tally, enough, rate=rate))
            await Faults(cluster, rng, tally, say, pace=min(1.0, seconds / 60)).run(time.monotonic() + seconds)
            enough.set()
        healed = await wait_in_sync(cluster, TOPIC, 3)
        say(f"  healed: every ISR full {healed:.1f} s after the last fault")
        found = await census(cluster, tally)
    return tally, found


@click.command()
@click.option("--seconds", default=120.0, show_default=True)
@click.option("--seed", default=None, type=int, help="Default: drawn, and printed.")
@click.option("--rate", default=2_000.0, show_default=True, help="Records a second.")
def main(seconds: float, seed: int | None, rate: float) -> None:
    """Numbered records under acks=all while nodes are killed, paused and restarted; then count."""
    seed = seed if seed is not None else random.SystemRandom().randrange(10**6)
    click.echo(f"chaos: {seconds:.0f} s, seed {seed}, {rate:.0f} records/s, RF 3, min.insync.replicas 2, acks=all")
    with tempfile.TemporaryDirectory(prefix="kafkalite-chaos-") as directory:
        tally, found = asyncio.run(run(Path(directory), seconds=seconds, seed=seed, rate=rate, say=click.echo))
    faults = ", ".join(f"{kind} x{count}" for kind, count in sorted(tally.faults.items()))
    click.echo(f"faults: {faults}")
    click.echo(
        f"acked = {len(tally.acked)}, failed = {len(tally.failed)}, read = {found.read}, lost = {len(found.lost)}, "
    )
    click.echo(
        f"duplicates = {len(found.duplicates)}, out of order = {len(found.disordered)}, moved = {len(found.moved)}, "
        f"longest silence = {tally.longest_silence_s:.1f} s"
    )
    if not found.clean:
        click.echo(f"FAILED: lost {found.lost[:10]} duplicates {found.duplicates[:10]} moved {found.moved[:10]}")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
