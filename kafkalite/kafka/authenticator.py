"""What a connection, the listener and the handlers of SASL need of a connection's authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkalite.kafka.request import Request
    from kafkalite.protocol import wire


class Authenticator(Protocol):
    """The authentication of one connection of a SASL listener (`kafkalite.kafka.authentication`)."""

    @property
    def is_exchanging(self) -> bool:
        """Whether nothing but SaslAuthenticate is expected from the peer."""

    @property
    def must_log_in(self) -> bool:
        """Whether nothing but a login is accepted from the peer."""

    def refuse_within(self, request: Request, answer: object) -> None:
        """Answer a request that may not come within an exchange, later, and close."""

    def is_late(self, now: float) -> bool:
        """Whether the time for authenticating is over."""

    def admits(self, frame: memoryview) -> bool:
        """Whether this request may be looked at; otherwise it has been dealt with."""

    def versions_told(self) -> None:
        """ApiVersions was answered without an error."""

    def handshake(self, request: Request, message: wire.SaslHandshakeRequest) -> wire.SaslHandshakeResponse | None:
        """The answer to SaslHandshake; None: it comes later."""

    def authenticate(
        self, request: Request, message: wire.SaslAuthenticateRequest
    ) -> wire.SaslAuthenticateResponse | None:
        """The answer to SaslAuthenticate; None: it comes later."""
