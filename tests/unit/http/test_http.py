"""Who may see the pages of a node: what is refused, what is accepted, and what strangers cost."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from kafkalite.config import broker_config
from kafkalite.coordination.scram_users import alter_user
from kafkalite.env.real import RealClock, real_env
from kafkalite.env.turns import Turns
from kafkalite.errors import ConfigError
from kafkalite.http import authentication as http_gate
from kafkalite.http import server as http_server
from kafkalite.http.authentication import AuthenticatedRequest, HttpAuthenticator, HttpPeer
from kafkalite.http.page import Page
from kafkalite.http.server import HttpServer, TreeRequest
from kafkalite.node.node import Node
from kafkalite.security.access import Access
from kafkalite.security.acl import CLUSTER_NAME, AclEntry, Binding, Operation, Pattern, Permission, ResourceType
from kafkalite.security.attempts import BURST
from kafkalite.security.http_login import Logins
from kafkalite.security.node_security import HttpSecurity
from kafkalite.security.principal import ANONYMOUS, Principal
from kafkalite.security.requirements import HTTP
from kafkalite.security.scram import make_credential
from kafkalite.testing.certificates import Authority
from kafkalite.testing.cluster import Cluster, cluster
from tests.support.browser import CHROMIUM, DRIVER, Browser
from tests.support.security import listener_security

PROTECTED = ("/", "/metrics", "/api/status", "/api/why?topic=t&partition=0")
USERS = {"node": "of the cluster", "admin": "may all", "watcher": "may look", "stranger": "may not"}


def login(user: str, password: str | None = None) -> dict[str, str]:
    text = f"{user}:{USERS[user] if password is None else password}"
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


Answer = tuple[int, dict[str, str], bytes]


def ask(running: Cluster, path: str, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None) -> Any:
    """(status, headers, body), off the loop."""
    endpoint = running.nodes[1].endpoints["http"]

    def call() -> Answer:
        kind = http.client.HTTPConnection if tls is None else http.client.HTTPSConnection
        options: dict[str, Any] = {} if tls is None else {"context": tls}
        connection = kind(endpoint.host, endpoint.port, timeout=30, **options)
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    return asyncio.to_thread(call)


async def statuses(
    running: Cluster, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> list[int]:
    return [(await ask(running, path, headers, tls))[0] for path in PROTECTED]


def settings(directory: Path, **more: Any) -> dict[str, Any]:
    """A cluster whose nodes prove who they are, with an authorizer; nothing is said of HTTP."""
    users = directory / "users"
    users.write_text("".join(f"{name}={password}\n" for name, password in USERS.items()))
    return {
        "rpc.security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.plain.users.location": str(users),
        "inter.broker.username": "node",
        "inter.broker.password": USERS["node"],
        "connection.failed.authentication.delay.ms": 1,
        "authorizer.enabled": True,
        "super.users": "User:admin",
        **more,
    }


async def allow(running: Cluster, principal: str) -> None:
    entry = AclEntry(principal, "*", Operation.DESCRIBE, Permission.ALLOW)
    binding = Binding(Pattern(ResourceType.CLUSTER, CLUSTER_NAME), entry)
    asked = AuthenticatedRequest(Principal("User", "admin"), "127.0.0.1", {})
    assert await running.nodes[1].rights.create_acls(asked, [binding]) == [None]


async def test_a_secured_node_of_which_nothing_is_said_for_http(tmp_path: Path) -> None:
    async with cluster(1, settings=settings(tmp_path)) as running:
        await allow(running, "User:watcher")
        assert await statuses(running) == [401] * 4
        _, headers, body = await ask(running, "/metrics")
        assert headers["www-authenticate"] == 'Basic realm="kafkalite", charset="UTF-8"'
        assert len(body) < 100
        # Who probes a process does not log in, and hears nothing of the cluster.
        assert (await ask(running, "/readyz"))[::2] == (200, b"ready\n")
        assert json.loads((await ask(running, "/healthz"))[2]) == {"id": 1}
        assert "problems" in json.loads((await ask(running, "/healthz", login("watcher")))[2])
        # The last page's topic does not exist.
        assert await statuses(running, login("watcher")) == [200, 200, 200, 404]
        assert await statuses(running, login("admin")) == [200, 200, 200, 404]
        assert await statuses(running, login("stranger")) == [403] * 4
        assert "problems" not in json.loads((await ask(running, "/healthz", login("stranger")))[2])
        with capture_logs() as lines:
            for password in ("wrong", "may loo", "may look!"):
                assert (await ask(running, "/metrics", login("watcher", password)))[0] == 401
            assert (await ask(running, "/readyz", login("watcher", "wrong")))[0] == 401
            for header in ("Bearer of-nothing", "Digest x", "Basic !"):
                assert (await ask(running, "/metrics", {"Authorization": header}))[0] == 401
        told = [line for line in lines if line["event"] == "authentication.failed"]
        assert [(line["user"], line["reason"], line["listener"]) for line in told] == [
            ("watcher", "wrong password", "http"),
            ("", "scheme not offered", "http"),  # Bearer
            ("", "scheme not offered", "http"),  # of a kind that is nowhere offered
            ("", "malformed name and password", "http"),
        ]
        assert "may loo" not in str(lines)
        found = await samples(running, login("watcher"))
        assert found["kafka_server_socketservermetrics_failed_authentication_total", "http"] == 7
        assert found["kafka_server_socketservermetrics_successful_authentication_total", "http"] > 5
        assert found["kafka_server_socketservermetrics_failed_authentication_total", "rpc"] == 0
        assert found["kafka_server_socketservermetrics_connectioncount", "http"] >= 1


async def samples(running: Cluster, headers: dict[str, str]) -> dict[tuple[str, ...], float]:
    _, _, body = await ask(running, "/metrics", headers)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


async def test_users_of_scram_log_in_too_and_not_after_they_are_gone(tmp_path: Path) -> None:
    async with cluster(1, settings=settings(tmp_path)) as running:
        await allow(running, "User:ann")
        node = running.nodes[1]
        assert (await ask(running, "/metrics", login("ann", "wonder")))[0] == 401
        made = make_credential("SCRAM-SHA-512", "wonder", b"saltsalt").text()
        zookeeper = await node.zookeeper.ordering()
        await alter_user(zookeeper, "ann", {"SCRAM-SHA-512": made})
        await until(lambda: bool(node.settings.configs.user("ann")))
        for _ in range(3):
            assert (await ask(running, "/metrics", login("ann", "wonder")))[0] == 200
        await alter_user(zookeeper, "ann", {"SCRAM-SHA-512": None})
        await until(lambda: not node.settings.configs.user("ann"))
        assert (await ask(running, "/metrics", login("ann", "wonder")))[0] == 401


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(150):
        while not condition():
            await asyncio.sleep(0.01)


async def test_plain_http_beside_an_authorizer_shows_nothing_to_nobody_known(tmp_path: Path) -> None:
    async with cluster(1, settings=settings(tmp_path, **{"http.security.protocol": "PLAINTEXT"})) as running:
        assert await statuses(running) == [403] * 4
        assert b"http.security.protocol" in (await ask(running, "/"))[2]
        assert (await ask(running, "/readyz"))[0] == 200
        await allow(running, "User:ANONYMOUS")  # somebody decided so
        assert await statuses(running) == [200, 200, 200, 404]


async def test_logins_without_an_authorizer_are_needed_all_the_same(tmp_path: Path) -> None:
    async with cluster(1, settings=settings(tmp_path, **{"authorizer.enabled": False})) as running:
        assert await statuses(running) == [401] * 4
        assert json.loads((await ask(running, "/healthz"))[2]) == {"id": 1}
        assert await statuses(running, login("stranger")) == [200, 200, 200, 404]


async def test_on_the_way_from_plain_text_both_are_taken(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    more = {
        "http.security.protocol": "SASL_SSL",
        "ssl.keystore.location": authority.issue("node"),
        "security.transition": "offer",
        "authorizer.enabled": False,
    }
    async with cluster(1, settings=settings(tmp_path, **more)) as running:
        assert await statuses(running) == [200, 200, 200, 404]
        trusting = ssl.create_default_context(cafile=authority.truststore)
        assert await statuses(running, login("watcher"), trusting) == [200, 200, 200, 404]
        assert (await ask(running, "/", login("watcher", "wrong"), trusting))[0] == 401


async def test_certificates_and_tokens_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    tokens = tmp_path / "tokens"
    tokens.write_text("scraper=t0ken-of-the-scraper\nidle=t0ken-of-another\n")
    more = {
        "http.security.protocol": "SASL_SSL",
        "http.ssl.client.auth": "requested",
        "http.bearer.tokens.location": str(tokens),
        "ssl.keystore.location": authority.issue("node"),
        "ssl.truststore.location": authority.truststore,
        "super.users": "User:CN=prometheus;User:scraper;User:admin",
    }
    async with cluster(1, settings=settings(tmp_path, **more)) as running:

        def context(keystore: str = "") -> ssl.SSLContext:
            made = ssl.create_default_context(cafile=authority.truststore)
            if keystore:
                made.load_cert_chain(keystore)
            return made

        assert await statuses(running, None, context()) == [401] * 4
        assert await statuses(running, None, context(authority.issue("prometheus"))) == [200, 200, 200, 404]
        assert await statuses(running, None, context(authority.issue("somebody"))) == [403] * 4
        # Whoever logs in besides is who they say.
        assert await statuses(running, login("stranger"), context(authority.issue("prometheus"))) == [403] * 4
        assert await statuses(running, login("admin"), context()) == [200, 200, 200, 404]
        bearer = {"Authorization": "Bearer t0ken-of-the-scraper"}
        assert await statuses(running, bearer, context()) == [200, 200, 200, 404]
        assert await statuses(running, {"Authorization": "Bearer t0ken-of-another"}, context()) == [403] * 4
        assert (await ask(running, "/metrics", {"Authorization": "Bearer guess"}, context()))[0] == 401
        tokens.write_text("scraper=another t0ken\n")
        assert (await ask(running, "/metrics", bearer, context()))[0] == 401
        stranger = Authority(tmp_path / "stranger")
        with pytest.raises((ssl.SSLError, OSError)):
            await ask(running, "/metrics", None, context(stranger.issue("prometheus")))
        with pytest.raises((OSError, http.client.HTTPException)):
            await ask(running, "/readyz")  # plain text
        found = running.nodes[1].security
        assert found is not None and found.http is not None and found.http.listener.tls is not None
        assert found.http.listener.tls.refused >= 1


def test_a_file_of_tokens_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    for text, why in ((None, "No such file"), ("scraper", "line 1")):
        path = tmp_path / "tokens"
        if text is not None:
            path.write_text(text)
        with pytest.raises(ConfigError, match=rf"http\.bearer\.tokens\.location: .*{why}"):
            Node(broker_config({"http.bearer.tokens.location": str(path)})[0], real_env())


if CHROMIUM is not None and DRIVER is not None:  # takes part where there is a browser

    async def test_the_page_in_chromium_for_a_user(tmp_path: Path) -> None:
        async with cluster(1, settings=settings(tmp_path)) as running:
            await allow(running, "User:watcher")
            await asyncio.to_thread(_browse, tmp_path / "profile", str(running.nodes[1].endpoints["http"]))


def _browse(profile: Path, endpoint: str) -> None:
    with Browser(profile, width=900, height=700) as browser:
        browser.open(f"http://watcher:{USERS['watcher'].replace(' ', '%20')}@{endpoint}/")
        browser.wait("document.body.dataset.drawn")
        assert browser.complaints() == []


# --- the gate by itself --------------------------------------------------------------------------------------


class Pool:
    """Runs what is slow when it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_run = asyncio.Event()
        self.may_run.set()

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        self.calls += 1
        await self.may_run.wait()
        return function()


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def gate(pool: Pool, time: Time, tokens: Mapping[str, str] | None = None) -> HttpAuthenticator:
    logins = Logins(
        mechanisms=["PLAIN"],
        passwords=lambda: USERS,
        credentials=_nobody,
        tokens=None if tokens is None else lambda: tokens,
        key=b"key",
    )
    security = HttpSecurity(listener_security(failed_delay_ms=0), logins)
    return HttpAuthenticator(Access(), security, time, pool)  # type: ignore[arg-type]


