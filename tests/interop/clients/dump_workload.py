"""confluent-kafka writes what the dump tool is to read; argv: bootstrap, topic, stage."""

import json
import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = {"bootstrap.servers": sys.argv[1]}
TOPIC = sys.argv[2]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def transactions():
    producer = Producer(BOOTSTRAP | {"transactional.id": "dumped"})
    producer.init_transactions(30)
    offsets = []
    for commits in (True, False):
        producer.begin_transaction()
        for index in range(3):
            producer.produce(
                TOPIC,
                value=f"txn-{commits}-{index}",
                partition=0,
                on_delivery=lambda error, message: offsets.append(message.offset()),
            )
        producer.flush(20)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    return offsets


def main():
    if sys.argv[3] == "first":
        config = {"segment.bytes": "6000", "index.interval.bytes": "1024"}
        admin = AdminClient(BOOTSTRAP)
        for future in admin.create_topics([NewTopic(TOPIC, 1, 3, config=config)]).values():
            future.result(20)
        for codec in CODECS:
            producer = Producer(BOOTSTRAP | {"compression.type": codec, "enable.idempotence": True, "linger.ms": 0})
            for index in range(40):
                producer.produce(TOPIC, key=f"{codec}-{index}", value=f"value-{index}-" * 40, headers={"codec": codec})
                producer.poll(0)
                if index % 5 == 0:
                    producer.flush(20)
            assert producer.flush(20) == 0
        print(json.dumps({"offsets": transactions()}))
    else:
        producer = Producer(BOOTSTRAP | {"enable.idempotence": True})
        producer.produce(TOPIC, value="in the next epoch")
        assert producer.flush(20) == 0
        consumer = Consumer(BOOTSTRAP | {"group.id": "dumped-group"})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
        consumer.close()
        print(json.dumps({}))


main()
