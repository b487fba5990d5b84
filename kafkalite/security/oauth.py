"""SASL OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a client shows a token that somebody else has signed.

The token is a JWT; the keys of its issuer are a JWK set (RFC 7517), from a file or from the issuer's server. Signatures and
claims are joserfc's work, a package of the extra `oauth`. Only signatures with a private key count: a secret shared
with clients (HS256) would let each of them write tokens, and `none` would let everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from kafkalite.errors import AuthenticationFailed, ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.scram import ScramCredential
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
_MAX_TOKEN_BYTES = 16 * 1024
#: A token that is valid for longer is renewed after this time (ten years).
_MAX_LIFETIME_S = 315_360_000.0
_MAX_KEYS_BYTES = 1024 * 1024
#: Keys of one set. They are read in one turn of the loop, about 0.1 ms each; issuers have a dozen at most.
_MAX_KEYS = 100
#: Deadline of one fetch of keys, and pause after a failed one, in seconds.
_FETCH_S = 10.0
_RETRY_S = 5.0
#: Pause in seconds before keys are fetched for a token whose key is missing: anybody can send such tokens.
_MISSING_S = 30.0
#: The first message: no channel binding, perhaps a name, then pairs; the last byte ends them.
_FIRST = re.compile(rb"n,(?:a=([^,]*))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)+)\x01")
_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/=-]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say. Empty: it is not checked. `skew_s`: by how much clocks may differ."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    name_claim: str = "sub"
    skew_s: int = 30


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who a token is for, and how long it is valid, in seconds from now."""

    user: str
    lifetime_s: float


class Keys(Protocol):
    """A JWK set as JSON text."""

    #: Why the last attempt to read it failed; empty: it did not.
    complaint: str

    def text(self) -> str:
        """As it was read last; empty: it never was."""
        ...


