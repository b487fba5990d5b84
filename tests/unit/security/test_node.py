"""A secure cluster of real nodes: both listeners, rules that spread, ZooKeeper away, restarts, quotas."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import Consumer
from kafkalite.client.messages import produce_request
from kafkalite.client.producer import Producer
from kafkalite.coordination.coordinator import Create, SetData
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError
from kafkalite.extension.apis import APIS
from kafkalite.extension.messages.reassignment import AlterReassignmentsRequest
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeReplicasRequest,
    NewTopic,
    RemovePartitionsRequest,
)
from kafkalite.extension.messages.transactions import EndTxnGroupRequest
from kafkalite.extension.messages.watching import HealthResponse
from kafkalite.http.metrics import Exposition
from kafkalite.model import NO_BROKER_EPOCH, BrokerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.base import Message, by_kind
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.security.acl import AclEntry, Filter, Operation, Pattern, PatternType, Permission, ResourceType
from kafkalite.security.principal import Principal
from kafkalite.security.requirements import FREE, REFUSALS, RPC, Scope
from kafkalite.testing.kafka_client import FrameClient
from tests.datadriven.test_rpc_messages import sample
from tests.support.commands import admin_meanwhile
from tests.support.failing import fails_with
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.principals import SECURE, by_client_id
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
REFUSED = frozenset(int(code) for code in REFUSALS.values())
SETTINGS: dict[str, Any] = {
    **SECURE,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "controlled.shutdown.enable": False,
}


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoopbackCluster]:
    by_client_id(monkeypatch)
    async with LoopbackCluster(tmp_path, nodes=2, settings=SETTINGS) as running:
        yield running
    assert not running.failures


def client_as(cluster: LoopbackCluster, who: str) -> AsyncClient:
    return AsyncClient.connect(cluster.bootstrap, client_id=f"as-{who}")


@asynccontextmanager
async def rpc(cluster: LoopbackCluster) -> AsyncIterator[RpcConnection]:
    """A connection to node 1's RPC listener, as node 2."""
    supervisor = Supervisor(lambda error: None)
    hello = HelloRequest(cluster.nodes[1].local.cluster_id, BrokerId(2), NO_BROKER_EPOCH, client_id="test")
    endpoint = cluster.nodes[1].endpoints["rpc"]
    connection = await RpcConnection.open(RealNetwork(), endpoint, hello, supervisor=supervisor)
    try:
        yield connection
    finally:
        await connection.close()
        await supervisor.stop()


def everywhere(cluster: LoopbackCluster, who: str, operation: Operation, name: str) -> Callable[[], bool]:
    """Whether every node has come to allow it."""

    def holds() -> bool:
        return all(
            node.rights.access.authorizer is not None
            and node.rights.access.authorizer.authorize(
                Principal("User", who), "127.0.0.1", operation, ResourceType.TOPIC, name
            )
            for node in cluster.nodes.values()
        )

    return holds


def codes_in(message: Any) -> set[int]:
    """Every `error` in an RPC answer."""
    if isinstance(message, tuple):
        return set().union(*map(codes_in, message))
    error = getattr(message, "error", None)
    found = {int(error)} if isinstance(error, int) else set()
    fields = getattr(type(message), "__dataclass_fields__", {})
    return found.union(*(codes_in(getattr(message, name)) for name in fields if name != "error"))


def request_of(cls: type[Message]) -> Message:
    """A request of that class which names topic "t" and the transactional id "x"."""
    given: dict[type[Message], Message] = {
        CreateTopicsRequest: CreateTopicsRequest((NewTopic("t", 1, 1),), 1000, validate_only=True),
        DeleteTopicsRequest: DeleteTopicsRequest(("t",), 0),
        DescribeReplicasRequest: DescribeReplicasRequest(("t",)),
        RemovePartitionsRequest: RemovePartitionsRequest("t", 5, timeout_ms=0),
        EndTxnGroupRequest: EndTxnGroupRequest("g", "o", 1, (), is_commit=False),
        AlterReassignmentsRequest: AlterReassignmentsRequest((), 0),
    }
    if cls in given:
        return given[cls]
    has_no_fields = not cls.__dataclass_fields__  # type: ignore[attr-defined]
    return cls() if has_no_fields else sample(cls, 0)


async def ask(asking: Awaitable[Any]) -> set[int]:
    try:
        return codes_in(await asking)
    except ApiError as error:
        return {int(error.code)}


