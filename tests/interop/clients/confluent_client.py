"""confluent-kafka (librdkafka) against a cluster: one JSON line of what it saw."""

import json
import time
from typing import Any

from confluent_basics import BOOTSTRAP, consume, consumer, done, poll_until, produce, transactions
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic


def fetchers(admin, count):
    """Set num.replica.fetchers of broker 1; whether it is read-only, and its value then."""
    change = ConfigEntry("num.replica.fetchers", count, incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource("broker", "1", incremental_configs=[change])]))
    broker = ConfigResource("broker", "1")
    until = time.monotonic() + 25
    while True:
        told = admin.describe_configs([broker])[broker].result(10)["num.replica.fetchers"]
        if told.value == count or time.monotonic() > until:
            return [told.is_read_only, told.value]


def main():
    seen: dict[str, Any] = {}
    admin = AdminClient(BOOTSTRAP)
    done(admin.create_topics([NewTopic("confluent", 3, 3), NewTopic("confluent-txn", 1, 3)]))
    seen["produce errors"] = produce("confluent")
    more = {"partition.assignment.strategy": "cooperative-sticky"}
    messages, seen["assignments of three"], seen["assignments of two"] = consume("confluent-group", "confluent", **more)
    seen["consumed"] = len({(m.partition(), m.offset()) for m in messages})
    seen["headers"] = sorted({dict(m.headers())["codec"].decode() for m in messages})
    producer = Producer(BOOTSTRAP)
    producer.produce("confluent", value="after", partition=0)
    producer.flush(10)
    resumed = consumer("confluent-group", "confluent", **more)
    seen["resumed with"] = [m.value().decode() for m in poll_until([resumed], lambda got: len(got) >= 1)]
    resumed.close()
    transactions(seen, "confluent-txn", "txn-group")

    resource = ConfigResource("topic", "confluent")
    change = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource("topic", "confluent", incremental_configs=[change])]))
    seen["retention"] = admin.describe_configs([resource])[resource].result(10)["retention.ms"].value
    seen["fetchers"] = fetchers(admin, "3")
    seen["brokers"] = len(admin.describe_cluster().result(10).nodes)
    seen["groups"] = sorted(group.group_id for group in admin.list_consumer_groups().result(10).valid)
    admin.delete_consumer_groups(["confluent-group"])["confluent-group"].result(10)
    deleted = admin.delete_records([TopicPartition("confluent", 0, 2)])  # keep the dictionary: results go through it
    seen["low watermarks"] = [future.result(10).low_watermark for future in deleted.values()]
    admin.delete_topics(["confluent"])["confluent"].result(10)
    seen["topics"] = sorted(name for name in admin.list_topics(timeout=10).topics if not name.startswith("__"))
    print(json.dumps(seen))


main()
