"""One page's shell: a directory and ports of its own, a cluster if the page wants one, one bash for all of its fences."""

from __future__ import annotations

import contextlib
import os
import random
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkalite.coordination.embedded import find_jars
from tests.documented.compare import difference
from tests.documented.pages import ROOT, Fence

#: Guards against hanging. Nothing is expected to happen sooner than this: CI's machines are slow, and other pages run beside.
COMMAND_S = 240.0
READY_S = 180.0
#: Ports in the pages are the defaults: a node's Kafka listener (9092 and the following), RPC 100 above, HTTP 200 above, ZooKeeper.
_PORT = re.compile(r"(?:(?<=:)|(?<=[Pp]ort[ =]))(?:9[012]9\d|218\d)\b")
_BACKGROUND = re.compile(r"(?<=\s)&[ \t]*(?=#|$)", re.MULTILINE)
_NODES = 9
#: Pages run in threads, and pytest changes a variable for each test: a copy that is made meanwhile can fail.
_ENVIRONMENT = dict(os.environ)
#: The command `kafkalite` of the pages.
_BIN = Path(__file__).parent / "bin"
#: Where Debian has ZooKeeper's jars; a machine without the package has PySpark's.
_DEBIAN_JARS = "/usr/share/java/*"
#: Directories of the pages that lie below the session's own.
_ROOTS = re.compile(r"(?<![\w./])/(?=(?:mnt|etc/kafkalite|var/lib/kafkalite|disk)[\w/]*)")


class Failed(AssertionError):
    """A command failed, or printed something else than the page shows."""


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


#: Where sessions have their ports: below those that `free_port` tries and that the system gives to outgoing connections.
_FIRST_PORT = 3_000
#: A slot has the ports of one session: ten, and those 100, 200 and 300 above them.
_SLOTS = 150


def _slot() -> tuple[int, socket.socket]:
    """The first port of a slot that nobody has, and what keeps it from the sessions of all processes until it is closed."""
    for slot in random.sample(range(_SLOTS), _SLOTS):
        first = _FIRST_PORT + slot // 10 * 400 + slot % 10 * 10
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(f"\0kafkalite-documented-{slot}")
        except OSError:
            holder.close()
            continue
        if all(_free(first + kind * 100 + node) for kind in (0, 1, 2, 3) for node in range(_NODES)):
            return first, holder
        holder.close()
    raise RuntimeError("no free ports")


