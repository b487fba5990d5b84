"""Transactions by librdkafka and by Kafka's Java client."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from typing import ClassVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.soak.checks import transactions
from bench.soak.workloads.workload import CALL_S, DIE_WITH_PARENT, PARTITIONS, Workload


class TransactionsWorkload(Workload):
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
            result, producer_is_sound = self._one(producer, number, count, is_commit=is_commit)
            self.outcomes[self.name, number] = (result, count)
            self.counts[f"{self.name} {result}"] += 1
            if not producer_is_sound:
                producer = self._open()
            self.stopping.wait(self.rng.random() * 2 * count / self.rate)

    def _one(self, producer: Producer, number: int, count: int, *, is_commit: bool) -> tuple[str, bool]:
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


class JavaTransactions(TransactionsWorkload):
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
