"""Topics go: by orders of both forms, with brokers that are dead; and without an order (ADR 19)."""

from __future__ import annotations

import asyncio
import functools
import json

import pytest

from kafkalite.controller import event_loop as leadership
from kafkalite.controller.sources import EventSource
from kafkalite.coordination import admin_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import Create, Delete, Op, SetData
from kafkalite.env.turns import at_once
from kafkalite.model import BrokerId, TopicId, TopicPartition
from kafkalite.rpc.messages.control import ALL_OF_A_VANISHED_TOPIC, StopReplicaRequest
from kafkalite.testing.simulated.zookeeper import Fate
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster, FakeBroker, running
from tests.unit.controller.test_end_to_end import T0, settled

T1 = TopicPartition("t", 1)


def stops(broker: FakeBroker) -> list[tuple[str, int, str, bool]]:
    return [
        (stop.topic, stop.partition, stop.topic_id, stop.delete_files)
        for command in broker.of(StopReplicaRequest)
        for stop in command.partitions  # type: ignore[attr-defined]
    ]


def vanish(cluster: Cluster, *topics: str) -> None:
    """As a recursive delete does, children first."""
    for topic in topics:
        partitions = paths.topic_partitions(topic)
        for number in range(9):
            partition = TopicPartition(topic, number)
            for path in (paths.partition_state(partition), paths.partition(partition)):
                if cluster.zookeeper.peek(path) is not None:
                    cluster.zookeeper.poke(Delete(path))
        cluster.zookeeper.poke(Delete(partitions), Delete(paths.topic(topic)))


@pytest.mark.checklist(25)
@pytest.mark.checklist(11)
@pytest.mark.checklist("F18")
@pytest.mark.parametrize("fails_over", [False, True])
async def test_a_deleted_topics_name_is_free_while_a_broker_is_dead(cluster: Cluster, *, fails_over: bool) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2), 1: (2, 3)})
    cluster.create_topic("kept", {0: (1, 2)})
    await until(lambda: all(settled(cluster, p) for p in (T0, T1, TopicPartition("kept", 0))))
    await cluster.stop_broker(3)
    await until(lambda: cluster.leader_and_isr("t", 1) == (2, (2,), 1))
    cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(["t", "unknown"])))
    await until(lambda: cluster.zookeeper.peek(paths.topic("t")) is None)
    for path in (paths.DELETE_TOPICS, paths.config_topic("t")):
        assert cluster.zookeeper.peek(path) is None
    data, _ = cluster.zookeeper.peek(paths.deleted_topic("id-t")) or pytest.fail("not written down")
    assert admin_znodes.decode_deleted_topic(data) == ("t", frozenset({(1, BrokerId(3))}))
    cluster.create_topic("t", {0: (1, 2), 1: (1, 2)}, topic_id="second-life")
    await until(lambda: T1 in cluster.brokers[1].roles)
    if fails_over:
        await cluster.start_controller(2)
        await until(lambda: cluster.controllers[2].controller_id == 1)
        await cluster.stop_controller(1)
        await until(lambda: cluster.controllers[2].is_active)
    controller = cluster.controllers[2 if fails_over else 1]
    (problem,) = [each for each in at_once(controller.problems()) if each.what == "topic.deletion_waits"]
    assert problem.subject == "broker-3"
    broker = await cluster.start_broker(3)
    await until(lambda: cluster.zookeeper.peek(paths.deleted_topic("id-t")) is None)
    assert isinstance(broker.commands[0], StopReplicaRequest), "before its INIT"
    assert stops(broker) == [("t", 1, "id-t", True)]
    await until(lambda: at_once(controller.problems()) == ())
    assert cluster.leader_and_isr("t", 1) is not None and cluster.leader_and_isr("kept") is not None
    assert all(each[2] != "second-life" for broker in cluster.brokers.values() for each in stops(broker))


@pytest.mark.checklist(11)
@pytest.mark.checklist("C19")
async def test_a_deletion_does_not_wait_for_an_offline_disk_and_deletes_what_returns_with_it(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2), 1: (2, 3)})
    await until(lambda: settled(cluster, T0) and settled(cluster, T1))
    cluster.brokers[3].has_offline_disk = True
    cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(["t"])))
    await until(lambda: cluster.zookeeper.peek(paths.topic("t")) is None)
    data, _ = cluster.zookeeper.peek(paths.deleted_topic("id-t")) or pytest.fail("not recorded")
    assert admin_znodes.decode_deleted_topic(data) == ("t", frozenset({(1, BrokerId(3))}))
    await until(lambda: [each.what for each in at_once(cluster.controllers[1].problems())] == ["topic.deletion_waits"])
    (problem,) = at_once(cluster.controllers[1].problems())
    assert problem.subject == "broker-3"
    assert problem.detail.startswith("an offline disk of broker 3 may have replicas of 1 deleted topic;")
    cluster.brokers[3].has_offline_disk = False
    asked = len(stops(cluster.brokers[3]))
    await until(lambda: cluster.zookeeper.peek(paths.deleted_topic("id-t")) is None)
    assert set(stops(cluster.brokers[3])[asked:]) <= {("t", 1, "id-t", True)}
    await until(lambda: at_once(cluster.controllers[1].problems()) == ())


