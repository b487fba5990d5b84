"""Administration by confluent-kafka and kafka-python: one JSON line of what they saw.

Argument: bootstrap servers of three brokers.
"""

import json
import sys
import time
from typing import Any

from confluent_kafka import ElectionType, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition as Partition

BOOTSTRAP = sys.argv[1]
PREFERRED = 0  # as kafka-python wants it


def until(condition, seconds=30):
    """What `condition` returns as soon as it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def main():
    seen: dict[str, Any] = {}
    confluent = AdminClient({"bootstrap.servers": BOOTSTRAP})
    confluent.create_topics([NewTopic("moved", 2, replica_assignment=[[1, 2], [2, 3]])])["moved"].result(30)
    confluent.create_partitions([NewPartitions("moved", 4)])["moved"].result(30)

    def described():
        topic = confluent.describe_topics(TopicCollection(["moved"]))["moved"].result(10)
        return {
            part.id: (part.leader.id if part.leader else -1, [node.id for node in part.replicas])
            for part in topic.partitions
        }

    seen["partitions"] = len(until(lambda: len(described()) == 4 and described()))

    python = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    first, second = Partition("moved", 0), Partition("moved", 1)
    python.alter_partition_reassignments({first: [3, 1], second: [1, 3]})
    until(lambda: not python.list_partition_reassignments())
    seen["reassigned"] = [described()[number][1] for number in (0, 1)]
    seen["called off"] = [error.__name__ for error in python.alter_partition_reassignments({first: None}).values()]
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [TopicPartition("moved", 0)]).result(30)
    seen["elected"] = [(key.topic, key.partition, error and error.name()) for key, error in elected.items()]
    python.elect_leaders(PREFERRED, {"moved": [0, 1]}, raise_errors=False)
    seen["leaders"] = until(lambda: [described()[number][0] for number in (0, 1)] == [3, 1])
    dirs = {found["broker"]: found["log_dirs"] for found in python.describe_log_dirs()}
    seen["room on every disk"] = [
        broker for broker, disks in sorted(dirs.items()) if all(0 < d["usable_bytes"] < d["total_bytes"] for d in disks)
    ]
    answers = python.alter_replica_log_dirs({("moved", 0, 3): dirs[3][0]["log_dir"], ("moved", 1, 3): "/nowhere"})
    seen["to disks"] = sorted(error.__name__ for error in answers.values())
    pages = python.describe_topic_partitions(["moved"], response_partition_limit=3)
    seen["page"] = (len(pages["topics"][0]["partitions"]), pages["next_cursor"]["partition_index"])
    producers = python.describe_producers([first])
    seen["producers"] = len(producers[first].active_producers)
    python.close()
    print(json.dumps(seen))


main()
