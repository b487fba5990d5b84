"""Why tests of other people's suites do not pass: part of a test's name -> the cause."""

from __future__ import annotations

from collections.abc import Mapping

_NO_TIME_TO_SYNC = "joins with a rebalance time-out of 0, so it has no time for its SyncGroup"
_ONE_NODE = "expects one broker; here are three"
_IN_JVM = "looks at the broker's objects in its own JVM"
_LATER = "a silent producer must be silent by the node's own clock, too, which takes up to twice the time"
_OWN_CONTROLLER = "asks a controller of its own process, or gives it settings of its own: here brokers are controllers"
_TRIVUP = "starts brokers of its own with trivup"
_INTERNAL_SETTING = "sets internal.segment.bytes, a setting of topics that Apache Kafka has for its own tests"
_METER = "reads a meter of its own JVM"
_WORDS = "the error's text is another one here, with"

CAUSES: Mapping[str, Mapping[str, str]] = {
    "franz-go": {
        "Test848RegexBrokerResolves": "regular expressions match no internal topics (docs/adr/0029)",
    },
    "librdkafka": {},
    "kafka-python": {},
    "confluent": {
        "test_incremental_alter_configs": "expects min.insync.replicas as KRaft sets it with eligible leader replicas",
        "test_describe_operations.test_describe_operations[sasl_cluster0]": _TRIVUP,
        "test_api_get_register_schema_invalid[kafka_cluster_cp_7_0_1": _TRIVUP,
        "test_sync_commit_releases_gil": "counts the turns of another thread meanwhile: passes on a machine that is not busy",
        "test_partition_max_record_locks_caps_in_flight": (
            "200 records of one batch are acquired together, as with Apache Kafka, which cuts no batch in this mode"
        ),
    },
    "confluent-kafka-go": {},
    "confluent-kafka-javascript": {
        "messages: empty key and empty value": "fails on Apache Kafka 4.4.0, too",
        "messages: empty buffer key and empty value": "fails on Apache Kafka 4.4.0, too",
    },
    "watermill": {},
    "kafka-go": {
        "TestConn/test_delete_topics": "its own Metadata request creates the topic again, and is answered when that is done",
        "TestConn": "of the subtest",
    },
    "sarama": {},
    "aiokafka": {
        "test_describe_cluster": _ONE_NODE,
        "test_describe_configs_broker": _ONE_NODE,
        "TestAdmin.test_metadata": _ONE_NODE,
        "test_consumer_seek_to_end": "acks=1 on a busy machine: the end is what all three replicas have, as with Apache Kafka",
        "gssapi": "Kerberos, which is not offered (docs/security.md)",
    },
    "kafkajs": {
        "TxnOffsetCommit ignores invalid transaction fields": "transactions are verified (KIP-890), as by Kafka 4.4",
        "trigger rebalance if partitions change": "adds partitions with Docker",
        "max timestamp difference": "message.timestamp.difference.max.ms, which Kafka 4 has removed",
        "describeConfigs request": "the synonyms of Kafka 2.4, and message.format.version, which Kafka 4 has removed",
        "emits request timeout events": "wants an answer later than a millisecond; Apache Kafka 4.4 is faster in 68 of 100 runs, too",
        "recovers from offset out of range": _NO_TIME_TO_SYNC,
        "OffsetCommit request": _NO_TIME_TO_SYNC,
        "OffsetFetch request": _NO_TIME_TO_SYNC,
        "Heartbeat request": _NO_TIME_TO_SYNC,
    },
    "kafka-streams": {
        "PurgeRepartitionTopicIntegrationTest": _INTERNAL_SETTING,
        "KafkaStreamsTelemetryIntegrationTest.shouldPush": "loads a plugin of Java into the broker, which shows what clients push",
    },
    "kafka-core": {
        "testConsumerGroupHeartbeatWithRegex": "expects that the first heartbeat has no assignment yet; here the expression is matched at once",
        "testCorruptLz4ProduceRequest": _METER,
        "testProduceWithInvalidTimestamp": _WORDS + " the limits of the timestamp",
        "testBrokerRespectsPartitionsOrderAndSizeLimits": "expects half a batch at the size limit; nodes of ours send whole batches only",
        "testLastFetchedEpochValidation": "sends last_fetched_epoch as a consumer, which no client does; only followers are checked for it",
        "testListOffsetsErrorCodes": "asks a follower as a debugging replica (id -2), for which only leaders answer here",
        "DeleteTopicsRequestTest.test": "its Metadata request creates the deleted topic again, and is answered when that is done",
        "testAlterUnknownMechanism": _WORDS + " the mechanisms that there are",
        "testAlterToo": _WORDS + " the limits",
        "testAlterEmptyUser": _WORDS + " the same in other words",
        "testMetadataVersionTooLow": "metadata.version of KRaft, which a cluster with ZooKeeper does not have",
    },
    "connect": {},
    "kafka-clients": {
        "AutoTopicCreationTest.testAutoCreateTopicWithImplicit": _OWN_CONTROLLER,
        "AutoTopicCreationTest.testAutoCreateTopicWithMixed": _OWN_CONTROLLER,
        "ConsumerIntegrationTest.testAsyncConsumerWithConsumerProtocolDisabled": (
            "group.coordinator.rebalance.protocols: which protocols there are is chosen by features (UpdateFeatures) here"
        ),
        "ConsumerIntegrationTest.testRackAwareAssignment": "its assignor is a class that the broker would have to load",
        "ConsumerIntegrationTest.testSingleCoordinatorOwnership": _IN_JVM,
        "DeleteTopicTest.testDeleteTopicWithCleaner": _IN_JVM,
        "DeleteTopicTest.testRecreateTopicAfterDeletion": _IN_JVM,
        "DeleteTopicTest.testResumeDeleteTopicWithRecoveredFollower": _IN_JVM,
        "DescribeFeaturesTest": _OWN_CONTROLLER,
        "DynamicGroupConfigIntegrationTest.testDescribeGroupConfigSynonymsWithBrokerSynonym": (
            "the default of group.consumer.assignment.interval.ms is 0 here: a lone member does not wait"
        ),
        "ProducerFailureHandlingTest.testCannotSendToInternalTopic": _IN_JVM,
        "ProducerSendWhileDeletionTest.testSendWithRecreatedTopic": _IN_JVM,
        "ProducerSendWhileDeletionTest.testSendWithTopicDeletionMidWay": _IN_JVM,
        "ProducerIdExpirationTest.testDynamicProducerIdExpirationMs": _LATER,
        "ProducerIdExpirationTest.testProducerIdExpirationWithNoTransactions": _LATER,
        "TransactionsExpirationTest.testTransactionAfterProducerIdExpires": _LATER,
        "StaticBrokerConfigTest.testInternalConfigsDoNotReturnForCreateTopics": "errors.deadletterqueue.group.enable is of Kafka 4.4",
        "StaticBrokerConfigTest": _OWN_CONTROLLER,
    },
    "kafka-tools": {},
    "mirror": {},
}