@pytest.mark.checklist(11)
@pytest.mark.parametrize("data", [b"", admin_znodes.encode_delete_topics(["u"]), b"{not json"])
async def test_kafkas_orders_below_the_znode(cluster: Cluster, data: bytes) -> None:
    await running(cluster)
    for name in "tuv":
        cluster.create_topic(name, {0: (1, 2)})
    await until(lambda: all(settled(cluster, TopicPartition(name, 0)) for name in "tuv"))
    cluster.zookeeper.poke(
        Create(paths.DELETE_TOPICS, data), Create(paths.delete_topic("t")), Create(paths.delete_topic("no-topic"))
    )
    await until(lambda: cluster.zookeeper.peek(paths.topic("t")) is None)
    await until(lambda: cluster.zookeeper.peek(paths.delete_topic("no-topic")) is None)
    if data == b"{not json":
        await until(
            lambda: [each.subject for each in at_once(cluster.controllers[1].problems())] == [paths.DELETE_TOPICS]
        )
        assert cluster.zookeeper.peek(paths.topic("u")) is not None
        return
    await until(lambda: (cluster.zookeeper.peek(paths.topic("u")) is None) is bool(data))
    await until(lambda: cluster.zookeeper.peek(paths.DELETE_TOPICS) is None)
    assert cluster.zookeeper.peek(paths.delete_topic("t")) is None
    await until(lambda: at_once(cluster.controllers[1].problems()) == ())
    assert settled(cluster, TopicPartition("v", 0))


@pytest.mark.checklist(11)
async def test_an_order_below_one_that_stands_is_seen(cluster: Cluster) -> None:
    """A broker hangs, so the first deletion goes on while the second is ordered."""
    await running(cluster)
    cluster.create_topic("t", {0: (1, 3)})
    cluster.create_topic("u", {0: (2,)})
    await until(lambda: settled(cluster) and settled(cluster, TopicPartition("u", 0)))
    hung = cluster.brokers[3].hung = asyncio.Event()
    cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(["t"])))
    await until(lambda: T0 not in cluster.brokers[1].roles)
    cluster.zookeeper.poke(Create(paths.delete_topic("u")))
    await until(lambda: cluster.zookeeper.peek(paths.topic("u")) is None)
    assert json.loads((cluster.zookeeper.peek(paths.DELETE_TOPICS) or (b"",))[0])["topics"] == ["t"]
    cluster.brokers[3].hung = None
    hung.set()
    await until(lambda: cluster.zookeeper.peek(paths.DELETE_TOPICS) is None)
    assert cluster.zookeeper.peek(paths.topic("t")) is None


@pytest.mark.checklist("C19")
def notice(cluster: Cluster, number: int, source: EventSource) -> None:
    """The controller of this broker looks at what has changed."""
    running = cluster.controllers[number]._event_loop
    assert running is not None
    running.inbox.mark(source)


@pytest.mark.checklist("F19")
@pytest.mark.parametrize("fails_over", [False, True])
async def test_topics_that_vanish_are_not_deleted(cluster: Cluster, *, fails_over: bool) -> None:
    await running(cluster)
    for name in "tuv":
        cluster.create_topic(name, {0: (1, 2, 3)})
    await until(lambda: all(settled(cluster, TopicPartition(name, 0)) for name in "tuv"))
    cluster.put_state(T0, 2, (2, 1), leader_epoch=6)
    notice(cluster, 1, EventSource.STATES)
    await until(lambda: settled(cluster))
    vanish(cluster, "t", "u")
    await until(lambda: all(set(each.roles) == {TopicPartition("v", 0)} for each in cluster.brokers.values()))
    await until(lambda: all(set(each.metadata) == {TopicPartition("v", 0)} for each in cluster.brokers.values()))
    for broker in cluster.brokers.values():
        assert sorted(stops(broker)) == [("t", 0, "id-t", False), ("u", 0, "id-u", False)]
    assert cluster.zookeeper.peek(paths.config_topic("t")) is not None, "it may come back"
    if fails_over:
        await cluster.start_controller(2)
        await until(lambda: cluster.controllers[2].controller_id == 1)
        await cluster.stop_controller(1)
        await until(lambda: cluster.controllers[2].is_active)
    # Back with its id, without its states: nobody gets into the ISR by that.
    value = topic_znodes.TopicZnode(TopicId("id-t"), {0: (BrokerId(1), BrokerId(2), BrokerId(3))})
    cluster.zookeeper.poke(Create(paths.topic("t"), topic_znodes.encode_topic(value)))
    await until(lambda: settled(cluster))
    assert cluster.leader_and_isr("t") == (2, (2, 1), 7), "a later epoch than the one it had"
    notice(cluster, 2 if fails_over else 1, EventSource.TICK)
    await until(lambda: cluster.zookeeper.peek(paths.vanished_topic("id-t")) is None)
    assert cluster.zookeeper.peek(paths.vanished_topic("id-u")) is not None


