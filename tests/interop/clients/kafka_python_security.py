"""kafka-python: ACLs by its admin client, quotas by its messages, and how its producer is slowed down."""

import json
import sys
import time

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
    described, _ = root.describe_acls(wanted)
    deleted = root.delete_acls([wanted])
    return {
        "created": len(created["succeeded"]),
        "described": sorted(acl.operation.name for acl in described),
        "deleted": sorted(acl.operation.name for acl in deleted[0][1]),
    }


def main():
    root = admin.KafkaAdminClient(bootstrap_servers=BOOTSTRAP, client_id="as-root")
    root.create_topics([admin.NewTopic("kp", 1, 3)])
    seen = acls_of(root)
    print(json.dumps(seen))


assert KafkaProducer is not None
assert time is not None
main()
