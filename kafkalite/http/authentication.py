"""Access to the pages: a certificate, a name and password, or a token identifies the user, and ACLs decide.

Guessing is slow: a wrong password is answered late, an address has few attempts, and one password is checked at a time,
off the loop. None of this delays users that have logged in before.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite.env.seams import Clock, Disk
from kafkalite.errors import AuthenticationFailed
from kafkalite.http.page import Page, Query
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.access import Access
from kafkalite.security.addresses import canonical, guesser
from kafkalite.security.attempts import Attempts, KnownUsers
from kafkalite.security.principal import ANONYMOUS, Principal
from kafkalite.security.requirements import CONSOLE, HTTP, SCHEMAS, Scope

if TYPE_CHECKING:
    from kafkalite.security.http_login import HttpLogin
    from kafkalite.security.node_security import HttpSecurity

#: Passwords that wait for their check.
_MAX_WAITING = 16
_PLAIN_TEXT = Page(
    b"names, passwords and tokens are taken over TLS, or on this very host (docs/security.md)\n", status=403
)
_BUSY = Page(b"too many logins at once\n", status=503, headers=(("retry-after", "1"),))


@dataclass(frozen=True, slots=True)
class AuthenticatedRequest:
    """A request that may be answered. `sees_cluster`: whether what the cluster is made of may be in the answer.

    `headers`: names in lower case; of several with one name the last. `body`: what a POST brings.
    """

    principal: Principal
    client_host: str
    query: Query
    sees_cluster: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HttpPeer:
    """The other end of a connection. `tls`: None in plain text."""

    host: str
    port: int
    tls: ssl.SSLObject | None

    @property
    def is_safe(self) -> bool:
        """Whether nobody else can read what passes."""
        if self.tls is not None:
            return True
        import ipaddress  # loaded only where logins is used

        try:
            address = ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return (mapped or address).is_loopback


class HttpAuthenticator:
    """One per node. `security` None: clients cannot authenticate, and all are ANONYMOUS."""

    def __init__(self, access: Access, security: HttpSecurity | None, clock: Clock, disk: Disk) -> None:
        self._access = access
        self._security = security
        self._now = clock.monotonic
        self._disk = disk
        self._attempts = Attempts(clock.monotonic)
        self._known = KnownUsers()
        self._checking = asyncio.Lock()
        self._waiting = 0

    @property
    def must_prove(self) -> bool:
        """Whether a client must authenticate before it is served."""
        security = self._security
        return security is not None and bool(security.schemes) and not security.listener.is_optional

    async def admit(
        self, path: str, query: Query, authorization: str | None, peer: HttpPeer
    ) -> AuthenticatedRequest | Page:
        """The request with its user, or the refusal."""
        row = HTTP.get(path)
        if row is None:
            return Page(b"there is no rule for this page\n", status=403)
        principal = await self._who(authorization, peer)
        if isinstance(principal, Page):
            return principal
        asked = AuthenticatedRequest(principal, peer.host, query)
        must_prove = self.must_prove
        if must_prove and principal == ANONYMOUS and (path in CONSOLE or path in SCHEMAS):
            return self._refusal(principal, peer, path)
        for need in row:
            if must_prove and principal == ANONYMOUS:
                is_met = False
            else:
                is_logged = need.scope is not Scope.HIDE
                is_met = self._access.may(asked, need.operation, need.resource_type, is_logged=is_logged)
            if is_met:
                continue
            if need.scope is not Scope.HIDE:
                return self._refusal(principal, peer, path)
            asked = AuthenticatedRequest(principal, peer.host, query, sees_cluster=False)
        return asked

    def _refusal(self, principal: Principal, peer: HttpPeer, path: str) -> Page:
        if principal != ANONYMOUS:
            instead = "; /console shows the topics and groups that you may see" if path == "/" else ""
            return Page(f"{principal} may not describe the cluster{instead}\n".encode(), status=403)
        if self._security is None or not self._security.schemes:
            text = "an anonymous client may not describe the cluster; see http.security.protocol (docs/security.md)\n"
            return Page(text.encode(), status=403)
        return self._challenge() if peer.is_safe else _PLAIN_TEXT

    def _challenge(self) -> Page:
        assert self._security is not None
        reported = {"Basic": 'Basic realm="kafkalite", charset="UTF-8"', "Bearer": 'Bearer realm="kafkalite"'}
        headers = tuple(("www-authenticate", reported[scheme]) for scheme in self._security.schemes)
        return Page(b"authentication is required\n", status=401, headers=headers)

    # --- the user ---

    async def _who(self, authorization: str | None, peer: HttpPeer) -> Principal | Page:
        security = self._security
        if security is None:
            return ANONYMOUS
        if authorization is not None and security.logins is not None:
            return await self._log_in(authorization, peer)
        try:
            return security.listener.certified(peer.tls)
        except AuthenticationFailed as error:
            self._log_failure(peer, str(error))
            return Page(f"{error}\n".encode(), status=403)

    async def _log_in(self, authorization: str, peer: HttpPeer) -> Principal | Page:
        from kafkalite.security.http_login import BEARER, parse  # loaded only where logins is used

        assert self._security is not None and self._security.logins is not None
        if not peer.is_safe:
            self._log_failure(peer, "a login in plain text")
            return _PLAIN_TEXT
        logins, began = self._security.logins, self._now()
        user, mechanism = "", ""
        try:
            login = parse(authorization)
            mechanism = login.scheme
            if mechanism not in logins.schemes:
                raise AuthenticationFailed("scheme not offered")
            if mechanism == BEARER:
                owner = logins.owner(login)
                if wait_s := self._wait_s(peer, owner):
                    return self._too_often(peer, wait_s)
                if owner is not None:
                    return self._succeeded(owner, peer)
                self._attempts.begin(guesser(peer.host))
                raise AuthenticationFailed("unknown token")
            return await self._password(login, peer)
        except _WrongPassword as error:
            reason, user = str(error), error.user
        except AuthenticationFailed as error:
            reason = str(error)
        self._log_failure(peer, reason, mechanism, user)
        # Counted from the beginning, so that the time of the check does not show.
        await asyncio.sleep(max(0.0, began + self._security.listener.failed_delay_s - self._now()))
        return self._challenge()

    async def _password(self, login: HttpLogin, peer: HttpPeer) -> Principal | Page:
        """Raises _WrongPassword."""
        assert self._security is not None and self._security.logins is not None
        logins, host = self._security.logins, guesser(peer.host)
        evidence = logins.evidence(login.user)
        is_remembered = logins.is_remembered(login, evidence)
        if wait_s := self._wait_s(peer, login.user if is_remembered else None):
            return self._too_often(peer, wait_s)
        if is_remembered:
            return self._succeeded(login.user, peer)
        if self._waiting >= _MAX_WAITING:
            return _BUSY
        self._attempts.begin(host)
        self._waiting += 1
        try:
            async with self._checking:
                fits = await self._disk.run_blocking(lambda: evidence.fits(login.secret))
        finally:
            self._waiting -= 1
        if not fits:
            known = login.user if evidence.is_known else ""
            raise _WrongPassword("wrong password" if evidence.is_known else "unknown user", known)
        self._attempts.succeeded(host)
        logins.remember(login, evidence)
        return self._succeeded(login.user, peer)

    def _wait_s(self, peer: HttpPeer, user: str | None) -> float:
        """Seconds for which this address must wait. `user`: the owner of the password or token that it has sent; None: unknown."""
        if user is not None and (canonical(peer.host), user) in self._known:
            return 0.0
        return self._attempts.wait_s(guesser(peer.host))

    def _succeeded(self, user: str, peer: HttpPeer) -> Principal:
        assert self._security is not None
        self._security.listener.succeeded += 1
        self._known.add(canonical(peer.host), user)
        return Principal("User", user)

    def _too_often(self, peer: HttpPeer, wait_s: float) -> Page:
        self._log_failure(peer, "too many failed logins")
        headers = (("retry-after", str(math.ceil(wait_s))),)
        return Page(b"too many failed logins from this address\n", status=429, headers=headers)

    def _log_failure(self, peer: HttpPeer, reason: str, mechanism: str = "", user: str = "") -> None:
        assert self._security is not None
        self._security.listener.refused(f"{peer.host}:{peer.port}", reason, mechanism=mechanism, user=user)


class _WrongPassword(AuthenticationFailed):
    """`user`: a name that exists, or empty."""

    def __init__(self, reason: str, user: str) -> None:
        super().__init__(reason)
        self.user = user