@pytest.mark.checklist("F19")
async def test_what_has_vanished_goes_when_that_is_ordered(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: settled(cluster))
    vanish(cluster, "t")
    await until(lambda: not cluster.brokers[1].roles)
    cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(["t"])))
    await until(lambda: cluster.zookeeper.peek(paths.DELETE_TOPICS) is None)
    everything = ("t", ALL_OF_A_VANISHED_TOPIC, "", True)
    await until(lambda: all(everything in stops(broker) for broker in cluster.brokers.values()))


@pytest.mark.checklist("F17")
async def test_a_state_that_vanishes_is_written_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "TICK_S", 0.02)
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: settled(cluster))
    cluster.put_state(T0, 2, (2,), leader_epoch=5)
    await until(lambda: settled(cluster))
    cluster.zookeeper.poke(Delete(paths.partition_state(T0)))
    await until(lambda: cluster.leader_and_isr("t") == (2, (2,), 6))
    await until(lambda: settled(cluster))


@pytest.mark.checklist("C19")
@pytest.mark.parametrize(
    ("returns", "then"),
    [
        ((2, (2, 1), 6), (2, (2, 1), 7)),
        ((2, (2, 1, 3), 6), (2, (2, 1), 7)),  # an earlier state: 3 has left the ISR since
        ((1, (1, 2, 3), 5), (2, (2, 1), 7)),  # from an earlier leader epoch
    ],
)
async def test_a_topic_that_is_put_back_unseen_is_led_in_a_new_epoch(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    returns: tuple[int, tuple[int, ...], int],
    then: tuple[int, tuple[int, ...], int],
) -> None:
    """Its state znodes begin with version 0: leaders that know a later version could never write them."""
    monkeypatch.setattr(leadership, "TICKS_PER_FULL_READ", 2**40)  # not by the slow reading of everything
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: settled(cluster))
    cluster.put_state(T0, 2, (2, 1), leader_epoch=6)
    notice(cluster, 1, EventSource.STATES)
    await until(lambda: settled(cluster))
    leader, isr, epoch = returns
    saved = cluster.zookeeper.peek(paths.topic("t"))
    assert saved is not None
    vanish(cluster, "t")
    cluster.zookeeper.poke(Create(paths.topic("t"), saved[0]))
    cluster.put_state(T0, leader, isr, leader_epoch=epoch)
    await until(lambda: cluster.leader_and_isr("t") == then)
    await until(lambda: settled(cluster))
    assert cluster.brokers[2].roles[T0].leader_epoch == 7
    assert not stops(cluster.brokers[2]), "nobody has seen it go"


@pytest.mark.checklist("C20")
async def test_a_partition_that_is_added_by_hand_is_seen_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By writing the topic's znode, as Kafka's tools did up to 2.x; again and again."""
    monkeypatch.setattr(leadership, "TICKS_PER_FULL_READ", 2**40)  # not by the slow reading of everything
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2)})
    await until(lambda: settled(cluster))
    for count in range(2, 6):
        value = topic_znodes.TopicZnode(TopicId("id-t"), {n: (BrokerId(1), BrokerId(2)) for n in range(count)})
        cluster.zookeeper.poke(SetData(paths.topic("t"), topic_znodes.encode_topic(value)))
        await until(functools.partial(settled, cluster, TopicPartition("t", count - 1)))


@pytest.mark.checklist("F18")
async def test_a_topic_that_is_made_again_at_once_is_another_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two readings the names are the same, and so is the version."""
    monkeypatch.setattr(leadership, "TICKS_PER_FULL_READ", 2**40)
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2)})
    await until(lambda: settled(cluster))
    vanish(cluster, "t")
    value = topic_znodes.TopicZnode(TopicId("id-2"), {0: (BrokerId(1), BrokerId(2))})
    cluster.zookeeper.poke(Create(paths.topic("t"), topic_znodes.encode_topic(value)))
    await until(lambda: T0 in cluster.brokers[1].roles and cluster.brokers[1].roles[T0].topic_id == "id-2")
    assert ("t", 0, "id-t", False) in stops(cluster.brokers[1])


