"""The load of `bench.balancing`, with confluent-kafka: an idempotent producer with acks=all, then a reader of everything.

Arguments: bootstrap servers, topic, records a second, bytes of a record. Each line on stdin (JSON, a list with a name) ends a phase and begins the one that it names; "end" ends the
load. One JSON line: acknowledged, failed, lost, duplicates, and latencies in ms for each phase.
"""

import json
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

BOOTSTRAP, TOPIC, RATE, SIZE = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
phase = "the client begins"
phases: dict[str, list[float]] = {phase: []}
ended = threading.Event()
acked: set[int] = set()
failed: list[str] = []


def control() -> None:
    global phase
    for line in sys.stdin:
        [name] = json.loads(line)
        if name == "end":
            break
        phases.setdefault(name, [])
        phase = name
    ended.set()


def produce() -> None:
    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": 120_000,
        }
    )
    number, began = 0, time.monotonic()
    padding = b"x" * SIZE
    while not ended.is_set():
        while number < (time.monotonic() - began) * RATE:
            sent, name = time.monotonic(), phase

            def delivered(
                error: object, message: object, number: int = number, sent: float = sent, name: str = name
            ) -> None:
                if error:
                    failed.append(str(error))
                else:
                    acked.add(number)
                    phases[name].append((time.monotonic() - sent) * 1000)

            producer.produce(TOPIC, value=b"%d " % number + padding, on_delivery=delivered)
            number += 1
        producer.poll(0.002)
    producer.flush(120)


def read() -> tuple[set[int], int]:
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "count", "enable.auto.commit": False})
    count = len(AdminClient({"bootstrap.servers": BOOTSTRAP}).list_topics(TOPIC, timeout=30).topics[TOPIC].partitions)
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30)[1] for number in range(count)
    }
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(count)])
    left = {number for number, end in ends.items() if end}
    seen: set[int] = set()
    duplicates = 0
    while left:
        for message in consumer.consume(5_000, timeout=30):
            if message.error():
                continue
            number = int(message.value().split(b" ", 1)[0])
            duplicates += number in seen
            seen.add(number)
            if message.offset() >= ends[message.partition()] - 1:
                left.discard(message.partition())
    consumer.close()
    return seen, duplicates


def percentile(values: list[float], share: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(len(values) * share))], 1) if values else 0.0


threading.Thread(target=control, daemon=True).start()
produce()
found, twice = read()
print(
    json.dumps(
        {
            "acked": len(acked),
            "failed": len(failed),
            "lost": len(acked - found),
            "duplicates": twice,
            "phases": {
                name: {
                    "records": len(v),
                    "p50": percentile(v, 0.5),
                    "p99": percentile(v, 0.99),
                    "max": percentile(v, 1.0),
                }
                for name, v in phases.items()
            },
        }
    ),
    flush=True,
)
