"""What confluent-kafka of any version does against a cluster: records, a group whose members come and go, transactions."""

import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BOOTSTRAP = {"bootstrap.servers": sys.argv[1]}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 40


def consumer(group: str, topic: str, **more: Any) -> Any:
    settings = {"group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
    made = Consumer(BOOTSTRAP | settings | {"enable.auto.commit": False, **more})
    made.subscribe([topic])
    return made


def poll_until(consumers: list[Any], condition: Any) -> list[Any]:
    messages: list[Any] = []
    until = time.monotonic() + 60
    while not condition(messages) and time.monotonic() < until:
        for each in consumers:
            message = each.poll(0.05)
            if message is not None and not message.error():
                messages.append(message)
    return messages


def done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(30)


def produce(topic: str) -> list[str]:
    """Errors."""
    errors: list[str] = []
    for codec in CODECS:
        settings = {"compression.type": codec, "enable.idempotence": codec != "gzip", "linger.ms": 5}
        producer = Producer(BOOTSTRAP | settings)
        for index in range(PER_CODEC):
            producer.produce(
                topic,
                key=str(index),
                value=f"{codec}-{index}" * 20,
                headers={"codec": codec.encode()},
                on_delivery=lambda error, _: errors.append(str(error)) if error else None,
            )
        assert producer.flush(30) == 0
    return errors


def consume(group: str, topic: str, **more: Any) -> tuple[list[Any], list[int], list[int]]:
    """Messages that were read, and committed; the partitions of three members, and of two."""
    members = [consumer(group, topic, **more)]
    messages = poll_until(members, lambda got: len(got) >= PER_CODEC * len(CODECS))
    members[0].commit(asynchronous=False)
    members += [consumer(group, topic, **more) for _ in range(2)]
    poll_until(members, lambda _: all(len(each.assignment()) == 1 for each in members))
    three = sorted(part.partition for each in members for part in each.assignment())
    members.pop().close()
    poll_until(members, lambda _: sum(len(each.assignment()) for each in members) == 3)
    two = sorted(part.partition for each in members for part in each.assignment())
    for each in members:
        each.close()
    return messages, three, two


def transactions(seen: dict[str, Any], topic: str, group: str) -> None:
    """Committed and aborted ones, offsets in one, and a producer that another one fences. The transactional id is the topic's name."""
    transactional = Producer(BOOTSTRAP | {"transactional.id": topic})
    transactional.init_transactions(30)
    for word, commits in (("kept", True), ("dropped", False), ("kept too", True)):
        transactional.begin_transaction()
        transactional.produce(topic, value=word)
        if commits:
            transactional.commit_transaction(30)
        else:
            transactional.flush(10)
            transactional.abort_transaction(30)
    reader = consumer(group, topic, **{"isolation.level": "read_committed"})
    seen["committed"] = [each.value().decode() for each in poll_until([reader], lambda got: len(got) >= 2)]
    transactional.begin_transaction()
    transactional.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], reader.consumer_group_metadata(), 30)
    transactional.commit_transaction(30)
    seen["offset by transaction"] = reader.committed([TopicPartition(topic, 0)], 20)[0].offset
    reader.close()
    fencing = Producer(BOOTSTRAP | {"transactional.id": topic})
    fencing.init_transactions(30)
    try:
        transactional.begin_transaction()
        transactional.produce(topic, value="zombie")
        transactional.commit_transaction(30)
        seen["fenced"] = False
    except KafkaException:
        seen["fenced"] = True
