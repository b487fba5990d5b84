"""confluent-kafka (librdkafka) over SASL_SSL as one user: writes, reads in a group, or is told why not.

Arguments: a JSON object with bootstrap, authority (PEM file), user, password; a mode; its arguments. Prints JSON lines.
"""

import json
import sys
import time

from confluent_kafka import Consumer, Producer

GIVEN, MODE, *REST = json.loads(sys.argv[1]), *sys.argv[2:]
TOPIC = "ledger"
SETTINGS = {
    "bootstrap.servers": GIVEN["bootstrap"],
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": GIVEN["user"],
    "sasl.password": GIVEN["password"],
    "ssl.ca.location": GIVEN["authority"],
    "log_level": 0,
}
PATIENCE_S = 100


def say(**what):
    print(json.dumps(what), flush=True)


def write(count, size=0):
    """Numbered records, acks=all; "begun" is said while most of them are still to come."""
    acked, errors, waits_ms = [], set(), []
    more = {
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 1,
        "throttle_cb": lambda e: waits_ms.append(e.throttle_time),
    }
    producer = Producer(SETTINGS | more)

    def told(number, error):
        if error:
            errors.add(error.name())
        else:
            acked.append(number)

    has_begun = False
    for number in range(count):
        value = f"c-{number}".ljust(size, ".")
        producer.produce(TOPIC, value, key=str(number), on_delivery=lambda error, _, number=number: told(number, error))
        producer.poll(0.002)
        if not has_begun and len(acked) * 10 > count:
            has_begun = True
            say(begun=True)
    left = producer.flush(PATIENCE_S)
    say(acked=sorted(acked), errors=sorted(errors), left=left, waits_ms=[wait for wait in waits_ms if wait > 0])


def refused():
    """The name of the error of one record that may not be written."""
    codes = []
    producer = Producer(SETTINGS | {"message.timeout.ms": 30_000})
    producer.produce(TOPIC, "no", on_delivery=lambda error, _: codes.append(error.name() if error else "none"))
    producer.flush(PATIENCE_S)
    return codes


def read(group, count):
    """So many different values in this group, or the first error."""
    consumer = Consumer(SETTINGS | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    values: list[str] = []
    errors: list[str] = []
    until = time.monotonic() + PATIENCE_S
    while len(set(values)) < count and not errors and time.monotonic() < until:
        for message in consumer.consume(500, 0.2):
            if message.error():
                errors.append(message.error().name())
            else:
                values.append(message.value().decode())
    consumer.close()
    return {"values": values, "errors": errors[:1]}


match MODE:
    case "write":
        write(*map(int, REST))
    case "read":
        say(**read(REST[0], int(REST[1])))
    case "refused":
        say(written=refused(), read=[read(group, 1)["errors"] for group in REST])
