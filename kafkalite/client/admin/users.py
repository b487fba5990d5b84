"""SCRAM credentials of users. Every function raises ApiError and RpcError."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import wire

#: ScramMechanism's numbers on the wire.
_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES = {number: name for name, number in _NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A salted password (RFC 5802) for one mechanism: the password itself is never sent."""

    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


async def describe_users(
    client: AsyncClient, names: Sequence[str] = (), *, timeout_s: float | None = None
) -> dict[str, dict[str, int]]:
    """User -> mechanism -> iterations, of these users (none: of all) that have credentials."""
    request = wire.DescribeUserScramCredentialsRequest
    users = [request.UserName(name) for name in dict.fromkeys(names)] or None
    answer = await client.call_any(request(users), timeout_s=timeout_s)
    refuse(answer.error_code, answer.error_message)
    found = {}
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        refuse(result.error_code, result.error_message)
        infos = result.credential_infos
        found[result.user] = {_NAMES.get(each.mechanism, str(each.mechanism)): each.iterations for each in infos}
    return found


async def alter_user(
    client: AsyncClient,
    name: str,
    *,
    credentials: Iterable[NewCredential] = (),
    deletions: Iterable[str] = (),
    timeout_s: float | None = None,
) -> None:
    """Set credentials of a user, and delete those of the mechanisms `deletions`: all, or nothing."""
    request = wire.AlterUserScramCredentialsRequest
    upsertions = [
        request.ScramCredentialUpsertion(
            name, _NUMBERS[each.mechanism], each.iterations, each.salt, each.salted_password
        )
        for each in credentials
    ]
    removed = [request.ScramCredentialDeletion(name, _NUMBERS[mechanism]) for mechanism in deletions]
    flow = client.routing.to_controller(
        request(removed, upsertions), client.patience_s(timeout_s), lambda each: [r.error_code for r in each.results]
    )
    answer, was_asked_before = await client.run(flow)
    for result in answer.results:
        if was_asked_before and not upsertions and result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue  # an earlier try, whose answer was lost, has deleted them
        refuse(result.error_code, result.error_message)