def _nobody(mechanism: str, user: str) -> None:
    return None


HERE, ELSEWHERE = HttpPeer("127.0.0.1", 5, None), HttpPeer("192.0.2.7", 5, None)


async def test_passwords_in_plain_text_come_from_this_host_only() -> None:
    pool, time = Pool(), Time()
    gated = gate(pool, time)
    header = login("watcher")["Authorization"]
    for peer in (HERE, HttpPeer("::1", 5, None), HttpPeer("::ffff:127.0.0.9", 5, None)):
        assert isinstance(await gated.admit("/", {}, header, peer), AuthenticatedRequest)
    calls = pool.calls
    for peer in (ELSEWHERE, HttpPeer("fe80::1%eth0", 5, None), HttpPeer("", 0, None)):
        for authorization in (header, None):
            refused = await gated.admit("/", {}, authorization, peer)
            assert isinstance(refused, Page)
            # Not 401: a browser would ask for a password, and send it.
            assert (refused.status, refused.headers) == (403, ())
    assert pool.calls == calls


async def test_guessing_takes_time_but_not_from_those_who_are_known() -> None:
    pool, time = Pool(), Time()
    gated = gate(pool, time)
    right, wrong = login("watcher")["Authorization"], login("watcher", "guess")["Authorization"]

    async def status(header: str) -> int:
        outcome = await gated.admit("/metrics", {}, header, HERE)
        return outcome.status if isinstance(outcome, Page) else 200

    assert await status(right) == 200
    assert [await status(wrong) for _ in range(BURST + 3)] == [401] * BURST + [429] * 3
    assert pool.calls == BURST + 1
    assert await status(right) == 200  # remembered: not looked at again
    assert await status(login("admin")["Authorization"]) == 429  # not known yet
    assert pool.calls == BURST + 1
    refused = await gated.admit("/metrics", {}, wrong, HERE)
    assert isinstance(refused, Page)
    assert refused.headers == (("retry-after", "6"),)
    time.now += 6
    assert [await status(wrong) for _ in range(2)] == [401, 429]
    time.now += 600
    assert await status(login("admin")["Authorization"]) == 200


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
async def test_who_guesses_learns_no_password_of_a_user_that_is_known_from_elsewhere(scheme: str) -> None:
    time = Time()
    gated = gate(Pool(), time, {"watcher": "t0ken"})
    if scheme == "Basic":
        right, wrong = login("watcher")["Authorization"], login("watcher", "guess")["Authorization"]
    else:
        right, wrong = "Bearer t0ken", "Bearer guess"
    guesser = HttpPeer("127.0.0.9", 5, None)

    async def status(header: str, peer: HttpPeer) -> int:
        outcome = await gated.admit("/metrics", {}, header, peer)
        return outcome.status if isinstance(outcome, Page) else 200

    assert await status(right, HERE) == 200
    assert [await status(wrong, guesser) for _ in range(BURST + 1)] == [401] * BURST + [429]
    # The very password is refused, too: otherwise one more guess would cost nothing, as often as one likes.
    assert await status(right, guesser) == 429
    assert await status(right, HttpPeer("::ffff:127.0.0.9", 5, None)) == 429
    assert await status(right, HERE) == 200
    time.now += 6
    assert await status(right, guesser) == 200
    assert [await status(wrong, guesser) for _ in range(2)][-1] == 429
    assert await status(right, guesser) == 200  # it has logged in from there


