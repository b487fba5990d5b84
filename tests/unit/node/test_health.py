"""What a node reports of its certificates, users and keys."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.config import BrokerConfig, broker_config
from kafkalite.env.supervisor import Supervisor
from kafkalite.node import security_health
from kafkalite.node.security_health import SecurityHealth
from kafkalite.security.node_security import NodeSecurity
from kafkalite.security.own_certificate import periods
from kafkalite.security.tls import ServerTls, TlsFiles
from kafkalite.testing.certificates import Authority

_DAY_S = 86_400.0
_KEYS = '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'


_NODES = {"inter.broker.username": "node", "inter.broker.password": "hush"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def store(authority: Authority, tmp_path: Path) -> Path:
    path = tmp_path / "node.pem"
    path.write_bytes(Path(authority.issue("good")).read_bytes())
    return path


class _Threads:
    """Of a disk that reads nothing before `answers` is set, and then all at once."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        #: Work that has begun.
        self.begun = 0

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        self.begun += 1
        await self.answers.wait()
        for _ in range(20):  # a thread answers later
            await asyncio.sleep(0)
        return function()


def _threads() -> Any:
    return _Threads()


def _supervisor() -> Supervisor:
    return Supervisor(lambda error: None)


def _config(store: Path, authority: Authority) -> BrokerConfig:
    given = {"listener.security.protocol": "SASL_SSL", "ssl.keystore.location": str(store), "host": "127.0.0.1"}
    return broker_config({**given, **_NODES, "ssl.truststore.location": authority.truststore})[0]


def _health(config: BrokerConfig, now_s: float, *names: str) -> tuple[SecurityHealth, Any]:
    """Listeners of the same files, one without TLS, and the clock."""
    files = TlsFiles(config.ssl_keystore_location, config.ssl_truststore_location)
    listeners: list[Any] = [SimpleNamespace(name=name, tls=ServerTls(files)) for name in names]
    for each in listeners:
        each.tls.context()
    clock: Any = SimpleNamespace(wall_ms=lambda: int(now_s * 1000))
    listeners.append(SimpleNamespace(name="plain", tls=None))
    return SecurityHealth(
        config, listeners, dict, clock, readers=list, disk=_threads(), supervisor=_supervisor()
    ), clock


def _replace(store: Path, content: bytes) -> None:
    new = store.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, store)


def _said(health: SecurityHealth) -> list[tuple[str, str]]:
    return [(each.what, each.subject) for each in health.problems()]


def test_certificates_that_could_not_be_reloaded_are_a_problem_until_they_are_right(
    authority: Authority, store: Path
) -> None:
    """It stayed in health until the next connection to the listener: for nodes among themselves, for ever."""
    good = store.read_bytes()
    health, _ = _health(_config(store, authority), 0.0, "kafka", "rpc")
    assert _said(health) == []
    _replace(store, b"half")
    assert _said(health) == [("tls.not_reloaded", "kafka, rpc")]
    assert health.problems()[0].detail.startswith(f"{store}: not PEM")
    _replace(store, good)
    assert _said(health) == []


def test_certificates_that_others_refuse_are_a_problem(authority: Authority, store: Path) -> None:
    """Only the log said so; health said that the broker's process or network was at fault."""
    health, _ = _health(_config(store, authority), 0.0, "kafka")
    _replace(store, Path(authority.issue("other", hosts=("DNS:other.example",))).read_bytes())
    assert {what for what, _ in _said(health)} == {"certificate.refused"}
    assert "the other nodes will refuse" in health.problems()[0].detail
    _replace(store, Path(authority.issue("old", is_expired=True)).read_bytes())
    assert all("has expired" in each.detail for each in health.problems()) and len(health.problems()) == 3
    _replace(store, Path(authority.issue("new")).read_bytes())
    assert _said(health) == []


def test_a_certificate_that_ends_soon_is_a_problem(authority: Authority, store: Path) -> None:
    config = _config(store, authority)
    (path, (begin_s, end_s)) = next(iter(periods(config).items()))
    assert path == str(store) and end_s - begin_s == 2 * _DAY_S
    health, clock = _health(config, end_s - 0.2 * _DAY_S - 60, "kafka")
    assert _said(health) == []
    clock.wall_ms = lambda: int((end_s - 4 * 3600) * 1000)
    (problem,) = health.problems()
    assert (problem.what, problem.subject) == ("certificate.ends", str(store)) and problem.detail.endswith(", 4 h left")


def _security(config: BrokerConfig) -> NodeSecurity:
    return NodeSecurity(config, entropy=os.urandom, now=lambda: 0.0, credentials=lambda mechanism, user: None)


