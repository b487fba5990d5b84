"""Why tests of other people's suites do not pass: part of a test's name -> the cause."""

from __future__ import annotations

from collections.abc import Mapping

_TRIVUP = "starts brokers of its own with trivup"

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
}
