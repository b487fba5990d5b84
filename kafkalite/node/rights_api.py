"""ACLs and quotas on the RPC listener."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.admin.acls import AclManager
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.rpc.handling import Handler, Reply, Request
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.security import (
    AclBinding,
    AclFilter,
    AlterAclsRequest,
    AlterAclsResponse,
    AlterQuotasRequest,
    AlterQuotasResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeQuotasRequest,
    DescribeQuotasResponse,
    QuotaEntity,
    QuotaEntry,
)
from kafkalite.security.acl import (
    Binding,
    Entry,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    known_or_unknown,
)
from kafkalite.security.quotas import Entity, limit_text, parse_limit


class RightsApi:
    """Handlers. Refusals are in the answers."""

    def __init__(self, rights: AclManager) -> None:
        self._security = rights

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {
            DescribeAclsRequest: self._describe_acls,
            AlterAclsRequest: self._alter_acls,
            DescribeQuotasRequest: self._describe_quotas,
            AlterQuotasRequest: self._alter_quotas,
        }

    def _describe_acls(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, DescribeAclsRequest)
        try:
            found = self._security.describe_acls(_filter(message.filter))
        except ApiError as error:
            return Reply(DescribeAclsResponse(error.code, str(error)))
        return Reply(DescribeAclsResponse(ErrorCode.NONE, "", tuple(map(_told, found))))

    async def _alter_acls(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, AlterAclsRequest)
        removed: list[Binding] = []
        first: ApiError | None = None
        try:
            if message.removals:
                for outcome in await self._security.delete_acls(request.peer, list(map(_filter, message.removals))):
                    if isinstance(outcome, ApiError):
                        first = first or outcome
                    else:
                        removed += outcome
            bindings = list(map(_binding, message.additions))
            for error in await self._security.create_acls(request.peer, bindings):
                first = first or error
        except ApiError as error:
            first = first or error
        code, text = (ErrorCode.NONE, "") if first is None else (first.code, str(first))
        return Reply(AlterAclsResponse(code, text, tuple(map(_told, removed))))

    def _describe_quotas(self, request: Request) -> Reply:
        entries = tuple(
            QuotaEntry(
                QuotaEntity(entity.user, entity.client_id),
                {key: limit_text(key, value) for key, value in sorted(limits.items())},
            )
            for entity, limits in self._security.quotas.entities().items()
        )
        return Reply(DescribeQuotasResponse(ErrorCode.NONE, "", entries))

    async def _alter_quotas(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, AlterQuotasRequest)
        entity = message.entity
        changes: dict[str, float | None] = dict.fromkeys(message.deletions)
        try:
            for key, text in message.limits.items():
                try:
                    changes[key] = parse_limit(key, text)
                except ValueError as error:
                    raise api_error(ErrorCode.INVALID_REQUEST, str(error)) from None
            if entity.user is None and entity.client_id is None:
                raise api_error(ErrorCode.INVALID_REQUEST, "a quota needs a user or a client id")
            await self._security.alter_quotas(request.peer, Entity(entity.user, entity.client_id), changes)
        except ApiError as error:
            return Reply(AlterQuotasResponse(error.code, str(error)))
        return Reply(AlterQuotasResponse(ErrorCode.NONE))


def _binding(told: AclBinding) -> Binding:
    return Binding(
        Pattern(
            known_or_unknown(ResourceType, told.resource_type),
            told.name,
            known_or_unknown(PatternType, told.pattern_type),
        ),
        Entry(
            told.principal,
            told.host,
            known_or_unknown(Operation, told.operation),
            known_or_unknown(Permission, told.permission),
        ),
    )


def _filter(told: AclFilter) -> Filter:
    return Filter(
        known_or_unknown(ResourceType, told.resource_type),
        told.name,
        known_or_unknown(PatternType, told.pattern_type),
        told.principal,
        told.host,
        known_or_unknown(Operation, told.operation),
        known_or_unknown(Permission, told.permission),
    )


def _told(binding: Binding) -> AclBinding:
    pattern, entry = binding.pattern, binding.entry
    return AclBinding(
        int(pattern.resource_type),
        pattern.name,
        int(pattern.pattern_type),
        entry.principal,
        entry.host,
        int(entry.operation),
        int(entry.permission),
    )
