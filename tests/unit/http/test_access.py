"""Who may see the pages of a node: what is refused, what is accepted."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from kafkalite.config import broker_config
from kafkalite.coordination.scram_users import alter_user
from kafkalite.env.real import real_env
from kafkalite.errors import ConfigError
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.node.node import Node
from kafkalite.security.acl import CLUSTER_NAME, AclEntry, Binding, Operation, Pattern, Permission, ResourceType
from kafkalite.security.principal import Principal
from kafkalite.security.scram import make_credential
from kafkalite.testing.certificates import Authority
from kafkalite.testing.cluster import Cluster, cluster
from tests.support.browser import CHROMIUM, DRIVER, Browser
from tests.support.waiting import until
from tests.unit.http.secured_pages import USERS, ask, login, settings

PROTECTED = ("/", "/metrics", "/api/status", "/api/why?topic=t&partition=0")


async def statuses(
    running: Cluster, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> list[int]:
    return [(await ask(running, path, headers, tls))[0] for path in PROTECTED]


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
        # With a login the user is the one of the login.
        assert await statuses(running, login("stranger"), context(authority.issue("prometheus"))) == [403] * 4
        assert await statuses(running, login("admin"), context()) == [200, 200, 200, 404]
        bearer = {"Authorization": "Bearer t0ken-of-the-scraper"}
        assert await statuses(running, bearer, context()) == [200, 200, 200, 404]
        assert await statuses(running, {"Authorization": "Bearer t0ken-of-another"}, context()) == [403] * 4
        assert (await ask(running, "/metrics", {"Authorization": "Bearer guess"}, context()))[0] == 401
        tokens.write_text("scraper=another t0ken\n")

        async def is_refused() -> bool:
            return bool((await ask(running, "/metrics", bearer, context()))[0] == 401)

        await until(is_refused)
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


async def test_a_page_of_somebody_else_cannot_read_this_one(tmp_path: Path) -> None:
    """DNS rebinding: the name in the Host header is not this node's. Listeners that know who asks do not check it."""
    async with cluster(1) as running:
        assert (await ask(running, "/api/status", {"Host": "localhost:1"}))[0] == 200
        status, _, body = await ask(running, "/api/status", {"Host": "evil.example"})
        assert (status, b"http.allowed.hosts" in body) == (403, True)
        assert (await ask(running, "/healthz", {"Host": "evil.example"}))[0] == 403
    async with cluster(1, settings=settings(tmp_path)) as running:
        assert (await ask(running, "/api/status", login("admin") | {"Host": "proxy.example"}))[0] == 200
