"""Quotas of users, client ids and addresses. Every function raises ApiError and RpcError."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.protocol import wire
from kafkalite.security.quotas import DEFAULT, Entity

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"


async def describe_quotas(client: AsyncClient) -> list[tuple[Entity, dict[str, float]]]:
    """Everything that is set: (whose, limit by key)."""
    answer = await client.call_any(wire.DescribeClientQuotasRequest([], strict=False))
    refuse(answer.error_code, answer.error_message)
    found = []
    for entry in answer.entries or ():
        names = {part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in entry.entity}
        if names.keys() <= {_USER, _CLIENT_ID, _IP}:
            limits = {value.key: value.value for value in entry.values}
            found.append((Entity(names.get(_USER), names.get(_CLIENT_ID), names.get(_IP)), limits))
    return found


async def alter_quotas(
    client: AsyncClient, entity: Entity, changes: Mapping[str, float | None], *, timeout_s: float | None = None
) -> None:
    """Set limits of one entity; None removes one."""
    request = wire.AlterClientQuotasRequest
    names = {_USER: entity.user, _CLIENT_ID: entity.client_id, _IP: entity.ip}
    parts = [
        request.EntityData(kind, None if name == DEFAULT else name) for kind, name in names.items() if name is not None
    ]
    ops = [request.OpData(key, value or 0.0, value is None) for key, value in changes.items()]
    answer = await client.call_controller(
        request([request.EntryData(parts, ops)], validate_only=False),
        lambda each: [entry.error_code for entry in each.entries],
        timeout_s=timeout_s,
    )
    for entry in answer.entries:
        refuse(entry.error_code, entry.error_message)
