"""What a connection of a SASL listener may send until it has said who it is, and how it says so.

Only a SASL listener's connections have a ConnectionAuthenticator; on all others there is none to pass.

Sources: Kafka's SaslServerAuthenticator (states; what is refused), KIP-43 and KIP-152 (SaslHandshake v0 is followed by
bare tokens, v1 by SaslAuthenticate), KIP-368 (re-authentication).
"""

from __future__ import annotations

import asyncio
import struct
from enum import Enum
from typing import TYPE_CHECKING

from kafkalite.errors import AuthenticationFailed, ErrorCode
from kafkalite.protocol import wire
from kafkalite.security.listener import ListenerSecurity, SaslLogin

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kafkalite.kafka.connection import KafkaConnection
    from kafkalite.kafka.request import Request
    from kafkalite.security.sasl import SaslServer

#: Time in seconds that a connection has to authenticate.
AUTHENTICATION_S = 10.0
_API_KEY = struct.Struct(">h").unpack_from
_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = 18, 17, 36
#: A session lives between this share of the limit and all of it (Kafka's 85 %), so that clients do not come back at once.
_LIFETIME_SHARE = (0.85, 0.95)


#: Time in seconds between the beginnings of two re-authentications (Kafka's MIN_REAUTH_INTERVAL_ONE_SECOND).
_REAUTHENTICATION_S = 1.0


class _State(Enum):
    START = "start"  # a handshake has to come, perhaps ApiVersions before it
    HANDSHAKE = "handshake"  # the versions were sent: a handshake has to come
    EXCHANGE = "exchange"  # SaslAuthenticate has to come
    TOKENS = "tokens"  # bare tokens come, after SaslHandshake v0
    OPEN = "open"  # authenticated
    CHANGED = "changed"  # re-authenticates with another mechanism: the next request closes, whatever it is
    REFUSED = "refused"  # the answer is on its way, late; nothing is read any more


#: What is looked at in a state; in those that are missing, everything. In an exchange ApiVersions and SaslHandshake are refused with an answer.
_EXPECTED = {
    _State.START: frozenset({_API_VERSIONS, _HANDSHAKE}),
    _State.HANDSHAKE: frozenset({_HANDSHAKE}),
    _State.EXCHANGE: frozenset({_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE}),
    _State.CHANGED: frozenset[int](),
}


#: A login takes five at most; others would cost the node's time for nobody.
MAX_REQUESTS_BEFORE_LOGIN = 50


