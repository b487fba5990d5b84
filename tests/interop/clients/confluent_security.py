"""confluent-kafka (librdkafka): ACLs by its admin client, and what the rules do to its producer and consumer."""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

BOOT = sys.argv[1]
WAIT_S = 30


def conf(who: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": BOOT, "client.id": f"as-{who}", **more}


def binding(name: str, who: str, operation: AclOperation, kind: ResourceType = ResourceType.TOPIC) -> AclBinding:
    pattern = ResourcePatternType.LITERAL if kind is ResourceType.TOPIC else ResourcePatternType.PREFIXED
    return AclBinding(kind, name, pattern, f"User:{who}", "*", operation, AclPermissionType.ALLOW)


def code_of(work: Any) -> str:
    try:
        work()
    except KafkaException as error:
        return str(error.args[0].name())
    return "none"


def produced(who: str, topic: str) -> str:
    codes: list[str] = []
    producer = Producer(conf(who, **{"message.timeout.ms": 20_000}))
    producer.produce(topic, b"v", on_delivery=lambda error, _: codes.append(error.name() if error else "none"))
    producer.flush(WAIT_S)
    return codes[0]


def consumed(who: str, topic: str, group: str) -> list[str]:
    consumer = Consumer(conf(who, **{"group.id": group, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    seen: list[str] = []
    while not seen:
        message = consumer.poll(WAIT_S)
        assert message is not None, "nothing came"
        error = message.error()
        seen.append(error.name() if error else message.value().decode())
        if not error:
            try:
                consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            except KafkaException as failed:
                seen.append(failed.args[0].name())
    consumer.close()
    return seen


def main() -> None:
    root, carol = AdminClient(conf("root")), AdminClient(conf("carol"))
    for future in root.create_topics([NewTopic("allowed", 1, 3), NewTopic("secret", 1, 3)]).values():
        future.result(WAIT_S)
    wanted = [
        binding("allowed", "ann", AclOperation.WRITE),
        binding("allowed", "bob", AclOperation.READ),
        binding("app-", "bob", AclOperation.READ, ResourceType.GROUP),
    ]
    for future in root.create_acls(wanted).values():
        future.result(WAIT_S)
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    described = sorted(
        (acl.name, acl.principal, acl.operation.name) for acl in root.describe_acls(everything).result(WAIT_S)
    )
    # A rule reaches every node in a moment; librdkafka gives an authorization error up at once.
    while produced("ann", "allowed") != "none":
        pass
    groups = itertools.count()
    while consumed("bob", "allowed", f"app-{next(groups)}") != ["v"]:
        pass
    bindings = root.describe_acls(everything).result(WAIT_S)
    described = sorted((acl.name, acl.principal, acl.operation.name) for acl in bindings)
    seen = {
        "described": described,
        "ann writes a secret": produced("ann", "secret"),
        "carol writes": produced("carol", "allowed"),
        "carol reads": consumed("carol", "allowed", "app-c"),
        "bob in a group of others": consumed("bob", "allowed", "other"),
        "carol deletes": code_of(lambda: next(iter(carol.delete_acls([everything]).values())).result(WAIT_S)),
        "carol creates": code_of(lambda: next(iter(carol.create_acls(wanted[:1]).values())).result(WAIT_S)),
        "carol's topics": sorted(carol.list_topics(timeout=WAIT_S).topics),
        "bob's topics": sorted(name for name in AdminClient(conf("bob")).list_topics(timeout=WAIT_S).topics),
    }
    of_bob = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:bob", None, AclOperation.ANY, AclPermissionType.ANY
    )
    deleted = next(iter(root.delete_acls([of_bob]).values())).result(WAIT_S)
    seen["deleted"] = sorted(acl.name for acl in deleted)
    print(json.dumps(seen))


main()
