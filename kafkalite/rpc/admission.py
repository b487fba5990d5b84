"""Who an RPC peer has proved to be, before it says hello."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite.errors import AuthenticationFailed, ErrorCode, ProtocolError
from kafkalite.model import BrokerId
from kafkalite.rpc.codec import from_fields
from kafkalite.rpc.framing import Frame
from kafkalite.rpc.messages.connection import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkalite.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from kafkalite.security.listener import ListenerSecurity
    from kafkalite.security.sasl import SaslServer

#: What every peer hears whose proof does not hold, whatever is wrong with it.
REFUSAL = "authentication failed: invalid credentials"


class Admission:
    """One connection's. `principal` is proved once `is_complete`."""

    def __init__(self, security: ListenerSecurity, peer: str) -> None:
        self.security = security
        self.principal: Principal = ANONYMOUS
        self.is_complete = not security.uses_sasl
        #: Whether it may say hello.
        self.is_enough = self.is_complete or security.is_optional
        self._peer = peer
        self._mechanism = ""
        self._exchange: SaslServer | None = None

    def look_at_certificate(self, writer: asyncio.StreamWriter) -> None:
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
        self.is_enough = False  # who has begun goes on to the end
        exchange = self._exchange
        if exchange is None or self.is_complete or request.mechanism != self._mechanism:
            self.security.refused(self._peer, "an authentication out of turn")
            return SaslAuthenticateResponse(int(ErrorCode.ILLEGAL_SASL_STATE), "out of turn", "")
        try:
            data = exchange.step(request.data.encode())
        except AuthenticationFailed as error:
            known = exchange.user if exchange.is_known else ""
            self.security.refused(self._peer, str(error), mechanism=self._mechanism, user=known)
            return SaslAuthenticateResponse(int(ErrorCode.SASL_AUTHENTICATION_FAILED), REFUSAL, "")
        if exchange.is_complete:
            self.is_complete = self.is_enough = True
            self.principal = Principal("User", exchange.user)
            self.security.succeeded += 1
        return SaslAuthenticateResponse(0, "", data.decode(), exchange.is_complete)

    def admits(self, node_id: BrokerId) -> bool:
        """Whether this peer may say hello in this name."""
        return node_id < 0 or self.security.may_be_node(self.principal)
