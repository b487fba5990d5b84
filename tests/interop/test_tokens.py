"""Tokens of an identity provider (OAUTHBEARER) with a foreign client: confluent-kafka, by callback and from a token server."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.secured import SecuredCluster

pytestmark = [pytest.mark.cluster]

_SCRIPT = Path(__file__).parent / "clients" / "confluent_tokens.py"


class Issuer:
    """An identity provider: a key, tokens for alice, and a server that gives them out."""

    def __init__(self) -> None:
        self._jwt = pytest.importorskip("joserfc.jwt")
        self._key = pytest.importorskip("joserfc.jwk").ECKey.generate_key("P-256", {"kid": "one"})
        self.keys = json.dumps({"keys": [self._key.as_dict(private=False)]})
        issuer = self

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = json.dumps({"access_token": issuer.token(), "token_type": "bearer", "expires_in": 300}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                body = issuer.answer(self.path)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> bytes:
        """What a GET of `path` brings."""
        return self.token().encode()

    def token(self) -> str:
        now = int(time.time())
        claims = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": now, "exp": now + 300}
        return str(self._jwt.encode({"alg": "ES256", "kid": "one"}, claims, self._key))


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_tokens_of_librdkafka(tmp_path: Path, python_clients: Path, issuer: Issuer) -> None:
    (tmp_path / "keys.json").write_text(issuer.keys)
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with SecuredCluster(tmp_path, "SASL_SSL", settings) as cluster:
        given = {
            "bootstrap": ",".join(cluster.bootstrap),
            "authority": str(cluster.authority.truststore),
            "token": issuer.token(),
            "url": f"http://127.0.0.1:{issuer.server.server_port}/token",
        }
        done = subprocess.run(
            [str(python_clients), str(_SCRIPT), json.dumps(given)],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["callback"] == found["oidc"] == "written"
        assert "_AUTHENTICATION" in found["spoilt"]
