"""Nodes behind address translation: librdkafka inside and outside at once, each with addresses that the other cannot use."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from kafkalite.testing.processes import Process
from tests.support.translation import Host, Proxies, Translation, translation

from .conftest import CLUSTER_SETTINGS, run_client

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

_SCRIPT = Path(__file__).parent / "clients" / "confluent_side.py"
_COUNT = 200
#: Outside: what the console of each node says where the consoles are, each fetched at the address that it advertises.
_BROWSE = """
import json, sys, time, urllib.request
found = []
for url in sys.argv[1:]:
    while len(brokers := json.load(urllib.request.urlopen(url + "/api/status", timeout=60))["brokers"]) < len(sys.argv) - 1:
        time.sleep(0.05)
    found.append(sorted(broker["http"] for broker in brokers))
print(json.dumps(found))
"""


def _node(number: int, host: Host, zookeeper: str, directory: Path) -> Process:
    inside_port, bound, outside_port, rpc = host.ports
    settings = CLUSTER_SETTINGS | {
        "listeners": f"INSIDE://{host.inside}:{inside_port},OUTSIDE://0.0.0.0:{bound}",
        "advertised.listeners": f"INSIDE://{host.inside}:{inside_port},OUTSIDE://{host.outside}:{outside_port}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "host": host.inside,
        "rpc.port": rpc,
        "http.port": host.console[0],
        "advertised.http": f"{host.outside}:{host.console[1]}",
        "default.replication.factor": 2,
    }
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    arguments = ["serve", "--id", str(number), "--zookeeper", zookeeper, "--log-dir", str(directory / f"{number}")]
    return Process(f"node {number}", [*arguments, *flags], directory / f"{number}.log", before=host.before)


@pytest.mark.parametrize("kind", [translation, Proxies])
async def test_both_sides_at_once(python_clients: Path, tmp_path: Path, kind: type[Translation]) -> None:
    with kind() as network:
        first, second = network.hosts
        arguments = ["zookeeper", "--dir", str(tmp_path / "zookeeper"), "--port", "0", "--host", first.inside]
        zookeeper = Process("zookeeper", arguments, tmp_path / "zookeeper.log", before=first.before)
        processes = [zookeeper]
        try:
            where = f"{first.inside}:{(await asyncio.to_thread(zookeeper.start))['port']}"
            for number, host in enumerate((first, second), 1):
                processes.append(_node(number, host, where, tmp_path))
                processes[-1].launch()
            for process in processes[1:]:
                await asyncio.to_thread(process.wait_ready)
            expected = {
                "inside": sorted(f"{host.inside}:{host.ports[0]}" for host in network.hosts),
                "outside": sorted(f"{host.outside}:{host.ports[2]}" for host in network.hosts),
            }

            consoles = sorted(f"http://{host.outside}:{host.console[1]}" for host in network.hosts)
            command = [*network.before_outside, sys.executable, "-c", _BROWSE, *consoles]
            assert json.loads((await run_client(command)).decode()) == [consoles, consoles]

            async def side(name: str, before: tuple[str, ...]) -> None:
                command = [*before, str(python_clients), str(_SCRIPT), expected[name][0], name, str(_COUNT)]
                seen = json.loads((await run_client(command)).decode())
                assert seen == {"brokers": expected[name], "errors": [], "seen": 2 * _COUNT}

            await asyncio.gather(side("inside", network.before_inside), side("outside", network.before_outside))
        finally:
            for process in processes:
                process.kill()
