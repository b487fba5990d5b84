"""SASL OAUTHBEARER: which tokens are taken, what a refusal says, and where the keys come from."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafkalite.config import broker_config
from kafkalite.errors import AuthenticationFailed, ConfigError
from kafkalite.security.oauth import KeyFile, OAuthServer, RemoteKeys, TokenChecker, TokenRules
from tests.support.security import listener_security
from tests.support.waiting import until

jwk = pytest.importorskip("joserfc.jwk")
jwt = pytest.importorskip("joserfc.jwt")
hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
decode_dss_signature = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.utils").decode_dss_signature

NOW = 1_800_000_000
KEY = jwk.ECKey.generate_key("P-256", {"kid": "one"})
OTHER = jwk.ECKey.generate_key("P-256", {"kid": "one"})
KEYS = json.dumps({"keys": [KEY.as_dict(private=False)]})
RULES = TokenRules(("kafka",), "https://issuer")
GOOD = {"sub": "alice", "exp": NOW + 60, "aud": ["kafka", "web"], "iss": "https://issuer"}


@dataclass
class GivenKeys:
    content: str
    complaint: str = ""

    def text(self) -> str:
        return self.content


def token(key: Any = KEY, algorithm: str = "ES256", **claims: Any) -> str:
    values = {name: value for name, value in (GOOD | claims).items() if value is not None}
    return str(jwt.encode({"alg": algorithm, "kid": "one"}, values, key))


def server(rules: TokenRules = RULES) -> OAuthServer:
    return OAuthServer(TokenChecker(rules, GivenKeys(KEYS), lambda: float(NOW)))


def first(value: str, name: str = "") -> bytes:
    return f"n,{'a=' + name if name else ''},\x01auth=Bearer {value}\x01\x01".encode()


def test_a_token_is_a_user_until_it_ends() -> None:
    exchange = server()
    assert exchange.step(first(token())) == b""
    assert (exchange.user, exchange.is_complete, exchange.lifetime_s) == ("alice", True, 60.0)
    named = server(TokenRules(name_claim="email"))
    assert named.step(first(token(email="a@b", aud="x", iss=None), "a@b")) == b"" and named.user == "a@b"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(token(OTHER), id="another key"),
        pytest.param(token(exp=NOW - 31), id="it has ended"),
        pytest.param(token(exp=None), id="it never ends"),
        pytest.param(token(nbf=NOW + 100), id="it is not valid yet"),
        pytest.param(token(aud="web"), id="for another audience"),
        pytest.param(token(aud=None), id="for nobody"),
        pytest.param(token(iss="https://evil"), id="of another issuer"),
        pytest.param(token(sub=None), id="nobody's"),
        pytest.param(token(sub="  "), id="of an empty name"),
        pytest.param(token(sub=["alice"]), id="of a list of names"),
        pytest.param(token(jwk.OctKey.import_key(KEYS), "HS256"), id="signed with the public keys as a secret"),
        pytest.param("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6MTkwMDAwMDAwMH0.", id="without a signature"),
        pytest.param("x", id="no token"),
        pytest.param(token()[:-6] + "AAAAAA", id="a signature that is not its own"),
    ],
)
def test_a_refused_token_is_answered_and_the_exchange_ends(value: str) -> None:
    exchange = server()
    assert json.loads(exchange.step(first(value))) == {"status": "invalid_token"}
    assert not exchange.is_complete
    with pytest.raises(AuthenticationFailed) as refused:
        exchange.step(b"\x01")
    assert value not in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,auth=Bearer x",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * 20_000 + b"\x01\x01",
    ],
)
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="malformed message"):
        server().step(data)


def test_acting_for_another_user_is_refused() -> None:
    """At once, as by Kafka: it is not the token that is refused."""
    with pytest.raises(AuthenticationFailed, match="acting for another user"):
        server().step(first(token(), "bob"))


def test_a_token_makes_nobody_a_node() -> None:
    """Some identity providers let people choose the name that a claim has."""
    security = listener_security(
        mechanisms=("OAUTHBEARER",), tokens=TokenChecker(RULES, GivenKeys(KEYS), lambda: float(NOW))
    )
    for user in ("alice", "node"):
        exchange = security.exchange("OAUTHBEARER")
        assert exchange is not None
        assert exchange.step(first(token(sub=user))) == b"" and exchange.user == user
        if user == "alice":
            assert security.login(exchange, "OAUTHBEARER", None, "10.0.0.9").principal.name == user
        else:
            with pytest.raises(AuthenticationFailed, match="user of the nodes"):
                security.login(exchange, "OAUTHBEARER", None, "10.0.0.9")


def test_refused_tokens_are_one_line_whatever_is_in_them() -> None:
    """An unauthenticated peer could have a line of the log with each connection, until those about others had no room."""
    security = listener_security(
        mechanisms=("OAUTHBEARER",), tokens=TokenChecker(RULES, GivenKeys(KEYS), lambda: float(NOW))
    )
    with capture_logs() as lines:
        for number in range(20):
            exchange = security.exchange("OAUTHBEARER")
            assert exchange is not None
            exchange.step(first(str(jwt.encode({"alg": "ES256", "kid": f"x{number}"}, GOOD, KEY))))
            with pytest.raises(AuthenticationFailed) as refused:
                exchange.step(b"\x01")
            security.refused("10.0.0.9:1", str(refused.value), mechanism="OAUTHBEARER")
    [line] = lines
    assert "x0" in line["reason"]


def test_a_node_that_cannot_read_the_keys_at_its_start_says_why(tmp_path: Path) -> None:
    """It said "the keys could not be read yet", of a file that was not there or empty."""
    path = tmp_path / "keys.json"
    with pytest.raises(ConfigError, match=r"^sasl\.oauthbearer\.jwks\.endpoint\.url: .*No such file.*keys\.json"):
        KeyFile(str(path)).load()
    path.write_text("\n")
    with pytest.raises(ConfigError, match=r"keys\.json is empty$"):
        KeyFile(str(path)).load()
    path.write_text(KEYS)
    KeyFile(str(path)).load()


def test_keys_are_read_again_and_bad_ones_leave_those_before(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(KEYS)
    checker = TokenChecker(RULES, KeyFile(str(path)), lambda: float(NOW))
    assert checker.check(token()).user == "alice"
    path.write_text("{")
    with capture_logs() as logged:
        for _ in range(3):
            assert checker.check(token()).user == "alice"
    assert len(logged) == 1, "each login would be a line, of every client that can reach the listener"
    assert checker.refusal().startswith("no JWK set: ")
    path.unlink()
    assert checker.check(token()).user == "alice"
    assert "No such file" in checker.refusal()
    path.write_text(json.dumps({"keys": [OTHER.as_dict(private=False)]}))
    assert checker.check(token(OTHER)).user == "alice"
    assert not checker.refusal()
    with pytest.raises(AuthenticationFailed):
        checker.check(token())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"}, id="another curve"),
        pytest.param({"kty": "RSA", "n": "AQAB", "e": "AQAB"}, id="out of range"),
        pytest.param({"kty": "RSA", "x5c": ["AA"]}, id="a member is missing"),
        pytest.param("AA", id="no key"),
    ],
)
def test_a_key_that_cannot_be_used_leaves_the_others(other: object) -> None:
    """RFC 7517, 5. With one such key of the issuer nobody could log in."""
    keys = json.dumps({"keys": [other, KEY.as_dict(private=False)]})
    assert TokenChecker(RULES, GivenKeys(keys), lambda: float(NOW)).check(token()).user == "alice"


def test_keys_that_cannot_be_used_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token of anybody had a node read a megabyte again."""
    read: list[str] = []

    def loaded(text: str) -> object:
        read.append(text)
        return {"keys": []}

    monkeypatch.setattr("kafkalite.security.oauth.json.loads", loaded)
    checker = TokenChecker(RULES, GivenKeys('{"keys": []}'), lambda: float(NOW))
    for _ in range(3):
        with pytest.raises(ConfigError, match="it has no keys"):
            checker.load()
    assert len(read) == 1


