"""Delegation tokens (KIP-48) by Java's admin client of today, a Java producer that logs in with one, and Kafka's own tool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import tool_command, tools_class_path
from tests.support.secured import PASSWORDS, SecuredCluster

from .conftest import _base

pytestmark = [pytest.mark.cluster]

_SECRET = "the nodes' secret of tokens"
_TOOL = "org.apache.kafka.tools.DelegationTokenCommand"


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def properties(directory: Path, user: str) -> str:
    path = directory / f"{user}.properties"
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{PASSWORDS[user]}";'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={login}\n")
    return str(path)


def test_java_and_kafkas_tool(newest_classes: str, tmp_path: Path) -> None:
    tools = tools_class_path(_base())
    secret = tmp_path / "token.secret"
    secret.write_text(_SECRET + "\n")
    secret.chmod(0o600)
    settings = {
        "delegation.token.secret.key": f"file:{secret}",
        "authorizer.enabled": "true",
        "super.users": "User:admin;User:node",
    }
    with SecuredCluster(tmp_path / "c", "SASL_PLAINTEXT", settings) as cluster:
        admin = cluster.client_config("admin")
        for user in ("alice", "bob"):
            cluster.command("admin", "users", "set", user, client_config=admin, stdin=PASSWORDS[user])
        cluster.command("admin", "create-topic", "t", client_config=admin)
        cluster.command(
            "admin", "acls", "add", "--allow-principal", "User:alice", "--producer", "--topic", "t", client_config=admin
        )
        bootstrap = ",".join(cluster.bootstrap)
        java = run(tool_command(newest_classes, "TokenLogin", bootstrap, PASSWORDS["alice"]))
        by_token = [
            "create with a token: UnsupportedByAuthenticationException",
            "beyond the owner's rights: TopicAuthorizationException",
        ]
        assert java.stdout.splitlines() == [
            "owner User:alice",
            "renewed true",
            "wrote SCRAM-SHA-256 true",
            *by_token,
            "wrote SCRAM-SHA-512 true",
            *by_token,
            "after its end: SaslAuthenticationException",
        ], java.stderr

        def tool(user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            flags = ["--bootstrap-server", bootstrap, "--command-config", properties(tmp_path, user)]
            return run(tool_command(tools, _TOOL, *flags, *arguments))

        made = tool("alice", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        token_id, hmac = made.stdout.split("\n\n")[-1].split()[:2]
        other = tool("bob", "--create", "--max-life-time-period", "-1", "--owner-principal", "User:alice")
        assert other.returncode and "DelegationTokenAuthorizationException" in other.stderr
        cluster.command(
            "admin", "acls", "add", "--allow-principal", "User:bob", "--token-of", "User:alice", "--operation", "create-tokens",
            client_config=admin,
        )  # fmt: skip
        for_alice = tool("bob", "--create", "--max-life-time-period", "-1", "--owner-principal", "User:alice")
        assert "User:bob" in for_alice.stdout, for_alice.stderr
        seen = tool("bob", "--describe", "--owner-principal", "User:alice")
        assert "Total number of tokens : 2" in seen.stdout and hmac in seen.stdout
        # Our own clients log in with the token: the owner's rights, and no more.
        config = Path(cluster.client_config("alice"))
        ours = tmp_path / "token.toml"
        lines = config.read_text().replace("'alice'", f"'{token_id}'").replace(f"'{PASSWORDS['alice']}'", f"'{hmac}'")
        ours.write_text(f"{lines}'sasl.tokenauth' = true\n")
        cluster.command("produce", "t", client_config=str(ours), stdin="by token")
        refused = cluster.command("admin", "create-topic", "u", client_config=str(ours), code=1)
        assert "AUTHORIZATION_FAILED" in refused.upper()
        renewed = tool("bob", "--renew", "--renew-time-period", "-1", "--hmac", hmac)
        assert "Completed renew operation" in renewed.stdout, renewed.stderr
        ended = tool("bob", "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        assert "Completed expire operation" in ended.stdout, ended.stderr
        left = cluster.command("admin", "tokens", "list", client_config=cluster.client_config("alice"))
        assert token_id not in left and len(left.splitlines()) == 2
        for log in tmp_path.rglob("node*.log"):
            text = log.read_text()
            assert hmac not in text and _SECRET not in text
