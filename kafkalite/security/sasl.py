"""SASL as both listeners and both clients speak it: mechanisms behind one interface, without I/O."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from kafkalite.errors import AuthenticationFailed
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.scram import (
    MECHANISMS as SCRAM_MECHANISMS,
)
from kafkalite.security.scram import (
    NONCE_BYTES,
    Delegated,
    ScramClient,
    ScramCredential,
    ScramServer,
    nonce_text,
    salted_password,
)

if TYPE_CHECKING:
    from kafkalite.security.oauth import TokenChecker

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
#: Salted passwords that a client remembers: one per server that it meets, as a rule one in all.
_REMEMBERED = 16
_MAX_PLAIN_BYTES = 4096

#: Returns this number of unpredictable bytes (Env.entropy).
Entropy = Callable[[int], bytes]


class SaslServer(Protocol):
    """One exchange. `step` until `is_complete`; `user` is proved then."""

    user: str
    is_known: bool
    is_complete: bool
    #: What the user was measured against; None: nothing that can be compared later (PLAIN).
    credential: ScramCredential | None
    #: Time in seconds after which the proof ends (a token's); None: it does not.
    lifetime_s: float | None
    #: The delegation token that was shown (KIP-48); empty: it was none.
    token_id: str

    def step(self, data: bytes) -> bytes:
        """The answer to the client's next message. Raises AuthenticationFailed; the exchange is over then."""
        ...


class SaslClient(Protocol):
    """One exchange: `first`, then `step` until `is_complete` (PLAIN is complete with an answer that is no refusal)."""

    is_complete: bool

    def first(self) -> bytes: ...

    def step(self, data: bytes) -> bytes:
        """What to send next; nothing when complete. Raises AuthenticationFailed."""
        ...


class PlainServer:
    """RFC 4616: the password comes as it is. `passwords`: of all users."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.user = ""
        self.is_known = False
        self.is_complete = False
        self.credential: ScramCredential | None = None
        self.lifetime_s: float | None = None
        self.token_id = ""
        self._passwords = passwords

    def step(self, data: bytes) -> bytes:
        try:
            acting_as, self.user, password = data.decode().split("\0")
        except ValueError:  # not UTF-8, or not three parts
            raise AuthenticationFailed("malformed message") from None
        if len(data) > _MAX_PLAIN_BYTES or not self.user or not password:
            raise AuthenticationFailed("malformed message")
        if acting_as not in ("", self.user):
            raise AuthenticationFailed("acting for another user is not offered")
        known = self._passwords.get(self.user)
        self.is_known = known is not None
        # An unknown user is compared with something too, of about the same length.
        same = hmac.compare_digest((known or "\0" * len(password)).encode(), password.encode())
        if known is None or not same:
            raise AuthenticationFailed("wrong password" if self.is_known else "unknown user")
        self.is_complete = True
        return b""


class PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self.is_complete = False
        self._message = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def step(self, data: bytes) -> bytes:
        self.is_complete = True
        return b""


@dataclass(frozen=True, slots=True)
class KnownProofs:
    """What a user's proof is checked against.

    `passwords`: of PLAIN's users. `credentials`: (mechanism, user) -> what is kept for SCRAM. `tokens`: what checks those of OAUTHBEARER.
    `delegated`: (mechanism, token id) -> what a delegation token stands for.
    """

    passwords: Callable[[], Mapping[str, str]]
    credentials: Callable[[str, str], ScramCredential | None]
    entropy: Entropy
    decoy_key: Callable[[], bytes]
    tokens: TokenChecker | None = None
    delegated: Callable[[str, str], Delegated | None] = lambda mechanism, token_id: None


def sasl_server(mechanism: str, known: KnownProofs) -> SaslServer:
    """One exchange of `mechanism`, which is one of MECHANISMS, or OAUTHBEARER if there are `tokens`."""
    if mechanism == PLAIN:
        return PlainServer(known.passwords())
    if mechanism not in SCRAM_MECHANISMS and known.tokens is not None:
        from kafkalite.security.oauth import OAuthServer  # loaded only where OAUTHBEARER is used

        return OAuthServer(known.tokens)
    nonce = nonce_text(known.entropy(NONCE_BYTES))
    return ScramServer(
        mechanism,
        lambda user: known.credentials(mechanism, user),
        nonce,
        known.decoy_key(),
        lambda token_id: known.delegated(mechanism, token_id),
    )


class ClientCredentials:
    """A user's name and password, and the salted passwords made from it so far: connecting again is cheap.

    `is_token`: they are the id and the HMAC of a delegation token (SCRAM only).
    """

    def __init__(self, mechanism: str, user: str, password: str, *, is_token: bool = False) -> None:
        self.mechanism = mechanism
        self._is_token = is_token
        self._user = user
        self._password = password
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def client(self, entropy: Entropy) -> SaslClient:
        """A new exchange."""
        if self.mechanism == PLAIN:
            return PlainClient(self._user, self._password)
        nonce = nonce_text(entropy(NONCE_BYTES))
        return ScramClient(self.mechanism, self._user, self._password, nonce, self._remembered, is_token=self._is_token)

    def _remembered(self, mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        key = (salt, iterations)
        known = self._salted.get(key)
        if known is None:
            if len(self._salted) >= _REMEMBERED:
                self._salted.clear()
            known = self._salted[key] = salted_password(mechanism, password, salt, iterations)
        return known