def test_a_set_of_too_many_keys_leaves_those_before() -> None:
    """A megabyte has 7,000: to read them held the loop for 0.4 s."""
    keys = GivenKeys(KEYS)
    checker = TokenChecker(RULES, keys, lambda: float(NOW))
    checker.load()
    keys.content = json.dumps({"keys": [OTHER.as_dict(private=False)] * 101})
    with capture_logs() as logged:
        assert checker.check(token()).user == "alice"
    [line] = logged
    assert "101 keys; at most 100" in line["error"]


def test_without_keys_nobody_comes_in() -> None:
    with pytest.raises(AuthenticationFailed):
        TokenChecker(RULES, GivenKeys(""), lambda: float(NOW)).check(token())
    with pytest.raises(ConfigError):
        TokenChecker(RULES, GivenKeys("{}"), lambda: float(NOW)).load()


@pytest.mark.parametrize("url", ["", "http://issuer/keys", "ftp://x/", "https:///keys", "https://h:99999999/k"])
def test_addresses_of_keys(url: str) -> None:
    with pytest.raises(ConfigError):
        RemoteKeys.parse(url, 60)


async def test_keys_are_fetched_again_after_a_failure() -> None:
    answers = [
        b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + KEYS.encode(),
    ]
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answers[min(len(asked), 2) - 1])
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    refused: list[str] = []
    remote = RemoteKeys.parse(f"http://127.0.0.1:{port}/keys?a=b", 0.01)

    async def dial(host: str, port: int, is_secure: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:  # noqa: FBT001 - an oauth.Dial
        assert not is_secure
        if not refused:
            refused.append(host)
            raise ConfigError("TLS: the truststore is being replaced")
        return await asyncio.open_connection(host, port)

    fetching = asyncio.ensure_future(remote.run(dial))
    await until(lambda: remote.fetched >= 2)
    fetching.cancel()
    listening.close()
    assert remote.text() == KEYS and len(asked) >= 3
    assert asked[0].startswith(b"GET /keys?a=b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port)


async def test_a_token_of_a_new_key_has_the_keys_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """An issuer that changes its key signs with it at once: tokens were refused until the interval was over, an hour."""
    monkeypatch.setattr("kafkalite.security.oauth._MISSING_S", 0.01)
    new = jwk.ECKey.generate_key("P-256", {"kid": "two"})
    of_issuer = [KEY]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\n\r\n"
            + json.dumps({"keys": [each.as_dict(private=False) for each in of_issuer]}).encode()
        )
        writer.close()

    async def dial(host: str, port: int, is_secure: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:  # noqa: FBT001 - an oauth.Dial
        return await asyncio.open_connection(host, port)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    remote = RemoteKeys.parse(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/", 3600)
    checker = TokenChecker(RULES, remote, lambda: float(NOW), remote.want)
    fetching = asyncio.ensure_future(remote.run(dial))
    await until(lambda: remote.fetched == 1)
    assert checker.check(token()).user == "alice"
    of_issuer.append(new)
    made = str(jwt.encode({"alg": "ES256", "kid": "two"}, GOOD, new))
    with pytest.raises(AuthenticationFailed, match="No key for kid"):
        checker.check(made)
    await until(lambda: remote.fetched == 2)
    assert checker.check(made).user == "alice"
    fetching.cancel()
    listening.close()


def test_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"needs sasl\.oauthbearer\.jwks\.endpoint\.url"):
        broker_config({"listener.security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": ["OAUTHBEARER"]})


def signed(header: bytes, claims: bytes) -> str:
    """A token of any bytes, signed by the issuer's own key."""

    def encoded(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    text = f"{encoded(header)}.{encoded(claims)}"
    der = KEY.private_key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
    return f"{text}.{encoded(b''.join(number.to_bytes(32) for number in decode_dss_signature(der)))}"


HEADER = b'{"alg":"ES256","kid":"one"}'
NESTED = b"[" * 4000 + b"]" * 4000


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(signed(HEADER, b'{"sub":"alice","exp":1800000060,"x":' + NESTED + b"}"), id="nested claims"),
        pytest.param(signed(NESTED, b"{}"), id="nested header"),
        pytest.param(signed(b'{"alg":"ES256","kid":' + b"9" * 5000 + b"}", b"{}"), id="a number of 5,000 digits"),
        pytest.param(signed(HEADER, b'{"sub":"\\ud800","exp":1800000060}'), id="a name that is no text"),
        pytest.param(signed(HEADER, b'{"sub":"alice","exp":NaN}'), id="it ends never and always"),
        pytest.param(signed(HEADER, b'{"sub":"alice","exp":-1e308}'), id="it has ended before all times"),
        pytest.param(signed(HEADER, b'{"sub":"alice","exp":1800000060,"nbf":1800000060000}'), id="nbf in milliseconds"),
        pytest.param(signed(HEADER[:-1] + b',"crit":["exp"],"exp":1}', b'{"sub":"alice","exp":1800000060}'), id="crit"),
        pytest.param(signed(HEADER[:-1] + b',"jku":"file:///keys"}', b'{"sub":"alice","exp":1800000060}'), id="jku"),
        pytest.param("." * 15_000, id="dots"),
        pytest.param("A" * 15_000, id="letters"),
    ],
)
def test_a_token_that_is_a_bomb_is_refused(value: str) -> None:
    exchange = server(TokenRules())
    assert exchange.step(first(value)) == b'{"status":"invalid_token"}'


@pytest.mark.parametrize("exp", [b"1" + b"0" * 400, b"1e308", b"99999999999999999999"])
def test_a_token_may_end_in_a_time_that_no_field_holds(exp: bytes) -> None:
    exchange = server(TokenRules())
    assert exchange.step(first(signed(HEADER, b'{"sub":"alice","exp":' + exp + b"}"))) == b""
    assert exchange.lifetime_s is not None and exchange.lifetime_s * 1000 < 2**63


@pytest.mark.parametrize(
    ("url", "host"),
    [("https://id.example/keys", "id.example"), ("https://id.example:8443/keys", "id.example:8443"), ("http://[::1]/keys", "[::1]")],
)  # fmt: skip
def test_the_host_of_a_request_for_keys(url: str, host: str) -> None:
    assert RemoteKeys.parse(url, 60).authority == host
