"""Delegation tokens without ZooKeeper: who may do what with one, and logins with it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kafkalite.errors import AuthenticationFailed, PrincipalChanged
from kafkalite.security.principal import Principal
from kafkalite.security.scram import ScramClient, ScramServer, decoy
from kafkalite.security.tokens import Token, Tokens
from tests.support.calls import calls
from tests.support.security import listener_security

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
MECHANISM = "SCRAM-SHA-256"
SECRET = "a secret of the cluster"


class World:
    def __init__(self) -> None:
        self.now_ms = 1_000
        self.tokens = Tokens(SECRET, lambda: self.now_ms)
        self.token = Token("id", ALICE, CAROL, (BOB,), 1_000, 5_000, 9_000)
        self.tokens.put(self.token)
        self.password = base64.b64encode(self.tokens.with_hmac(self.token).hmac).decode()


def exchange(server: ScramServer, user: str, password: str, extension: str | None = None) -> None:
    """Raises AuthenticationFailed. `extension`: another one than that of a token."""
    client = ScramClient(MECHANISM, user, password, "nonce", is_token=extension is None)
    client._bare += extension or ""
    client.step(server.step(client.step(server.step(client.first()))))
    assert server.is_complete


def test_who_has_to_do_with_a_token() -> None:
    token = World().token
    assert [token.may_renew(each) for each in (ALICE, BOB, CAROL)] == [True, True, False]
    assert set(token.concerned) == {ALICE, BOB, CAROL}


def test_a_token_is_found_by_its_hmac_until_it_is_dropped() -> None:
    world = World()
    value = world.tokens.with_hmac(world.token).hmac
    assert world.tokens.by_hmac(value) == world.token and world.tokens.by_hmac(b"x") is None
    assert "hmac" not in repr(world.tokens.with_hmac(world.token))
    assert world.tokens.drop("id") == world.token
    assert world.tokens.by_hmac(value) is None and world.tokens.drop("id") is None


@pytest.mark.parametrize("now_ms,is_valid", [(5_000, True), (5_001, False)])
def test_a_token_ends_at_its_time(now_ms: int, *, is_valid: bool) -> None:
    world = World()
    world.now_ms = now_ms
    delegated = world.tokens.delegated(MECHANISM, "id")
    assert (delegated is not None) is is_valid
    assert [each.token_id for each in world.tokens.expired()] == ([] if is_valid else ["id"])


def test_what_ends_next_is_known_without_a_look_at_all_tokens() -> None:
    """Each change of a token asks for it: with 10,000 tokens it held every node for milliseconds."""
    tokens = Tokens(SECRET, lambda: 5_003)
    for number in range(500):
        tokens.put(Token(str(number), ALICE, ALICE, (), 0, 5_000 + number, 9_000))
    tokens.put(Token("2", ALICE, ALICE, (), 0, 6_000, 9_000))  # renewed
    tokens.drop("0")
    assert calls(lambda: [tokens.next_expiry_ms(), *tokens.expired()]) < 30
    assert (tokens.next_expiry_ms(), [each.token_id for each in tokens.expired()]) == (5_003, ["1"])


def test_every_node_has_the_same_credential_and_strangers_see_one_of_its_form() -> None:
    world, other = World(), World()
    one, two = (each.tokens.delegated(MECHANISM, "id") for each in (world, other))
    assert one is not None and two is not None and one.credential == two.credential
    false = decoy(MECHANISM, "none", b"key")
    assert (false.iterations, len(false.salt)) == (one.credential.iterations, len(one.credential.salt))


def test_a_login_with_a_token_is_its_owners() -> None:
    world = World()
    security = listener_security(delegated=world.tokens.delegated)
    server = security.exchange(MECHANISM)
    assert isinstance(server, ScramServer)
    exchange(server, "id", world.password)
    login = security.login(server, MECHANISM, None, "h")
    assert (login.principal, login.token_id, login.lifetime_s) == (ALICE, "id", 4.0)
    assert security.holds(login)
    world.tokens.drop("id")
    assert not security.holds(login)


@pytest.mark.parametrize("extension", [",tokenauth=TRUE", ",a=b,tokenauth=True"])
def test_a_token_is_announced_in_any_case(extension: str) -> None:
    """As in Kafka (Boolean.parseBoolean)."""
    server = listener_security(delegated=World().tokens.delegated).exchange(MECHANISM)
    assert isinstance(server, ScramServer)
    exchange(server, "id", World().password, extension)


@pytest.mark.parametrize("user,extension", [("id", ""), ("alice", None), ("other", None), ("id", ",tokenauth=no")])
def test_a_token_is_no_user_and_a_user_no_token(user: str, extension: str) -> None:
    world = World()
    server = listener_security(delegated=world.tokens.delegated).exchange(MECHANISM)
    assert isinstance(server, ScramServer)
    with pytest.raises(AuthenticationFailed):
        exchange(server, user, world.password, extension)


def test_a_wrong_hmac_is_refused() -> None:
    world = World()
    server = listener_security(delegated=world.tokens.delegated).exchange(MECHANISM)
    assert isinstance(server, ScramServer)
    with pytest.raises(AuthenticationFailed):
        exchange(server, "id", world.password[:-4] + "AAA=")


def test_a_listener_without_tokens_knows_none() -> None:
    server = listener_security().exchange(MECHANISM)
    assert isinstance(server, ScramServer)
    with pytest.raises(AuthenticationFailed, match="unknown delegation token"):
        exchange(server, "id", "anything")


def test_a_token_of_the_nodes_user_is_refused() -> None:
    """It would be a node: it may have been created before the name became the nodes'."""
    world = World()
    world.tokens.put(Token("n", Principal("User", "node"), ALICE, (), 1_000, 5_000, 9_000))
    security = listener_security(delegated=world.tokens.delegated)
    server = security.exchange(MECHANISM)
    assert isinstance(server, ScramServer)
    token = world.tokens.get("n")
    assert token is not None
    exchange(server, "n", base64.b64encode(world.tokens.with_hmac(token).hmac).decode())
    with pytest.raises(AuthenticationFailed, match="user of the nodes"):
        security.login(server, MECHANISM, None, "h")


def test_another_login_of_the_same_connection_may_not_change_its_user() -> None:
    world = World()
    security = listener_security(delegated=world.tokens.delegated)
    world.tokens.put(Token("b", BOB, BOB, (), 1_000, 5_000, 9_000))
    logins: list[Any] = []
    for token_id in ("id", "b"):
        token = world.tokens.get(token_id)
        assert token is not None
        server = security.exchange(MECHANISM)
        assert isinstance(server, ScramServer)
        exchange(server, token_id, base64.b64encode(world.tokens.with_hmac(token).hmac).decode())
        if token_id == "b":
            with pytest.raises(PrincipalChanged):
                security.login(server, MECHANISM, logins[0], "h")
        else:
            logins.append(security.login(server, MECHANISM, None, "h"))