async def test_passwords_that_wait_for_their_check_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_gate, "_MAX_WAITING", 3)
    pool, time = Pool(), Time()
    gated = gate(pool, time)
    pool.may_run.clear()
    header = login("watcher")["Authorization"]
    waiting = [asyncio.create_task(gated.admit("/", {}, header, HttpPeer("::1", n, None))) for n in range(3)]
    await until(lambda: pool.calls == 1 and gated._waiting == 3)
    refused = await gated.admit("/", {}, header, HERE)
    assert isinstance(refused, Page)
    assert refused.status == 503
    assert pool.calls == 1  # one at a time
    pool.may_run.set()
    assert all(isinstance(outcome, AuthenticatedRequest) for outcome in [await task for task in waiting])


async def test_a_page_without_a_rule_is_refused() -> None:
    open_gate = HttpAuthenticator(Access(), None, RealClock(), Pool())  # type: ignore[arg-type]
    asked = await open_gate.admit("/", {}, None, ELSEWHERE)
    assert isinstance(asked, AuthenticatedRequest)
    assert asked.principal == ANONYMOUS
    refused = await open_gate.admit("/new", {}, None, ELSEWHERE)
    assert isinstance(refused, Page)
    assert refused.status == 403


async def test_every_page_has_a_rule() -> None:
    async with cluster(1) as running:
        http = running.nodes[1].http
        assert http._pages.keys() | {f"/{root}" for root in http._trees} == HTTP.keys()


