"""Nothing is left behind: whoever started the processes may end in any way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.running import PATIENCE_S, is_alive, marked_processes, wait_until
from tests.support.commands import environment

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]


def java_among(pids: list[int]) -> list[int]:
    return [pid for pid in pids if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "java"]


@contextlib.contextmanager
def start(mark: str, directory: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """In a process group of its own, as a shell does."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(KAFKALITE_TEST_MARK=mark, TMPDIR=str(directory), PYTHONUNBUFFERED="1"),
        process_group=0,
        # A test run in the background of a script ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        try:
            yield process
        finally:
            for pid in marked_processes(mark):
                os.kill(pid, signal.SIGKILL)


def wait_for_line(process: subprocess.Popen[bytes], text: str) -> str:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line.decode())
        if text in seen[-1]:
            return seen[-1]
    raise AssertionError(f"{text!r} never came: {''.join(seen)}")


def all_gone(mark: str) -> None:
    wait_until(lambda: not marked_processes(mark), "every process ends")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_jvm_ends_with_kafkalite_zookeeper(number: signal.Signals, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    arguments = ("-m", "kafkalite_cli", "zookeeper", "--dir", str(tmp_path / "zk"), "--port", "0")
    with start(mark, tmp_path, *arguments) as server:
        wait_for_line(server, "zookeeper.ready")
        (java,) = java_among(marked_processes(mark))
        server.send_signal(number)
        code = server.wait(PATIENCE_S)
        wait_until(lambda: not is_alive(java), "the JVM ends")
        assert code == (-number if number is signal.SIGKILL else 0)
    all_gone(mark)


CLUSTER = """
import sys, time
from pathlib import Path
from kafkalite.testing.processes import ProcessCluster
with ProcessCluster(Path(sys.argv[1]), nodes=2, settings={"http.port": -1}):
    print("started", flush=True)
    time.sleep(1000)
"""


def test_a_cluster_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with start(mark, tmp_path, "-c", CLUSTER, str(tmp_path / "cluster")) as parent:
        wait_for_line(parent, "started")
        assert len(marked_processes(mark)) >= 5  # the parent, kafkalite zookeeper, its JVM, two nodes
        parent.kill()
        parent.wait(PATIENCE_S)
        all_gone(mark)


@pytest.mark.parametrize(
    ("moment", "number", "code"),
    [
        ("starting a ZooKeeper server", signal.SIGINT, 130),
        ("producing", signal.SIGINT, 130),
        ("kill -9", signal.SIGTERM, 143),
    ],
)
def test_the_demo_leaves_nothing_behind(moment: str, number: signal.Signals, code: int, tmp_path: Path) -> None:
    """Ctrl-C goes to the whole group, as a terminal sends it; SIGTERM to the demo only."""
    mark = uuid.uuid4().hex
    with start(mark, tmp_path, "-m", "kafkalite_cli.demo") as demo:
        wait_for_line(demo, moment)
        if number is signal.SIGINT:
            os.killpg(demo.pid, number)
        else:
            demo.send_signal(number)
        rest, _ = demo.communicate(timeout=PATIENCE_S)
        assert b"Traceback" not in rest
        assert demo.returncode == code
        all_gone(mark)
    assert list(tmp_path.iterdir()) == []
