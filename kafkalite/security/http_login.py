"""The user of an HTTP request: a name with its password (RFC 7617) or a token (RFC 6750), held against the users of SASL.

No I/O. A correct password is kept as a keyed hash: a scrape every few seconds must not cost the thousands
of rounds of a SCRAM password each time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from kafkalite.errors import AuthenticationFailed
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.sasl import OAUTHBEARER, PLAIN
from kafkalite.security.scram import ScramCredential, credential_of, decoy, salted_password

BASIC, BEARER = "Basic", "Bearer"
#: No honest name and password are longer.
_MAX_BYTES = 4096
#: Users whose password is remembered; with more, all are forgotten and hashed again.
_MAX_REMEMBERED = 1024
#: RFC 6750's b64token.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


@dataclass(frozen=True, slots=True)
class HttpLogin:
    """What a request brings. `user` is empty with a token: the token says who it is."""

    scheme: str
    user: str
    secret: str = field(repr=False)


def parse(header: str) -> HttpLogin:
    """An Authorization header. Raises AuthenticationFailed, without the header in it."""
    scheme, _, text = header.partition(" ")
    text = text.strip()
    if len(text) > _MAX_BYTES:
        raise AuthenticationFailed("a login that is too long")
    if scheme.lower() == BEARER.lower():
        if not _TOKEN.fullmatch(text):
            raise AuthenticationFailed("malformed token")
        return HttpLogin(BEARER, "", text)
    if scheme.lower() != BASIC.lower():
        raise AuthenticationFailed("scheme not offered")
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except ValueError:  # no base64, or no UTF-8
        raise AuthenticationFailed("malformed name and password") from None
    if not (colon and user and password):
        raise AuthenticationFailed("malformed name and password")
    return HttpLogin(BASIC, user, password)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a name's password is held against, as it was when the request came.

    Args:
        plain: of the users' file; None: no such user, or no PLAIN.
        scram: (mechanism, credential), a decoy's if there is none; None: no SCRAM here.
        is_known: whether there is such a user.
    """

    plain: str | None = field(repr=False)
    scram: tuple[str, ScramCredential] | None
    is_known: bool

    def fits(self, password: str) -> bool:
        """Slow on purpose, some milliseconds: not for the event loop. A wrong password costs what an unknown user does."""
        # An unknown user is compared with something too, of about the same length.
        against = ("\0" * len(password)) if self.plain is None else self.plain
        if hmac.compare_digest(against.encode(), password.encode()) and self.plain is not None:
            return True
        if self.scram is None:
            return False
        mechanism, credential = self.scram
        salted = salted_password(mechanism, password, credential.salt, credential.iterations)
        made = credential_of(mechanism, salted, credential.salt, credential.iterations)
        return hmac.compare_digest(made.stored_key, credential.stored_key) and self.is_known


class Logins:
    """One listener's.

    Args:
        mechanisms: whose users may log in with name and password: of PLAIN those of `passwords`, of SCRAM those of
            `credentials`. None at all: there is no Basic here.
        tokens: name -> token; None: there is no Bearer here.
        key: a secret of this process.
    """

    def __init__(
        self,
        *,
        mechanisms: Sequence[str],
        passwords: Callable[[], Mapping[str, str]],
        credentials: Callable[[str, str], ScramCredential | None],
        tokens: Callable[[], Mapping[str, str]] | None,
        key: bytes,
    ) -> None:
        has_passwords = any(name != OAUTHBEARER for name in mechanisms)
        self.schemes = (*((BASIC,) if has_passwords else ()), *((BEARER,) if tokens is not None else ()))
        self._has_plain = PLAIN in mechanisms
        #: The strongest first: it is what a user without any is tried against.
        self._scram = sorted((name for name in mechanisms if name not in (PLAIN, OAUTHBEARER)), reverse=True)
        self._passwords = passwords
        self._credentials = credentials
        self._tokens = tokens
        self._key = key
        #: User -> what the password fitted, and its keyed hash.
        self._remembered: dict[str, tuple[Evidence, bytes]] = {}

    def owner(self, login: HttpLogin) -> str | None:
        """The owner of the token; None: it is no token. Every token is compared, whichever fits."""
        found = None
        if self._tokens is not None:
            given = hashlib.sha256(login.secret.encode()).digest()
            for name, token in self._tokens().items():
                if hmac.compare_digest(hashlib.sha256(token.encode()).digest(), given):
                    found = name
        return found

    def evidence(self, user: str) -> Evidence:
        """What this user's password is held against now."""
        plain = self._passwords().get(user) if self._has_plain else None
        scram: tuple[str, ScramCredential] | None = None
        for mechanism in self._scram:
            if (found := self._credentials(mechanism, user)) is not None:
                return Evidence(plain, (mechanism, found), is_known=True)
        if self._scram:
            scram = (self._scram[0], decoy(self._scram[0], user, self._key))
        return Evidence(plain, scram, plain is not None)

    def is_remembered(self, login: HttpLogin, evidence: Evidence) -> bool:
        """Whether this very password has fitted this very evidence before."""
        known = self._remembered.get(login.user)
        return known is not None and known[0] == evidence and hmac.compare_digest(known[1], self._hash(login))

    def remember(self, login: HttpLogin, evidence: Evidence) -> None:
        """It has fitted."""
        if login.user not in self._remembered and len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[login.user] = (evidence, self._hash(login))

    def _hash(self, login: HttpLogin) -> bytes:
        return hmac.digest(self._key, f"{login.user}\0{login.secret}".encode(), "sha256")
