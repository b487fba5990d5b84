"""Orders to move partitions whose answer is lost are given again, by a node or by a client: they are not refused then."""

from __future__ import annotations

import dataclasses

import pytest

from kafkalite.admin.reassignments import ReassignmentAdmin
from kafkalite.coordination import paths, topic_znodes
from kafkalite.coordination.coordinator import Delete, SetData
from kafkalite.coordination.topic_znodes import ReassignmentProgress
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    ListReassignmentsRequest,
    WantedReassignment,
)
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId, Replicas
from kafkalite.testing.simulated.zookeeper import Fate
from tests.unit.admin.test_topic_admin import create, orders
from tests.unit.controller.cluster import Cluster

HERE, THERE = (BrokerId(1),), (BrokerId(2),)


async def admin_of(cluster: Cluster) -> ReassignmentAdmin:
    made = await orders(cluster)
    assert await create(made, NewTopic("t", assignment={0: HERE})) == [(0, "")]
    return ReassignmentAdmin(made)


def order(replicas: Replicas | None, throttle: int = 0) -> AlterReassignmentsRequest:
    wanted = WantedReassignment("t", 0, replicas, throttle)
    return AlterReassignmentsRequest((wanted,), 5000, is_atomic=True, may_replace=False)


def take_up(cluster: Cluster, move: ReassignmentProgress | None) -> None:
    """What a controller does with the order that stands."""
    data, stat = cluster.zookeeper.peek(paths.topic("t")) or (b"", None)
    assert stat is not None
    topic = topic_znodes.decode_topic(data)
    moves = {} if move is None else {0: move}
    moved = dataclasses.replace(topic, moves=moves)
    cluster.zookeeper.poke(
        SetData(paths.topic("t"), topic_znodes.encode_topic(moved), stat.version), Delete(paths.REASSIGN_PARTITIONS)
    )


def lose_first(cluster: Cluster, move: ReassignmentProgress | None) -> None:
    """The answer to the first write of the order is lost, and the controller is faster than the second attempt."""
    lost: list[object] = []

    def fate(host: str, request: object) -> Fate:
        if not lost and getattr(request, "path", "") == paths.REASSIGN_PARTITIONS and hasattr(request, "data"):
            lost.append(request)
            return Fate.LOSE_REPLY
        ops = getattr(request, "ops", ())
        if not lost and any(getattr(op, "path", "") == paths.REASSIGN_PARTITIONS for op in ops):
            lost.append(request)
            return Fate.LOSE_REPLY
        if lost and cluster.zookeeper.peek(paths.REASSIGN_PARTITIONS) is not None:
            take_up(cluster, move)
        return Fate.SERVE

    cluster.zookeeper.decide_fate = fate


MOVE = ReassignmentProgress(target=THERE, origin=HERE)


@pytest.mark.parametrize("taken_up", [False, True])
async def test_the_same_move_again_is_no_other_move(cluster: Cluster, *, taken_up: bool) -> None:
    admin = await admin_of(cluster)
    assert (await admin.alter(order(THERE))).partitions[0].error == 0
    if taken_up:
        take_up(cluster, MOVE)
    again = (await admin.alter(order(THERE))).partitions[0]
    assert (again.error, again.message) == (0, "")
    for change in (order((BrokerId(3),)), order(THERE, throttle=77)):
        other = (await admin.alter(change)).partitions[0]
        assert (other.error, other.message) == (
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            "t-0 is being reassigned already",
        )


async def test_a_move_whose_answer_zookeeper_lost(cluster: Cluster) -> None:
    admin = await admin_of(cluster)
    lose_first(cluster, MOVE)
    answer = await admin.alter(order(THERE))
    assert (answer.error, answer.partitions[0].error, answer.partitions[0].message) == (0, 0, "")


async def test_a_cancel_whose_answer_zookeeper_lost(cluster: Cluster) -> None:
    admin = await admin_of(cluster)
    await admin.alter(order(THERE))
    take_up(cluster, MOVE)
    lose_first(cluster, None)
    answer = await admin.alter(order(None))
    assert (answer.error, answer.partitions[0].error, answer.partitions[0].message) == (0, 0, "")
    assert (await admin.alter(order(None))).partitions[0].error == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_files_on_a_dead_broker_are_no_step_of_a_later_move(cluster: Cluster) -> None:
    """They are removed when it returns. Until then later moves of the partition looked as if they were under way, and Kafka's
    tool listed the dead broker as a replica."""
    admin = await admin_of(cluster)
    await admin.alter(order(THERE))
    take_up(cluster, dataclasses.replace(MOVE, dropping=(BrokerId(3), BrokerId(9))))
    [listed] = (await admin.list(ListReassignmentsRequest())).reassignments
    assert listed.dropping == (BrokerId(3),), "broker 9 is not alive"


async def test_a_broker_that_is_away_may_keep_a_replica_and_gets_none(cluster: Cluster) -> None:
    """As with Kafka: while a broker is restarted, a partition of it gets one replica more."""
    made = await orders(cluster)
    away = BrokerId(3)
    assert await create(made, NewTopic("t", assignment={0: (BrokerId(1), away)})) == [(0, "")]
    cluster.zookeeper.poke(Delete(paths.broker(away), 0))
    moves = ReassignmentAdmin(made)
    kept = await moves.alter(order((BrokerId(1), away, BrokerId(2))))
    assert [each.error for each in kept.partitions] == [0]
    assert await create(made, NewTopic("u", assignment={0: HERE})) == [(0, "")]
    added = await moves.alter(AlterReassignmentsRequest((WantedReassignment("u", 0, (BrokerId(1), away)),), 5000))
    assert [each.error for each in added.partitions] == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
