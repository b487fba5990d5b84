"""Tokens of an identity provider (OAUTHBEARER) with Java's client of today: login, re-authentication (KIP-368), tokens that are refused."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kafkalite.testing.apache_kafka import tool_command
from tests.support.secured import PASSWORDS, SecuredCluster

from .test_tokens import Issuer

pytestmark = [pytest.mark.cluster]

_SHORT_S = 10


class ManyTokens(Issuer):
    """Gives out a token for each path: right ones that end soon, and wrong ones."""

    def __init__(self) -> None:
        super().__init__()
        self._foreign = pytest.importorskip("joserfc.jwk").ECKey.generate_key("P-256", {"kid": "one"})
        self._given = 0

    def answer(self, path: str) -> bytes:
        now = int(time.time())
        claims: dict[str, Any] = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": now, "exp": now + 300}
        key = self._key
        match path:
            case "/short":
                claims["exp"] = now + _SHORT_S
            case "/expired":
                claims |= {"iat": now - 600, "exp": now - 300}
            case "/foreign":
                key = self._foreign
            case "/audience":
                claims["aud"] = "another"
            case "/issuer":
                claims["iss"] = "https://another"
            case "/changing":
                self._given += 1
                claims |= {"exp": now + _SHORT_S, "sub": "alice" if self._given == 1 else "bob"}
        token = str(self._jwt.encode({"alg": "ES256", "kid": "one"}, claims, key))
        if path == "/unsigned":
            token = "eyJhbGciOiJub25lIn0." + token.split(".")[1] + "."
        # The client believes that each of them is valid.
        return f"{token} {now * 1000} {max(int(claims['exp']), now + _SHORT_S) * 1000}".encode()


def test_java(newest_classes: str, tmp_path: Path) -> None:
    issuer = ManyTokens()
    (tmp_path / "keys.json").write_text(issuer.keys)
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    try:
        with SecuredCluster(tmp_path, "SASL_SSL", settings) as cluster:
            admin = cluster.client_config("admin")
            cluster.command("admin", "create-topic", "t", client_config=admin)
            url = f"http://127.0.0.1:{issuer.server.server_port}"
            command = ["IssuedTokens", ",".join(cluster.bootstrap), str(cluster.authority.truststore), url]
            done = subprocess.run(
                tool_command(newest_classes, *command),
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert done.stdout.splitlines() == [
                "written true",
                "failed 0.0 0.0",
                "expired SaslAuthenticationException",
                "foreign SaslAuthenticationException",
                "audience SaslAuthenticationException",
                "issuer SaslAuthenticationException",
                "unsigned SaslAuthenticationException",
                "as the first user",
                "as another user 0.0",
            ], done.stdout + done.stderr
            assert not any(secret in cluster.logs() for secret in ("eyJ", *PASSWORDS.values()))
    finally:
        issuer.server.shutdown()
        issuer.server.server_close()
