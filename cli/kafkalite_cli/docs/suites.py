"""Other people's test suites as they stand, for docs/kafka-protocol.md."""

from __future__ import annotations

SUITES_INTRODUCTION = (
    "`make suites` runs them and names the cause of each failure (tests/suites/known.py); [ADR 75](adr/0075-suites-of-clients.md) says where they"
    " come from, [ADR 71](adr/0071-kafkas-own-tests.md) and [ADR 72](adr/0072-kafkas-core-tests-with-an-agent.md) how Apache Kafka's own tests get nodes. `SOURCES=DIR`:"
    " checkouts of confluent-kafka-python, confluent-kafka-javascript, kafkajs and aiokafka. The runs shared two busy cores with other work."
)
#: (suite and version, tests that pass, what does not and why).
SUITES = (
    (
        "franz-go 1.22.3 (kgo)",
        "148 of 153 (477 with subtests)",
        "4 skip themselves (SASL, an old broker); `Test848RegexBrokerResolves` expects a regular expression to match `__consumer_offsets` (docs/adr/0029)",
    ),
    (
        "librdkafka 2.15.1 (C, `-Q`)",
        "98 of 108",
        "10 skip themselves (TLS, SASL, RapidJSON, quick mode, message format 1). Built with zstd, without which 0171 ends. With RapidJSON, 0053, 0101 and 0110 pass, too; 0098 needs Kafka's scripts",
    ),
    (
        "confluent-kafka-python 2.15 (integration), librdkafka 2.16.1",
        "467 of 484, with both protocols of groups",
        (
            "9 skip themselves; with each protocol, two start brokers with trivup; `test_incremental_alter_configs` expects the `min.insync.replicas` that KRaft sets;"
            " `test_partition_max_record_locks_caps_in_flight` expects a batch to be cut at the limit, which Kafka 4.4 does not do in this mode either"
        ),
    ),
    (
        "kafka-python 3.0 (integration)",
        "50 of 56",
        "5 skip themselves; `test_kafka_version_infer` infers a newer version than 3.9, as which the suite is run",
    ),
    (
        "sarama 1.61.1 (functional, toxiproxy 2.5.0)",
        "77 of 78",
        "`TestFuncJavaInteropCooperativeRebalance` skips itself outside of Docker",
    ),
    (
        "kafka-go 0.4.51",
        "all but three",
        "`TestConn/test_delete_topics…` (two): their own Metadata request creates the topic again; `TestReaderConsumerGroup/…commit…` calls a function that the suite leaves unset. Some runs: `consumer_group_rebalance`, in which 24 records lie in 3 partitions and each of two readers expects 12",
    ),
    (
        "confluent-kafka-go 2.11.1 (integration)",
        "153 of 162",
        "9 skip themselves; on a busy machine `TestTransactionalProducer` fails (its `Flush(-1)` does not wait), and then the next test in the same second, whose topics have the same names",
    ),
    ("watermill-kafka 3.0.6 (`-short`)", "62 of 72", "10 skip themselves"),
    (
        "KafkaJS 2.2.4",
        "624 of 641",
        (
            "8 skip themselves; four join with a rebalance time-out of 0 and have no time for their SyncGroup (Kafka 4.4.0 refuses it, too); one needs Docker; three"
            " expect what Kafka 4 has removed; one commits offsets of a transaction that does not exist (KIP-890). In some runs `emits request timeout events` wants an"
            " answer later than a millisecond, a reassignment is over before it is listed, or the second of two members joins after the first generation"
        ),
    ),
    (
        "aiokafka 0.14",
        "972 of 1,081",
        (
            "104 skip themselves; three expect one broker, two Kerberos; `test_consumer_seek_to_end` writes with acks=1 and asks for the end (on Kafka 4.4.0 it fails more often);"
            " on a busy machine `test_manual_subscribe_pattern` reads between the start and a seek, `test_list_topics` asks a node that has not heard of the topics yet, and"
            " `test_send_without_response` notices that a node which does not lead closes the connection after acks=0, as Kafka does"
        ),
    ),
    (
        "node-rdkafka 3.6.1 (e2e), by hand",
        "61 of 64",
        "three send an empty key, and fail on Apache Kafka 4.4.0, too. Some runs of consumer and groups in one process end with a fault of the addon's memory, as on Kafka 4.4.0",
    ),
    (
        "@platformatic/kafka 2.9.0 (test/clients)",
        "591 of 601",
        (
            "six compare the order of the entries of a quota, which is that of a hash table of Kafka's; one expects Kafka's data directory, one Kafka's name of a synonym; one"
            " counts the requests until a topic is created on demand; one needs an address that does not answer. Its tests of SASL were not run"
        ),
    ),
    (
        "rdkafka 0.39.0 (Rust, with librdkafka 2.15.1), by hand",
        "49 of 50",
        "`test_base_producer_timeout` expects that a topic that is created on demand is not there within 100 ms. Some tests expect the node at localhost:9092",
    ),
    (
        "rskafka 0.6.0 (Rust)",
        "59 of 60",
        "one skips itself (TLS); those with Java and SASL return at once. With `auto.create.topics.enable=false`, which one expects",
    ),
    (
        "samsa 0.1.8 (Rust)",
        "15 of 18",
        "two expect port 9092; `multi_partition_writing_and_reading` does not parse partitions without records (on Kafka 4.4.0 it fails, too)",
    ),
    (
        "Jepsen's checker of Kafka histories (jepsen.tests.kafka, with Elle), by hand",
        "34 histories of one to two minutes: no lost write, duplicate, or skip within a poll",
        "Java clients 4.4.0 (transactions, subscribe and assign, classic and consumer groups) under faults of nodes, network, ZooKeeper and clients. Write cycles (G0) and skips over a rebalance are allowed, and Kafka 4.4.0 shows them, too; in one run three commits whose answer was lost and then was PRODUCER_FENCED, as in Kafka, counted as aborted",
    ),
    (
        "Apache Kafka 4.3.1: Connect",
        "158 of 158",
        "",
    ),
    (
        "Apache Kafka 4.3.1: Streams",
        "652, of 61 classes",
        (
            "the other classes, mostly of stores, were not run; `PurgeRepartitionTopicIntegrationTest` sets `internal.segment.bytes`; 12 of KafkaStreamsTelemetryIntegrationTest load a"
            " plugin into the broker"
        ),
    ),
    (
        "Apache Kafka 4.3.1: MirrorMaker",
        "37 of 37: exactly once, SASL and rights, transactions, TLS",
        "the other classes were not run",
    ),
    (
        "Apache Kafka 4.3.1: kafka-clients",
        (
            "of the classes run: seven PlaintextConsumer*Test and SaslPlainPlaintextConsumerTest 145 of 145, ShareConsumerTest 101 of 108, of producers and transactions 26 of 33, ClientRebootstrapTest and tests of"
            " ListOffsets 16 of 16"
        ),
        (
            "seven of shares: control records are not handed out (two), four read a meter of the client's JVM, an offset is shown before the first acknowledgement; a silent producer is kept up to twice as long (four); three look"
            " inside the broker; ConsumerBounceTest and ConsumerIntegrationTest were not run to their ends: the end of a broker gives the partitions that it followed another leader epoch, too, which two of their tests do"
            " not expect"
        ),
    ),
    (
        "Apache Kafka 4.3.1: kafka-core",
        (
            "of the classes named here 665 of 801: AuthorizerIntegrationTest 251 of 253, PlaintextAdminIntegrationTest 84 of 121, ShareFetchAcknowledgeRequestTest 50 of 52, 33 other classes of requests"
            " (groups of each kind, topics, users, transactions) 107 of 167, TransactionsTest 29 of 42, ConsumerProtocolMigrationTest 34 of 42, StreamsGroupHeartbeatRequestTest 16 of 28,"
            " PlaintextProducerSendTest 45 of 45, PlaintextConsumerAssignorsTest and SslConsumerTest 15 of 15, requests of Fetch, ListOffsets and OffsetFetch 34 of 36"
        ),
        (
            "38 look inside the broker; 12 of PlaintextAdminIntegrationTest are about loggers, or switch eligible leader replicas off; the number of partitions of `__transaction_state` (two); the groups' tests count epochs while Kafka waits for its assignment interval, or expect other words; a follower is no debugging"
            " replica; Fetch sends whole batches"
        ),
    ),
    (
        "Apache Kafka 4.3.1: kafka-server",
        "26 of 40",
        "3 look inside the broker; 3 ask a controller of KRaft; 3 expect other words; 3 expect an empty ISR (docs/adr/0016); 2 expect that Metadata is answered before a topic is created",
    ),
    (
        "Apache Kafka 4.3.1: kafka-tools",
        "ReassignPartitionsCommandTest 13 of 15, DeleteStreamsGroupTest 7 of 8",
        "one asks a controller of KRaft, one expects other words; streams groups are described while `streams.version` is 0, too",
    ),
)
