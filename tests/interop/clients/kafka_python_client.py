"""kafka-python against a cluster: one JSON line of what it saw."""

import json
import sys
import threading
import time
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

BOOTSTRAP = sys.argv[1].split(",")
TOPIC = "kafka-python"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 30


def consumer(**settings):
    return KafkaConsumer(
        TOPIC,
        bootstrap_servers=BOOTSTRAP,
        group_id="kafka-python-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        **settings,
    )


def main():
    seen: dict[str, Any] = {}
    for codec in CODECS:
        producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, compression_type=codec, enable_idempotence=True)
        sent = [
            producer.send(TOPIC, key=b"%d" % i, value=b"v%d" % i * 30, headers=[("codec", str(codec).encode())])
            for i in range(PER_CODEC)
        ]
        for future in sent:
            future.get(20)
        producer.close()
    total = PER_CODEC * len(CODECS)
    reader = consumer(consumer_timeout_ms=20_000)
    got = []
    for record in reader:
        got.append(record)
        if len(got) == total:
            break
    seen["consumed"] = len(got)
    seen["headers"] = sorted({dict(record.headers)["codec"].decode() for record in got})
    reader.commit()
    reader.close()

    members = [consumer() for _ in range(3)]
    stop = threading.Event()

    def poll(member):
        while not stop.is_set():
            member.poll(100)

    threads = [threading.Thread(target=poll, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 25
    while time.monotonic() < until and not all(member.assignment() for member in members):
        time.sleep(0.1)
    time.sleep(0.5)
    seen["assigned"] = sorted(p.partition for member in members for p in member.assignment())
    stop.set()
    for thread in threads:
        thread.join()
    seen["positions"] = sum(members[0].committed(p) or 0 for member in members for p in member.assignment())
    for member in members:
        member.close()

    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id="kafka-python-txn")
    producer.init_transactions()
    for word, commits in ((b"kept", True), (b"dropped", False)):
        producer.begin_transaction()
        producer.send("kafka-python-txn", word, partition=0).get(20)
        (producer.commit_transaction if commits else producer.abort_transaction)()
    producer.begin_transaction()
    producer.send("kafka-python-txn", b"last", partition=0).get(20)
    producer.commit_transaction()
    producer.close()
    reader = KafkaConsumer(
        "kafka-python-txn",
        bootstrap_servers=BOOTSTRAP,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=20_000,
    )
    values = []
    for record in reader:
        values.append(record.value.decode())
        if record.value == b"last":
            break
    reader.close()
    seen["committed"] = values

    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    seen["topics"] = sorted(name for name in admin.list_topics() if not name.startswith("__"))
    admin.close()
    print(json.dumps(seen))


main()
