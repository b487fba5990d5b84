"""Which jars of Apache Kafka's tests are run, and which of their classes."""

from __future__ import annotations

from collections.abc import Mapping

from tests.suites.kafka_tests.runner import Suite

_TESTS = ("kafka-streams", "kafka-streams-integration-tests", "connect-runtime", "connect-mirror")
_WHOLE = (
    "kafka-streams", "kafka-streams-scala_2.13", "kafka-streams-test-utils",
    "connect-runtime", "connect-mirror", "connect-file", "connect-json", "connect-transforms",
)  # fmt: skip


def _suite(jar: str, package: str) -> Suite:
    return Suite(jar, f"org.apache.kafka.{package}", "streams-connect", _TESTS, _WHOLE)


#: By the name of the suite.
ALL: Mapping[str, Suite] = {
    "kafka-streams": _suite("kafka-streams-integration-tests", "streams.integration"),
    "connect": _suite("connect-runtime", "connect.integration"),
    "mirror": _suite("connect-mirror", "connect.mirror.integration"),
}
