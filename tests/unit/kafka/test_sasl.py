"""SASL on the Kafka listener, frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from kafkalite.coordinators.transactions.markers import Marker, MarkerChannels
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerEpoch, BrokerId, ProducerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.authenticate import authenticate
from kafkalite.rpc.messages.control import Broker as RpcBroker
from kafkalite.security.principal import ANONYMOUS, Principal
from kafkalite.security.sasl import MECHANISMS, ClientCredentials
from kafkalite.security.scram import ScramCredential, make_credential, salted_password
from tests.support.security import CREDENTIALS, PASSWORDS, listener_security

from .conftest import Broker, FrameClient, fetch, sasl_brokers

ALICE = Principal("User", "alice")


@pytest.fixture
async def make() -> AsyncIterator[Any]:
    async with sasl_brokers() as started:
        yield started


def principals(broker: Broker) -> list[Principal]:
    return [connection.principal for connection in broker.side.listener.connections]


async def log_in(
    client: FrameClient, user: str = "alice", password: str | None = None, mechanism: str = "SCRAM-SHA-512"
) -> Any:
    """By SaslHandshake v1 and SaslAuthenticate; the last answer."""
    exchange = ClientCredentials(mechanism, user, password or PASSWORDS.get(user, "x")).client(bytes)
    answer = await client.ask(wire.SaslHandshakeRequest(mechanism), 1)
    token = exchange.first()
    while not answer.error_code and not exchange.is_complete:
        answer = await client.ask(wire.SaslAuthenticateRequest(token), 2)
        if not answer.error_code:
            token = exchange.step(bytes(answer.auth_bytes))
    return answer


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_authenticate(make: Any, mechanism: str) -> None:
    broker = await make()
    client = await broker.client()
    versions = await client.ask(wire.ApiVersionsRequest(), 0)
    assert {17, 36} <= {entry.api_key for entry in versions.api_keys}
    assert principals(broker) == [ANONYMOUS]
    answer = await log_in(client, mechanism=mechanism)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert principals(broker) == [ALICE]
    assert (await client.ask(wire.MetadataRequest(None), 4)).brokers
    again = await client.ask(wire.SaslHandshakeRequest(mechanism), 1)
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_versions_are_told_once_before_the_login(make: Any) -> None:
    """Kafka's SaslServerAuthenticator: HANDSHAKE_REQUEST follows an answer without an error. A client whose version is not known, or whose
    name is not valid, asks again."""
    broker = await make()
    for second in (wire.ApiVersionsRequest("c", "1"), wire.ApiVersionsRequest("!", "!")):
        client = await broker.client()
        client.writer.write(bytes([0, 0, 0, 10, 0, 18, 0, 99, 0, 0, 0, 1, 255, 255]))
        assert (await client.receive_raw())[4:6] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2)
        assert (await client.ask(wire.ApiVersionsRequest("!", "!"), 3)).error_code == ErrorCode.INVALID_REQUEST
        assert (await client.ask(wire.ApiVersionsRequest("c", "1"), 3)).error_code == 0
        client.send(second, 3)
        assert await client.is_closed()
    client = await broker.client()
    assert (await client.ask(wire.ApiVersionsRequest("c", "1"), 4)).error_code == 0
    assert not (await log_in(client)).error_code
    for _ in range(2):
        assert (await client.ask(wire.ApiVersionsRequest("c", "1"), 4)).error_code == 0


async def test_versions_are_not_asked_for_within_the_exchange(make: Any) -> None:
    """Kafka's SaslApiVersionsRequestTest.testApiVersionsRequestAfterSaslHandshakeRequest."""
    broker = await make()
    for version in (0, 4):
        client = await broker.client()
        assert (await client.ask(wire.SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
        answer = await client.ask(wire.ApiVersionsRequest("c", "1"), version)
        assert (answer.error_code, list(answer.api_keys)) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert await client.is_closed()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_bare_tokens_after_the_old_handshake(make: Any, mechanism: str) -> None:
    broker = await make()
    client = await broker.client()
    assert (await client.ask(wire.SaslHandshakeRequest(mechanism), 0)).error_code == 0
    exchange = ClientCredentials(mechanism, "alice", PASSWORDS["alice"]).client(bytes)
    token = exchange.first()
    while not exchange.is_complete:
        client.writer.write(len(token).to_bytes(4) + token)
        token = exchange.step(await client.receive_raw())
    assert (await client.ask(wire.MetadataRequest(None), 4)).brokers
    assert principals(broker) == [ALICE]


async def test_bare_tokens_that_prove_nothing(make: Any) -> None:
    broker = await make()
    client = await broker.client()
    await client.ask(wire.SaslHandshakeRequest("PLAIN"), 0)
    client.writer.write((14).to_bytes(4) + b"\0alice\0wrong!!")
    assert await client.is_closed()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_wrong_password_and_unknown_user_hear_the_same(make: Any, mechanism: str) -> None:
    broker = await make()
    answers = []
    with capture_logs() as lines:
        for user in ("alice", "nobody at all"):
            client = await broker.client()
            answer = await log_in(client, user, "wrong", mechanism)
            answers.append((answer.error_code, answer.error_message, bytes(answer.auth_bytes)))
            assert await client.is_closed()
    assert answers[0] == answers[1]
    assert answers[0][0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    failures = [line for line in lines if line["event"] == "authentication.failed"]
    assert [(line["user"], line["reason"]) for line in failures] == [("alice", "wrong password"), ("", "unknown user")]


@pytest.mark.parametrize(
    "request_",
    [wire.MetadataRequest(None), wire.ListGroupsRequest(), wire.DescribeUserScramCredentialsRequest(None)],
    ids=lambda message: type(message).__name__,
)
async def test_nothing_else_before_the_authentication(make: Any, request_: Any) -> None:
    """Not first, not after the handshake, not between the steps, not pipelined behind a proof that does not hold."""
    broker = await make()
    version = 0 if "Scram" in type(request_).__name__ else 1
    with capture_logs() as lines:
        for begin in (0, 1, 2, 3):
            client = await broker.client()
            if begin >= 1:
                await client.ask(wire.SaslHandshakeRequest("SCRAM-SHA-512"), 1)
            if begin == 2:
                await client.ask(wire.SaslAuthenticateRequest(b"n,,n=alice,r=x"), 1)
            if begin == 3:
                client.send(wire.SaslAuthenticateRequest(b"nonsense"), 1)
                client.send(request_, version)
                assert (await client.receive())[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            else:
                client.send(request_, version)
            assert await client.is_closed()
    reasons = [line["reason"].partition(" before ")[2] or line["reason"] for line in lines]
    assert reasons == ["the authentication", "malformed first message"]  # each once, however often
    assert not broker.side.listener.connections


async def test_out_of_turn(make: Any) -> None:
    broker = await make()
    client = await broker.client()
    client.send(wire.SaslAuthenticateRequest(b"\0alice\0in wonderland"), 1)
    assert await client.is_closed()
    client = await broker.client()
    await client.ask(wire.SaslHandshakeRequest("PLAIN"), 1)
    answer = await client.ask(wire.SaslHandshakeRequest("PLAIN"), 1)
    assert (answer.error_code, tuple(answer.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, ())
    assert await client.is_closed()
    client = await broker.client()
    answer = await client.ask(wire.SaslHandshakeRequest("GSSAPI"), 1)
    assert (answer.error_code, tuple(answer.mechanisms)) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert await client.is_closed()


async def test_strangers_have_little_room_and_little_time(make: Any) -> None:
    broker = await make()
    client = await broker.client()
    client.writer.write((64 * 1024 + 1).to_bytes(4) + bytes([0, 18]))
    assert await client.is_closed()
    client = await broker.client()
    await client.ask(wire.ApiVersionsRequest(), 0)
    listener = broker.side.listener
    (connection,) = listener.connections
    assert connection.authenticator is not None
    assert not connection.authenticator.is_late(listener.now())
    assert connection.authenticator.is_late(listener.now() + 11)
    await log_in(client)
    assert connection.authenticator is None
    assert connection.max_request_bytes == listener.max_request_bytes


async def test_the_answer_to_a_failure_comes_late(make: Any) -> None:
    broker = await make(failed_delay_ms=200)
    client = await broker.client()
    await client.ask(wire.SaslHandshakeRequest("PLAIN"), 1)
    began = asyncio.get_running_loop().time()
    await client.ask(wire.SaslAuthenticateRequest(b"\0alice\0wrong"), 1)
    assert asyncio.get_running_loop().time() - began >= 0.15


async def test_sessions_end_unless_renewed(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-368: by the same user and mechanism, on the same connection."""
    broker = await make(max_reauth_ms=60_000)
    listener = broker.side.listener
    late = [0.0]
    real = listener.now
    monkeypatch.setattr(listener, "now", lambda: real() + late[0])
    client = await broker.client()
    answer = await log_in(client)
    assert 50_000 <= answer.session_lifetime_ms <= 57_100
    late[0] = 45.0
    assert (await log_in(client)).session_lifetime_ms >= 50_000
    late[0] = 90.0
    assert (await client.ask(wire.MetadataRequest(None), 4)).brokers
    late[0] = 150.0
    client.send(wire.MetadataRequest(None), 4)
    assert await client.is_closed()
    client = await broker.client()
    await log_in(client)
    assert (await log_in(client, "node")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed()


async def test_out_of_turn_in_a_later_authentication(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka: once in a second; another mechanism ends the connection with the next request, so does anything else in between."""
    broker = await make(max_reauth_ms=60_000)
    listener = broker.side.listener
    late, real = [0.0], listener.now
    monkeypatch.setattr(listener, "now", lambda: real() + late[0])
    client = await broker.client()
    await log_in(client)
    assert (await client.ask(wire.SaslAuthenticateRequest(b""), 2)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    await log_in(client)
    answer = await client.ask(wire.SaslHandshakeRequest("SCRAM-SHA-512"), 1)
    assert (answer.error_code, tuple(answer.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, ())
    assert (await client.ask(wire.MetadataRequest(None), 4)).brokers
    late[0] = 2.0
    assert (await log_in(client)).session_lifetime_ms
    late[0] = 100.0
    client.send(wire.ApiVersionsRequest(), 0)
    assert await client.is_closed()
    for mechanism, next_ in (
        ("SCRAM-SHA-256", wire.SaslAuthenticateRequest(b"n,,n=alice,r=x")),
        ("SCRAM-SHA-512", wire.MetadataRequest(None)),
    ):
        client = await broker.client()
        await log_in(client)
        assert (await client.ask(wire.SaslHandshakeRequest(mechanism), 1)).error_code == 0
        client.send(next_, 1)
        assert await client.is_closed()


async def test_a_credential_that_is_deleted_ends_its_connections(make: Any) -> None:
    """At once, not at the next authentication as in Kafka; those of nodes stay until then, others' are not touched."""
    credentials = dict(CREDENTIALS)
    broker = await make(credentials=credentials)
    clients = {(user, mechanism): await broker.client() for user in PASSWORDS for mechanism in MECHANISMS}
    for (user, mechanism), client in clients.items():
        await log_in(client, user, mechanism=mechanism)
    for user in PASSWORDS:
        credentials["SCRAM-SHA-512", user] = make_credential("SCRAM-SHA-512", "another", b"salt and pepper")
        del credentials["SCRAM-SHA-256", user]
        broker.side.listener.credentials_changed(user)
    for (user, mechanism), client in clients.items():
        if user == "alice" and mechanism != "PLAIN":
            assert await client.is_closed()
        else:
            assert (await client.ask(wire.MetadataRequest(None), 4)).brokers
    assert len(broker.side.listener.connections) == 4


async def test_what_a_retired_connection_has_asked_is_answered(make: Any) -> None:
    broker = await make(is_optional=True)
    await broker.create("t")
    client = await broker.client()
    await log_in(client)
    connection = next(each for each in broker.side.listener.connections if each.principal == ALICE)
    client.send(fetch("t", min_bytes=1, max_wait_ms=100), 11)
    async with asyncio.timeout(150):
        while not connection.is_busy:
            await asyncio.sleep(0.001)
    connection.retire("a test")
    client.send(wire.MetadataRequest(None), 4)
    assert (await client.receive())[0]
    assert await client.is_closed()


async def test_on_the_way_from_plain_text_all_are_let_in(make: Any) -> None:
    """security.transition."""
    broker = await make(is_optional=True)
    client = await broker.client()
    assert (await client.ask(wire.MetadataRequest(None), 4)).brokers
    assert principals(broker) == [ANONYMOUS]
    await log_in(client)
    assert principals(broker) == [ALICE]
    assert (await client.ask(wire.MetadataRequest(None), 4)).brokers
    client = await broker.client()
    await client.ask(wire.SaslHandshakeRequest("PLAIN"), 1)
    client.send(wire.MetadataRequest(None), 4)
    assert await client.is_closed()


async def test_a_listener_without_sasl(broker: Broker) -> None:
    client = await broker.client()
    answer = await client.ask(wire.SaslHandshakeRequest("PLAIN"), 1)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = await client.ask(wire.SaslAuthenticateRequest(b""), 2)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await client.ask(wire.MetadataRequest(None), 4)).brokers


async def test_a_node_as_a_client(make: Any) -> None:
    """Transaction coordinators write markers through other nodes' Kafka listeners."""
    broker = await make()
    for mechanism in MECHANISMS:
        client = await broker.client()
        exchange = ClientCredentials(mechanism, "node", PASSWORDS["node"]).client(bytes)
        assert await authenticate(client.reader, client.writer, mechanism, exchange) == float("inf")
        assert (await client.ask(wire.MetadataRequest(None), 4)).brokers
        assert Principal("User", "node") in principals(broker)


async def test_markers_do_not_meet_the_end_of_a_session(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node opens another connection before that (KIP-368): no marker is refused, none is repeated."""
    broker = await make(max_reauth_ms=60_000)
    services = broker.services
    late, real = [0.0], services.clock.monotonic
    monkeypatch.setattr(services.clock, "monotonic", lambda: real() + late[0])
    lifetimes = []

    async def dial(host: str, port: int) -> Any:
        reader, writer = await services.network.dial(host, port)
        exchange = ClientCredentials("SCRAM-SHA-512", "node", PASSWORDS["node"]).client(bytes)
        lifetimes.append(await authenticate(reader, writer, "SCRAM-SHA-512", exchange))
        return reader, writer, lifetimes[-1]

    monkeypatch.setattr(services, "dial_kafka", dial)
    host, port = services.kafka_endpoint
    there = RpcBroker(BrokerId(9), BrokerEpoch(1), host, port, "", 0)
    channels = MarkerChannels(services, cast(Any, None))
    marker = Marker(ProducerId(1), 0, is_commit=True, coordinator_epoch=0, partitions=(TopicPartition("t", 0),))
    with capture_logs() as lines:
        for late[0], dialled in ((0.0, 1), (30.0, 1), (55.0, 2), (80.0, 2), (200.0, 3)):
            assert await channels.send(there, marker)
            assert len(lifetimes) == dialled
            assert all(50 <= each <= 57.1 for each in lifetimes)
    assert not [line for line in lines if line["event"] == "authentication.failed"]
    channels.close()


async def test_only_nodes_write_markers(make: Any) -> None:
    broker = await make()
    request = wire.WriteTxnMarkersRequest
    message = request(
        [
            request.WritableTxnMarker(
                1, 0, transaction_result=True, topics=[request.WritableTxnMarkerTopic("t", [0])], coordinator_epoch=0
            )
        ]
    )
    codes = {}
    for user in ("alice", "node"):
        client = await broker.client()
        await log_in(client, user)
        answer = await client.ask(message, 1)
        codes[user] = answer.markers[0].topics[0].partitions[0].error_code
    assert codes["alice"] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert codes["node"] != ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("super_user", "code"),
    [("alice", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("root", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
)
async def test_an_operator_who_may_alter_the_cluster_writes_markers(
    make_broker: Any, super_user: str, code: ErrorCode
) -> None:
    """`kafka-transactions abort` on a cluster with an authorizer."""
    broker = await make_broker(authorizer_enabled=True, super_users=f"User:{super_user}")
    broker.services.security["PLAINTEXT"] = listener_security()
    client = await broker.client()
    await log_in(client, "alice")
    request = wire.WriteTxnMarkersRequest
    message = request(
        [
            request.WritableTxnMarker(
                1, 0, transaction_result=False, topics=[request.WritableTxnMarkerTopic("t", [0])], coordinator_epoch=0
            )
        ]
    )
    answer = await client.ask(message, 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == code


async def test_secrets_are_not_in_representations() -> None:
    assert "hush" not in repr(wire.SaslAuthenticateRequest(b"hush"))
    upsertion = wire.AlterUserScramCredentialsRequest.ScramCredentialUpsertion("u", 1, 4096, b"hush", b"hush")
    assert "hush" not in repr(wire.AlterUserScramCredentialsRequest([], [upsertion]))
    created = wire.CreateDelegationTokenResponse(0, "User", "u", "User", "u", 0, 0, 0, "id", b"hush")
    described = wire.DescribeDelegationTokenResponse.DescribedDelegationToken(
        "User", "u", "User", "u", 0, 0, 0, "id", b"hush", []
    )
    for message in (
        created,
        described,
        wire.RenewDelegationTokenRequest(b"hush", 0),
        wire.ExpireDelegationTokenRequest(b"hush", 0),
    ):
        assert "hush" not in repr(message)


async def test_describe_configs_names_secrets_and_shows_none(make_broker: Any) -> None:
    broker = await make_broker(inter_broker_password="hush", zookeeper_auth="user:hush")
    client = await broker.client()
    request = wire.DescribeConfigsRequest
    answer = await client.ask(request([request.DescribeConfigsResource(4, "1", None)], include_synonyms=True), 4)
    entries = {entry.name: entry for entry in answer.results[0].configs}
    for key in ("inter.broker.password", "zookeeper.auth", "ssl.key.password"):
        assert (entries[key].value, entries[key].is_sensitive) == (None, True)
    assert "hush" not in repr(answer)
    assert entries["listener.security.protocol"].value == "PLAINTEXT"


# --- users ---------------------------------------------------------------------------------------


def upsertion(
    name: str, mechanism: int = 2, iterations: int = 4096, salt: bytes = b"saltsalt", salted: bytes = b"x" * 64
) -> Any:
    return wire.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name, mechanism, iterations, salt, salted)


def deletion(name: str, mechanism: int = 2) -> Any:
    return wire.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name, mechanism)


async def alter(client: FrameClient, deletions: list[Any], upsertions: list[Any]) -> list[tuple[str, int]]:
    answer = await client.ask(wire.AlterUserScramCredentialsRequest(deletions, upsertions), 0)
    return [(result.user, result.error_code) for result in answer.results]


async def test_users_are_made_described_and_deleted(broker: Broker) -> None:
    client = await broker.client()
    salted = salted_password("SCRAM-SHA-512", "pencil", b"saltsalt", 5000)
    assert await alter(
        client, [], [upsertion("bob", 2, 5000, salted=salted), upsertion("bob", 1, salted=b"y" * 32)]
    ) == [("bob", 0)]
    stored = ScramCredential.parse("SCRAM-SHA-512", broker.services.users["bob"]["SCRAM-SHA-512"])
    assert stored == make_credential("SCRAM-SHA-512", "pencil", b"saltsalt", 5000)
    user = wire.DescribeUserScramCredentialsRequest.UserName
    for asked in (None, [], [user("bob")]):
        answer = await client.ask(wire.DescribeUserScramCredentialsRequest(asked), 0)
        (result,) = answer.results
        assert (result.user, result.error_code) == ("bob", 0)
        assert [(info.mechanism, info.iterations) for info in result.credential_infos] == [(1, 4096), (2, 5000)]
    answer = await client.ask(wire.DescribeUserScramCredentialsRequest([user("eve"), user("bob"), user("bob")]), 0)
    nobody = "Attempt to describe a user credential that does not exist: eve"
    twice = "Cannot describe SCRAM credentials for the same user twice in a single request: bob"
    assert [(result.user, result.error_code, result.error_message) for result in answer.results] == [
        ("eve", ErrorCode.RESOURCE_NOT_FOUND, nobody),
        ("bob", ErrorCode.DUPLICATE_RESOURCE, twice),
    ]
    assert await alter(client, [deletion("bob", 2)], []) == [("bob", 0)]
    assert sorted(broker.services.users["bob"]) == ["SCRAM-SHA-256"]


async def test_what_is_refused_of_users(broker: Broker) -> None:
    client = await broker.client()
    cases = [
        ([], [upsertion("u", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion("u", iterations=16_385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion("u", salted=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion("u", salt=b"abc")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion("u", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([deletion("u", 0)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([deletion("u")], [upsertion("u")], ErrorCode.DUPLICATE_RESOURCE),
        ([deletion("u")], [], ErrorCode.RESOURCE_NOT_FOUND),
    ]
    for deletions, upsertions, code in cases:
        assert [each for _, each in await alter(client, deletions, upsertions)] == [code]
    assert not broker.services.users
    # Kafka takes these: short salts, and salted passwords of any length.
    assert await alter(client, [], [upsertion("u", salt=b"salt", salted=b"s" * 18)]) == [("u", ErrorCode.NONE)]


async def test_a_connection_that_has_not_logged_in_makes_room_for_a_new_one() -> None:
    """Or unauthenticated peers that reconnect whenever they are closed would keep every user out."""
    broker = Broker(max_connections=3)
    broker.services.security["PLAINTEXT"] = listener_security()
    await broker.start()
    try:
        user = await broker.client()
        await log_in(user)
        strangers = [await broker.client() for _ in range(2)]
        for stranger in strangers:
            other = await broker.client()
            assert (await log_in(other)).error_code == 0
            assert await stranger.reader.read() == b""
        assert (await user.ask(wire.MetadataRequest([]), 4)).brokers
        assert principals(broker) == [ALICE] * 3
        refused = await broker.client()
        assert await refused.reader.read() == b""
        assert principals(broker) == [ALICE] * 3
    finally:
        await broker.close()
