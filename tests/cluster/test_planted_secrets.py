"""Secrets of every kind are planted in a cluster that logs at DEBUG. Then everything that shows something is searched for them: logs,
commands, pages, metrics, traces, backups, errors, lists of processes, environments, and the files that others may read."""

from __future__ import annotations

import base64
import json
import os
import ssl
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkalite.testing.processes import Process, ProcessFailed, kazoo_client
from tests.support.secured import PASSWORDS, PLAIN_PASSWORD, ZOOKEEPER_AUTH, SecuredCluster

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

KEY_PASSWORD = "keys-hush-11"
TOKEN_SECRET = "tokens-hush-12-and-longer"
BEARER = "bearers-hush-13"
GUESS = "guessed-hush-14"


class Planted(NamedTuple):
    cluster: SecuredCluster
    #: What it is -> the text.
    secrets: dict[str, bytes]


class _Verbose(SecuredCluster):
    def _node(self, broker_id: int) -> Process:
        node = super()._node(broker_id)
        node._arguments += ["--log-level", "debug"]
        return node


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    directory = tmp_path_factory.mktemp("planted")
    files = {"key": KEY_PASSWORD, "token": TOKEN_SECRET, "bearer": f"prometheus={BEARER}"}
    for name, text in files.items():
        (directory / f"{name}.secret").write_text(text + "\n")
        (directory / f"{name}.secret").chmod(0o600)
    settings = {
        "authorizer.enabled": "true",
        "super.users": "User:admin",
        "delegation.token.secret.key": f"file:{directory}/token.secret",
        "http.bearer.tokens.location": f"{directory}/bearer.secret",
        "ssl.key.password": f"file:{directory}/key.secret",
        "connections.max.reauth.ms": 600_000,
    }
    before = os.umask(0o022)
    try:
        cluster = _Verbose(directory / "c", "SASL_SSL", settings)
        cluster.authority.issue("node", subject="/O=kafkalite/CN=node", password=KEY_PASSWORD)
        with cluster:
            yield Planted(cluster, _plant(cluster))
    finally:
        os.umask(before)


def _plant(cluster: SecuredCluster) -> dict[str, bytes]:
    admin = cluster.client_config("admin")
    cluster.command("admin", "users", "set", "alice", client_config=admin, stdin=PASSWORDS["alice"])
    cluster.command("admin", "create-topic", "t", client_config=admin)
    cluster.command(
        "admin",
        "acls",
        "add",
        "--topic",
        "t",
        "--operation",
        "all",
        "--allow-principal",
        "User:alice",
        client_config=admin,
    )
    cluster.command("produce", "t", client_config=admin, stdin="a record")
    token = json.loads(cluster.command("admin", "tokens", "create", "--json", client_config=admin))["hmac"]
    found = {f"the password of {user}": text for user, text in PASSWORDS.items() if user in ("node", "admin", "alice")}
    found |= {
        "a PLAIN password": PLAIN_PASSWORD, "the digest of ZooKeeper": ZOOKEEPER_AUTH.partition(":")[2], "the password of a key": KEY_PASSWORD,
        "the secret of tokens": TOKEN_SECRET, "a bearer token": BEARER, "a token's HMAC": token, "a wrong password": GUESS,
        "a token's HMAC in hex": base64.b64decode(token).hex(),
    }  # fmt: skip
    for user in ("admin", "alice"):
        found[f"the header of {user}"] = base64.b64encode(f"{user}:{PASSWORDS[user]}".encode()).decode()
    with kazoo_client(cluster.zookeeper_connect) as zookeeper:
        zookeeper.add_auth("digest", ZOOKEEPER_AUTH)
        for user in ("node", "alice"):
            config = json.loads(zookeeper.get(f"/config/users/{user}")[0])["config"]
            for mechanism, text in config.items():
                for part in text.split(","):
                    name, _, value = part.partition("=")
                    if name in ("salt", "stored_key", "server_key"):
                        found[f"{name} of {user}, {mechanism}"] = value
        decoy = zookeeper.get("/cluster/decoy_key")[0]
    return {what: text.encode() for what, text in found.items()} | {
        "the decoys' key": decoy,
        "the decoys' key in hex": decoy.hex().encode(),
        "a token's HMAC as bytes": base64.b64decode(token),
    }


def _found(planted: Planted, data: bytes) -> list[str]:
    """What of it is there. In JSON a slash may have a backslash in front."""
    plain = data.replace(b"\\/", b"/")
    return [what for what, secret in planted.secrets.items() if secret in plain]