class TokenChecker:
    """Checks tokens against a set of keys.

    Args:
        keys: the present JWK set; it is parsed again when the text differs.
        now: wall clock, in seconds.
        missing: called when a token names a key that is not in the set: the issuer may have a new one.
    """

    def __init__(
        self,
        rules: TokenRules,
        keys: Keys,
        now: Callable[[], float],
        missing: Callable[[], None] = lambda: None,
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._now = now
        self._missing = missing
        self._text = ""
        self._parsed: Any = None
        #: Why the keys that came last cannot be used; empty: they can, or none came.
        self.complaint = ""

    def load(self) -> None:
        """Parse the keys. Raises ConfigError: there are none that can be used, or the package is missing."""
        try:
            import joserfc.jwk  # noqa: F401 - an extra, loaded only where OAUTHBEARER is used
        except ImportError:
            raise ConfigError("OAUTHBEARER needs the package joserfc: pip install kafkalite[oauth]") from None
        text = self._keys.text()
        if text != self._text:
            self._text = text
            try:
                self._parsed = _key_set(json.loads(text))
            except Exception as error:  # noqa: BLE001 - whatever a malformed set makes of the package
                self.complaint = f"no JWK set: {error}"
                if self._parsed is not None:  # the keys of before hold
                    _log.error("oauth.keys_not_read", error=self.complaint)
                raise self._error() from None
            self.complaint = ""
        if self._parsed is None:
            raise self._error()
        # The keys of before hold if those that came last cannot be used: that was reported when they came.

    def _error(self) -> ConfigError:
        return ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {self.complaint or 'the keys could not be read yet'}")

    def refusal(self) -> str:
        """Why the keys that came last cannot be used; empty: they can, or none came yet."""
        with contextlib.suppress(ConfigError):
            self.load()
        return self._keys.complaint or self.complaint

    def check(self, token: str) -> Bearer:
        """Raises AuthenticationFailed, without the token."""
        try:
            self.load()
        except ConfigError as error:
            if self._parsed is None:
                raise AuthenticationFailed(str(error)) from None
        from joserfc import errors, jwt

        rules, now = self._rules, self._now()
        try:
            claims = jwt.decode(token, self._parsed, algorithms=_ALGORITHMS).claims
            wanted: dict[str, Any] = {"exp": {"essential": True}, rules.name_claim: {"essential": True}}
            if rules.issuer:
                wanted["iss"] = {"essential": True, "value": rules.issuer}
            jwt.JWTClaimsRegistry(now=lambda: int(now), leeway=rules.skew_s, **wanted).validate(claims)
        except (errors.JoseError, ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, errors.InvalidKeyIdError):
                self._missing()
            raise AuthenticationFailed(f"the token is not valid: {type(error).__name__}: {error}") from None
        audience = claims.get("aud", ())
        named = {audience} if isinstance(audience, str) else set(map(str, audience))
        if rules.audiences and not named & set(rules.audiences):
            raise AuthenticationFailed("the token is for another audience")
        user, expires = claims.get(rules.name_claim), claims.get("exp")
        if not isinstance(user, str) or not user.strip() or not isinstance(expires, int | float):
            raise AuthenticationFailed(f"the token has no {rules.name_claim} or no exp")
        try:
            user.encode()
        except UnicodeEncodeError:  # "\ud800" of JSON is no text, and no answer, log or znode could have it
            raise AuthenticationFailed(f"the token's {rules.name_claim} is no text") from None
        # An issuer may write a number that no float and no field of 64 bits can hold.
        return Bearer(user.strip(), max(0.0, min(expires, now + _MAX_LIFETIME_S) - now))


def _key_set(value: Any) -> Any:
    """Those of its keys that can be used: an issuer may add one of a kind that is not known here (RFC 7517, 5). Raises if there are none."""
    from joserfc.jwk import JWKRegistry, KeySet

    keys: list[Any] = []
    wrong: Exception = ValueError("it has no keys")
    if len(value["keys"]) > _MAX_KEYS:
        raise ValueError(f"it has {len(value['keys'])} keys; at most {_MAX_KEYS} are taken")
    for each in value["keys"]:
        try:
            keys.append(JWKRegistry.import_key(each))
        except Exception as error:  # noqa: BLE001 - whatever a malformed key makes of the package
            wrong = error
    if not keys:
        raise wrong
    return KeySet(keys)


class OAuthServer:
    """One exchange. A refused token is answered with an error, which the client acknowledges (RFC 7628, 3.2.2)."""

    def __init__(self, checker: TokenChecker) -> None:
        self.user = ""
        self.is_known = False
        self.is_complete = False
        self.credential: ScramCredential | None = None
        self.lifetime_s: float | None = None
        self.token_id = ""
        self._checker = checker
        self._refusal = ""

    def step(self, data: bytes) -> bytes:
        if self._refusal:
            raise AuthenticationFailed(self._refusal)
        match = _FIRST.fullmatch(data) if len(data) <= _MAX_TOKEN_BYTES else None
        if match is None:
            raise AuthenticationFailed("malformed message")
        pairs = dict(part.split(b"=", 1) for part in match[2].split(b"\x01") if part)
        try:
            bearer = _BEARER.fullmatch(pairs.get(b"auth", b"").decode("ascii"))
            acting_as = (match[1] or b"").decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("malformed message") from None
        if bearer is None:
            raise AuthenticationFailed("malformed message")
        try:
            found = self._checker.check(bearer[1])
        except AuthenticationFailed as error:
            self._refusal = str(error)
            return b'{"status":"invalid_token"}'
        if acting_as not in ("", found.user):
            raise AuthenticationFailed("acting for another user is not offered")
        self.user, self.lifetime_s = found.user, found.lifetime_s
        self.is_known = self.is_complete = True
        return b""


#: Returns a connection; `is_secure`: with TLS. (host, port, is_secure) -> reader and writer. Raises OSError.
Dial = Callable[[str, int, bool], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class RemoteKeys:
    """Keys from the issuer's server, fetched again and again. What cannot be fetched leaves the keys of before in force.

    Attributes:
        fetched: how often they were.
    """

    def __init__(self, host: str, port: int, target: str, *, is_secure: bool, interval_s: float) -> None:
        self._host, self._port, self._target = host, port, target
        self._is_secure = is_secure
        self._interval_s = interval_s
        self._text = ""
        #: Why the last fetch failed; empty: it did not.
        self.complaint = ""
        self._is_wanted = asyncio.Event()
        self.fetched = 0

    @classmethod
    def parse(cls, url: str, interval_s: float) -> RemoteKeys:
        """Raises ConfigError. Plain http is for addresses of this host only: anybody on the way could replace the keys."""
        parts = urlsplit(url)
        is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not parts.hostname or parts.scheme not in ("https", "http") or (parts.scheme == "http" and not is_local):
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.url is neither file:///PATH nor https://HOST/PATH")
        is_secure = parts.scheme == "https"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            port = parts.port or (443 if is_secure else 80)
        except ValueError as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None
        return cls(parts.hostname, port, target, is_secure=is_secure, interval_s=interval_s)

    @property
    def authority(self) -> str:
        """The host, with the port if it is not the scheme's own."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return host if self._port == (443 if self._is_secure else 80) else f"{host}:{self._port}"

    def text(self) -> str:
        """The keys that were fetched last; empty if they never were."""
        return self._text

    def want(self) -> None:
        """Fetch them before the interval is over: a key is missing (Kafka's RefreshingHttpsJwks)."""
        self._is_wanted.set()

    async def run(self, dial: Dial) -> None:
        """For ever. The first fetch begins at once; a failed one, also of `dial`'s files of TLS, is repeated soon."""
        while True:
            self._is_wanted.clear()
            try:
                async with asyncio.timeout(_FETCH_S):
                    self._text = await self._fetch(dial)
                self.fetched += 1
                self.complaint = ""
                pause_s = self._interval_s
            except (OSError, TimeoutError, ValueError, EOFError, ConfigError) as error:
                pause_s = min(self._interval_s, _RETRY_S)
                if repr(error) != self.complaint:
                    self.complaint = repr(error)
                    _log.error("oauth.keys_not_fetched", host=self._host, error=repr(error))
            await asyncio.sleep(min(pause_s, _MISSING_S))
            try:
                async with asyncio.timeout(max(0.0, pause_s - _MISSING_S)):
                    await self._is_wanted.wait()
            except TimeoutError:
                continue

    async def _fetch(self, dial: Dial) -> str:
        """One GET. Raises OSError, ValueError, EOFError."""
        import h11  # the HTTP listener's package, for those that have a server to ask

        reader, writer = await dial(self._host, self._port, self._is_secure)
        try:
            connection = h11.Connection(h11.CLIENT)
            headers = [("Host", self.authority), ("Accept", "application/json"), ("Connection", "close")]
            writer.write(connection.send(h11.Request(method="GET", target=self._target, headers=headers)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            body = bytearray()
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await reader.read(65_536))
                elif isinstance(event, h11.Response) and event.status_code != 200:
                    raise ValueError(f"status {event.status_code}")
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > _MAX_KEYS_BYTES:
                        raise ValueError(f"more than {_MAX_KEYS_BYTES} bytes")
                elif isinstance(event, h11.EndOfMessage):
                    return body.decode("utf-8")
                elif isinstance(event, h11.ConnectionClosed):
                    raise EOFError("the response is cut off")
        except h11.ProtocolError as error:
            raise ValueError(str(error)) from None
        finally:
            writer.close()


class KeyFile:
    """The text of a file; read again when it changes. What cannot be read leaves what was read before in force.

    `is_watched`: a thread calls `refresh`; the file is not looked at for each login.
    """

    unusable = "users.not_reloaded"

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._text = ""
        #: Why the present content cannot be read; empty: it can.
        self.complaint = ""
        self.is_watched = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The file."""
        return (str(self._path),)

    def load(self) -> None:
        """Raises ConfigError: there is nothing to read."""
        if not self.text().strip():
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {self.complaint or f'{self._path} is empty'}")

    def text(self) -> str:
        """The present content; empty if there was never any."""
        if not self.is_watched:
            self.refresh()
        return self._text

    def refresh(self) -> None:
        """Look whether the file has changed. To be called by a thread."""
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen != self._seen:
                if stat.st_size > _MAX_KEYS_BYTES:
                    raise OSError(f"{self._path} has {stat.st_size} bytes")
                self._text = self._path.read_text(encoding="utf-8")
                self._seen = seen
            self.complaint = ""
        except (OSError, UnicodeDecodeError) as error:
            if str(error) != self.complaint:
                self.complaint = str(error)
                _log.error("oauth.keys_not_read", error=str(error))
