"""Sessions on the RPC listener that end unless renewed (KIP-368), and credentials that change while a connection is open."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kafkalite.env.seams import Network
from kafkalite.errors import ErrorCode
from kafkalite.model import Endpoint
from kafkalite.rpc.answers import RpcNotSent
from kafkalite.rpc.authenticated import AuthenticatedNetwork, SaslExchange
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.framing import RpcFrameReader, encode_frame
from kafkalite.rpc.handling import Handler, Reply, RpcRequest
from kafkalite.rpc.logins import RENEWED_AFTER
from kafkalite.rpc.messages.base import Message, by_kind
from kafkalite.rpc.messages.connection import (
    ErrorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    HelloResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kafkalite.rpc.messages.replication import ReplicaFetchWake
from kafkalite.rpc.server import RpcServer
from kafkalite.security.dialling import Dialling
from kafkalite.security.sasl import ClientCredentials
from kafkalite.security.scram import ScramCredential, make_credential
from tests.support.failing import fails_with
from tests.support.security import CREDENTIALS, PASSWORDS, listener_security
from tests.support.waiting import until

from .conftest import PEER, Rig
from .test_authentication import AS_NODE_2, NODES

MECHANISM = "SCRAM-SHA-512"


class Listener:
    """A SASL listener whose heartbeats wait for `release`, if it is set."""

    def __init__(self, rig: Rig, **changes: Any) -> None:
        self.rig = rig
        self.credentials: dict[tuple[str, str], ScramCredential] = dict(CREDENTIALS)
        self.security = listener_security(credentials=self.credentials, **{"node_principals": NODES, **changes})
        self.release: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.served = 0
        self.server: RpcServer
        self.endpoint: Endpoint

    async def start(self) -> Listener:
        async def later(event: asyncio.Event) -> Reply:
            await event.wait()
            return Reply(HeartbeatResponse())

        def heartbeat(request: RpcRequest) -> Any:
            self.served += 1
            self.begun.set()
            return Reply(HeartbeatResponse()) if self.release is None else later(self.release)

        handlers: dict[type[Message], Handler] = {HeartbeatRequest: heartbeat, ReplicaFetchWake: heartbeat}
        self.server, self.endpoint = await self.rig.serve(handlers, security=self.security)
        return self

    def network(self, user: str) -> Network:
        credentials = ClientCredentials(MECHANISM, user, PASSWORDS[user])
        return AuthenticatedNetwork(self.rig.network, Dialling(None, credentials), bytes)

    async def connect(self, user: str = "alice") -> RpcConnection:
        hello = AS_NODE_2 if user == "node" else PEER
        connection = await RpcConnection.open(
            self.network(user), self.endpoint, hello, supervisor=self.rig.supervisor, timeout_s=150
        )
        self.rig.connections.append(connection)
        return connection

    def end_sessions(self) -> None:
        for connection in self.server.connections.values():
            assert connection._admission is not None
            connection._admission.ends_at = asyncio.get_running_loop().time() - 1


class Raw:
    """A peer that sends what it likes, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = RpcFrameReader(max_frame_bytes=1 << 20)
        self._heard: list[Message] = []
        self._number = 0

    @classmethod
    async def logged_in(cls, listener: Listener) -> Raw:
        raw = cls(*await listener.rig.dial(listener.endpoint))
        await raw.log_in("alice")
        raw.send(PEER)
        assert isinstance(await raw.receive(), HelloResponse)
        return raw

    def send(self, *messages: Message) -> None:
        for message in messages:
            self._number += 1
            self._writer.writelines(encode_frame(self._number, message))

    async def receive(self) -> Message | None:
        """The next answer; None: the server has closed."""
        async with asyncio.timeout(150):
            while not self._heard:
                data = await self._reader.read(1 << 16)
                if not data:
                    return None
                self._heard += [by_kind[frame.kind](*frame.fields) for frame in self._frames.feed(data)]
        return self._heard.pop(0)

    async def log_in(self, user: str, password: str | None = None) -> SaslAuthenticateResponse:
        exchange = SaslExchange(
            MECHANISM, ClientCredentials(MECHANISM, user, password or PASSWORDS[user]).client(bytes)
        )
        answer: Message | None = None
        while exchange.request is not None:
            self.send(exchange.request)
            answer = await self.receive()
            assert isinstance(answer, SaslAuthenticateResponse)
            if answer.error:
                return answer
            exchange.answered(answer)
        assert isinstance(answer, SaslAuthenticateResponse)
        return answer


