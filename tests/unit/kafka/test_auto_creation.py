"""Topics that are created because a client uses them."""

from __future__ import annotations

import pytest

from kafkalite.client import messages
from kafkalite.client.async_client import AsyncClient
from kafkalite.kafka.handlers.cluster import auto_replicas
from kafkalite.testing.cluster import cluster


@pytest.mark.parametrize(
    ("wanted", "default", "brokers", "replicas"),
    [(0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 3, 3), (0, 1, 9, 3), (0, 5, 9, 5), (2, 1, 9, 2), (1, 3, 3, 1), (0, 1, 0, 1)],
)
def test_how_many_replicas(wanted: int, default: int, brokers: int, replicas: int) -> None:
    assert auto_replicas(wanted, default, brokers) == replicas


async def test_a_cluster_of_several_keeps_them_several_times() -> None:
    async with cluster(3) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.call_any(messages.metadata_request(["made"], allow_auto_create=True), timeout_s=150)
        await client.known_topic("made")
        found = [each for each in (await client.metadata(["made"])).topics if not each.error]
        assert [len(partition.replicas) for topic in found for partition in topic.partitions] == [3] * len(
            found[0].partitions
        )
        # One broker takes no new replicas: what is left is the default.
        from kafkalite.client.admin.configs import ConfigResource, alter_configs
        from kafkalite.model import BrokerId

        await alter_configs(client, ConfigResource.broker(BrokerId(3)), {"broker.state": "cordoned"})
        await client.call_any(messages.metadata_request(["later"], allow_auto_create=True), timeout_s=150)
        await client.known_topic("later")
