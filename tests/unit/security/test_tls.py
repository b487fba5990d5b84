"""TLS listeners on real sockets, on asyncio and on uvloop: who is let in, who is not, and what it costs the others."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs

from kafkalite.env import handshakes
from kafkalite.env.handshakes import TlsListener
from kafkalite.env.real_network import RealNetwork
from kafkalite.errors import ConfigError
from kafkalite.model import Endpoint
from kafkalite.rpc.answers import RpcDisconnected
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.connection import HeartbeatRequest
from kafkalite.security.tls import ClientTls, ServerTls, TlsFiles, describe, own_name, peer_name
from kafkalite.testing.certificates import Authority

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> TlsFiles:
    return TlsFiles(authority.issue("node", subject="/C=DE/O=example/CN=node"), authority.truststore)


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


class Echo:
    """A TLS listener that sends the peer's name, then echoes."""

    def __init__(self, tls: ServerTls) -> None:
        self.fatal: list[BaseException] = []
        self.network = RealNetwork(self.fatal.append)
        self._tls = tls

    async def __aenter__(self) -> Echo:
        listener = await self.network.listen("127.0.0.1", 0, self._serve, self._tls)
        assert isinstance(listener, TlsListener)
        self.listener = listener
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.listener.close()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not self.fatal

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(peer_name(writer.get_extra_info("ssl_object")).encode() + b"\n")
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()

    async def ask(self, tls: ClientTls | None, host: str = "127.0.0.1", size: int = 100_000) -> str:
        """Who the listener says we are. Raises OSError, EOFError."""
        reader, writer = await self.network.dial(host, self.listener.port, tls)
        try:
            writer.write(b"x" * size)
            name = await reader.readexactly(1)
            while not name.endswith(b"\n"):
                name += await reader.readexactly(1)
            assert await reader.readexactly(size) == b"x" * size
            return name.decode().strip()
        finally:
            writer.transport.abort()


def test_one_way_and_mutual(authority: Authority, node: TlsFiles, run: Callable[[Any], Any]) -> None:
    alice = authority.issue("alice", subject="/O=example/CN=alice")
    trusting = TlsFiles(truststore=authority.truststore)
    known = TlsFiles(alice, authority.truststore)

    async def go() -> None:
        async with Echo(ServerTls(node)) as echo:
            assert await echo.ask(ClientTls(trusting)) == ""
            assert await echo.ask(ClientTls(known)) == ""
        async with Echo(ServerTls(node, "requested")) as echo:
            assert await echo.ask(ClientTls(trusting)) == ""
            assert await echo.ask(ClientTls(known)) == "CN=alice,O=example"
        async with Echo(ServerTls(node, "required")) as echo:
            assert await echo.ask(ClientTls(known)) == "CN=alice,O=example"
            with capture_logs() as lines, pytest.raises((OSError, EOFError)):
                await echo.ask(ClientTls(trusting))
            assert [line["reason"] for line in lines] == ["peer did not return a certificate"]

    run(go())


def test_who_is_refused(tmp_path: Path, authority: Authority, node: TlsFiles, run: Callable[[Any], Any]) -> None:
    """Wrong authority, expired, a name of another host, plain text: the listener tells once, and serves the others."""
    others = Authority(tmp_path / "other", "another authority")
    good = ClientTls(TlsFiles(authority.issue("good"), authority.truststore))
    strangers = {
        "stranger": TlsFiles(others.issue("stranger"), authority.truststore),
        "expired": TlsFiles(authority.issue("expired", is_expired=True), authority.truststore),
    }

    async def go() -> None:
        async with Echo(ServerTls(node, "required")) as echo:
            for name, files in strangers.items():
                with capture_logs() as lines:
                    for _ in range(3):
                        with pytest.raises((OSError, EOFError)):
                            await echo.ask(ClientTls(files))
                assert len(lines) == 1, lines
                assert ("expired" in lines[0]["reason"]) == (name == "expired")
            with capture_logs() as lines, pytest.raises((OSError, EOFError)):
                await echo.ask(None)
            assert len(lines) == 1
            assert await echo.ask(good) == "CN=good"
            with pytest.raises(ssl.SSLCertVerificationError):
                await echo.ask(ClientTls(TlsFiles(truststore=others.truststore)))
        elsewhere = TlsFiles(authority.issue("elsewhere", hosts=("DNS:elsewhere.example",)), authority.truststore)
        async with Echo(ServerTls(elsewhere)) as echo:
            with pytest.raises(ssl.SSLCertVerificationError):
                await echo.ask(good)
            assert await echo.ask(ClientTls(good.files, check_hostname=False)) == ""
        async with Echo(ServerTls(strangers["expired"])) as echo:
            with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
                await echo.ask(good)

    run(go())


