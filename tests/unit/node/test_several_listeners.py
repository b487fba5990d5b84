"""Several Kafka listeners: each reports the addresses of its own name, and asks what its protocol asks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.config import broker_config, inter_broker_listener, is_secured, kafka_listeners
from kafkalite.coordination import paths
from kafkalite.coordination.broker_znodes import decode_broker
from kafkalite.coordinators.node_connection import node_address
from kafkalite.errors import ConfigError, ErrorCode
from kafkalite.listeners import KafkaListenerSettings
from kafkalite.model import BrokerEpoch, BrokerId, ControllerEpoch, Endpoint, ListenerAddress, TopicPartition
from kafkalite.node.node import Node
from kafkalite.protocol import wire
from kafkalite.rpc.codec import pack, unpack_as
from kafkalite.rpc.messages.control import Broker, UpdateMetadataRequest
from kafkalite.testing.kafka_client import FrameClient
from tests.support.loopback_cluster import LoopbackCluster

_MAP = "listener.security.protocol.map"
_PLAIN = "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT"
_BOTH = "INTERNAL://127.0.0.1:0,EXTERNAL://0.0.0.0:0"
_ADVERTISED = "INTERNAL://localhost:0,EXTERNAL://127.0.0.2:0"
_SETTINGS: dict[str, Any] = {
    "listeners": _BOTH,
    "advertised.listeners": _ADVERTISED,
    _MAP: _PLAIN,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "controlled.shutdown.enable": False,
}


# --- the settings --------------------------------------------------------------------------------


def test_the_settings_of_several_listeners() -> None:
    config, _ = broker_config(
        {
            "listeners": " internal://10.0.0.1:9092, PLAINTEXT://[::1]:9093 , X.Y-1_Z://:9094",
            "advertised.listeners": "X.Y-1_Z://broker1.example:19094,INTERNAL://a:0,PLAINTEXT://b:1",
            _MAP: "INTERNAL:plaintext,x.y-1_z:PLAINTEXT,UNUSED:SSL",
            "inter.broker.listener.name": "plaintext",
        }
    )
    assert kafka_listeners(config) == (
        KafkaListenerSettings("INTERNAL", "PLAINTEXT", "10.0.0.1", 9092, Endpoint("a", 0)),
        KafkaListenerSettings("PLAINTEXT", "PLAINTEXT", "::1", 9093, Endpoint("b", 1)),
        KafkaListenerSettings("X.Y-1_Z", "PLAINTEXT", "0.0.0.0", 9094, Endpoint("broker1.example", 19094)),
    )
    assert inter_broker_listener(config).name == "PLAINTEXT"
    assert not is_secured(config)
    first, _ = broker_config({"listeners": "SSL://h:1,PLAINTEXT://h:2", "ssl.keystore.location": "x"})
    assert inter_broker_listener(first) == KafkaListenerSettings("SSL", "SSL", "h", 1)
    assert is_secured(first)


async def test_ipv4_and_ipv6_share_a_port(tmp_path: Path) -> None:
    """KIP-797: two sockets, since one that listens at an IPv6 address takes IPv6 only."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = {
        "listeners": f"A://0.0.0.0:{port},B://[::]:{port}",
        "advertised.listeners": "A://127.0.0.1:0,B://[::1]:0",
        _MAP: "A:PLAINTEXT,B:PLAINTEXT",
    }
    async with LoopbackCluster(tmp_path, settings=settings) as cluster:
        for address in ("127.0.0.1", "[::1]"):
            async with AsyncClient.connect(f"{address}:{port}") as client:
                answer = await client.metadata(())
                assert [str(each.endpoint) for each in answer.brokers] == [f"{address}:{port}"]
    assert cluster.failures == []


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:1,SSL://127.0.0.1:1"}, "have the same port"),
        ({"listeners": "PLAINTEXT://[::]:1,SSL://[::1]:1"}, "have the same port"),
        ({"listeners": "PLAINTEXT://[::]:1,SSL://h:1"}, "have the same port"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1,SSL://[::]:1,A://:1", _MAP: "A:SSL"}, "have the same port"),
        ({"listeners": "h:1"}, "listeners: 'h:1' is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:1,"}, "listeners: '' is not NAME://HOST:PORT"),
        ({"listeners": "A B://h:1"}, "listeners: 'A B://h:1' is not NAME://HOST:PORT"),
        (
            {"listeners": "PLAINTEXT://::1:9092"},
            "listeners: '::1:9092' is not HOST:PORT: an IPv6 address needs brackets",
        ),
        ({"listeners": "PLAINTEXT://h:1,plaintext://h:2"}, "listeners: two entries for listener PLAINTEXT"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "listeners: PLAINTEXT://h:1 and SSL://h:1 have the same port"),
        ({"listeners": "PLAINTEXT://h:1,SSL://0.0.0.0:1"}, "have the same port"),
        ({"listeners": "A://h:1"}, "listener.security.protocol.map: no security protocol for listener A"),
        (
            {"listeners": "A://h:1", _MAP: "A:TLS"},
            "listener.security.protocol.map: 'A:TLS': 'TLS' is not one of PLAINTEXT,",
        ),
        ({"listeners": "A://h:1", _MAP: "A"}, "listener.security.protocol.map: 'A' is not NAME:PROTOCOL"),
        ({"listeners": "A://h:1", _MAP: "A:SSL,a:SSL"}, "listener.security.protocol.map: two entries for listener A"),
        ({_MAP: "A:SSL"}, "listener.security.protocol.map is for the listeners of listeners, which is not set"),
        (
            {"listeners": "PLAINTEXT://:1"},
            "listeners: no client can connect to an empty host (PLAINTEXT://:1): set adv",
        ),
        (
            {"listeners": "PLAINTEXT://[::]:1"},
            "listeners: no client can connect to :: (PLAINTEXT://[::]:1): set advert",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "advertised.listeners": "SSL://h:1"},
            "advertised.listeners: listeners has no SSL",
        ),
        (
            {"listeners": "PLAINTEXT://h:1,SSL://h:2", "advertised.listeners": "PLAINTEXT://h:1"},
            "advertised.listeners: no address for listener SSL",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
            "advertised.listeners: no client can connect to 0.0.0.0",
        ),
        ({"listeners": "PLAINTEXT://h:1", "kafka.port": 1}, "listeners is set: remove kafka.port"),
        (
            {"listeners": "PLAINTEXT://h:1", "listener.security.protocol": "SSL"},
            "listeners is set: remove listener.security.protocol",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "inter.broker.listener.name": "SSL"},
            "inter.broker.listener.name: there is no listener SSL",
        ),
        ({"inter.broker.listener.name": "A"}, "inter.broker.listener.name: there is no listener A"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:2"}, "listener SSL is SSL: ssl.keystore.location is missing"),
        (
            {"listeners": "A://h:1,PLAINTEXT://h:2", _MAP: "A:SASL_PLAINTEXT"},
            "listener A is SASL_PLAINTEXT: inter.broker.username or inter.broker.password is missing",
        ),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        broker_config(settings)
    assert complaint in str(refused.value)


def test_only_nodes_need_a_user_between_nodes() -> None:
    broker_config({"listeners": "PLAINTEXT://h:1,A://h:2", _MAP: "A:SASL_PLAINTEXT"})


# --- what travels --------------------------------------------------------------------------------


def test_registrations_of_any_age_name_their_listeners() -> None:
    start = b'{"version":5,"host":"h","port":1,"rpc_endpoint":"h:2"'
    for endpoints, listeners in (
        (b'["A://h:1","B://[::1]:2"]', (ListenerAddress("A", "h", 1), ListenerAddress("B", "::1", 2))),
        (b'["PLAINTEXT://::1:9092"]', (ListenerAddress("PLAINTEXT", "::1", 9092),)),  # of older nodes
        (b'["nonsense","A://:1","A://h:99999","://h:1"]', ()),
        (b"[]", ()),
    ):
        info = decode_broker(start + b',"endpoints":' + endpoints + b"}").info(BrokerId(1), BrokerEpoch(1))
        assert (info.listeners, info.kafka) == (listeners, Endpoint("h", 1))


def test_a_broker_is_found_by_the_name_of_the_listener() -> None:
    named = Broker(
        BrokerId(1),
        BrokerEpoch(1),
        "h",
        1,
        "r",
        2,
        listeners=(ListenerAddress("A", "a", 3), ListenerAddress("B", "b", 4)),
    )
    request = UpdateMetadataRequest(
        BrokerId(1), ControllerEpoch(1), BrokerEpoch(1), is_full=True, brokers=(named,), partitions=()
    )
    received = unpack_as(UpdateMetadataRequest, pack(request))
    assert isinstance(received, UpdateMetadataRequest)
    [known] = received.brokers
    assert (known.kafka_on("A"), known.kafka_on("B"), known.kafka_on("C")) == (Endpoint("a", 3), Endpoint("b", 4), None)
    in_transition = replace(named, listeners=(ListenerAddress("PLAINTEXT", "a", 3),))
    assert in_transition.kafka_on("SASL_SSL") == Endpoint("a", 3)
    assert in_transition.kafka_on("A") is None
    of_an_older_controller = Broker(BrokerId(1), BrokerEpoch(1), "h", 1, "r", 2)
    assert of_an_older_controller.kafka_on("anything") == Endpoint("h", 1)


# --- in a cluster ----------------------------------------------------------------------------------


@asynccontextmanager
async def _on(node: Node, endpoint: str) -> AsyncIterator[FrameClient]:
    """A client of one of the node's listeners."""
    bound = node.endpoints[endpoint]
    client = FrameClient()
    await client.connect("127.0.0.1", bound.port)
    try:
        yield client
    finally:
        client.close()


async def _until_known(cluster: LoopbackCluster) -> None:
    async with asyncio.timeout(150):
        for node in cluster.nodes.values():
            while len(node.metadata.brokers()) < len(cluster.nodes):
                await node.metadata.changed()


async def _create(client: FrameClient, topic: str, assignment: list[int]) -> None:
    create = wire.CreateTopicsRequest
    replicas = [create.CreatableReplicaAssignment(0, assignment)]
    created = await client.ask(create([create.CreatableTopic(topic, -1, -1, replicas)], 10_000), 7)
    assert created.topics[0].error_code == 0


async def test_clients_of_each_listener_get_its_addresses(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=2, settings=_SETTINGS) as cluster:
        await _until_known(cluster)
        nodes = cluster.nodes
        for endpoint, name, host in (("kafka", "INTERNAL", "localhost"), ("kafka.EXTERNAL", "EXTERNAL", "127.0.0.2")):
            expected = {(number, host, node.endpoints[endpoint].port) for number, node in nodes.items()}
            async with _on(nodes[1], endpoint) as client:
                metadata = await client.ask(wire.MetadataRequest([]), 9)
                assert {(each.node_id, each.host, each.port) for each in metadata.brokers} == expected
                described = await client.ask(wire.DescribeClusterRequest(), 0)
                assert {(each.broker_id, each.host, each.port) for each in described.brokers} == expected
                for key_type in (0, 1):
                    found = await client.ask(wire.FindCoordinatorRequest(key="k", key_type=key_type), 2)
                    assert (found.node_id, found.host, found.port) in expected
                configs = wire.DescribeConfigsRequest
                asked = configs.DescribeConfigsResource(4, "1", ["listeners", "advertised.listeners"])
                entries = (await client.ask(configs([asked]), 4)).results[0].configs
                port = nodes[1].endpoints[endpoint].port
                values = {entry.name: entry.value for entry in entries}
                assert len(entries) == 2
                assert f"{name}://{host}:{port}" in values["advertised.listeners"].split(",")
                assert values["listeners"] == _BOTH
        data, _ = cluster.zookeeper.peek(paths.broker(BrokerId(1))) or (b"", None)
        znode = decode_broker(data)
        assert (znode.host, znode.port) == ("localhost", nodes[1].endpoints["kafka"].port)
        assert znode.protocols == {"INTERNAL": "PLAINTEXT", "EXTERNAL": "PLAINTEXT"}
        assert len(znode.endpoints or ()) == 2


async def test_a_broker_without_the_listener_is_left_out(tmp_path: Path) -> None:
    """Node 2 has no EXTERNAL: clients there do not hear of it, nor is it a leader or a coordinator for them."""
    alone = {"listeners": "INTERNAL://127.0.0.1:0", "advertised.listeners": "INTERNAL://127.0.0.1:0"}
    cluster = LoopbackCluster(tmp_path, nodes=2, settings=_SETTINGS, own_settings={2: alone})
    async with cluster:
        await _until_known(cluster)
        async with _on(cluster.nodes[1], "kafka") as inside, _on(cluster.nodes[1], "kafka.EXTERNAL") as outside:
            await _create(inside, "t", [2, 1])
            topic = [wire.MetadataRequest.MetadataRequestTopic(name="t")]
            seen, metadata = {}, cluster.nodes[1].metadata
            async with asyncio.timeout(150):
                while (known := metadata.partition(TopicPartition("t", 0))) is None or known.leader != 2:
                    await metadata.changed()
            for client, version in ((inside, 9), (outside, 9), (outside, 5)):
                answer = await client.ask(wire.MetadataRequest(topic), version)
                [part] = answer.topics[0].partitions
                brokers = [broker.node_id for broker in answer.brokers]
                seen[client is inside, version] = (brokers, answer.controller_id, part.error_code, part.leader_id)
            assert seen[True, 9][0] == [1, 2]
            assert seen[True, 9][2:] == (0, 2)
            assert seen[False, 9] == ([1], 1, ErrorCode.LISTENER_NOT_FOUND, -1)
            assert seen[False, 5] == ([1], 1, ErrorCode.LEADER_NOT_AVAILABLE, -1)
            coordinators = set()
            for number in range(20):
                asked = wire.FindCoordinatorRequest(key=f"group-{number}")
                async with asyncio.timeout(150):
                    while (await inside.ask(asked, 2)).error_code:  # the topic is being created
                        await asyncio.sleep(0.01)
                answers = [await client.ask(asked, 2) for client in (inside, outside)]
                assert answers[0].error_code == 0
                coordinators.add(answers[0].node_id)
                if answers[0].node_id == 2:
                    assert answers[1].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                else:
                    assert (answers[1].error_code, answers[1].node_id, answers[1].host) == (0, 1, "127.0.0.2")
            assert coordinators == {1, 2}


async def test_each_listener_asks_what_its_protocol_asks(tmp_path: Path) -> None:
    """Plain text for the inside and for nodes, SASL for the outside, where no client writes markers."""
    users = tmp_path / "users"
    users.write_text("alice=in wonderland\n")
    settings = _SETTINGS | {
        _MAP: "INTERNAL:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.plain.users.location": str(users),
    }
    request = wire.WriteTxnMarkersRequest
    markers = request(
        [
            request.WritableTxnMarker(
                1, 0, transaction_result=True, topics=[request.WritableTxnMarkerTopic("t", [0])], coordinator_epoch=0
            )
        ]
    )
    async with LoopbackCluster(tmp_path / "cluster", settings=settings) as cluster:
        node = cluster.nodes[1]
        assert node.security is not None
        assert [each.name for each in node.security.listeners()] == ["kafka.EXTERNAL"]
        async with (
            _on(node, "kafka") as inside,
            _on(node, "kafka.EXTERNAL") as outside,
            _on(node, "kafka.EXTERNAL") as nobody,
        ):
            assert [each.host for each in (await inside.ask(wire.MetadataRequest([]), 9)).brokers] == ["localhost"]
            nobody.send(wire.MetadataRequest([]), 9)
            assert await nobody.is_closed()
            assert (await outside.ask(wire.SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
            assert (await outside.ask(wire.SaslAuthenticateRequest(b"\0alice\0in wonderland"), 2)).error_code == 0
            assert [each.host for each in (await outside.ask(wire.MetadataRequest([]), 9)).brokers] == ["127.0.0.2"]
            codes = {}
            for client in (inside, outside):
                answer = await client.ask(markers, 1)
                codes[client is inside] = answer.markers[0].topics[0].partitions[0].error_code
            assert codes[True] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert codes[False] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_nodes_without_the_listener_between_nodes_are_not_asked() -> None:
    there = Broker(BrokerId(7), BrokerEpoch(1), "h", 1, "r", 2, listeners=(ListenerAddress("A", "a", 3),))
    assert node_address(there, "A") == ("a", 3)
    with pytest.raises(OSError, match="broker 7 has no listener B"):
        node_address(there, "B")


async def test_advertised_addresses_change_while_nodes_run(tmp_path: Path) -> None:
    """KIP-226: the registration changes, not the session, and every node reports the new address."""
    request = wire.IncrementalAlterConfigsRequest

    async def alter(client: FrameClient, broker: str, value: str, operation: int = 0) -> int:
        change = request.AlterConfigsResource(
            4, broker, [request.AlterableConfig("advertised.listeners", operation, value)]
        )
        code: int = (await client.ask(request([change]), 1)).responses[0].error_code
        return code

    async def until(client: FrameClient, host: str) -> None:
        async with asyncio.timeout(150):
            while True:
                brokers = (await client.ask(wire.MetadataRequest([]), 9)).brokers
                if {each.host for each in brokers if each.node_id == 1} == {host}:
                    return
                await asyncio.sleep(0.01)

    async with LoopbackCluster(tmp_path, nodes=2, settings=_SETTINGS) as cluster:
        await _until_known(cluster)
        async with (
            _on(cluster.nodes[1], "kafka") as own,
            _on(cluster.nodes[2], "kafka.EXTERNAL") as outside,
            _on(cluster.nodes[2], "kafka") as inside,
        ):
            before = cluster.nodes[1].local.broker_epoch
            wanted = "INTERNAL://localhost:0,EXTERNAL://broker1.example:19094"
            assert await alter(own, "1", wanted) == 0
            await until(outside, "broker1.example")
            await until(inside, "localhost")
            assert cluster.nodes[1].local.broker_epoch == before
            configs = wire.DescribeConfigsRequest
            asked = configs([configs.DescribeConfigsResource(4, "1", ["advertised.listeners"])])
            [entry] = (await own.ask(asked, 4)).results[0].configs
            assert (entry.config_source, entry.read_only) == (2, False)
            assert "EXTERNAL://broker1.example:19094" in entry.value
            assert await alter(own, "1", "INTERNAL://localhost:0") == ErrorCode.INVALID_REQUEST
            assert await alter(own, "1", "INTERNAL://0.0.0.0:1,EXTERNAL://h:1") == ErrorCode.INVALID_REQUEST
            assert await alter(own, "", wanted) == ErrorCode.INVALID_REQUEST
            assert await alter(own, "1", "", 1) == 0
            await until(outside, "127.0.0.2")
