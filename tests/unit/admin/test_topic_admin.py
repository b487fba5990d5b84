"""Orders to create and delete topics: Kafka's checks and codes, and what stands in ZooKeeper afterwards."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.admin.brokers import BrokerAdmin
from kafkalite.admin.decisions.decommissioning import replace_broker, shares_rack
from kafkalite.admin.decisions.topic_checks import check_name, collision_key
from kafkalite.admin.new_topics import NewTopics
from kafkalite.admin.reassignments import ReassignmentAdmin
from kafkalite.admin.topics import TopicAdmin
from kafkalite.coordination import broker_znodes, config_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import Create, Delete
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.reassignment import AlterReassignmentsRequest, WantedReassignment
from kafkalite.extension.messages.topics import CreateTopicsRequest, DeleteTopicsRequest, NewTopic
from kafkalite.model import BrokerEpoch, BrokerId, Endpoint, TopicId, TopicPartition
from kafkalite.testing.simulated.zookeeper import Fate
from kafkalite.testing.simulated.zookeeper_wire import Read, ZooKeeperWrite
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster


async def orders(cluster: Cluster, racks: tuple[str | None, ...] = (None, None, None)) -> TopicAdmin:
    for number, rack in enumerate(racks, start=1):
        value = broker_znodes.BrokerZnode(host="h", port=1, rpc=Endpoint("h", 2), rack=rack)
        cluster.zookeeper.poke(Create(paths.broker(number), broker_znodes.encode_broker(value)))
    session = await cluster.connect("node")
    cluster.sessions[0] = session

    async def current() -> object:
        return session

    made = TopicAdmin(current, lambda: cluster.config, random.Random(7))  # type: ignore[arg-type]
    made.deletion_wait_s = 0.01  # no controller here
    return made


async def create(made: TopicAdmin, *topics: NewTopic, **options: bool) -> list[tuple[int, str]]:
    response = await made.create_topics(CreateTopicsRequest(topics, **options))
    return [(result.error, result.message) for result in response.topics]


@pytest.mark.checklist(6)
async def test_creates_topic_and_settings_with_a_notice(cluster: Cluster) -> None:
    made = await orders(cluster)
    topic = NewTopic("t", partitions=6, replication_factor=3, configs={"retention.ms": "1000"})
    response = await made.create_topics(CreateTopicsRequest((topic,)))
    result = response.topics[0]
    assert (result.error, result.partitions, result.replication_factor) == (0, 6, 3)
    value = json.loads((cluster.zookeeper.peek(paths.topic("t")) or (b"",))[0])
    assert value["version"] == 3 and value["topic_id"] == result.topic_id and len(result.topic_id) == 22
    assert len(value["partitions"]) == 6 and all(sorted(each) == [1, 2, 3] for each in value["partitions"].values())
    config = config_znodes.decode_config((cluster.zookeeper.peek(paths.config_topic("t")) or (b"",))[0])
    assert config == {"retention.ms": "1000"}
    change = cluster.zookeeper.peek("/config/changes/config_change_0000000000")
    assert change is not None and config_znodes.decode_config_change(change[0]) == ("topics", "t")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("a.b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", partitions=100_001), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", placement="random"), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", assignment={}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment={1: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # type: ignore[dict-item]
        (NewTopic("t", assignment={0: ()}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment={0: (1, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # type: ignore[dict-item]
        (NewTopic("t", assignment={0: (1, 9)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # type: ignore[dict-item]
        (NewTopic("t", assignment={0: (1,), 1: (1, 2)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # type: ignore[dict-item]
        (NewTopic("t", partitions=1, assignment={0: (1,)}), ErrorCode.INVALID_REQUEST),  # type: ignore[dict-item]
    ],
    ids=lambda each: each.name if isinstance(each, ErrorCode) else None,
)
@pytest.mark.checklist(6)
async def test_refusals(cluster: Cluster, topic: NewTopic, code: ErrorCode) -> None:
    made = await orders(cluster)
    cluster.create_topic("there", {0: (1,)})
    cluster.create_topic("a_b", {0: (1,)})
    good = NewTopic("good")
    assert [error for error, _ in await create(made, topic, good)] == [code, 0]
    assert cluster.zookeeper.peek(paths.topic("good")) is not None
    if topic.topic == "t":
        assert cluster.zookeeper.peek(paths.topic("t")) is None


async def test_a_node_that_is_asked_before_any_broker_is_registered_waits_for_one(cluster: Cluster) -> None:
    """It answered that a replication factor of 1 is larger than the 0 live brokers, which no client repeats."""
    made = await orders(cluster, ())
    in_a_hurry = CreateTopicsRequest((NewTopic("t"),), timeout_ms=0)
    assert (await made.create_topics(in_a_hurry)).topics[0].error == ErrorCode.INVALID_REPLICATION_FACTOR
    reads: list[object] = []

    def register_late(host: str, request: object) -> Fate:
        if getattr(request, "path", "") == paths.BROKER_IDS:
            reads.append(request)
            if len(reads) != 2:
                return Fate.SERVE
            value = broker_znodes.BrokerZnode(host="h", port=1, rpc=Endpoint("h", 2))
            cluster.zookeeper.poke(Create(paths.broker(1), broker_znodes.encode_broker(value)))
        return Fate.SERVE

    cluster.zookeeper.decide_fate = register_late
    assert await create(made, NewTopic("t", partitions=1, replication_factor=1)) == [(0, "")]


async def test_a_name_twice_and_validate_only(cluster: Cluster) -> None:
    made = await orders(cluster)
    response = await made.create_topics(CreateTopicsRequest((NewTopic("t"), NewTopic("t"), NewTopic("u"))))
    assert [(each.topic, each.error) for each in response.topics] == [("t", ErrorCode.INVALID_REQUEST), ("u", 0)]
    response = await made.create_topics(CreateTopicsRequest((NewTopic("v", partitions=3),), validate_only=True))
    assert (response.topics[0].error, response.topics[0].partitions) == (0, 3)
    assert cluster.zookeeper.peek(paths.topic("v")) is None


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
async def test_creation_whose_answer_is_lost_is_not_refused_as_existing(cluster: Cluster, fate: Fate) -> None:
    made = await orders(cluster)
    lost: list[object] = []

    def lose_first(host: str, request: object) -> Fate:
        if not lost and any(getattr(op, "path", "") == paths.topic("t") for op in getattr(request, "ops", ())):
            lost.append(request)
            return fate
        return Fate.SERVE

    cluster.zookeeper.decide_fate = lose_first
    assert [error for error, _ in await create(made, NewTopic("t"))] == [0]
    assert lost and cluster.zookeeper.peek(paths.topic("t")) is not None
    assert [error for error, _ in await create(made, NewTopic("t"))] == [ErrorCode.TOPIC_ALREADY_EXISTS]


def transactions_seen(cluster: Cluster, fates: dict[int, Fate] | None = None) -> list[int]:
    """The numbers of operations of the transactions that create topics, as they come; `fates` by their position."""
    seen: list[int] = []

    def record(host: str, request: object) -> Fate:
        ops = getattr(request, "ops", ())
        if not any(getattr(op, "path", "").startswith(paths.TOPICS + "/") for op in ops if isinstance(op, Create)):
            return Fate.SERVE
        seen.append(len(ops))
        return (fates or {}).get(len(seen) - 1, Fate.SERVE)

    cluster.zookeeper.decide_fate = record
    return seen


async def test_topics_of_a_request_share_transactions(cluster: Cluster) -> None:
    made = await orders(cluster)
    seen = transactions_seen(cluster)
    topics = [NewTopic(f"t{number}") for number in range(150)]
    assert await create(made, *topics) == [(0, "")] * 150
    assert seen == [200, 100], "two znodes each, a hundred topics together"
    assert all(cluster.zookeeper.peek(paths.topic(topic.topic)) for topic in topics)


async def test_only_settings_that_a_node_could_not_know_are_announced(cluster: Cluster) -> None:
    made = await orders(cluster)
    cluster.zookeeper.poke(Create(paths.config_topic("left"), config_znodes.encode_config({"retention.ms": "5"})))
    made._new_topics = NewTopics({"known": {"retention.ms": "5"}}.get)  # type: ignore[arg-type]
    names = ("plain", "set", "left", "known")
    topics = [NewTopic(name, configs={"retention.ms": "1"} if name == "set" else None) for name in names]
    assert await create(made, *topics) == [(0, "")] * 4
    changes = [cluster.zookeeper.peek(f"/config/changes/config_change_{number:010d}") for number in range(4)]
    found = [config_znodes.decode_config_change(each[0]) for each in changes if each is not None]
    assert found == [("topics", "set"), ("topics", "left"), ("topics", "known")]
    assert config_znodes.decode_config((cluster.zookeeper.peek(paths.config_topic("left")) or (b"",))[0]) == {}


async def test_one_topic_that_somebody_else_makes_meanwhile_fails_alone(cluster: Cluster) -> None:
    made = await orders(cluster)
    seen: list[object] = []

    def race(host: str, request: object) -> Fate:
        if not seen and any(getattr(op, "path", "") == paths.topic("b") for op in getattr(request, "ops", ())):
            seen.append(request)
            cluster.create_topic("b", {0: (1,)})
        return Fate.SERVE

    cluster.zookeeper.decide_fate = race
    answers = await create(made, NewTopic("a"), NewTopic("b"), NewTopic("c"))
    assert [code for code, _ in answers] == [0, ErrorCode.TOPIC_ALREADY_EXISTS, 0]


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
async def test_a_batch_whose_answer_is_lost_is_written_once(cluster: Cluster, fate: Fate) -> None:
    made = await orders(cluster)
    seen = transactions_seen(cluster, {0: fate})
    response = await made.create_topics(CreateTopicsRequest(tuple(NewTopic(name) for name in "abc")))
    assert [(each.topic, each.error) for each in response.topics] == [("a", 0), ("b", 0), ("c", 0)]
    assert seen[0] == 6 and len(seen) == 4, "then each topic on its own"
    for each in response.topics:
        value = topic_znodes.decode_topic((cluster.zookeeper.peek(paths.topic(each.topic)) or (b"",))[0])
        assert value.topic_id == each.topic_id


async def test_names_that_differ_in_dots_and_underscores_only(cluster: Cluster) -> None:
    made = await orders(cluster)
    cluster.create_topic("x_y", {0: (1,)})
    codes = [code for code, _ in await create(made, NewTopic("x.y"), NewTopic("p.q"), NewTopic("p_q"), NewTopic("z"))]
    clash = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == [clash, 0, clash, 0]


async def test_racks_are_used_only_if_every_broker_has_one(cluster: Cluster) -> None:
    made = await orders(cluster, ("a", "a", "b"))
    assert [error for error, _ in await create(made, NewTopic("t", partitions=9, replication_factor=2))] == [0]
    value = topic_znodes.decode_topic((cluster.zookeeper.peek(paths.topic("t")) or (b"",))[0])
    assert all(3 in replicas for replicas in value.partitions.values())


@pytest.mark.checklist(11)
async def test_deletion_orders_add_up(cluster: Cluster) -> None:
    made = await orders(cluster)
    for name in ("t", "u"):
        cluster.create_topic(name, {0: (1,)})
    response = await made.delete_topics(DeleteTopicsRequest(("t", "no", "a/b", "t")))
    codes = {each.topic: each.error for each in response.topics}
    assert codes == {"t": 0, "no": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a/b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    await made.delete_topics(DeleteTopicsRequest(("u",)))
    order = json.loads((cluster.zookeeper.peek(paths.DELETE_TOPICS) or (b"",))[0])
    assert order == {"version": 1, "topics": ["t", "u"]}


async def test_a_topic_that_was_made_again_is_not_deleted_by_the_id_of_the_old_one(cluster: Cluster) -> None:
    """A node may not have heard yet that the id is gone: ZooKeeper is asked."""
    made = await orders(cluster)
    cluster.create_topic("t", {0: (1,)})
    now = topic_znodes.decode_topic((cluster.zookeeper.peek(paths.topic("t")) or (b"",))[0]).topic_id
    assert now is not None
    old = TopicId("AAAAAAAAAAAAAAAAAAAAAQ")
    response = await made.delete_topics(DeleteTopicsRequest(("t",)), {"t": old})
    assert [each.error for each in response.topics] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert cluster.zookeeper.peek(paths.DELETE_TOPICS) is None
    response = await made.delete_topics(DeleteTopicsRequest(("t",)), {"t": now})
    assert [each.error for each in response.topics] == [0]


async def test_a_deletion_whose_answer_is_lost_does_not_delete_a_later_topic(cluster: Cluster) -> None:
    """The controller has carried it out, and another client has created the topic again, before the node could ask again."""
    made = await orders(cluster)
    cluster.create_topic("t", {0: (1,)})
    zk = cluster.zookeeper
    steps = ["lose the answer", "carry it out"]

    def fate(host: str, request: object) -> Fate:
        if steps == ["carry it out"]:
            steps.clear()
            zk.poke(*map(Delete, (paths.DELETE_TOPICS, paths.topic("t"), paths.config_topic("t"))))
            cluster.create_topic("t", {0: (1,)}, "id-later")
        elif steps and isinstance(request, ZooKeeperWrite) and request.ops[0].path == paths.DELETE_TOPICS:
            del steps[0]
            return Fate.LOSE_REPLY
        return Fate.SERVE

    zk.decide_fate = fate
    response = await made.delete_topics(DeleteTopicsRequest(("t",)))
    assert not steps and [each.error for each in response.topics] == [0]
    assert zk.peek(paths.DELETE_TOPICS) is None and zk.peek(paths.topic("t")) is not None


async def test_topics_are_not_deleted_where_that_is_switched_off(cluster: Cluster) -> None:
    made = await orders(cluster)
    cluster.create_topic("t", {0: (1,)})
    cluster.config = dataclasses.replace(cluster.config, delete_topic_enable=False)
    response = await made.delete_topics(DeleteTopicsRequest(("t", "no")))
    assert [each.error for each in response.topics] == [ErrorCode.TOPIC_DELETION_DISABLED] * 2
    assert cluster.zookeeper.peek(paths.DELETE_TOPICS) is None


async def test_deletion_is_refused_where_it_cannot_be_ordered(cluster: Cluster) -> None:
    made = await orders(cluster)
    cluster.create_topic("t", {0: (1,)})
    cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, b"?"))
    response = await made.delete_topics(DeleteTopicsRequest(("t",)))
    assert response.topics[0].error == ErrorCode.UNKNOWN_SERVER_ERROR and "malformed" in response.topics[0].message
    assert (cluster.zookeeper.peek(paths.DELETE_TOPICS) or (b"",))[0] == b"?"


@given(st.text(max_size=260))
def test_names_follow_kafkas_rules(name: str) -> None:
    legal = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    good = 0 < len(name) <= 249 and set(name) <= legal and name not in (".", "..")
    try:
        check_name(name)
    except ApiError as refusal:
        assert not good and refusal.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        assert good and "." not in collision_key(name)


@pytest.mark.checklist(11)
async def test_a_deleted_topic_can_be_created_again_at_once(cluster: Cluster) -> None:
    for number in (1, 2):
        await cluster.start_broker(number)
    made = await orders(cluster, ())
    made.deletion_wait_s = 10
    controller = await cluster.start_controller(1)
    await until(lambda: controller.is_active)
    topic_ids = []
    for _ in range(3):
        created = await made.create_topics(CreateTopicsRequest((NewTopic("t", partitions=4, replication_factor=2),)))
        assert [each.error for each in created.topics] == [0]
        topic_ids.append(created.topics[0].topic_id)
        await until(lambda: len(cluster.brokers[2].metadata) == 4)
        assert {role.topic_id for role in cluster.brokers[2].roles.values()} == {topic_ids[-1]}
        deleted = await made.delete_topics(DeleteTopicsRequest(("t",)))
        assert [each.error for each in deleted.topics] == [0]
    assert len(set(topic_ids)) == 3
    await until(lambda: not cluster.brokers[2].metadata and not cluster.brokers[1].roles)


async def test_a_request_to_delete_many_topics_waits_for_the_last_one(cluster: Cluster) -> None:
    """It asked for each of them, one after the other, with a watch for each."""
    await cluster.start_broker(1)
    made = await orders(cluster, ())
    made.deletion_wait_s = 30
    controller = await cluster.start_controller(1)
    await until(lambda: controller.is_active)
    names = tuple(f"t{number:02}" for number in range(60))
    await made.create_topics(CreateTopicsRequest(tuple(NewTopic(name, 1, 1) for name in names)))
    await until(lambda: len(cluster.brokers[1].roles) == len(names))
    asked = 0

    def see(host: str, request: object) -> Fate:
        nonlocal asked
        asked += host == "node" and isinstance(request, Read) and request.verb == "exists"
        return Fate.SERVE

    cluster.zookeeper.decide_fate = see
    deleted = await made.delete_topics(DeleteTopicsRequest(names))
    assert {each.error for each in deleted.topics} == {0}
    assert not any(cluster.zookeeper.peek(paths.topic(name)) for name in names)
    assert asked <= 4


@pytest.mark.checklist(11)
@pytest.mark.parametrize("is_kafkas", [False, True])
async def test_a_topic_that_is_being_deleted(cluster: Cluster, *, is_kafkas: bool) -> None:
    """Until live brokers have removed it the name is taken: a request to create it says why, a request to delete it succeeds."""
    made = await orders(cluster)
    assert (await create(made, NewTopic("t", partitions=1, replication_factor=1)))[0][0] == 0
    assert "being deleted" not in (await create(made, NewTopic("t", partitions=1, replication_factor=1)))[0][1]
    if is_kafkas:  # a person with a shell makes the parent empty
        cluster.zookeeper.poke(Create(paths.DELETE_TOPICS), Create(paths.delete_topic("t")))
    else:
        await made.delete_topics(DeleteTopicsRequest(("t",)))
    ((code, reason),) = await create(made, NewTopic("t", partitions=1, replication_factor=1))
    assert (code, "is being deleted" in reason) == (ErrorCode.TOPIC_ALREADY_EXISTS, True)
    (again,) = (await made.delete_topics(DeleteTopicsRequest(("t",)))).topics
    assert again.error == 0
    assert json.loads((cluster.zookeeper.peek(paths.DELETE_TOPICS) or (b"",))[0])["topics"] == ["t"]


@pytest.mark.checklist("F19")
async def test_what_has_vanished_is_ordered_to_go_only_if_that_is_said(cluster: Cluster) -> None:
    made = await orders(cluster)
    (unknown,) = (await made.delete_topics(DeleteTopicsRequest(("gone",)))).topics
    assert unknown.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.zookeeper.peek(paths.DELETE_TOPICS) is None
    (ordered,) = (await made.delete_topics(DeleteTopicsRequest(("gone",), vanished=True))).topics
    assert ordered.error == 0
    assert json.loads((cluster.zookeeper.peek(paths.DELETE_TOPICS) or (b"",))[0])["topics"] == ["gone"]


@pytest.mark.checklist("F19")
async def test_nothing_takes_the_name_of_a_topic_that_has_vanished(cluster: Cluster) -> None:
    """A producer asks for it, or a coordinator for its own topic: the replicas would be set aside, and what is put back later has none."""
    made = await orders(cluster)
    data = topic_znodes.encode_vanished_topic("t", {}, BrokerEpoch(1))
    cluster.zookeeper.poke(Create(paths.vanished_topic("id-t"), data))
    cluster.zookeeper.poke(Create(paths.vanished_topic("id-u"), b"?"))
    (refused, taken) = await create(made, NewTopic("t"), NewTopic("u"))
    assert (refused[0], "have vanished" in refused[1], taken) == (ErrorCode.TOPIC_ALREADY_EXISTS, True, (0, ""))
    assert cluster.zookeeper.peek(paths.topic("t")) is None
    cluster.zookeeper.poke(Delete(paths.vanished_topic("id-t")))
    assert await create(made, NewTopic("t")) == [(0, "")]


def put_state(cluster: Cluster, broker: int, state: str) -> None:
    path = paths.config_entity("brokers", str(broker))
    cluster.zookeeper.poke(Create(path, config_znodes.encode_config({"broker.state": state})))


@pytest.mark.parametrize("state", ["cordoned", "draining"])
async def test_a_cordoned_broker_gets_no_new_replica(cluster: Cluster, state: str) -> None:
    made = await orders(cluster, (None, None, None, None))
    put_state(cluster, 2, state)
    assert await create(made, NewTopic("t", partitions=20, replication_factor=3)) == [(0, "")]
    placed = json.loads((cluster.zookeeper.peek(paths.topic("t")) or (b"",))[0])["partitions"]
    assert all(sorted(replicas) == [1, 3, 4] for replicas in placed.values())
    assert await create(made, NewTopic("few", partitions=1, replication_factor=4)) == [
        (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor 4 is larger than the 3 live brokers; broker 2 is {state}",
        )
    ]
    by_hand = NewTopic("hand", assignment={0: (BrokerId(1), BrokerId(2))})
    assert await create(made, by_hand) == [
        (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"broker 2 is {state}: it takes no new replicas (kafkalite admin broker uncordon 2)",
        )
    ]


async def test_a_move_to_a_cordoned_broker_is_refused_and_one_away_from_it_is_not(cluster: Cluster) -> None:
    made = await orders(cluster, (None, None, None, None))
    assert await create(made, NewTopic("t", assignment={0: (BrokerId(1), BrokerId(2))})) == [(0, "")]
    put_state(cluster, 2, "cordoned")
    put_state(cluster, 4, "cordoned")
    moves = ReassignmentAdmin(made)

    async def alter(*replicas: int) -> tuple[int, str]:
        wanted = WantedReassignment("t", 0, tuple(map(BrokerId, replicas)))
        answer = await moves.alter(AlterReassignmentsRequest((wanted,), 100))
        return answer.partitions[0].error, answer.partitions[0].message

    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await alter(1, 4) == (refused, "t-0: broker 4 is cordoned: it takes no new replicas")
    assert (await alter(2, 1))[0] == 0, "what it has it may keep"
    assert (await alter(1, 3))[0] == 0


async def test_a_drain_that_cannot_succeed_is_refused_with_the_reason(cluster: Cluster) -> None:
    made = await orders(cluster)
    brokers = BrokerAdmin(made)
    assert await create(made, NewTopic("t", partitions=1, replication_factor=3)) == [(0, "")]
    with pytest.raises(ApiError, match="broker 1 cannot be drained: t-0 has 3 replicas, and no broker is left"):
        await brokers.check_state(BrokerId(1), "draining")
    await brokers.check_state(BrokerId(1), "cordoned")
    with pytest.raises(ApiError, match="broker 9 is not alive and has no replicas"):
        await brokers.check_state(BrokerId(9), "cordoned")
    value = broker_znodes.BrokerZnode(host="h", port=1, rpc=Endpoint("h", 2))
    cluster.zookeeper.poke(Create(paths.broker(4), broker_znodes.encode_broker(value)))
    await brokers.check_state(BrokerId(1), "draining")
    put_state(cluster, 4, "draining")
    with pytest.raises(ApiError, match="broker 4 is draining"):
        await brokers.check_state(BrokerId(1), "draining")


def test_a_new_broker_takes_the_place_of_a_dead_one() -> None:
    one, two, three, five = map(BrokerId, (1, 2, 3, 5))
    before = {
        TopicPartition("t", 0): (one, two),
        TopicPartition("t", 1): (two, three),
        TopicPartition("t", 2): (one, three),
        TopicPartition("t", 3): (five, two),
    }
    made = replace_broker(two, five, before)
    assert made.targets == {TopicPartition("t", 0): (one, five), TopicPartition("t", 1): (five, three)}
    assert made.kept == (TopicPartition("t", 3),), "it has this one already"
    racks: dict[BrokerId, str | None] = {one: "a", two: "b", three: "a", five: "a"}
    assert shares_rack(made.targets, racks, before) == [TopicPartition("t", 0), TopicPartition("t", 1)]
