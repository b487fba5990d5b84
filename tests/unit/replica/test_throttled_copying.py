"""The throttle of a move, and Kafka's settings of throttled replicas (KIP-73), as kafka-reassign-partitions writes them: sources on the
leader's side, new replicas on the follower's."""

from __future__ import annotations

import dataclasses

import pytest

from kafkalite.model import BrokerId, TopicPartition
from kafkalite.replica.throttle import NO_RATE

TP = TopicPartition("t", 0)
LEADER, FOLLOWER = 1, 2
BATCHES = 5


async def _behind(make_cluster, **lists: str):
    """A leader with records, whose follower is not in sync and about to copy."""
    cluster = await make_cluster(2, **{"replica.fetch.max.bytes": 1, "replica.fetch.response.max.bytes": 1})
    cluster.create_topic("t", {0: (LEADER, FOLLOWER)})
    state = cluster.decide(TP, leader=LEADER, isr=(LEADER,), epoch=0, replicas=(LEADER, FOLLOWER))
    for node in cluster.nodes.values():
        node.topic_overrides = {f"{side}_replication_throttled_replicas": text for side, text in lists.items()}
    await cluster.command(LEADER, state)
    for _ in range(BATCHES):
        await cluster.node(LEADER).produce(TP, b"x" * 1000)
    return cluster, state


def _copied(cluster):
    return cluster.node(FOLLOWER).partition(TP).log.log_end_offset


@pytest.mark.checklist(79)
@pytest.mark.checklist("F22")
async def test_a_replica_that_a_move_adds_gets_no_more_than_the_moves_rate(make_cluster, until) -> None:
    cluster, state = await _behind(make_cluster)
    leader = cluster.node(LEADER)
    slowed = dataclasses.replace(state, adding_replicas=(BrokerId(FOLLOWER),), throttle=1)
    await cluster.command_all(slowed)
    await until(lambda: any(each.is_held_back for each in leader.partition(TP).entries.values()))
    assert _copied(cluster) == 1
    assert leader.manager.serving.throttled_rate == NO_RATE, "no setting has to be taken back"
    assert leader.manager.serving._throttle._gains
    await cluster.command_all(state)
    await until(lambda: _copied(cluster) == BATCHES)
    leader.manager.serving.expire(60_000)
    assert not leader.manager.serving._throttle._gains, "a later move begins with its own rate"


@pytest.mark.parametrize("listed", ["0:1", "0:2,0:1", "*"])
async def test_a_leader_that_is_listed_gives_no_more_than_its_rate(make_cluster, until, listed: str) -> None:
    cluster, state = await _behind(make_cluster, leader=listed)
    leader = cluster.node(LEADER)
    leader.manager.serving.throttled_rate = 1
    await cluster.command(FOLLOWER, state)
    await until(lambda: any(each.is_held_back for each in leader.partition(TP).entries.values()))
    assert _copied(cluster) == 1
    leader.manager.serving.throttled_rate = NO_RATE
    await until(lambda: _copied(cluster) == BATCHES)


@pytest.mark.parametrize("listed", ["0:2", "*"])
async def test_a_follower_that_is_listed_asks_for_no_more_than_its_rate(make_cluster, until, listed: str) -> None:
    cluster, state = await _behind(make_cluster, follower=listed)
    follower = cluster.node(FOLLOWER).manager
    follower.following.throttled_rate = 1
    await cluster.command(FOLLOWER, state)
    await until(lambda: follower.fetchers._of[TP].partitions[TP].is_held_back)
    assert _copied(cluster) == 1
    follower.following.throttled_rate = NO_RATE
    await until(lambda: _copied(cluster) == BATCHES)


async def test_replicas_that_are_not_listed_copy_at_once(make_cluster, until) -> None:
    cluster, state = await _behind(make_cluster, leader="0:2,1:1", follower="0:1,1:2")
    for node in cluster.nodes.values():
        node.manager.serving.throttled_rate = node.manager.following.throttled_rate = 1
    await cluster.command(FOLLOWER, state)
    await until(lambda: _copied(cluster) == BATCHES)


async def test_a_replica_in_sync_is_not_slowed(make_cluster, until) -> None:
    cluster, state = await _behind(make_cluster, leader="*", follower="*")
    await cluster.command(FOLLOWER, state)
    leader = cluster.node(LEADER)
    await until(lambda: BrokerId(FOLLOWER) in leader.partition(TP).current_isr)
    for node in cluster.nodes.values():
        node.manager.serving.throttled_rate = node.manager.following.throttled_rate = 1
    for _ in range(BATCHES):
        await leader.produce(TP, b"x" * 1000)
    assert _copied(cluster) == 2 * BATCHES
