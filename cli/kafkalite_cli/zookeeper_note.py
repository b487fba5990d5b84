"""What a verb adds while ZooKeeper does not answer the brokers: what it shows may be out of date, what it asks for is not answered."""

from __future__ import annotations

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ApiError, KafkaliteError, api_error, is_retriable
from kafkalite.extension.messages.watching import HealthProblem, HealthResponse
from kafkalite.model import BrokerId
from kafkalite.rpc.answers import RpcTimeout
from kafkalite_cli.output import Output

_PATIENCE_S = 2.0
#: With these the brokers do not hear what changes. An open tree is a problem, but not one of what is shown.
_OUT_OF_DATE = ("zookeeper.away", "zookeeper.foreign")


async def note_zookeeper(client: AsyncClient, out: Output) -> None:
    """Print it to standard error, once; print nothing if all is well, if no broker answers, or for a program (--json)."""
    if not out.as_json and (found := await _trouble(client)) is not None:
        node, problem = found
        reported = f"note: this is the brokers' last known state: {problem.detail} (broker {node}; see `admin health`)"
        click.echo(reported, err=True)


def may_be_zookeeper(error: KafkaliteError) -> bool:
    """Whether a request may have failed because ZooKeeper is away, and its error does not say so."""
    is_late = isinstance(error, RpcTimeout) or (isinstance(error, ApiError) and is_retriable(error.code))
    return is_late and "ZooKeeper (" not in str(error)


async def with_reason(error: KafkaliteError, client: AsyncClient) -> KafkaliteError:
    """The error of a request, with what the brokers say of ZooKeeper; as it is if they say nothing."""
    found = await _trouble(client)
    if found is None:
        return error
    text = f"{error}; {found[1].detail}"
    return api_error(error.code, text) if isinstance(error, ApiError) else RpcTimeout(text)


async def _trouble(client: AsyncClient) -> tuple[BrokerId, HealthProblem] | None:
    """A broker that has no ZooKeeper, and what it says of that."""
    try:
        answers = await client.health(timeout_s=_PATIENCE_S)
    except KafkaliteError:
        return None
    for node, answer in sorted(answers.items()):
        if isinstance(answer, HealthResponse):
            for problem in answer.problems:
                if problem.what in _OUT_OF_DATE:
                    return node, problem
    return None
