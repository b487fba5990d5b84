"""Moves of partitions, as several commands request them: all of them or none."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    ListReassignmentsRequest,
    ListReassignmentsResponse,
    Reassignment,
    WantedReassignment,
)
from kafkalite.model import TopicPartition
from kafkalite.rpc.messages.base import of_kind

#: For somebody who interrupts a command that watches moves.
HOW_TO_RETURN = "the moves go on; `kafkalite admin reassign status --watch` shows them again, `kafkalite admin reassign cancel` ends them"


async def moves_in_progress(client: AsyncClient) -> tuple[Reassignment, ...]:
    """Raises ApiError, RpcError."""
    answer = await client.request(ListReassignmentsRequest(), ListReassignmentsResponse)
    refuse(answer.error, answer.message)
    return answer.reassignments


async def request_moves(
    client: AsyncClient,
    wanted: Iterable[WantedReassignment],
    *,
    limits: tuple[int, int, int] = (0, 0, 0),
    allow_rf_change: bool = False,
    may_replace: bool = False,
) -> None:
    """Start all of them, or none.

    Args:
        limits: replicas of a partition, partitions, leaders that move at once; 0: the cluster's default.

    Raises:
        ApiError: the first refusal, with the number of the others. RpcError.
    """
    request = AlterReassignmentsRequest(
        tuple(wanted),
        int(client.timeout_s * 1000),
        allow_replication_factor_change=allow_rf_change,
        is_atomic=True,
        may_replace=may_replace,
        limits=limits,
    )
    refuse_any(await client.request(request, AlterReassignmentsResponse, timeout_s=client.timeout_s + 5))


async def cancel_moves(
    client: AsyncClient, partitions: Iterable[TopicPartition], *, is_atomic: bool
) -> set[TopicPartition]:
    """Call moves off; returns those that are rolled back, which leaves out those that ended meanwhile.

    Args:
        is_atomic: refuse all, if one of them is not under way.

    Raises ApiError, RpcError.
    """
    wanted = tuple(WantedReassignment(*each, None) for each in partitions)
    request = AlterReassignmentsRequest(wanted, int(client.timeout_s * 1000), is_atomic=is_atomic)
    answer, was_asked_before = await client.run(client.routing.to_controller(request, client.timeout_s + 5))
    found = of_kind(answer, AlterReassignmentsResponse)
    refuse(found.error, found.message)
    if is_atomic and not was_asked_before:
        refuse_any(found)
    # An earlier try, whose answer was lost, may have called off what is not under way any more.
    forgiven = (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS) if was_asked_before else (ErrorCode.NONE,)
    return {TopicPartition(each.topic, each.partition) for each in found.partitions if each.error in forgiven}


def refuse_any(answer: AlterReassignmentsResponse) -> None:
    """Raise the first refusal; the message has the number of the others."""
    refuse(answer.error, answer.message)
    refused = [each for each in answer.partitions if each.error]
    if refused:
        more = f" (and {len(refused) - 1} more); nothing was changed" if len(refused) > 1 else "; nothing was changed"
        refuse(refused[0].error, refused[0].message + more)
