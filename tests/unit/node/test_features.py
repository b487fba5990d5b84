"""Features in a cluster: what one node is asked to choose holds on all, and outlives them."""

from __future__ import annotations

from pathlib import Path

from kafkalite.coordination.topic_configs import GROUPS
from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.waiting import until


async def test_a_level_that_one_node_stores_holds_on_all_and_after_a_restart(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=2, settings={"controlled.shutdown.enable": False}) as cluster:
        services = {number: node.kafka_services for number, node in cluster.nodes.items()}
        await until(lambda: all(each.feature_level("transaction.version") == 2 for each in services.values()))
        before = services[2].features().epoch
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        request = wire.UpdateFeaturesRequest
        lower = request.FeatureUpdateKey("transaction.version", 1, upgrade_type=2)
        assert (await client.ask(request(feature_updates=[lower]), 2)).error_code == 0
        configs = wire.IncrementalAlterConfigsRequest
        setting = configs.AlterableConfig("share.isolation.level", 0, "read_committed")
        resource = configs.AlterConfigsResource(32, "a group/ß", [setting])
        assert (await client.ask(configs([resource]), 1)).responses[0].error_code == 0
        client.close()
        await until(lambda: services[2].feature_level("transaction.version") == 1)
        assert services[2].features().epoch > before
        await until(lambda: bool(services[2].settings_of(GROUPS)))
        assert services[2].settings_of(GROUPS) == {"a group/ß": {"share.isolation.level": "read_committed"}}
        await cluster.stop(2)
        await cluster.start(2)
        assert cluster.nodes[2].kafka_services.feature_level("transaction.version") in (0, 1)  # 0: no command yet
        await until(lambda: cluster.nodes[2].kafka_services.feature_level("transaction.version") == 1)
    assert not cluster.failures
