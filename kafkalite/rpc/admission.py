"""Authentication of an RPC peer: before its hello, and again before its session ends (KIP-368)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.errors import AuthenticationFailed, ErrorCode, PrincipalChanged, ProtocolError
from kafkalite.rpc.codec import from_fields
from kafkalite.rpc.framing import Frame
from kafkalite.rpc.messages.connection import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkalite.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from kafkalite.security.listener import ListenerSecurity, SaslLogin
    from kafkalite.security.sasl import SaslServer

#: The error for each peer whose proof does not hold: the same for every cause.
REFUSAL = "authentication failed: invalid credentials"


class Admission:
    """The admission of one connection. `principal` is proved once `is_complete`.

    Args:
        now: seconds; sessions are measured with it.
    """

    def __init__(self, security: ListenerSecurity, peer: str, now: Callable[[], float]) -> None:
        self.security = security
        self.principal: Principal = ANONYMOUS
        self.is_complete = not security.uses_sasl
        #: Whether it may say hello.
        self.is_enough = self.is_complete or security.is_optional
        #: What SASL has proved.
        self.login: SaslLogin | None = None
        #: When the session ends; None: it does not.
        self.ends_at: float | None = None
        self._peer = peer
        self._now = now
        self._mechanism = ""
        self._exchange: SaslServer | None = None

    def authenticate_certificate(self, writer: asyncio.StreamWriter) -> None:
        """The principal of a mutual TLS connection. Raises ProtocolError if it cannot be one here."""
        if self.security.uses_sasl:
            return
        try:
            self.principal = self.security.certified(writer.get_extra_info("ssl_object"))
        except AuthenticationFailed as error:
            self.security.refused(self._peer, str(error))
            raise ProtocolError(str(error)) from None

    def step(self, frame: Frame) -> SaslAuthenticateResponse:
        """The next step of the exchange; an answer with an error ends it and the connection."""
        try:
            request = from_fields(SaslAuthenticateRequest, frame.fields)
        except ProtocolError:
            raise ProtocolError("malformed authentication") from None  # its text could show what was sent
        assert isinstance(request, SaslAuthenticateRequest)
        if self._exchange is None and not self.is_complete:
            self._mechanism = request.mechanism
            self._exchange = self.security.exchange(request.mechanism)
            if self._exchange is None:
                offered = ", ".join(self.security.mechanisms)
                self.security.refused(self._peer, "mechanism not offered")
                text = f"the mechanism is not offered; these are: {offered}"
                return SaslAuthenticateResponse(int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), text, "")
        elif self._exchange is None and self.ends_at is not None:
            self._exchange = self.security.exchange(self._mechanism)
        self.is_enough = False  # a login that has begun goes on to its end
        exchange = self._exchange
        if exchange is None or request.mechanism != self._mechanism:
            self.security.refused(self._peer, "an authentication at the wrong time")
            return SaslAuthenticateResponse(int(ErrorCode.ILLEGAL_SASL_STATE), "at the wrong time", "")
        try:
            data = exchange.step(request.data.encode())
            if not exchange.is_complete:
                return SaslAuthenticateResponse(0, "", data.decode())
            self.login = self.security.login(exchange, self._mechanism, self.login, self._peer.rpartition(":")[0])
        except AuthenticationFailed as error:
            known = exchange.user if exchange.is_known else ""
            self.security.refused(self._peer, str(error), mechanism=self._mechanism, user=known)
            text = str(error) if isinstance(error, PrincipalChanged) else REFUSAL
            return SaslAuthenticateResponse(int(ErrorCode.SASL_AUTHENTICATION_FAILED), text, "")
        self._exchange = None
        self.is_complete = self.is_enough = True
        self.principal = self.login.principal
        self.security.succeeded += 1
        lifetime_ms = self.security.max_reauth_ms
        self.ends_at = self._now() + lifetime_ms / 1000 if lifetime_ms else None
        return SaslAuthenticateResponse(0, "", data.decode(), is_complete=True, session_lifetime_ms=lifetime_ms)

    def has_ended(self, now: float) -> bool:
        """Whether the session is over: only an authentication is taken then."""
        return self.ends_at is not None and now > self.ends_at

    def log_session_ended(self) -> str:
        """The session is over and something else came: one line for the operator; what the peer hears."""
        self.security.refused(
            self._peer,
            "the session has ended and was not renewed",
            mechanism=self._mechanism,
            user=self.principal.name,
        )
        return f"the session has ended after {self.security.max_reauth_ms} ms and was not renewed; log in again"

    def admits(self) -> bool:
        """Whether this peer may say hello: as a node."""
        return self.security.may_be_node(self.principal)
