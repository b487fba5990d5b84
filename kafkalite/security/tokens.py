"""Delegation tokens (KIP-48): who has one, until when, and what a login with it is checked against. Pure.

A token is an identifier and its HMAC under a secret that all nodes have. The HMAC in base64 is the password of a SCRAM
login whose user is the identifier; the connection then acts as the token's owner. Only what describes the tokens is
stored: somebody with read access to ZooKeeper cannot log in without the nodes' secret. Source: Kafka's DelegationTokenManager.
"""

from __future__ import annotations

import base64
import hmac
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.principal import Principal

if TYPE_CHECKING:  # a node without tokens does not load it
    from kafkalite.security.scram import Delegated, ScramCredential

#: The HMAC's hash.
_HASH = "sha512"
#: A shorter secret could be guessed by somebody who has one token.
MIN_SECRET_BYTES = 16


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of one. Times are milliseconds since the epoch; after `expires_ms` nobody logs in with it."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    @property
    def ends_ms(self) -> int:
        """The last time at which it is valid."""
        return min(self.expires_ms, self.max_ms)

    def is_expired(self, now_ms: int) -> bool:
        return self.ends_ms < now_ms

    def may_renew(self, principal: Principal) -> bool:
        """Whether this user may renew it, or end it."""
        return principal == self.owner or principal in self.renewers

    @property
    def concerned(self) -> tuple[Principal, ...]:
        """The users that see it without any right."""
        return (self.owner, self.requester, *self.renewers)


@dataclass(frozen=True, slots=True)
class SecretToken:
    """A token with its HMAC, which is as good as a password."""

    token: Token
    hmac: bytes = field(repr=False)


class Tokens:
    """Those that this node knows.

    Args:
        secret: `delegation.token.secret.key`.
        wall_ms: the time, in milliseconds since the epoch.
    """

    def __init__(self, secret: str, wall_ms: Callable[[], int]) -> None:
        self._secret = secret.encode()
        self._wall_ms = wall_ms
        self._tokens: dict[str, Token] = {}
        self._ids: dict[bytes, str] = {}
        #: (their end, identifier), in order: each change asks what ends next.
        self._ends: list[tuple[int, str]] = []
        #: Requester -> how many of them it has asked for.
        self._requested: Counter[Principal] = Counter()
        #: (mechanism, token id) -> what a login was checked against; it never changes.
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def put(self, token: Token) -> None:
        before = self._tokens.get(token.token_id)
        if before is None:
            self._requested[token.requester] += 1
        else:
            self._forget_end(before)
        insort(self._ends, (token.ends_ms, token.token_id))
        self._tokens[token.token_id] = token
        self._ids[self._hmac(token.token_id)] = token.token_id

    def drop(self, token_id: str) -> Token | None:
        """The token that was there."""
        self._ids.pop(self._hmac(token_id), None)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            self._credentials.pop((mechanism, token_id), None)
        token = self._tokens.pop(token_id, None)
        if token is not None:
            self._forget_end(token)
            self._requested[token.requester] -= 1
            if not self._requested[token.requester]:
                del self._requested[token.requester]
        return token

    def _forget_end(self, token: Token) -> None:
        del self._ends[bisect_left(self._ends, (token.ends_ms, token.token_id))]

    def requested_by(self, requester: Principal) -> int:
        """How many there are that this user has asked for."""
        return self._requested[requester]

    def get(self, token_id: str) -> Token | None:
        return self._tokens.get(token_id)

    def by_hmac(self, value: bytes) -> Token | None:
        token_id = self._ids.get(value)
        return None if token_id is None else self._tokens[token_id]

    def all(self) -> Iterable[Token]:
        """In the order of their identifiers."""
        return [self._tokens[token_id] for token_id in sorted(self._tokens)]

    def expired(self) -> list[Token]:
        """Those whose end was first come first."""
        return [self._tokens[token_id] for _, token_id in self._ends[: self._first_valid()]]

    def next_expiry_ms(self) -> int | None:
        """When the next one expires, in milliseconds since the epoch; None: all have expired."""
        at = self._first_valid()
        return self._ends[at][0] if at < len(self._ends) else None

    def _first_valid(self) -> int:
        """Its place among the ends."""
        return bisect_left(self._ends, (self._wall_ms(), ""))

    def with_hmac(self, token: Token) -> SecretToken:
        return SecretToken(token, self._hmac(token.token_id))

    def delegated(self, mechanism: str, token_id: str) -> Delegated | None:
        """What a login with this token is checked against; None: there is no such token, or it has expired."""
        token = self._tokens.get(token_id)
        now = self._wall_ms()
        if token is None or token.is_expired(now):
            return None
        from kafkalite.security.scram import Delegated

        lifetime_s = (token.ends_ms - now) / 1000
        return Delegated(token.owner.name, self._credential(mechanism, token_id), lifetime_s)

    def _credential(self, mechanism: str, token_id: str) -> ScramCredential:
        """The same on every node, and of the same form as a decoy: the salt follows from the secret."""
        from kafkalite.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, make_credential

        key = (mechanism, token_id)
        known = self._credentials.get(key)
        if known is None:
            salt = hmac.digest(self._secret, f"salt {mechanism} {token_id}".encode(), _HASH)[:SALT_BYTES]
            password = base64.b64encode(self._hmac(token_id)).decode()
            known = self._credentials[key] = make_credential(mechanism, password, salt, DEFAULT_ITERATIONS)
        return known

    def _hmac(self, token_id: str) -> bytes:
        return hmac.digest(self._secret, token_id.encode(), _HASH)
