"""What aiokafka's tests use of Docker's package: it starts nodes of ours where they want a container (fixed/aiokafka.sh)."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_SCRIPT = str(Path(__file__).parents[1] / "fixed" / "aiokafka.sh")
#: Of the nodes and tools of ours, which do not see this module.
_ENVIRONMENT = {**os.environ, "PYTHONPATH": os.environ.get("KAFKALITE_PATH", "")}
_PORTS = ("ADVERTISED_PORT", "ADVERTISED_SSL_PORT", "ADVERTISED_SASL_PLAINTEXT_PORT", "ADVERTISED_SASL_SSL_PORT")


class Container(NamedTuple):
    """Nodes on these ports: without TLS, with TLS, with SASL, with SASL on TLS."""

    ports: tuple[str, ...]

    def exec_run(self, command: str) -> tuple[int, bytes]:
        """The exit code and the output of one of Kafka's tools, whose arguments our tools take."""
        tool, *arguments = shlex.split(command)
        done = subprocess.run(
            [_SCRIPT, Path(tool).stem, f"127.0.0.1:{self.ports[0]}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_ENVIRONMENT,
        )
        return done.returncode, done.stdout

    def stop(self) -> None:
        """The script that started the suite ends the nodes."""


class _Containers:
    def run(self, *, environment: Mapping[str, object], **_: object) -> Container:
        ports = tuple(str(environment[name]) for name in _PORTS)
        subprocess.run([_SCRIPT, "nodes", *ports], check=True, env=_ENVIRONMENT)
        return Container(ports)


class _Client:
    containers = _Containers()

    def close(self) -> None:
        """Nothing is open."""


class models:
    class containers:
        Container = Container


def from_env() -> _Client:
    return _Client()
