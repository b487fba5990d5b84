"""What operators look at: transactions that are open or hang, users, permissions, quotas."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from kafkalite.client.admin.acls import describe_acls
from kafkalite.client.admin.hanging_transactions import TransactionAdmin
from kafkalite.client.admin.quotas import describe_quotas
from kafkalite.client.admin.users import describe_users
from kafkalite.errors import ApiError
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.console.cluster import ClusterAccess
from kafkalite.http.console.rights import UserRights
from kafkalite.http.values import whole
from kafkalite.rpc.answers import RpcError
from kafkalite.security.acl import Filter, ResourceType
from kafkalite.security.quotas import DEFAULT

MAX_ROWS = 200
#: A transaction that is open for longer, and that its coordinator does not know, hangs.
_HANGING_MS = 60_000
_TRANSACTION, _TOPIC = ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC


class OperatorAnswers:
    """Of one node."""

    def __init__(self, cluster: ClusterAccess) -> None:
        self._cluster = cluster

    async def transactions(self, asked: AuthenticatedRequest, rights: UserRights) -> dict[str, Any]:
        """Transactional ids with their state, what is open on partitions, and what hangs."""
        text = asked.query.get("text", "")
        known = TransactionAdmin(await self._cluster.client(asked))
        sees_id = rights.visible("ListTransactionsRequest", _TRANSACTION)
        sees_topic = rights.visible("OpenTransactionsRequest", _TOPIC)
        listed = [
            (node, each)
            for node, each in await known.listed()
            if text in each.transactional_id and sees_id(each.transactional_id)
        ]
        # What is under way first.
        listed.sort(
            key=lambda row: (row[1].state in ("Empty", "CompleteCommit", "CompleteAbort"), row[1].transactional_id)
        )
        opened = [(node, each) for node, each in await known.open() if sees_topic(each.topic)]
        hanging: list[dict[str, Any]] = []
        note = ""
        try:
            found = await known.find_hanging(_HANGING_MS)
            hanging = [
                {**dataclasses.asdict(each.transaction), "reason": each.reason, "leader": node}
                for node, each in found
                if sees_topic(each.transaction.topic)
            ]
        except (ApiError, RpcError) as error:
            note = f"which of them hang is not known: {error}"
        return {
            "transactions": [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "state": each.state,
                    "coordinator": node,
                }
                for node, each in listed[:MAX_ROWS]
            ],
            "matched": len(listed),
            "open": [{**dataclasses.asdict(each), "leader": node} for node, each in opened[:MAX_ROWS]],
            "open_total": len(opened),
            "hanging": hanging[:MAX_ROWS],
            "note": note,
            "can_abort": rights.may("AbortTransactionRequest"),
        }

    async def security(self, asked: AuthenticatedRequest, rights: UserRights) -> dict[str, Any]:
        """Users, permissions and quotas: each part that the user may see, or why not."""
        client = await self._cluster.client(asked)
        offset = whole(asked.query, "offset", 0, 0, 10**6)
        text = asked.query.get("text", "")

        async def users() -> list[dict[str, Any]]:
            found = await describe_users(client)
            return [{"user": name, "mechanisms": sorted(each)} for name, each in sorted(found.items()) if text in name]

        async def acls() -> list[dict[str, Any]]:
            rows = [
                {
                    "principal": each.entry.principal,
                    "permission": each.entry.permission.name,
                    "operation": each.entry.operation.name,
                    "resource": each.pattern.resource_type.name,
                    "name": each.pattern.name,
                    "pattern": each.pattern.pattern_type.name,
                    "host": each.entry.host,
                }
                for each in await describe_acls(client, Filter())
            ]
            rows.sort(key=lambda row: (row["principal"], row["resource"], row["name"], row["operation"]))
            return [row for row in rows if text in row["principal"] or text in row["name"]]

        async def quotas() -> list[dict[str, Any]]:
            return [
                {
                    "user": _entity(entity.user),
                    "client_id": _entity(entity.client_id),
                    "ip": _entity(entity.ip),
                    "limits": limits,
                    "entity": {"user": entity.user, "client_id": entity.client_id},
                }
                for entity, limits in await describe_quotas(client)
            ]

        parts = {
            "users": ("DescribeUserScramCredentials", users),
            "acls": ("DescribeAcls", acls),
            "quotas": ("DescribeClientQuotas", quotas),
        }
        return {name: await _part(rights, api, read, offset) for name, (api, read) in parts.items()}


async def _part(
    rights: UserRights, api: str, read: Callable[[], Awaitable[list[dict[str, Any]]]], offset: int
) -> dict[str, Any]:
    if not rights.may(api):
        return {"rows": [], "total": 0, "note": "you may not see this"}
    try:
        rows = await read()
    except (ApiError, RpcError) as error:
        return {"rows": [], "total": 0, "note": str(error)}
    return {"rows": rows[offset : offset + MAX_ROWS], "total": len(rows), "note": ""}


def _entity(name: str | None) -> str:
    """For people: empty if the quota is not about it."""
    return "" if name is None else "(default)" if name == DEFAULT else name
