"""Groups: their members, what they have committed, how far they are behind, now and over time."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from kafkalite.client.admin.groups import GroupMember, Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.offset_reset import ends_of
from kafkalite.env.fair_executor import FairExecutor
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.rates import DescribeGroupLagRequest, DescribeGroupLagResponse
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.console.cluster import TIMEOUT_S, ClusterAccess
from kafkalite.http.console.rights import UserRights
from kafkalite.http.values import given, whole
from kafkalite.model import LATEST_TIMESTAMP, TopicPartition
from kafkalite.protocol import wire
from kafkalite.rpc.answers import RpcError
from kafkalite.security.acl import ResourceType
from kafkalite.telemetry.series import KEPT

if TYPE_CHECKING:
    from kafkalite.http.host import ObservedNode

MAX_GROUPS = 50
#: Partitions and members of one group that are shown.
MAX_ROWS = 500
#: Partitions of one member that are shown, and looked through for those that the user may see.
_SHOWN, _LOOKED_THROUGH = 50, 200
_PATIENCE_S = 1.5
_NOBODY = "Dead"
_GROUP = ResourceType.GROUP


class GroupAnswers:
    """Of one node."""

    def __init__(self, node: ObservedNode, cluster: ClusterAccess) -> None:
        self._node = node
        self._cluster = cluster
        self._executor = FairExecutor(node.env.disk.run_blocking, node.env.clock, at_once=1)

    async def groups(self, asked: AuthenticatedRequest, rights: UserRights) -> dict[str, Any]:
        """One page of the list: `text` in the name, `offset`."""
        text = asked.query.get("text", "")
        offset, limit = whole(asked.query, "offset", 0, 0, 10**6), whole(asked.query, "limit", 50, 1, MAX_GROUPS)
        is_visible = rights.visible("ListGroups", _GROUP)
        listed, missing = await self._listed(await self._cluster.client(asked))
        names = sorted(name for name in listed if text in name and is_visible(name))
        page = names[offset : offset + limit]
        lags = await self._lags(tuple(page), 1)
        rows = []
        for name in page:
            coordinator, state, protocol = listed[name]
            row: dict[str, Any] = {"group": name, "coordinator": coordinator, "state": state, "type": protocol}
            if (known := lags.get(name)) is not None:
                row |= {"members": known["members"], "partitions": known["partitions"]}
                row["lag"] = known["lag"][-1] if known["lag"] else None
            rows.append(row)
        return {"groups": rows, "matched": len(names), "offset": offset, "missing": missing}

    async def _listed(self, client: AsyncClient) -> tuple[dict[str, tuple[int, str, str]], list[int]]:
        """(group -> coordinator, state, type; nodes that did not answer)."""
        found: dict[str, tuple[int, str, str]] = {}
        missing: list[int] = []
        answers = await client.every_node(wire.ListGroupsRequest(), timeout_s=TIMEOUT_S)
        for node, answer in answers.items():
            if isinstance(answer, KafkaliteError) or answer.error_code:
                missing.append(node)
                continue
            for each in answer.groups:
                found[each.group_id] = (node, each.group_state, each.protocol_type)
        return found, missing

    async def group(self, asked: AuthenticatedRequest, rights: UserRights) -> dict[str, Any]:
        """One group."""
        name = given(asked.query, "group")
        rights.need("DescribeGroups", {_GROUP: [name]})
        client = await self._cluster.client(asked)
        coordinator, described = await Groups(client).describe(name)
        if described.state == _NOBODY:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
        is_visible = cache(rights.visible("OffsetFetch", ResourceType.TOPIC))
        offsets = [each for each in described.offsets if is_visible(each.topic)]
        shown = offsets[:MAX_ROWS]
        ends = await self._ends(client, [TopicPartition(each.topic, each.partition) for each in shown])
        keys = {(each.topic, each.partition) for each in shown}
        look = partial(_assigned, described.members, keys)
        (owners, first), _ = await self._executor.run((str(asked.principal), asked.client_host), look)
        lag = (await self._lags((name,), KEPT)).get(name)
        return {
            "group": name,
            "coordinator": coordinator,
            "state": described.state,
            "type": described.protocol_type,
            "protocol": described.protocol,
            "members_total": len(described.members),
            "members": [
                {
                    "member_id": member.member_id,
                    "client_id": member.client_id,
                    "host": member.client_host,
                    "instance_id": member.instance_id,
                    "partitions": [f"{topic}-{number}" for topic, number in partitions if is_visible(topic)][:_SHOWN],
                }
                for member, partitions in zip(described.members, first, strict=False)
            ],
            "offsets_total": len(offsets),
            "offsets": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "offset": each.offset,
                    "end": ends.get(TopicPartition(each.topic, each.partition)),
                    "owner": owners.get((each.topic, each.partition), ""),
                }
                for each in shown
            ],
            "lag": lag["lag"] if lag else [],
            "interval_ms": lag["interval_ms"] if lag else 0,
            "can": {
                "reset": rights.may("OffsetCommit", {_GROUP: [name]}),
                "delete": rights.may("DeleteGroups", {_GROUP: [name]}),
            },
        }

    async def _ends(self, client: AsyncClient, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        live = self._node.metadata.broker_epochs
        led = [key for key in keys if (s := self._node.metadata.partition(key)) is not None and s.leader in live]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await ends_of(client, led, LATEST_TIMESTAMP)
        except (ApiError, RpcError, TimeoutError):
            return {}

    async def _lags(self, groups: tuple[str, ...], points: int) -> dict[str, dict[str, Any]]:
        """What the coordinators have measured."""
        if not groups:
            return {}
        request = DescribeGroupLagRequest(groups, points)
        answers = await self._node.peers.every_node(request, timeout_s=_PATIENCE_S)
        return {
            each.group: {
                "members": each.members,
                "partitions": each.partitions,
                "lag": list(each.lag),
                "interval_ms": answer.interval_ms,
            }
            for answer in answers.values()
            if isinstance(answer, DescribeGroupLagResponse)
            for each in answer.groups
        }


def _assigned(
    members: Sequence[GroupMember], keys: Container[tuple[str, int]]
) -> tuple[dict[tuple[str, int], str], list[Sequence[tuple[str, int]]]]:
    """In a thread: the client that has each of `keys`; the first partitions of each member that is shown."""
    owners: dict[tuple[str, int], str] = {}
    first: list[Sequence[tuple[str, int]]] = []
    for member in members:
        partitions = member.partitions
        owners.update((each, member.client_id) for each in partitions if each in keys)
        if len(first) < MAX_ROWS:
            first.append(partitions[:_LOOKED_THROUGH])
    return owners, first
