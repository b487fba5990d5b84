"""`kafkalite consume --group` while its group, its topic and its user change their minds."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

import pytest

from kafkalite.client import membership
from kafkalite.client.admin.groups import Groups, own_error
from kafkalite.client.admin.partitions import add_partitions
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.membership import Membership
from kafkalite.client.producer import Producer
from kafkalite.client.results import Metadata
from kafkalite.errors import ApiError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.testing.cluster import Cluster, cluster
from tests.support.commands import PROGRAM, environment

_QUICK = {"group.initial.rebalance.delay.ms": 0}


@contextlib.asynccontextmanager
async def a_cluster(topic: str, partitions: int) -> AsyncIterator[tuple[Cluster, AsyncClient]]:
    async with cluster(1, settings=_QUICK) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic(topic, partitions, 1)])
        yield on, client


@contextlib.asynccontextmanager
async def command(on: Cluster, *arguments: str) -> AsyncIterator[Process]:
    environ = environment(on.bootstrap)
    program = (*PROGRAM, *arguments)
    process = await asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environ)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_partitions_that_are_added_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "PARTITIONS_CHECKED_S", 0.0)
    async with a_cluster("t", 1) as (_, client):
        member = Membership(client, Groups(client), "g", ["t"])
        await member.join()
        assert member.partitions == (TopicPartition("t", 0),)
        await add_partitions(client, "t", 3, timeout_s=150)
        await member.is_stale.wait()
        await member.join()
        assert len(member.partitions) == 3
        await member.leave()


async def test_a_node_that_does_not_know_the_topic_yet_takes_nothing_from_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_cluster("t", 2) as (_, client):
        await client.known_topic("t")
        member = Membership(client, Groups(client), "g", ["t"])
        monkeypatch.setattr(client, "metadata", _nothing)
        await member.join()
        assert len(member.partitions) == 2
        await member.leave()


async def _nothing(*_: object, **__: object) -> Metadata:
    return Metadata("", BrokerId(-1), (), ())


async def test_a_topic_of_another_member_that_does_not_exist_is_nobodys() -> None:
    """The leader of the group waited a minute for it, and ended with the error."""
    async with a_cluster("t", 2) as (on, client), AsyncClient.connect(on.bootstrap) as other:
        first = Membership(client, Groups(client), "g", ["t"])
        await first.join()
        second = Membership(other, Groups(other), "g", ["t", "none"])
        joining = asyncio.ensure_future(second.join())
        await first.is_stale.wait()
        async with asyncio.timeout(150):
            await asyncio.gather(first.join(), joining)
        assert len(first.partitions) == len(second.partitions) == 1
        await first.leave()
        await second.leave()


async def test_a_group_that_begins_at_the_end_misses_nothing_of_a_change_of_members() -> None:
    """The end was looked for again in each generation, unless something had been read: what came in between was lost."""
    async with a_cluster("t", 1) as (on, client), command(on, "consume", "t", "--group", "g") as process:
        groups = Groups(client)
        key = TopicPartition("t", 0)
        while not (await groups.describe("g"))[1].offsets:
            await asyncio.sleep(0.05)
        (offset,) = (await groups.describe("g"))[1].offsets
        assert (offset.offset, offset.topic) == (0, "t")
        process.kill()
        await process.wait()
        async with Producer(client) as producer:
            await (await producer.send("t", None, b"between"))
        while (await groups.describe("g"))[1].members:
            await asyncio.sleep(0.1)
        async with command(on, "consume", "t", "--group", "g", "--max", "1") as again:
            out, _ = await again.communicate()
        assert out == b"between\n"
        assert (await groups.describe("g"))[1].offsets[0].offset == 1, key


async def test_ctrl_c_ends_a_member_that_waits_for_the_others() -> None:
    """One of them is alive, and busy: the group waits for it as long as a rebalance may take."""
    async with a_cluster("t", 2) as (on, client):
        groups = Groups(client)
        other = Membership(client, groups, "g", ["t"])
        await other.join()

        async def beat() -> None:
            while True:
                with contextlib.suppress(ApiError):
                    await groups.ask("g", wire.HeartbeatRequest("g", other.generation, other.member_id), own_error)
                await asyncio.sleep(1)

        beating = asyncio.ensure_future(beat())
        async with command(on, "consume", "t", "--group", "g") as process:
            await other.is_stale.wait()  # the process is in the group, and waits for us
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(150):
                out, err = await process.communicate()
            assert (process.returncode, out, err) == (0, b"", b"")
        beating.cancel()
        await other.leave()
