"""SASL on the RPC listener: who gets as far as a hello, and in whose name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import BrokerEpoch, BrokerId, Endpoint
from kafkalite.rpc.answers import RpcNotSent
from kafkalite.rpc.authenticated import AuthenticatedNetwork
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.framing import RpcFrameReader, encode_frame
from kafkalite.rpc.handling import Reply, RpcRequest
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import (
    ErrorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    HelloRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kafkalite.rpc.server import RpcServer
from kafkalite.security.dialling import Dialling
from kafkalite.security.principal import Principal
from kafkalite.security.sasl import MECHANISMS, ClientCredentials
from tests.support.security import PASSWORDS, listener_security

from .conftest import CLUSTER, PEER, Rig

#: Users that are nodes here.
NODES = frozenset({Principal("User", "node"), Principal("User", "alice")})
ONE_NODE = {"node_principals": frozenset({Principal("User", "node")})}
AS_NODE_2 = HelloRequest(CLUSTER, BrokerId(2), BrokerEpoch(5), client_id="node 2")


class Listener:
    """An RPC server that asks for SASL, and what it saw of its peers."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.seen: list[Principal] = []
        self.server: RpcServer
        self.endpoint: Endpoint

    async def start(self, **changes: Any) -> Listener:
        def heartbeat(request: RpcRequest) -> Reply:
            self.seen.append(request.peer.principal)
            return Reply(HeartbeatResponse())

        security = listener_security(**{"node_principals": NODES, **changes})
        self.server, self.endpoint = await self.rig.serve({HeartbeatRequest: heartbeat}, security=security)
        return self

    async def connect(
        self, user: str, password: str | None = None, mechanism: str = "SCRAM-SHA-512", hello: HelloRequest = PEER
    ) -> RpcConnection:
        credentials = ClientCredentials(mechanism, user, PASSWORDS.get(user, "") if password is None else password)
        network = AuthenticatedNetwork(self.rig.network, Dialling(None, credentials), os.urandom)
        connection = await RpcConnection.open(
            network, self.endpoint, hello, supervisor=self.rig.supervisor, timeout_s=150
        )
        self.rig.connections.append(connection)
        return connection

    async def raw(self, *messages: Message) -> list[Message]:
        """What a peer that sends just these hears until the server closes."""
        reader, writer = await self.rig.dial(self.endpoint)
        for number, message in enumerate(messages, 1):
            writer.writelines(encode_frame(number, message))
        frames = RpcFrameReader(max_frame_bytes=1 << 20)
        heard: list[Message] = []
        async with asyncio.timeout(150):
            while data := await reader.read(1 << 16):
                for frame in frames.feed(data):
                    kind = {1: ErrorResponse, 5: SaslAuthenticateResponse}[frame.kind]
                    heard.append(kind(*frame.fields))
        return heard


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_node_proves_who_it_is(rig: Rig, mechanism: str) -> None:
    listener = await Listener(rig).start()
    connection = await listener.connect("alice", mechanism=mechanism)
    await connection.call(HeartbeatRequest(), timeout_s=150)
    assert listener.seen == [Principal("User", "alice")]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_and_an_unknown_user_hear_the_same(rig: Rig, mechanism: str) -> None:
    """The log tells them apart, in one line each; a name that nobody has is not written down (it may be a password)."""
    listener = await Listener(rig).start()
    heard = []
    with capture_logs() as lines:
        for user in ("alice", "my password"):
            with pytest.raises(ApiError) as refused:
                await listener.connect(user, "wrong", mechanism)
            heard.append((refused.value.code, str(refused.value)))
    assert heard[0] == heard[1]
    assert heard[0][0] is ErrorCode.SASL_AUTHENTICATION_FAILED
    told = [(line["event"], line["user"], line["reason"]) for line in lines if line["log_level"] != "debug"]
    assert told == [
        ("authentication.failed", "alice", "wrong password"),
        ("authentication.failed", "", "unknown user"),
    ]
    assert 'wrong"' not in str(lines)
    assert "my password" not in str(lines)


async def test_no_hello_before_the_authentication(rig: Rig) -> None:
    listener = await Listener(rig).start()
    with pytest.raises(ApiError, match="authenticate first") as refused:
        await rig.connect(listener.endpoint)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(ApiError, match="authenticate first"):
        await rig.connect(listener.endpoint, AS_NODE_2)


