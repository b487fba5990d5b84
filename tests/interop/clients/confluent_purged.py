"""librdkafka aborts a transaction whose last batch the broker has, but whose response was lost; then it commits another one.

python confluent_purged.py PROXY_PORT BROKER_PORT: the broker gives its clients the address of the proxy, which this script has.
Prints one line of JSON: what each transaction came to, the error of the one that was begun next, what read_committed shows.
"""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_PRODUCE = b"\0\0"


def _frames(sock: socket.socket) -> Iterator[bytes]:
    """Requests or responses, each with its length in front."""
    stream = sock.makefile("rb")
    while len(head := stream.read(4)) == 4:
        yield head + stream.read(int.from_bytes(head, "big"))


class Proxy:
    """Passes everything on, until it is `armed`: then it keeps the response to the next Produce, and refuses all connections."""

    def __init__(self, port: int, upstream: int) -> None:
        self._upstream = upstream
        self._server = socket.create_server(("127.0.0.1", port))
        self.armed = threading.Event()
        #: The broker has responded to the Produce that the client takes for lost.
        self.lost = threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            if self.lost.is_set():
                client.close()
                continue
            broker = socket.create_connection(("127.0.0.1", self._upstream))
            self._open += [client, broker]
            produces: set[bytes] = set()
            for source, target, there in ((client, broker, True), (broker, client, False)):
                threading.Thread(target=self._pass_on, args=(source, target, there, produces), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, there: bool, produces: set[bytes]) -> None:  # noqa: FBT001 - the target of a thread
        with suppress(OSError):
            for frame in _frames(source):
                if there and self.armed.is_set() and frame[4:6] == _PRODUCE:
                    produces.add(frame[8:12])
                elif not there and frame[4:8] in produces:
                    self.armed.clear()
                    self.lost.set()
                    for each in self._open:
                        with suppress(OSError):
                            each.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(frame)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def main() -> None:
    proxy = Proxy(int(sys.argv[1]), int(sys.argv[2]))
    address = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}"}
    admin = AdminClient(address)
    admin.create_topics([NewTopic("purged", 1, 1)])["purged"].result(60)
    queued_again = threading.Event()

    def measured(text: str) -> None:
        # Abort purges a batch of the queue as this test needs it, and one that is still in flight in another way.
        topic = json.loads(text)["topics"].get("purged", {"partitions": {}})
        of_partition = topic["partitions"].get("0", {"txmsgs": 0})
        if of_partition["txmsgs"] == 2 and of_partition["xmit_msgq_cnt"] + of_partition["msgq_cnt"] == 1:
            queued_again.set()

    producer = Producer({
        **address, "statistics.interval.ms": 20, "stats_cb": measured, "transactional.id": "purged", "linger.ms": 0, "log_level": 0, "error_cb": lambda error: None,
        "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 50,
    })  # fmt: skip
    producer.init_transactions(60)
    said: dict[str, object] = {}

    def reported(error: object, message: object) -> None:
        # While it is in the queue again, and before the abort can reach the coordinator.
        if error is not None and proxy.lost.is_set():
            said["of the lost batch"] = error.name()  # type: ignore[attr-defined]
            proxy.lost.clear()

    producer.begin_transaction()
    producer.produce("purged", b"first", partition=0)
    producer.commit_transaction(60)

    producer.begin_transaction()
    proxy.armed.set()
    producer.produce("purged", b"aborted", partition=0, on_delivery=reported)
    while not (proxy.lost.is_set() and queued_again.is_set()):
        producer.poll(0.01)
    producer.abort_transaction(60)

    producer.begin_transaction()
    producer.produce("purged", b"committed", partition=0)
    said["next"] = "committed"
    try:
        producer.commit_transaction(60)
    except KafkaException as problem:
        error = problem.args[0]
        said["next"] = f"{error.name()}, {'abortable' if error.txn_requires_abort() else 'not abortable'}"
        producer.abort_transaction(60)
        producer.begin_transaction()
        producer.produce("purged", b"committed", partition=0)
        producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce("purged", b"last", partition=0)
    producer.commit_transaction(60)

    consumer = Consumer({**address, "group.id": "purged", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("purged", 0, 0)])
    read: list[str] = []
    while "last" not in read:
        message = consumer.poll(60)
        assert message is not None and message.error() is None, message and message.error()
        read.append(message.value().decode())
    said["read"] = read
    print(json.dumps(said))


if __name__ == "__main__":
    main()
