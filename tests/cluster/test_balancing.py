"""Real processes under acks=all load: a node joins, one is drained, one dies for good. No move is requested; nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.balancing import BrokerBalance, DescribeBalanceRequest, DescribeBalanceResponse
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.numbered_records import TOPIC, Tally, census, produce
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import PATIENCE_S, QUICK
from tests.support.commands import kafkalite

pytestmark = [pytest.mark.zookeeper, pytest.mark.cluster]

PARTITIONS = 12
#: A guard against hanging. On a busy machine nodes lose their sessions, and what they had is moved back afterwards.
EVEN_S = 3 * PATIENCE_S
SETTINGS = QUICK | {
    "balancer.mode": "on",
    "balancer.interval.ms": 1_000,
    "balancer.max.disk.percent": 100,  # the machine's disk may be nearly full
    # A node that gets no processor for some seconds must not count as lost: that moves everything once more.
    "zookeeper.session.timeout.ms": 6_000,
    "replica.lag.time.max.ms": 10_000,
    "balancer.broker.timeout.ms": 8_000,
    "leader.imbalance.check.interval.seconds": 1,
}


async def until_even(client: AsyncClient, members: set[int], holds: Callable[[BrokerBalance], bool]) -> None:
    """Until nothing is under way, exactly `members` share all replicas and leaders, and each is within one of the mean."""
    found: DescribeBalanceResponse | None = None
    try:
        async with asyncio.timeout(EVEN_S):
            while True:
                try:
                    found = await client.request(DescribeBalanceRequest(), DescribeBalanceResponse, timeout_s=10)
                except KafkaliteError:
                    await asyncio.sleep(0.2)
                    continue
                having = {each.broker_id: each for each in found.brokers if each.replicas}
                if (
                    found.is_even
                    and not found.under_way
                    and having.keys() == members
                    and all(each.leads == each.preferred and holds(each) for each in having.values())
                ):
                    return
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"not even among {members}: {found}") from None


async def test_a_node_joins_one_is_drained_and_one_dies(tmp_path: Path) -> None:
    tally, enough = Tally(), asyncio.Event()
    with ProcessCluster(tmp_path, nodes=4, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            topic = NewTopic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
            (made,) = await client.create_topics([topic])
            assert made.error == 0, made
            await wait_in_sync(cluster, TOPIC, 3)
            loading = asyncio.create_task(produce(cluster, tally, enough, rate=300))
            try:
                await asyncio.to_thread(cluster.add_node, 5)
                await until_even(client, {1, 2, 3, 4, 5}, lambda each: 6 <= each.replicas <= 9 and each.leads > 0)
                drained = await asyncio.to_thread(
                    kafkalite, "admin", "broker", "decommission", "2", bootstrap=cluster.bootstrap
                )
                assert drained.code == 0 and "it may be stopped now" in drained.out, drained
                await until_even(client, {1, 3, 4, 5}, lambda each: 8 <= each.replicas <= 10 and each.leads > 0)
                assert await asyncio.to_thread(cluster.nodes[2].terminate) == 0
                cluster.nodes[3].kill()
                await until_even(client, {1, 4, 5}, lambda each: each.replicas == PARTITIONS and 3 <= each.leads <= 5)
            finally:
                enough.set()
                await loading
            why = await asyncio.to_thread(kafkalite, "admin", "balance", "why", "--json", bootstrap=cluster.bootstrap)
            goals = {event["goal"] for event in why.json["events"]}
        found = await census(cluster, tally)
    assert found.clean and not tally.failed, (found, tally.failed)
    assert "drain" in goals
