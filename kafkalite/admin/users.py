"""SCRAM users: listed and changed through any node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kafkalite.coordination.coordinator import Coordinator, CoordinatorError
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import ErrorCode
from kafkalite.rpc.messages.security import (
    AlterUserRequest,
    AlterUserResponse,
    DescribeUsersRequest,
    DescribeUsersResponse,
    UserDescription,
)


class UserAdmin:
    """One per node."""

    def __init__(self, session: Callable[[], Awaitable[Coordinator]]) -> None:
        self._session = session

    async def describe(self, request: DescribeUsersRequest) -> DescribeUsersResponse:
        """Who has credentials, and which; nothing of what is in them but the iterations."""
        from kafkalite.coordination.scram_users import list_users  # only who uses SCRAM loads it

        try:
            found = await list_users(await self._session(), request.names or None)
        except (CoordinatorError, ZnodeError) as error:
            return DescribeUsersResponse(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        users = tuple(UserDescription(name, mechanisms) for name, mechanisms in sorted(found.items()))
        return DescribeUsersResponse(ErrorCode.NONE, "", users)

    async def alter(self, request: AlterUserRequest) -> AlterUserResponse:
        """Set and delete one user's credentials, all or nothing."""
        from kafkalite.coordination.scram_users import alter_user
        from kafkalite.security.scram import MAX_ITERATIONS, MECHANISMS, ScramCredential

        if not request.name or not request.credentials:
            return AlterUserResponse(ErrorCode.INVALID_REQUEST, "no user, or nothing to change")
        for mechanism, text in sorted(request.credentials.items()):
            if mechanism not in MECHANISMS:
                return AlterUserResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{mechanism} is not a SCRAM mechanism")
            try:
                if text and ScramCredential.parse(mechanism, text).iterations > MAX_ITERATIONS:
                    raise ValueError(f"more than {MAX_ITERATIONS} iterations")
            except ValueError as error:
                return AlterUserResponse(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error))
        try:
            session = await self._session()
            there = (await list_users_of(session, request.name)).keys()
            missing = sorted(name for name, text in request.credentials.items() if not text and name not in there)
            if missing:
                return AlterUserResponse(
                    ErrorCode.RESOURCE_NOT_FOUND, f"{request.name!r} has no {missing[0]} credential"
                )
            await alter_user(session, request.name, {key: text or None for key, text in request.credentials.items()})
        except (CoordinatorError, ZnodeError) as error:
            return AlterUserResponse(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return AlterUserResponse(ErrorCode.NONE, "")


async def list_users_of(session: Coordinator, name: str) -> dict[str, int]:
    """One user's mechanisms."""
    from kafkalite.coordination.scram_users import list_users

    return (await list_users(session, [name])).get(name, {})
