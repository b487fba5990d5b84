"""All nodes stop at once; all nodes are restarted one after the other by the verb for it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.numbered_records import TOPIC, Tally, census, produce
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import PATIENCE_S, QUICK
from tests.support.commands import kafkalite

pytestmark = [pytest.mark.zookeeper, pytest.mark.cluster]


def test_nodes_that_stop_together_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Each of them would wait for ten minutes that another one takes its leaderships over."""
    settings = QUICK | {"controlled.shutdown.max.wait.ms": 600_000}
    with ProcessCluster(tmp_path, nodes=3, settings=settings) as cluster:
        made = kafkalite(
            "admin", "create-topic", "t", "--partitions", "12", "--replication-factor", "3", bootstrap=cluster.bootstrap
        )
        assert made.code == 0, made
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(lambda node: node.terminate(PATIENCE_S), cluster.nodes.values())) == [0, 0, 0]


async def test_a_rolling_restart_by_one_verb(tmp_path: Path) -> None:
    tally, enough = Tally(), asyncio.Event()
    with ProcessCluster(tmp_path, nodes=3, settings=QUICK) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            (made,) = await client.create_topics([NewTopic(TOPIC, 6, 3, configs={"min.insync.replicas": "2"})])
            assert made.error == 0, made
            await wait_in_sync(cluster, TOPIC, 3)
            plan = await asyncio.to_thread(kafkalite, "admin", "rolling-restart", "--json", bootstrap=cluster.bootstrap)
            order = [step["broker_id"] for step in plan.json["steps"]]
            assert sorted(order) == [1, 2, 3] and order[-1] == (await client.describe_cluster()).controller_id

            async def host() -> list[int]:
                """What restarts a node on its host: it answers to a file."""
                done: list[int] = []
                while len(done) < 3:
                    for wanted in await asyncio.to_thread(lambda: list(tmp_path.glob("restart-*"))):
                        id_ = int(wanted.name.rpartition("-")[2])
                        assert await asyncio.to_thread(cluster.nodes[id_].terminate) == 0
                        await asyncio.to_thread(cluster.restart, id_)
                        wanted.unlink()
                        done.append(id_)
                    await asyncio.sleep(0.05)
                return done

            loading = asyncio.create_task(produce(cluster, tally, enough, rate=300))
            restarting = asyncio.create_task(host())
            command = f"touch {tmp_path}/restart-{{id}}"
            rolled = await asyncio.to_thread(
                kafkalite, "admin", "rolling-restart", "--command", command, bootstrap=cluster.bootstrap
            )
            enough.set()
            await loading
            assert rolled.code == 0, rolled
            assert await restarting == order, "one after the other, the controller last"
            states = (await client.metadata([TOPIC])).topics[0].partitions
            assert all(each.leader == each.replicas[0] for each in states), "the preferred replicas lead"
        found = await census(cluster, tally)
    assert found.clean and not tally.failed, (found, tally.failed)
