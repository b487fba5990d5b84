"""librdkafka's own suite, in C, and that of confluent-kafka-python."""

from __future__ import annotations

import re

from tests.interop.conftest import install, scratch
from tests.suites.javascript_clients import CONFLUENT
from tests.suites.running import HERE, Outcome, Place, by_pytest, run


async def librdkafka(place: Place) -> Outcome:
    directory = scratch("librdkafka-suite", HERE / "librdkafka_clients.py")
    source = directory / "package" / "deps" / "librdkafka"
    install(
        directory,
        ["sh", "-c", f"npm pack --silent {CONFLUENT} && tar xzf *.tgz"],
        ["sh", "-c", f"cd {source} && ./configure --disable-debug-symbols && make -j2 libs"],
        ["sh", "-c", f"cd {source}/tests && make -j2 test-runner"],
    )
    config = "metadata.broker.list={}\ntest.topic.random=true\ntest.timeout.multiplier=3\n"
    (source / "tests" / "test.conf").write_text(config.format(place.kafka))
    text = await run(
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


async def confluent(place: Place) -> Outcome:
    outcome: dict[str, str] = {}
    for protocol in ("classic", "consumer"):
        tests = [
            f"tests/integration/{each}" for each in ("admin", "consumer", "producer", "serialization", "share_consumer")
        ]
        found = await by_pytest(
            place, "confluent", "confluent-kafka-python", *tests, "tests/integration/schema_registry/_sync",
            BROKERS=place.kafka, SR_URL=place.http, TEST_CONSUMER_GROUP_PROTOCOL=protocol,
        )  # fmt: skip
        outcome |= {f"{protocol}: {name}": state for name, state in found.items()}
    return outcome