async def test_only_a_node_says_hello_as_one(rig: Rig) -> None:
    listener = await Listener(rig).start(**ONE_NODE)
    with pytest.raises(ApiError, match="User:alice is not a node") as refused:
        await listener.connect("alice", hello=AS_NODE_2)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    connection = await listener.connect("node", hello=AS_NODE_2)
    await connection.call(HeartbeatRequest(), timeout_s=150)
    assert listener.seen == [Principal("User", "node")]


async def test_out_of_turn(rig: Rig) -> None:
    """Another mechanism halfway, one that is not offered, a proof without a beginning, anything after the end."""
    listener = await Listener(rig).start()
    first = SaslAuthenticateRequest("SCRAM-SHA-512", "n,,n=alice,r=x")
    plain = SaslAuthenticateRequest("PLAIN", "\0alice\0in wonderland")
    cases: list[tuple[tuple[Message, ...], ErrorCode]] = [
        ((first, plain), ErrorCode.ILLEGAL_SASL_STATE),
        ((first, first), ErrorCode.SASL_AUTHENTICATION_FAILED),
        ((SaslAuthenticateRequest("GSSAPI", ""),), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ((plain, plain), ErrorCode.ILLEGAL_SASL_STATE),
        ((SaslAuthenticateRequest("SCRAM-SHA-256", "c=biws,r=x,p=AAAA"),), ErrorCode.SASL_AUTHENTICATION_FAILED),
    ]
    for messages, code in cases:
        last = (await listener.raw(*messages, HelloRequest("", BrokerId(-1), BrokerEpoch(-1))))[-1]
        assert isinstance(last, SaslAuthenticateResponse)
        assert last.error == code, messages


async def test_what_was_sent_is_not_in_the_log_when_it_makes_no_sense(rig: Rig) -> None:
    listener = await Listener(rig).start()
    reader, writer = await rig.dial(listener.endpoint)
    frame = b"".join(encode_frame(1, SaslAuthenticateRequest("PLAIN", "x")))
    with capture_logs() as lines:
        writer.write(frame.replace(b"\xa1x", b"\xa1\xff"))
        assert await reader.read() == b""
    assert [line["reason"] for line in lines if line["event"] == "rpc.closed"]
    assert "secret" not in repr(SaslAuthenticateRequest("PLAIN", "secret")) + str(lines)


async def test_a_listener_that_asks_for_nothing_takes_no_authentication(rig: Rig) -> None:
    listener = Listener(rig)
    _, listener.endpoint = await rig.serve({})
    with pytest.raises(RpcNotSent):
        await listener.connect("alice")


async def test_who_does_not_authenticate_in_time_is_closed(rig: Rig) -> None:
    listener = await Listener(rig).start()
    reader, writer = await rig.dial(listener.endpoint)
    writer.writelines(encode_frame(1, SaslAuthenticateRequest("SCRAM-SHA-512", "n,,n=alice,r=x")))
    assert await reader.read(1)
    for connection in listener.server.connections.values():
        connection.check_deadlines(asyncio.get_running_loop().time() + 11)
    async with asyncio.timeout(150):
        with pytest.raises(ConnectionError):
            while await reader.read(1 << 16):
                pass
            raise ConnectionError


async def test_on_the_way_from_plain_text_all_are_let_in(rig: Rig) -> None:
    """security.transition: without a proof as before, with one as the user of that proof; a proof that does not hold is one."""
    listener = await Listener(rig).start(is_optional=True, **ONE_NODE)
    for connection in (
        await rig.connect(listener.endpoint),
        await rig.connect(listener.endpoint, AS_NODE_2),
        await listener.connect("node", hello=AS_NODE_2),
    ):
        await connection.call(HeartbeatRequest(), timeout_s=150)
    assert [principal.name for principal in listener.seen] == ["ANONYMOUS", "ANONYMOUS", "node"]
    with pytest.raises(ApiError, match="not a node"):
        await listener.connect("alice", hello=AS_NODE_2)
    with pytest.raises(ApiError):
        await listener.connect("alice", "wrong")
    begun = SaslAuthenticateRequest("SCRAM-SHA-512", "n,,n=alice,r=x")
    heard = await listener.raw(begun, HelloRequest("", BrokerId(-1), BrokerEpoch(-1)))
    assert isinstance(heard[-1], ErrorResponse)
