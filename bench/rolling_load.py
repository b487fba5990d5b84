"""Load through confluent-kafka while nodes are restarted: run by bench.rolling with an interpreter that has it.

Numbered records with acks=all, an idempotent producer, a few hundred a second, until a line comes on stdin; then a reader
counts. An error that reaches the application counts, a repetition within librdkafka does not. One JSON line in the end.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def main(bootstrap: str, topic: str, partitions: int, rate: float) -> None:
    """Exit code 0 whatever is found: the result is in the answer."""
    fatal: list[str] = []
    client = {
        "bootstrap.servers": bootstrap,
        "error_cb": lambda error: fatal.append(str(error)) if error.fatal() else None,
    }
    order = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
    admin = AdminClient(client)  # kept: what it has not answered fails when it is collected
    for outcome in admin.create_topics([order]).values():
        outcome.result()
    producer = Producer({**client, "acks": "all", "enable.idempotence": True, "linger.ms": 2})
    errors: list[str] = []
    acked: dict[int, tuple[int, int]] = {}
    slowest = 0.0

    def delivered(number: int, sent: float) -> Any:
        def outcome_of(error: Any, message: Any) -> None:
            nonlocal slowest
            slowest = max(slowest, time.monotonic() - sent)
            if error is not None:
                errors.append(f"{number}: {error}")
            else:
                acked[number] = (message.partition(), message.offset())

        return outcome_of

    stop = threading.Event()

    def until_told() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=until_told, daemon=True).start()
    print(json.dumps({"event": "load.started"}), flush=True)
    sent, began = 0, time.monotonic()
    while not stop.is_set():
        while sent < (time.monotonic() - began) * rate:
            value = b"%d" % sent
            producer.produce(topic, value, partition=sent % partitions, on_delivery=delivered(sent, time.monotonic()))
            sent += 1
        producer.poll(0.01)
    producer.flush(120)
    print(json.dumps(_count(bootstrap, topic, partitions, sent, acked, errors + fatal, slowest)), flush=True)


def _count(
    bootstrap: str,
    topic: str,
    partitions: int,
    sent: int,
    acked: dict[int, tuple[int, int]],
    errors: list[str],
    slowest: float,
) -> dict[str, Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "census", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30)[1] for n in range(partitions)}
    seen: dict[int, tuple[int, int]] = {}
    twice = 0
    at = dict.fromkeys(ends, 0)
    until = time.monotonic() + 120
    while any(at[n] < ends[n] for n in ends) and time.monotonic() < until:
        for message in consumer.consume(5000, timeout=1):
            if message.error() is not None:
                continue
            number = int(message.value())
            twice += number in seen
            seen[number] = (message.partition(), message.offset())
            at[message.partition()] = message.offset() + 1
    consumer.close()
    return {
        "sent": sent,
        "acked": len(acked),
        "read": len(seen),
        "errors": errors[:10],
        "error_count": len(errors),
        "lost": sum(number not in seen for number in acked),
        "moved": sum(seen.get(number, place) != place for number, place in acked.items() if place[1] is not None),
        "twice": twice,
        "slowest_ack_s": round(slowest, 3),
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
