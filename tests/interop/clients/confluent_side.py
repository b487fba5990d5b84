"""One side of an address translation: send records, read everybody's, and say which brokers the metadata names."""

import json
import sys
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, side, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
common = {"bootstrap.servers": bootstrap, "client.id": side}
admin = AdminClient(common)
until = time.monotonic() + 60
while len(brokers := admin.list_topics(timeout=20).brokers) < 2 and time.monotonic() < until:
    time.sleep(0.2)
for future in admin.create_topics([NewTopic("sides", 4, 2)]).values():
    try:
        future.result(30)
    except Exception as error:  # the other side was first
        if "ALREADY_EXISTS" not in str(error):
            raise
errors = []
producer = Producer(common | {"acks": "all", "enable.idempotence": True})
for number in range(count):
    producer.produce(
        "sides", f"{side}-{number}", on_delivery=lambda error, _: errors.append(str(error)) if error else None
    )
producer.flush(60)
consumer = Consumer(common | {"group.id": f"of-{side}", "auto.offset.reset": "earliest"})
consumer.subscribe(["sides"])
seen: set[str] = set()
while len(seen) < 2 * count and time.monotonic() < until + 60:
    message = consumer.poll(0.5)
    if message is not None and not message.error():
        seen.add(message.value().decode())
consumer.close()
print(
    json.dumps(
        {
            "brokers": sorted(f"{each.host}:{each.port}" for each in brokers.values()),
            "errors": errors,
            "seen": len(seen),
        }
    )
)
