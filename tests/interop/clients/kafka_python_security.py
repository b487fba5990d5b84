"""kafka-python: ACLs by its admin client, quotas by its messages, and how its producer is slowed down."""

import json
import sys
from typing import Any

import kafka.admin as admin
from kafka import KafkaProducer
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

BOOTSTRAP = sys.argv[1].split(",")


def acls_of(root):
    acls = [
        admin.ACL(
            "User:ann",
            "*",
            operation,
            admin.ACLPermissionType.ALLOW,
            admin.ResourcePattern(admin.ResourceType.TOPIC, "kp"),
        )
        for operation in (admin.ACLOperation.WRITE, admin.ACLOperation.DESCRIBE)
    ]
    created = root.create_acls(acls)
    wanted = admin.ACLFilter(
        "User:ann",
        None,
        admin.ACLOperation.ANY,
        admin.ACLPermissionType.ANY,
        admin.ResourcePatternFilter(admin.ResourceType.ANY, None, admin.ACLResourcePatternType.ANY),
    )
    described: list[Any] = []
    while len(described) < 2:  # the node that is asked may hear of them a moment later
        described, _ = root.describe_acls(wanted)
    deleted = root.delete_acls([wanted])
    return {
        "created": len(created["succeeded"]),
        "described": sorted(acl.operation.name for acl in described),
        "deleted": sorted(acl.operation.name for acl in deleted[0][1]),
    }


def quotas_of(root):
    def send(request):
        return root._manager.run(root._manager.send, request)

    entry = AlterClientQuotasRequest.EntryData
    change = entry(
        entity=[entry.EntityData(entity_type="client-id", entity_name="as-root.slow")],
        ops=[entry.OpData(key="producer_byte_rate", value=2000.0, remove=False)],
    )
    altered = send(AlterClientQuotasRequest(entries=[change], validate_only=False))
    component = DescribeClientQuotasRequest.ComponentData(entity_type="client-id", match_type=2, match=None)
    values: list[tuple[str, float]] = []
    while not values:
        described = send(DescribeClientQuotasRequest(components=[component], strict=True))
        values = [(value.key, value.value) for each in described.entries for value in each.values]
    return {"altered": [each.error_code for each in altered.entries], "quotas": values}


def produced():
    """A third more than eleven windows allow: each is acknowledged, and the broker tells the last one to wait."""
    producer = KafkaProducer(
        bootstrap_servers=BOOTSTRAP, client_id="as-root.slow", linger_ms=0, enable_idempotence=False
    )
    offsets = [producer.send("kp", b"x" * 10_000).get(60).offset for _ in range(3)]
    producer.close(0)
    return offsets


def main():
    root = admin.KafkaAdminClient(bootstrap_servers=BOOTSTRAP, client_id="as-root")
    root.create_topics([admin.NewTopic("kp", 1, 3)])
    print(json.dumps(acls_of(root) | quotas_of(root) | {"produced": produced()}))


main()
