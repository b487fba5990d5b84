"""Which jars of Apache Kafka's tests are run, and which of their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.suites.kafka_tests.runner import Suite

_TESTS = ("kafka-streams", "kafka-streams-integration-tests", "connect-runtime", "connect-mirror")
_WHOLE = (
    "kafka-streams", "kafka-streams-scala_2.13", "kafka-streams-test-utils",
    "connect-runtime", "connect-mirror", "connect-file", "connect-json", "connect-transforms",
)  # fmt: skip


def _suite(jar: str, package: str) -> Suite:
    return Suite(jar, f"org.apache.kafka.{package}", "streams-connect", _TESTS, _WHOLE)


#: Those of kafka_2.13 that ask brokers by the protocol. The others look at the objects of a broker, or need its plug-ins. First those on
#: KafkaServerTestHarness, then those with @ClusterTest.
_CORE = (
    "AddPartitionsTest", "AddPartitionsToTxnRequestServerTest", "AlterReplicaLogDirsRequestTest", "AlterUserScramCredentialsRequestTest",
    "AuthorizerIntegrationTest", "CreateTopicsRequestTest", "DelegationTokenRequestsOnPlainTextTest", "DeleteTopicsRequestTest",
    "DeleteTopicsRequestWithDeletionDisabledTest", "DescribeClusterRequestTest", "DescribeUserScramCredentialsRequestTest",
    "EdgeCaseRequestTest", "FetchRequestMaxBytesTest", "FetchRequestTest", "ListOffsetsRequestTest", "OffsetsForLeaderEpochRequestTest",
    "PlaintextAdminIntegrationTest", "ProduceRequestTest", "TransactionsTest",
    "PlaintextConsumerAssignorsTest", "PlaintextProducerSendTest", "SslConsumerTest",
    "ApiVersionsRequestTest", "ConsumerGroupDescribeRequestTest", "ConsumerGroupHeartbeatRequestTest",
    "ConsumerProtocolMigrationTest", "DeleteGroupsRequestTest", "DescribeGroupsRequestTest",
    "GroupCoordinatorIntegrationTest", "HeartbeatRequestTest", "JoinGroupRequestTest", "LeaveGroupRequestTest", "ListGroupsRequestTest",
    "OffsetCommitRequestTest", "OffsetDeleteRequestTest", "OffsetFetchRequestTest", "SaslApiVersionsRequestTest",
    "ShareFetchAcknowledgeRequestTest", "ShareGroupDescribeRequestTest", "ShareGroupHeartbeatRequestTest", "StreamsGroupDescribeRequestTest",
    "StreamsGroupHeartbeatRequestTest", "SyncGroupRequestTest", "TxnOffsetCommitRequestTest", "WriteTxnMarkersRequestTest",
)  # fmt: skip


#: For @ClusterTest: Kafka's extension, which JUnit finds, reads it.
_FOUND = ("--config=junit.jupiter.extensions.autodetection.enabled=true",)


def _with_agent(jar: str, package: str, only: Sequence[str]) -> Suite:
    tests = ("kafka_2.13", "kafka-metadata", "kafka-raft", "kafka-storage", "kafka-server", "kafka-group-coordinator")
    return Suite(jar, package, "broker", tests, ("kafka-streams",), only=only, ours="core", flags=_FOUND)


def _with_clusters(jar: str, package: str, left_out: Mapping[str, str]) -> Suite:
    """Of a jar whose tests have @ClusterTest."""
    tests = (
        "kafka-clients-integration-tests",
        "kafka-streams",
        "kafka-streams-integration-tests",
        "kafka-tools",
        "kafka-server",
        "kafka_2.13",
    )
    return Suite(jar, package, "clients-tools", tests, ("kafka-streams",), left_out, flags=_FOUND, is_in_loop=True)


_KRAFT = "about metadata.version, which a cluster without KRaft does not have"
_PLUGIN = "its cluster loads a class of the test as a plugin"
_CLIENTS_LEFT_OUT = {
    "AdminClientWithPoliciesIntegrationTest": _PLUGIN,
    "CreateTopicsRequestWithPolicyTest": _PLUGIN,
    "CustomQuotaCallbackTest": _PLUGIN,
    "GroupAuthorizerIntegrationTest": "its principals come from a builder, which is a plugin of the broker",
    "MetadataVersionIntegrationTest": _KRAFT,
    "MetricsDuringTopicCreationDeletionTest": "reads the metrics in the broker's own JVM",
    "SocketServerMemoryPoolTest": "reads the network threads' memory pool in the broker's own JVM",
}

_TOOLS_LEFT_OUT = {
    "AuthorizerIntegrationTest": "built on KafkaServerTestHarness, whose brokers are made by kafka-core's agent only",
    "SaslClientsWithInvalidCredentialsTest": "built on SaslSetup of kafka_2.13, which kafka-core's agent runs",
}

#: Those of kafka-server that ask brokers. The others are about KRaft or look at a broker's objects; UncleanLeaderElectionTest switches
#: eligible leader replicas off (docs/adr/0016).
_SERVER = (
    "ClientQuotasRequestTest", "CordonedLogDirsIntegrationTest", "DynamicConfigTest", "EligibleLeaderReplicasIntegrationTest",
    "MetadataRequestTest", "MinInSyncReplicasConfigTest",
)  # fmt: skip

#: By the name of the suite.
ALL: Mapping[str, Suite] = {
    "kafka-streams": _suite("kafka-streams-integration-tests", "streams.integration"),
    "connect": _suite("connect-runtime", "connect.integration")._replace(resources="test-plugins/"),
    "kafka-core": _with_agent("kafka_2.13", "kafka", _CORE),
    "kafka-clients": _with_clusters("kafka-clients-integration-tests", "org.apache.kafka", _CLIENTS_LEFT_OUT),
    "kafka-server": _with_agent("kafka-server", "org.apache.kafka", _SERVER),
    "kafka-tools": _with_clusters("kafka-tools", "org.apache.kafka.tools", _TOOLS_LEFT_OUT),
    "mirror": _suite("connect-mirror", "connect.mirror.integration"),
}
