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
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import structlog

from tests.interop.conftest import install, scratch
from tests.suites.go_clients import confluent_kafka_go, franz_go, kafka_go, sarama, watermill
from tests.suites.javascript_clients import confluent_kafka_javascript, kafkajs
from tests.suites.kafka_tests import runner, suites
from tests.suites.known import CAUSES
from tests.suites.librdkafka_clients import confluent, librdkafka
from tests.suites.running import HERE, ROOT, Outcome, Place, at_fixed_addresses, junit, run
from tests.support.loopback_cluster import LoopbackCluster

_SETTINGS = {"num.partitions": 4, "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}
_RIGHTS = {"authorizer.enabled": True, "allow.everyone.if.no.acl.found": True}


async def _aiokafka(place: Place) -> Outcome:
    assert place.sources is not None
    requirements = HERE / "requirements-aiokafka.txt"
    directory = scratch("aiokafka-suite", requirements)
    install(
        directory,
        [sys.executable, "-m", "venv", "venv"],
        [str(directory / "venv" / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(requirements)],
        ["cp", "-r", str(place.sources / "aiokafka"), "source"],
    )
    await at_fixed_addresses(place, "aiokafka", directory)
    return junit(place.output / "aiokafka.xml")


async def _kafka_python(place: Place) -> Outcome:
    command = [sys.executable, "-m", "pytest", "-q", "tests/interop/test_kafka_python_suite.py"]
    report = place.output / "kafka-python.xml"
    await run(place, "kafka-python", [*command, f"--junitxml={report}"], ROOT, KAFKALITE_INTEROP="all")
    return junit(report)


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
    "franz-go": Suite(franz_go, {}),
    "librdkafka": Suite(librdkafka, _RIGHTS),
    "kafka-python": Suite(_kafka_python, {}),
    "confluent": Suite(confluent, {**_RIGHTS, **_SHORT_LOCKS}, needs_sources=True),
    "confluent-kafka-go": Suite(confluent_kafka_go, _RIGHTS),
    "confluent-kafka-javascript": Suite(
        confluent_kafka_javascript, {**_RIGHTS, "num.partitions": 1}, needs_sources=True
    ),
    "watermill": Suite(watermill, {"num.partitions": 1}),
    "kafka-go": Suite(kafka_go, {}, has_nodes=True),
    "sarama": Suite(sarama, {}, has_nodes=True),
    "aiokafka": Suite(_aiokafka, {}, needs_sources=True, has_nodes=True),
    "kafkajs": Suite(kafkajs, {}, needs_sources=True, has_nodes=True),
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
        cause = next(
            (why for part, why in CAUSES[name].items() if (test == part[1:] if part[0] == "=" else part in test)), None
        )
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
