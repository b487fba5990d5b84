"""A cluster of real processes: `kafkalite zookeeper` and `kafkalite serve`, for the demo, the chaos test and the benchmarks.

Every process dies with its parent (PR_SET_PDEATHSIG), so that nothing is left behind, whatever happens to us.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from kazoo.client import KazooClient

#: util-linux: the kernel kills the process when its parent has died. (A function run in the forked child would close
#: the connections of a Spark session in this process.)
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
#: A fork and an exec take far less.
_SPAWN_S = 10.0
#: Until a process that gets SIGSTOP has stopped: a step in the kernel ends first.
_PAUSE_S = 30.0
#: While a node is away, a connection of another process may get its port.
_PORT_S = 60.0
#: The signal comes when the THREAD that started the process ends, so one thread of our own starts them all. No
#: executor: a Ctrl-C while it starts its thread makes the interpreter wait for that thread for ever.
_wanted: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]
_wanted = queue.SimpleQueue()


def _start_processes() -> None:
    while True:
        spawn, started = _wanted.get()
        try:
            started.set_result(spawn())
        except OSError as error:
            started.set_exception(error)


threading.Thread(target=_start_processes, name="process-starter", daemon=True).start()


class ProcessFailed(RuntimeError):
    """A process ended before it was ready, or did not become ready in time; carries the end of its log."""


class Process:
    """One `kafkalite` subprocess whose first line on stdout is its ready event.

    `tree`: a checkout whose code it runs, instead of this one's. `python`: another interpreter that has the packages.
    `before`: a command that becomes this one (nsenter).
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log_path: Path,
        *,
        tree: Path | None = None,
        python: Path | None = None,
        before: Sequence[str] = (),
    ) -> None:
        self.name = name
        #: In front of the command when it is started.
        self.before = tuple(before)
        self._tree = tree
        self.log_path = log_path
        self._arguments = [str(python or sys.executable), "-m", "kafkalite_cli", *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._starting: Future[subprocess.Popen[bytes]] | None = None
        self.ready: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self) -> None:
        """Start without waiting for readiness."""
        assert self._process is None or self._process.poll() is not None, f"{self.name} is running"
        self._starting = Future()
        _wanted.put((self._spawn, self._starting))
        self._process = self._starting.result()
        self._starting = None

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [*DIE_WITH_PARENT, *self.before, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environ(),
                # `python -m` looks into the working directory first.
                cwd=self._tree,
            )

    def _environ(self) -> dict[str, str]:
        # An installed kafkalite has .pyc files: compiling is two thirds of a start without them.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if self._tree is None:
            return environ
        return {**environ, "PYTHONPATH": os.pathsep.join([str(self._tree), str(self._tree / "cli")])}

    def wait_ready(self, deadline_s: float = 180.0) -> dict[str, Any]:
        """The ready event. Raises ProcessFailed."""
        assert self._process is not None and self._process.stdout is not None
        line = b""
        until = time.monotonic() + deadline_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                left = until - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise ProcessFailed(f"{self.name} was not ready within {deadline_s:.0f} s\n{self.log_tail()}")
                chunk = os.read(self._process.stdout.fileno(), 4096)
                if not chunk:
                    code = self._process.wait()
                    raise ProcessFailed(f"{self.name} ended with {code} before it was ready\n{self.log_tail()}")
                line += chunk
        self.ready = json.loads(line.splitlines()[0])
        return self.ready

    def start(self, deadline_s: float = 180.0) -> dict[str, Any]:
        self.launch()
        return self.wait_ready(deadline_s)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP; returns when the process's main thread takes no further step. Raises TimeoutError."""
        self.signal(signal.SIGSTOP)
        until = time.monotonic() + _PAUSE_S
        while self.running and Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TtZ":
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name} does not stop")
            time.sleep(0.001)

    def kill(self) -> None:
        """kill -9, also if stopped; also if `launch` was interrupted."""
        if self._starting is not None:
            with contextlib.suppress(OSError, TimeoutError):
                self._process = self._starting.result(_SPAWN_S)
            self._starting = None
        self.signal(signal.SIGKILL)
        self._reap(10)

    def terminate(self, deadline_s: float = 90.0) -> int:
        """SIGTERM and wait; the exit code. After the deadline: kill -9."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return self._reap(deadline_s)

    def _reap(self, deadline_s: float) -> int:
        if self._process is None:
            return 0
        try:
            code = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def log_tail(self, lines: int = 25) -> str:
        try:
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def peak_memory_bytes(self) -> int:
        return self._status_field("VmHWM")

    def memory_bytes(self) -> int:
        return self._status_field("VmRSS")

    def _status_field(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        return 0

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ProcessCluster:
    """ZooKeeper and `nodes` brokers under `directory`. Use as a context manager; everything is stopped at its end.

    Args:
        settings: configuration of every broker, key with dots -> value.
        zookeeper: an external connect string instead of an own server.
        log_dirs: log directories per node.
        first_id: of the nodes; the others follow.
        own_settings: by node, on top of `settings`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        settings: Mapping[str, object] | None = None,
        zookeeper: str | None = None,
        log_dirs: int = 1,
        first_id: int = 1,
        own_settings: Mapping[int, Mapping[str, object]] | None = None,
    ) -> None:
        self.directory = directory
        self.settings = dict(settings or {})
        self.zookeeper: Process | None = None
        self._external = zookeeper
        self._zookeeper_port = 0
        self.nodes: dict[int, Process] = {}
        self._ids = range(first_id, first_id + nodes)
        self._own_settings = own_settings or {}
        self._log_dirs = log_dirs
        self._ports: dict[int, dict[str, str]] = {}
        #: Node -> the checkout whose code it runs from its next start on; the others run this one's.
        self.trees: dict[int, Path] = {}
        #: Node -> the interpreter that runs it from its next start on.
        self.pythons: dict[int, Path] = {}

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.start_zookeeper()
        for broker_id in self._ids:
            self.nodes[broker_id] = self._node(broker_id)
            self.nodes[broker_id].launch()
        for broker_id in self.nodes:
            self._note_ready(broker_id)
        return self

    def start_zookeeper(self) -> None:
        """Start, or start again on the same directory and port."""
        if self._external is not None:
            return
        arguments = ["zookeeper", "--dir", str(self.directory / "zookeeper"), "--port", str(self._zookeeper_port)]
        self.zookeeper = Process("zookeeper", arguments, self.directory / "zookeeper.log")
        self._zookeeper_port = int(self.zookeeper.start()["port"])

    @property
    def zookeeper_connect(self) -> str:
        return self._external if self._external is not None else f"127.0.0.1:{self._zookeeper_port}"

    def _node(self, broker_id: int) -> Process:
        ports = self._ports.get(broker_id, {})
        arguments = ["serve", "--id", str(broker_id), "--zookeeper", self.zookeeper_connect]
        names = ("rpc", "http") if "listeners" in self.settings else ("kafka", "rpc", "http")
        for name in names:
            arguments += [f"--{name}", ports.get(name, "127.0.0.1:0")]
        for number in range(self._log_dirs):
            arguments += ["--log-dir", str(self.directory / f"node-{broker_id}" / f"disk-{number}")]
        for key, value in {**self.settings, **self._own_settings.get(broker_id, {})}.items():
            arguments += ["--set", f"{key}={value}"]
        log_path = self.directory / f"node-{broker_id}.log"
        return Process(
            f"node {broker_id}", arguments, log_path, tree=self.trees.get(broker_id), python=self.pythons.get(broker_id)
        )

    def _note_ready(self, broker_id: int) -> None:
        ready = self.nodes[broker_id].wait_ready()
        # A restarted node keeps its addresses, as it would on a host of its own.
        self._ports[broker_id] = {name: ready[name] for name in ("kafka", "rpc", "http") if ready.get(name)}

    def add_node(self, broker_id: int) -> None:
        self.nodes[broker_id] = self._node(broker_id)
        self.nodes[broker_id].launch()
        self._note_ready(broker_id)

    def restart(self, broker_id: int, *, wait: bool = True) -> None:
        """Start a node that has ended again, at its old addresses."""
        until = time.monotonic() + _PORT_S
        while True:
            self.nodes[broker_id] = self._node(broker_id)
            self.nodes[broker_id].launch()
            if not wait:
                return
            try:
                self._note_ready(broker_id)
                return
            except ProcessFailed as error:
                if "already in use" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.5)

    @property
    def bootstrap(self) -> list[str]:
        """Where clients connect."""
        return [ports["kafka"] for ports in self._ports.values()]

    def kafka(self, broker_id: int) -> str:
        return self._ports[broker_id]["kafka"]

    def http(self, broker_id: int) -> str:
        return self._ports[broker_id]["http"]

    def close(self) -> None:
        """kill -9 to all; quick, and safe at any point."""
        for process in [*self.nodes.values(), *([self.zookeeper] if self.zookeeper else [])]:
            process.kill()

    def terminate(self) -> dict[int, int]:
        """A clean stop of every node, one after the other, then of ZooKeeper; exit codes by broker id."""
        codes = {broker_id: node.terminate() for broker_id, node in self.nodes.items()}
        if self.zookeeper is not None:
            self.zookeeper.terminate()
        return codes

    def remove(self) -> None:
        """Delete the data."""
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def kazoo_client(connect: str, *, session_s: float = 10, start_s: float = 90) -> Iterator[KazooClient]:
    """ZooKeeper through another library's client. Raises kazoo's KazooTimeoutError if nothing answers within `start_s`."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=connect, timeout=session_s)
    try:
        client.start(timeout=start_s)
        yield client
    finally:
        client.stop()
        client.close()