def lose_first_reply(cluster: Cluster, path: str) -> None:
    """The transaction that first deletes this znode is applied, and its answer is lost with the connection."""
    lost: list[object] = []

    def decide(host: str, request: object) -> Fate:
        is_it = any(isinstance(op, Delete) and op.path == path for op in getattr(request, "ops", ()))
        if not is_it or lost:
            return Fate.SERVE
        lost.append(request)
        return Fate.LOSE_REPLY

    cluster.zookeeper.decide_fate = decide


@pytest.mark.checklist(11)
@pytest.mark.checklist("F18")
async def test_a_topic_that_takes_a_free_name_before_the_deletion_is_known_to_be_done_stays(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2), 1: (2, 3)})
    await until(lambda: all(settled(cluster, p) for p in (T0, T1)))
    zk = cluster.zookeeper
    lose_first_reply(cluster, paths.topic("t"))
    zk.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(["t"])))
    await until(lambda: zk.peek(paths.topic("t")) is None)
    cluster.create_topic("t", {0: (1, 2), 1: (2, 3)}, topic_id="later")
    await until(lambda: (role := cluster.brokers[2].roles.get(T1)) is not None and role.topic_id == "later")
    found = zk.peek(paths.topic("t"))
    assert found is not None and topic_znodes.decode_topic(found[0]).topic_id == "later"
    assert zk.peek(paths.config_topic("t")) is not None
    assert at_once(cluster.controllers[1].problems()) == ()


MANY = [f"t{number:03}" for number in range(300)]


async def many_topics(cluster: Cluster) -> None:
    """More than go in one transaction."""
    await running(cluster)
    for name in MANY:
        cluster.create_topic(name, {0: (1, 2, 3)})
    await until(lambda: all(len(broker.roles) == len(MANY) for broker in cluster.brokers.values()))


def order(cluster: Cluster, names: list[str]) -> None:
    cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(names)))


def is_there(cluster: Cluster, name: str) -> bool:
    znodes = (paths.topic(name), paths.config_topic(name), paths.partition_state(TopicPartition(name, 0)))
    found = {cluster.zookeeper.peek(path) is not None for path in znodes}
    assert len(found) == 1, "all of a topic, or nothing"
    return found.pop()


def write(cluster: Cluster, request: object) -> list[Op]:
    """A controller's transaction that removes topics; empty: another request."""
    ops = list(getattr(request, "ops", ()))
    return ops if any(isinstance(op, Delete) and op.path.startswith(f"{paths.TOPICS}/") for op in ops) else []


@pytest.mark.checklist(11)
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
async def test_the_next_controller_goes_on_where_a_deletion_of_many_topics_has_stopped(
    cluster: Cluster, fate: Fate
) -> None:
    await many_topics(cluster)
    await cluster.start_controller(2)
    await until(lambda: cluster.controllers[2].controller_id == 1)
    seen: list[int] = []

    def decide(host: str, request: object) -> Fate:
        if host != "controller-1" or not write(cluster, request):
            return Fate.SERVE
        seen.append(len(write(cluster, request)))
        return Fate.SERVE if len(seen) == 1 else fate

    cluster.zookeeper.decide_fate = decide
    order(cluster, MANY)
    await until(lambda: len(seen) >= 2)
    await cluster.stop_controller(1)
    left = [name for name in MANY if is_there(cluster, name)]
    assert 0 < len(left) < len(MANY)
    asked = {name: len([s for s in stops(cluster.brokers[1]) if s[0] == name]) for name in MANY}
    await until(lambda: not any(is_there(cluster, name) for name in MANY))
    await until(lambda: cluster.zookeeper.peek(paths.DELETE_TOPICS) is None)
    await until(lambda: at_once(cluster.controllers[2].problems()) == ())
    again = {name for name in MANY if len([s for s in stops(cluster.brokers[1]) if s[0] == name]) > asked[name]}
    assert again == set(left), "what was gone with its request is not asked for again"


