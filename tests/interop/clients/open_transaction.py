"""Leave a transaction open, and a group with offsets of two partitions.

Arguments: bootstrap servers, topic, transactional id, group.
"""

import json
import os
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

BOOTSTRAP, TOPIC, TRANSACTION, GROUP = sys.argv[1:]


def main():
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0), TopicPartition(TOPIC, 1, 0)], asynchronous=False)
    consumer.close()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": TRANSACTION})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, value="never committed", partition=0)
    producer.flush(10)
    print(json.dumps({}), flush=True)
    os._exit(0)  # as if it had crashed


main()
