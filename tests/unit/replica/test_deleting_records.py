"""DeleteRecords counts as done when no failover can bring the records back."""

import asyncio
import errno
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.log import checkpoints
from kafkalite.model import Offset, TopicPartition
from tests.support.failing import fails_with

from .conftest import QUICK

TP = TopicPartition("t", 0)


async def started(make_cluster, **overrides):
    cluster = await make_cluster(3, **overrides)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2, 3), epoch=0))
    for value in (b"a", b"b", b"c"):
        assert (await cluster.node(1).produce(TP, value)).error == ErrorCode.NONE
    return cluster


def delete(cluster, before: int) -> asyncio.Future[Any]:
    leader = cluster.node(1)
    answer: asyncio.Future[Any] = leader.manager.hosted.delete_records(leader.partition(TP), Offset(before))
    return answer


def starts(cluster) -> list[int]:
    return [node.partition(TP).log.log_start_offset for node in cluster.nodes.values()]


@pytest.mark.parametrize("wait_ms", [50, 60_000])
async def test_it_is_done_when_every_member_of_the_isr_begins_there(make_cluster, wait_ms):
    """Also where nothing else happens for a minute: the followers' long polls are answered for it."""
    cluster = await started(
        make_cluster, **{"replica.fetch.wait.max.ms": wait_ms, "replica.lag.time.max.ms": wait_ms + 25_000}
    )
    waiting = delete(cluster, 2)
    assert starts(cluster)[0] == 2 and not waiting.done(), "the followers have yet to hear of it"
    assert await waiting == 2
    assert starts(cluster) == [2, 2, 2]
    assert await delete(cluster, 1) == 2, "they begin behind it"


async def test_a_member_that_is_silent_is_waited_for_until_it_leaves_the_isr(make_cluster, until):
    cluster = await started(make_cluster, **QUICK)
    third = cluster.node(3)
    third.manager.fetchers.close()
    waiting = delete(cluster, 3)
    await until(lambda: starts(cluster)[1] == 3)
    assert not waiting.done() and starts(cluster)[2] == 0
    await until(lambda: cluster.state(TP).isr == (1, 2))
    assert await waiting == 3


async def test_who_waits_hears_that_the_leader_leads_no_more(make_cluster):
    cluster = await started(make_cluster)
    for number in (2, 3):
        cluster.node(number).manager.fetchers.close()
    waiting = delete(cluster, 3)
    await cluster.command(1, cluster.decide(TP, leader=2, isr=(1, 2, 3), epoch=1))
    with fails_with(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        await waiting


def saved(cluster) -> list[int]:
    """The log starts in the files, as a node would find them if it were killed now."""
    files = [node.directory / checkpoints.LOG_STARTS for node in cluster.nodes.values()]
    return [checkpoints.decode_offsets(file.read_bytes()).get(TP, 0) if file.exists() else 0 for file in files]


async def test_every_member_of_the_isr_has_saved_its_log_start_before_the_answer(make_cluster):
    """Kafka saves it once a minute: if all replicas die before that, the records are back."""
    cluster = await started(make_cluster)
    assert await delete(cluster, 2) == 2
    assert saved(cluster) == [2, 2, 2]


@pytest.mark.parametrize("number", [1, 2])
async def test_a_log_start_that_is_not_saved_yet_does_not_count(make_cluster, until, number):
    cluster = await started(make_cluster)
    node = cluster.node(number)
    go_on = asyncio.Event()
    off_loop = node.disk.run_blocking

    async def late(function, at=""):
        await go_on.wait()
        return await off_loop(function, at)

    node.disk.run_blocking = late
    waiting = delete(cluster, 2)
    await until(lambda: starts(cluster) == [2, 2, 2])
    await until(lambda: saved(cluster).count(2) == 2)
    await asyncio.sleep(0)
    assert not waiting.done()
    go_on.set()
    assert await waiting == 2
    assert saved(cluster) == [2, 2, 2]


async def test_a_save_without_descriptors_is_repeated(make_cluster, monkeypatch):
    cluster = await started(make_cluster)
    disk, failures = cluster.node(2).disk, [OSError(errno.EMFILE, "Too many open files")] * 2
    write = disk.write_file_atomic

    def fail(path, data, *, durable=True):
        if checkpoints.LOG_STARTS in path and failures:
            raise failures.pop()
        write(path, data, durable=durable)

    monkeypatch.setattr(disk, "write_file_atomic", fail)
    assert await delete(cluster, 2) == 2
    assert not failures and saved(cluster) == [2, 2, 2]
