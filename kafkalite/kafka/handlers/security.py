"""DescribeAcls, CreateAcls, DeleteAcls, DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.protocol import wire
from kafkalite.rpc.messages.changes import ACLS, SETTINGS
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
from kafkalite.security.addresses import canonical, is_address
from kafkalite.security.quotas import DEFAULT, Entity

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_KINDS = (_USER, _CLIENT_ID, _IP)


class SecurityHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._security = services.rights

    def table(self) -> dict[str, Handler]:
        return {
            "DescribeAcls": self.describe_acls,
            "CreateAcls": self.create_acls,
            "DeleteAcls": self.delete_acls,
            "DescribeClientQuotas": self.describe_quotas,
            "AlterClientQuotas": self.alter_quotas,
        }

    # --- ACLs ---

    def describe_acls(self, request: Request, message: wire.DescribeAclsRequest) -> Steps[wire.DescribeAclsResponse]:
        response = wire.DescribeAclsResponse
        wanted = _filter(message)
        if wanted.is_unknown():
            raise api_error(ErrorCode.INVALID_REQUEST, "a filter of an unknown kind")
        resources: list[wire.DescribeAclsResponse.DescribeAclsResource] = []
        work = 0
        for pattern, entries in self._security.describe_acls(wanted):
            work += 1 + len(entries)
            if work >= STEP:
                work = 0
                yield
            if not entries or (request.version == 0 and pattern.pattern_type is not PatternType.LITERAL):
                continue  # version 0 cannot distinguish a prefix from a name
            acls = [
                response.AclDescription(entry.principal, entry.host, int(entry.operation), int(entry.permission))
                for entry in entries
            ]
            resources.append(
                response.DescribeAclsResource(int(pattern.resource_type), pattern.name, int(pattern.pattern_type), acls)
            )
        return response(resources=resources)

    async def create_acls(self, request: Request, message: wire.CreateAclsRequest) -> wire.CreateAclsResponse:
        result = wire.CreateAclsResponse.AclCreationResult
        bindings = [
            Binding(
                Pattern(
                    known_or_unknown(ResourceType, each.resource_type),
                    each.resource_name,
                    known_or_unknown(PatternType, each.resource_pattern_type),
                ),
                AclEntry(
                    each.principal,
                    each.host,
                    known_or_unknown(Operation, each.operation),
                    known_or_unknown(Permission, each.permission_type),
                ),
            )
            for each in message.creations
        ]
        errors = await self._security.create_acls(request, bindings)
        if None in errors:
            await self._services.known_everywhere(ACLS)
        return wire.CreateAclsResponse(
            results=[result() if error is None else result(int(error.code), str(error)) for error in errors]
        )

    async def delete_acls(self, request: Request, message: wire.DeleteAclsRequest) -> wire.DeleteAclsResponse:
        response = wire.DeleteAclsResponse
        result = response.DeleteAclsFilterResult
        results = []
        outcomes = await self._security.delete_acls(request, [_filter(each) for each in message.filters])
        if not all(isinstance(outcome, ApiError) for outcome in outcomes):
            await self._services.known_everywhere(ACLS)
        for outcome in outcomes:
            if isinstance(outcome, ApiError):
                results.append(result(int(outcome.code), str(outcome)))
                continue
            matching = [
                response.DeleteAclsMatchingAcl(
                    0,
                    None,
                    int(binding.pattern.resource_type),
                    binding.pattern.name,
                    int(binding.pattern.pattern_type),
                    binding.entry.principal,
                    binding.entry.host,
                    int(binding.entry.operation),
                    int(binding.entry.permission),
                )
                for binding in outcome
            ]
            results.append(result(0, None, matching))
        return response(filter_results=results)

    # --- quotas ---

    def describe_quotas(
        self, request: Request, message: wire.DescribeClientQuotasRequest
    ) -> Steps[wire.DescribeClientQuotasResponse]:
        response = wire.DescribeClientQuotasResponse
        is_wanted = _quota_filter(message)
        entries: list[wire.DescribeClientQuotasResponse.EntryData] = []
        for number, (entity, limits) in enumerate(self._security.quotas.entities().items(), 1):
            if not number % STEP:
                yield
            if is_wanted(entity):
                parts = [response.EntityData(kind, name or None) for kind, name in _parts(entity).items()]
                values = [response.ValueData(key, value) for key, value in sorted(limits.items())]
                entries.append(response.EntryData(parts, values))
        return response(entries=entries)

    async def alter_quotas(
        self, request: Request, message: wire.AlterClientQuotasRequest
    ) -> wire.AlterClientQuotasResponse:
        response = wire.AlterClientQuotasResponse
        entries = []
        named = Counter(map(_named, message.entries))
        for entry in {_named(entry): entry for entry in message.entries}.values():
            code, text = 0, None
            try:
                changes = {op.key: None if op.remove else op.value for op in entry.ops}
                if named[_named(entry)] > 1:
                    raise api_error(ErrorCode.INVALID_REQUEST, "the same entity twice")
                if len(changes) != len(entry.ops):
                    raise api_error(ErrorCode.INVALID_REQUEST, "the same quota twice")
                await self._security.alter_quotas(
                    request, _quota_entity(entry.entity), changes, validate_only=message.validate_only
                )
            except ApiError as error:
                code, text = int(error.code), str(error)
            parts = [response.EntityData(part.entity_type, part.entity_name) for part in entry.entity]
            entries.append(response.EntryData(code, text, parts))
        if not message.validate_only and not all(entry.error_code for entry in entries):
            await self._services.known_everywhere(SETTINGS)
        return response(entries=entries)


def _filter(message: wire.DescribeAclsRequest | wire.DeleteAclsRequest.DeleteAclsFilter) -> Filter:
    return Filter(
        known_or_unknown(ResourceType, message.resource_type_filter),
        message.resource_name_filter,
        known_or_unknown(PatternType, message.pattern_type_filter),
        message.principal_filter,
        message.host_filter,
        known_or_unknown(Operation, message.operation),
        known_or_unknown(Permission, message.permission_type),
    )


def _named(entry: wire.AlterClientQuotasRequest.EntryData) -> frozenset[tuple[str, str | None]]:
    """Which entity a request means: as with Kafka, one that it names twice is refused, and answered once."""
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _parts(entity: Entity) -> dict[str, str]:
    """An entity's components as the wire names them."""
    parts = {_USER: entity.user, _CLIENT_ID: entity.client_id, _IP: entity.ip}
    return {kind: name for kind, name in parts.items() if name is not None}


