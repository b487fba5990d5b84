"""confluent-kafka 1.9 (librdkafka 1.9), of 2022, against a cluster: one JSON line of what it saw."""

import json
from typing import Any

from confluent_basics import BOOTSTRAP, consume, consumer, done, poll_until, produce, transactions
from confluent_kafka import TopicPartition, libversion
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic


def of_group(strategy: str) -> list[Any]:
    """The group continues where it has committed."""
    group, more = f"old-{strategy}", {"partition.assignment.strategy": strategy}
    messages, three, two = consume(group, "old", **more)
    resumed = consumer(group, "old", **more)
    poll_until([resumed], lambda _: len(resumed.assignment()) == 3)
    positions = resumed.committed([TopicPartition("old", number) for number in range(3)], 20)
    resumed.close()
    read = len({(each.partition(), each.offset()) for each in messages})
    return [read, three, two, sum(each.offset for each in positions)]


def administer(admin: Any, seen: dict[str, Any]) -> None:
    done(admin.create_partitions([NewPartitions("old-txn", 2)]))
    done(admin.alter_configs([ConfigResource("topic", "old", set_config={"retention.ms": "123456"})]))
    [described] = admin.describe_configs([ConfigResource("topic", "old")]).values()
    seen["retention"] = described.result(30)["retention.ms"].value
    [broker] = admin.describe_configs([ConfigResource("broker", "1")]).values()
    seen["broker"] = broker.result(30)["broker.id"].value
    seen["groups"] = sorted(each.id for each in admin.list_groups(timeout=30))
    metadata = admin.list_topics(timeout=30)
    seen["brokers"], seen["partitions"] = len(metadata.brokers), len(metadata.topics["old-txn"].partitions)
    done(admin.delete_topics(["old"], operation_timeout=30))
    seen["topics"] = sorted(name for name in admin.list_topics(timeout=30).topics if not name.startswith("__"))


def main() -> None:
    seen: dict[str, Any] = {"librdkafka": libversion()[0].rpartition(".")[0]}
    admin = AdminClient(BOOTSTRAP)
    done(admin.create_topics([NewTopic("old", 3, 3), NewTopic("old-txn", 1, 3)]))
    seen["produce errors"] = produce("old")
    for strategy in ("range", "roundrobin", "cooperative-sticky"):
        seen[strategy] = of_group(strategy)
    transactions(seen, "old-txn", "old-txn-group")
    administer(admin, seen)
    print(json.dumps(seen))


main()
