"""Replicas of a real node move between its disks by the command line, under load, over a kill -9: nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.disks import DescribeDisksRequest, DescribeDisksResponse
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.numbered_records import TOPIC, Tally, census, produce
from kafkalite.testing.processes import ProcessCluster
from tests.support.commands import Outcome, kafkalite
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

NODE = BrokerId(1)
SETTINGS = {"http.port": -1, "file.delete.delay.ms": 100}


async def disks(cluster: ProcessCluster) -> DescribeDisksResponse:
    async with AsyncClient.connect(cluster.bootstrap) as client:
        answer = await client.ask_node(NODE, DescribeDisksRequest())
    assert isinstance(answer, DescribeDisksResponse), answer
    return answer


async def test_replicas_move_under_load_and_over_a_crash(tmp_path: Path) -> None:
    tally = Tally()
    with ProcessCluster(tmp_path, nodes=3, settings=SETTINGS, log_dirs=2) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, 4, 3, configs={"min.insync.replicas": "2"})])
        await wait_in_sync(cluster, TOPIC, 3)
        first, second = (tmp_path / "node-1" / f"disk-{number}" for number in (0, 1))
        async with asyncio.timeout(60):  # a new partition's ISR is full before its members have heard of it
            while sum(len(list(disk.glob(f"{TOPIC}-*"))) for disk in (first, second)) < 4:
                await asyncio.sleep(0.05)

        async def run(*words: str) -> Outcome:
            return await asyncio.to_thread(kafkalite, "admin", "disk", *words, bootstrap=cluster.bootstrap)

        names = sorted(path.name for path in first.glob(f"{TOPIC}-*"))
        assert len(names) == 2
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(cluster, tally, enough, rate=1_000))
            await until(lambda: len(tally.acked) >= 2000)
            moved, crashed = names
            done = await run("move", moved, "--broker", "1", "--to", str(second), "--watch")
            assert done.code == 0 and f"{moved} is in {second}" in done.out, done
            limited = ("--to", str(second), "--throttle", "5000", "--json")
            done = await run("move", crashed, "--broker", "1", *limited)
            assert done.code == 0 and done.json["state"] in ("waiting", "copying"), done
            while not any(move.copied_bytes for move in (await disks(cluster)).moves if move.state == "copying"):
                await asyncio.sleep(0.05)
            assert [path.name for path in second.glob(f"{crashed}.*-future")]
            cluster.nodes[NODE].kill()
            await asyncio.to_thread(cluster.restart, NODE)
            await wait_in_sync(cluster, TOPIC, 3)
            while not (second / crashed).exists() or (await disks(cluster)).disks[0].partitions:
                await asyncio.sleep(0.05)
            done = await run("moves", "--broker", "1")
            assert done.code == 0 and "done" in done.out, done
            enough.set()
        await wait_in_sync(cluster, TOPIC, 3)
        for arguments, expected in (
            ([names[0], "--broker", "1", "--to", "/nowhere"], "not one of log.dirs"),
            (["nothing-7", "--broker", "1", "--to", str(first)], "there is no topic 'nothing'"),
        ):
            done = await run("move", *arguments)
            assert done.code != 0 and expected in done.err and (done.out + done.err).count("\n") == 1, done
        while list(first.glob(f"{TOPIC}-*")) or list(second.glob("*-future")):  # the old files go
            await asyncio.sleep(0.05)
        found = await census(cluster, tally)
        print(f"acked {len(tally.acked)}, longest silence {tally.longest_silence_s:.2f} s, lost {len(found.lost)}")
        assert not tally.failed and found.clean, found
