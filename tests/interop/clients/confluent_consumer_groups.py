"""Consumer groups of KIP-848 as librdkafka sees them (group.protocol=consumer): one JSON line of what it saw."""

import json
import subprocess
import sys
import time
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = {"bootstrap.servers": sys.argv[1]}
PARTITIONS = 6
PATIENCE_S = 60
#: A member in a process of its own, to be killed.
LONE_MEMBER = """
import sys
from confluent_kafka import Consumer
member = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "modern", "group.protocol": "consumer"})
member.subscribe(["modern-a"])
while True:
    member.poll(0.2)
    if member.assignment():
        print(len(member.assignment()), flush=True)
"""


def consumer(group, *, topics=("modern-a",), protocol="consumer", **more):
    settings = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.protocol": protocol,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": 6000, "partition.assignment.strategy": "cooperative-sticky"}
    made = Consumer(BOOTSTRAP | settings | {key.replace("_", "."): value for key, value in more.items()})
    made.subscribe(list(topics))
    return made


def until(members, condition):
    """Poll until it holds; the messages that came."""
    messages: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while not condition(messages) and time.monotonic() < deadline:
        for member in members:
            message = member.poll(0.05)
            if message is not None and not message.error():
                messages.append(message)
    assert condition(messages), [len(member.assignment()) for member in members]
    return messages


def shares(members):
    return sorted(len(member.assignment()) for member in members)


def is_shared(members, *counts):
    def condition(messages):
        found = [(each.topic, each.partition) for member in members for each in member.assignment()]
        return shares(members) == sorted(counts) and len(set(found)) == len(found)

    return condition


def described(admin, group, members):
    """Once it is stable: the members have said that they have what they were assigned."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = admin.describe_consumer_groups([group])[group].result(10)
        if found.state is ConsumerGroupState.STABLE or time.monotonic() > deadline:
            break
        for member in members:
            member.poll(0.05)
    return [
        str(found.type).rpartition(".")[2],
        str(found.state).rpartition(".")[2],
        found.partition_assignor,
        len(found.members),
    ]


def main():
    seen: dict[str, Any] = {}
    admin = AdminClient(BOOTSTRAP)
    topics = [NewTopic("modern-a", PARTITIONS, 3), NewTopic("modern-b", 2, 3)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = Producer(BOOTSTRAP)
    for number in range(60):
        producer.produce("modern-a", str(number).encode(), partition=number % PARTITIONS)
    producer.flush(30)

    members = [consumer("modern")]
    seen["consumed"] = len({message.value() for message in until(members, lambda messages: len(messages) >= 60)})
    members[0].commit(asynchronous=False)
    members += [consumer("modern"), consumer("modern")]
    until(members, is_shared(members, 2, 2, 2))
    lone = subprocess.Popen([sys.executable, "-c", LONE_MEMBER, sys.argv[1]], stdout=subprocess.PIPE, text=True)
    until(members, is_shared(members, 1, 2, 2))
    assert lone.stdout is not None
    seen["of a fourth process"] = int(lone.stdout.readline())
    lone.kill()
    lone.wait()
    until(members, is_shared(members, 2, 2, 2))  # its session has expired
    seen["described"] = described(admin, "modern", members)
    seen["listed"] = sorted(
        group.group_id
        for group in admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(10).valid
        if group.state is ConsumerGroupState.STABLE
    )
    for member in members[1:]:
        member.close()
    until(members[:1], is_shared(members[:1], PARTITIONS))
    members[0].close()

    again = consumer("modern")
    until([again], is_shared([again], PARTITIONS))
    offsets = again.committed(again.assignment(), timeout=10)
    seen["committed"] = sum(each.offset for each in offsets)
    again.close()

    # by a regular expression, with the other assignor
    regex = consumer("by-regex", topics=["^modern-.*"], group_remote_assignor="range")
    until([regex], is_shared([regex], PARTITIONS + 2))
    admin.create_topics([NewTopic("modern-c", 3, 3)])["modern-c"].result(30)
    until([regex], is_shared([regex], PARTITIONS + 5))
    seen["by a regular expression"] = described(admin, "by-regex", [regex])
    regex.close()

    # a static member that is restarted keeps its partitions
    static = [consumer("static", group_instance_id=f"i{number}") for number in range(2)]
    until(static, is_shared(static, 3, 3))
    before = sorted((each.topic, each.partition) for each in static[0].assignment())
    static[0].close()
    static[0] = consumer("static", group_instance_id="i0")
    until(static, is_shared(static, 3, 3))
    seen["a static member keeps"] = before == sorted((each.topic, each.partition) for each in static[0].assignment())
    for member in static:
        member.close()

    # a running group goes over from the classic protocol, and back
    mixed = [consumer("mixed", protocol="classic"), consumer("mixed", protocol="classic")]
    until(mixed, is_shared(mixed, 3, 3))
    kinds = [described(admin, "mixed", mixed)[0]]
    mixed.append(consumer("mixed"))
    until(mixed, is_shared(mixed, 2, 2, 2))
    kinds.append(described(admin, "mixed", mixed)[0])
    mixed.pop().close()
    until(mixed, is_shared(mixed, 3, 3))
    kinds.append(described(admin, "mixed", mixed)[0])
    seen["online"] = kinds
    for member in mixed:
        member.close()
    print(json.dumps(seen))


main()
