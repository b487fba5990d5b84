"""What a node tells people about its replicas."""

import asyncio
import dataclasses

import pytest

from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId, LeaderEpoch, TopicPartition, is_under_replicated
from kafkalite.node.health import InSteps, NodeHealth
from kafkalite.rpc.messages.control import UpdateMetadataRequest

TP = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("replicas", "isr", "adding", "expected"),
    [
        ((1, 2, 3), (1, 2, 3), (), False),
        ((1, 2, 3), (1, 2), (), True),
        ((1, 2, 3, 4), (1, 2, 3), (4,), False),
        ((1, 2, 3, 4), (1, 2), (4,), True),
        # Kafka counts: one that was added, and is in sync already, stands in for one that is not.
        ((1, 2, 3, 4), (1, 2, 4), (4,), False),
        ((4, 5, 6, 1, 2, 3), (1, 2, 3), (4, 5, 6), False),
        ((1, 2, 4), (1, 2), (), True),
    ],
)
def test_replicas_that_are_being_added_are_not_missing(replicas, isr, adding, expected):
    assert is_under_replicated(replicas, isr, adding) is expected


async def test_health_and_metrics_pass_over_what_a_reassignment_adds(make_cluster):
    cluster = await make_cluster(1, **{"replica.lag.time.max.ms": 60_000})
    cluster.create_topic("t", {0: (1, 2, 3)})
    node = cluster.node(1)
    state = cluster.decide(TP, leader=1, isr=(1, 2), epoch=0, replicas=(1, 2, 3))

    def tell(**changes):
        told = dataclasses.replace(state, **changes)
        request = UpdateMetadataRequest(
            BrokerId(99),
            cluster.controller_epoch,
            node.broker_epoch,
            is_full=False,
            brokers=cluster.brokers(),
            partitions=(told,),
        )
        assert node.manager.commands.update_metadata(request).error == 0
        return told

    await cluster.command(1, tell(adding_replicas=(BrokerId(3),)))
    assert at_once(node.manager.describing.figures()).totals["UnderReplicatedPartitions"] == 0
    assert [
        each for each in at_once(node.manager.describing.problems()) if each.what == "partition.under_replicated"
    ] == []
    tell()  # the reassignment is over, or called off: nothing but the metadata says so
    await asyncio.sleep(0)
    assert at_once(node.manager.describing.figures()).totals["UnderReplicatedPartitions"] == 1
    (problem,) = [
        each for each in at_once(node.manager.describing.problems()) if each.what == "partition.under_replicated"
    ]
    assert problem.detail == "t-0: not in sync: 3"


async def test_a_member_that_holds_up_acks_is_reported_before_it_leaves_the_isr(make_cluster, until):
    """Two nodes do not reach each other, and the controller reaches both."""
    cluster = await make_cluster(3, **{"replica.lag.time.max.ms": 60_000})
    cluster.create_topic("t", {0: (1, 2, 3)})
    state = cluster.decide(TP, leader=1, isr=(1, 2, 3), epoch=0, replicas=(1, 2, 3))
    for number in (1, 2, 3):
        await cluster.command(number, state)
    node = cluster.node(1)
    leader = node.partition(TP).leader
    await until(lambda: node.partition(TP).entries.keys() == {2, 3})
    await cluster.command(3, dataclasses.replace(state, leader=BrokerId(-1), leader_epoch=LeaderEpoch(1)))
    assert (await node.produce(TP, b"x", acks=1)).error == ErrorCode.NONE
    await until(lambda: leader.followers[2].log_end_offset == 1)
    assert at_once(node.manager.describing.problems()) == ()
    leader.followers[3].last_caught_up_ms -= 30_000
    (problem,) = at_once(node.manager.describing.problems())
    assert (problem.what, problem.subject) == ("partition.waits", "t-0")
    assert problem.detail == "t-0: records wait for replicas that do not fetch them: 3"
    assert 29_000 < node.env.clock.wall_ms() - problem.since_ms < 60_000
    later = cluster.decide(TP, leader=1, isr=(1, 2, 3), epoch=2, replicas=(1, 2, 3))
    for number in (1, 3):
        await cluster.command(number, later)
    await until(lambda: at_once(node.manager.describing.problems()) == ())
    assert cluster.state(TP).isr == (1, 2, 3)


async def test_a_problem_that_was_over_between_two_questions_stands_since_it_came_back(make_cluster, monkeypatch):
    cluster = await make_cluster(1, **{"replica.lag.time.max.ms": 60_000, "min.insync.replicas": 2})
    cluster.create_topic("t", {0: (1, 2, 3)})
    node = cluster.node(1)
    now_ms = [1_000]
    monkeypatch.setattr(node.env.clock, "wall_ms", lambda: now_ms[0])
    monkeypatch.setattr(node.manager.hosted.history, "_wall_ms", lambda: now_ms[0])

    async def lead(epoch, isr, at_ms):
        now_ms[0] = at_ms
        await cluster.command(1, cluster.decide(TP, leader=1, isr=isr, epoch=epoch, replicas=(1, 2, 3)))

    def seen(at_ms):
        now_ms[0] = at_ms
        return [(each.what, each.since_ms) for each in at_once(node.manager.describing.problems())]

    await lead(0, (1,), 1_000)
    assert seen(5_000) == [("partition.under_min_isr", 1_000)]
    await lead(1, (1,), 6_000)
    assert seen(7_000) == [("partition.under_min_isr", 1_000)]
    await lead(2, (1, 2, 3), 8_000)  # nobody asks
    await lead(3, (1,), 20_000)
    assert seen(21_000) == [("partition.under_min_isr", 20_000)]
    await lead(4, (1, 2), 30_000)
    await lead(5, (1,), 40_000)  # and this is another kind of problem meanwhile
    assert seen(41_000) == [("partition.under_min_isr", 40_000)]


async def test_of_many_problems_those_of_a_partition_that_is_asked_for_are_listed(make_cluster):
    """The 21st partition without enough replicas had nothing wrong with it, said `admin why`."""
    cluster = await make_cluster(1, **{"min.insync.replicas": 2})
    cluster.create_topic("t", dict.fromkeys(range(25), (1, 2)))
    node = cluster.node(1)
    for number in range(25):
        key = TopicPartition("t", number)
        await cluster.command(1, cluster.decide(key, leader=1, isr=(1,), epoch=0, replicas=(1, 2)))
    problems = at_once(node.manager.describing.problems())
    assert [each.subject for each in problems] == [*(f"t-{number}" for number in range(20)), ""]
    assert problems[-1].count == 5
    (problem,) = node.manager.describing.problems_of(["t-24", "t-25", "nothing"])
    assert (problem.what, problem.subject) == ("partition.under_min_isr", "t-24")
    assert problem.since_ms == node.manager.hosted.history.of("t-24")[-1].at_ms
    health = NodeHealth([InSteps(node.manager.describing.problems)], node.manager.describing.problems_of, (), None)
    assert await health.ask() == problems
    assert await health.ask(["t-24", "t-3"]) == (*problems, problem)
