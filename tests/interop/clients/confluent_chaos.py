"""Under chaos that somebody else makes: an idempotent producer, a consumer group, and a transactional pipeline.

Argument: bootstrap servers. It produces until its input is closed. One JSON line of what was lost, duplicated or missed.
"""

import collections
import contextlib
import faulthandler
import json
import os
import select
import subprocess
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = {"bootstrap.servers": sys.argv[1], "log_level": 2}
IS_PIPELINE = sys.argv[2:] == ["pipeline"]
#: How long it may take until the input is closed.
CHAOS_S = 600
PARTITIONS = 4
#: After the chaos everything must come to rest within this.
REST_S = 90
#: A pipeline that has not moved for so long is killed, and another one takes its transactional id over. librdkafka's
#: send_offsets_to_transaction has no end when the group's coordinator has died and left the metadata while it was
#: looked up (its issues 5456 and 5511).
STUCK_S = 30
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
stop_producing, stop_consuming = threading.Event(), threading.Event()
acked: dict[str, set[int]] = {"in": set(), "plain": set()}
failed: list[str] = []
seen: collections.Counter[Any] = collections.Counter()
transactions: list[int] = []
rebalances: list[Any] = []
replaced: list[str] = []


def produce(topic):
    producer = Producer(
        BOOTSTRAP | {"enable.idempotence": True, "acks": "all", "linger.ms": 2, "message.timeout.ms": 120000}
    )

    def delivered(error, message):
        if error:
            failed.append(str(error))
        else:
            acked[topic].add(int(message.value()))

    number = 0
    while not stop_producing.is_set():
        producer.produce(topic, value=str(number), on_delivery=delivered)
        number += 1
        producer.poll(0)
        time.sleep(0.003)
    producer.flush(REST_S)


def consume(stay_s):
    """A member of the group; one that leaves after `stay_s` and comes back makes the group rebalance."""
    while not stop_consuming.is_set():
        consumer = Consumer(
            BOOTSTRAP
            | {
                "group.id": "plain-group",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "auto.commit.interval.ms": 500,
            }
        )
        consumer.subscribe(["plain"], on_assign=lambda consumer, partitions: rebalances.append(len(partitions)))
        until = time.monotonic() + stay_s
        while not stop_consuming.is_set() and time.monotonic() < until:
            message = consumer.poll(0.3)
            if message is not None and not message.error():
                seen[int(message.value())] += 1
        consumer.close()


def open_pipeline():
    producer = Producer(BOOTSTRAP | {"transactional.id": "pipeline", "transaction.timeout.ms": 20000})
    producer.init_transactions(20)
    consumer = Consumer(
        BOOTSTRAP
        | {
            "group.id": "pipeline-group",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe(["in"])
    return producer, consumer


def move_some(producer, consumer):
    """Copy what there is from `in` to `out`, with the offsets, in one transaction."""
    messages = [message for message in consumer.consume(50, 0.5) if not message.error()]
    if not messages:
        return 0
    producer.begin_transaction()
    offsets = {}
    for message in messages:
        producer.produce("out", value=message.value())
        offsets[message.partition()] = message.offset() + 1
    producer.send_offsets_to_transaction(
        [TopicPartition("in", partition, offset) for partition, offset in offsets.items()],
        consumer.consumer_group_metadata(),
        20,
    )
    producer.commit_transaction(20)
    return 1


def pipeline():
    """The process that copies: one byte on stdout each time it comes round, `+` for a transaction."""
    producer = consumer = None
    while True:
        moved = 0
        try:
            if producer is None:
                producer, consumer = open_pipeline()
            moved = move_some(producer, consumer)
        except KafkaException as error:
            if producer is not None and error.args[0].txn_requires_abort():
                with contextlib.suppress(KafkaException):
                    producer.abort_transaction(20)
            if consumer is not None:
                consumer.close()
            producer = consumer = None
        os.write(1, b"+" if moved else b".")


def process():
    """Keep a pipeline running."""
    while not stop_consuming.is_set():
        command = [*DIE_WITH_PARENT, sys.executable, __file__, sys.argv[1], "pipeline"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            while not stop_consuming.is_set():
                if not select.select([child.stdout], [], [], STUCK_S)[0]:
                    replaced.append("stuck")
                    break
                told = os.read(child.stdout.fileno(), 65536)
                if not told:
                    replaced.append("ended")
                    break
                transactions.append(told.count(b"+"))
            child.kill()


def everything_in(topic, isolation):
    """All values in the topic's partitions, to their ends."""
    consumer = Consumer(
        BOOTSTRAP
        | {
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values: list[int] = []
    ended: set[int] = set()
    until = time.monotonic() + REST_S
    while len(ended) < PARTITIONS and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            continue
        ended.discard(message.partition())
        values.append(int(message.value()))
    consumer.close()
    return values


def verdict(values, expected):
    return {
        "lost": len(expected - set(values)),
        "duplicated": sum(1 for count in collections.Counter(values).values() if count > 1),
    }


def main():
    # Where everybody is, should it never end: a client that hangs says nothing else.
    faulthandler.dump_traceback_later(CHAOS_S + 3 * REST_S, exit=True)
    config = {"min.insync.replicas": "2"}
    topics = [NewTopic(topic, PARTITIONS, 3, config=config) for topic in ("in", "out", "plain")]
    admin = AdminClient(BOOTSTRAP)
    created = admin.create_topics(topics)
    for future in created.values():
        future.result(30)
    producing = [threading.Thread(target=produce, args=(topic,)) for topic in acked]
    consuming = [threading.Thread(target=consume, args=(stay_s,)) for stay_s in (3600, 3600, 5)]
    consuming.append(threading.Thread(target=process))
    for thread in producing + consuming:
        thread.start()
    print("producing", flush=True)
    sys.stdin.read()
    stop_producing.set()
    for thread in producing:
        thread.join()
    until = time.monotonic() + REST_S
    while time.monotonic() < until and (
        acked["plain"] - seen.keys() or acked["in"] - set(everything_in("out", "read_committed"))
    ):
        time.sleep(0.5)
    stop_consuming.set()
    for thread in consuming:
        thread.join()
    result = {
        "acked": min(map(len, acked.values())),
        "failed": failed[:3],
        "transactions": sum(transactions),
        "pipelines replaced": replaced,
        "rebalances": len(rebalances),
        "in": verdict(everything_in("in", "read_uncommitted"), acked["in"]),
        "plain": verdict(everything_in("plain", "read_uncommitted"), acked["plain"]),
        "out": verdict(everything_in("out", "read_committed"), acked["in"]),
        "not consumed by the group": len(acked["plain"] - seen.keys()),
    }
    print(json.dumps(result))


if IS_PIPELINE:
    pipeline()
else:
    main()
