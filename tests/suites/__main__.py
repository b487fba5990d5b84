"""Run other people's suites against nodes of ours, and name the cause of each test that does not pass.

    python -m tests.suites [SUITE...] [--sources DIRECTORY] [--only TEXT]      suites: SUITES below

franz-go comes from the Go module proxy, librdkafka inside an npm package, kafka-python's from PyPI. The package of confluent-kafka
has no tests, nor have KafkaJS's and aiokafka's: they run from checkouts in DIRECTORY (confluent-kafka-python, kafkajs, aiokafka), and are left out
without them. Apache Kafka's own integration tests (kafka-streams, connect, mirror) come from Maven (docs/adr/0071).
kafka-go, sarama, KafkaJS and aiokafka have nodes of their own, in a network namespace (fixed/*.sh), as root. `--only`: the tests
that the suite itself chooses by that text. They take from 5 to 20 minutes each, Kafka's an hour. A failure that is not in `known.CAUSES` makes the command fail.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import structlog

from kafkalite.testing.loopback_cluster import LoopbackCluster
from tests.interop.conftest import install, scratch
from tests.suites.kafka_tests import runner, suites
from tests.suites.known import CAUSES

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_SETTINGS = {"num.partitions": 4, "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}
_RIGHTS = {"authorizer.enabled": True, "allow.everyone.if.no.acl.found": True}
#: Of our own environment, which a suite must not see.
_OURS = ("PYTHONPATH", "PYTEST_ADDOPTS", "ZOOKEEPER_URI")
_RDKAFKA = "@confluentinc/kafka-javascript@1.10.1"
_FRANZ = "github.com/twmb/franz-go@v1.22.2"
_KAFKA_GO = "github.com/segmentio/kafka-go@v0.4.51"
_SARAMA = "github.com/IBM/sarama@v1.61.1"
_TOXIPROXY = "github.com/Shopify/toxiproxy/v2@v2.5.0"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

#: Name of a test -> passed, failed or skipped.
Outcome = Mapping[str, str]


class Place(NamedTuple):
    """Where a suite runs: the addresses of a cluster, a directory for its output, checkouts."""

    kafka: str
    http: str
    output: Path
    sources: Path | None
    only: str = ""


async def _run(place: Place, name: str, command: list[str], directory: Path, **environment: str) -> str:
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


def _junit(path: Path) -> Outcome:
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


async def _franz_go(place: Place) -> Outcome:
    directory = scratch("franz-go-suite", _HERE / "__main__.py")
    install(
        directory,
        ["go", "mod", "init", "suites"],
        ["go", "get", f"{_FRANZ.partition('@')[0]}@{_FRANZ.partition('@')[2]}"],
    )
    command = ["go", "test", "-mod=mod", "-count=1", "-v", "-timeout", "50m", "-run", place.only or "Test"]
    command.append("github.com/twmb/franz-go/pkg/kgo")
    text = await _run(
        place, "franz-go", command, directory, KGO_SEEDS=place.kafka, KGO_TEST_RF="3", KGO_TEST_RECORDS="100000"
    )
    return _go_outcome(text)


def _go_outcome(text: str) -> Outcome:
    words = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    return {name: words[word] for word, name in re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", text, re.MULTILINE)}


async def _at_fixed_addresses(place: Place, name: str, suite: Path) -> str:
    """The output of fixed/NAME.sh, which starts nodes of its own in a network namespace."""
    with tempfile.TemporaryDirectory(prefix=f"suites-{name}-") as work:
        path = os.pathsep.join([str(_ROOT), str(_ROOT / "cli")])
        return await _run(
            place, name, ["unshare", "--net", str(_HERE / "fixed" / f"{name}.sh")], suite,
            WORK=work, SUITE=str(suite), ONLY=place.only, PYTHON=sys.executable, PYTHONPATH=path,
            REPORT=str(place.output / f"{name}.xml"),
        )  # fmt: skip


def _go_source(module: str, directory: str) -> list[str]:
    """A command that copies a module of the Go proxy into `directory`."""
    found = f'$(go mod download -json {module} | sed -n \'s/.*"Dir": "\\(.*\\)".*/\\1/p\')'
    return ["sh", "-c", f'cp -r "{found}" {directory} && chmod -R u+w {directory}']


async def _kafka_go(place: Place) -> Outcome:
    directory = scratch("kafka-go-suite", _HERE / "__main__.py")
    install(directory, _go_source(_KAFKA_GO, "source"), ["sh", "-c", "cd source && go test -mod=mod -c -o ../tests ."])
    return _go_outcome(await _at_fixed_addresses(place, "kafka-go", directory))


async def _sarama(place: Place) -> Outcome:
    directory = scratch("sarama-suite", _HERE / "__main__.py")
    install(
        directory,
        _go_source(_SARAMA, "source"),
        ["sh", "-c", "cd source && go test -mod=mod -tags functional -c -o ../tests ."],
        _go_source(_TOXIPROXY, "proxy"),
        ["sh", "-c", "cd proxy && go build -mod=mod -o ../toxiproxy ./cmd/server"],
    )
    return _go_outcome(await _at_fixed_addresses(place, "sarama", directory))


async def _kafkajs(place: Place) -> Outcome:
    assert place.sources is not None
    directory = scratch("kafkajs-suite", place.sources / "kafkajs" / "package.json")
    install(
        directory,
        ["cp", "-r", str(place.sources / "kafkajs"), "source"],
        # Its husky would put hooks into the git directory around it, which is ours.
        [
            "sh",
            "-c",
            "cd source && HUSKY=0 HUSKY_SKIP_INSTALL=1 npm install --silent --no-audit --no-fund --legacy-peer-deps",
        ],
    )
    await _at_fixed_addresses(place, "kafkajs", directory)
    return _junit(place.output / "kafkajs.xml")


async def _aiokafka(place: Place) -> Outcome:
    assert place.sources is not None
    requirements = _HERE / "requirements-aiokafka.txt"
    directory = scratch("aiokafka-suite", requirements)
    install(
        directory,
        [sys.executable, "-m", "venv", "venv"],
        [str(directory / "venv" / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(requirements)],
        ["cp", "-r", str(place.sources / "aiokafka"), "source"],
    )
    await _at_fixed_addresses(place, "aiokafka", directory)
    return _junit(place.output / "aiokafka.xml")


async def _librdkafka(place: Place) -> Outcome:
    directory = scratch("librdkafka-suite", _HERE / "__main__.py")
    source = directory / "package" / "deps" / "librdkafka"
    install(
        directory,
        ["sh", "-c", f"npm pack --silent {_RDKAFKA} && tar xzf *.tgz"],
        ["sh", "-c", f"cd {source} && ./configure --disable-debug-symbols && make -j2 libs"],
        ["sh", "-c", f"cd {source}/tests && make -j2 test-runner"],
    )
    config = "metadata.broker.list={}\ntest.topic.random=true\ntest.timeout.multiplier=3\n"
    (source / "tests" / "test.conf").write_text(config.format(place.kafka))
    text = await _run(
        place,
        "librdkafka",
        # Those of its mock need no broker; quick, one at a time, as a broker of this version.
        ["./test-runner", "-Q", "-L", "-p1", "-V", "4.2.0"],
        source / "tests",
        LD_LIBRARY_PATH=f"{source}/src:{source}/src-cpp",
        **({"TESTS": place.only} if place.only else {}),
    )
    found = re.findall(r"Test (\d{4}_\w+) (PASSED|FAILED|SKIPPED)", text)
    return {name: word.lower() for name, word in found}


async def _pytest(place: Place, name: str, checkout: str, *arguments: str, **environment: str) -> Outcome:
    assert place.sources is not None
    requirements = _HERE / f"requirements-{name}.txt"
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
    await _run(place, name, [*command, *chosen, *arguments], place.sources / checkout, **environment)
    return _junit(report)


async def _confluent(place: Place) -> Outcome:
    outcome: dict[str, str] = {}
    for protocol in ("classic", "consumer"):
        tests = [
            f"tests/integration/{each}" for each in ("admin", "consumer", "producer", "serialization", "share_consumer")
        ]
        found = await _pytest(
            place, "confluent", "confluent-kafka-python", *tests, "tests/integration/schema_registry/_sync",
            BROKERS=place.kafka, SR_URL=place.http, TEST_CONSUMER_GROUP_PROTOCOL=protocol,
        )  # fmt: skip
        outcome |= {f"{protocol}: {name}": state for name, state in found.items()}
    return outcome


async def _kafka_python(place: Place) -> Outcome:
    command = [sys.executable, "-m", "pytest", "-q", "tests/interop/test_kafka_python_suite.py"]
    report = place.output / "kafka-python.xml"
    await _run(place, "kafka-python", [*command, f"--junitxml={report}"], _ROOT, KAFKALITE_INTEROP="all")
    return _junit(report)


def _of_kafka(name: str, suite: runner.Suite) -> Callable[[Place], Awaitable[Outcome]]:
    """Tests of Apache Kafka; `only` is a regular expression of classes, then # and a method."""
    return lambda place: runner.run(suite, name, place.output, place.only)


