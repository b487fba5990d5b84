"""From plain text to SASL over TLS, node by node, while clients go on (docs/security.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.security.dialling import ClientSecurity
from kafkalite.testing.certificates import Authority
from tests.support.loopback_cluster import LoopbackCluster

pytestmark = [pytest.mark.cluster]


async def test_three_rounds_of_restarts(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    users = tmp_path / "users"
    users.write_text("node=of the cluster\nalice=in wonderland\n")
    secured = {
        "listener.security.protocol": "SASL_SSL",
        "rpc.security.protocol": "SASL_SSL",
        "ssl.keystore.location": authority.issue("node"),
        "ssl.truststore.location": authority.truststore,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.plain.users.location": str(users),
        "inter.broker.username": "node",
        "inter.broker.password": "of the cluster",
    }
    alice = ClientSecurity(
        "SASL_SSL",
        authority.truststore,
        "",
        "",
        check_hostname=True,
        mechanism="PLAIN",
        username="alice",
        password="in wonderland",
    )
    settings: dict[str, Any] = {"controlled.shutdown.max.wait.ms": 3_000}
    cluster = LoopbackCluster(tmp_path / "cluster", nodes=3, settings=settings)
    sent = 0
    async with cluster:
        bootstrap = ",".join(str(node.endpoints["kafka"]) for node in cluster.nodes.values())
        async with AsyncClient.connect(bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 3, configs={"min.insync.replicas": "2"})], timeout_s=30)
        for transition in ("accept", "offer", ""):
            cluster._settings |= {**secured, "security.transition": transition}
            # Clients change over between the second round and the third.
            security = alice if transition == "" else None
            for broker_id in (1, 2, 3):
                await cluster.stop(broker_id)
                await cluster.start(broker_id)
                async with AsyncClient.connect(bootstrap, security=security) as client:
                    async with Producer(client) as producer:
                        await (await producer.send("t", None, b"x"))
                        sent += 1
                    async with asyncio.timeout(150):
                        while len((await client.metadata(["t"], timeout_s=30)).topics[0].partitions[0].isr) < 3:
                            await asyncio.sleep(0.05)
            async with AsyncClient.connect(bootstrap, security=alice) as client:  # both are good in every round
                assert (await client.metadata(["t"], timeout_s=30)).topics
        async with AsyncClient.connect(bootstrap) as client:
            with pytest.raises(KafkaliteError):
                await client.metadata(["t"], timeout_s=1)
    assert not cluster.failures
    assert sent == 9
