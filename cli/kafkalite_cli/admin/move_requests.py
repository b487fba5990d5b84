"""Moves of partitions, as several commands request them: all of them or none."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    ListReassignmentsRequest,
    ListReassignmentsResponse,
    Reassignment,
    WantedReassignment,
)

#: For somebody who interrupts a command that watches moves.
HOW_TO_RETURN = "the moves go on; `kafkalite admin reassign status --watch` shows them again, `kafkalite admin reassign cancel` ends them"


async def moves_in_progress(client: AsyncClient, timeout_s: float) -> tuple[Reassignment, ...]:
    """Raises ApiError, RpcError."""
    answer = await client.order(ListReassignmentsRequest(), ListReassignmentsResponse, timeout_s=timeout_s)
    refuse(answer.error, answer.message)
    return answer.reassignments


async def request_moves(
    client: AsyncClient,
    wanted: Iterable[WantedReassignment],
    timeout_s: float,
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
        int(timeout_s * 1000),
        allow_replication_factor_change=allow_rf_change,
        is_atomic=True,
        may_replace=may_replace,
        limits=limits,
    )
    refuse_any(await client.order(request, AlterReassignmentsResponse, timeout_s=timeout_s + 5))


def refuse_any(answer: AlterReassignmentsResponse) -> None:
    """Raise the first refusal; the message has the number of the others."""
    refuse(answer.error, answer.message)
    refused = [each for each in answer.partitions if each.error]
    if refused:
        more = f" (and {len(refused) - 1} more); nothing was changed" if len(refused) > 1 else "; nothing was changed"
        refuse(refused[0].error, refused[0].message + more)
