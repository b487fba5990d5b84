"""Load through librdkafka itself: run by bench.peers.PeerLoad with an interpreter that has confluent-kafka.

Records are handed over and taken back in batches through librdkafka's C interface (the library inside
confluent-kafka's wheel), because the Python client, not the broker, would be the limit otherwise. One command per line
on stdin, a list in JSON; one JSON answer per line on stdout.
"""

from __future__ import annotations

import ctypes
import json
import socket
import sys
import time
from collections import deque
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

PRODUCER, CONSUMER = 0, 1
BEGINNING, ANY_PARTITION, BLOCK = -2, -1, 4
BATCH = 10_000


class RdMessage(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int), ("topic", c_void_p), ("partition", c_int32), ("payload", c_void_p), ("len", c_size_t),
        ("key", c_void_p), ("key_len", c_size_t), ("offset", c_int64), ("private", c_void_p),
    )  # fmt: skip


def _library() -> ctypes.CDLL:
    [path] = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*")
    lib = ctypes.CDLL(str(path))
    for name in ("conf_new", "new", "topic_new", "queue_new"):
        getattr(lib, "rd_kafka_" + name).restype = c_void_p
    lib.rd_kafka_consume_batch_queue.restype = ctypes.c_ssize_t
    lib.rd_kafka_consume_batch_queue.argtypes = (c_void_p, c_int, POINTER(c_void_p), c_size_t)
    lib.rd_kafka_message_destroy.argtypes = (c_void_p,)
    lib.rd_kafka_message_destroy.restype = None
    return lib


_lib = _library()


class RdHandle:
    """A librdkafka producer or consumer and a topic of it."""

    def __init__(self, kind: int, topic: str, settings: dict[str, Any]) -> None:
        error = ctypes.create_string_buffer(512)
        conf = c_void_p(_lib.rd_kafka_conf_new())
        for key, value in settings.items():
            if _lib.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), error, c_size_t(512)):
                raise ValueError(error.value.decode())
        handle = _lib.rd_kafka_new(c_int(kind), conf, error, c_size_t(512))
        if not handle:
            raise ValueError(error.value.decode())
        self.handle = c_void_p(handle)
        self.name = topic
        self.topic = c_void_p(_lib.rd_kafka_topic_new(self.handle, c_char_p(topic.encode()), None))

    def held(self, partitions: int) -> int:
        """Records between the topic's low and high watermarks."""
        total = 0
        for partition in range(partitions):
            low, high = c_int64(), c_int64()
            name = c_char_p(self.name.encode())
            until = time.monotonic() + 20
            while error := _lib.rd_kafka_query_watermark_offsets(
                self.handle, name, c_int32(partition), byref(low), byref(high), c_int(5_000)
            ):
                # A new topic's leader may be known before it knows itself.
                assert time.monotonic() < until, f"watermarks: error {error}"
                time.sleep(0.05)
            total += high.value - low.value
        return total

    def close(self) -> None:
        _lib.rd_kafka_topic_destroy(self.topic)
        _lib.rd_kafka_destroy(self.handle)


