"""The user of the nodes belongs to the nodes: the right to alter the cluster, or to have tokens of others, makes nobody one (ADR 64)."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.security.principal import Principal
from tests.support.principals import by_client_id

from .conftest import Broker, FrameClient

_NODE = Principal("User", "node")
_OTHER = Principal("User", "CN=node2,O=example")
_USERS = wire.AlterUserScramCredentialsRequest


async def _alter(client: FrameClient, deletions: list[Any], upsertions: list[Any]) -> list[tuple[str, int]]:
    answer = await client.ask(_USERS(deletions, upsertions), 0)
    return [(result.user, result.error_code) for result in answer.results]


def _upsertion(name: str) -> Any:
    return _USERS.ScramCredentialUpsertion(name, 2, 4096, b"saltsalt", b"x" * 64)


@pytest.mark.parametrize("user", [_NODE, _OTHER], ids=str)
async def test_credentials_of_the_nodes_user_are_not_for_every_administrator(broker: Broker, user: Principal) -> None:
    broker.services.node_principals = frozenset({_NODE, _OTHER})
    client = await broker.client()
    with capture_logs() as lines:
        assert await _alter(client, [], [_upsertion("alice"), _upsertion(user.name)]) == [
            ("alice", ErrorCode.NONE),
            (user.name, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ]
    assert list(broker.services.users) == ["alice"]
    assert [(each["event"], each["user"]) for each in lines] == [("user.credentials_changed", "alice")]
    broker.services.users[user.name] = {"SCRAM-SHA-512": "iterations=4096"}
    gone = [_USERS.ScramCredentialDeletion(user.name, 2)]
    assert await _alter(client, gone, []) == [(user.name, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    assert user.name in broker.services.users


async def test_a_super_user_may_change_them(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    by_client_id(monkeypatch)
    broker = await make_broker(authorizer_enabled=True, super_users="User:test")
    broker.services.node_principals = frozenset({_NODE})
    monkeypatch.setattr("tests.support.principals.named", lambda client_id: Principal("User", client_id))
    client = await broker.client()
    assert await _alter(client, [], [_upsertion("node")]) == [("node", ErrorCode.NONE)]


@pytest.mark.parametrize("owner", ["node", "alice"])
async def test_nobody_gets_a_token_of_the_nodes_user(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, owner: str
) -> None:
    """Not even a super user, and not the nodes' user itself: nodes log in without tokens."""
    secret = tmp_path / "secret"
    secret.write_text("sixteen bytes or more")
    by_client_id(monkeypatch)
    for who in ("test", "node"):
        monkeypatch.setattr("tests.support.principals.named", lambda client_id, who=who: Principal("User", who))
        broker = await make_broker(delegation_token_secret_key=f"file:{secret}")
        broker.services.node_principals = frozenset({_NODE})
        client = await broker.client()
        kind, name = ("User", owner) if who != owner else (None, None)
        answer = await client.ask(wire.CreateDelegationTokenRequest(kind, name, [], 1000), 3)
        is_refused = answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert is_refused is (owner == "node"), answer
