"""Foreign clients over TLS and SASL, against nodes that authenticate to each other in the same way."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalite.security.listener import ListenerSecurity, SaslLogin
from kafkalite.testing.certificates import Authority
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.secured import PASSWORDS, PLAIN_PASSWORD, SecuredCluster

from .conftest import CLUSTER_SETTINGS, seen_by

pytestmark = [pytest.mark.cluster]

SCRIPT = Path(__file__).parent / "clients" / "secured_clients.py"
#: Clients come back after 72 % of it at the earliest, and a node lets them once in a second.
_SESSION_MS = 1500
WHAT_THEY_SEE = {
    "confluent": {"errors": [], "consumed": 30},
    "confluent refused": True,
    "kafka-python": 60,
    "aiokafka": 90,
}


async def clients_see(python: Path, bootstrap: str, protocol: str, **given: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("mechanism", "user", "password", "authority", "certificate"), "")
    return await seen_by(
        [str(python), str(SCRIPT), json.dumps({"bootstrap": bootstrap, "protocol": protocol, **nothing, **given})]
    )


async def test_scram_over_tls(python_clients: Path, tmp_path: Path) -> None:
    """Three real processes, a real ZooKeeper with digest ACLs."""
    with SecuredCluster(tmp_path, "SASL_SSL") as cluster:
        seen = await clients_see(
            python_clients,
            ",".join(cluster.bootstrap),
            "SASL_SSL",
            mechanism="SCRAM-SHA-512",
            user="admin",
            password=PASSWORDS["admin"],
            authority=cluster.authority.truststore,
        )
        assert seen == WHAT_THEY_SEE
        assert '"mechanism": "SCRAM-SHA-512"' in cluster.logs()  # the wrong password


async def test_mutual_tls(python_clients: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    settings = {
        **CLUSTER_SETTINGS,
        "listener.security.protocol": "SSL",
        "rpc.security.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.location": authority.issue("node"),
        "ssl.truststore.location": authority.truststore,
    }
    async with LoopbackCluster(tmp_path / "cluster", nodes=3, settings=settings) as cluster:
        seen = await clients_see(
            python_clients,
            cluster.bootstrap,
            "SSL",
            authority=authority.truststore,
            certificate=authority.issue("alice"),
        )
        assert seen == WHAT_THEY_SEE
    assert not cluster.failures


async def test_plain_without_tls(python_clients: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the end with short sessions (KIP-368), which clients renew between their requests."""
    users = tmp_path / "users"
    users.write_text(f"plain={PLAIN_PASSWORD}\nnode={PASSWORDS['node']}\n")
    settings = {
        **CLUSTER_SETTINGS,
        "listener.security.protocol": "SASL_PLAINTEXT",
        "rpc.security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.plain.users.location": str(users),
        "inter.broker.username": "node",
        "inter.broker.password": PASSWORDS["node"],
    }
    async with LoopbackCluster(tmp_path / "cluster", nodes=3, settings=settings) as cluster:
        see = partial(
            clients_see,
            python_clients,
            cluster.bootstrap,
            "SASL_PLAINTEXT",
            mechanism="PLAIN",
            user="plain",
            password=PLAIN_PASSWORD,
        )
        assert await see() == WHAT_THEY_SEE
        renewals = 0
        login = ListenerSecurity.login

        def counted(security: ListenerSecurity, exchange: Any, mechanism: str, before: Any, host: str) -> SaslLogin:
            nonlocal renewals
            security.max_reauth_ms = _SESSION_MS
            renewals += before is not None and exchange.user == "plain"
            if renewals and not renewals % 3:
                (tmp_path / str(renewals // 3)).touch()
            return login(security, exchange, mechanism, before, host)

        monkeypatch.setattr(ListenerSecurity, "login", counted)
        assert await see(until=str(tmp_path)) == {"errors": [], "left": 0, "kafka-python": True}
    assert not cluster.failures