async def test_every_rpc_request_by_a_node_that_may_and_one_that_may_not(
    cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = {cls.__name__: cls for kind, cls in by_kind.items() if kind % 2 == 0}
    async with rpc(cluster) as node:
        assert not await ask(node.call(requests["HealthRequest"](), timeout_s=150)) & REFUSED
    monkeypatch.setattr("tests.support.principals.NODE", Principal("User", "nobody"))
    async with rpc(cluster) as nobody:
        for name, row in sorted(RPC.items()):
            if name == "ReplicaFetchWake":
                continue  # one way: nobody hears what it is answered
            refused = await ask(nobody.call(request_of(requests[name]), timeout_s=150))
            assert bool(refused & REFUSED) == (row != FREE), (name, refused)


async def test_every_extension_request_by_one_who_may_and_one_who_may_not(cluster: LoopbackCluster) -> None:
    async with client_as(cluster, "root") as root, client_as(cluster, "nobody") as nobody:
        await root.create_topics([NewTopic("t", 1, 2)])
        await root.metadata(())
        await nobody.metadata(())
        for kind, api in sorted(APIS.items()):
            request = request_of(api.request)
            if any(need.scope is Scope.HIDE for need in api.needs):
                shown = await nobody.call_node(BrokerId(1), request, timeout_s=150)
                assert getattr(shown, "replicas" if kind == "DescribeReplicasRequest" else "transactions") == ()
                continue
            refused = await ask(nobody.call_node(BrokerId(1), request, timeout_s=150))
            assert bool(refused & REFUSED) == (api.needs != FREE), (kind, refused)
            if kind != "DeleteTopicsRequest":
                assert not await ask(root.call_node(BrokerId(1), request, timeout_s=150)) & REFUSED, kind


async def test_three_principals_with_different_rights(cluster: LoopbackCluster) -> None:
    """One writes, one reads, one may nothing; the command line says who; refusals are final, and nothing is lost."""
    run = partial(admin_meanwhile, cluster.bootstrap)
    async with client_as(cluster, "root") as root:
        await root.create_topics([NewTopic("t", 2, 2), NewTopic("secret", 1, 2)])
    added = await run("acls", "add", "--producer", "--topic", "t", "--allow-principal", "User:ann")
    assert {row["operation"] for row in added["added"]} == {"WRITE", "DESCRIBE", "CREATE"}
    await run(
        "acls", "add", "--consumer", "--topic", "t", "--group", "app-", "--pattern", "prefixed",
        "--allow-principal", "User:bob",
    )  # fmt: skip
    await until(everywhere(cluster, "ann", Operation.WRITE, "t"))
    await until(everywhere(cluster, "bob", Operation.READ, "t-and-more"))
    async with client_as(cluster, "ann") as client, Producer(client) as producer:
        for number in range(20):
            await (await producer.send("t", None, b"%d" % number, partition=number % 2))
        with pytest.raises(KafkaliteError):
            await (await producer.send("secret", None, b"x", partition=0))
    async with client_as(cluster, "bob") as client:
        consumer = Consumer(client)
        consumer.assign({TopicPartition("t", 0): "earliest", TopicPartition("t", 1): "earliest"})
        seen: set[bytes | None] = set()
        while len(seen) < 20:
            seen |= {record.value for record in await consumer.poll(timeout_s=150)}
        assert seen == {b"%d" % number for number in range(20)}
        consumer.close()
        everything = await client.metadata()
        assert [topic.topic for topic in everything.topics if not topic.topic.startswith("__")] == ["t"]
        with pytest.raises(KafkaliteError):
            async with Producer(client, delivery_timeout_ms=3_000, max_block_ms=3_000) as producer:
                await (await producer.send("t", None, b"no", partition=0))
    async with client_as(cluster, "carol") as client:
        assert (await client.metadata()).topics == ()
        (created,) = await client.create_topics([NewTopic("mine", 1, 1)])
        assert created.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    listed = await run("acls", "list", "--topic", "t", "--pattern", "match")
    assert sorted({row["principal"] for row in listed["acls"]}) == ["User:ann", "User:bob"]
    removed = await run("acls", "remove", "--topic", "t", "--yes")
    assert len(removed["removed"]) == 3
    await until(lambda: not everywhere(cluster, "ann", Operation.WRITE, "t")())
    told = "".join([await metrics_of(cluster, broker_id) for broker_id in cluster.nodes])
    assert 'authorization_denied_total{operation="DESCRIBE",resource="TOPIC"}' in told


async def test_groups_of_the_python_client(cluster: LoopbackCluster) -> None:
    """A group's rights, its offsets topic by topic; a list shows what may be described."""
    run = partial(admin_meanwhile, cluster.bootstrap)
    async with client_as(cluster, "root") as root:
        await root.create_topics([NewTopic("t", 1, 2), NewTopic("secret", 1, 2)])
        for rights in (("--group", "app"), ("--topic", "t")):
            await run("acls", "add", *rights, "--allow-principal", "User:bob", "--operation", "read")
        await until(everywhere(cluster, "bob", Operation.READ, "t"))
        async with client_as(cluster, "bob") as bob, client_as(cluster, "carol") as carol:
            own, secret = TopicPartition("t", 0), TopicPartition("secret", 0)
            await Groups(bob).commit("app", {own: 0})
            with fails_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED):
                await Groups(bob).commit("app", {own: 0, secret: 0})
            await Groups(root).commit("app", {own: 0, secret: 0})
            with pytest.raises(ApiError) as refused:  # to forget them takes the right to delete the group
                await Groups(bob).commit("app", {}, deletions=(own,))
            assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
            for wanted in (Groups(carol).commit("app", {own: 0}), Groups(carol).describe("app")):
                with fails_with(ErrorCode.GROUP_AUTHORIZATION_FAILED):
                    await wanted
            _, described = await Groups(bob).describe("app")
            assert [each.topic for each in described.offsets] == ["t"]
            assert [each.group for _, each in await Groups(bob).list()] == ["app"]
            assert await Groups(carol).list() == []


