"""One real node whose log is the only copy: file errors, restarts and time take nothing away; a full disk comes back."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.test_dead_disk import filled, full, mount_small
from tests.support.commands import admin
from tests.support.numbers import read_numbers, write_numbers

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

COUNT = 400
T0 = TopicPartition("t", 0)
SETTINGS = {
    "zookeeper.session.timeout.ms": 6_000,
    "log.dir.probe.interval.ms": 500,
    "segment.bytes": 1_024,
    # Nothing is to be kept by the delay.
    "stray.delete.delay.ms": 0,
    "http.port": -1,
}


async def problems(
    client: AsyncClient, holds: Callable[[tuple[HealthProblem, ...]], bool]
) -> tuple[HealthProblem, ...]:
    """Node 1's, once `holds` is true of them."""
    async with asyncio.timeout(150):
        while True:
            answer = (await client.health())[BrokerId(1)]
            if not isinstance(answer, KafkaliteError) and holds(answer.problems):
                return answer.problems
            await asyncio.sleep(0.05)


def has(what: str) -> Callable[[tuple[HealthProblem, ...]], bool]:
    return lambda found: any(problem.what == what for problem in found)


def log_directory(root: Path) -> Path:
    return next(root.rglob("t-0"))


def third_segment(directory: Path) -> Path:
    return sorted(directory.glob("*.log"))[2]


async def test_a_file_that_is_away_for_a_while_costs_the_last_copy_nothing(tmp_path: Path) -> None:
    """The directory was set aside at once and removed a minute later, and nothing was left of the records."""
    with ProcessCluster(tmp_path, nodes=1, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 1)])
            await write_numbers(client, 0, COUNT)
        assert cluster.nodes[1].terminate() == 0
        directory = log_directory(tmp_path)
        cluster.restart(1)  # its files are not open
        segment = third_segment(directory)
        segment.rename(tmp_path / "away")
        async with AsyncClient.connect(cluster.bootstrap) as client:
            reading = asyncio.ensure_future(read_numbers(client, COUNT))
            [problem] = [each for each in await problems(client, has("replica.last_copy")) if each.subject == "t-0"][:1]
            reading.cancel()
            with contextlib.suppress(KafkaliteError, TimeoutError, asyncio.CancelledError):
                await reading
            assert str(directory) in problem.detail and directory.is_dir()
            (tmp_path / "away").rename(segment)
            await problems(client, lambda found: not found)
            assert await read_numbers(client, COUNT) == list(range(COUNT))
            await write_numbers(client, COUNT, 10)
            assert await read_numbers(client, COUNT + 10) == list(range(COUNT + 10))
        assert [path.name for path in directory.parent.iterdir() if path.name.startswith("t-0")] == ["t-0"]


async def test_a_last_copy_whose_file_is_away_survives_a_restart_and_a_return(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=1, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 1)])
            await write_numbers(client, 0, COUNT)
        assert cluster.nodes[1].terminate() == 0
        directory = log_directory(tmp_path)
        # A file that is no file cannot be opened: neither by this start nor by the next.
        segment = third_segment(directory)
        segment.rename(tmp_path / "away")
        segment.mkdir()
        for _ in range(2):
            cluster.restart(1)
            async with AsyncClient.connect(cluster.bootstrap) as client:
                await problems(client, has("replica.last_copy"))
                await problems(client, has("partition.offline"))
            assert directory.is_dir(), "no empty log has taken its place"
            assert cluster.nodes[1].terminate() == 0
        cluster.restart(1)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await problems(client, has("replica.last_copy"))
            segment.rmdir()
            (tmp_path / "away").rename(segment)
            admin(cluster.bootstrap, "disk", "online", str(directory.parent), "--broker", "1")
            await problems(client, lambda found: not found)
            assert await read_numbers(client, COUNT) == list(range(COUNT))


