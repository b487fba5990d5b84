"""Transactions and groups through confluent-kafka during an upgrade: run by bench.upgrade with an interpreter that has it.

Two clients read what bench.rolling_load writes. One is a member of a classic group: it copies each record into another topic in
transactions that contain its offsets. The other is a member of a consumer group (KIP-848) that commits its offsets and notes what it
has seen. The number of records comes on stdin when the writer has ended; then the copies are counted. One JSON line in the end.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

_PATIENCE_S = 180.0
#: A transaction is committed after this many records or seconds.
_RECORDS, _SECONDS = 200, 0.5
#: What a consumer reports if the cluster does not offer the group protocol that it was configured for.
_ENDS = (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION)


class Copier(threading.Thread):
    """Copies `source` into `target` exactly once."""

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        super().__init__(daemon=True)
        self._addresses, self._source, self._target = bootstrap, source, target
        self.stop = threading.Event()
        self.commits, self.aborts, self.starts = 0, 0, 0
        self.errors: list[str] = []

    def run(self) -> None:
        while not self.stop.is_set():
            self.starts += 1
            try:
                self._copy()
            except KafkaException as error:  # fatal: a new instance with the same transactional id goes on
                self.errors.append(str(error))

    def _copy(self) -> None:
        producer = Producer({"bootstrap.servers": self._addresses, "transactional.id": "copier", "linger.ms": 2})
        producer.init_transactions(60)
        consumer = Consumer(
            {
                "bootstrap.servers": self._addresses,
                "group.id": "copiers",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([self._source])
        try:
            while not self.stop.is_set():
                messages = [m for m in consumer.consume(_RECORDS, timeout=_SECONDS) if m.error() is None]
                if messages and not self._commit(producer, consumer, messages):
                    return  # the group's committed offsets say where to go on
        finally:
            consumer.close()

    def _commit(self, producer: Any, consumer: Any, messages: list[Any]) -> bool:
        producer.begin_transaction()
        for message in messages:
            producer.produce(self._target, message.value(), partition=message.partition())
        try:
            ends: dict[int, int] = {m.partition(): m.offset() + 1 for m in messages}
            places = [TopicPartition(self._source, number, offset) for number, offset in ends.items()]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 60)
            while True:
                try:
                    producer.commit_transaction(60)
                    break
                except KafkaException as error:
                    if not error.args[0].retriable():
                        raise
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(60)
            self.aborts += 1
            return False
        self.commits += 1
        return True


class Watcher(threading.Thread):
    """A member of a group of the consumer protocol; what it has seen, and how far the group has committed."""

    def __init__(self, bootstrap: str, source: str) -> None:
        super().__init__(daemon=True)
        self._addresses, self._source = bootstrap, source
        self.stop = threading.Event()
        self.seen: Counter[int] = Counter()
        self.starts = 0
        self.errors: list[str] = []

    def run(self) -> None:
        while not self.stop.is_set():
            self.starts += 1
            self._watch()

    def _watch(self) -> None:
        """Until the end, or an error after which librdkafka's consumer reads no more (a version without this protocol): begin again."""
        fatal: list[str] = []
        consumer = Consumer(
            {
                "bootstrap.servers": self._addresses,
                "group.id": "watchers",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "error_cb": lambda error: fatal.append(str(error)) if error.code() in _ENDS or error.fatal() else None,
            }
        )
        consumer.subscribe([self._source])
        while not (self.stop.is_set() or fatal):
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    self.seen[int(message.value())] += 1
                elif error.code() in _ENDS or error.fatal():
                    fatal.append(str(error))
        self.errors += fatal[:1]
        consumer.close()
        if fatal:
            self.stop.wait(1)


def main(bootstrap: str, source: str, target: str, partitions: int) -> None:
    """Exit code 0 whatever is found: the result is in the answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(target, partitions, 3, config={"min.insync.replicas": "2"})
    for outcome in admin.create_topics([wanted]).values():
        outcome.result()
    copier, watcher = Copier(bootstrap, source, target), Watcher(bootstrap, source)
    copier.start()
    watcher.start()
    print(json.dumps({"event": "load.started"}), flush=True)
    _, count = json.loads(sys.stdin.readline())
    until = time.monotonic() + _PATIENCE_S
    copies: Counter[int] = Counter()
    while time.monotonic() < until:
        copies = _committed(bootstrap, target, partitions)
        if len(copies) >= count and len(watcher.seen) >= count:
            break
        time.sleep(1)
    copier.stop.set()
    watcher.stop.set()
    copier.join(60)
    watcher.join(60)
    print(
        json.dumps(
            {
                "copies_lost": sum(number not in copies for number in range(count)),
                "copies_twice": sum(times > 1 for times in copies.values()),
                "unseen": sum(number not in watcher.seen for number in range(count)),
                "seen_again": sum(times > 1 for times in watcher.seen.values()),
                "commits": copier.commits,
                "aborts": copier.aborts,
                "producers": copier.starts,
                "watchers": watcher.starts,
                "group_errors": sorted({*copier.errors, *watcher.errors})[:10],
            }
        ),
        flush=True,
    )


def _committed(bootstrap: str, topic: str, partitions: int) -> Counter[int]:
    """How often each number is among the committed records."""
    reader = {"bootstrap.servers": bootstrap, "group.id": "census", "enable.auto.commit": False}
    consumer = Consumer({**reader, "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: Counter[int] = Counter()
    ended: set[int] = set()
    until = time.monotonic() + 60
    while len(ended) < partitions and time.monotonic() < until:
        for message in consumer.consume(5000, timeout=1):
            if message.error() is None:
                found[int(message.value())] += 1
            else:
                ended.add(message.partition())
    consumer.close()
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
