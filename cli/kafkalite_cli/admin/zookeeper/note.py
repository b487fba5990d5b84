"""A note under descriptions of the cluster, while ZooKeeper does not answer the brokers: they may be out of date."""

from __future__ import annotations

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.watching import HealthResponse

_PATIENCE_S = 2.0
#: With these the brokers do not hear what changes. An open tree is a problem, but not one of what is shown.
_OUT_OF_DATE = ("zookeeper.away", "zookeeper.foreign")


async def note_zookeeper(client: AsyncClient) -> None:
    """Print it to standard error, once; print nothing if all is well, or if no broker answers."""
    try:
        answers = await client.health(timeout_s=_PATIENCE_S)
    except KafkaliteError:
        return
    for node, answer in sorted(answers.items()):
        if isinstance(answer, HealthResponse):
            for problem in answer.problems:
                if problem.what in _OUT_OF_DATE:
                    reported = f"note: this is the brokers' last known state: {problem.detail} (broker {node}; see `admin health`)"
                    click.echo(reported, err=True)
                    return
