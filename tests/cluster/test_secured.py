"""Three real nodes that authenticate to each other over TLS, on a ZooKeeper that only they may change: who gets in, who
does not, and that those who are refused trouble nobody else."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError

from kafkalite.client.async_client import AsyncClient
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import BrokerEpoch, BrokerId, Endpoint
from kafkalite.rpc.answers import RpcNotSent
from kafkalite.rpc.authenticated import AuthenticatedNetwork
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.security.scram import make_credential
from kafkalite.testing.processes import ProcessFailed, kazoo_client
from tests.cluster.running import wait_until
from tests.support.failing import fails_with
from tests.support.secured import PASSWORDS, PLAIN_PASSWORD, ZOOKEEPER_AUTH, SecuredCluster

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

_STRANGERS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path_factory.mktemp("secured"), "SASL_SSL") as running:
        admin = running.client_config("admin")
        running.command("admin", "create-topic", "t", client_config=admin)
        yield running


def endpoint(cluster: SecuredCluster, broker_id: int = 1) -> Endpoint:
    host, _, port = str(cluster.nodes[broker_id].ready["rpc"]).rpartition(":")
    return Endpoint(host, int(port))


async def say_hello(cluster: SecuredCluster, user: str | None, node_id: int = -1) -> RpcConnection:
    """A connection as that user (None: in plain text), in the name of a node perhaps."""
    network = RealNetwork()
    through = network if user is None else AuthenticatedNetwork(network, cluster.security(user).open(), os.urandom)
    async with AsyncClient.connect(cluster.bootstrap, security=cluster.security("admin")) as client:
        cluster_id = (await client.metadata([], timeout_s=30)).cluster_id
    hello = HelloRequest(cluster_id, BrokerId(node_id), BrokerEpoch(1), client_id="stranger")
    supervisor = Supervisor(lambda error: None)
    return await RpcConnection.open(through, endpoint(cluster), hello, supervisor=supervisor, timeout_s=20)


def test_the_command_line_and_a_new_user(cluster: SecuredCluster) -> None:
    admin = cluster.client_config("admin")
    cluster.command("produce", "t", stdin="one\ntwo", client_config=admin)
    assert "two" in cluster.command("consume", "t", "--from", "beginning", "--max", "2", client_config=admin)
    alice = cluster.client_config("alice")
    assert "SASL_AUTHENTICATION_FAILED" in cluster.command("admin", "health", client_config=alice, code=1)
    told = cluster.command("admin", "users", "set", "alice", "--json", stdin=PASSWORDS["alice"], client_config=admin)
    assert json.loads(told)["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    wait_until(lambda: _all_take(cluster, alice), "alice everywhere")
    listed = json.loads(cluster.command("admin", "users", "list", "--json", client_config=alice))
    assert listed == {
        "users": {
            "admin": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192},
            "alice": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192},
            "node": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192},
        }
    }
    cluster.command("admin", "users", "delete", "alice", "--yes", "--mechanism", "SCRAM-SHA-256", client_config=admin)
    assert "alice" in cluster.command("admin", "users", "list", "alice", client_config=admin)


def _all_take(cluster: SecuredCluster, config: str) -> bool:
    return all(_is_healthy(cluster, config, "--bootstrap", each, "--timeout", "5") for each in cluster.bootstrap)


async def test_a_client_that_says_it_is_node_2(cluster: SecuredCluster) -> None:
    with pytest.raises(RpcNotSent):  # in plain text it does not get as far as a hello
        await say_hello(cluster, None, 2)
    with fails_with(ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
        await say_hello(cluster, "admin", 2)
    with pytest.raises(ApiError, match=r"kafka\.port") as refused:  # nor is it let in as what it is
        await say_hello(cluster, "admin")
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    (await say_hello(cluster, "node", 2)).abort("enough")


async def test_strangers_by_the_hundred(cluster: SecuredCluster) -> None:
    """Half handshakes and plain text on the TLS ports; meanwhile a client is served, and the log stays readable."""
    silent: list[socket.socket] = []
    log = cluster.nodes[1].log_path
    before = len(log.read_text().splitlines())
    try:
        async with AsyncClient.connect(cluster.bootstrap, security=cluster.security("admin")) as client:
            for number in range(_STRANGERS):
                name = ("kafka", "rpc", "http")[number % 3]
                host, _, port = str(cluster.nodes[1].ready[name]).rpartition(":")
                silent.append(socket.create_connection((host, int(port)), 20))
                silent[-1].sendall((b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n", b"")[number // 3 % 3])
                if number % 60 == 59:
                    assert (await client.metadata(["t"], timeout_s=30)).topics
                    (await say_hello(cluster, "node", 2)).abort("served")
    finally:
        for each in silent:
            each.close()

    def told() -> list[str]:
        return [line for line in log.read_text().splitlines()[before:] if "tls.refused" in line]

    wait_until(lambda: any("does not speak TLS" in line for line in told()), "a line about them")
    assert len(told()) < 60


def test_pages_are_for_users(cluster: SecuredCluster) -> None:
    """Nothing is said of HTTP: it is as the RPC listener, with the same users."""
    assert [cluster.page(path, None)[0] for path in ("/", "/metrics", "/api/status")] == [401] * 3
    assert cluster.page("/readyz", None) == (200, "ready\n")
    assert cluster.page("/metrics", "admin", "guess")[0] == 401
    assert cluster.page("/metrics", "plain", PLAIN_PASSWORD)[0] == 200
    status, text = cluster.page("/metrics", "admin")
    assert status == 200
    assert 'failed_authentication_total{listener="http"} 1.0' in text
    assert 'kafkalite_tls_refused_total{listener="rpc"}' in text


def test_zookeeper_belongs_to_the_nodes(cluster: SecuredCluster) -> None:
    with kazoo_client(cluster.zookeeper_connect) as stranger:
        assert sorted(stranger.get_children("/brokers/ids")) == ["1", "2", "3"]
        for path in ("/config/users/admin", "/config/users/node"):
            with pytest.raises(NoAuthError):
                stranger.get(path)
            with pytest.raises(NoAuthError):
                stranger.set(path, make_credential("SCRAM-SHA-512", "x", b"saltsalt").text().encode())
        for path in ("/controller", "/brokers/ids/1", "/brokers/topics/t", "/config/topics/t"):
            with pytest.raises(NoAuthError):
                stranger.set(path, b"{}")
        with pytest.raises(NoAuthError):
            stranger.create("/admin/stranger")
        stranger.add_auth("digest", ZOOKEEPER_AUTH)
        data, _ = stranger.get("/config/users/admin")
        config = json.loads(data)["config"]
        assert config["SCRAM-SHA-512"].startswith("salt=")
        assert config["SCRAM-SHA-512"].endswith(",iterations=8192")


def test_nodes_find_back_to_each_other(cluster: SecuredCluster) -> None:
    """kill -9, a restart, and a restart of ZooKeeper: sessions and connections authenticate again."""
    admin = cluster.client_config("admin")
    cluster.nodes[2].kill()
    cluster.command("produce", "t", stdin="three", client_config=admin)
    cluster.restart(2)
    assert cluster.zookeeper is not None
    cluster.zookeeper.signal(signal.SIGKILL)
    cluster.zookeeper.kill()
    cluster.start_zookeeper()
    cluster.command("admin", "create-topic", f"after-{random.random()}", client_config=admin)
    wait_until(lambda: _is_healthy(cluster, admin), "a healthy cluster")


def _is_healthy(cluster: SecuredCluster, config: str, *options: str) -> bool:
    try:
        cluster.command("admin", "health", *options, client_config=config)
    except AssertionError:
        return False
    return True


def test_a_new_certificate_without_a_restart(cluster: SecuredCluster) -> None:
    fresh = cluster.authority.issue("fresh", subject="/O=kafkalite/CN=fresh")
    Path(cluster.keystore).write_bytes(Path(fresh).read_bytes())
    context = ssl.create_default_context(cafile=cluster.authority.truststore)

    def is_shown_by(listener: str) -> bool:
        host, _, port = str(cluster.nodes[1].ready[listener]).rpartition(":")
        with (
            socket.create_connection((host, int(port)), 20) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            certificate: Any = secured.getpeercert()
        return dict(certificate["subject"][-1]) == {"commonName": "fresh"}

    for listener in ("kafka", "rpc", "http"):
        wait_until(partial(is_shown_by, listener), f"the new certificate of {listener}")
    cluster.command("admin", "health", client_config=cluster.client_config("admin"))


def test_a_node_that_cannot_prove_itself_says_why(tmp_path: Path, cluster: SecuredCluster) -> None:
    """No certificate that fits: it does not start, with one line."""
    stranger = cluster._node(9)
    stranger._arguments += ["--set", "ssl.keystore.location=/nowhere.pem"]
    with pytest.raises(ProcessFailed, match="No such file"):
        stranger.start()
    stranger.kill()  # closes its pipe
