"""Delegation tokens (KIP-48). Every function raises ApiError and RpcError.

Requests go to one node at a time: two nodes that are asked at once would make two tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import wire
from kafkalite.security.principal import Principal


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token. Times are milliseconds since the epoch. `hmac` is as good as a password."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)


async def create_token(
    client: AsyncClient,
    *,
    owner: Principal | None = None,
    renewers: Sequence[Principal] = (),
    max_lifetime_ms: int = -1,
) -> DelegationToken:
    """A new token of `owner` (None: of the client's user). `max_lifetime_ms` -1: as the brokers are configured."""
    request = wire.CreateDelegationTokenRequest
    answer = await client.call_controller(
        request(
            owner.kind if owner is not None else None,
            owner.name if owner is not None else None,
            [request.CreatableRenewers(each.kind, each.name) for each in renewers],
            max_lifetime_ms,
        ),
    )
    refuse(answer.error_code)
    return DelegationToken(
        answer.token_id,
        f"{answer.principal_type}:{answer.principal_name}",
        f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
        tuple(map(str, renewers)),
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
        bytes(answer.hmac),
    )


async def describe_tokens(client: AsyncClient, owners: Sequence[Principal] = ()) -> list[DelegationToken]:
    """The tokens of these owners (none: of all) that the user may see."""
    request = wire.DescribeDelegationTokenRequest
    wanted = [request.DescribeDelegationTokenOwner(each.kind, each.name) for each in owners] or None
    answer = await client.call_any(request(wanted))
    refuse(answer.error_code)
    return [
        DelegationToken(
            each.token_id,
            f"{each.principal_type}:{each.principal_name}",
            f"{each.token_requester_principal_type}:{each.token_requester_principal_name}",
            tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in each.renewers),
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
            bytes(each.hmac),
        )
        for each in answer.tokens
    ]


async def renew_token(client: AsyncClient, hmac: bytes, period_ms: int = -1) -> int:
    """Extend a token's life (-1: as the brokers are configured); returns its end."""
    answer = await client.call_controller(wire.RenewDelegationTokenRequest(hmac, period_ms))
    refuse(answer.error_code)
    return int(answer.expiry_timestamp_ms)


async def expire_token(client: AsyncClient, hmac: bytes, period_ms: int = -1) -> int:
    """End a token after this time (-1: now); returns its end."""
    answer = await client.call_controller(wire.ExpireDelegationTokenRequest(hmac, period_ms))
    refuse(answer.error_code)
    return int(answer.expiry_timestamp_ms)
