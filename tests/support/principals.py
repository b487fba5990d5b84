"""Principals without TLS or SASL, for tests of authorization: a client says who it is by its client id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkalite.kafka.request import Request
from kafkalite.rpc.server_connection import ServerConnection
from kafkalite.security.principal import ANONYMOUS, Principal

#: Client ids of those who cannot choose: nodes among themselves, the command line.
NODE, ROOT = Principal("User", "node"), Principal("User", "root")
_KNOWN = {"kafkalite": NODE, "kafkalite-cli": ROOT}
#: Settings of a secure cluster whose nodes can work.
SECURE: dict[str, Any] = {"authorizer.enabled": True, "super.users": "User:node;User:root"}


def named(client_id: str) -> Principal:
    """`as-ann` is ann."""
    if client_id.startswith("as-"):
        return Principal("User", client_id.removeprefix("as-").partition(".")[0])
    if client_id == "draining" or client_id.startswith("node-"):
        return NODE  # as a client of the others
    return _KNOWN.get(client_id, ANONYMOUS)


def by_client_id(patch: pytest.MonkeyPatch) -> None:
    """From now on both listeners of every node in this process believe it."""
    patch.setattr(Request, "principal", property(lambda request: named(request.client_id)))
    greet = ServerConnection._greet

    def greeted(connection: Any, frame: Any) -> None:
        greet(connection, frame)
        peer = connection.peer
        principal = NODE if peer.node_id >= 0 else named(peer.client_id)
        connection.peer = replace(peer, principal=principal)

    patch.setattr(ServerConnection, "_greet", greeted)
