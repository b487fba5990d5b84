"""Delegation tokens on behalf of users (KIP-48): created, renewed, ended, listed; and removed when they have expired.

Sources: Kafka's DelegationTokenControlManager (what is refused, and with which times), KIP-373 (tokens for others).
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from typing import TYPE_CHECKING

from kafkalite.config import BrokerConfig
from kafkalite.coordination.coordinator import Coordinator, CoordinatorError
from kafkalite.coordination.token_store import TokenStore
from kafkalite.coordination.token_znodes import encode_token
from kafkalite.coordination.znode_json import INT64_MAX, ZnodeError
from kafkalite.env.seams import Clock
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
from kafkalite.security.principal import Principal
from kafkalite.security.tokens import MIN_SECRET_BYTES, SecretToken, Token, Tokens
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.security.scram import Delegated

_log = get_logger(__name__)

#: More would make every node's table, and the list of the znodes, too large; Kafka has no such limits.
MAX_TOKENS = 10_000
MAX_TOKENS_OF_ONE = 1_000
_MAX_ZNODE_BYTES = 65_536
_ID_BYTES = 16
#: Tokens that are looked at in one step.
_STEP = 20

Session = Callable[[], Awaitable[Coordinator]]


class TokenAdmin:
    """One per node. Without `delegation.token.secret.key` every request is refused.

    Args:
        entropy: this number of random bytes.
        is_controller: whether this node removes the tokens that have expired.
        on_gone: called with the identifier of a token that nobody may use any more.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        session: Session,
        entropy: Callable[[int], bytes],
        *,
        is_controller: Callable[[], bool] = lambda: False,
        on_gone: Callable[[str], None] = lambda token_id: None,
    ) -> None:
        """Raises ConfigError."""
        secret = ""
        if config.delegation_token_secret_key:
            from kafkalite.security.files import reveal

            secret = reveal("delegation.token.secret.key", config.delegation_token_secret_key)
        if secret and len(secret.encode()) < MIN_SECRET_BYTES:
            raise ConfigError(f"delegation.token.secret.key: the secret has less than {MIN_SECRET_BYTES} bytes")
        self._config = config
        self._clock = clock
        self._session = session
        self._entropy = entropy
        self._is_controller = is_controller
        self._on_gone = on_gone
        self._tokens = Tokens(secret, clock.wall_ms) if secret else None
        self._store = TokenStore(self._changed, self._known, clock.monotonic)
        self._woken = asyncio.Event()
        #: Tokens whose end was reported. They are known until the controller has removed their znodes: this node's clock may be
        #: wrong and go back, and they count, or a user could make any number of short-lived ones.
        self._ended: set[str] = set()
        #: Requester -> how many tokens are on their way to ZooKeeper for it.
        self._creating: Counter[Principal] = Counter()

    @property
    def is_enabled(self) -> bool:
        return self._tokens is not None

    @property
    def malformed(self) -> dict[str, str]:
        return self._store.malformed

    def delegated(self, mechanism: str, token_id: str) -> Delegated | None:
        """What a login with a token is checked against; None: there is no such token now."""
        return self._tokens.delegated(mechanism, token_id) if self._tokens is not None else None

    # --- what ZooKeeper holds ---

    async def load(self, coordinator: Coordinator) -> None:
        """Before the listeners answer and in every new session. Raises SessionExpiredError."""
        if self._tokens is not None:
            await self._store.load(coordinator)

    async def follow(self, coordinator: Coordinator) -> None:
        """A session's task."""
        if self._tokens is not None:
            await self._store.follow(coordinator)

    async def catch_up(self, coordinator: Coordinator) -> None:
        """Know every change of tokens that was finished before this call. Raises SessionExpiredError."""
        if self._tokens is not None:
            await self._store.catch_up(coordinator)

    def _known(self) -> Sequence[str]:
        return [token.token_id for token in self._enabled().all()]

    def _changed(self, token_id: str, token: Token | None) -> None:
        tokens = self._enabled()
        if token is not None:
            tokens.put(token)
        else:
            if tokens.drop(token_id) is not None and token_id not in self._ended:
                self._on_gone(token_id)
            self._ended.discard(token_id)
        self._woken.set()

    # --- their end ---

    async def run(self) -> None:
        """End tokens when their time is over; if this node is the controller, remove them at the configured interval."""
        if self._tokens is None:
            return
        interval_s = self._config.delegation_token_expiry_check_interval_ms / 1000
        swept = self._clock.monotonic()
        while True:
            self._woken.clear()
            expired = {token.token_id for token in self._tokens.expired()}
            for token_id in sorted(expired - self._ended):
                self._on_gone(token_id)
            self._ended = expired
            if self._clock.monotonic() - swept >= interval_s:
                swept = self._clock.monotonic()
                await self._sweep()
            wait_s = swept + interval_s - self._clock.monotonic()
            expiry = self._tokens.next_expiry_ms()
            if expiry is not None:  # it is valid until this very millisecond
                wait_s = min(wait_s, (expiry + 1 - self._clock.wall_ms()) / 1000)
            try:
                async with asyncio.timeout(max(wait_s, 0.001)):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _sweep(self) -> None:
        """Another node may have renewed one meanwhile: what ZooKeeper holds counts."""
        if not self._is_controller():
            return
        now = self._clock.wall_ms()
        for token_id in sorted(self._ended):
            try:
                after = await self._store.update(
                    await self._session(),
                    token_id,
                    lambda before: None if before is None or before.is_expired(now) else before,
                )
            except (CoordinatorError, ZnodeError, ApiError) as error:
                _log.warning("token.not_removed", token_id=token_id, error=repr(error))
                if isinstance(error, ApiError):  # ZooKeeper is away: the others have to wait, too
                    return
                continue
            if after is None:
                _log.info("token.expired", token_id=token_id)

    # --- requests ---

    def _enabled(self) -> Tokens:
        if self._tokens is None:
            raise api_error(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set")
        return self._tokens

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], lifetime_ms: int
    ) -> SecretToken:
        """A new token. `lifetime_ms`: at most this long; 0 or less: as configured. Raises ApiError."""
        tokens = self._enabled()
        if any(each.kind != "User" for each in (owner, *renewers)):
            raise api_error(ErrorCode.INVALID_PRINCIPAL_TYPE, "owners and renewers of tokens are of the type User")
        of_requester = tokens.requested_by(requester) + self._creating[requester]
        if len(tokens) + self._creating.total() >= MAX_TOKENS or of_requester >= MAX_TOKENS_OF_ONE:
            raise api_error(ErrorCode.POLICY_VIOLATION, "there are too many delegation tokens")
        config, now = self._config, self._clock.wall_ms()
        longest = config.delegation_token_max_lifetime_ms
        latest = _sum(now, min(longest, lifetime_ms) if lifetime_ms > 0 else longest)
        expires = min(latest, _sum(now, config.delegation_token_expiry_time_ms))
        token_id = base64.urlsafe_b64encode(self._entropy(_ID_BYTES)).decode().rstrip("=")
        token = Token(token_id, owner, requester, tuple(dict.fromkeys(renewers)), now, expires, latest)
        if len(encode_token(token)) > _MAX_ZNODE_BYTES:
            raise api_error(ErrorCode.INVALID_REQUEST, "too many renewers")
        self._creating[requester] += 1
        try:
            await self._update(token_id, lambda before: token)
        finally:
            self._creating[requester] -= 1
            if not self._creating[requester]:
                del self._creating[requester]
        _log.info("token.created", token_id=token_id, owner=str(owner), requester=str(requester))
        return tokens.with_hmac(token)

    async def renew(self, principal: Principal, value: bytes, period_ms: int) -> int:
        """Extend a token's life; returns its new end. `period_ms` 0 or less: as configured. Raises ApiError."""
        period = self._config.delegation_token_expiry_time_ms
        period = min(period, period_ms) if period_ms > 0 else period
        return await self._extend(principal, value, period, "token.renewed")

    async def expire(self, principal: Principal, value: bytes, period_ms: int) -> int:
        """Set a token's end to that time from now; below 0: it ends at once. Returns the end. Raises ApiError."""
        if period_ms >= 0:
            return await self._extend(principal, value, period_ms, "token.ends")
        token = self._found(principal, value)
        await self._update(token.token_id, lambda before: None)
        _log.info("token.removed", token_id=token.token_id, owner=str(token.owner), by=str(principal))
        return self._clock.wall_ms()

    async def _extend(self, principal: Principal, value: bytes, period_ms: int, event: str) -> int:
        token_id = self._found(principal, value).token_id
        now = self._clock.wall_ms()

        def change(before: Token | None) -> Token:
            if before is None:
                raise api_error(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            if before.is_expired(now):
                raise api_error(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            end = min(before.max_ms, _sum(now, period_ms))
            return Token(
                token_id, before.owner, before.requester, before.renewers, before.issued_ms, end, before.max_ms
            )

        after = await self._update(token_id, change)
        assert after is not None
        _log.info(event, token_id=token_id, owner=str(after.owner), by=str(principal), expires_ms=after.expires_ms)
        return after.expires_ms

    def _found(self, principal: Principal, value: bytes) -> Token:
        token = self._enabled().by_hmac(value)
        if token is None:
            raise api_error(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.may_renew(principal):
            raise api_error(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    async def _update(self, token_id: str, change: Callable[[Token | None], Token | None]) -> Token | None:
        try:
            return await self._store.update(await self._session(), token_id, change)
        except ApiError:
            raise
        except (CoordinatorError, ZnodeError) as error:
            raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None

    def describe(
        self, requester: Principal, owners: Collection[Principal] | None, may_see: Callable[[Token], bool]
    ) -> Generator[None, None, list[SecretToken]]:
        """The tokens of these owners or renewers (None: of all) that concern the requester or that it `may_see`, in steps. Raises ApiError."""
        tokens, now = self._enabled(), self._clock.wall_ms()
        wanted = None if owners is None else frozenset(owners)
        found: list[SecretToken] = []
        for number, token in enumerate(tokens.all(), 1):
            if not number % _STEP:
                yield
            is_wanted = wanted is None or not wanted.isdisjoint(token.concerned)
            if is_wanted and not token.is_expired(now) and (requester in token.concerned or may_see(token)):
                found.append(tokens.with_hmac(token))
        return found


def _sum(now: int, period_ms: int) -> int:
    return min(INT64_MAX, now + period_ms)