def test_what_commands_print(planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    cluster = planted.cluster
    admin = cluster.client_config("admin")
    seen = b""
    for arguments in (
        ("config", "get", "--broker", "1", "--all"), ("config", "get", "--broker", "1", "--all", "--json"), ("config", "get", "--topic", "t", "--all"),
        ("describe", "t"), ("health",), ("health", "--json"), ("users", "list"), ("users", "list", "--json"), ("tokens", "list"),
        ("tokens", "list", "--json"), ("acls", "list"), ("quotas", "list"), ("groups", "list"), ("why", "t-0"), ("transactions", "list"),
        ("trace", "--seconds", "1", "--json"), ("status",), ("disk", "list"), ("list-topics",),
    ):  # fmt: skip
        try:
            seen += cluster.command("admin", *arguments, client_config=admin).encode()
        except AssertionError as error:  # a verb that does not exist under this name, or finds something wrong
            seen += str(error).encode()
    seen += cluster.command("profile", "create", "p", "--bootstrap", "b:1", "--client-config", admin).encode()
    seen += cluster.command("profile", "show").encode()
    assert len(seen) > 20_000
    assert not _found(planted, seen)


def test_a_trace_of_logins(planted: Planted) -> None:
    """Requests that carry secrets pass while it looks: logins, right and wrong ones, users, tokens."""
    cluster = planted.cluster
    admin = cluster.client_config("admin")
    seen: list[str] = []
    watcher = threading.Thread(
        target=lambda: seen.append(
            cluster.command("admin", "trace", "--seconds", "8", "--json", "--slowest", "500", client_config=admin)
        )
    )
    watcher.start()
    wrong = cluster.client_config("alice", GUESS)
    while watcher.is_alive():
        seen.append(cluster.command("admin", "list-topics", client_config=wrong, code=1))
        cluster.command("admin", "users", "set", "bob", client_config=admin, stdin=PASSWORDS["bob"])
        cluster.command("admin", "list-topics", client_config=admin)
    watcher.join()
    text = "".join(seen).encode()
    assert b"AlterUserScramCredentials" in text or b"Metadata" in text
    assert not _found(planted, text)


def test_pages(planted: Planted) -> None:
    cluster = planted.cluster
    seen = b""
    for path in (
        "/", "/metrics", "/api/status", "/api/why?partition=t-0", "/healthz", "/readyz", "/console", "/api/console/me", "/api/console/topics",
        "/api/console/topic?topic=t", "/api/console/messages?topic=t", "/api/console/groups", "/api/console/transactions", "/api/console/security",
        "/api/console/rates", "/subjects", "/config", "/nothing",
    ):  # fmt: skip
        seen += cluster.page(path, "admin")[1].encode()
        seen += cluster.page(path, "alice", GUESS)[1].encode()
        seen += cluster.page(path, None)[1].encode()
    request = urllib.request.Request(
        f"https://{cluster.http(1)}/metrics", headers={"Authorization": f"Bearer {BEARER}"}
    )
    try:
        context = ssl.create_default_context(cafile=cluster.authority.truststore)
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            seen += answer.read()
    except urllib.error.HTTPError as error:
        with error:
            seen += error.read()
    assert len(seen) > 100_000
    assert not _found(planted, seen)


def test_a_backup(planted: Planted, tmp_path: Path) -> None:
    """It has no credentials, and is not for other users of the machine, whatever the umask."""
    target = tmp_path / "b"
    planted.cluster.command(
        "admin", "backup", "create", str(target), client_config=planted.cluster.client_config("admin")
    )
    files = [path for path in target.rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert not _found(planted, b"".join(path.read_bytes() for path in files))
    assert not [path for path in (target, *target.rglob("*")) if path.stat().st_mode & stat.S_IRWXO]


def test_what_a_node_says_when_it_cannot_start(planted: Planted, tmp_path: Path) -> None:
    cluster = planted.cluster
    wrong = tmp_path / "wrong.secret"
    wrong.write_text(f"{GUESS}\n")
    wrong.chmod(0o600)
    lines = tmp_path / "lines"
    lines.write_text(f"{BEARER}\n")
    seen = ""
    for setting in (
        f"ssl.key.password=file:{wrong}",
        f"ssl.key.password={GUESS}",
        f"zookeeper.auth=file:{wrong}",
        f"inter.broker.password=file:{wrong}",
        f"http.bearer.tokens.location={lines}",
        f"sasl.plain.users.location={lines}",
        f"delegation.token.secret.key=file:{tmp_path}",
        f"inter.broker.passwort={GUESS}",
    ):
        node = cluster._node(9)
        node._arguments += ["--set", setting]
        try:
            node.start(20)
        except ProcessFailed as error:
            seen += str(error)
        finally:
            node.kill()
    assert "key" in seen
    assert not _found(planted, seen.encode())


def test_processes_and_files(planted: Planted) -> None:
    cluster = planted.cluster
    processes = [*cluster.nodes.values(), cluster.zookeeper]
    for process in processes:
        assert process is not None
        for name in ("cmdline", "environ"):
            assert not _found(planted, Path(f"/proc/{process.pid}/{name}").read_bytes()), (process.name, name)
    readable = [
        path
        for path in cluster.directory.rglob("*")
        if not path.is_symlink() and path.stat().st_mode & stat.S_IROTH and "zookeeper.log" not in path.name
    ]
    made_by_nodes = [path for path in readable if "disk-" in str(path) or f"{os.sep}zookeeper{os.sep}" in str(path)]
    assert not made_by_nodes
    for path in cluster.directory.rglob("*"):
        if path.is_file() and "version-2" not in path.parts:  # ZooKeeper's own data: that is where credentials are
            assert not _found(planted, path.read_bytes()), path


def test_logs_at_the_level_debug(planted: Planted) -> None:
    """After all of the above, and after a node that was killed and one that was stopped."""
    cluster = planted.cluster
    cluster.nodes[2].kill()
    cluster.restart(2)
    cluster.nodes[3].terminate()
    cluster.restart(3)
    logs = cluster.logs()
    assert '"level": "debug"' in logs or '"debug"' in logs
    assert not _found(planted, logs.encode())
