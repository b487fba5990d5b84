"""Attacks on a secured cluster by a user with few rights and stolen credentials of others. It takes too long for CI."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hmac
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from kafkalite.client.admin.tokens import DelegationToken, create_token, expire_token
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.coordination import paths
from kafkalite.coordination.token_znodes import encode_token
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire
from kafkalite.record.builder import encode_batch, encode_record
from kafkalite.rpc.answers import RpcError
from kafkalite.security.dialling import ClientSecurity
from kafkalite.security.principal import Principal
from kafkalite.security.scram import salted_password
from kafkalite.security.tokens import Token
from tests.cluster.running import wait_until
from tests.cluster.test_secured import say_hello
from tests.cluster.test_zookeeper_acls import Stranger
from tests.support.failing import fails_with
from tests.support.secured import PASSWORDS, ZOOKEEPER_AUTH, SecuredCluster

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

TOKEN_SECRET = "the nodes' secret of tokens"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    directory = tmp_path_factory.mktemp("attacked")
    secret = directory / "token.secret"
    secret.write_text(TOKEN_SECRET + "\n")
    secret.chmod(0o600)
    settings = {
        "authorizer.enabled": "true",
        "super.users": "User:admin",
        "delegation.token.secret.key": f"file:{secret}",
        "connections.max.reauth.ms": 600_000,
    }
    with SecuredCluster(directory / "c", "SASL_SSL", settings) as running:
        admin = running.client_config("admin")
        for user in ("alice", "mallory"):
            running.command("admin", "users", "set", user, client_config=admin, stdin=PASSWORDS[user])
        for topic in ("orders", "orders-open"):
            running.command("admin", "create-topic", topic, client_config=admin)
        for arguments in (
            ("--producer", "--topic", "orders", "--allow-principal", "User:alice"),
            ("--consumer", "--topic", "orders", "--group", "g", "--allow-principal", "User:alice"),
            ("--producer", "--topic", "orders-open", "--allow-principal", "User:mallory"),
            ("--consumer", "--topic", "orders-open", "--group", "m", "--allow-principal", "User:mallory"),
        ):
            running.command("admin", "acls", "add", *arguments, client_config=admin)
        yield running


def client(cluster: SecuredCluster, user: str) -> AsyncClient:
    return AsyncClient.connect(cluster.bootstrap, security=cluster.security(user))


def by_token(cluster: SecuredCluster, token: DelegationToken) -> ClientSecurity:
    password = base64.b64encode(token.hmac).decode()
    return ClientSecurity(
        "SASL_SSL",
        cluster.authority.truststore,
        "",
        "",
        check_hostname=True,
        mechanism="SCRAM-SHA-512",
        username=token.token_id,
        password=password,
        is_token=True,
    )


def page(cluster: SecuredCluster, path: str, user: str, password: str, body: Any = None, **headers: str) -> int:
    """The status."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"https://{cluster.http(1)}{path}", data, {k.replace("_", "-"): v for k, v in headers.items()}
    )
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(
            request, timeout=30, context=ssl.create_default_context(cafile=cluster.authority.truststore)
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def test_a_stolen_token_is_a_login_of_the_kafka_listener_and_nothing_else(cluster: SecuredCluster) -> None:
    async with client(cluster, "alice") as alice:
        token = await create_token(alice)
    password = base64.b64encode(token.hmac).decode()
    assert page(cluster, "/metrics", token.token_id, password) == 401
    assert page(cluster, "/subjects", token.token_id, password) == 401
    # Without the extension it is nobody's name and password, by any mechanism.
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        plain = dataclasses.replace(by_token(cluster, token), mechanism=mechanism, is_token=False)
        with pytest.raises((ApiError, RpcError)):
            async with AsyncClient.connect(cluster.bootstrap, security=plain) as stolen:
                await stolen.metadata(["orders"], timeout_s=5)
    async with AsyncClient.connect(cluster.bootstrap, security=by_token(cluster, token)) as stolen:
        assert not (await stolen.metadata(["orders"], timeout_s=30)).topics[0].error
        with pytest.raises(ApiError):
            await create_token(stolen)


async def test_nobody_becomes_the_nodes_user(cluster: SecuredCluster) -> None:
    """Neither by a token, also one that is in ZooKeeper already, nor by another password: a node may change the state of share groups."""
    admin, node = cluster.client_config("admin"), Principal("User", "node")
    cluster.command(
        "admin", "acls", "add", "--token-of", "User:node", "--operation", "create-tokens", "--allow-principal", "User:mallory",
        client_config=admin,
    )  # fmt: skip
    cluster.command(
        "admin",
        "acls",
        "add",
        "--cluster",
        "--operation",
        "alter",
        "--allow-principal",
        "User:mallory",
        client_config=admin,
    )
    async with client(cluster, "mallory") as mallory:
        with fails_with(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
            await create_token(mallory, owner=node)
        upsertion = wire.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            "node", 2, 4096, b"saltsalt", salted_password("SCRAM-SHA-512", "mine", b"saltsalt", 4096)
        )
        answer = await mallory.call_controller(wire.AlterUserScramCredentialsRequest([], [upsertion]), timeout_s=30)
        assert [each.error_code for each in answer.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        for message in share_state_requests():
            answer = await mallory.call_any(message, timeout_s=30)
            codes = {part.error_code for topic in answer.results for part in topic.partitions}
            assert codes == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, type(message).__name__
    planted = plant_token(cluster, node)
    stolen = by_token(cluster, planted)
    with pytest.raises((ApiError, RpcError)):
        async with AsyncClient.connect(cluster.bootstrap, security=stolen) as other:
            await other.metadata(["orders"], timeout_s=5)
    wait_until(
        lambda: "the token is for the user of the nodes" in cluster.logs(),
        "a node that refuses the token for this reason",
    )
    cluster.command(
        "admin", "acls", "remove", "--cluster", "--allow-principal", "User:mallory", "--yes", client_config=admin
    )


def share_state_requests() -> list[Any]:
    """One of each API of a share group's state."""
    topic = bytes(range(16))
    write, initialize = wire.WriteShareGroupStateRequest, wire.InitializeShareGroupStateRequest
    read, delete = wire.ReadShareGroupStateRequest, wire.DeleteShareGroupStateRequest
    summary = wire.ReadShareGroupStateSummaryRequest
    return [
        initialize("g", [initialize.InitializeStateData(topic, [initialize.PartitionData(0, 1, 0)])]),
        write("g", [write.WriteStateData(topic, [write.PartitionData(0, 1, 0, 0, state_batches=[])])]),
        read("g", [read.ReadStateData(topic, [read.PartitionData(0, 0)])]),
        delete("g", [delete.DeleteStateData(topic, [delete.PartitionData(0)])]),
        summary("g", [summary.ReadStateSummaryData(topic, [summary.PartitionData(0, 0)])]),
    ]


def plant_token(cluster: SecuredCluster, owner: Principal) -> DelegationToken:
    """A token as an older version has written it: nobody checked whose it is."""
    secret = TOKEN_SECRET.encode()
    token = Token("planted", owner, owner, (), 0, 2**50, 2**50)
    user, _, password = ZOOKEEPER_AUTH.partition(":")
    acl = [make_digest_acl(user, password, all=True)]
    with Stranger(cluster.zookeeper_connect) as zookeeper:
        zookeeper.client.add_auth("digest", ZOOKEEPER_AUTH)
        root = zookeeper.root.rstrip("/")
        zookeeper.client.create(root + paths.token(token.token_id), encode_token(token), acl=acl)
        change = f"{root}{paths.TOKEN_CHANGES}/{paths.TOKEN_CHANGE_NAME}"
        zookeeper.client.create(change, token.token_id.encode(), acl=acl, sequence=True)
    return DelegationToken(
        token.token_id, str(owner), str(owner), (), 0, 2**50, 2**50, hmac.digest(secret, b"planted", "sha512")
    )


async def test_the_tokens_of_a_deleted_user_last_until_they_are_ended(cluster: SecuredCluster) -> None:
    """As in Kafka: a token may belong to a user of a certificate or an identity provider, too. Only its owner and renewers end it."""
    admin = cluster.client_config("admin")
    async with client(cluster, "alice") as alice:
        token = await create_token(alice)
    cluster.command("admin", "users", "delete", "alice", "--yes", client_config=admin)
    with pytest.raises((ApiError, RpcError)):
        async with client(cluster, "alice") as gone:
            await gone.metadata(["orders"], timeout_s=5)
    async with AsyncClient.connect(cluster.bootstrap, security=by_token(cluster, token)) as left:
        assert not (await left.metadata(["orders"], timeout_s=30)).topics[0].error
        async with client(cluster, "admin") as root:
            with fails_with(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
                await expire_token(root, token.hmac)
        cluster.command("admin", "users", "set", "alice", client_config=admin, stdin=PASSWORDS["alice"])
        async with client(cluster, "alice") as alice:
            await expire_token(alice, token.hmac)
        with pytest.raises((ApiError, RpcError)):
            async with asyncio.timeout(60):
                while True:
                    await left.metadata(["orders"], timeout_s=5)


@pytest.mark.parametrize("node_id", [-1, 2])
async def test_a_clients_login_opens_no_connection_between_nodes(cluster: SecuredCluster, node_id: int) -> None:
    for user in ("mallory", "admin"):
        with pytest.raises((ApiError, RpcError)):
            await say_hello(cluster, user, node_id)


async def test_producer_ids_and_transactions_of_somebody_else(cluster: SecuredCluster) -> None:
    admin = cluster.client_config("admin")
    cluster.command(
        "admin", "acls", "add", "--transactional-id", "t-alice", "--operation", "write", "--operation", "describe",
        "--allow-principal", "User:alice", client_config=admin,
    )  # fmt: skip
    request = wire.ProduceRequest

    async def produced(by: AsyncClient, topic: str, transactional_id: str | None, producer_id: int) -> int:
        batch = encode_batch(
            encode_record(0, 0, None, b"forged", ()), record_count=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0,
            attributes=0 if transactional_id is None else 0x10, producer_id=producer_id, producer_epoch=5, base_sequence=0,
        )  # fmt: skip
        message = request(
            transactional_id,
            -1,
            10_000,
            [request.TopicProduceData(topic, partition_data=[request.PartitionProduceData(0, batch)])],
        )
        key = TopicPartition(topic, 0)
        await by.metadata([topic], timeout_s=30)  # the nodes' addresses; mallory may not see the leader, and guesses
        metadata = await admin_client.metadata([topic], timeout_s=30)
        leader = next(each.leader for each in metadata.topics[0].partitions if each.partition == 0)
        answer = await by.call_leader(leader, message, [key], timeout_s=30)
        return int(answer.responses[0].partition_responses[0].error_code)

    async with (
        client(cluster, "alice") as alice,
        client(cluster, "mallory") as mallory,
        client(cluster, "admin") as admin_client,
    ):
        producer_id, _ = await alice.init_producer_id("t-alice")
        with fails_with(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
            await mallory.init_producer_id("t-alice")
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        for topic, transactional_id in (("orders", None), ("orders", "t-alice"), ("orders-open", "t-alice")):
            assert await produced(mallory, topic, transactional_id, int(producer_id)) in denied
        async with Producer(alice, acks="all", idempotent=True) as producer:
            assert await (await producer.send("orders", None, b"still here"))


async def test_groups_of_somebody_else_by_every_protocol(cluster: SecuredCluster) -> None:
    async with client(cluster, "mallory") as mallory:
        for message in (
            wire.ConsumerGroupHeartbeatRequest(
                "g", "m", 0, rebalance_timeout_ms=1000, topic_partitions=[], subscribed_topic_regex=".*"
            ),
            wire.ShareGroupHeartbeatRequest("g", "A" * 22, 0, subscribed_topic_names=["orders"]),
            wire.StreamsGroupHeartbeatRequest("g", "A" * 22, 0, rebalance_timeout_ms=1000, topology=None),
            wire.JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", []),
            wire.OffsetCommitRequest("g"),
            wire.LeaveGroupRequest("g", "m", []),
            wire.DeleteGroupsRequest(["g"]),
        ):
            answer = await mallory.call_any(message, timeout_s=30)
            code = (
                answer.results[0].error_code
                if isinstance(message, wire.DeleteGroupsRequest)
                else getattr(answer, "error_code", None)
            )
            if isinstance(message, wire.OffsetCommitRequest):
                continue  # no topic, nothing to refuse
            assert code == ErrorCode.GROUP_AUTHORIZATION_FAILED, type(message).__name__
        # In a group of one's own an expression finds no topic that may not be described.
        found = await mallory.metadata(None, timeout_s=30)
        assert {each.topic for each in found.topics} <= {"orders-open"}


def test_other_sites_and_hidden_paths(cluster: SecuredCluster) -> None:
    password = PASSWORDS["admin"]
    change = {"action": "topic.create", "topic": "forged", "partitions": 1, "replicas": 1}
    for headers in (
        {"Content_Type": "application/json", "Origin": "https://evil.example"},
        {"Content_Type": "text/plain", "Origin": "https://evil.example"},
        {"Content_Type": "application/json"},
        {"Content_Type": "application/json", "X_Kafkalite_Token": "guessed"},
    ):
        assert page(cluster, "/api/console/do", "admin", password, change, **headers) == 403, headers
    for path in (
        "//metrics",
        "/metrics/",
        "/%6detrics",
        "/api/console/../status",
        "/readyz/../metrics",
        "/api/status%00",
        "/metrics;x",
    ):
        assert page(cluster, path, "mallory", PASSWORDS["mallory"]) in (400, 403, 404), path
    listed = cluster.command("admin", "list-topics", client_config=cluster.client_config("admin"))
    assert "forged" not in listed


def test_schemas_are_not_to_be_counted(cluster: SecuredCluster) -> None:
    """What is not there and what may not be seen are answered alike."""
    schema = {"schema": '"string"'}
    kind = {"Content_Type": "application/json"}
    assert page(cluster, "/subjects/orders-value/versions", "admin", PASSWORDS["admin"], schema, **kind) == 200
    assert page(cluster, "/schemas/ids/1", "admin", PASSWORDS["admin"]) == 200
    mallory = "mallory", PASSWORDS["mallory"]
    assert page(cluster, "/schemas/ids/1", *mallory) == page(cluster, "/schemas/ids/77", *mallory) == 404
    assert (
        page(cluster, "/subjects/orders-value/versions", *mallory)
        == page(cluster, "/subjects/nothing-value/versions", *mallory)
        == 403
    )
    assert page(cluster, "/subjects/orders-value/versions", *mallory, schema, **kind) == 403


def test_denials_win_whatever_their_pattern(cluster: SecuredCluster) -> None:
    admin = cluster.client_config("admin")

    def acl(verb: str, *arguments: str) -> None:
        more = ("--yes",) if verb == "remove" else ()
        cluster.command("admin", "acls", verb, *arguments, *more, client_config=admin)

    def writes(topic: str) -> bool:
        config = cluster.client_config("mallory")
        try:
            cluster.command("produce", topic, client_config=config, stdin="x", code=0)
        except AssertionError as error:
            assert "AUTHORIZATION" in str(error).upper(), error
            return False
        return True

    assert writes("orders-open")
    prefix = "--topic", "orders-o", "--pattern", "prefixed", "--operation", "write"
    acl("add", *prefix, "--deny-principal", "User:mallory")
    assert not writes("orders-open")
    acl("remove", "--topic", "orders-o", "--pattern", "prefixed")
    # A literal name that looks like a prefix, or like a wildcard within a name, covers nothing else.
    for name in ("orders", "order*", "orders-"):
        acl("add", "--topic", name, "--operation", "write", "--deny-principal", "User:mallory")
    assert writes("orders-open")
    acl("add", "--topic", "*", "--operation", "write", "--deny-principal", "User:mallory")
    assert not writes("orders-open")
    acl("remove", "--topic", "*")
    assert writes("orders-open")


def test_administrators_leave_no_znode_open(cluster: SecuredCluster) -> None:
    """Whatever a verb writes to ZooKeeper has the ACL that the cluster asks for."""
    admin = cluster.client_config("admin")
    for arguments in (
        ("create-topic", "z", "--partitions", "2", "--replication-factor", "2"),
        ("add-partitions", "z", "--count", "1"),
        ("config", "set", "--topic", "z", "retention.ms=1000"),
        ("config", "set", "--broker", "1", "max.connections=500"),
        ("quotas", "set", "producer_byte_rate=1000000", "--user", "alice"),
        ("quotas", "set", "connection_creation_rate=500", "--ip-default"),
        ("acls", "add", "--topic", "z", "--operation", "read", "--allow-principal", "User:bob"),
        ("tokens", "create"),
        ("elect", "--preferred", "--all"),
        ("broker", "cordon", "3"),
        ("broker", "uncordon", "3"),
        ("remove-partitions", "z", "--count", "1", "--yes"),
        ("delete-topic", "z", "--yes"),
        ("health",),
    ):
        cluster.command("admin", *arguments, client_config=admin)
        with Stranger(cluster.zookeeper_connect) as stranger:
            assert not [path for path in stranger.changeable() if not path.startswith("//zookeeper")], arguments
            for path in stranger.everything():
                if path.startswith(("//config/users/", "/config/users/", "/delegation_token")):
                    with pytest.raises(NoAuthError):
                        stranger.client.get(path.replace("//", "/"))
