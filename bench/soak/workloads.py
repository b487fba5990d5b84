"""The workloads of a soak, all of them librdkafka's: each is a thread, and compares in the end its own records with those in the topics.

Run by load.py with an interpreter that has confluent-kafka.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from bench.soak.checks import Version, copied, keyed, numbered, transactions

PARTITIONS = 4
DELIVERY_MS = 300_000
#: A transactional call that takes longer is made again or given up.
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
        except (KafkaException, OSError, RuntimeError, ValueError, LookupError, TypeError, AssertionError) as error:
            self.findings.append(f"{type(self).__name__} FAILED: {error!r}")

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


class Numbered(Workload):
    """An idempotent producer of numbered records; a group reads them meanwhile."""

    topics: ClassVar[dict[str, dict[str, str]]] = {"numbered": {"min.insync.replicas": "2", "segment.bytes": "1048576"}}

    def __init__(self, bootstrap: str, rng: random.Random, rate: float) -> None:
        super().__init__(bootstrap, rng, rate)
        self.acked: dict[tuple[int, int], str] = {}
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
        self.counts["numbered acked"] = len(self.acked)
        self.counts["numbered read by the group"] = len(self.seen)
        self.findings += numbered("numbered", self.acked, log)
        there = {(partition, offset) for partition, records in log.items() for offset, _ in records}
        phantoms = sorted(self.seen - there)[:5]
        if phantoms:
            self.findings.append(f"numbered READ AND GONE: {phantoms}")


class Transactions(Workload):
    """Transactions of one to six records, a quarter of them aborted, half of those without a flush before; a few stay open."""

    topics: ClassVar[dict[str, dict[str, str]]] = {
        "transactions": {"min.insync.replicas": "2", "segment.bytes": "262144"}
    }

    def __init__(self, bootstrap: str, rng: random.Random, rate: float, name: str = "librdkafka") -> None:
        super().__init__(bootstrap, rng, rate)
        self.name = name
        self.outcomes: dict[tuple[str, int], tuple[str, int]] = {}
        #: The records that a live read_committed reader has seen.
        self.seen_live: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        #: A record was given up after message.timeout.ms. librdkafka has numbered it, so the next batch of its partition skips a
        #: sequence number, and brokers refuse that, Apache Kafka too.
        self._has_timed_out = False

    def _open(self) -> Producer | None:
        while not self.stopping.is_set():
            try:
                # librdkafka wants the time-out of a message within that of its transaction.
                timeouts = {"transaction.timeout.ms": 30_000, "message.timeout.ms": 20_000}
                producer = self.producer(**{"transactional.id": f"soak-{self.name}", **timeouts})
                producer.init_transactions(CALL_S)
                return producer
            except KafkaException as error:
                self.counts[f"init: {error.args[0].name()}"] += 1
                self.stopping.wait(0.5)
        return None

    def run(self) -> None:
        self._reader.start()
        producer, number = self._open(), 0
        while producer is not None and not self.stopping.is_set():
            number += 1
            count = self.rng.randint(1, 6)
            is_commit = self.rng.random() < 0.75
            result, producer_is_sound = self._one(producer, number, count, is_commit)
            self.outcomes[self.name, number] = (result, count)
            self.counts[f"{self.name} {result}"] += 1
            if not producer_is_sound:
                producer = self._open()
            self.stopping.wait(self.rng.random() * 2 * count / self.rate)

    def _one(self, producer: Producer, number: int, count: int, is_commit: bool) -> tuple[str, bool]:
        """(result, whether the producer can go on)."""
        try:
            producer.begin_transaction()
            for record in range(count):
                value = f"{self.name}:{number}:{record}:{count}"
                partition = self.rng.randrange(PARTITIONS)
                producer.produce("transactions", value.encode(), partition=partition, on_delivery=self._delivered)
            if self.rng.random() < 0.05:
                self.stopping.wait(self.rng.random() * 3)
            if is_commit:
                return self._commit(producer)
            if self.rng.random() < 0.5:
                producer.flush(20)
            producer.abort_transaction(CALL_S)
            return "aborted", True
        except KafkaException as error:
            self.counts[f"{self.name} {error.args[0].name()}"] += 1
            if error.args[0].code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
                if not self._has_timed_out:
                    self.findings.append(f"{self.name} OUT OF ORDER: transaction {number}, no record had timed out")
                self._has_timed_out = False
            if not error.args[0].txn_requires_abort():
                return "unknown", False
            try:
                producer.abort_transaction(CALL_S)
                return "aborted", True
            except KafkaException:
                return "unknown", False

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and error.code() == KafkaError._MSG_TIMED_OUT:
            self._has_timed_out = True
            self.counts[f"{self.name} timed out"] += 1

    def _commit(self, producer: Producer) -> tuple[str, bool]:
        until = time.monotonic() + 5 * CALL_S
        while True:
            try:
                producer.commit_transaction(CALL_S)
                return "committed", True
            except KafkaException as error:
                known = error.args[0]
                if not known.retriable() or known.txn_requires_abort() or time.monotonic() > until:
                    raise

    def _read(self) -> None:
        consumer = self.consumer("soak-live", **{"isolation.level": "read_committed"})
        consumer.assign([TopicPartition("transactions", number, 0) for number in range(PARTITIONS)])
        last: dict[int, int] = {}
        while not self.stopping.is_set():
            for message in consumer.consume(500, 0.5):
                if message.error() is not None:
                    continue
                if message.offset() <= last.get(message.partition(), -1):
                    self.findings.append(f"transactions READ TWICE: {message.partition()} {message.offset()}")
                last[message.partition()] = message.offset()
                self.seen_live.append(message.value().decode())
        consumer.close()

    def verify(self) -> None:
        messages = self.read_all("transactions").values()
        values = [message.value().decode() for each in messages for message in each]
        mine = [value for value in values if value.startswith(self.name + ":")]
        self.findings += transactions(f"transactions of {self.name}", self.outcomes, mine)
        gone = set(self.seen_live) - set(values)
        if gone:
            self.findings.append(f"transactions READ AND GONE: {sorted(gone)[:5]}")


class JavaTransactions(Transactions):
    """The same by Kafka's Java client, in a process of its own, which says how each ended."""

    topics: ClassVar[dict[str, dict[str, str]]] = {}

    def __init__(self, bootstrap: str, rng: random.Random, rate: float, command: list[str]) -> None:
        super().__init__(bootstrap, rng, rate, "java")
        self._command = [*DIE_WITH_PARENT, *command, bootstrap, str(PARTITIONS), str(rng.randrange(10**6))]

    def run(self) -> None:
        with subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None and child.stdin is not None
            stdin = child.stdin

            def stop() -> None:
                self.stopping.wait()
                with contextlib.suppress(OSError):
                    stdin.write("stop\n")
                    stdin.flush()

            threading.Thread(target=stop, daemon=True).start()
            for line in child.stdout:
                number, count, result = line.split()
                self.outcomes["java", int(number)] = (result, int(count))
                self.counts[f"java {result}"] += 1
        if child.returncode:
            self.findings.append(f"java FAILED: exit code {child.returncode}")


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
        {"log.flush.before.ack": "true"},
        {"log.flush.before.ack": "false"},
    )

    def __init__(self, bootstrap: str, rng: random.Random, rate: float) -> None:
        super().__init__(bootstrap, rng, rate)
        self.sent: dict[str, dict[str, list[Version]]] = {topic: defaultdict(list) for topic in self.topics}
        self.acked: dict[str, dict[str, Version]] = {topic: {} for topic in self.topics}

    def run(self) -> None:
        producer = self.producer(**{"enable.idempotence": True})
        threading.Thread(target=self._change_settings, daemon=True).start()

        def delivered(topic: str, key: str, version: Version) -> Any:
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
            version = Version(number, self.rng.random() < 0.1)
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
            except KafkaException as error:
                self.counts[f"producer replaced: {error.args[0].name()}"] += 1
                producer.flush(5)
                producer = self.producer(**{"enable.idempotence": True})
            producer.poll(0)
            self.pace(began, number)
        if producer.flush(DELIVERY_MS / 1000):
            self.findings.append("keyed STUCK: records neither delivered nor failed")

    def _change_settings(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": lambda error: None})
        while not self.stopping.wait(self.rng.uniform(3, 15)):
            [(name, value)] = self.rng.choice(self._CHANGES).items()
            resource = ConfigResource(ResourceType.TOPIC, "settings")
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
            try:
                for future in admin.incremental_alter_configs([resource]).values():
                    future.result(30)
                self.counts["settings changed"] += 1
            except KafkaException as error:
                self.counts[f"setting refused: {error.args[0].name()}"] += 1

    def verify(self) -> None:
        now = time.time()
        for topic in self.topics:
            log: dict[str, list[Version]] = defaultdict(list)
            for messages in self.read_all(topic).values():
                for message in messages:
                    number = int(dict(message.headers())["v"])
                    log[message.key().decode()].append(Version(number, message.value() is None))
            expires = now - RETENTION_MS / 1000 if topic == "windowed" else 0.0
            self.findings += keyed(topic, self.sent[topic], self.acked[topic], log, expired_before=expires + 60)


class Pipeline(Workload):
    """Copies `numbered` to `copied`, exactly once, in a process that is killed now and then."""

    topics: ClassVar[dict[str, dict[str, str]]] = {"copied": {"min.insync.replicas": "2"}}

    def __init__(self, bootstrap: str, rng: random.Random, rate: float, source: Numbered) -> None:
        super().__init__(bootstrap, rng, rate)
        self._source = source

    def run(self) -> None:
        command = [*DIE_WITH_PARENT, sys.executable, str(Path(__file__).parent / "pipeline.py"), self.bootstrap]
        while not self.stopping.is_set():
            with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                until = time.monotonic() + self.rng.uniform(20, 90)
                quiet = time.monotonic()
                while not self.stopping.is_set() and time.monotonic() < until:
                    if select.select([child.stdout], [], [], 1.0)[0]:
                        said = os.read(child.stdout.fileno(), 65536)
                        if not said:
                            self.counts["pipeline ended"] += 1
                            break
                        self.counts["pipeline transactions"] += said.count(b"+")
                        quiet = time.monotonic()
                    self.counts["pipeline longest silence, s"] = max(
                        self.counts["pipeline longest silence, s"], int(time.monotonic() - quiet)
                    )
                child.kill()
                self.counts["pipeline killed"] += 1
        # The rest is copied without a disturbance.
        with subprocess.Popen([*command, "--to-the-end"]) as child:
            try:
                child.wait(DELIVERY_MS / 1000)
            except subprocess.TimeoutExpired:
                self.findings.append("pipeline STUCK: it did not come to the end")
                child.kill()

    def verify(self) -> None:
        outputs = [message.value().decode() for messages in self.read_all("copied").values() for message in messages]
        self.counts["pipeline copied"] = len(outputs)
        self.findings += copied(set(self._source.acked.values()), outputs)


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
            if error is None:
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
