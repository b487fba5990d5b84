"""Three real nodes serve the schema registry; the one that coordinates it is killed between registrations."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.testing.processes import ProcessCluster

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

SETTINGS = {"zookeeper.session.timeout.ms": 6_000}


def http_of(directory: Path, node: int) -> str:
    lines = (directory / f"node-{node}.log").read_text().splitlines()
    ready = [json.loads(line) for line in lines if '"node.ready"' in line]
    return f"http://{ready[-1]['http']}"


def ask(url: str, body: object = None, content_type: str = "application/json") -> Any:
    """The response's value; (status, text) if it is an error."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data=data, headers={"Content-Type": content_type})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def coordinator(directory: Path) -> int:
    """The node that has loaded the registry last."""
    loaded: list[tuple[str, int]] = []
    for node in (1, 2, 3):
        for line in (directory / f"node-{node}.log").read_text().splitlines():
            if '"coordinator.loaded"' in line and '"_schemas-0"' in line:
                loaded.append((json.loads(line)["at"], node))
    return max(loaded)[1]


async def test_what_was_registered_survives_its_coordinator(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=3, settings=SETTINGS) as cluster:
        for bootstrap in cluster.bootstrap:  # with fewer brokers the topic would get fewer replicas
            async with AsyncClient.connect(bootstrap) as client:
                while len((await client.metadata([])).brokers) < 3:
                    await asyncio.sleep(0.05)
        urls = {node: http_of(tmp_path, node) for node in (1, 2, 3)}
        assert ask(f"{urls[1]}/subjects") == []
        for number, url in enumerate((urls[1], urls[2], urls[3]) * 2):
            made = await asyncio.to_thread(
                ask, f"{url}/subjects/s{number}/versions", {"schema": json.dumps({"type": "fixed", "name": f"F{number}", "size": 2})}
            )  # fmt: skip
            assert made["id"] == number + 1
        assert ask(f"{urls[1]}/subjects/t/versions", {"schema": '"int"'}, "text/plain")[0] == 415
        victim = coordinator(tmp_path)
        cluster.nodes[victim].kill()
        left = [url for node, url in urls.items() if node != victim]
        made = await asyncio.to_thread(ask, f"{left[0]}/subjects/after/versions", {"schema": '"string"'})
        while isinstance(made, tuple):  # nobody coordinates until the controller knows that the node is gone
            assert made[0] in (500, 503), made
            made = await asyncio.to_thread(ask, f"{left[0]}/subjects/after/versions", {"schema": '"string"'})
        assert made["id"] == 7
        for url in left:
            assert ask(f"{url}/subjects") == ["after", "s0", "s1", "s2", "s3", "s4", "s5"]
            assert ask(f"{url}/schemas/ids/3")["schema"] == '{"type":"fixed","name":"F2","size":2}'
