"""confluent-kafka on both sides of a backup: `write BOOTSTRAP`, `read BOOTSTRAP PREFIX`, which prints what is there as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

import confluent_kafka as c
from confluent_kafka.admin import AdminClient, NewTopic

OLD_MS = 1_577_836_800_000
#: The records of 2020 must not be deleted.
LONG = "3000000000000"
TOPICS = {
    "plain": {"retention.ms": LONG, "max.message.bytes": "2000000"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "transactions": {"compression.type": "lz4", "retention.ms": LONG},
}


def write(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 3, config=own) for name, own in TOPICS.items()]).values():
        future.result()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = c.Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for number in range(400):
            producer.produce(
                "compacted",
                None if number % 9 == 0 else b"%d" % number,
                key=b"k%d" % (number % 50),
                partition=number % 3,
            )
            producer.produce("stamped", b"s%d" % number, partition=number % 3)
            headers = [("codec", codec.encode()), ("none", None), ("twice", b"1"), ("twice", b"\xff\x00")]
            producer.produce(
                "plain", None if number % 7 == 0 else b"v%d-" % number * 200, key=None if number % 5 == 0 else b"k%d" % number,
                headers=headers, timestamp=OLD_MS + number, partition=number % 3,
            )  # fmt: skip
            producer.poll(0)
        assert producer.flush(60) == 0
    admin.delete_records([c.TopicPartition("plain", 0, 17)])[c.TopicPartition("plain", 0)].result()
    for name, ends in (("t1", "commit"), ("t2", "abort"), ("t3", "commit"), ("t4", "open")):
        _transaction(bootstrap, name, ends)
    _commit(bootstrap, "billing", {"plain": (100, 200, 5), "transactions": (20, 30, 0)})
    _commit(bootstrap, "at-the-end", {"stamped": (666, 667, 667)})


_OPEN = []


def _transaction(bootstrap: str, name: str, ends: str) -> None:
    producer = c.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("transactions", f"{name}-{number}".encode(), partition=number % 3, timestamp=OLD_MS + number)
    assert producer.flush(30) == 0
    if ends == "commit":
        producer.commit_transaction(30)
    elif ends == "abort":
        producer.abort_transaction(30)
    else:
        _OPEN.append(producer)


def _commit(bootstrap: str, group: str, positions: dict[str, tuple[int, ...]]) -> None:
    consumer = c.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    offsets = [
        c.TopicPartition(topic, number, offset, f"{topic}/{number}") for topic, each in positions.items() for number, offset in enumerate(each)
    ]  # fmt: skip
    for tries_left in reversed(range(60)):
        try:
            found = consumer.commit(offsets=offsets, asynchronous=False)
            break
        except c.KafkaException as error:  # Apache Kafka is still loading the coordinator
            assert "COORDINATOR" in error.args[0].name() and tries_left, error
            time.sleep(0.5)
    for each in found:
        assert each.error is None, each.error
    consumer.close()


def read(bootstrap: str, prefix: str) -> dict[str, Any]:
    seen: dict[str, Any] = {"next": {}, "settings": {}}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic in TOPICS:
        records = _records(bootstrap, prefix + topic)
        digest = hashlib.sha256(repr(records).encode()).hexdigest()
        seen[topic] = [len(records), digest]
        if topic in ("plain", "transactions", "stamped"):
            seen["next"][topic] = _next_values(
                bootstrap, prefix + topic, "at-the-end" if topic == "stamped" else "billing"
            )
        resource = c.admin.ConfigResource(c.admin.ResourceType.TOPIC, prefix + topic)
        found = admin.describe_configs([resource])[resource].result()
        seen["settings"][topic] = {name: entry.value for name, entry in found.items() if entry.source == 1}
    return seen


def _consumer(bootstrap: str, group: str) -> c.Consumer:
    return c.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip


def _records(bootstrap: str, topic: str) -> list[Any]:
    """By partition, in their order, without their offsets."""
    consumer = _consumer(bootstrap, "reader")
    consumer.assign([c.TopicPartition(topic, number, c.OFFSET_BEGINNING) for number in range(3)])
    found: list[Any] = []
    left = 3
    while left:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            assert message.error().code() == c.KafkaError._PARTITION_EOF, message.error()
            left -= 1
            continue
        found.append(
            (message.partition(), message.key(), message.value(), message.headers(), message.timestamp()[1])
        )  # fmt: skip
    consumer.close()
    return sorted(found, key=lambda each: each[0])


def _next_values(bootstrap: str, topic: str, group: str) -> list[Any]:
    """What the group would read next in each partition, and the metadata of its offset."""
    consumer = _consumer(bootstrap, group)
    found = []
    for each in consumer.committed([c.TopicPartition(topic, number) for number in range(3)], timeout=30):
        assert each.offset >= 0, each
        consumer.assign([each])
        message = consumer.poll(30)
        assert message is not None
        found.append([None if message.error() else repr(message.value())[:40], each.metadata])
    consumer.close()
    return found


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
        print("{}")
        sys.stdout.flush()
        if _OPEN:
            import os

            os._exit(0)  # the last transaction stays open
    else:
        print(json.dumps(read(sys.argv[2], sys.argv[3])))