async def test_what_was_set_aside_is_listed_restored_and_removed_by_order(tmp_path: Path) -> None:
    """A node of an earlier version has set the only copy aside; or somebody did by hand."""
    with ProcessCluster(tmp_path, nodes=1, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 1)])
            await write_numbers(client, 0, COUNT)
        assert cluster.nodes[1].terminate() == 0
        directory = log_directory(tmp_path)
        stray = directory.with_name(f"t-0.{1_700_000_000_000:016x}{7:016x}-stray")
        directory.rename(stray)
        (directory.parent / ".kafkalite-incomplete").touch()
        cluster.restart(1)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            told = await problems(client, lambda found: has("replica.last_copy")(found) and has("disk.strays")(found))
            assert any(stray.name in problem.detail for problem in told)
            [listed] = admin(cluster.bootstrap, "disk", "strays", "list")["strays"]
            assert (listed["path"], listed["partition"], listed["is_elsewhere"]) == (str(stray), 0, False)
            assert listed["size_bytes"] > COUNT
            admin(cluster.bootstrap, "disk", "strays", "restore", str(stray), "--broker", "1")
            await problems(client, lambda found: not found)
            assert await read_numbers(client, COUNT) == list(range(COUNT))
        assert directory.is_dir() and not stray.exists()
        directory.with_name(stray.name).mkdir()
        assert cluster.nodes[1].terminate() == 0
        cluster.restart(1)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await problems(client, has("disk.strays"))
            admin(cluster.bootstrap, "disk", "strays", "remove", str(stray), "--broker", "1", "--yes")
            await problems(client, lambda found: not found)
        async with asyncio.timeout(150):
            while stray.exists():
                await asyncio.sleep(0.05)


async def test_what_was_set_aside_goes_when_its_replica_is_in_sync_again(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=2, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 2)])
            await write_numbers(client, 0, COUNT)
            await in_sync(client, 2)
        assert cluster.nodes[2].terminate() == 0
        directory = log_directory(tmp_path / "node-2")
        segment = third_segment(directory)
        segment.unlink()
        segment.mkdir()  # what cannot be opened
        cluster.restart(2)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            async with asyncio.timeout(60):
                while segment.is_dir() or any(path.name.endswith("-stray") for path in directory.parent.iterdir()):
                    await asyncio.sleep(0.05)
            await in_sync(client, 2)
            assert cluster.nodes[1].terminate() == 0, "the new one has everything"
            assert await read_numbers(client, COUNT) == list(range(COUNT))


async def in_sync(client: AsyncClient, count: int) -> None:
    async with asyncio.timeout(150):
        while len((await client.metadata(["t"])).topics[0].partitions[0].isr) != count:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("nodes", [1, 3])
async def test_nodes_whose_only_disks_were_full_go_on_when_there_is_room(tmp_path: Path, nodes: int) -> None:
    """File systems of their own, filled to the last byte; where mounting is refused, files that refuse every byte. With all
    of them full, the cluster refused acks=all until somebody brought each disk online."""
    disks = [tmp_path / f"node-{number}" / "disk-0" for number in range(1, nodes + 1)]
    with contextlib.ExitStack() as mounts:
        mounted = [await asyncio.to_thread(mount_small, disk, mounts) for disk in disks]
        with ProcessCluster(tmp_path, nodes=nodes, settings=SETTINGS, log_dirs=1) as cluster:
            async with AsyncClient.connect(cluster.bootstrap) as client:
                settings = {"min.insync.replicas": str(min(2, nodes))}
                # Node 1 leads: its disk has to take a write that fails. With two of three disks gone, nobody writes any longer.
                replicas = tuple(map(BrokerId, range(1, nodes + 1)))
                await client.create_topics([NewTopic("t", assignment={0: replicas}, configs=settings)])
                await write_numbers(client, 0, COUNT)
                await in_sync(client, nodes)
                for disk in disks:
                    (filled if all(mounted) else full)(disk)
                load = asyncio.ensure_future(write_numbers(client, COUNT, 5_000))
                await problems(client, has("disk.full"))
                await problems(
                    client, lambda found: any("returns when there is room" in problem.detail for problem in found)
                )
                for disk in disks:
                    for path in [disk / "something-else", *disk.glob("*.tmp"), *disk.glob(".*.tmp")]:
                        path.unlink(missing_ok=True)
                await in_sync(client, nodes)
                await problems(client, lambda found: not found)
                with contextlib.suppress(KafkaliteError, TimeoutError):
                    await load
                values = await read_numbers(client, COUNT)
                assert values[:COUNT] == list(range(COUNT))
                await write_numbers(client, 100_000, 5)


async def test_an_administrator_gives_up_what_was_on_a_lost_disk(tmp_path: Path) -> None:
    """Its disk was replaced: the partition stayed offline through restarts, and `elect --unclean` said that no replica was alive."""
    with ProcessCluster(tmp_path, nodes=1, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 1)])
            await write_numbers(client, 0, COUNT)
            disk = log_directory(tmp_path).parent
            shutil.rmtree(disk)
            disk.mkdir()
            await problems(client, has("disk.offline"))
            admin(cluster.bootstrap, "disk", "online", str(disk), "--broker", "1")
            await problems(client, lambda found: has("replica.last_copy")(found) and not has("disk.offline")(found))
            assert admin(cluster.bootstrap, "elect", "--unclean", "t-0")
            await problems(client, lambda found: not found)
            await write_numbers(client, 7, 1)
            assert await read_numbers(client, 1) == [7]
