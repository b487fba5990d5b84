"""Run the classes of a jar of Kafka's tests, a few in a JVM, with a deadline; outcomes come from JUnit's reports."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import click

from kafkalite.testing.apache_kafka import COMPLETE_VERSION, java
from kafkalite.testing.maven import Artifact, jars
from tests.interop.conftest import install, scratch

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
#: Of one class.
_DEADLINE_S = 1800
#: Starting a JVM with JUnit and Kafka takes longer than many of the tests.
_IN_ONE_JVM = 8
#: Some tests look for what Kafka Streams logs at INFO.
_LOGGING = """<Configuration status="WARN"><Appenders><Console name="C"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
</Appenders><Loggers><Root level="INFO"><AppenderRef ref="C" level="WARN"/></Root></Loggers></Configuration>
"""
_TESTS = ("kafka-clients", "kafka-server-common")
_WHOLE = ("kafka-clients", "kafka-tools", "kafka_2.13", "kafka-test-common-runtime", "kafka-test-common-internal-api")
_MOCKITO = "5.20.0"
_OTHERS = (
    Artifact("log4j-slf4j-impl", "2.25.4", "org.apache.logging.log4j"),
    Artifact("junit-platform-console-standalone", "1.13.1", "org.junit.platform"),
    Artifact("mockito-core", _MOCKITO, "org.mockito"),
    Artifact("mockito-junit-jupiter", "5.20.0", "org.mockito"),
    Artifact("hamcrest", "3.0", "org.hamcrest"),
    Artifact("bcpkix-jdk18on", "1.80", "org.bouncycastle"),
    Artifact("httpclient", "4.5.14", "org.apache.httpcomponents"),
)
#: Kafka's helper for SASL names classes of a Kerberos server, which no test here starts.
_KERBEROS = tuple(
    Artifact(f"apacheds-{name}", "2.0.0-M24", "org.apache.directory.server", without=("org.bouncycastle:*",))
    for name in ("core-api", "protocol-kerberos", "protocol-ldap", "interceptor-kerberos", "ldif-partition")
)


class Suite(NamedTuple):
    """The classes of `jar` in `package` and below, but for `left_out` (class -> cause)."""

    jar: str
    package: str
    #: Directory of the jars; suites with the same name have the same.
    kind: str
    #: Jars of tests that are needed too, and jars that are not of tests.
    tests: Sequence[str]
    whole: Sequence[str]
    left_out: Mapping[str, str] = {}
    #: What of the jar has to lie in a directory, as a test lists it.
    resources: str = ""
    #: Classes by their names, if not all of the package; a choice of the user may name others.
    only: Sequence[str] = ()
    #: The directory of our classes; "core" has an agent instead of twins, and nodes in the control server's process (ADR 72).
    ours: str = "java"
    #: Of JUnit.
    flags: Sequence[str] = ()
    #: Nodes run in the control server's process (ADR 65).
    is_in_loop: bool = False

    @property
    def file(self) -> str:
        return f"{self.jar}-{COMPLETE_VERSION}-test.jar"


def _jars(suite: Suite) -> Path:
    base = scratch("kafka-tests", Path(__file__)).parent.resolve()
    tests = [Artifact(name, COMPLETE_VERSION, classifier="test") for name in (*_TESTS, *suite.tests)]
    whole = [Artifact(name, COMPLETE_VERSION) for name in (*_WHOLE, *suite.whole)]
    others = [*_OTHERS, *(_KERBEROS if suite.ours == "core" else ())]
    return jars(base / f"kafka-{suite.kind}-tests-{COMPLETE_VERSION}", [*tests, *whole, *others])


def _compiled(suite: Suite, found: Path) -> Path:
    """The directory with our classes, and the logging's configuration."""
    sources = sorted((_HERE / suite.ours).rglob("*.java"))
    directory = scratch(f"kafka-{suite.kind}-tests-classes", *sources)
    manifest = "Premain-Class: kafkalite.core.Agent\\nCan-Redefine-Classes: true\\nCan-Retransform-Classes: true\\n"
    install(
        directory,
        ["javac", "-nowarn", "-d", "classes", "-cp", f"{found}/*", *map(str, sources)],
        ["sh", "-c", f"printf '{manifest}' > manifest && jar cfm agent.jar manifest -C classes ."],
    )
    (directory / "log4j2.xml").write_text(_LOGGING)
    if suite.resources:
        with zipfile.ZipFile(found / suite.file) as jar:
            wanted = [name for name in jar.namelist() if name.startswith(suite.resources)]
            jar.extractall(directory / "classes", wanted)
    return directory