async def metrics_of(cluster: LoopbackCluster, broker_id: int) -> str:
    return (await Exposition(cluster.nodes[broker_id]).text()).decode()


async def test_the_kafka_listener_and_its_group_coordinator(cluster: LoopbackCluster) -> None:
    """ACLs made on the wire, by a super user; another node obeys them; a denial beats a permission."""
    clients = {}
    for who in ("root", "bob"):
        endpoint = cluster.nodes[1 if who == "root" else 2].endpoints["kafka"]
        clients[who] = await _Named(f"as-{who}").at(endpoint.host, endpoint.port)
    root, bob = clients["root"], clients["bob"]
    request = wire.CreateTopicsRequest
    await root.ask(request([request.CreatableTopic("t", 1, 2)], 10_000), 7)
    creations = wire.CreateAclsRequest
    made = await root.ask(
        creations(
            [
                creations.AclCreation(2, "t", 3, "User:bob", "*", int(Operation.READ), 3),
                creations.AclCreation(3, "g", 4, "User:*", "127.0.0.1", int(Operation.ALL), 3),
                creations.AclCreation(4, "not-the-cluster", 3, "User:bob", "*", int(Operation.ALTER), 3),
                creations.AclCreation(2, "t", 9, "User:bob", "*", int(Operation.READ), 3),
                creations.AclCreation(2, "", 3, "User:bob", "*", int(Operation.READ), 3),
            ]
        ),
        3,
    )
    assert [each.error_code for each in made.results] == [0, 0, 42, 42, 42]
    refused = await bob.ask(creations([creations.AclCreation(2, "t", 3, "User:bob", "*", 2, 3)]), 3)
    assert [each.error_code for each in refused.results] == [31]
    await until(everywhere(cluster, "bob", Operation.READ, "t"))
    find = wire.FindCoordinatorRequest(key_type=0, coordinator_keys=["g1", "other"])
    answer = await bob.ask(find, 4)
    assert [each.error_code for each in answer.coordinators if each.key == "other"] == [30]
    for version in range(4):
        described = await root.ask(wire.DescribeAclsRequest(1, None, 1, None, None, 1, 1), version)
        shown = [
            (each.resource_type, each.resource_name, each.pattern_type, len(each.acls)) for each in described.resources
        ]
        assert shown == ([(2, "t", 3, 1)] + ([(3, "g", 4, 1)] if version else []))
    deny = creations.AclCreation(2, "*", 3, "User:bob", "127.0.0.1", int(Operation.READ), 2)
    await root.ask(creations([deny]), 3)
    await until(lambda: not everywhere(cluster, "bob", Operation.READ, "t")())
    deletions = wire.DeleteAclsRequest
    gone = await root.ask(deletions([deletions.DeleteAclsFilter(1, None, 1, "User:bob", None, 1, 1)]), 3)
    [result] = gone.filter_results
    assert sorted((each.resource_name, each.permission_type) for each in result.matching_acls) == [("*", 2), ("t", 3)]
    unknown = await root.ask(deletions([deletions.DeleteAclsFilter(99, None, 1, None, None, 1, 1)]), 3)
    assert unknown.filter_results[0].error_code == 42
    assert (await root.ask(wire.DescribeAclsRequest(99, None, 1, None, None, 1, 1), 3)).error_code == 42
    for each in clients.values():
        each.close()


class _Named(FrameClient):
    """A client by hand, under a client id."""

    def __init__(self, client_id: str) -> None:
        super().__init__()
        self._client_id = client_id

    async def at(self, host: str, port: int) -> _Named:
        await self.connect(host, port)
        return self

    def frame(self, message: Any, version: int) -> bytes:
        plain = super().frame(message, version)
        name = self._client_id.encode()
        # length, key, version, correlation id; then the client id ("test")
        body = plain[4:12] + len(name).to_bytes(2) + name + plain[18:]
        return len(body).to_bytes(4) + body


