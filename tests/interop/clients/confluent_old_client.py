"""confluent-kafka 1.9 (librdkafka 1.9), of 2022, against a cluster: one JSON line of what it saw."""

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, libversion
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

BOOTSTRAP = {"bootstrap.servers": sys.argv[1]}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 40


def consumer(group: str, topic: str, **more: Any) -> Any:
    made = Consumer(
        BOOTSTRAP
        | {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "enable.auto.commit": False,
            **more,
        }
    )
    made.subscribe([topic])
    return made


def poll_until(consumers: list[Any], condition: Any, seconds: float = 60) -> list[Any]:
    messages: list[Any] = []
    until = time.monotonic() + seconds
    while not condition(messages) and time.monotonic() < until:
        for each in consumers:
            message = each.poll(0.05)
            if message is not None and not message.error():
                messages.append(message)
    return messages


def done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(30)


def produce(seen: dict[str, Any]) -> None:
    errors: list[str] = []
    for codec in CODECS:
        settings = {"compression.type": codec, "enable.idempotence": codec != "gzip", "linger.ms": 5}
        producer = Producer(BOOTSTRAP | settings)
        for index in range(PER_CODEC):
            producer.produce(
                "old",
                key=str(index),
                value=f"{codec}-{index}" * 20,
                headers={"codec": codec.encode()},
                on_delivery=lambda error, _: errors.append(str(error)) if error else None,
            )
        assert producer.flush(30) == 0
    seen["produce errors"] = errors


def consume(seen: dict[str, Any], strategy: str) -> None:
    """Members come and go; the group continues where it has committed."""
    total = PER_CODEC * len(CODECS)
    group = f"old-{strategy}"
    more = {"partition.assignment.strategy": strategy}
    members = [consumer(group, "old", **more)]
    messages = poll_until(members, lambda got: len(got) >= total)
    read = len({(each.partition(), each.offset()) for each in messages})
    members[0].commit(asynchronous=False)
    members += [consumer(group, "old", **more) for _ in range(2)]
    poll_until(members, lambda _: all(len(each.assignment()) == 1 for each in members))
    three = sorted(part.partition for each in members for part in each.assignment())
    members.pop().close()
    poll_until(members, lambda _: sum(len(each.assignment()) for each in members) == 3)
    two = sorted(part.partition for each in members for part in each.assignment())
    for each in members:
        each.close()
    resumed = consumer(group, "old", **more)
    poll_until([resumed], lambda _: len(resumed.assignment()) == 3)
    positions = resumed.committed([TopicPartition("old", number) for number in range(3)], 20)
    resumed.close()
    seen[strategy] = [read, three, two, sum(each.offset for each in positions)]


def transactions(seen: dict[str, Any]) -> None:
    transactional = Producer(BOOTSTRAP | {"transactional.id": "old-txn"})
    transactional.init_transactions(30)
    for word, commits in (("kept", True), ("dropped", False), ("kept too", True)):
        transactional.begin_transaction()
        transactional.produce("old-txn", value=word)
        if commits:
            transactional.commit_transaction(30)
        else:
            transactional.flush(10)
            transactional.abort_transaction(30)
    reader = consumer("old-txn-group", "old-txn", **{"isolation.level": "read_committed"})
    seen["committed"] = [each.value().decode() for each in poll_until([reader], lambda got: len(got) >= 2)]
    transactional.begin_transaction()
    transactional.send_offsets_to_transaction([TopicPartition("old-txn", 0, 5)], reader.consumer_group_metadata(), 30)
    transactional.commit_transaction(30)
    seen["offset by transaction"] = reader.committed([TopicPartition("old-txn", 0)], 20)[0].offset
    reader.close()
    fencing = Producer(BOOTSTRAP | {"transactional.id": "old-txn"})
    fencing.init_transactions(30)
    try:
        transactional.begin_transaction()
        transactional.produce("old-txn", value="zombie")
        transactional.commit_transaction(30)
        seen["fenced"] = False
    except KafkaException:
        seen["fenced"] = True


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
    produce(seen)
    for strategy in ("range", "roundrobin", "cooperative-sticky"):
        consume(seen, strategy)
    transactions(seen)
    administer(admin, seen)
    print(json.dumps(seen))


main()
