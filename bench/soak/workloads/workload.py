"""What all workloads of a soak have in common: a thread, its producers and consumers, what it reads at the end."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import traceback
from collections import defaultdict
from typing import Any, ClassVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
DELIVERY_MS = 300_000
#: A transactional call that takes longer is repeated or given up.
CALL_S = 60.0
#: A final read of a topic that does not reach the end within this time is a finding.
READ_S = 180.0
RETENTION_MS = 300_000
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


class Workload:
    """A thread that loads until `stopping`, and what it found.

    Args:
        rate: records a second.
    """

    #: Topic -> its settings; created before the thread starts.
    topics: ClassVar[dict[str, dict[str, str]]] = {}

    def __init__(self, bootstrap: str, rng: random.Random, rate: float) -> None:
        self.bootstrap = bootstrap
        self.rng = rng
        self.rate = rate
        self.stopping = threading.Event()
        self.findings: list[str] = []
        self.counts: dict[str, int] = defaultdict(int)
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop, and wait for what is under way."""
        self.stopping.set()
        self._thread.join(DELIVERY_MS / 1000 + 60)
        if self._thread.is_alive():
            self.findings.append(f"{type(self).__name__} STUCK: it did not end")

    def run(self) -> None:
        raise NotImplementedError

    def verify(self) -> None:
        """Read the records, and add to the findings."""
        raise NotImplementedError

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - also the SystemError of a client's extension: it is a finding
            self.findings.append(f"{type(self).__name__} FAILED: {error!r}")
            traceback.print_exc()  # now, not in the end: after this nothing is acknowledged any more

    def producer(self, **more: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "log_level": 0,
                "error_cb": lambda error: None,
                "linger.ms": 5,
                "message.timeout.ms": DELIVERY_MS,
                "queue.buffering.max.messages": 20_000,
                **more,
            }
        )

    def consumer(self, group: str, **more: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "log_level": 0,
                "error_cb": lambda error: None,
                "auto.offset.reset": "error",
                **more,
            }
        )

    def read_all(self, topic: str, isolation: str = "read_committed") -> dict[int, list[Any]]:
        """Partition -> every message, to the end of each partition as this isolation level sees it."""
        consumer = self.consumer("soak-final", **{"enable.partition.eof": True, "isolation.level": isolation})
        found: dict[int, list[Any]] = {number: [] for number in range(PARTITIONS)}
        ended: set[int] = set()
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found])
        until = time.monotonic() + READ_S
        while len(ended) < PARTITIONS and time.monotonic() < until:
            for message in consumer.consume(2_000, 0.5):
                if message.error() is None:
                    found[message.partition()].append(message)
                    until = max(until, time.monotonic() + 30)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    self.findings.append(f"{topic} UNREADABLE: {message.partition()} {message.error()}")
        # The end as a reader sees it has to be the end of the log, once every transaction is over.
        for number in found:
            with contextlib.suppress(KafkaException):
                at = consumer.position([TopicPartition(topic, number)])[0].offset
                _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
                if at not in (end, -1001) or (at == -1001 and end and not found[number] and number not in ended):
                    self.findings.append(f"{topic} STUCK: {number} is read to {at} of {end}")
        if len(ended) < PARTITIONS:
            self.findings.append(f"{topic} STUCK: partitions without an end: {sorted(found.keys() - ended)}")
        consumer.close()
        return found

    def pace(self, began: float, sent: int) -> None:
        """Wait until the next record is due."""
        self.stopping.wait(max(0.0, began + sent / self.rate - time.monotonic()))


def create_topics(bootstrap: str, topics: dict[str, dict[str, str]]) -> None:
    """Each with three replicas. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, PARTITIONS, 3, config=config) for name, config in topics.items()]
    for future in admin.create_topics(wanted).values():
        future.result(60)


def not_in_sync(bootstrap: str, nodes: int) -> list[str]:
    """The missing parts, by each node's own metadata: brokers, leaders, in-sync replicas. Empty if nothing is."""
    missing = []
    for address in bootstrap.split(","):
        settings = {"bootstrap.servers": address, "socket.timeout.ms": 5_000, "log_level": 0}
        admin = AdminClient(settings | {"error_cb": lambda error: None})
        try:
            metadata = admin.list_topics(timeout=5)
        except KafkaException as error:
            missing.append(f"{address}: {error.args[0].name()}")
            continue
        if len(metadata.brokers) < nodes:
            missing.append(f"{address}: {len(metadata.brokers)} brokers")
        for topic in metadata.topics.values():
            for each in topic.partitions.values():
                if each.leader < 0 or len(each.isrs) < 3 or set(each.isrs) != set(each.replicas):
                    missing.append(f"{address}: {topic.topic}-{each.id} leader {each.leader} isr {each.isrs}")
    return missing
