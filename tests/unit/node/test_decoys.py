"""Nobody can find out which users exist by asking two nodes, or one before and after a restart."""

from __future__ import annotations

from pathlib import Path

from kafkalite.coordination import paths
from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from tests.support.loopback_cluster import LoopbackCluster


async def _salt(cluster: LoopbackCluster, broker_id: int, user: str) -> bytes:
    """What a node answers to the first message of SCRAM, without the nonce."""
    client = await FrameClient.to(cluster.nodes[broker_id].endpoints["kafka"])
    assert (await client.ask(wire.SaslHandshakeRequest("SCRAM-SHA-256"), 1)).error_code == 0
    answer = await client.ask(wire.SaslAuthenticateRequest(b"n,,n=%s,r=abc" % user.encode()), 2)
    client.close()
    assert answer.error_code == 0
    return bytes(answer.auth_bytes).partition(b",s=")[2]


async def test_every_node_gives_the_same_answer_about_nobody(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("node=of the cluster\n")
    settings = {
        "listener.security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.plain.users.location": str(users),
        "inter.broker.username": "node",
        "inter.broker.password": "of the cluster",
        "controlled.shutdown.enable": False,
    }
    async with LoopbackCluster(tmp_path / "cluster", nodes=2, settings=settings) as cluster:
        first = await _salt(cluster, 1, "ghost")
        assert await _salt(cluster, 2, "ghost") == first
        assert await _salt(cluster, 1, "other") != first
        await cluster.stop(2)
        await cluster.start(2)
        assert await _salt(cluster, 2, "ghost") == first
        found = cluster.zookeeper.peek(paths.DECOY_KEY)
        assert found is not None
        assert len(found[0]) == 32