def _classes(suite: Suite, found: Path, only: str) -> list[str]:
    """Names of the outermost classes that may hold tests."""
    with zipfile.ZipFile(found / suite.file) as jar:
        names = [name[: -len(".class")].replace("/", ".") for name in jar.namelist() if name.endswith("Test.class")]
    chosen = [name for name in names if name.startswith(suite.package + ".") and "$" not in name]
    if suite.only and not only:
        chosen = [name for name in chosen if name.rpartition(".")[2] in suite.only]
    return [name for name in sorted(chosen) if re.search(only, name) and name.rpartition(".")[2] not in suite.left_out]


@asynccontextmanager
async def _control(output: Path, name: str, *options: str) -> AsyncIterator[int]:
    """The port of a control server."""
    with (output / f"{name}.control.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.suites.cluster_control", *options,
            cwd=_ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            yield json.loads(await process.stdout.readline())["port"]
        finally:
            process.stdin.close()
            await process.wait()


async def run(suite: Suite, name: str, output: Path, only: str) -> dict[str, str]:
    """Name of a test -> passed, failed or skipped. `only`: a regular expression of classes; METHOD after a #.

    A log and a report of each class are in `output`/`name`.
    """
    found = _jars(suite)
    ours = _compiled(suite, found)
    directory = output / name
    directory.mkdir(parents=True, exist_ok=True)
    wanted, _, method = only.partition("#")
    outcome: dict[str, str] = {}
    is_core = suite.ours == "core"
    mockito = f"-javaagent:{found / f'mockito-core-{_MOCKITO}.jar'}"
    agents = [mockito, f"-javaagent:{ours / 'agent.jar'}"] if is_core else []
    where = ["--in-process"] if is_core else ["--in-loop"] if suite.is_in_loop else []
    async with _control(directory, name, *where) as port:
        classes = _classes(suite, found, wanted)
        for first in range(0, len(classes), _IN_ONE_JVM):
            some = classes[first : first + _IN_ONE_JVM]
            of_some = await _some(some, method, ours, found, directory, port, suite, agents)
            click.echo(
                f"{', '.join(some)}: {len(of_some)} tests, {list(of_some.values()).count('failed')} failed", err=True
            )
            outcome |= of_some
    return outcome


async def _some(
    classes: Sequence[str],
    method: str,
    ours: Path,
    found: Path,
    directory: Path,
    port: int,
    suite: Suite,
    agents: Sequence[str],
) -> dict[str, str]:
    """Outcomes of a few classes, in one JVM. A test that is running at the deadline has failed, and what did not run is not there."""
    short, jar = classes[0].rpartition(".")[2], suite.file
    reports = directory / short
    command = [
        java(), "-Xmx1G", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dkafkalite.control={port}", *agents,
        f"-Dlog4j2.configurationFile={ours / 'log4j2.xml'}", f"-Djava.io.tmpdir={_scratch(directory)}",
        "-cp", os.pathsep.join([str(ours / "classes"), str(found / jar), f"{found}/*"]),
        "org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", "--details=testfeed", "--disable-ansi-colors",
        f"--scan-classpath={found / jar}", f"--include-classname=({'|'.join(map(re.escape, classes))})(\\$.*)?", f"--reports-dir={reports}", *suite.flags,
    ]  # fmt: skip
    if method:
        command.append(f"--include-methodname=.*#{method}.*")
    report = reports / "TEST-junit-jupiter.xml"
    report.unlink(missing_ok=True)
    with (directory / f"{short}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, cwd=directory, stdout=log, stderr=log)
        try:
            async with asyncio.timeout(_DEADLINE_S * len(classes)):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return outcomes(report) if report.exists() else fed((directory / f"{short}.log").read_text(errors="replace"))


def _scratch(directory: Path) -> Path:
    path = directory / "tmp"
    path.mkdir(exist_ok=True)
    return path


#: In the message of a failure, or of its cause: only a broker in the same JVM can answer.
_INSIDE = re.compile(
    r"(?:\A.*|^Caused by: .*)(?:looks inside the broker's JVM|looks at the broker's objects in its own JVM)", re.M
)


def outcomes(report: Path) -> dict[str, str]:
    """Of JUnit's XML: class.method with its parameters -> passed, failed, skipped, or inside: it looks inside the broker's JVM."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        tags = {child.tag for child in case}
        state = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        if any(_INSIDE.search(f"{child.get('message', '')}\n{child.text or ''}") for child in case):
            state = "inside"
        name = f"{case.attrib['classname'].rpartition('.')[2]}.{case.attrib['name']}"
        found[name] = state
    return found


def fed(text: str) -> dict[str, str]:
    """Of the events that JUnit prints as it goes: class.method -> passed, failed or skipped; failed, if it began only."""
    found: dict[str, str] = {}
    for path, event in re.findall(
        r"^JUnit Jupiter > (.+ > .+) :: (STARTED|SUCCESSFUL|FAILED|ABORTED|SKIPPED)$", text, re.MULTILINE
    ):
        found[path.replace(" > ", ".")] = {"SUCCESSFUL": "passed", "SKIPPED": "skipped", "ABORTED": "skipped"}.get(
            event, "failed"
        )
    return found
