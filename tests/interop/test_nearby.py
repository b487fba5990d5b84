"""Reading from a replica in the client's rack (KIP-392): librdkafka, and Apache Kafka's consumer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafkalite.replica.decisions.nearby import RACK_AWARE_SELECTOR
from kafkalite.testing.apache_kafka import tool_command
from tests.support.loopback_cluster import LoopbackCluster

from .conftest import CLUSTER_SETTINGS, run_client

pytestmark = [pytest.mark.cluster]

_PRODUCE = """
import sys, confluent_kafka as c
from confluent_kafka.admin import AdminClient, NewTopic
boot = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(boot)
admin.create_topics([NewTopic("near", 3, 3)])["near"].result()
producer = c.Producer(boot)
for number in range(300):
    producer.produce("near", b"x" * 1000, partition=number % 3)
assert producer.flush(60) == 0
"""
_CONSUME = """
import sys, confluent_kafka as c
consumer = c.Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "client.rack": "r2", "isolation.level": sys.argv[2]})
consumer.assign([c.TopicPartition("near", number, c.OFFSET_BEGINNING) for number in range(3)])
seen = 0
while seen < 300:
    seen += sum(not message.error() for message in consumer.consume(300, 1.0))
consumer.close()
"""


@pytest.fixture
async def racked(tmp_path: Path, python_clients: Path) -> AsyncIterator[LoopbackCluster]:
    """Each node in a rack of its own; 300 kB in a topic with a replica on each."""
    own = {number: {"broker.rack": f"r{number}"} for number in (1, 2, 3)}
    settings = CLUSTER_SETTINGS | {"replica.selector.class": RACK_AWARE_SELECTOR}
    async with LoopbackCluster(tmp_path, nodes=3, settings=settings, own_settings=own) as cluster:
        await run_client([str(python_clients), "-c", _PRODUCE, cluster.bootstrap])
        yield cluster
    assert not cluster.failures


def sent(cluster: LoopbackCluster) -> dict[int, int]:
    """Bytes that each node has sent to consumers."""
    return {number: node.replicas.hosted.counters.bytes_out for number, node in cluster.nodes.items()}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_librdkafka_reads_in_its_rack(racked: LoopbackCluster, python_clients: Path, isolation: str) -> None:
    await run_client([str(python_clients), "-c", _CONSUME, racked.bootstrap, isolation])
    by_node = sent(racked)
    assert by_node[2] > 300_000
    assert by_node[1] == by_node[3] == 0


async def test_kafkas_consumer_reads_in_its_rack(racked: LoopbackCluster, kafka_classes: str) -> None:
    flags = ("--topic", "near", "--from-beginning", "--max-messages", "300", "--consumer-property", "client.rack=r3")
    command = tool_command(
        kafka_classes, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", racked.bootstrap, *flags
    )
    assert len((await run_client(command)).splitlines()) == 300
    by_node = sent(racked)
    assert by_node[3] > 300_000
    assert by_node[1] == by_node[2] == 0
