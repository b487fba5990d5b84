"""ACLs. Every function raises ApiError (SECURITY_DISABLED: the cluster has no authorizer) and RpcError."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.protocol import wire
from kafkalite.security.acl import (
    AclEntry,
    Binding,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    known_or_unknown,
)


async def describe_acls(client: AsyncClient, wanted: Filter) -> list[Binding]:
    """The entries in force that match."""
    answer = await client.call_any(wire.DescribeAclsRequest(*_fields(wanted)))
    refuse(answer.error_code, answer.error_message)
    return [_binding(resource, acl) for resource in answer.resources for acl in resource.acls]


async def create_acls(client: AsyncClient, bindings: Iterable[Binding], *, timeout_s: float | None = None) -> None:
    """Add entries; safe to repeat. The first refusal is raised."""
    request = wire.CreateAclsRequest
    creations = [
        request.AclCreation(
            int(each.pattern.resource_type),
            each.pattern.name,
            int(each.pattern.pattern_type),
            each.entry.principal,
            each.entry.host,
            int(each.entry.operation),
            int(each.entry.permission),
        )
        for each in bindings
    ]
    answer = await client.call_controller(
        request(creations), lambda each: [r.error_code for r in each.results], timeout_s=timeout_s
    )
    for result in answer.results:
        refuse(result.error_code, result.error_message)


async def delete_acls(
    client: AsyncClient, filters: Iterable[Filter], *, timeout_s: float | None = None
) -> list[Binding]:
    """Remove what the filters match; returns what that was. The first refusal is raised."""
    request = wire.DeleteAclsRequest
    wanted = [request.DeleteAclsFilter(*_fields(each)) for each in filters]
    answer = await client.call_controller(
        request(wanted), lambda each: [r.error_code for r in each.filter_results], timeout_s=timeout_s
    )
    removed = []
    for result in answer.filter_results:
        refuse(result.error_code, result.error_message)
        for acl in result.matching_acls:
            refuse(acl.error_code, acl.error_message)
            removed.append(_binding(acl, acl))
    return removed


def _fields(wanted: Filter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    """As requests name them."""
    pattern = (int(wanted.resource_type), wanted.name, int(wanted.pattern_type))
    return (*pattern, wanted.principal, wanted.host, int(wanted.operation), int(wanted.permission))


def _binding(resource: Any, acl: Any) -> Binding:
    """The structs of a response that have the fields of the pattern and of the entry."""
    resource_type = known_or_unknown(ResourceType, resource.resource_type)
    operation, permission = (
        known_or_unknown(Operation, acl.operation),
        known_or_unknown(Permission, acl.permission_type),
    )
    return Binding(
        Pattern(resource_type, resource.resource_name, known_or_unknown(PatternType, resource.pattern_type)),
        AclEntry(acl.principal, acl.host, operation, permission),
    )