# --- strangers -------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(page: Page) -> AsyncIterator[HttpServer]:
    """A server of one page, on any port."""
    server = HttpServer(
        real_env().network,
        {"/": lambda asked: page},
        HttpAuthenticator(Access(), None, RealClock(), Pool()),  # type: ignore[arg-type]
    )
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


async def talk(server: HttpServer, data: bytes) -> bytes:
    """What comes back until the connection ends."""
    assert server._listener is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", server._listener.port)
    try:
        writer.write(data)
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 20_000, b"431"),
        (b"GET /" + b"a" * 20_000, b"431"),
        (b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello", b"413"),
        (b"GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1000000\r\n\r\n", b"413"),
        (
            # A proxy that goes by Content-Length would take the second request for the body of the first.
            (
                b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 49\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
                b"GET / HTTP/1.1\r\nhost: x\r\nx-hidden: request\r\n\r\n"
            ),
            b"400",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nauthorization: a\r\nauthorization: b\r\nconnection: close\r\n\r\n", b"400"),
    ],
)
async def test_what_is_no_request(data: bytes, status: bytes) -> None:
    async with serving(Page(b"content")) as server:
        answer = await talk(server, data)
        # What was sent beyond the answer may reset the connection before it is read.
        assert answer.startswith(b"HTTP/1.1 " + status) or (status == b"431" and not answer)
        assert b"content\n" not in answer
        await until(lambda: server.connections == 0)