async def allow(client: AsyncClient, topic: str, pattern_type: int) -> int:
    """Let ann describe it; the error code."""
    request = wire.CreateAclsRequest
    rule = request.AclCreation(2, topic, pattern_type, "User:ann", "*", int(Operation.DESCRIBE), 3)
    return int((await client.call_any(request([rule]), timeout_s=150)).results[0].error_code)


async def test_rules_stand_while_zookeeper_is_away_and_rubbish_opens_nothing(cluster: LoopbackCluster) -> None:
    async with client_as(cluster, "root") as root, client_as(cluster, "ann") as ann:
        await root.create_topics([NewTopic("t", 1, 2)])
        assert not await allow(root, "t", 3)
        await until(everywhere(cluster, "ann", Operation.DESCRIBE, "t"))
        await ann.metadata(())
        for host in cluster.zookeeper.hosts():
            cluster.zookeeper.block(host)
        for topic, is_refused in (("t", False), ("u", True)):
            (told,) = (await ann.metadata([topic])).topics
            assert (told.error in REFUSED) is is_refused
        for host in ("node-1", "node-2"):
            cluster.zookeeper.unblock(host)
        cluster.zookeeper.poke(
            SetData("/kafka-acl/Topic/t", b"{}"), Create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True)
        )
        await until(lambda: not everywhere(cluster, "ann", Operation.DESCRIBE, "t")())
        for answer in (await root.health()).values():
            assert isinstance(answer, HealthResponse)
            assert "/kafka-acl/Topic/t" in [problem.subject for problem in answer.problems]
        # What cannot be read is not overwritten: a person has to look.
        assert await allow(root, "t", 3) == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_node_knows_the_rules_before_it_listens(cluster: LoopbackCluster) -> None:
    await cluster.stop(2)
    async with client_as(cluster, "root") as root:
        assert not await allow(root, "t", 4)
    cluster._launch(2)
    node = cluster.nodes[2]
    # As soon as its port is open it knows.
    await until(lambda: "kafka" in node.endpoints)
    authorizer = node.rights.access.authorizer
    assert authorizer is not None
    pattern = Pattern(ResourceType.TOPIC, "t", PatternType.PREFIXED)
    entry = AclEntry("User:ann", "*", Operation.DESCRIBE, Permission.ALLOW)
    assert list(node.rights.describe_acls(Filter())) == [(pattern, [entry])]
    await cluster._wait_ready(2)


async def test_quotas_of_the_command_line(cluster: LoopbackCluster) -> None:
    """Set by the command line, in Kafka's znodes, obeyed by every node: the answer first, then silence."""
    run = partial(admin_meanwhile, cluster.bootstrap)
    async with client_as(cluster, "root") as root:
        await root.create_topics([NewTopic("t", 1, 2)])
        await run("quotas", "set", "producer_byte_rate=1000", "--user", "ro ot", "--client-id-default")
        await run("quotas", "set", "producer_byte_rate=100", "consumer_byte_rate=50", "--user", "root")
        listed = await run("quotas", "list")
        assert listed["quotas"] == [
            {"user": "ro ot", "client_id": "<default>", "ip": "", "quota": "producer_byte_rate", "limit": 1000.0},
            {"user": "root", "client_id": "", "ip": "", "quota": "consumer_byte_rate", "limit": 50.0},
            {"user": "root", "client_id": "", "ip": "", "quota": "producer_byte_rate", "limit": 100.0},
        ]
        written = cluster.zookeeper.peek("/config/users/root")
        assert written is not None
        limits = {"consumer_byte_rate": "50", "producer_byte_rate": "100"}
        assert json.loads(written[0]) == {"version": 1, "config": limits}
        assert cluster.zookeeper.peek("/config/users/ro%20ot/clients/<default>") is not None
        await until(lambda: all(len(node.rights.quotas.entities()) == 2 for node in cluster.nodes.values()))
        builder = RecordBatchBuilder()
        builder.append(None, b"x" * 900, (), 1)
        produce = produce_request({TopicPartition("t", 0): builder.build()}, 1, 5000)
        leader = (await root.metadata(["t"])).topics[0].partitions[0].leader
        waits: list[int] = []
        while not waits or not waits[-1]:
            assert len(waits) < 3
            answer = await root.call_node(leader, produce, timeout_s=150)
            assert answer.responses[0].partition_responses[0].error_code == 0
            waits.append(answer.throttle_time_ms)
        node = cluster.nodes[leader]
        [muted] = [each for each in node.kafka.listener.connections if each.is_muted]
        # The node's other connections, and the same user's, are served meanwhile.
        await run("quotas", "delete", "producer_byte_rate", "consumer_byte_rate", "--user", "root")
        muted._flow.unmute_at = 0.0
        muted._unmute()
    await until(lambda: all(len(node.rights.quotas.entities()) == 1 for node in cluster.nodes.values()))
