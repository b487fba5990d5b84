"""confluent-kafka (librdkafka) against a cluster: one JSON line of what it saw."""

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

BOOTSTRAP = {"bootstrap.servers": sys.argv[1]}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 40


def consumer(group, topic, isolation="read_uncommitted"):
    made = Consumer(
        BOOTSTRAP
        | {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    made.subscribe([topic])
    return made


def poll_until(consumers, condition, seconds=25):
    messages: list[Any] = []
    until = time.monotonic() + seconds
    while not condition(messages) and time.monotonic() < until:
        for each in consumers:
            message = each.poll(0.05)
            if message is not None and not message.error():
                messages.append(message)
    return messages


def fetchers(admin, count):
    """Set num.replica.fetchers of broker 1; whether it is read-only, and its value then."""
    change = ConfigEntry("num.replica.fetchers", count, incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource("broker", "1", incremental_configs=[change])]
    ).values():
        future.result(10)
    broker = ConfigResource("broker", "1")
    until = time.monotonic() + 25
    while True:
        told = admin.describe_configs([broker])[broker].result(10)["num.replica.fetchers"]
        if told.value == count or time.monotonic() > until:
            return [told.is_read_only, told.value]


def main():
    seen: dict[str, Any] = {}
    admin = AdminClient(BOOTSTRAP)
    for future in admin.create_topics([NewTopic("confluent", 3, 3), NewTopic("confluent-txn", 1, 3)]).values():
        future.result(20)
    errors = []
    for codec in CODECS:
        producer = Producer(BOOTSTRAP | {"compression.type": codec, "enable.idempotence": True, "linger.ms": 5})
        for index in range(PER_CODEC):
            producer.produce(
                "confluent",
                key=str(index),
                value=f"{codec}-{index}" * 20,
                headers={"codec": codec.encode()},
                on_delivery=lambda error, message: errors.append(str(error)) if error else None,
            )
        assert producer.flush(20) == 0
    seen["produce errors"] = errors

    total = PER_CODEC * len(CODECS)
    members = [consumer("confluent-group", "confluent")]
    messages = poll_until(members, lambda got: len(got) >= total)
    seen["consumed"] = len({(m.partition(), m.offset()) for m in messages})
    seen["headers"] = sorted({dict(m.headers())["codec"].decode() for m in messages})
    members[0].commit(asynchronous=False)
    members += [consumer("confluent-group", "confluent") for _ in range(2)]
    poll_until(members, lambda got: all(len(each.assignment()) == 1 for each in members))
    seen["assignments of three"] = sorted(p.partition for each in members for p in each.assignment())
    members.pop().close()
    poll_until(members, lambda got: sum(len(each.assignment()) for each in members) == 3)
    seen["assignments of two"] = sorted(p.partition for each in members for p in each.assignment())
    for each in members:
        each.close()
    producer.produce("confluent", value="after", partition=0)
    producer.flush(10)
    resumed = consumer("confluent-group", "confluent")
    seen["resumed with"] = [m.value().decode() for m in poll_until([resumed], lambda got: len(got) >= 1)]
    resumed.close()

    transactional = Producer(BOOTSTRAP | {"transactional.id": "confluent-txn"})
    transactional.init_transactions(30)
    for word, commits in (("kept", True), ("dropped", False), ("kept too", True)):
        transactional.begin_transaction()
        transactional.produce("confluent-txn", value=word)
        if commits:
            transactional.commit_transaction(30)
        else:
            transactional.flush(10)
            transactional.abort_transaction(30)
    reader = consumer("txn-group", "confluent-txn", "read_committed")
    seen["committed"] = [m.value().decode() for m in poll_until([reader], lambda got: len(got) >= 2)]
    transactional.begin_transaction()
    transactional.send_offsets_to_transaction(
        [TopicPartition("confluent-txn", 0, 5)], reader.consumer_group_metadata(), 30
    )
    transactional.commit_transaction(30)
    seen["offset by transaction"] = reader.committed([TopicPartition("confluent-txn", 0)], 20)[0].offset
    fencing = Producer(BOOTSTRAP | {"transactional.id": "confluent-txn"})
    fencing.init_transactions(30)
    try:
        transactional.begin_transaction()
        transactional.produce("confluent-txn", value="zombie")
        transactional.commit_transaction(30)
        seen["fenced"] = False
    except KafkaException:
        seen["fenced"] = True
    reader.close()

    resource = ConfigResource("topic", "confluent")
    change = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource("topic", "confluent", incremental_configs=[change])]
    ).values():
        future.result(10)
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
