"""A node whose pages need a login, and a client that asks for pages."""

from __future__ import annotations

import asyncio
import base64
import http.client
import ssl
from pathlib import Path
from typing import Any

from kafkalite.testing.cluster import Cluster

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
        connection = kind(endpoint.host, endpoint.port, timeout=150, **options)
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    return asyncio.to_thread(call)


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
