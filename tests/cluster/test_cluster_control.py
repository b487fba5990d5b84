"""The server that starts clusters for other people's suites (tests/suites/cluster_control.py)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    command = [sys.executable, "-m", "tests.suites.cluster_control"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]

        def asked(verb: str, path: str, question: object = None) -> tuple[int, dict[str, Any]]:
            body = json.dumps(question or {}).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=verb, data=body)
            try:
                with urllib.request.urlopen(request) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        yield asked
        server.stdin.close()
        assert server.wait() == 0


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_cluster_from_its_start_to_its_end(ask: Ask) -> None:
    settings = {"auto.create.topics.enable": "false", "controller.quorum.voters": "1@localhost:9093"}
    status, cluster = ask("POST", "/clusters", {"brokers": [0, 1], "settings": settings})
    assert status == 200 and list(cluster["brokers"]) == ["0", "1"], cluster
    assert cluster["ignored"] == {"controller.quorum.voters": "controller.quorum.voters: no such configuration"}
    address = cluster["brokers"]["1"]
    for verb, is_there in (("stop", False), ("start", True), ("kill", False), ("start", True)):
        assert ask("POST", f"/clusters/{cluster['id']}/brokers/1/{verb}") == (200, {})
        assert listens(address) is is_there
    assert ask("DELETE", f"/clusters/{cluster['id']}") == (200, {})
    assert not any(listens(each) for each in cluster["brokers"].values())


@pytest.mark.parametrize(
    ("verb", "path", "question", "line"),
    [
        ("POST", "/clusters", {"brokers": [0, 2]}, "BadQuestion: brokers: consecutive ids are needed, not [0, 2]"),
        ("POST", "/clusters/c9/brokers/0/stop", {}, "BadQuestion: there is no cluster c9"),
        ("DELETE", "/clusters/c9", {}, "BadQuestion: there is no cluster c9"),
        ("POST", "/clouds", {}, "BadQuestion: POST /clouds"),
    ],
)
def test_what_cannot_be_asked_for(ask: Ask, verb: str, path: str, question: object, line: str) -> None:
    assert ask(verb, path, question) == (400, {"error": line})
