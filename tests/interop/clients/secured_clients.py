"""confluent-kafka (librdkafka), kafka-python and aiokafka over a secured listener: one JSON line of what they saw.

Arguments: a JSON object with bootstrap, protocol, mechanism, user, password, authority, certificate (PEM files). With `until`, a
directory, confluent-kafka writes until it has a file `1`, then kafka-python until it has a file `2`.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

GIVEN = json.loads(sys.argv[1])
RECORDS = 30
TOPIC = "secured"
HAS_TLS = GIVEN["protocol"].endswith("SSL")
HAS_SASL = GIVEN["protocol"].startswith("SASL")


def confluent_settings(password):
    settings = {"bootstrap.servers": GIVEN["bootstrap"], "security.protocol": GIVEN["protocol"]}
    if HAS_TLS:
        settings["ssl.ca.location"] = GIVEN["authority"]
    if GIVEN["certificate"]:
        settings |= {"ssl.certificate.location": GIVEN["certificate"], "ssl.key.location": GIVEN["certificate"]}
    if HAS_SASL:
        settings |= {"sasl.mechanism": GIVEN["mechanism"], "sasl.username": GIVEN["user"], "sasl.password": password}
    return settings


def confluent():
    settings = confluent_settings(GIVEN["password"])
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(20)
    errors = []
    producer = Producer(settings | {"transactional.id": "secured"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number), on_delivery=lambda error, _: errors.append(str(error)) if error else None)
    producer.commit_transaction(20)
    consumer = Consumer(settings | {"group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    seen, until = 0, time.monotonic() + 30
    while seen < RECORDS and time.monotonic() < until:
        message = consumer.poll(0.1)
        seen += message is not None and not message.error()
    consumer.close()
    return {"errors": errors, "consumed": seen}


def confluent_refused():
    """With a wrong password, or (mutual TLS) without a certificate."""
    told = []
    settings = confluent_settings("wrong")
    settings.pop("ssl.certificate.location", None)
    settings.pop("ssl.key.location", None)
    producer = Producer(settings | {"error_cb": lambda error: told.append(error.name()), "log_level": 0})
    until = time.monotonic() + 30
    while not told and time.monotonic() < until:
        producer.poll(0.1)
    return told[:1] != []


def kafka_python_settings():
    settings = {"bootstrap_servers": GIVEN["bootstrap"].split(","), "security_protocol": GIVEN["protocol"]}
    if HAS_TLS:
        settings["ssl_cafile"] = GIVEN["authority"]
    if GIVEN["certificate"]:
        settings |= {"ssl_certfile": GIVEN["certificate"], "ssl_keyfile": GIVEN["certificate"]}
    if HAS_SASL:
        settings |= {
            "sasl_mechanism": GIVEN["mechanism"],
            "sasl_plain_username": GIVEN["user"],
            "sasl_plain_password": GIVEN["password"],
        }
    return settings


def kafka_python():
    settings = kafka_python_settings()
    producer = KafkaProducer(**settings)
    for number in range(RECORDS):
        producer.send(TOPIC, str(number).encode())
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(TOPIC, group_id="kafka-python", auto_offset_reset="earliest", **settings)
    seen, until = 0, time.monotonic() + 30
    while seen < 2 * RECORDS and time.monotonic() < until:
        seen += sum(map(len, consumer.poll(200).values()))
    consumer.close()
    return seen


async def aio():
    settings = {"bootstrap_servers": GIVEN["bootstrap"], "security_protocol": GIVEN["protocol"]}
    if HAS_TLS:
        settings["ssl_context"] = ssl.create_default_context(cafile=GIVEN["authority"])
        if GIVEN["certificate"]:
            settings["ssl_context"].load_cert_chain(GIVEN["certificate"])
    if HAS_SASL:
        settings |= {
            "sasl_mechanism": GIVEN["mechanism"],
            "sasl_plain_username": GIVEN["user"],
            "sasl_plain_password": GIVEN["password"],
        }
    async with AIOKafkaProducer(**settings) as producer:
        for number in range(RECORDS):
            await producer.send_and_wait(TOPIC, str(number).encode())
    seen, until = 0, time.monotonic() + 30
    async with AIOKafkaConsumer(TOPIC, group_id="aiokafka", auto_offset_reset="earliest", **settings) as consumer:
        while seen < 3 * RECORDS and time.monotonic() < until:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))
    return seen


def lasting():
    """Both know KIP-368: they log in again on the same connections, and lose no record."""
    errors, written = [], 0
    producer = Producer(confluent_settings(GIVEN["password"]))
    while not (Path(GIVEN["until"]) / "1").exists():
        producer.produce(TOPIC, "x", on_delivery=lambda error, _: errors.append(str(error)) if error else None)
        producer.poll(0.02)
    left = producer.flush(30)
    del producer
    other = KafkaProducer(**kafka_python_settings())
    while not (Path(GIVEN["until"]) / "2").exists():
        other.send(TOPIC, b"x").get(30)
        written += 1
    other.close()
    return {"errors": errors, "left": left, "kafka-python": written > 0}


def main():
    if "until" in GIVEN:
        print(json.dumps(lasting()))
        return
    seen = {"confluent": confluent(), "confluent refused": confluent_refused()}
    try:
        seen["kafka-python"] = kafka_python()
        seen["aiokafka"] = asyncio.run(aio())
    except (KafkaError, AioKafkaError) as error:
        seen["error"] = repr(error)
    print(json.dumps(seen))


main()
