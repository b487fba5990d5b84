"""Members of a share group in one process, with commands on stdin; needs only confluent-kafka.

`fill RECORDS PARTITIONS`: create the topic, let the group begin at its start, and write numbered records. `end`: the members stop; answered with
how many commits had which error. The members run from the beginning. What they are given is written to PATH.committed before they commit it, what had
no error to PATH.accepted: numbers of eight bytes, so that a killed process leaves both.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from array import array
from collections import Counter
from typing import Any, BinaryIO

from confluent_kafka import KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

_LINE = b"%012d" + b"." * 88


class Members:
    def __init__(self, bootstrap: str, topic: str, group: str, count: int, work_s: float, path: str) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 2,
        }
        self._topic, self._work_s = topic, work_s
        self._given: BinaryIO = open(path + ".committed", "ab", buffering=0)  # noqa: SIM115 - until the process ends
        self._accepted: BinaryIO = open(path + ".accepted", "ab", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self.errors: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._work) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        member = ShareConsumer(self._settings)
        member.subscribe([self._topic])
        while not self._is_over.is_set():
            try:
                messages = [each for each in member.poll(0.5) if not each.error()]
                if messages:
                    time.sleep(self._work_s)
                    self._commit(member, messages)
            except KafkaException as error:
                with self._lock:
                    self.errors[error.args[0].name()] += 1
        member.close()

    def _commit(self, member: ShareConsumer, messages: list[Message]) -> None:
        numbers: dict[int, array[int]] = {}
        for message in messages:
            member.acknowledge(message)
            numbers.setdefault(message.partition(), array("q")).append(int(message.value()[:12]))
        with self._lock:
            for each in numbers.values():
                self._given.write(each.tobytes())
        errors = {key.partition: error for key, error in member.commit_sync().items()}
        with self._lock:
            for partition, each in numbers.items():
                error = errors.get(partition, "no answer")
                if error is None:
                    self._accepted.write(each.tobytes())
                else:
                    self.errors[error if isinstance(error, str) else error.args[0].name()] += 1

    def end(self) -> dict[str, int]:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        return dict(self.errors)


def fill(bootstrap: str, topic: str, group: str, records: int, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result()
    start = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[start])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, _LINE % number)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(300)
    assert not left, f"{left} records were not acknowledged"


def main() -> None:
    bootstrap, topic, group, count, work_s, path = sys.argv[1:7]
    members = Members(bootstrap, topic, group, int(count), float(work_s), path)
    for line in sys.stdin:
        do, *given = json.loads(line)
        found: Any = None
        if do == "fill":
            fill(bootstrap, topic, group, *given)
        elif do == "end":
            found = members.end()
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