class Suite(NamedTuple):
    run: Callable[[Place], Awaitable[Outcome]]
    #: Settings of the nodes on top of the others.
    settings: Mapping[str, object]
    needs_sources: bool = False
    #: It starts nodes of its own.
    has_nodes: bool = False


_SHORT_LOCKS = {"group.share.record.lock.duration.ms": 1000, "group.share.min.record.lock.duration.ms": 1000}
SUITES: Mapping[str, Suite] = {
    "franz-go": Suite(_franz_go, {}),
    "librdkafka": Suite(_librdkafka, _RIGHTS),
    "kafka-python": Suite(_kafka_python, {}),
    "confluent": Suite(_confluent, {**_RIGHTS, **_SHORT_LOCKS}, needs_sources=True),
    "kafka-go": Suite(_kafka_go, {}, has_nodes=True),
    "sarama": Suite(_sarama, {}, has_nodes=True),
    "aiokafka": Suite(_aiokafka, {}, needs_sources=True, has_nodes=True),
    "kafkajs": Suite(_kafkajs, {}, needs_sources=True, has_nodes=True),
    **{name: Suite(_of_kafka(name, suite), {}, has_nodes=True) for name, suite in suites.ALL.items()},
}


async def _one(name: str, output: Path, sources: Path | None, only: str) -> bool:
    """Whether everything passed that can. Prints what did not."""
    suite = SUITES[name]
    if suite.needs_sources and sources is None:
        click.echo(f"{name}: left out, no --sources")
        return True
    if suite.has_nodes:
        return _reported(name, output, await suite.run(Place("", "", output, sources, only)))
    settings = {**_SETTINGS, "default.replication.factor": 3, "http.port": 0, **suite.settings}
    with tempfile.TemporaryDirectory(prefix="suites-") as directory:
        async with LoopbackCluster(Path(directory), nodes=3, settings=settings) as cluster:
            node = next(iter(cluster.nodes.values()))
            place = Place(cluster.bootstrap, f"http://{node.endpoints['http']}", output, sources, only)
            outcome = await suite.run(place)
    return _reported(name, output, outcome)


