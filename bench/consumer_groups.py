"""One consumer group of many members (KIP-848): how long a rebalance takes, and what others at the node notice of it.

    python -m bench.consumer_groups [--members 1000] [--partitions 2000] [--seconds 20]

One node. The members are connections that speak the protocol and give up partitions at once. Meanwhile another connection sends
an ApiVersions every few milliseconds: its slowest answer bounds the time for which the node's loop was held.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster

_GROUP, _TOPIC = "many", "wide"


class LoadMember:
    """One member on a connection of its own."""

    def __init__(self, number: int, interval_s: float) -> None:
        self.name = f"member-{number:05}"
        self.interval_s = interval_s
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.client = FrameClient()
        self.is_silent = False

    async def run(self, host: str, port: int) -> None:
        await self.client.connect(host, port)
        while not self.is_silent:
            await self.beat()
            await asyncio.sleep(self.interval_s)
        self.client.close()

    async def beat(self) -> None:
        request = wire.ConsumerGroupHeartbeatRequest
        if self.epoch == 0:
            asked = request(_GROUP, self.name, 0, None, None, 60_000, [_TOPIC], None, None, [])
        else:
            owned = [request.TopicPartitions(*each) for each in self.owned.items()]
            asked = request(_GROUP, self.name, self.epoch, topic_partitions=owned)
        answer = await _asked(self.client, asked, 1)
        if answer.error_code:
            raise RuntimeError(f"{self.name}: {answer.error_code} {answer.error_message}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}


async def _asked(client: FrameClient, message: Any, version: int) -> Any:
    client.send(message, version)
    return (await client.receive())[1]


#: In a process of its own, so that it measures the node and not the members: writes each round trip (seconds) as a line.
PROBE = """
import socket, struct, sys, time
from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import frame
asked = frame(wire.ApiVersionsRequest("probe", "1"), 3, 1)
k = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    began = time.perf_counter()
    k.sendall(asked)
    left = struct.unpack(">i", k.recv(4, socket.MSG_WAITALL))[0]
    k.recv(left, socket.MSG_WAITALL)
    print(time.perf_counter() - began, flush=True)
    time.sleep(0.005)
"""


class Probe:
    """Round trips of a request that needs nothing but the node's loop."""

    def __init__(self, host: str, port: int, directory: Path) -> None:
        self._path = directory / "probe"
        self._seen = 0
        with self._path.open("wb") as out:
            self._process = subprocess.Popen([sys.executable, "-c", PROBE, host, str(port)], stdout=out)
        # On a busy machine its start takes longer than the first pause.
        while not self._path.stat().st_size and self._process.poll() is None:
            time.sleep(0.05)

    def take(self) -> str:
        """Since the last call: 99th percentile and slowest, ms."""
        delays = sorted(map(float, self._path.read_text().split()[self._seen :]))
        self._seen += len(delays)
        return f"answers p99 {delays[int(len(delays) * 0.99)] * 1e3:.1f} ms, slowest {delays[-1] * 1e3:.1f} ms"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


async def _settled(members: list[LoadMember], partitions: int) -> float:
    began = time.perf_counter()
    while True:
        owned = sum(len(numbers) for member in members for numbers in member.owned.values())
        if owned == partitions and len({member.epoch for member in members}) == 1:
            return time.perf_counter() - began
        await asyncio.sleep(0.02)


async def _measure(cluster: ProcessCluster, directory: Path, count: int, partitions: int, seconds: float) -> None:
    host, _, port = next(iter(cluster.bootstrap)).rpartition(":")
    where = (host, int(port))
    admin = FrameClient()
    await admin.connect(*where)
    create = wire.CreateTopicsRequest
    await admin.ask(create([create.CreatableTopic(_TOPIC, partitions, 1)], 60_000), 4)
    find = wire.FindCoordinatorRequest(key_type=0, coordinator_keys=[_GROUP])
    for _ in range(100):
        if not (await admin.ask(find, 4)).coordinators[0].error_code:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)
    node = next(iter(cluster.nodes.values()))
    probe = Probe(*where, directory)
    async with asyncio.TaskGroup() as group:
        await asyncio.sleep(2)
        click.echo(f"nothing to do: {probe.take()}")
        members = [LoadMember(number, 5.0) for number in range(count)]
        cpu = node.cpu_seconds()
        for member in members:
            group.create_task(member.run(*where))
        took = await _settled(members, partitions)
        click.echo(
            f"{count} join at once: settled after {took:.1f} s, CPU {node.cpu_seconds() - cpu:.1f} s, {probe.take()}"
        )
        cpu = node.cpu_seconds()
        await asyncio.sleep(seconds)
        share = (node.cpu_seconds() - cpu) / seconds
        click.echo(f"{count} stay: {share:.1%} of a core, {probe.take()}")
        more = [LoadMember(count + number, 5.0) for number in range(10)]
        cpu = node.cpu_seconds()
        for member in more:
            group.create_task(member.run(*where))
            await asyncio.sleep(0.2)
        took = await _settled([*members, *more], partitions)
        click.echo(
            f"10 more, one by one: settled after {took:.1f} s, CPU {node.cpu_seconds() - cpu:.1f} s, {probe.take()}"
        )
        for member in [*members, *more]:
            member.is_silent = True
    probe.stop()


@click.command(help=__doc__)
@click.option("--members", default=1_000, show_default=True)
@click.option("--partitions", default=2_000, show_default=True)
@click.option("--seconds", default=20.0, show_default=True)
def main(members: int, partitions: int, seconds: float) -> None:
    """Start a node and measure."""
    with (
        tempfile.TemporaryDirectory() as directory,
        ProcessCluster(
            Path(directory), nodes=1, settings={"default.replication.factor": 1, "offsets.topic.num.partitions": 1}
        ) as cluster,
    ):
        asyncio.run(_measure(cluster, Path(directory), members, partitions, seconds))


if __name__ == "__main__":
    main()