async def test_the_login_answer_tells_how_long(rig: Rig) -> None:
    raw = Raw(*await rig.dial((await Listener(rig, max_reauth_ms=60_000).start()).endpoint))
    assert (await raw.log_in("alice")).session_lifetime_ms == 60_000
    raw = Raw(*await rig.dial((await Listener(rig).start()).endpoint))
    assert (await raw.log_in("alice")).session_lifetime_ms == 0


async def test_a_client_renews_its_session_between_requests(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pause in what it asks, on one connection, and while answers are outstanding."""
    loop = asyncio.get_running_loop()
    real, later_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + later_s)
    listener = await Listener(rig, max_reauth_ms=600_000).start()
    connection = await listener.connect()
    for logins in range(2, 6):
        later_s += 600 * RENEWED_AFTER[1] + 1  # it is time to renew, and the session has not ended
        while listener.security.succeeded < logins:
            listener.release = asyncio.Event()
            futures = [connection.send_nowait(HeartbeatRequest()) for _ in range(20)]
            await asyncio.sleep(0.02)
            listener.release.set()
            for future in futures:
                await future
    assert not connection.closed
    assert len(listener.server.connections) == 1


async def test_a_client_that_never_logs_in_again(rig: Rig) -> None:
    """It hears so, after the responses to what it has asked in time; nothing is served any more."""
    listener = await Listener(rig, max_reauth_ms=60_000).start()
    raw = await Raw.logged_in(listener)
    listener.release = asyncio.Event()
    raw.send(HeartbeatRequest())
    await listener.begun.wait()
    listener.end_sessions()
    raw.send(HeartbeatRequest(), HeartbeatRequest())
    await until(lambda: all(connection._ending for connection in listener.server.connections.values()))
    listener.release.set()
    assert isinstance(await raw.receive(), HeartbeatResponse)
    told = await raw.receive()
    assert isinstance(told, ErrorResponse)
    assert told.error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert told.message == "the session has ended after 60000 ms and was not renewed; log in again"
    assert await raw.receive() is None
    assert listener.served == 1


async def test_what_expects_no_answer_gets_none_when_the_session_has_ended(rig: Rig) -> None:
    listener = await Listener(rig, max_reauth_ms=60_000).start()
    raw = await Raw.logged_in(listener)
    listener.end_sessions()
    raw.send(ReplicaFetchWake(1))
    assert await raw.receive() is None
    assert listener.served == 0


async def test_an_answer_that_does_not_come_keeps_no_ended_session_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.rpc.server_connection.LAST_WORDS_S", 0.05)
    listener = await Listener(rig, max_reauth_ms=60_000).start()
    raw = await Raw.logged_in(listener)
    listener.release = asyncio.Event()
    raw.send(HeartbeatRequest())
    await listener.begun.wait()
    listener.end_sessions()
    raw.send(HeartbeatRequest())
    assert await raw.receive() is None
    listener.release.set()


async def test_a_login_after_the_end_is_taken(rig: Rig) -> None:
    listener = await Listener(rig, max_reauth_ms=60_000).start()
    raw = await Raw.logged_in(listener)
    listener.end_sessions()
    assert (await raw.log_in("alice")).session_lifetime_ms == 60_000
    raw.send(HeartbeatRequest())
    assert isinstance(await raw.receive(), HeartbeatResponse)


@pytest.mark.parametrize(
    ("user", "password", "text"),
    [
        ("node", None, "a connection logs in again as the same user only"),
        ("alice", "wrong", "authentication failed: invalid credentials"),
    ],
)
async def test_another_user_or_a_wrong_password_ends_the_connection(
    rig: Rig, user: str, password: str | None, text: str
) -> None:
    listener = await Listener(rig, max_reauth_ms=60_000).start()
    raw = await Raw.logged_in(listener)
    refused = await raw.log_in(user, password)
    assert (refused.error, refused.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert await raw.receive() is None
    assert listener.security.failed == 1


async def test_nothing_is_served_behind_a_login_that_fails(rig: Rig) -> None:
    listener = await Listener(rig, max_reauth_ms=60_000, failed_delay_ms=50).start()
    raw = await Raw.logged_in(listener)
    raw.send(SaslAuthenticateRequest(MECHANISM, "nonsense"), HeartbeatRequest())
    refused = await raw.receive()
    assert isinstance(refused, SaslAuthenticateResponse)
    assert refused.error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await raw.receive() is None
    assert listener.served == 0


async def test_another_mechanism_or_no_end_of_the_session(rig: Rig) -> None:
    for max_reauth_ms, mechanism in ((60_000, "PLAIN"), (0, MECHANISM)):
        listener = await Listener(rig, max_reauth_ms=max_reauth_ms).start()
        raw = await Raw.logged_in(listener)
        raw.send(SaslAuthenticateRequest(mechanism, "n,,n=alice,r=x"))
        refused = await raw.receive()
        assert isinstance(refused, SaslAuthenticateResponse)
        assert refused.error == ErrorCode.ILLEGAL_SASL_STATE
        assert await raw.receive() is None


async def test_requests_wait_for_the_login_where_it_comes_too_late(rig: Rig) -> None:
    """The process was stopped for longer than its session lasted: nothing goes out before the login."""
    listener = await Listener(rig, max_reauth_ms=60_000).start()
    connection = await listener.connect()
    login = connection._login
    assert login is not None
    login.renewed(asyncio.get_running_loop().time() - 100, 60)
    listener.end_sessions()
    # The server would refuse it if it came before the login.
    await connection.call(HeartbeatRequest(), timeout_s=150)
    assert listener.security.succeeded == 2
    assert not connection.closed


async def test_a_client_whose_password_has_changed_is_cut(rig: Rig) -> None:
    """At its next login; what it asks meanwhile is not executed unknown to it, and dialling again tells why."""
    listener = await Listener(rig, max_reauth_ms=200).start()
    connection = await listener.connect()
    listener.credentials[MECHANISM, "alice"] = make_credential(MECHANISM, "another", b"salt and pepper")
    await until(lambda: connection.closed)
    with pytest.raises(RpcNotSent):
        connection.send_nowait(HeartbeatRequest())
    with fails_with(ErrorCode.SASL_AUTHENTICATION_FAILED):
        await listener.connect()


async def test_what_comes_after_the_end_was_not_executed(rig: Rig) -> None:
    """It counts as "not sent": the caller dials again and repeats it, whatever it is."""
    listener = await Listener(rig, max_reauth_ms=60_000).start()
    connection = await listener.connect()
    listener.end_sessions()
    with pytest.raises(RpcNotSent, match="was not renewed"):
        await connection.call(HeartbeatRequest(), timeout_s=150)
    assert listener.served == 0


async def test_a_credential_that_changes_during_the_login_does_not_count(rig: Rig) -> None:
    # (Of a node the old one counts until its next login: its user is not one.)
    listener = await Listener(rig, node_principals=frozenset()).start()
    raw = Raw(*await rig.dial(listener.endpoint))
    exchange = SaslExchange(MECHANISM, ClientCredentials(MECHANISM, "alice", PASSWORDS["alice"]).client(bytes))
    assert exchange.request is not None
    raw.send(exchange.request)
    answer = await raw.receive()
    assert answer is not None
    exchange.answered(answer)
    before = listener.credentials[MECHANISM, "alice"]
    listener.credentials[MECHANISM, "alice"] = replace(before, iterations=before.iterations + 1)
    raw.send(exchange.request)
    refused = await raw.receive()
    assert isinstance(refused, SaslAuthenticateResponse)
    assert refused.error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await raw.receive() is None
