"""Numbered, keyed and deleted records, and committed offsets."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import defaultdict
from typing import Any, ClassVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.soak.checks import SoakVersion, keyed, numbered
from bench.soak.workloads.workload import DELIVERY_MS, PARTITIONS, RETENTION_MS, Workload


class Numbered(Workload):
    """An idempotent producer of numbered records; a group reads them meanwhile."""

    topics: ClassVar[dict[str, dict[str, str]]] = {"numbered": {"min.insync.replicas": "2", "segment.bytes": "1048576"}}

    def __init__(self, bootstrap: str, rng: random.Random, rate: float) -> None:
        super().__init__(bootstrap, rng, rate)
        self.acked: dict[tuple[int, int], str] = {}
        #: Acknowledged without an offset: partition, value.
        self.implied: list[tuple[int, str]] = []
        self.seen: set[tuple[int, int]] = set()
        self.longest_silence_s = 0.0
        self._readers = [threading.Thread(target=self._read, args=(stay,), daemon=True) for stay in (3600.0, 20.0)]

    def run(self) -> None:
        for reader in self._readers:
            reader.start()
        instance = sent = 0
        began = last = time.monotonic()
        producer = self.producer(**{"enable.idempotence": True, "compression.type": "lz4"})

        def delivered(value: str) -> Any:
            def done(error: Any, message: Any) -> None:
                nonlocal last
                if error is not None:
                    self.counts["not delivered"] += 1
                    return
                now = time.monotonic()
                self.longest_silence_s, last = max(self.longest_silence_s, now - last), now
                if message.offset() is None:
                    self.implied.append((message.partition(), value))
                else:
                    self.acked[message.partition(), message.offset()] = value

            return done

        while not self.stopping.is_set():
            value = f"w:{instance}:{sent}:" + "x" * self.rng.choice((5, 50, 500))
            try:
                producer.produce(
                    "numbered", value.encode(), partition=self.rng.randrange(PARTITIONS), on_delivery=delivered(value)
                )
                sent += 1
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                self.counts[f"producer replaced: {error.args[0].name()}"] += 1
                producer.flush(5)
                instance += 1
                producer = self.producer(**{"enable.idempotence": True})
            producer.poll(0)
            self.pace(began, sent)
        left = producer.flush(DELIVERY_MS / 1000)
        if left:
            self.findings.append(f"numbered STUCK: {left} records neither delivered nor failed")

    def _read(self, stay_s: float) -> None:
        """A member of the group that leaves after `stay_s` and comes back."""
        while not self.stopping.is_set():
            options = {"auto.offset.reset": "earliest", "enable.auto.commit": True, "session.timeout.ms": 10_000}
            consumer = self.consumer("soak-readers", **options)
            consumer.subscribe(["numbered"])
            until = time.monotonic() + stay_s
            while not self.stopping.is_set() and time.monotonic() < until:
                for message in consumer.consume(500, 0.5):
                    if message.error() is None:
                        self.seen.add((message.partition(), message.offset()))
            consumer.close()

    def verify(self) -> None:
        log = {
            partition: [(message.offset(), message.value().decode()) for message in messages]
            for partition, messages in self.read_all("numbered").items()
        }
        self.counts["numbered acked"] = len(self.acked) + len(self.implied)
        self.counts["numbered read by the group"] = len(self.seen)
        self.findings += numbered("numbered", self.acked, log, self.implied)
        there = {(partition, offset) for partition, records in log.items() for offset, _ in records}
        phantoms = sorted(self.seen - there)[:5]
        if phantoms:
            self.findings.append(f"numbered READ AND GONE: {phantoms}")


class Keyed(Workload):
    """Keys with versions and tombstones, on topics that are compacted in several ways. One of them changes its settings all
    the time."""

    _COMMON: ClassVar[dict[str, str]] = {
        "min.insync.replicas": "2",
        "segment.bytes": "65536",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "5000",
    }
    topics: ClassVar[dict[str, dict[str, str]]] = {
        "compacted": {**_COMMON, "cleanup.policy": "compact"},
        "windowed": {**_COMMON, "cleanup.policy": "compact,delete", "retention.ms": str(RETENTION_MS)},
        "settings": {**_COMMON, "cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1"},
    }
    _CHANGES: ClassVar[tuple[dict[str, str], ...]] = (
        {"cleanup.policy": "delete"},
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete"},
        {"segment.bytes": "1048576"},
        {"segment.bytes": "65536"},
        {"max.message.bytes": "20000"},
        {"max.message.bytes": "1048588"},
        {"flush.messages": "1"},
        {"flush.messages": "100000"},
        {"index.interval.bytes": "512"},
        {"index.interval.bytes": "4096"},
    )
    #: Not where the power of all hosts goes at once: then a topic without a flush loses acknowledged records, as it says.
    _FLUSHES: ClassVar[tuple[dict[str, str], ...]] = (
        {"log.flush.before.ack": "true"},
        {"log.flush.before.ack": "false"},
    )

    def __init__(self, bootstrap: str, rng: random.Random, rate: float, *, flush: bool) -> None:
        super().__init__(bootstrap, rng, rate)
        self._changes = self._CHANGES if flush else (*self._CHANGES, *self._FLUSHES)
        self.sent: dict[str, dict[str, list[SoakVersion]]] = {topic: defaultdict(list) for topic in self.topics}
        self.acked: dict[str, dict[str, SoakVersion]] = {topic: {} for topic in self.topics}

    def run(self) -> None:
        producer = self.producer(**{"enable.idempotence": True})
        threading.Thread(target=self._change_settings, daemon=True).start()

        def delivered(topic: str, key: str, version: SoakVersion) -> Any:
            def done(error: Any, message: Any) -> None:
                newest = self.acked[topic].get(key)
                if error is None and (newest is None or newest.number < version.number):
                    self.acked[topic][key] = version._replace(at=time.time())
                    self.counts[f"{topic} acked"] += 1

            return done

        number, began = 0, time.monotonic()
        while not self.stopping.is_set():
            number += 1
            topic = self.rng.choice(list(self.topics))
            key = f"k{self.rng.randrange(100 if self.rng.random() < 0.8 else 2_000)}"
            version = SoakVersion(number, self.rng.random() < 0.1)
            value = None if version.is_tombstone else (f"{number}:" + "y" * 120).encode()
            partition = int(key[1:]) % PARTITIONS
            try:
                producer.produce(
                    topic,
                    value,
                    key=key.encode(),
                    partition=partition,
                    headers=[("v", str(number))],
                    on_delivery=delivered(topic, key, version),
                )
                self.sent[topic][key].append(version)
            except BufferError:
                producer.poll(0.1)
            except (KafkaException, SystemError) as error:
                # The client's extension raises a SystemError for a record with headers once the producer has failed for good.
                reason = error.args[0].name() if isinstance(error, KafkaException) else "SystemError"
                self.counts[f"producer replaced: {reason}"] += 1
                producer.flush(5)
                producer = self.producer(**{"enable.idempotence": True})
            producer.poll(0)
            self.pace(began, number)
        if producer.flush(DELIVERY_MS / 1000):
            self.findings.append("keyed STUCK: records neither delivered nor failed")

    def _change_settings(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": lambda error: None})
        while not self.stopping.wait(self.rng.uniform(3, 15)):
            [(name, value)] = self.rng.choice(self._changes).items()
            resource = ConfigResource(ResourceType.TOPIC, "settings")
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
            try:
                for future in admin.incremental_alter_configs([resource]).values():
                    future.result(30)
                self.counts["settings changed"] += 1
            except TimeoutError:
                self.counts["setting not answered"] += 1
            except KafkaException as error:
                self.counts[f"setting refused: {error.args[0].name()}"] += 1

    def verify(self) -> None:
        now = time.time()
        for topic in self.topics:
            log: dict[str, list[SoakVersion]] = defaultdict(list)
            for messages in self.read_all(topic).values():
                for message in messages:
                    number = int(dict(message.headers())["v"])
                    log[message.key().decode()].append(SoakVersion(number, message.value() is None))
            expires = now - RETENTION_MS / 1000 if topic == "windowed" else 0.0
            self.findings += keyed(topic, self.sent[topic], self.acked[topic], log, expired_before=expires + 60)


class Offsets(Workload):
    """Committed offsets: a read returns the acknowledged one; they never go back."""

    def run(self) -> None:
        consumer, at, acked = self.consumer("soak-offsets"), 0, 0
        while not self.stopping.wait(0.1):
            at += 1
            try:
                for committed in consumer.commit(offsets=[TopicPartition("numbered", 0, at)], asynchronous=False):
                    if committed.error:
                        raise KafkaException(committed.error)
                acked = at
                self.counts["offsets committed"] += 1
                if self.rng.random() < 0.3:
                    read = consumer.committed([TopicPartition("numbered", 0)], timeout=30)[0]
                    if read.error is None and not acked <= read.offset <= at:
                        self.findings.append(f"offsets BACK: committed {acked}, read {read.offset}")
                        return
            except KafkaException as error:
                self.counts[f"offsets {error.args[0].name()}"] += 1
        consumer.close()

    def verify(self) -> None:
        """All was compared while it ran."""


class Deleted(Workload):
    """Retention and DeleteRecords: deleted records do not return, and the rest has no holes."""

    topics: ClassVar[dict[str, dict[str, str]]] = {
        "short": {"min.insync.replicas": "2", "segment.bytes": "65536", "retention.ms": "120000"}
    }

    def __init__(self, bootstrap: str, rng: random.Random, rate: float) -> None:
        super().__init__(bootstrap, rng, rate)
        self._ends: dict[int, int] = defaultdict(int)
        self._starts: dict[int, int] = defaultdict(int)

    def run(self) -> None:
        producer = self.producer(**{"enable.idempotence": True})
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": lambda error: None})

        def delivered(error: Any, message: Any) -> None:
            if error is None and message.offset() is not None:
                self._ends[message.partition()] = max(self._ends[message.partition()], message.offset() + 1)

        sent, began, due = 0, time.monotonic(), time.monotonic() + 10
        while not self.stopping.is_set():
            sent += 1
            with contextlib.suppress(BufferError, KafkaException):
                producer.produce("short", b"z" * 200, partition=sent % PARTITIONS, on_delivery=delivered)
            producer.poll(0)
            if time.monotonic() > due:
                self._delete(admin)
                due = time.monotonic() + self.rng.uniform(5, 30)
            self.pace(began, sent)
        producer.flush(DELIVERY_MS / 1000)

    def _delete(self, admin: AdminClient) -> None:
        partition = self.rng.randrange(PARTITIONS)
        before = TopicPartition("short", partition, self._starts[partition])
        before.offset = self.rng.randint(self._starts[partition], self._ends[partition])
        try:
            for future in admin.delete_records([before]).values():
                self._starts[partition] = max(self._starts[partition], future.result(60).low_watermark)
            self.counts["records deleted"] += 1
        except (KafkaException, TimeoutError) as error:
            name = error.args[0].name() if isinstance(error, KafkaException) else "no answer"
            self.counts[f"delete refused: {name}"] += 1

    def verify(self) -> None:
        for partition, messages in self.read_all("short", "read_uncommitted").items():
            offsets = [message.offset() for message in messages]
            if offsets and offsets[0] < self._starts[partition]:
                text = f"{partition} begins at {offsets[0]}, deleted up to {self._starts[partition]}"
                self.findings.append(f"short DELETED RECORDS ARE BACK: {text}")
            if offsets and offsets != list(range(offsets[0], offsets[-1] + 1)):
                self.findings.append(f"short HOLES: partition {partition}")
            if offsets and offsets[-1] + 1 < self._ends[partition]:
                self.findings.append(
                    f"short LOST: {partition} ends at {offsets[-1] + 1}, acked {self._ends[partition]}"
                )