def produce(
    bootstrap: str,
    topic: str,
    partitions: int,
    size: int,
    acks: str,
    seconds: float,
    max_bytes: int,
    more_settings: dict[str, Any] | None = None,
) -> dict[str, float]:
    """As fast as it goes; every record must be there at the end."""
    settings = {
        "bootstrap.servers": bootstrap, "acks": acks, "queue.buffering.max.kbytes": 262_144,
        "queue.buffering.max.messages": 2_000_000, **(more_settings or {}),
    }  # fmt: skip
    producer = RdHandle(PRODUCER, topic, settings)
    producer.held(partitions)  # connections and metadata are there before the clock starts
    value = ctypes.create_string_buffer((bytes(range(256)) * (size // 256 + 1))[:size], size)
    messages = (RdMessage * BATCH)()
    for message in messages:
        message.payload, message.len = ctypes.addressof(value), size
    began, used, sent = time.monotonic(), time.process_time(), 0
    while time.monotonic() - began < seconds and sent * size < max_bytes:
        sent += _lib.rd_kafka_produce_batch(
            producer.topic, c_int32(ANY_PARTITION), c_int(BLOCK), messages, c_int(BATCH)
        )
    error = _lib.rd_kafka_flush(producer.handle, c_int(60_000))
    took, used = time.monotonic() - began, time.process_time() - used
    assert error == 0, f"flush: error {error}"
    until = time.monotonic() + 60
    while (held := producer.held(partitions)) < sent:  # acks=1 does not wait for the followers, the high watermark does
        assert time.monotonic() < until, f"{sent} records sent, {held} there"
        time.sleep(0.05)
    producer.close()
    return {"records": sent, "bytes": sent * size, "seconds": took, "cpu_seconds": used}


def consume(bootstrap: str, topic: str, partitions: int, size: int, records: int) -> dict[str, float]:
    """All of a topic, from the beginning."""
    settings = {
        "bootstrap.servers": bootstrap,
        "queued.max.messages.kbytes": 131_072,
        # Beyond a number of records or bytes in its queue librdkafka does not fetch for a second (by default): it is that
        # second which would be measured, and more often on the faster peer.
        "queued.min.messages": 10_000_000,
        "fetch.queue.backoff.ms": 1,
    }
    consumer = RdHandle(CONSUMER, topic, settings)
    consumer.held(partitions)
    queue = c_void_p(_lib.rd_kafka_queue_new(consumer.handle))
    messages = (c_void_p * BATCH)()
    destroy = _lib.rd_kafka_message_destroy
    began, used, seen = time.monotonic(), time.process_time(), 0
    for partition in range(partitions):
        assert not _lib.rd_kafka_consume_start_queue(consumer.topic, c_int32(partition), c_int64(BEGINNING), queue)
    while seen < records:
        # It waits until the batch is full or the time is over, so the time must be short.
        count = _lib.rd_kafka_consume_batch_queue(queue, 5, messages, BATCH)
        assert time.monotonic() - began < 120, f"{seen} of {records} records came"
        if count == 0:
            continue
        first = ctypes.cast(c_void_p(messages[0]), POINTER(RdMessage)).contents
        assert (first.err, first.len) == (0, size), f"error {first.err}, {first.len} bytes"
        deque(map(destroy, messages[:count]), maxlen=0)
        seen += count
    took, used = time.monotonic() - began, time.process_time() - used
    for partition in range(partitions):
        _lib.rd_kafka_consume_stop(consumer.topic, c_int32(partition))
    _lib.rd_kafka_queue_destroy(queue)
    consumer.close()
    return {"records": seen, "bytes": seen * size, "seconds": took, "cpu_seconds": used}


def latency(bootstrap: str, topic: str, size: int, acks: str, rate: float, seconds: float) -> dict[str, float]:
    """ms from the call to the delivery report, one record a request."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    took: list[float] = []

    def send() -> None:
        sent = time.perf_counter()

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            took.append((time.perf_counter() - sent) * 1e3)

        producer.produce(topic, b"x" * size, on_delivery=delivered)

    for _ in range(200):
        send()
        producer.flush(30)
    took.clear()
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        while (left := began + number / rate - time.monotonic()) > 0:
            producer.poll(left)
        send()
    producer.flush(30)
    took.sort()
    return {f"p{p}": took[min(len(took) - 1, int(len(took) * p / 100))] for p in (50, 99, 99.9)}


def first_ack(bootstrap: str, topic: str) -> float:
    """Tries until a record is acknowledged; the time (time.monotonic, which processes share) when it was.

    librdkafka looks for a broker that was not there every 100 ms only: it is let loose when the first one takes connections.
    """
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    until = time.monotonic() + 90
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), timeout=90).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.002)
    settings = {
        "bootstrap.servers": bootstrap, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 20,
        "topic.metadata.refresh.fast.interval.ms": 20, "linger.ms": 0, "log_level": 0,
    }  # fmt: skip
    producer = confluent_kafka.Producer(settings)
    when: list[float] = []
    producer.produce(topic, b"first", on_delivery=lambda error, _: when.append(0 if error else time.monotonic()))
    producer.flush(90)
    assert when and when[0], "nothing was acknowledged"
    return when[0]


def create(bootstrap: str, topic: str, partitions: int, factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, factor)])[topic].result(30)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        parts = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if len(parts) == partitions and all(len(part.isrs) == factor and part.leader >= 0 for part in parts.values()):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{topic} is not in sync")


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)


COMMANDS = {each.__name__: each for each in (produce, consume, latency, first_ack, create, delete)}


def main() -> None:
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(COMMANDS[name](*arguments)), flush=True)


if __name__ == "__main__":
    main()
