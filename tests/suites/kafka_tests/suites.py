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


#: Those of kafka_2.13 on KafkaServerTestHarness that ask brokers by the protocol. The others look at the objects of a broker, or need its plug-ins.
_CORE = (
    "AddPartitionsTest", "AddPartitionsToTxnRequestServerTest", "AlterUserScramCredentialsRequestTest", "AuthorizerIntegrationTest",
    "CreateTopicsRequestTest", "DelegationTokenRequestsOnPlainTextTest", "DeleteTopicsRequestTest",
    "DeleteTopicsRequestWithDeletionDisabledTest", "DescribeClusterRequestTest", "DescribeUserScramCredentialsRequestTest",
    "EdgeCaseRequestTest", "FetchRequestMaxBytesTest", "FetchRequestTest", "ListOffsetsRequestTest", "OffsetsForLeaderEpochRequestTest",
    "ProduceRequestTest",
)  # fmt: skip
#: By the name of the suite.
ALL: Mapping[str, Suite] = {
    "kafka-streams": _suite("kafka-streams-integration-tests", "streams.integration"),
    "connect": _suite("connect-runtime", "connect.integration")._replace(resources="test-plugins/"),
    "kafka-core": Suite(
        "kafka_2.13",
        "kafka",
        "core",
        ("kafka_2.13", "kafka-metadata", "kafka-raft", "kafka-storage", "kafka-server"),
        (),
        only=_CORE,
        ours="core",
    ),
    "mirror": _suite("connect-mirror", "connect.mirror.integration"),
}
