"""What a hand does to znodes that nodes live by: they say so, serve on, and put right what is theirs."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

import pytest

from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, Eye, Load, create_topic, eye, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]


def is_registered(zk: Eye, broker_id: int, before: int) -> bool:
    stat = zk.stat(f"/brokers/ids/{broker_id}")
    return stat is not None and stat.czxid > before and "rpc_endpoint" in (zk.text(f"/brokers/ids/{broker_id}") or "")


async def test_registrations_that_are_removed_and_overwritten(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=3, settings=QUICK) as cluster, eye(cluster.zookeeper_connect) as zk:
        await create_topic(cluster, "spoilt", min_insync_replicas="2")
        pids = [node.pid for node in cluster.nodes.values()]
        async with Load(cluster, "spoilt") as load:
            await load.more()
            # A name that int() does not take, in the way of whoever takes office.
            zk.client.create(f"/brokers/ids/{'9' * 5000}")
            for broker_id, spoil in enumerate((None, b"{", b'{"version":5,"host":"","port":-1}'), 1):
                path = f"/brokers/ids/{broker_id}"
                before = zk.stat(path).czxid
                if spoil is None:
                    zk.client.delete(path)
                else:
                    zk.client.set(path, spoil)
                zk.client.delete("/controller")
                await asyncio.to_thread(
                    wait_until, functools.partial(is_registered, zk, broker_id, before), f"node {broker_id} registers"
                )
                await wait_in_sync(cluster, "spoilt", 3)
                await load.more()
        await load.check_exactly_once()
        assert [node.pid for node in cluster.nodes.values() if node.running] == pids
