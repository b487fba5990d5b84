"""Jars from Maven's registry, fetched through `mvn` once into a directory that git ignores."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kafkalite</groupId><artifactId>jars</artifactId><version>1</version><dependencies>
{0}</dependencies></project>
"""
_DEADLINE_S = 600


class JarsMissing(RuntimeError):
    """Jars are neither here nor to be had."""


class Artifact(NamedTuple):
    """What Maven fetches with all that it needs, but for `without` ("group:name", "*" for any)."""

    name: str
    version: str
    group: str = "org.apache.kafka"
    classifier: str = ""
    without: tuple[str, ...] = ()

    def dependency(self) -> str:
        fields = {
            "groupId": self.group,
            "artifactId": self.name,
            "version": self.version,
            "classifier": self.classifier,
        }
        text = "".join(f"<{field}>{value}</{field}>" for field, value in fields.items() if value)
        if self.without:
            pairs = (each.split(":") for each in self.without)
            left_out = "".join(
                f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
                for group, name in pairs
            )
            text += f"<exclusions>{left_out}</exclusions>"
        return f"<dependency>{text}</dependency>\n"


def jars(directory: Path, artifacts: Sequence[Artifact]) -> Path:
    """The directory with the jars, below `directory`, which is filled if need be. Raises JarsMissing."""
    found = directory / "jars"
    with only_one_fills(directory):
        if not (directory / ".complete").exists():
            _fetch(directory, artifacts)
    return found


@contextmanager
def only_one_fills(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory that is filled once and shared, so that a second process waits instead of clearing it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(directory: Path, artifacts: Sequence[Artifact]) -> None:
    names = ", ".join(artifact.name for artifact in artifacts)
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing(f"no mvn to fetch {names} with")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "pom.xml").write_text(_POM.format("".join(artifact.dependency() for artifact in artifacts)))
    command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_DEADLINE_S)
    if done.returncode:
        raise JarsMissing(f"mvn could not fetch {names}: {(done.stdout + done.stderr)[-2000:]}")
    (directory / ".complete").touch()