def _quota_entity(parts: Sequence[wire.AlterClientQuotasRequest.EntityData]) -> Entity:
    """Raises ApiError."""
    found: dict[str, str] = {}
    for part in parts:
        if part.entity_type not in _KINDS:
            raise api_error(ErrorCode.INVALID_REQUEST, f"quotas of {part.entity_type!r}: not user, client-id or ip")
        if part.entity_type in found or part.entity_name == "":
            raise api_error(ErrorCode.INVALID_REQUEST, f"{part.entity_type} twice, or empty")
        found[part.entity_type] = DEFAULT if part.entity_name is None else part.entity_name
    if not found:
        raise api_error(ErrorCode.INVALID_REQUEST, "a quota needs a user, a client id or an address")
    if _IP in found:
        if len(found) > 1:
            raise api_error(ErrorCode.INVALID_REQUEST, "an address cannot be combined with a user or client id")
        return Entity(ip=_address(found[_IP]))
    return Entity(found.get(_USER), found.get(_CLIENT_ID))


def _address(text: str) -> str:
    """One spelling of each. Kafka takes names of hosts, too; here a node does not ask for them. Raises ApiError."""
    if text != DEFAULT and not is_address(text):
        raise api_error(ErrorCode.INVALID_REQUEST, f"{text!r} is not an IP address")
    return canonical(text)


def _quota_filter(message: wire.DescribeClientQuotasRequest) -> Callable[[Entity], bool]:
    """Raises ApiError. `strict`: entities with components beside those of the filter are left out."""
    wanted: dict[str, str | None] = {}
    # Nobody has an empty name; the entities without one are asked for with another match type.
    is_nobody = any(component.match_type == 0 and component.match == "" for component in message.components)
    for component in message.components:
        kind = component.entity_type
        if not kind:
            raise api_error(ErrorCode.INVALID_REQUEST, "a component without a type")
        if kind not in _KINDS:
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"quotas of {kind!r}: not user, client-id or ip")
        if kind in wanted:
            raise api_error(ErrorCode.INVALID_REQUEST, f"{kind} twice")
        match component.match_type:
            case 0 if component.match is not None:
                wanted[kind] = canonical(component.match) if kind == _IP else component.match
            case 1 if component.match is None:
                wanted[kind] = DEFAULT
            case 2 if component.match is None:
                wanted[kind] = None
            case _:
                raise api_error(ErrorCode.INVALID_REQUEST, f"{kind}: match type {component.match_type}")

    if _IP in wanted and len(wanted) > 1:
        raise api_error(ErrorCode.INVALID_REQUEST, "an address cannot be combined with a user or client id")

    def is_wanted(entity: Entity) -> bool:
        parts = _parts(entity)
        if is_nobody:
            return False
        if message.strict and parts.keys() != wanted.keys():
            return False
        return all(kind in parts and name in (None, parts[kind]) for kind, name in wanted.items())

    return is_wanted