def test_a_node_without_plain_has_no_file_of_users() -> None:
    given = {"listener.security.protocol": "SASL_PLAINTEXT", "http.port": 0, "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    assert _security(broker_config({**given, **_NODES})[0]).unread() == {}


def test_users_and_keys_that_cannot_be_read_are_a_problem_until_they_are_right(tmp_path: Path) -> None:
    """Only the log said so. The node went on with the users of before, and did not start again."""
    users, tokens, keys = tmp_path / "users", tmp_path / "tokens", tmp_path / "keys.json"
    users.write_text("alice=secret\n")
    tokens.write_text("grafana=0123456789abcdef\n")
    keys.write_text(_KEYS)
    config = broker_config(
        {
            "listener.security.protocol": "SASL_PLAINTEXT",
            "http.security.protocol": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            "sasl.plain.users.location": str(users),
            "http.port": 0,
            "http.bearer.tokens.location": str(tokens),
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
            "sasl.oauthbearer.expected.audience": "kafka",
            **_NODES,
        }
    )[0]
    node = _security(config)
    clock: Any = SimpleNamespace(wall_ms=lambda: 0)
    health = SecurityHealth(
        config,
        node.listeners(),
        node.unread,
        clock,
        readers=node.readers,
        disk=_threads(),
        supervisor=_supervisor(),
    )
    assert _said(health) == []
    before = users.read_bytes(), tokens.read_bytes(), keys.read_bytes()
    _replace(users, b"alice\n")
    tokens.unlink()
    _replace(keys, b'{"keys": []}')
    assert _said(health) == [
        ("users.not_reloaded", str(users)),
        ("users.not_reloaded", str(tokens)),
        ("users.not_reloaded", f"file://{keys}"),
    ]
    details = [each.detail for each in health.problems()]
    assert "line 1 is not NAME=SECRET" in details[0] and "No such file" in details[1] and "no keys" in details[2]
    for path, content in zip((users, tokens, keys), before, strict=True):
        _replace(path, content)
    assert _said(health) == []


async def test_files_on_a_disk_that_hangs_are_a_problem_and_hold_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question for a node's health read them on the event loop: the node stood still."""
    users = tmp_path / "users"
    users.write_text("alice=secret\n")
    given = {"listener.security.protocol": "SASL_PLAINTEXT", "http.port": -1}
    config = broker_config(
        {**given, **_NODES, "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN", "sasl.plain.users.location": str(users)}
    )[0]
    node, disk, asked = _security(config), _threads(), []

    def unread() -> dict[str, str]:
        asked.append(disk.answers.is_set())
        return node.unread()

    clock: Any = SimpleNamespace(wall_ms=lambda: 7)
    health = SecurityHealth(
        config,
        node.listeners(),
        unread,
        clock,
        readers=node.readers,
        disk=disk,
        supervisor=_supervisor(),
    )
    assert [each.paths for each in node.readers()] == [(str(users),)]
    await health.load()
    assert _said(health) == []
    disk.answers.clear()
    monkeypatch.setattr(security_health, "_PATIENCE_S", 0.0)
    for _ in range(3):
        await health.load()
        (problem,) = health.problems()
        assert (problem.what, problem.since_ms) == ("users.not_reloaded", 7) and "does not answer" in problem.detail
    assert disk.begun == 2, "one thread hangs, not one for each question"
    disk.answers.set()
    monkeypatch.undo()
    for _ in range(40):
        await asyncio.sleep(0)
    await health.load()
    assert _said(health) == []
    assert all(asked), "nothing was read meanwhile"


class _Thread(_Threads):
    """Functions run at once, and `is_running` while they do."""

    is_running = False

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        self.is_running = True
        try:
            return function()
        finally:
            self.is_running = False


@pytest.fixture
def renewed(authority: Authority) -> bytes:
    """Another certificate of the node."""
    return Path(authority.issue("new")).read_bytes()


async def test_no_login_and_no_handshake_of_a_node_looks_at_a_file(
    authority: Authority, store: Path, renewed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them did, on the event loop: a file system that did not answer stopped the node."""
    users, tokens, keys = tmp_path / "users", tmp_path / "tokens", tmp_path / "keys.json"
    users.write_text("alice=secret\n")
    tokens.write_text("grafana=0123456789abcdef\n")
    keys.write_text(_KEYS)
    config = broker_config(
        {
            "listener.security.protocol": "SASL_SSL",
            "host": "127.0.0.1",
            "ssl.keystore.location": str(store),
            "ssl.truststore.location": authority.truststore,
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            "sasl.plain.users.location": str(users),
            "http.port": 0,
            "http.bearer.tokens.location": str(tokens),
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
            "sasl.oauthbearer.expected.audience": "kafka",
            **_NODES,
        }
    )[0]
    node, disk, supervisor = _security(config), _Thread(), _supervisor()
    clock: Any = SimpleNamespace(wall_ms=lambda: 0)
    threads: Any = disk
    health = SecurityHealth(
        config, node.listeners(), node.unread, clock, readers=node.readers, disk=threads, supervisor=supervisor
    )
    monkeypatch.setattr(security_health, "_PAUSE_S", 0.0)
    outside: list[str] = []
    for function in ("stat", "open"):
        real = getattr(os, function)

        def called(path: Any, *args: Any, real: Any = real, **named: Any) -> Any:
            if not disk.is_running:
                outside.append(str(path))
            return real(path, *args, **named)

        monkeypatch.setattr(os, function, called)

    def listener() -> Any:
        return node.kafka["EXTERNAL" if "EXTERNAL" in node.kafka else next(iter(node.kafka))]

    def seen() -> tuple[object, ...]:
        """What a login and a handshake of each kind find."""
        assert node.http is not None and node.http.logins is not None and node._tokens is not None
        node._tokens.load()
        dialled = [tls.context() for tls in (node.to_rpc.tls, node.to_kafka.tls) if tls is not None]
        assert len(dialled) == 2
        passwords = [dict(file.passwords()) for file in node._password_files.values()]
        return (listener().tls.context_at(9.0), *dialled, node._tokens._text, *map(tuple, passwords))

    before = seen()
    assert outside, "while nobody watches, they look themselves"
    watching = supervisor.spawn("watch", health.run())
    for _ in range(20):
        await asyncio.sleep(0)
    outside.clear()
    assert seen() == before and _said(health) == []
    _replace(store, renewed)
    _replace(users, b"alice=secret\nbob=secret\n")
    _replace(tokens, b"prometheus=0123456789abcdef\n")
    _replace(keys, _KEYS.replace("11qY", "12qY").encode())
    outside.clear()
    assert seen() == before
    for _ in range(20):
        await asyncio.sleep(0)
    after = seen()
    assert all(new != old for new, old in zip(after, before, strict=True))
    assert _said(health) == [] and outside == []
    watching.cancel()