def test_old_protocols_are_not_spoken(authority: Authority, node: TlsFiles) -> None:
    assert ServerTls(node).context().minimum_version is ssl.TLSVersion.TLSv1_2
    assert ClientTls(node).context().minimum_version is ssl.TLSVersion.TLSv1_2


def test_certificates_are_read_again(tmp_path: Path, authority: Authority, run: Callable[[Any], Any]) -> None:
    """A new handshake takes the new ones; files that are no good leave the last good ones in force."""
    keystore = tmp_path / "node.pem"

    def replace(name: str) -> None:
        keystore.write_bytes(Path(authority.issue(name)).read_bytes())

    replace("first")
    files = TlsFiles(str(keystore), authority.truststore)

    async def go() -> None:
        tls, dialling = ServerTls(files), ClientTls(TlsFiles(truststore=authority.truststore))
        async with Echo(tls) as echo:

            async def shown() -> str:
                _, writer = await echo.network.dial("127.0.0.1", echo.listener.port, dialling)
                name = peer_name(writer.get_extra_info("ssl_object"))
                writer.transport.abort()
                return name

            assert await shown() == "CN=first"
            replace("second-one")
            assert await shown() == "CN=second-one"
            with capture_logs() as lines:
                keystore.write_bytes(b"half a certificate")
                assert await shown() == "CN=second-one"
                assert await shown() == "CN=second-one"
            assert [line["event"] for line in lines] == ["tls.not_reloaded"]
            assert str(keystore) in tls.complaint
            replace("third-one")
            assert await shown() == "CN=third-one"
            assert tls.complaint == ""

    run(go())


@pytest.mark.parametrize("problem", ["missing", "no key", "wrong password"])
def test_what_cannot_be_used_is_told_at_once(tmp_path: Path, authority: Authority, problem: str) -> None:
    if problem == "missing":
        files = TlsFiles(str(tmp_path / "none.pem"))
    elif problem == "no key":
        files = TlsFiles(authority.truststore)
    else:
        files = TlsFiles(authority.issue("sealed", password="correct horse"), key_password="wrong horse")
    with pytest.raises(ConfigError, match="TLS: ") as refused:
        ServerTls(files).context()
    assert "horse" not in str(refused.value) + repr(files)


def test_an_encrypted_key(authority: Authority) -> None:
    keystore = authority.issue("locked", password="correct horse")
    assert own_name(TlsFiles(keystore, authority.truststore, "correct horse")) == "CN=locked"


def test_our_own_name(tmp_path: Path, authority: Authority, node: TlsFiles) -> None:
    assert own_name(node) == "CN=node,O=example,C=DE"
    other = Authority(tmp_path, "another authority")
    with pytest.raises(ConfigError, match="does not verify"):
        own_name(TlsFiles(node.keystore, other.truststore))


