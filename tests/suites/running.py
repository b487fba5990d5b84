"""What the suites have in common: where they run, how a command is run, and how its output is read."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.interop.conftest import install, scratch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Of our own environment, which a suite must not see.
_OURS = ("PYTHONPATH", "PYTEST_ADDOPTS", "ZOOKEEPER_URI")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_GO_WORDS = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}

#: Name of a test -> passed, failed or skipped.
Outcome = Mapping[str, str]


class Place(NamedTuple):
    """Where a suite runs: the addresses of a cluster, a directory for its output, checkouts."""

    kafka: str
    http: str
    output: Path
    sources: Path | None
    only: str = ""


async def run(place: Place, name: str, command: list[str], directory: Path, **environment: str) -> str:
    """The output, which is also in a file. The exit code says nothing that the output does not say."""
    own = {key: value for key, value in os.environ.items() if key not in _OURS} | environment
    path = place.output / f"{name}.log"
    with path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, cwd=directory, env=own, stdout=log, stderr=log)
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return _COLOURS.sub("", path.read_text(errors="replace"))


async def at_fixed_addresses(place: Place, name: str, suite: Path) -> str:
    """The output of fixed/NAME.sh, which starts nodes of its own in a network namespace."""
    with tempfile.TemporaryDirectory(prefix=f"suites-{name}-") as work:
        path = os.pathsep.join([str(ROOT), str(ROOT / "cli")])
        return await run(
            place, name, ["unshare", "--net", str(HERE / "fixed" / f"{name}.sh")], suite,
            WORK=work, SUITE=str(suite), ONLY=place.only, PYTHON=sys.executable, PYTHONPATH=path,
            REPORT=str(place.output / f"{name}.xml"),
        )  # fmt: skip


async def by_pytest(place: Place, name: str, checkout: str, *arguments: str, **environment: str) -> Outcome:
    """Tests of a checkout, with the packages of requirements-NAME.txt."""
    assert place.sources is not None
    requirements = HERE / f"requirements-{name}.txt"
    directory = scratch(f"{name}-suite", requirements)
    python = directory / "venv" / "bin" / "python"
    install(
        directory,
        [sys.executable, "-m", "venv", "venv"],
        [str(python), "-m", "pip", "install", "-q", "-r", str(requirements)],
    )
    report = place.output / f"{name}.xml"
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "240", f"--junitxml={report}"]
    chosen = ["-k", place.only] if place.only else []
    await run(place, name, [*command, *chosen, *arguments], place.sources / checkout, **environment)
    return junit(report)


def junit(path: Path) -> Outcome:
    """Of a report, which is removed; nothing if the suite did not even start."""
    if not path.exists():
        return {}
    found: dict[str, str] = {}
    for case in ElementTree.parse(path).getroot().findall(".//testcase"):
        tags = {child.tag for child in case}
        state = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        found[f"{case.attrib['classname'].rpartition('.')[2]}.{case.attrib['name']}"] = state
    path.unlink()
    return found


def go_outcome(text: str) -> Outcome:
    """Of `go test -v`."""
    return {name: _GO_WORDS[word] for word, name in re.findall(r"--- (PASS|FAIL|SKIP): (\S+) \(", text)}


def go_source(module: str, directory: str) -> list[str]:
    """A command that copies a module of the Go proxy into `directory`."""
    found = f'$(go mod download -json {module} | sed -n \'s/.*"Dir": "\\(.*\\)".*/\\1/p\')'
    return ["sh", "-c", f'cp -r "{found}" {directory} && chmod -R u+w {directory}']
