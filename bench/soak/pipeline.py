"""The process that copies `numbered` to `copied`, exactly once: bootstrap servers, and `--to-the-end` to stop at the end.

One byte on stdout each time it comes round, `+` for a transaction. Run by workloads.py, which kills it now and then.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

CALL_S = 30.0
PARTITIONS = 4


def open_both(bootstrap: str) -> tuple[Producer, Consumer]:
    """A producer that has fenced its predecessor, and a consumer of the group."""
    common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda error: None}
    producer = Producer(common | {"transactional.id": "soak-pipeline", "transaction.timeout.ms": 20_000})
    producer.init_transactions(CALL_S)
    consumer = Consumer(
        common
        | {
            "group.id": "soak-pipeline",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "session.timeout.ms": 10_000,
        }
    )
    consumer.subscribe(["numbered"])
    return producer, consumer


def copy_some(producer: Producer, consumer: Consumer, ended: set[int]) -> bool:
    """Whether there was something. Raises KafkaException."""
    messages = []
    for message in consumer.consume(200, 0.5):
        if message.error() is None:
            messages.append(message)
            ended.discard(message.partition())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    if not messages:
        return False
    producer.begin_transaction()
    offsets = {}
    for message in messages:
        producer.produce("copied", message.value(), partition=message.partition())
        offsets[message.partition()] = message.offset() + 1
    positions = [TopicPartition("numbered", partition, offset) for partition, offset in offsets.items()]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), CALL_S)
    producer.commit_transaction(CALL_S)
    return True


def main(bootstrap: str, *, to_the_end: bool) -> None:
    """Until killed, or until every partition's end has been seen with nothing left."""
    producer = consumer = None
    ended: set[int] = set()
    while True:
        moved = False
        try:
            if producer is None or consumer is None:
                producer, consumer = open_both(bootstrap)
                ended.clear()
            moved = copy_some(producer, consumer, ended)
        except KafkaException as error:
            if producer is not None and error.args[0].txn_requires_abort():
                with contextlib.suppress(KafkaException):
                    producer.abort_transaction(CALL_S)
            if consumer is not None:
                consumer.close()
            producer = consumer = None
        if to_the_end and not moved and len(ended) == PARTITIONS:
            return
        if not to_the_end:
            os.write(1, b"+" if moved else b".")


if __name__ == "__main__":
    main(sys.argv[1], to_the_end="--to-the-end" in sys.argv[2:])