def test_every_certificate_in_a_truststore_is_trusted(authority: Authority) -> None:
    """As in Java's: not only authorities that are their own issuers."""
    keystore = authority.issue("pinned")
    assert own_name(TlsFiles(keystore, truststore=keystore)) == "CN=pinned"
    with pytest.raises(ConfigError, match="does not verify"):
        own_name(TlsFiles(authority.issue("not pinned"), truststore=keystore))
    expired = authority.issue("pinned and expired", is_expired=True)
    with pytest.raises(ConfigError, match="expired"):
        own_name(TlsFiles(expired, truststore=expired))


def test_half_handshakes_cost_nobody_else(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, node: TlsFiles, run: Callable[[Any], Any]
) -> None:
    """Many connections that say nothing, or half a hello: their number is limited, the others are served, and the
    log stays short."""
    monkeypatch.setattr(handshakes, "MAX_HANDSHAKES", 20)

    async def go() -> None:
        async with Echo(ServerTls(node)) as echo:
            silent = []
            with capture_logs() as lines:
                for number in range(300):
                    silent.append(socket.create_connection(("127.0.0.1", echo.listener.port)))
                    if number % 2:
                        silent[-1].sendall(b"\x16\x03\x01\x02\x00\x01")
                    if number % 50 == 49:
                        assert await echo.ask(ClientTls(TlsFiles(truststore=authority.truststore)), size=10) == ""
                poll = (
                    select.poll()
                )  # select() takes no descriptor above 1,023, which a process with many tests may have
                for each in silent:
                    poll.register(each, select.POLLIN)
                ended = poll.poll(0)
                assert 0 < len(silent) - len(ended) <= 20
            assert len(lines) == 1
            for each in silent:
                each.close()

    run(go())


def test_both_on_one_port_on_the_way(authority: Authority, node: TlsFiles, run: Callable[[Any], Any]) -> None:
    """security.transition: who begins with TLS gets it, who does not goes without; who says nothing is closed."""

    async def go() -> None:
        async with Echo(ServerTls(node, takes_plain=True)) as echo:
            assert await echo.ask(ClientTls(TlsFiles(truststore=authority.truststore))) == ""
            assert await echo.ask(None) == ""
            silent = [socket.create_connection(("127.0.0.1", echo.listener.port)) for _ in range(3)]
            assert await echo.ask(None) == ""  # the others were accepted before it
        for each in silent:
            each.settimeout(20)
            assert each.recv(1) == b""
            each.close()

    run(go())


