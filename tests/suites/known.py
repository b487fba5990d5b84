"""Why tests of other people's suites do not pass: part of a test's name (or = and the whole name) -> the cause."""

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
_RAFT = "asks a controller of KRaft (bootstrap.controllers, DescribeQuorum, metadata.version), of which a cluster with ZooKeeper has none"
_TIERED = "its cluster loads a plugin for tiered storage, which is not offered"
_ASSIGNOR = "its assignor is a class that the broker would have to load"
_CONTROL_RECORDS = "expects that members get control records and acknowledge them as gaps; here they are not handed out"
_OWN_LISTENER_TLS = "the key and trust stores of a listener are settings of the file here; a node reads the files again when they change"
_WORDS = "the error's text is another one here, with"
_FIRST_ID = "expects that the first producer's id is 0; here each node reserves ids before they are needed"
_LAST_IN_SYNC = "expects an empty ISR; here the last replica in sync stays in it when it stops (docs/adr/0016)"
_EPOCH_OF_FOLLOWERS = (
    "the end of a broker gives the partitions that it followed another leader epoch, too, as Kafka with ZooKeeper did"
)
_EPOCHS = (
    "counts epochs while Kafka waits group.*.assignment.interval.ms; here a member that joins waits for the next target in the same"
    " request (docs/adr/0029), and the first target of a share group waits for nothing"
)
_STATE_PARTITIONS = "waits for 50 partitions of __transaction_state; the clusters of suites have 5 (it passes with 50)"
_PROTOCOLS = (
    "group.coordinator.rebalance.protocols: which protocols there are is chosen by features (UpdateFeatures) here"
)

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
    "confluent-kafka-go": {
        "TestTransactionalProducer": "its Flush(-1) does not wait: it passes if the records are delivered while offsets are sent",
        "TestTransactionalSendOffsets": "names its topics by the second, as TestTransactionalProducer does: it passes in the next second",
    },
    "confluent-kafka-javascript": {
        "messages: empty key and empty value": "fails on Apache Kafka 4.4.0, too",
        "messages: empty buffer key and empty value": "fails on Apache Kafka 4.4.0, too",
    },
    "watermill": {},
    "kafka-go": {
        "TestConn/test_delete_topics": "its own Metadata request creates the topic again, and is answered when that is done",
        "=TestConn": "of the subtest",
        "=TestReaderConsumerGroup": "of the subtest",
        "=TestReaderConsumerGroup/consumer_group_rebalance": (
            "24 records in 3 partitions: a reader with one partition gets 8 of the 12 that it expects, unless it read before the other one joined"
        ),
    },
    "sarama": {},
    "aiokafka": {
        "test_describe_cluster": _ONE_NODE,
        "test_describe_configs_broker": _ONE_NODE,
        "TestAdmin.test_metadata": _ONE_NODE,
        "test_consumer_seek_to_end": "acks=1 on a busy machine: the end is what all three replicas have, as with Apache Kafka",
        "gssapi": "Kerberos, which is not offered (docs/security.md)",
        "test_manual_subscribe_pattern": "reads between the start and its seek on a busy machine; passes alone",
        "test_list_topics": "asks another node, which hears of the topics later on a busy machine, as with Apache Kafka",
        "test_send_without_response": "acks=0 to a node that does not lead: it closes the connection, as Apache Kafka does",
    },
    "kafkajs": {
        "TxnOffsetCommit ignores invalid transaction fields": "transactions are verified (KIP-890), as by Kafka 4.4",
        "trigger rebalance if partitions change": "adds partitions with Docker",
        "max timestamp difference": "message.timestamp.difference.max.ms, which Kafka 4 has removed",
        "describeConfigs request": "the synonyms of Kafka 2.4, and message.format.version, which Kafka 4 has removed",
        "emits request timeout events": "wants an answer later than a millisecond; Apache Kafka 4.4 is faster in 68 of 100 runs, too",
        "alterPartitionReassignments request": "now and then the reassignment of the empty topic is over before it is listed",
        "remains in the group without receiving": "on a busy machine the second member joins when the first generation is there",
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
        "AddPartitionsToTxnRequestServerTest.testVerifyOnly": _STATE_PARTITIONS,
        "AddPartitionsToTxnRequestServerTest.testOneSuccessOneErrorInBatchedRequest": _STATE_PARTITIONS,
        "testMissingPartitions": _WORDS + " the numbers",
        "Log4jLogLevels": "loggers are Python's, and no resource (docs/kafka-protocol.md)",
        "testElectUncleanLeaders": "sets eligible.leader.replicas.version to 0; here it is always on (docs/adr/0016)",
        "testDeleteRecordsAfterCorruptRecords": _INTERNAL_SETTING,
        "testCreatePartitions": _WORDS + " the same in other words",
        "testNullConfigs": _WORDS + " the same in other words",
        "testValidIncrementalAlterConfigs": _WORDS + " the values that there are",
        "testInvalidIncrementalAlterConfigs": _WORDS + " the same in other words",
        "testInvalidAlterPartitionReassignments": _WORDS + " the partition",
        "testIncrementalAlterAndDescribeGroupConfigs": _WORDS + " the limits",
        "testDescribeAndAlterConfigs": "counts the settings that a broker of Kafka has",
        "testDescribeTransactions": _FIRST_ID,
        "testListTransactions": _FIRST_ID,
        "testListNodesWithFencedBroker": "a broker without a session in ZooKeeper is not known, so none is fenced",
        "testLongTopicNames": "expects that a topic with a long name cannot move between disks; here it can",
        "testDescribeGroups(": _EPOCHS,
        "testConsumerGroupHeartbeatRebalance": _EPOCHS,
        "testUpgradeMigrationPolicy": "expects Assigning after a member has left; here the next target is made at once",
        "NonEmptyUserDataInAssignment": _WORDS + " the same in other words",
        "testDowngradeMigrationPolicy": _EPOCHS,
        "AssignmentStrategyAnd": _EPOCHS,
        "testGroupCoordinatorChange": _EPOCHS,
        "testPartitionAssignmentWithChangingTopics": _EPOCHS,
        "testShareGroupHeartbeatWithMultipleMembers": _EPOCHS,
        "testShareGroupHeartbeatIsAccessible": _EPOCHS,
        "testMemberLeavingAndRejoining": _EPOCHS,
        "testConsumerGroupDescribeWithNewGroupCoordinator": "expects the order of a hash map",
        "WhenOffsetTopicNotExist": _WORDS + " the error's name",
        "testDynamicGroupConfig": "a member that says it has nothing hears at once what it has, in Kafka only when that changes",
        "testFencedMemberCanRejoinWithEpochZero": "Kafka 4.4 always says the acceptable lag, 4.3 did not",
        "testStreamsGroupHeartbeatIsAccessible": _WORDS + " the words of Kafka 4.4",
        "testApiVersionsRequest": "counts the APIs of Kafka 4.3; here are those of 4.4",
        "ConfigsDisabled": _PROTOCOLS,
        "FeatureFlagNotEnabled": _PROTOCOLS,
        "DisabledBy": _PROTOCOLS,
        "testListGroups": "expects the order of a hash map",
        "testConsumerGroupHeartbeatWithReg": "expects that the first heartbeat has no assignment yet; here the expression is matched at once",
        "testCorruptLz4ProduceRequest": _METER,
        "testProduceWithInvalidTimestamp": _WORDS + " the limits of the timestamp",
        "testBrokerRespectsPartitionsOrderAndSizeLimits": "expects half a batch at the size limit; nodes of ours send whole batches only",
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
        "ConsumerBounceTest.testAsyncClose()": _EPOCH_OF_FOLLOWERS
        + "; Java's consumer does not commit a position that is not validated yet",
        "ConsumerIntegrationTest.testAsyncConsumerWithConsumerProtocolDisabled": _PROTOCOLS,
        "ConsumerIntegrationTest.testLeaderEpoch": _EPOCH_OF_FOLLOWERS,
        "ConsumerIntegrationTest.testRackAwareAssignment": _ASSIGNOR,
        "ConsumerIntegrationTest.testSingleCoordinatorOwnership": _IN_JVM,
        "ConsumerWithLegacyMessageFormatIntegrationTest": _IN_JVM,
        "DeleteTopicTest": _IN_JVM,
        "DescribeFeaturesTest": _OWN_CONTROLLER,
        "DynamicGroupConfigIntegrationTest.testDescribeGroupConfigSynonymsWithBrokerSynonym": (
            "the default of group.consumer.assignment.interval.ms is 0 here: a lone member does not wait"
        ),
        "PlaintextConsumerTest.testClassicConsumerListTopics": (
            "expects that __consumer_offsets is there 100 ms after it was asked for: on a busy machine it is not always"
        ),
        "PlaintextConsumerTest.testAsyncConsumerQuotaMetricsNotCreated": _METER,
        "PlaintextConsumerTest.testClassicConsumerQuotaMetricsNotCreated": _METER,
        "ProducerFailureHandlingTest.testCannotSendToInternalTopic": _IN_JVM,
        "ProducerIdExpirationTest.testDynamicProducerIdExpirationMs": _LATER,
        "ProducerIdExpirationTest.testProducerIdExpirationWithNoTransactions": _LATER,
        "TransactionsExpirationTest.testTransactionAfterProducerIdExpires": _LATER,
        "StaticBrokerConfigTest.testInternalConfigsDoNotReturnForCreateTopics": "errors.deadletterqueue.group.enable is of Kafka 4.4",
        "ShareConsumerRackAwareTest": _ASSIGNOR,
        "ShareConsumerTest.testAlterReadCommittedToReadUncommitted": _CONTROL_RECORDS,
        "ShareConsumerTest.testDescribeShareGroupOffsetsForEmptySharePartition": (
            "where a new group begins is stored at once here (docs/adr/0038), so its offset is shown before its first acknowledgement"
        ),
        "ShareConsumerTest.testRenewAcknowledgementNoResultInPoll": _METER,
        "ShareConsumerTest.testRenewAcknowledgementInvalidStateRecord": _METER,
        "ShareConsumerTest.testRenewAcknowledgementOn": _METER,
        "StaticBrokerConfigTest": _OWN_CONTROLLER,
    },
    "kafka-server": {
        "testFeatureNotEnabled": _RAFT,
        "CordonedLogDirsIntegrationTest.testUpdateCordonedDirsViaController": _RAFT,
        "ClientQuotasRequestTest.testAlterClientQuotasBadIp": _WORDS + " the same in other words",
        "ClientQuotasRequestTest.testAlterClientQuotasInvalidEntityCombination": _WORDS + " the same in other words",
        "ClientQuotasRequestTest.testDescribeClientQuotasInvalidFilterCombination": _WORDS + " the same in other words",
        "MetadataRequestTest.testAuto": "Metadata that creates a topic is answered when that is done, or with its error",
        "EligibleLeaderReplicasIntegrationTest.testElr": _LAST_IN_SYNC,
        "EligibleLeaderReplicasIntegrationTest.testLastKnownLeader": _LAST_IN_SYNC,
    },
    "kafka-tools": {
        "BrokerApiVersionsCommandTest.testBrokerApiVersionsCommandOutput": "version 0 of ListOffsets is served here, too",
        "BootstrapController": _RAFT,
        "testDescribeWithKRaftAndBootstrapControllers": _RAFT,
        "testDescribeWithUnstableApiVersions": _RAFT,
        "FeatureCommandTest.testDowngrade": _RAFT,
        "FeatureCommandTest.testUpgrade": _RAFT,
        "FeatureCommandTest.testDescribeWithKRaft": _RAFT,
        "FeatureCommandTest.testDescribeWithUnstableFeatureVersions": _RAFT,
        "MetadataQuorumCommandTest": _RAFT,
        "ClusterToolTest.testListEndpointsArgumentWithBootstrapServer": (
            "expects a stopped broker as fenced; with ZooKeeper a broker that is away is not registered"
        ),
        "ClusterToolTest.testUnregister": "a stopped broker without replicas leaves nothing in ZooKeeper that could be removed",
        "ReassignPartitionsCommandTest.testDisallowReplicationFactorChange": _WORDS + " the same numbers",
        "DeleteStreamsGroupTest.testDeleteAllGroupsAfterVersionDowngrade": (
            "streams groups are still described, and their internal topics found, while streams.version is 0"
        ),
        "ConfigCommandIntegrationTest.testBrokerLoggerConfigUpdate": (
            "sets the level of a logger by the name of a class of Kafka's; loggers are no resource here"
        ),
        "ConfigCommandIntegrationTest.testUpdateBrokerConfigNotAffectedByInvalidConfig": "a broker's setting that nobody knows is refused here",
        "ConfigCommandIntegrationTest.testUpdateInvalidBrokerConfigs": "a broker's setting that nobody knows is refused here",
        "ConfigCommandIntegrationTest.testUpdatePerBrokerConfigWithListenerName": _OWN_LISTENER_TLS,
        "ConfigCommandIntegrationTest.testDynamicBrokerConfigUpdateUsingKraft": _OWN_LISTENER_TLS,
        "GetOffsetShellTest.testGetOffsetsByEarliestLocalSpec": _TIERED,
        "GetOffsetShellTest.testGetOffsetsByLatestTieredSpec": _TIERED,
        "GetOffsetShellTest.testGetOffsetsByEarliestTieredSpec": _TIERED,
        "TopicCommandTest.testCreateWithInternalConfig": _INTERNAL_SETTING,
        "ConsoleConsumerTest.testGroupMetadataMessageFormatter": (
            "expects the record of an empty group first; here the first record is that of its first generation"
        ),
        "ConsoleConsumerTest.testTransactionLogMessageFormatter": (
            "expects that the first producer id is 0; nodes reserve blocks of ids before they need them"
        ),
    },
    "mirror": {},
}