class Session:
    """Runs fences, one after the other; use as a context manager."""

    def __init__(self, directory: Path, patience_s: float = READY_S) -> None:
        self._patience_s = patience_s
        self._directory = directory
        self._base, self._slot = _slot()
        self._cluster: subprocess.Popen[bytes] | None = None
        #: Addresses of the page that stand for others.
        self.aliases: dict[str, str] = {}
        self._buffer = b""
        programs, temporary = directory / ".bin", directory / ".tmp"
        for each in (programs, temporary):
            each.mkdir(parents=True)
        packages = os.pathsep.join(str(ROOT / each) for each in (".", "cli", "spark"))
        path = os.pathsep.join((str(_BIN), str(programs), str(Path(sys.executable).parent), _ENVIRONMENT["PATH"]))
        bootstrap = f"localhost:{self._base}"
        self._environment = {
            **_ENVIRONMENT,
            "PYTHONPATH": packages,
            "PATH": path,
            "KAFKALITE_BOOTSTRAP": bootstrap,
            "HOME": str(directory),
            "TMPDIR": str(temporary),  # `kafkalite dev` that is killed before it has removed its data
            "DOCUMENTED_PYTHON": sys.executable,
            "DOCUMENTED_PORT": str(self._base),
        }
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that all that it started can be ended with it
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stop_cluster()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._shell.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._shell.wait(5)
        for pipe in (self._shell.stdin, self._shell.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._slot.close()

    # -- ports ---------------------------------------------------------------------------------------

    def _ours(self, text: str) -> str:
        """The text with this session's ports instead of the page's."""

        def replaced(port: re.Match[str]) -> str:
            number = int(port[0])
            return str(self._base + (300 + number - 2181 if number < 9000 else number - 9092))

        if _DEBIAN_JARS in text and not Path("/usr/share/java/zookeeper.jar").exists():
            text = text.replace(_DEBIAN_JARS, f"{find_jars()[0].parent}/*")
        for theirs, ours in self.aliases.items():
            text = text.replace(theirs, ours)
        return _PORT.sub(replaced, _ROOTS.sub(f"{self._directory}/", text))

    def _theirs(self, text: str) -> str:
        """The text with the page's ports instead of this session's."""
        text = text.replace(f"{self._directory}/", "/")
        for kind, first in enumerate((9092, 9192, 9292, 2181)):
            for node in range(_NODES):
                text = re.sub(rf"(?<=:){self._base + kind * 100 + node}\b", str(first + node), text)
        return text

    # -- the cluster ---------------------------------------------------------------------------------

    def write(self, name: str, text: str) -> None:
        """A file that the reader of the page writes."""
        (self._directory / name).write_text(self._ours(text))

    def program(self, name: str, script: str) -> None:
        """A program that the reader of the page has."""
        path = self._directory / ".bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def start_cluster(self, options: str) -> None:
        """`kafkalite dev` beside the page. What ran beside the one before it ends: a producer would create its topics here."""
        if self._cluster is not None:
            self._shell_out("kill $(jobs -p); wait", is_plain=True)
        self._stop_cluster()
        command = f"exec kafkalite dev {options} --json 2>>background.log"
        self._cluster = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", "bash", "-c", command],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._cluster.stdout is not None
        if not self._cluster.stdout.readline():
            raise Failed(f"kafkalite dev {options} ended\n{self._background()}")

    def _stop_cluster(self) -> None:
        if self._cluster is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._cluster.pid, signal.SIGKILL)
            self._cluster.wait()
            assert self._cluster.stdout is not None
            self._cluster.stdout.close()
            self._cluster = None

    # -- commands ------------------------------------------------------------------------------------

    def run(self, fence: Fence) -> None:
        """Raises Failed."""
        if "cluster" in fence.words:
            self.start_cluster(fence.words["cluster"])
        if hidden := fence.words.get("set-up"):
            self._script(hidden)
        if "in the background" in fence.words:
            self._in_the_background(fence)
        elif fence.language == "sh":
            self._script(fence.script())
        else:
            self._run_session(fence)

    def _in_the_background(self, fence: Fence) -> None:
        for line in fence.body.splitlines():
            command = line.split("  #")[0].strip()
            if command:
                (self._directory / "ready.log").write_text("")
                self._shell_out(f"{command} >ready.log 2>&1 &", is_plain=True)
                self._until(lambda: (self._directory / "ready.log").read_text().strip() != "", command)
                if self._shell_out("kill -0 $!")[0]:
                    raise Failed(f"{command}\nhas ended{self._background()}")

    def _run_session(self, fence: Fence) -> None:
        for command in fence.session():
            is_repeated = fence.is_repeated(command.text)
            wrong: list[str] = []

            def is_right(command=command, wrong=wrong) -> bool:
                code, out = self._shell_out(command.text)
                lines = self._theirs(out).splitlines()
                different = difference(command.prints, lines, fence.words.get("varies"))
                if code != command.exit:
                    different = f"it exits with {code} instead of {command.exit}:\n{out}"
                wrong[:] = [different] if different else []
                return not different

            if is_repeated:
                self._until(is_right, command.text, wrong)
            elif not is_right():
                raise Failed(f"line {fence.line}: $ {command.text}\n{wrong[0]}")

    def _script(self, text: str) -> None:
        code, out = self._shell_out("set -eo pipefail\n" + text + "\nset +eo pipefail")
        if code:
            raise Failed(f"{text}\nfailed with {code}:\n{out}{self._background()}")

    def _shell_out(self, command: str, *, is_plain: bool = False) -> tuple[int, str]:
        """Exit code and output of a command, or of several lines, in the page's shell."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        text = self._ours(command)
        if not is_plain:  # what runs beside the page would print between its lines
            text = _BACKGROUND.sub(">>background.log 2>&1 & ", text)
        self._shell.stdin.write(f"{{\n{text}\n}} </dev/null\nprintf '\\n\\001%d\\002' $?\n".encode())
        self._shell.stdin.flush()
        deadline = time.monotonic() + COMMAND_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._shell.stdout, selectors.EVENT_READ)
            while not (end := re.search(rb"\n\x01(\d+)\x02", self._buffer)):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise Failed(
                        f"{command}\ndoes not end; so far:\n{self._buffer.decode(errors='replace')}{self._background()}"
                    )
                data = os.read(self._shell.stdout.fileno(), 65536)
                if not data:
                    out, self._buffer = self._buffer, b""
                    return self._shell.wait() or 1, out.decode(errors="replace")
                self._buffer += data
        out, self._buffer = self._buffer[: end.start()], self._buffer[end.end() :]
        return int(end[1]), out.decode(errors="replace")

    def _until(self, is_so, what: str, wrong: list[str] | None = None) -> None:
        deadline = time.monotonic() + self._patience_s
        while not is_so():
            if time.monotonic() > deadline:
                raise Failed(f"$ {what}\n{''.join(wrong or [])}{self._background()}")
            time.sleep(0.05)

    def _background(self) -> str:
        logs = [self._directory / name for name in ("background.log", "ready.log")]
        text = "\n".join(log.read_text(errors="replace")[-2000:] for log in logs if log.exists())
        return f"\nin the background:\n{text}" if text else ""
