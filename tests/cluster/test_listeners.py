"""Two Kafka listeners on real processes: clients inside and outside at once, each with addresses that they can reach."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, wait_until
from tests.support.commands import kafkalite

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

#: Outside is bound on all addresses; its clients get one that the inside does not use.
_SETTINGS = QUICK | {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://0.0.0.0:0",
    "advertised.listeners": "INSIDE://localhost:0,OUTSIDE://127.0.0.2:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "default.replication.factor": 2,
}


async def test_clients_inside_and_outside(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=2, settings=_SETTINGS) as cluster:
        ports = {
            name: [node.ready[key].rpartition(":")[2] for node in cluster.nodes.values()]
            for name, key in (("127.0.0.2", "kafka.OUTSIDE"), ("localhost", "kafka"))
        }
        sides = {host: [f"{host}:{port}" for port in numbers] for host, numbers in ports.items()}
        for host, bootstrap in sides.items():
            async with AsyncClient.connect(bootstrap[0]) as client:
                async with asyncio.timeout(150):
                    while len(brokers := (await client.metadata([])).brokers) < 2:
                        await asyncio.sleep(0.05)
                assert sorted(f"{each.host}:{each.port}" for each in brokers) == sorted(bootstrap), host
        outside, inside = sides["127.0.0.2"], sides["localhost"]
        made = await asyncio.to_thread(
            kafkalite, "admin", "create-topic", "t", "--partitions", "4", bootstrap=outside[:1]
        )
        assert made.code == 0, made.err
        lines = b"".join(b"%d\n" % number for number in range(40))
        sent = await asyncio.to_thread(kafkalite, "produce", "t", bootstrap=outside[:1], stdin=lines)
        assert sent.code == 0, sent.err

        def read() -> bool:
            got = kafkalite("consume", "t", "--from", "beginning", "--max", "40", bootstrap=inside[:1])
            return got.code == 0 and sorted(got.out.split()) == sorted(lines.decode().split())

        assert await asyncio.to_thread(wait_until, read, "all records on the other side")
