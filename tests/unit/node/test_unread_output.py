"""`kafkalite consume` into a pipe that nobody reads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.membership import Membership
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster import Cluster, cluster
from tests.support.commands import PROGRAM, environment

_QUICK = {"group.initial.rebalance.delay.ms": 0}
_RECORDS = 4_000


async def _filled(client: AsyncClient, partitions: int) -> None:
    """Far more than a pipe takes."""
    await client.create_topics([NewTopic("t", partitions, 1)])
    async with Producer(client) as producer:
        for number in range(_RECORDS):
            await producer.send("t", None, b"%0199d" % number, partition=number % partitions)


@contextmanager
def _unread(on: Cluster, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A consumer whose pipe nobody reads."""
    command = [*PROGRAM, "consume", "t", "--from", "beginning", *options]
    environ = environment(on.bootstrap)
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, env=environ) as process:
        try:
            yield process
        finally:
            process.kill()


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return os.read(process.stdout.fileno(), 200)


def _stopped(process: subprocess.Popen[bytes], by: signal.Signals) -> bytes:
    """The rest of its output: what the pipe had."""
    process.send_signal(by)
    assert process.wait() == 0
    out, err = process.communicate()
    assert err == b""
    return out


async def test_a_member_whose_output_nobody_reads_stays_a_member() -> None:
    """It shares with one that joins, commits only what it wrote, and leaves in order when it is stopped."""
    async with cluster(1, settings=_QUICK) as on, AsyncClient.connect(on.bootstrap) as client:
        await _filled(client, 2)
        with _unread(on, "--group", "g") as process:
            first = await asyncio.to_thread(_first_line, process)
            other = Membership(client, Groups(client), "g", ["t"])
            await other.join()
            assert len(other.partitions) == 1, "the other partition is the blocked member's"
            kept = sum((await other.committed()).values())
            out = first + await asyncio.to_thread(_stopped, process, signal.SIGTERM)
            assert 0 < kept <= out.count(b"\n") < _RECORDS
            assert sum((await other.committed()).values()) <= out.count(b"\n")
            _, described = await Groups(client).describe("g")
            assert len(described.members) == 1, "it has left; nobody waits for its session to end"
            await other.leave()


async def test_sigint_ends_a_consumer_whose_output_nobody_reads() -> None:
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await _filled(client, 1)
        with _unread(on) as process:
            assert await asyncio.to_thread(_first_line, process)
            assert (await asyncio.to_thread(_stopped, process, signal.SIGINT)).count(b"\n") < _RECORDS - 1