def test_a_request_whose_connection_is_reset_fails_at_once(
    run: Callable[[Any], Any], node: TlsFiles, authority: Authority
) -> None:
    """asyncio's transport over TLS that is closed a second time does not know any more what it holds."""

    async def go() -> None:
        accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.put_nowait(writer)
            await reader.read()

        network = RealNetwork()
        listener = await network.listen("127.0.0.1", 0, serve, ServerTls(node))
        tls = ClientTls(TlsFiles("", authority.truststore))
        reader, writer = await network.dial("127.0.0.1", listener.port, tls)
        connection = RpcConnection(reader, writer, Endpoint("127.0.0.1", listener.port), max_frame_bytes=1024)
        reading = asyncio.ensure_future(connection._read())
        answer = connection.send_nowait(HeartbeatRequest())
        served = await accepted.get()
        linger = struct.pack("ii", 1, 0)
        served.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        served.transport.abort()
        await asyncio.wait([reading])
        assert answer.done()
        with pytest.raises(RpcDisconnected):
            await answer
        await listener.close()

    run(go())


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(24, "Too many open files")])
def test_a_file_that_could_not_be_opened_is_tried_again(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """A renewed certificate with the wrong permissions: chmod changes neither its time nor its size."""
    path = tmp_path / "node.pem"
    path.write_bytes(Path(authority.issue("before")).read_bytes())
    tls = ServerTls(TlsFiles(str(path), authority.truststore))
    before = tls.context()
    path.write_bytes(Path(authority.issue("afterwards")).read_bytes())

    def refuse(*_: object) -> ssl.SSLContext:
        raise error

    with monkeypatch.context() as denied:
        denied.setattr(TlsFiles, "load_into", refuse)
        with capture_logs() as logged:
            assert tls.context() is tls.context() is before
        assert [each["event"] for each in logged] == ["tls.not_reloaded"]
    assert tls.context() is not before


def test_a_password_that_no_key_can_have(authority: Authority) -> None:
    with pytest.raises(ConfigError, match="password"):
        ServerTls(TlsFiles(authority.issue("shut", password="horse"), authority.truststore, "x" * 2000)).context()


def _shaken_again(
    listener: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[bool, ssl.SSLSession | None]:
    """A handshake that offers this session and is ended in both directions: whether it was resumed, and the session of the client."""
    to_listener, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_listener, session=session)
    theirs = listener.wrap_bio(to_listener, to_client, server_side=True)
    for step in ("do_handshake", "unwrap"):
        for side in (ours, theirs, ours, theirs, ours):
            with contextlib.suppress(ssl.SSLError):
                getattr(side, step)()
        session = session if step == "unwrap" else ours.session
    return bool(theirs.session_reused), session


def test_a_session_of_tls_12_is_not_resumed_after_a_second(authority: Authority, node: TlsFiles) -> None:
    """A certificate counts at each handshake, also one that has expired since the last."""
    tls = ServerTls(node, "required")
    client = ClientTls(TlsFiles(authority.issue("again"), authority.truststore), check_hostname=False).context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    is_resumed, session = _shaken_again(tls.context_at(0.0), client, None)
    assert not is_resumed
    kept = tls.context_at(1.0)
    assert _shaken_again(kept, client, session)[0] is False
    assert tls.context_at(1.5) is kept  # many handshakes in one second do not make a context each
    assert tls.context_at(2.0) is not kept
    client.maximum_version = ssl.TLSVersion.TLSv1_3
    new = tls.context_at(3.0)
    _shaken_again(new, client, None)
    assert tls.context_at(9.0) is new


def test_a_context_is_kept_if_the_files_are_gone(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ServerTls(TlsFiles(authority.issue("kept"), authority.truststore))
    client = ClientTls(TlsFiles("", authority.truststore), check_hostname=False).context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    context = tls.context_at(0.0)
    _shaken_again(context, client, None)

    def refuse(*_: object) -> ssl.SSLContext:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(TlsFiles, "load_into", refuse)
    assert tls.context_at(2.0) is context


def test_a_listener_does_not_resume_sessions(
    authority: Authority, node: TlsFiles, run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.security.tls._CONTEXT_S", 0.0)
    context = ClientTls(TlsFiles("", authority.truststore), check_hostname=False).context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def ask(port: int, session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None]:
        plain = socket.create_connection(("127.0.0.1", port))
        with context.wrap_socket(plain, session=session, server_hostname="127.0.0.1") as connection:
            connection.recv(1)  # the name of nobody: the listener serves the connection
            answer = bool(connection.session_reused), connection.session
            connection.unwrap().close()
            return answer

    async def go() -> None:
        async with Echo(ServerTls(node)) as echo:
            _, session = await asyncio.to_thread(ask, echo.listener.port, None)
            assert session is not None
            assert not (await asyncio.to_thread(ask, echo.listener.port, session))[0]

    run(go())


def test_why_a_handshake_failed_is_said_in_words(node: TlsFiles) -> None:
    """The log said "wrong version number" of a client in plain text, and "ConnectionResetError" of one that has refused the certificate."""
    for plain in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x14\0\x12\0\3" + bytes(16)):
        incoming = ssl.MemoryBIO()
        incoming.write(plain)
        side = ServerTls(node).context().wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
        with pytest.raises(ssl.SSLError) as refused:
            side.do_handshake()
        assert describe(refused.value) == "the peer does not speak TLS"
    assert describe(ConnectionResetError()).startswith("the peer has closed the connection")