@pytest.mark.checklist(11)
async def test_a_topic_that_cannot_go_does_not_keep_the_others(cluster: Cluster) -> None:
    await many_topics(cluster)
    foreign = f"{paths.topic(MANY[7])}/foreign"
    cluster.zookeeper.poke(Create(foreign))
    order(cluster, MANY)
    await until(lambda: [name for name in MANY if is_there(cluster, name)] == [MANY[7]])
    data, _ = cluster.zookeeper.peek(paths.DELETE_TOPICS) or pytest.fail("its request is gone")
    assert admin_znodes.decode_delete_topics(data) == (MANY[7],)
    cluster.zookeeper.poke(Delete(foreign))
    notice(cluster, 1, EventSource.TICK)
    await until(lambda: cluster.zookeeper.peek(paths.DELETE_TOPICS) is None)
    assert not is_there(cluster, MANY[7])


@pytest.mark.checklist(11)
async def test_requests_that_come_while_many_topics_go_stay(cluster: Cluster) -> None:
    """The first transaction fails by that, and the topics still go together."""
    await many_topics(cluster)
    cluster.create_topic("later", {0: (1, 2, 3)})
    await until(lambda: settled(cluster, TopicPartition("later", 0)))
    sizes: list[int] = []

    def decide(host: str, request: object) -> Fate:
        if ops := write(cluster, request):
            sizes.append(len(ops))
            if len(sizes) == 1:
                cluster.zookeeper.poke(
                    SetData(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics([*MANY, "later"]))
                )
        return Fate.SERVE

    cluster.zookeeper.decide_fate = decide
    order(cluster, MANY)
    await until(lambda: not any(is_there(cluster, name) for name in [*MANY, "later"]))
    await until(lambda: cluster.zookeeper.peek(paths.DELETE_TOPICS) is None)
    assert len(sizes) <= 8, "a few large transactions"


@pytest.mark.checklist(11)
@pytest.mark.checklist(25)
async def test_what_a_dead_broker_has_of_many_topics_is_recorded_for_each(cluster: Cluster) -> None:
    await many_topics(cluster)
    await cluster.stop_broker(3)
    await until(lambda: all(broker.brokers == (1, 2) for broker in cluster.brokers.values()))
    order(cluster, MANY)
    await until(lambda: cluster.zookeeper.peek(paths.DELETE_TOPICS) is None)
    for name in MANY:
        assert not is_there(cluster, name)
        data, _ = cluster.zookeeper.peek(paths.deleted_topic(f"id-{name}")) or pytest.fail("not recorded")
        assert admin_znodes.decode_deleted_topic(data) == (name, frozenset({(0, BrokerId(3))}))
    broker = await cluster.start_broker(3)
    await until(lambda: not any(cluster.zookeeper.peek(paths.deleted_topic(f"id-{name}")) for name in MANY))
    first = broker.commands[0]
    assert isinstance(first, StopReplicaRequest) and len(first.partitions) == len(MANY), "one command, before its INIT"


async def test_a_request_that_is_made_again_before_the_first_is_known_to_be_removed_is_carried_out(
    cluster: Cluster,
) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: settled(cluster, T0))
    zk = cluster.zookeeper
    lose_first_reply(cluster, paths.PREFERRED_REPLICA_ELECTION)
    unknown = admin_znodes.encode_preferred_election([TopicPartition("unknown", 0)])
    zk.poke(Create(paths.PREFERRED_REPLICA_ELECTION, unknown))
    await until(lambda: zk.peek(paths.PREFERRED_REPLICA_ELECTION) is None)
    cluster.put_state(T0, leader=2, isr=(1, 2, 3), leader_epoch=3)
    zk.poke(Create(paths.PREFERRED_REPLICA_ELECTION, admin_znodes.encode_preferred_election([T0])))
    await until(lambda: zk.peek(paths.PREFERRED_REPLICA_ELECTION) is None)
    await until(lambda: cluster.leader_and_isr("t") == (1, (1, 2, 3), 4))


@pytest.mark.checklist(11)
async def test_a_request_for_a_new_topic_is_not_removed_for_that_of_an_unknown_one(cluster: Cluster) -> None:
    """The name was unknown, the answer to the removal of its request was lost, and a topic has got the name and is to be deleted."""
    await running(cluster)
    zk = cluster.zookeeper
    lose_first_reply(cluster, paths.DELETE_TOPICS)
    request = admin_znodes.encode_delete_topics(["t"])
    zk.poke(Create(paths.DELETE_TOPICS, request))
    await until(lambda: zk.peek(paths.DELETE_TOPICS) is None)
    cluster.create_topic("t", {0: (1, 2)})
    zk.poke(Create(paths.DELETE_TOPICS, request))
    await until(lambda: zk.peek(paths.DELETE_TOPICS) is None)
    assert zk.peek(paths.topic("t")) is None
