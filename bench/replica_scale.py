"""How a replica manager carries many partitions: commands, idle followers, one busy partition among thousands.

    python bench/replica_scale.py [PARTITIONS]

Two nodes in one process over RPC on loopback, a simulated ZooKeeper; prints one line per measure.
"""

import asyncio
import importlib.util
import statistics
import sys
import tempfile
import time
from pathlib import Path

from kafkalite.telemetry import logs

logs.configure(level="error")
ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("harness", ROOT / "tests/unit/replica/conftest.py")
assert spec is not None and spec.loader is not None
harness = importlib.util.module_from_spec(spec)
sys.modules["harness"] = harness
spec.loader.exec_module(harness)

from kafkalite.model import TopicPartition  # noqa: E402
from kafkalite.record.builder import build_batch  # noqa: E402


class Latency:
    """How late the loop calls back."""

    def __init__(self) -> None:
        self.worst_ms = 0.0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            due = time.perf_counter() + 0.005
            await asyncio.sleep(0.005)
            self.worst_ms = max(self.worst_ms, (time.perf_counter() - due) * 1000)

    def stop(self) -> float:
        self._task.cancel()
        return self.worst_ms


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        cluster = harness.TestCluster(
            Path(directory), 2, **{"replica.lag.time.max.ms": 30_000, "zookeeper.session.timeout.ms": 18_000,
                                   "replica.fetch.wait.max.ms": 500}
        )  # fmt: skip
        await cluster.start()
        tps = [TopicPartition("t", p) for p in range(count)]
        cluster.create_topic("t", dict.fromkeys(range(count), (1, 2)))
        states = [cluster.decide(tp, leader=1, isr=(1, 2), epoch=0) for tp in tps]
        for number, what in ((1, "create and lead"), (2, "create and follow")):
            latency, started = Latency(), time.perf_counter()
            await cluster.command(number, *states)
            took = time.perf_counter() - started
            print(f"{what} {count}: {took:.2f} s, loop late by {latency.stop():.0f} ms at worst")
        await harness.until(lambda: len(cluster.node(1).partition(tps[-1]).entries) == 1, timeout_s=60)
        for number, what in ((1, "the same command again, leader"), (2, "the same again, follower")):
            started = time.perf_counter()
            await cluster.command(number, *states)
            print(f"{what}: {time.perf_counter() - started:.3f} s")
        await asyncio.sleep(1)
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.sleep(5)
        print(f"idle: {(time.process_time() - cpu) / (time.perf_counter() - wall) * 100:.1f} % of a core, both nodes")
        batch = build_batch([(None, b"x" * 1000)])
        took_ms = []
        cpu = time.process_time()
        for _ in range(500):
            started = time.perf_counter()
            answer = await cluster.node(1).produce(tps[7], batch=batch)
            assert answer.error == 0
            took_ms.append((time.perf_counter() - started) * 1000)
        print(
            f"acks=all on one of {count}: p50 {statistics.median(took_ms):.2f} ms, worst {max(took_ms):.1f} ms, "
            f"{(time.process_time() - cpu) / 500 * 1000:.2f} ms CPU each, both nodes"
        )
        started = time.perf_counter()
        await asyncio.gather(*(cluster.node(1).produce(tp, batch=batch) for tp in tps))
        print(f"one batch to each of {count}: {time.perf_counter() - started:.2f} s until all are acked")
        keeper = cluster.node(1).manager._isr_keeper
        started = time.perf_counter()
        await keeper._look(may_shrink=True)
        print(f"ISR tick: {(time.perf_counter() - started) * 1000:.1f} ms")
        started = time.perf_counter()
        cluster.node(1).manager.checkpoint_high_watermarks()
        print(f"high watermark checkpoint: {(time.perf_counter() - started) * 1000:.1f} ms")
        again = [cluster.decide(tp, leader=2, isr=(1, 2), epoch=1) for tp in tps]
        for number, what in ((2, "become leader"), (1, "become follower")):
            latency, started = Latency(), time.perf_counter()
            await cluster.command(number, *again)
            took = time.perf_counter() - started
            print(f"{what} of {count}: {took:.2f} s, loop late by {latency.stop():.0f} ms at worst")
        await cluster.stop()


asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3_300))
