"""What the console can change of users, permissions and quotas.

A password is never sent: the page salts and hashes it, as Kafka's own tools do, and sends what AlterUserScramCredentials takes. A browser can
do so only where the page came over TLS, or from this host; elsewhere the result could be read on the way, and the page says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from kafkalite.client.admin.acls import create_acls, delete_acls
from kafkalite.client.admin.quotas import alter_quotas
from kafkalite.client.admin.users import NewCredential, alter_user, describe_users
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode, api_error
from kafkalite.http.console.body import Values, binary, confirmed, value
from kafkalite.http.console.rights import UserRights
from kafkalite.security.acl import AclEntry, Binding, Operation, Pattern, PatternType, Permission, ResourceType
from kafkalite.security.quotas import Entity, Kind, limit_text, parse_limit
from kafkalite.security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, MIN_SALT_BYTES

E = TypeVar("E", bound=IntEnum)
Action = Callable[[Values, UserRights, AsyncClient], Awaitable[dict[str, Any]]]

#: Buttons, and the API whose right each needs.
CLUSTER_WIDE: Mapping[str, str] = {
    "users": "AlterUserScramCredentials",
    "acls": "CreateAcls",
    "quotas": "AlterClientQuotas",
}
#: Fields that no log may have.
SECRET = ("credentials",)
_KEY_BYTES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
_MAX_SALT_BYTES = 1024
_MAX_NAME = 255


class SecurityActions:
    """Of one node. Every action raises ValueError, ApiError, RpcError."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def table(self) -> Mapping[str, Action]:
        """By name."""
        return {
            "user.set": self._set_user,
            "user.delete": self._delete_user,
            "acl.add": self._add_acl,
            "acl.remove": self._remove_acl,
            "quota.set": self._set_quota,
        }

    async def _set_user(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        user = _name(values, "user")
        rights.need("AlterUserScramCredentials")
        credentials = [_credential(each) for each in value(values, "credentials", list)]
        if not credentials:
            raise ValueError("credentials is empty")
        await alter_user(client, user, credentials=credentials, timeout_s=self._timeout_s)
        return {"text": f"{user} can log in with {' and '.join(each.mechanism for each in credentials)}"}

    async def _delete_user(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        user = confirmed(values, "user")
        rights.need("AlterUserScramCredentials")
        found = (await describe_users(client, [user], timeout_s=self._timeout_s)).get(user)
        if not found:
            raise api_error(ErrorCode.RESOURCE_NOT_FOUND, f"{user!r} has no SCRAM credentials")
        await alter_user(client, user, deletions=sorted(found), timeout_s=self._timeout_s)
        return {"text": f"{user} cannot log in any more; permissions and quotas stay"}

    async def _add_acl(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        binding = _binding(values)
        rights.need("CreateAcls")
        await create_acls(client, [binding], timeout_s=self._timeout_s)
        return {"text": f"added: {_said(binding)}"}

    async def _remove_acl(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        binding = _binding(values)
        confirmed(values, "principal")
        rights.need("DeleteAcls")
        removed = await delete_acls(client, [binding.exactly()], timeout_s=self._timeout_s)
        if not removed:
            raise api_error(ErrorCode.RESOURCE_NOT_FOUND, "there is no such entry")
        return {"text": f"removed: {_said(binding)}"}

    async def _set_quota(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        """`user` and `client_id`: null for whatever, "" for those without a limit of their own. A limit of null is removed."""
        names = {name: values.get(name) for name in ("user", "client_id")}
        if any(name is not None and not isinstance(name, str) for name in names.values()):
            raise ValueError("user and client_id must be texts or null")
        if all(name is None for name in names.values()):
            raise ValueError("a quota needs a user or a client id")
        rights.need("AlterClientQuotas")
        limits = {key: _limit(key, each) for key, each in value(values, "limits", dict).items()}
        if not limits:
            raise ValueError("limits is empty")
        await alter_quotas(client, Entity(names["user"], names["client_id"]), limits, timeout_s=self._timeout_s)
        said = [
            f"{key}: no limit" if each is None else f"{key}={limit_text(key, each)}" for key, each in limits.items()
        ]
        return {"text": ", ".join(said)}


def _name(values: Values, field: str) -> str:
    name: str = value(values, field, str)
    if not 0 < len(name) <= _MAX_NAME:
        raise ValueError(f"{field} is empty or too long")
    return name


def _credential(each: Any) -> NewCredential:
    """Raises ValueError, without what is in it."""
    if not isinstance(each, dict):
        raise ValueError("a credential is not an object")
    mechanism, iterations = value(each, "mechanism", str), value(each, "iterations", int)
    if mechanism not in MECHANISMS:
        raise ValueError(f"mechanism: {mechanism!r} is not one of {', '.join(sorted(MECHANISMS))}")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"iterations: from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    salt, salted = binary(each, "salt"), binary(each, "salted_password")
    if len(salted) != _KEY_BYTES[mechanism] or not MIN_SALT_BYTES <= len(salt) <= _MAX_SALT_BYTES:
        raise ValueError("the salt or the salted password has a wrong length")
    return NewCredential(mechanism, iterations, salt, salted)


def _member(values: Values, field: str, kind: type[E]) -> E:
    name = value(values, field, str)
    known = {each.name: each for each in kind if each.name not in ("UNKNOWN", "ANY", "MATCH")}
    if name not in known:
        raise ValueError(f"{field}: {name!r} is not one of {', '.join(known)}")
    return known[name]


def _binding(values: Values) -> Binding:
    principal = _name(values, "principal")
    if not principal.partition(":")[2]:
        raise ValueError("principal: KIND:NAME, such as User:alice")
    pattern = Pattern(
        _member(values, "resource", ResourceType), _name(values, "name"), _member(values, "pattern", PatternType)
    )
    operation, permission = _member(values, "operation", Operation), _member(values, "permission", Permission)
    return Binding(pattern, AclEntry(principal, value(values, "host", str, "*") or "*", operation, permission))


def _said(binding: Binding) -> str:
    pattern, entry = binding.pattern, binding.entry
    begins = "…" if pattern.pattern_type is PatternType.PREFIXED else ""
    may = "may" if entry.permission is Permission.ALLOW else "may not"
    return f"{entry.principal} {may} {entry.operation.name} {pattern.resource_type.name} {pattern.name}{begins}"


def _limit(key: str, limit: Any) -> float | None:
    if key not in list(Kind):
        raise ValueError(f"{key} is not one of {', '.join(Kind)}")
    return None if limit is None else parse_limit(key, str(limit))
