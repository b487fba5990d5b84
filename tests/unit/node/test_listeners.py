"""Every node has a Kafka listener: clients have no other. What it advertises is what clients can reach."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kafkalite import __version__
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.bootstrap import parse_bootstrap
from kafkalite.config import advertised_rpc, broker_config, console_url, kafka_listeners
from kafkalite.coordination import paths
from kafkalite.coordination.broker_znodes import decode_broker
from kafkalite.errors import ConfigError
from kafkalite.extension.messages.watching import StatusRequest, StatusResponse
from kafkalite.model import BrokerEpoch, BrokerId, Endpoint, ListenerAddress
from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from tests.support.loopback_cluster import LoopbackCluster

_ADVERTISED = "advertised.listeners"


def test_a_node_without_a_kafka_listener_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.port: -1 \(no listener\) is not taken any more"):
        broker_config({"kafka.port": "-1"})
    config, _ = broker_config({"kafka.port": "0"})
    assert config.kafka_port == 0


@pytest.mark.parametrize(
    ("settings", "advertised"),
    [
        ({}, ListenerAddress("PLAINTEXT", "127.0.0.1", 1234)),
        ({"host": "localhost"}, ListenerAddress("PLAINTEXT", "localhost", 1234)),
        ({_ADVERTISED: "PLAINTEXT://broker1.example:9092"}, ListenerAddress("PLAINTEXT", "broker1.example", 9092)),
        ({_ADVERTISED: " external://broker1:0 "}, ListenerAddress("EXTERNAL", "broker1", 1234)),
        ({_ADVERTISED: "PLAINTEXT://[2001:db8::1]:9092"}, ListenerAddress("PLAINTEXT", "2001:db8::1", 9092)),
        (
            {"host": "0.0.0.0", _ADVERTISED: "PLAINTEXT://a_b-c.example:1", "advertised.rpc": "b:1"},
            ListenerAddress("PLAINTEXT", "a_b-c.example", 1),
        ),
        ({"host": "::", _ADVERTISED: "A://b:1", "advertised.rpc": "b:1"}, ListenerAddress("A", "b", 1)),
    ],
)
def test_what_clients_get(settings: dict[str, Any], advertised: ListenerAddress) -> None:
    config, _ = broker_config(settings)
    assert [each.address(1234) for each in kafka_listeners(config)] == [advertised]


def test_what_nodes_get() -> None:
    for value, told in (("", Endpoint("h", 7)), ("n:8", Endpoint("n", 8)), ("[::1]:0", Endpoint("::1", 7))):
        config, _ = broker_config({"host": "h", "advertised.rpc": value})
        assert advertised_rpc(config, 7) == told


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "http://127.0.0.1:7"),
        ({"host": "node1"}, "http://node1:7"),
        ({"advertised.http": "console.example:0"}, "http://console.example:7"),
        ({"advertised.http": "[2001:db8::1]:80"}, "http://[2001:db8::1]:80"),
        # Where a node binds all addresses, the other nodes' address for it is the best there is.
        ({"host": "0.0.0.0", _ADVERTISED: "A://b:1", "advertised.rpc": "n:1"}, "http://n:7"),
        (
            {
                "advertised.http": "b:1",
                "http.security.protocol": "SSL",
                "ssl.keystore.location": "k.pem",
                "rpc.security.protocol": "PLAINTEXT",
            },
            "https://b:1",
        ),
    ],
)
def test_what_browsers_get(settings: dict[str, Any], url: str) -> None:
    config, _ = broker_config(settings)
    assert console_url(config, 7) == url


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"host": "0.0.0.0"}, "host is 0.0.0.0, which no client can connect to: set advertised.listeners=PLAINTEXT://"),
        ({"host": "::"}, "host is ::, which no client can connect to: set advertised.listeners"),
        ({"host": ""}, "host is empty, which no client can connect to: set advertised.listeners"),
        ({"host": "::", _ADVERTISED: "A://b:1"}, "host is ::, which no node can connect to: set advertised.rpc"),
        ({_ADVERTISED: "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners: no client can connect to 0.0.0.0"),
        ({_ADVERTISED: "PLAINTEXT://[0:0::0]:9092"}, "advertised.listeners: no client can connect to 0:0::0"),
        ({_ADVERTISED: "PLAINTEXT://:9092"}, "advertised.listeners: no client can connect to an empty host"),
        ({_ADVERTISED: "broker1:9092"}, "advertised.listeners: 'broker1:9092' is not NAME://HOST:PORT"),
        ({_ADVERTISED: "A://h:1,"}, "advertised.listeners: '' is not NAME://HOST:PORT"),
        ({_ADVERTISED: "A://h"}, "advertised.listeners: 'h' is not HOST:PORT"),
        ({_ADVERTISED: "A://::1:9092"}, "advertised.listeners: '::1:9092' is not HOST:PORT: an IPv6 address needs br"),
        ({_ADVERTISED: "A://[:::1]:9092"}, "':::1' is not an IPv6 address"),
        ({_ADVERTISED: "A://h:65536"}, "advertised.listeners: 'h:65536': the port is above 65535"),
        ({_ADVERTISED: "A://h:-1"}, "advertised.listeners: 'h:-1' is not HOST:PORT"),
        ({_ADVERTISED: "A://ü:1"}, "advertised.listeners: 'ü:1': 'ü' is not a host name"),
        ({_ADVERTISED: "A://h:1,a://i:2"}, "advertised.listeners: two entries for listener A"),
        ({_ADVERTISED: "A://h:1,B://i:2"}, "advertised.listeners has 2 entries, but there is one listener"),
        ({_ADVERTISED: "SSL://h:1"}, "advertised.listeners names SSL, but listener.security.protocol is PLAINTEXT"),
        ({"advertised.rpc": "0.0.0.0:9192"}, "advertised.rpc: '0.0.0.0:9192': nobody can connect to 0.0.0.0"),
        ({"advertised.rpc": "node"}, "advertised.rpc: 'node' is not HOST:PORT"),
        ({"advertised.http": "[::]:9292"}, "advertised.http: '[::]:9292': nobody can connect to ::"),
        ({"advertised.http": "http://node:9292"}, "advertised.http: 'http://node:9292' is not HOST:PORT"),
        ({"advertised.http": "node:1", "http.port": "-1"}, "advertised.http is set, but http.port is -1"),
    ],
)
def test_addresses_that_nobody_can_use_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        broker_config(settings)
    assert complaint in str(refused.value)


async def test_every_api_and_the_registration_have_the_advertised_address(tmp_path: Path) -> None:
    settings = {"host": "localhost", _ADVERTISED: "OUTSIDE://127.0.0.2:0", "advertised.rpc": "localhost:0"}
    settings |= {"offsets.topic.num.partitions": "1"}
    async with LoopbackCluster(tmp_path, settings=settings) as cluster:
        bound = cluster.nodes[1].endpoints["kafka"]
        data, _ = cluster.zookeeper.peek(paths.broker(BrokerId(1))) or (b"", None)
        znode = decode_broker(data)
        assert (znode.host, znode.port) == ("127.0.0.2", bound.port)
        assert znode.endpoints == (f"OUTSIDE://127.0.0.2:{bound.port}",)
        assert znode.protocols == {"OUTSIDE": "PLAINTEXT"}
        assert znode.rpc == Endpoint("localhost", cluster.nodes[1].endpoints["rpc"].port)
        client = await FrameClient.to(bound)
        metadata = await client.ask(wire.MetadataRequest([]), 9)
        described = await client.ask(wire.DescribeClusterRequest(), 0)
        found = await client.ask(wire.FindCoordinatorRequest(key="g"), 2)
        client.close()
        expected = ("127.0.0.2", bound.port)
        assert [(broker.host, broker.port) for broker in metadata.brokers] == [expected]
        assert [(broker.host, broker.port) for broker in described.brokers] == [expected]
        assert (found.error_code, found.host, found.port) == (0, *expected)


async def test_a_name_is_advertised_as_a_name(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, settings={"host": "localhost"}) as cluster:
        bound = cluster.nodes[1].endpoints["kafka"]
        client = await FrameClient.to(bound)
        metadata = await client.ask(wire.MetadataRequest([]), 9)
        client.close()
        assert [(broker.host, broker.port) for broker in metadata.brokers] == [("localhost", bound.port)]


async def test_other_nodes_name_the_address_for_browsers(tmp_path: Path) -> None:
    settings = {
        "host": "localhost",
        "http.port": "0",
        "advertised.http": "console.example:0",
        "offsets.topic.num.partitions": "1",
    }
    async with LoopbackCluster(tmp_path, nodes=2, settings=settings) as cluster:
        url = f"http://console.example:{cluster.nodes[1].endpoints['http'].port}"
        assert decode_broker((cluster.zookeeper.peek(paths.broker(BrokerId(1))) or (b"", None))[0]).http == url
        async with AsyncClient.connect(str(cluster.nodes[2].endpoints["kafka"])) as client:
            async with asyncio.timeout(150):
                while len(brokers := (await client.describe_cluster()).brokers) < 2:
                    await asyncio.sleep(0.01)
            assert {each.broker_id: each.http for each in brokers}[BrokerId(1)] == url
            status = await client.call_any(StatusRequest(), timeout_s=150)
            assert isinstance(status, StatusResponse)
            assert {each.broker_id: each.http for each in status.brokers}[BrokerId(1)] == url
            assert {each.release for each in brokers} == {each.release for each in status.brokers} == {__version__}


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)//:1", "http://h", "http://h:1/x", "ftp://h:1", "http://u@h:1", "http://h:1\n", 7, None]
)
def test_a_registration_with_another_address_for_browsers_is_read_without_it(url: object) -> None:
    data = json.dumps({"version": 5, "host": "h", "port": 1, "rpc_endpoint": "h:2", "http_endpoint": url}).encode()
    assert decode_broker(data).info(BrokerId(1), BrokerEpoch(1)).http == ""


@pytest.mark.parametrize("release", ["<b>", "", "1 2", "1" * 65, "1\n", 7, None])
def test_a_registration_with_something_else_for_a_version_is_read_without_it(release: object) -> None:
    data = json.dumps({"version": 5, "host": "h", "port": 1, "rpc_endpoint": "h:2", "release": release}).encode()
    assert decode_broker(data).info(BrokerId(1), BrokerEpoch(1)).release == ""


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [(Endpoint("h", 7), "h:7"), (Endpoint("10.0.0.1", 7), "10.0.0.1:7"), (Endpoint("::1", 7), "[::1]:7")],
)
def test_addresses_are_written_so_that_they_can_be_used(endpoint: Endpoint, text: str) -> None:
    """`::1:7` is an address, too: without brackets it is another one."""
    assert str(endpoint) == text
    assert parse_bootstrap(text) == [endpoint]
