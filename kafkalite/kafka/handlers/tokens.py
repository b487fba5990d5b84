"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken (KIP-48, KIP-373)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kafkalite.coordinators.services import Services
from kafkalite.env.fair_executor import FairExecutor
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.model import Buffer
from kafkalite.protocol import wire
from kafkalite.rpc.messages.changes import TOKENS
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.principal import ANONYMOUS, Principal
from kafkalite.security.tokens import SecretToken, Token

#: In an answer that is an error.
_NO_TIME = -1


class TokenHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._tokens = services.tokens
        self._access = services.rights.access
        #: One change of a token at a time, users in turn: of many at once of the same token each would read and write it again whenever another
        #: one was faster.
        self._changes = FairExecutor(services.run_blocking, services.clock, at_once=1)

    def table(self) -> dict[str, Handler]:
        return {
            "CreateDelegationToken": self.create,
            "RenewDelegationToken": self.renew,
            "ExpireDelegationToken": self.expire,
            "DescribeDelegationToken": self.describe,
        }

    async def create(
        self, request: Request, message: wire.CreateDelegationTokenRequest
    ) -> wire.CreateDelegationTokenResponse:
        """A user needs no right for a token of its own, and CREATE_TOKENS on the other user for that user's."""
        requester = owner = request.principal
        if message.owner_principal_name:
            owner = Principal(message.owner_principal_type or "", message.owner_principal_name)
        code, made = ErrorCode.NONE, None
        try:
            _check_connection(request)
            if owner in self._services.node_principals:  # a login with it would be refused, too (ADR 64)
                raise api_error(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
            if owner != requester and not self._access.may(
                request, Operation.CREATE_TOKENS, ResourceType.USER, str(owner)
            ):
                raise api_error(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
            renewers = [Principal(each.principal_type, each.principal_name) for each in message.renewers]
            async with self._changes.turn(request.connection.owner):
                _check_client(request)
                made = await self._tokens.create(owner, requester, renewers, message.max_lifetime_ms)
            await self._services.known_everywhere(TOKENS)
        except ApiError as error:
            code = error.code
        token = made.token if made is not None else None
        return wire.CreateDelegationTokenResponse(
            int(code),
            owner.kind,
            owner.name,
            requester.kind,
            requester.name,
            token.issued_ms if token else _NO_TIME,
            token.expires_ms if token else _NO_TIME,
            token.max_ms if token else _NO_TIME,
            token.token_id if token else "",
            made.hmac if made else b"",
        )

    async def renew(
        self, request: Request, message: wire.RenewDelegationTokenRequest
    ) -> wire.RenewDelegationTokenResponse:
        """For the token's owner and its renewers."""
        end_ms, error = await self._change(request, self._tokens.renew, message.hmac, message.renew_period_ms)
        return wire.RenewDelegationTokenResponse(error, end_ms)

    async def expire(
        self, request: Request, message: wire.ExpireDelegationTokenRequest
    ) -> wire.ExpireDelegationTokenResponse:
        """For the token's owner and its renewers."""
        end_ms, error = await self._change(request, self._tokens.expire, message.hmac, message.expiry_time_period_ms)
        return wire.ExpireDelegationTokenResponse(error, end_ms)

    async def _change(
        self, request: Request, change: Callable[[Principal, bytes, int], Awaitable[int]], hmac: Buffer, period_ms: int
    ) -> tuple[int, int]:
        """The token's new end, and the error code."""
        try:
            _check_connection(request)
            async with self._changes.turn(request.connection.owner):
                _check_client(request)
                end_ms = await change(request.principal, bytes(hmac), period_ms)
            await self._services.known_everywhere(TOKENS)
        except ApiError as error:
            return _NO_TIME, int(error.code)
        return end_ms, 0

    def describe(
        self, request: Request, message: wire.DescribeDelegationTokenRequest
    ) -> Steps[wire.DescribeDelegationTokenResponse]:
        """One's own, those that one renews, and what DESCRIBE on a token or DESCRIBE_TOKENS on its owner shows."""
        owners = None
        if message.owners is not None:
            owners = {Principal(each.principal_type, each.principal_name) for each in message.owners}

        def may_see(token: Token) -> bool:
            may = self._access.may
            return may(
                request, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, is_logged=False
            ) or may(request, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), is_logged=False)

        _check_connection(request)
        found = yield from self._tokens.describe(request.principal, owners, may_see)
        described = []
        for number, each in enumerate(found, 1):
            if not number % STEP:
                yield
            described.append(_described(each))
        return wire.DescribeDelegationTokenResponse(0, described)


def _check_connection(request: Request) -> None:
    """Raises ApiError: only a user that has logged in, and not with another token, can have a token."""
    login = request.connection.login
    if request.principal == ANONYMOUS or (login is not None and login.token_id):
        raise api_error(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _check_client(request: Request) -> None:
    """Raises ApiError: the client is gone, and nobody hears of what it has asked for."""
    if request.connection.is_closed:
        raise api_error(ErrorCode.NETWORK_EXCEPTION)


def _described(each: SecretToken) -> wire.DescribeDelegationTokenResponse.DescribedDelegationToken:
    response = wire.DescribeDelegationTokenResponse
    token = each.token
    return response.DescribedDelegationToken(
        token.owner.kind,
        token.owner.name,
        token.requester.kind,
        token.requester.name,
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
        token.token_id,
        each.hmac,
        [response.DescribedDelegationTokenRenewer(renewer.kind, renewer.name) for renewer in token.renewers],
    )