class ConnectionAuthenticator:
    """The authentication of one connection.

    Args:
        spawn: starts a task that outlives no node: (name, coroutine).
        share: a number from 0 to 1, drawn for this connection.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        security: ListenerSecurity,
        *,
        spawn: Callable[[str, Any], object],
        share: float,
    ) -> None:
        self._connection = connection
        self._security = security
        self._spawn = spawn
        self._share = share
        self._state = _State.START
        self._is_optional = security.is_optional
        self._exchange: SaslServer | None = None
        #: Before the login.
        self._requests = 0
        self._mechanism = ""
        self._login: SaslLogin | None = None
        self._deadline = connection.listener.now() + AUTHENTICATION_S
        #: When the session ends; None: it does not.
        self._expires: float | None = None
        #: When the last re-authentication began.
        self._began = float("-inf")

    # --- what comes ------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the peer has authenticated."""
        return self._login is not None and self._state is not _State.REFUSED

    @property
    def is_exchanging(self) -> bool:
        """Whether nothing but SaslAuthenticate is expected from the peer."""
        return self._state is _State.EXCHANGE

    @property
    def must_log_in(self) -> bool:
        """Whether nothing but a login is accepted from the peer."""
        return self._login is None and not (self._is_optional and self._state is _State.START)

    def is_late(self, now: float) -> bool:
        """Whether the time for authenticating is over."""
        if self._is_optional and self._state is _State.START:
            return False
        return not self.is_open and self._state is not _State.REFUSED and now > self._deadline

    def admits(self, frame: memoryview) -> bool:
        """Whether this request may be handled. If not, it has been answered here."""
        if self._state is _State.REFUSED:
            return False
        if self._state is _State.TOKENS:
            self._token(bytes(frame))
            return False
        (api_key,) = _API_KEY(frame)
        if self._is_optional and self._state is _State.START:
            return True
        if self._login is None:
            self._requests += 1
            if self._requests > MAX_REQUESTS_BEFORE_LOGIN:
                self._illegal("too many requests before the authentication")
                return False
        if api_key not in _EXPECTED.get(self._state, (api_key,)):
            self._illegal(f"API {api_key} before the authentication")
            return False
        is_over = self._expires is not None and self._connection.listener.now() > self._expires
        if is_over and self._state is _State.OPEN and api_key != _HANDSHAKE:
            self._illegal("the session has ended and was not renewed")
            return False
        return True

    def _illegal(self, reason: str) -> None:
        """As Kafka: no answer."""
        self._security.refused(self._connection.peer, reason)
        self._state = _State.REFUSED
        self._connection.close()

    def versions_told(self) -> None:
        """ApiVersions was answered without an error: before the login it is not asked for again."""
        if self._state is _State.START and not self._is_optional:
            self._state = _State.HANDSHAKE

    # --- the exchange ----------------------------------------------------------------------------

    def handshake(self, request: Request, message: wire.SaslHandshakeRequest) -> wire.SaslHandshakeResponse | None:
        """SaslHandshake."""
        response = wire.SaslHandshakeResponse
        offered = self._security.mechanisms
        if self._state is _State.EXCHANGE:
            self.refuse_within(request, response(int(ErrorCode.ILLEGAL_SASL_STATE)))
            return None
        if self._state is _State.OPEN:
            now = self._connection.listener.now()
            if now - self._began < _REAUTHENTICATION_S:
                return response(int(ErrorCode.ILLEGAL_SASL_STATE))
            self._began = now
        exchange = self._security.exchange(message.mechanism)
        if exchange is None:
            self._refuse(request, response(int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), offered), "mechanism not offered")
            return None
        if self._login is not None and message.mechanism != self._mechanism:
            self._state = _State.CHANGED
            return response(0, offered)
        self._exchange = exchange
        self._mechanism = message.mechanism
        self._state = _State.EXCHANGE if request.version else _State.TOKENS
        return response(0, offered)

    def authenticate(
        self, request: Request, message: wire.SaslAuthenticateRequest
    ) -> wire.SaslAuthenticateResponse | None:
        """SaslAuthenticate."""
        response = wire.SaslAuthenticateResponse
        if self._state is not _State.EXCHANGE:
            return response(int(ErrorCode.ILLEGAL_SASL_STATE), "SaslAuthenticate at the wrong time", b"")
        try:
            data = self._step(bytes(message.auth_bytes))
        except AuthenticationFailed as error:
            text = f"Authentication failed: invalid credentials with SASL mechanism {self._mechanism}"
            self._refuse(request, response(int(ErrorCode.SASL_AUTHENTICATION_FAILED), text, b""), str(error))
            return None
        return response(0, None, data, self._lifetime_ms())

    def _step(self, data: bytes) -> bytes:
        """Raises AuthenticationFailed."""
        exchange = self._exchange
        assert exchange is not None
        answer = exchange.step(data)
        if exchange.is_complete:
            self._opened(self._security.login(exchange, self._mechanism, self._login, self._connection.peer_host))
        return answer

    def _opened(self, login: SaslLogin) -> None:
        self._state = _State.OPEN
        self._security.succeeded += 1
        self._login = login
        self._exchange = None
        limit_ms = self._security.max_reauth_ms
        now = self._connection.listener.now()
        self._expires = None
        if limit_ms:
            low, high = _LIFETIME_SHARE
            self._expires = now + limit_ms / 1000 * (low + (high - low) * self._share)
        if login.lifetime_s is not None:  # a token ends when it says so
            self._expires = min(self._expires or now + login.lifetime_s, now + login.lifetime_s)
        self._connection.admitted(login, authenticator=self if self._expires is not None else None)

    def _lifetime_ms(self) -> int:
        if self._expires is None or self._state is not _State.OPEN:
            return 0
        return max(0, round((self._expires - self._connection.listener.now()) * 1000))

    def _token(self, token: bytes) -> None:
        """A frame without a header, answered by one without."""
        try:
            answer = self._step(token)
        except AuthenticationFailed as error:
            self._log_failure(str(error))
            self._state = _State.REFUSED
            self._spawn("kafka.refusal", self._close_later())
            return
        self._connection.send_bare(answer)

    # --- refusals --------------------------------------------------------------------------------

    def _log_failure(self, reason: str) -> None:
        exchange = self._exchange
        user = exchange.user if exchange is not None and exchange.is_known else ""
        self._security.refused(self._connection.peer, reason, mechanism=self._mechanism, user=user)

    def refuse_within(self, request: Request, answer: object) -> None:
        """A request that may not come within an exchange."""
        self._refuse(request, answer, "another request within the exchange")

    def _refuse(self, request: Request, answer: object, reason: str) -> None:
        """Answer after a while, and close: guessing passwords shall take time."""
        self._log_failure(reason)
        self._state = _State.REFUSED
        self._spawn("kafka.refusal", self._answer_later(request, answer))

    async def _answer_later(self, request: Request, answer: object) -> None:
        await asyncio.sleep(self._security.failed_delay_s)
        if not self._connection.is_closed:
            request.respond(answer)
            self._connection.close()

    async def _close_later(self) -> None:
        await asyncio.sleep(self._security.failed_delay_s)
        self._connection.close()