def _reported(name: str, output: Path, outcome: Outcome) -> bool:
    """Print what did not pass. Whether everything passed that can."""
    states = list(outcome.values())
    click.echo(
        f"{name}: {states.count('passed')} passed, {states.count('failed')} failed, {states.count('skipped')} skipped"
        + (f", {states.count('inside')} look inside the broker" if "inside" in states else "")
    )
    is_well = bool(states)
    if not states:
        click.echo(f"  it did not run: see {output / name}.log")
    for test, state in sorted(outcome.items()):
        if state != "failed":
            continue
        cause = next((why for part, why in CAUSES[name].items() if part in test), None)
        is_well = is_well and cause is not None
        click.echo(f"  {test}: {cause or 'NOT EXPLAINED'}")
    return is_well


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(SUITES)))
@click.option("--sources", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Checkouts of suites.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path(".interop/suites"), help="For logs and reports."
)
@click.option("--only", default="", help="Tests that the suite chooses by this text.")
def main(names: tuple[str, ...], sources: Path | None, output: Path, only: str) -> None:
    """Run other people's suites; all if none is named."""
    output.mkdir(parents=True, exist_ok=True)

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    place, checkouts = output.resolve(), sources.resolve() if sources else None

    async def run() -> bool:
        return all([await _one(name, place, checkouts, only) for name in names or SUITES])

    sys.exit(0 if asyncio.run(run()) else 1)


if __name__ == "__main__":
    main()