async def test_pages_that_were_asked_for_together_take_turns_with_everything_else() -> None:
    """Otherwise 200 scrapes in one packet hold the loop for all of them, and the other nodes take this one for dead."""
    passes, seen = 0, []

    def page(asked: AuthenticatedRequest) -> Page:
        seen.append(passes)
        return Page(b"")

    gate = HttpAuthenticator(Access(), None, RealClock(), Pool())  # type: ignore[arg-type]
    turns = Turns(RealClock().monotonic)
    server = HttpServer(real_env().network, {"/readyz": page, "/healthz": page}, gate, turns=turns)
    host, port = await server.start("127.0.0.1", 0)
    conversations = [await asyncio.open_connection(host, port) for _ in range(3)]
    try:
        async with asyncio.timeout(30):
            for _, writer in conversations:
                writer.write(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n" * 50)
            while len(seen) < 150:
                passes += 1
                await asyncio.sleep(0)
        assert len(set(seen)) == 150
    finally:
        for _, writer in conversations:
            writer.close()
        await server.close()


@pytest.mark.parametrize(("count", "status"), [(150, b"200"), (250, b"431"), (4000, b"431")])
@pytest.mark.parametrize("line", [b"a:\r\n", b"a:\n", b"a: b\r\n c\r\n"])
async def test_a_head_has_a_bounded_number_of_lines(line: bytes, count: int, status: bytes) -> None:
    """Four thousand headers in 16 kB took 40 ms of the loop."""
    end = b"\n" if b"\r" not in line else b"\r\n"
    lines = line * (count // line.count(b"\n"))
    async with serving(Page(b"ok")) as server:
        answer = await talk(server, b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + lines + end)
    assert answer.split()[1] == status


async def test_a_body_may_have_many_lines() -> None:
    body = b"\n" * 5000
    text = b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with serving(Page(b"ok")) as server:
        assert (await talk(server, text + body)).split()[1] == b"413"  # no body at all on this page, but not 431


async def test_who_waits_for_leave_to_send_a_body_gets_it() -> None:
    """RFC 9110, section 10.1.1: curl and Java's client wait a second or for ever otherwise."""

    async def tree(asked: TreeRequest) -> Page:
        return Page(asked.asked.body)

    gate = HttpAuthenticator(Access(), None, RealClock(), Pool())  # type: ignore[arg-type]
    server = HttpServer(real_env().network, {}, gate, trees={"subjects": tree})
    host, port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        async with asyncio.timeout(30):
            writer.write(b"PUT /subjects/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            writer.write(b"hello")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(5) == b"hello"
    finally:
        writer.close()
        await server.close()


async def test_slow_requests_and_slow_readers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_DEADLINE_S", 0.3)
    async with serving(Page(b"x" * 50_000_000)) as server:
        assert await talk(server, b"GET / HT") == b""
        assert server._listener is not None
        with socket.create_connection(("127.0.0.1", server._listener.port)) as deaf:
            deaf.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await until(lambda: server.connections == 1)
            await until(lambda: server.connections == 0)


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
async def test_a_page_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch, connection: str) -> None:
    """A part of the cluster that does not answer: the browser would see its connection end, and not know why."""
    monkeypatch.setattr(http_server, "_DEADLINE_S", 0.2)

    async def slow(asked: AuthenticatedRequest) -> Page:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(Page(b"content")) as server:
        server._pages["/"] = slow
        answer = await talk(server, f"GET / HTTP/1.1\r\nhost: x\r\nconnection: {connection}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 503") and b"no answer within" in answer
        await until(lambda: server.connections == 0)


async def test_who_waits_longest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 20)
    async with serving(Page(b"content")) as server:
        assert server._listener is not None
        with contextlib.ExitStack() as held:
            silent = []
            for _ in range(60):
                each = held.enter_context(socket.create_connection(("127.0.0.1", server._listener.port)))
                each.sendall(b"GET / HTTP/1.1\r\n")
                silent.append(each)
            await until(lambda: server.connections == 20)
            assert b"content" in await talk(server, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            silent[0].settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                assert silent[0].recv(1) == b""
            assert server.connections <= 20


async def test_a_page_of_somebody_else_cannot_read_this_one(tmp_path: Path) -> None:
    """DNS rebinding: the name in the Host header is not this node's. Listeners that know who asks do not check it."""
    async with cluster(1) as running:
        assert (await ask(running, "/api/status", {"Host": "localhost:1"}))[0] == 200
        status, _, body = await ask(running, "/api/status", {"Host": "evil.example"})
        assert (status, b"http.allowed.hosts" in body) == (403, True)
        assert (await ask(running, "/healthz", {"Host": "evil.example"}))[0] == 403
    async with cluster(1, settings=settings(tmp_path)) as running:
        assert (await ask(running, "/api/status", login("admin") | {"Host": "proxy.example"}))[0] == 200
