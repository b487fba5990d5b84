"""Suites of clients in JavaScript: KafkaJS, and Confluent's, which is made of librdkafka (compiled here; the npm package brings its source)."""

from __future__ import annotations

import json
from pathlib import Path

from tests.interop.conftest import install, scratch
from tests.suites.running import HERE, Outcome, Place, at_fixed_addresses, junit, run

CONFLUENT = "@confluentinc/kafka-javascript@1.10.1"
_INSTALL = "npm install --silent --no-audit --no-fund --legacy-peer-deps"
_STATES = {"pending": "skipped", "todo": "skipped", "disabled": "skipped"}


async def kafkajs(place: Place) -> Outcome:
    assert place.sources is not None
    directory = scratch("kafkajs-suite", place.sources / "kafkajs" / "package.json")
    install(
        directory,
        ["cp", "-r", str(place.sources / "kafkajs"), "source"],
        # Its husky would put hooks into the git directory around it, which is ours.
        ["sh", "-c", f"cd source && HUSKY=0 HUSKY_SKIP_INSTALL=1 {_INSTALL}"],
    )
    await at_fixed_addresses(place, "kafkajs", directory)
    return junit(place.output / "kafkajs.xml")


def _compiled(package: str) -> list[list[str]]:
    """Commands that put an npm package and what its tests need into `package`, and compile it (npm says where the headers are; with the libraries of the machine)."""
    return [
        ["sh", "-c", f"npm pack --silent {package} && tar xzf *.tgz"],
        [
            "sh",
            "-c",
            f"cd package && {_INSTALL} --ignore-scripts && export CKJS_LINKING=dynamic && npm run --silent configure && npm run --silent build",
        ],
    ]


async def _by_mocha(place: Place, name: str, package: Path, **environment: str) -> Outcome:
    """The tests in e2e."""
    report = place.output / f"{name}.xml"
    command = ["node_modules/.bin/mocha", "--exit", "--timeout", "120000", "--reporter", "xunit"]
    chosen = ["--grep", place.only] if place.only else []
    command += ["--reporter-option", f"output={report}", *chosen, "e2e/*.spec.js"]
    await run(place, name, command, package, KAFKA_HOST=place.kafka, **environment)
    return junit(report)


async def confluent_kafka_javascript(place: Place) -> Outcome:
    """Its older interface (e2e), then the one like KafkaJS's, with both protocols of groups. The npm package has no tests."""
    assert place.sources is not None
    checkout = place.sources / "confluent-kafka-javascript"
    directory = scratch("confluent-kafka-javascript-suite", HERE / "javascript_clients.py")
    install(
        directory,
        *_compiled(CONFLUENT),
        ["cp", "-r", str(checkout / "e2e"), str(checkout / "test"), "package"],
    )
    package = directory / "package"
    name = "confluent-kafka-javascript"
    outcome = dict(await _by_mocha(place, f"{name}-e2e", package))
    for protocol in ("classic", "consumer"):
        report = place.output / f"{name}-{protocol}.json"
        command = ["node_modules/.bin/jest", "--ci", "--maxWorkers=1", "--forceExit", "--testTimeout=60000"]
        command += [
            "--json",
            f"--outputFile={report}",
            *(["-t", place.only] if place.only else []),
            "test/promisified/",
        ]
        await run(
            place, f"{name}-{protocol}", command, package,
            KAFKA_HOST=place.kafka, TEST_CONSUMER_GROUP_PROTOCOL=protocol,
        )  # fmt: skip
        outcome |= {f"{protocol}: {test}": state for test, state in _by_jest(report).items()}
    return outcome


def _by_jest(report: Path) -> Outcome:
    """Of a report, which is removed; nothing if the suite did not even start."""
    if not report.exists():
        return {}
    files = json.loads(report.read_text())["testResults"]
    report.unlink()
    found = {case["fullName"]: case["status"] for file in files for case in file["assertionResults"]}
    return {name: _STATES.get(state, state) for name, state in found.items()}
