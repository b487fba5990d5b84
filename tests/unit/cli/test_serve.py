"""What `serve` says before it serves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kafkalite_cli import serve


def test_the_node_says_that_it_waits_for_zookeeper_before_it_imports_what_it_runs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [
            sys.executable, "-X", "importtime", "-m", "kafkalite_cli", "serve", "--id", "1",
            "--zookeeper", f"127.0.0.1:{silent.getsockname()[1]}", "--log-dir", str(tmp_path / "log"),
            "--kafka", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--set", "http.port=-1", "--log-format", "json",
        ]  # fmt: skip
        node = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=dict(os.environ))
        try:
            assert node.stderr is not None
            lines: list[str] = []
            for line in node.stderr:
                lines.append(line.decode())
                if b"zookeeper.waits" in line:
                    break
        finally:
            node.kill()
            node.wait()
            assert node.stderr is not None
            node.stderr.close()

    def at(text: str) -> int:
        return next(number for number, line in enumerate(lines) if text in line)

    assert at("zookeeper.connecting") < at("| uvloop") < at("kafkalite.node.node") < at("zookeeper.waits")
    assert not any("| asyncio" in line for line in lines[: at("zookeeper.connecting")])


async def test_a_wait_for_zookeeper_says_what_each_address_is_good_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        first, second = (f"127.0.0.1:{each.getsockname()[1]}" for each in (silent, closed))
        said = await serve._why_no_session(f"{first},{second}/chroot")
    assert said == f"{first}: connected, no session yet; {second}: Connection refused"


@pytest.mark.parametrize("reader", ["nobody", "a full disk"])
def test_a_node_serves_if_its_ready_line_cannot_be_written(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reader == "nobody":
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(writing, "w") as stdout, capture_logs() as lines:
        monkeypatch.setattr(sys, "stdout", stdout)
        serve._print_ready({"event": "node.ready"})
    assert [line["event"] for line in lines] == ["stdout.failed"]
