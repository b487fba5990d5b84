"""What other people's test suites found, for docs/kafka-protocol.md."""

from __future__ import annotations

SUITES_INTRODUCTION = (
    "`make suites` runs them (franz-go, confluent-kafka-go and watermill from the Go module proxy, librdkafka out of an npm package,"
    " kafka-python's from PyPI; sarama and kafka-go from the Go proxy, as root; `SOURCES=DIR`: checkouts of"
    " confluent-kafka-python, confluent-kafka-javascript, kafkajs and aiokafka; [ADR 75](adr/0075-suites-of-clients.md); Apache Kafka's own tests of Streams, Connect and MirrorMaker from Maven, [ADR 71](adr/0071-kafkas-own-tests.md), and of its core, [ADR 72](adr/0072-kafkas-core-tests-with-an-agent.md)), and names the cause of each failure"
    " (tests/suites/known.py). Two busy cores were shared with other work in these runs."
)
SUITES = (
    (
        "franz-go 1.22.2 (kgo)",
        (
            "152 tests, 145 passed, 3 skipped themselves (SASL, an old broker), 4 failed: `TestShareGroupOffsetsAdmin`"
            " (AlterShareGroupOffsets of a new group was refused; passes now), `TestTxnEtl` (on a busy machine a batch of the next"
            " transaction was refused after 1 s; the leader waits 5 s now; passes), `TestShareGroupETL` (time limit of the busy"
            " machine; passes alone in 70 s), `Test848RegexBrokerResolves` (expects a regular expression to match"
            " `__consumer_offsets`; docs/adr/0029 decides against that)."
        ),
    ),
    (
        "librdkafka 2.15.1 (C, `-Q`, without the tests of its mock)",
        (
            "As a broker of version 2.4 (its default): none of the tests with a broker failed, up to 0152; what needs TLS, SASL or a"
            " newer broker skips itself. 0109, 0115 and 0119 need Kafka's `kafka-acls.sh`, and a client that is no super user: then"
            " they pass. 0105, a test of the mock, ran into its own time limit on the busy machine. As version 4.2: 0170, 0184 pass;"
            " 0171 ends at a build without zstd; the other tests of share consumers do nothing with `-Q`."
        ),
    ),
    (
        "confluent-kafka-python 2.15 (integration), librdkafka 2.16.1",
        (
            "`group.protocol=classic`: admin 5 of 7 (one starts brokers with trivup; `test_incremental_alter_configs` expects the setting"
            " `min.insync.replicas=1` that KRaft writes itself with eligible leader replicas), serialization 9 of 9, schema registry 49"
            " of 51 (one trivup; `DependencyMessage` found that a Protobuf file of imports was refused in base64, which is taken"
            " now); the 51 asynchronous tests of the registry have no fixture for an existing cluster. `group.protocol=consumer`:"
            " consumers, producers with transactions and share consumers 169 of 170:"
            " `test_partition_max_record_locks_caps_in_flight` expects a batch of 200 records to be cut at a limit of 100, which the"
            " code of Apache Kafka 4.4 does not do in this mode either. On a machine with 15 times more work than processors: 464 of 484"
            " pass, 9 skip themselves; two transactions took longer than their time-out of 60 s and one share consumer was cut off after"
            " 20 s, all of which pass alone."
        ),
    ),
    (
        "kafka-python 3.0 (integration)",
        (
            "50 pass, 5 skip themselves; `test_kafka_version_infer` infers a newer version from the APIs that are offered than 3.9, as"
            " which the suite is run (make interop)."
        ),
    ),
    (
        "sarama 1.61.1 (functional tests, toxiproxy 2.5.0)",
        (
            "Five nodes, each behind a proxy that breaks connections, as a broker of version 4.3.1: 56 of 56 pass, among them those that stop and"
            " start brokers (`docker compose` is a script that stops and starts nodes). `TestFuncJavaInteropCooperativeRebalance` skips itself"
            " outside of Docker."
        ),
    ),
    (
        "kafka-go 0.4.51",
        (
            "One node, with its SASL users and ACLs. All pass but: `TestConn/test_delete_topics` and `…_with_an_invalid_topic` (their own Metadata"
            " request creates the topic again, and is answered here when that is done),"
            " `TestReaderConsumerGroup/…commit…` (call a function that the suite leaves unset; not run)."
            " On a machine with 20 times more work than processors, seven more ran into their own deadlines of 5 to 30 s."
        ),
    ),
    (
        "confluent-kafka-go 2.11.1 (integration)",
        "Both protocols of groups, on a machine with ten times more work than processors: 153 pass, 9 skip themselves, none fails.",
    ),
    (
        "watermill-kafka 3.0.6 (`-short`; sarama below it)",
        "62 pass, 10 skip themselves, none fails. It expects that topics are created with one partition.",
    ),
    (
        "KafkaJS 2.2.4",
        (
            "Three nodes with its ports, a certificate and its users: 623 of 641 pass, 8 skip themselves, 10 fail. Five tests"
            " (`OffsetCommit`, `OffsetFetch`, `Heartbeat`, `recovers from offset out of range`) join with a rebalance time-out of 0 and have no time"
            " for their SyncGroup: Apache Kafka 4.4.0 answers UNKNOWN_MEMBER_ID as well. One adds partitions with Docker. One sets"
            " `message.timestamp.difference.max.ms`, two expect the synonyms of Kafka 2.4 and `message.format.version`, which Kafka 4 has"
            " removed. One commits offsets of a transaction that does not exist: verified (KIP-890), as by Kafka 4.4."
            " `emits request timeout events` gives each answer one millisecond, and expects one to come later: none did in 2 and 7 of 100 runs on"
            " kafkalite, and in 68 of 100 on Apache Kafka 4.4.0."
        ),
    ),
    (
        "aiokafka 0.14",
        (
            "Three nodes in place of its container, with its certificates, users and ACLs; the whole suite: 970 of 1,081 tests pass, 104 skip"
            " themselves (103 for an empty list of parameters), 7 fail. Three expect one broker, two want Kerberos."
            " One asked for broker 0, which is there now, and passes."
            " `test_consumer_seek_to_end` writes with acks=1, and then asks for the end of the log, which is what all three replicas have:"
            " on the busy machine too few records in 61 of 100 tries, on three nodes of Apache Kafka 4.4.0 in 99; with acks=all never."
        ),
    ),
    (
        "Apache Kafka 4.3.1 (integration tests of Connect, Streams and MirrorMaker)",
        (
            "Unchanged; where they start brokers, they get nodes. Connect: 158 of 158, in 21 classes. Streams: 652 tests of"
            " 61 classes pass, among them all of exactly once, migration of the protocol, restoration and internal topics; the other classes"
            " (mostly of stores) were not reached. `PurgeRepartitionTopicIntegrationTest` sets `internal.segment.bytes`, which Kafka has for its own tests (with `segment.bytes` it"
            " passes), and 12 of KafkaStreamsTelemetryIntegrationTest load a plugin of Java into the broker. One test of the"
            " client's own log (`shouldResizeCacheAfterThreadReplacement`) failed once on the busy machine and passes alone. MirrorMaker, as far as"
            " it was run: exactly once 17, with SASL and rights 9, with transactions 8, over TLS 3, none failed."
            " They found that an application could not go back from `group.protocol=streams` to `classic` at once, that the answer to a"
            " ListOffsets could be older than that of the fetch in front of it on its connection (Kafka Streams then waited for the next"
            " record), and other words for topics that do not fit together. All of it is as in Kafka now."
        ),
    ),
)
