"""What nodes say of themselves and their disks, with their refusals raised."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.exchange import Request
from kafkalite.errors import ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.disks import DescribeDisksRequest, DescribeDisksResponse
from kafkalite.model import BrokerId
from kafkalite_cli.admin.refusals import refuse_forbidden, refuse_unknown_broker

R = TypeVar("R")
T = TypeVar("T")


async def answer_of(client: AsyncClient, broker: int, request: Request, response: type[R]) -> R:
    """One node's response. Raises KafkaliteError."""
    answer = await client.ask_node(BrokerId(broker), request, timeout_s=client.timeout_s)
    if isinstance(answer, KafkaliteError):
        await refuse_unknown_broker(client, broker)
        raise answer
    assert isinstance(answer, response)
    return answer


def report_unreachable(answers: Mapping[BrokerId, object]) -> list[dict[str, object]]:
    """Say on stderr which nodes did not answer (an error in `answers`). Returns the same for the JSON of a command."""
    failed = [(node, str(answer)) for node, answer in sorted(answers.items()) if isinstance(answer, KafkaliteError)]
    for node, text in failed:
        click.echo(f"kafkalite: broker {node} did not answer: {text}", err=True)
    return [{"broker_id": node, "error": text} for node, text in failed]


def entries_of(
    answers: Mapping[BrokerId, DescribeDisksResponse | KafkaliteError],
    entries: Callable[[DescribeDisksResponse], Iterable[T]],
) -> list[tuple[BrokerId, T]]:
    """(node, entry) of the nodes that have answered."""
    return [
        (node, each)
        for node, answer in answers.items()
        if isinstance(answer, DescribeDisksResponse)
        for each in entries(answer)
    ]


async def _not_alive(client: AsyncClient, answered: Collection[BrokerId]) -> dict[BrokerId, KafkaliteError]:
    """An error for each broker that has replicas, and is down: a list of all nodes has to name it."""
    topics = (await client.metadata()).topics
    assigned = {broker for topic in topics for entry in topic.partitions for broker in entry.replicas}
    return {
        broker: api_error(ErrorCode.BROKER_NOT_AVAILABLE, "it is not alive")
        for broker in sorted(assigned.difference(answered))
    }


async def disks_of(client: AsyncClient, broker: int | None) -> dict[BrokerId, DescribeDisksResponse | KafkaliteError]:
    """The disks of this node, or of every node (None); of a node that does not respond, its error.

    Raises:
        ApiError: the client may not ask; there is no such node. RpcError: no node can be reached.
    """
    answers = await client.every_node(DescribeDisksRequest(), timeout_s=client.timeout_s)
    refuse_forbidden(answers.values())
    if broker is not None:
        answers = {node: answer for node, answer in answers.items() if node == broker}
    if broker is None:
        answers |= await _not_alive(client, answers.keys())
    if not answers:
        if broker is not None:
            await refuse_unknown_broker(client, broker)
        reason = "no live broker" if broker is None else f"broker {broker} is not alive"
        raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, reason)
    return answers
