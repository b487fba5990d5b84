"""The victims and the cold reader of bench.beside and bench.hostile_clients: librdkafka (confluent-kafka), run by an interpreter that has it.

One command per line on stdin, a list in JSON; one JSON answer per line on stdout.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

#: What a victim's record begins with: when it was sent (perf_counter).
_SENT = struct.Struct(">d")


def summary(took: list[float]) -> dict[str, float]:
    """Of latencies in ms."""
    if not took:
        return {"n": 0, "p50": -1, "p99": -1, "p99.9": -1, "max": -1}
    took = sorted(took)
    found = {f"p{p}": took[min(len(took) - 1, int(len(took) * p / 100))] for p in (50, 99, 99.9)}
    return {"n": len(took), **found, "max": took[-1]}


class Reader:
    """Reads what the victim writes, from the end on: ms from the producer's call to the consumer's."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer({**settings, "fetch.wait.max.ms": 100})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        self._lock = threading.Lock()
        self._took: list[float] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            record = self._consumer.poll(1.0)
            if record is not None and not record.error():
                (sent,) = _SENT.unpack_from(record.value())
                with self._lock:
                    self._took.append((time.perf_counter() - sent) * 1e3)

    def take(self) -> dict[str, float]:
        """Since the last call."""
        with self._lock:
            took, self._took = self._took, []
        return summary(took)


class Victim:
    """Records of 1 KiB, one per request unless `settings` say otherwise, acks=all, at a steady rate."""

    def __init__(
        self, bootstrap: str, topic: str, rate: float, settings: dict[str, Any] | None = None, size: int = 1024
    ) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, **(settings or {})}
        )
        self._topic, self._rate, self._value = topic, rate, b"x" * (size - _SENT.size)
        self._lock = threading.Lock()
        self._took: list[float] = []
        self._failed = 0
        #: Seconds, and the longest time between two acknowledgements.
        self._last_ack = 0.0
        self._silence = 0.0
        self.stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        value, due = self._value, time.monotonic()
        produced = 0
        while not self.stopping:
            produced += 1
            if produced % 50 == 0:
                self._producer.poll(0)  # also while it is late, and has no time to wait for reports
            sent = time.perf_counter()
            self._producer.produce(
                self._topic,
                _SENT.pack(sent) + value,
                on_delivery=lambda error, _, sent=sent: self._delivered(error, sent),
            )
            due += 1 / self._rate
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(30)

    def _delivered(self, error: Any, sent: float) -> None:
        with self._lock:
            self._failed += error is not None
            if error is None:
                now = time.monotonic()
                if self._last_ack:
                    self._silence = max(self._silence, now - self._last_ack)
                self._last_ack = now
            self._took.append((time.perf_counter() - sent) * 1e3)

    def take(self) -> dict[str, float]:
        """ms from the call to the delivery report, since the last call."""
        with self._lock:
            took, self._took = self._took, []
            failed, self._failed = self._failed, 0
            silence, self._silence = self._silence, 0.0
        return {**summary(took), "failed": failed, "silence_s": silence}

    def stop(self) -> dict[str, float]:
        self.stopping = True
        self._thread.join()
        return self.take()


def fill(bootstrap: str, topic: str, count: int, size: int, partitions: int) -> float:
    """Records as fast as they go; the seconds."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000})
    value, began = b"y" * size, time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(60)
    return time.monotonic() - began


def read_all(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """From the beginning, `count` records; the seconds."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "cold", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    began = time.monotonic()
    while count > 0:
        count -= len(consumer.consume(10_000, 0.2))
        assert time.monotonic() - began < 120, f"{count} records did not come"
    took = time.monotonic() - began
    consumer.close()
    return took


def chill(directory: str) -> None:
    """The page cache drops the old records."""
    # A node's directories, or disks within them: to walk through everything would meet directories that are just being removed.
    for path in _old_logs(directory):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_files(directory: str) -> float:
    """The old records, straight from their files: what the disk and this process cost without a broker; the seconds."""
    began = time.monotonic()
    for path in _old_logs(directory):
        with open(path, "rb", buffering=0) as log:
            while log.read(1 << 20):
                pass
    return time.monotonic() - began


def _old_logs(directory: str) -> list[Path]:
    return [*Path(directory).glob("*/old-*/*.log"), *Path(directory).glob("*/*/old-*/*.log")]


WORK: dict[str, Callable[..., float | None]] = {
    "fill": fill,
    "read_all": read_all,
    "chill": chill,
    "read_files": read_files,
}


def main() -> None:
    victim: Victim | None = None
    reader: Reader | None = None
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answer: Any = None
        if name == "victim":
            victim = Victim(*arguments)
        elif name == "reader":
            reader = Reader(*arguments)
        elif name == "take_reader":
            assert reader is not None
            answer = reader.take()
        elif name in ("take", "stop"):
            assert victim is not None
            answer = victim.take() if name == "take" else victim.stop()
        else:
            answer = WORK[name](*arguments)
        print(json.dumps(answer), flush=True)


main()
