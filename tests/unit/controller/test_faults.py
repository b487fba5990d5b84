"""The controller when ZooKeeper's answers are lost, its session suspended or ended, or somebody else was faster."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from collections.abc import Sequence

import pytest

from kafkalite.controller import event_loop
from kafkalite.controller.decisions.events import TopicChange
from kafkalite.controller.stats import ControllerStats
from kafkalite.controller.storage import Storage
from kafkalite.controller.zk_access import MAX_BYTES, READS_AT_ONCE, Connectivity, ControllerMovedError
from kafkalite.coordination import admin_znodes, broker_znodes, cluster_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import (
    AuthFailedError,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    Op,
    OpResult,
    SetData,
    Stat,
    Watch,
)
from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode
from kafkalite.model import (
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.rpc.messages.control import ControlledShutdownRequest, IsrChangedRequest, LeaderAndIsrRequest
from kafkalite.testing.simulated.zookeeper import Fate
from kafkalite.testing.simulated.zookeeper_wire import Request, ZooKeeperWrite
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster, resignations, running

T0 = TopicPartition("t", 0)


@pytest.mark.checklist("F24")
@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
async def test_election_whose_answer_is_lost(cluster: Cluster, fate: Fate) -> None:
    writes: list[object] = []

    def lose_first_election(host: str, request: object) -> Fate:
        if any(getattr(op, "path", "") == "/controller" for op in getattr(request, "ops", ())):
            writes.append(request)
            return fate if len(writes) == 1 else Fate.SERVE
        return Fate.SERVE

    cluster.zookeeper.decide_fate = lose_first_election
    controller = await cluster.start_controller(1)
    await until(lambda: controller.is_active)
    assert controller.epoch == 1
    assert len(writes) == (1 if fate is Fate.LOSE_REPLY else 2)
    assert (cluster.zookeeper.peek("/controller_epoch") or (b"",))[0] == b"1"


@pytest.mark.checklist(2)
@pytest.mark.checklist(20)
@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
async def test_write_whose_outcome_is_unknown_is_read_again_and_told(cluster: Cluster, fate: Fate) -> None:
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(20), (1, 2, 3)))
    await until(lambda: len(cluster.brokers[2].metadata) == 20)
    lost: list[object] = []

    def lose_first_write(host: str, request: object) -> Fate:
        if host == "controller-1" and any(isinstance(op, SetData) for op in getattr(request, "ops", ())) and not lost:
            lost.append(request)
            return fate
        return Fate.SERVE

    cluster.zookeeper.decide_fate = lose_first_write
    await cluster.stop_broker(1)
    await until(lambda: all(entry.leader == 2 for entry in cluster.brokers[3].metadata.values()))
    await until(lambda: all(role.leader_epoch == 1 for role in cluster.brokers[2].roles.values()))
    assert len(lost) == 1
    assert {cluster.leader_and_isr("t", p) for p in range(20)} == {(2, (2, 3), 1)}  # once, not twice


@pytest.mark.checklist(2)
async def test_nothing_is_told_that_is_not_durable(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: T0 in cluster.brokers[3].metadata)
    told: list[int] = []

    def watch_commits(zxid: int, host: str, ops: tuple[object, ...]) -> None:
        for op in ops:
            if isinstance(op, SetData) and op.path == paths.partition_state(T0):
                told.append(sum(role.leader_epoch == 1 for b in cluster.brokers.values() for role in b.roles.values()))

    cluster.zookeeper.on_commit = watch_commits
    await cluster.stop_broker(1)
    await until(lambda: cluster.brokers[3].roles[T0].leader_epoch == 1)
    assert told == [0]


async def test_short_outage_of_zookeeper_is_sat_out(cluster: Cluster) -> None:
    await running(cluster)
    cluster.zookeeper.stop()
    cluster.zookeeper.start()
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: T0 in cluster.brokers[1].roles)
    controller = cluster.controllers[1]
    assert controller.epoch == 1


@pytest.mark.checklist("F15")
async def test_commands_that_arrive_before_the_broker_knows_its_epoch_are_repeated(cluster: Cluster) -> None:
    """ZooKeeper shows a registration to the controller before it has answered the broker: the broker refuses, rightly."""
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: T0 in cluster.brokers[3].roles)
    await cluster.stop_broker(3)
    broker = await cluster.start_broker(3, knows_epoch=False)
    await until(lambda: len(broker.of(LeaderAndIsrRequest)) >= 2)
    assert not broker.roles
    broker.learn_epoch()
    await until(lambda: T0 in broker.roles and T0 in broker.metadata)


@pytest.mark.checklist(63)
async def test_end_of_the_session_ends_the_term(cluster: Cluster) -> None:
    await running(cluster, 1)
    controller = cluster.controllers[1]
    cluster.zookeeper.expire("controller-1")
    await until(cluster.tasks[1].done)
    assert not controller.is_active and controller.epoch == -1 and at_once(controller.problems()) == ()
    refused = await controller.on_isr_changed(IsrChangedRequest(BrokerId(1), cluster.brokers[1].epoch, ()))
    assert refused.error == 41
    answer = await controller.controlled_shutdown(ControlledShutdownRequest(BrokerId(1), cluster.brokers[1].epoch))
    assert answer.error == 41


@pytest.mark.checklist("F4")
async def test_brokers_newer_epoch_makes_the_controller_look(cluster: Cluster) -> None:
    await running(cluster)
    controller = cluster.controllers[1]
    cluster.zookeeper.poke(SetData(paths.CONTROLLER_EPOCH, b"7"))
    cluster.brokers[2].controller_epoch = 7
    cluster.create_topic("u", {0: (1,)})  # whatever it does next, it is found out
    await until(lambda: resignations(controller) >= 1)
    await until(lambda: controller.is_active and controller.epoch == 8)
    await until(lambda: TopicPartition("u", 0) in cluster.brokers[2].metadata)


async def test_nothing_keeps_a_controller_that_has_resigned(cluster: Cluster) -> None:
    """The session goes on. It had the watches of each elected epoch until their znodes changed."""
    await running(cluster, 1)
    cluster.create_topic("t", {0: (1,)})
    await until(lambda: T0 in cluster.brokers[1].roles)
    controller = cluster.controllers[1]
    reader = weakref.ref(controller._event_loop.reader)  # type: ignore[union-attr]
    await until(lambda: not reader().topic_watches.is_due)  # type: ignore[union-attr]
    cluster.zookeeper.poke(Delete("/controller"))
    await until(lambda: controller.epoch == 2 and controller.is_active)
    gc.collect()
    assert reader() is None


@pytest.mark.checklist("F4")
async def test_a_controller_whose_epoch_is_behind_what_brokers_follow_gets_a_later_one(cluster: Cluster) -> None:
    """ZooKeeper was put back while brokers ran. They refused each of its commands, for ever."""
    await running(cluster)
    controller = cluster.controllers[1]
    cluster.brokers[2].controller_epoch = 70
    cluster.create_topic("u", {0: (2,)})
    await until(lambda: controller.is_active and controller.epoch == 71)
    await until(lambda: TopicPartition("u", 0) in cluster.brokers[2].roles)
    assert resignations(controller) == 1


async def test_health_names_the_error_with_which_a_broker_refuses_a_command(cluster: Cluster) -> None:
    """It said "error 56"."""
    await running(cluster)
    cluster.brokers[2].refuses = ErrorCode.KAFKA_STORAGE_ERROR
    cluster.create_topic("t", {0: (2,)})
    controller = cluster.controllers[1]
    await until(lambda: "command.refused" in {each.what for each in at_once(controller.problems())})
    detail = next(each.detail for each in at_once(controller.problems()) if each.what == "command.refused")
    assert detail == "broker 2 refused a command for t-0: KAFKA_STORAGE_ERROR"


@pytest.mark.checklist("F5")
async def test_command_for_an_earlier_life_makes_the_controller_look(cluster: Cluster) -> None:
    await running(cluster)
    broker = cluster.brokers[2]
    session = broker.coordinator
    assert session is not None
    data, _ = await session.get(paths.broker(2))
    await session.delete(paths.broker(2))
    _, stat = await session.create(paths.broker(2), data, ephemeral=True)
    broker.epoch = stat.czxid  # type: ignore[assignment]
    broker.commands.clear()
    cluster.create_topic("t", {0: (2, 1)})
    await until(lambda: T0 in broker.roles and len(broker.metadata) == 1)
    assert all(getattr(command, "broker_epoch", None) in (stat.czxid, None) for command in broker.commands[-2:])


@pytest.mark.checklist(37)
async def test_watches_do_not_grow_with_partitions(cluster: Cluster) -> None:
    await running(cluster, 1)
    controller = await cluster.start_controller(2)
    await until(lambda: controller.controller_id == 1)
    before = (
        11  # /controller twice, brokers, the one that is registered, topics, the roots of five orders, restart requests
    )
    await until(lambda: cluster.zookeeper.watch_count() == before)
    cluster.create_topic("t", dict.fromkeys(range(5000), (1,)))
    await until(lambda: len(cluster.brokers[1].metadata) == 5_000, 150)
    await until(lambda: cluster.zookeeper.watch_count() == before + 1)  # the topic's own


@pytest.mark.checklist(22)
@pytest.mark.checklist(61)
@pytest.mark.checklist(21)
async def test_ten_thousand_partitions_fail_over_in_bulk() -> None:
    cluster = Cluster()
    try:
        for number in (1, 2, 3):
            await cluster.start_broker(number)
        for topic in range(10):
            replicas = {p: tuple((p + j) % 3 + 1 for j in range(3)) for p in range(1_000)}
            cluster.create_topic(f"topic-{topic}", replicas)
        controller = await cluster.start_controller(1)
        await until(lambda: len(cluster.brokers[1].metadata) == 10_000, 150)
        await until(lambda: controller.stats.last_controller_failover.acked_ms >= 0, 30)  # type: ignore[union-attr]
        before = sum(controller.stats.rpcs_sent.values())
        transactions = controller.stats.zk_ops["transaction"]
        await cluster.stop_broker(3)

        def acked() -> bool:
            phases = controller.stats.last_broker_failover
            return phases is not None and phases.acked_ms >= 0

        await until(acked, 150)
        phases = controller.stats.last_broker_failover
        assert phases is not None and phases.partitions == 10_000
        steps = [phases.detected_ms, phases.read_ms, phases.decided_ms, phases.written_ms, phases.sent_ms]
        assert steps == sorted(steps) and steps[0] >= 0 and steps[-1] <= phases.acked_ms
        assert sum(controller.stats.rpcs_sent.values()) - before == 4  # one of each kind for each of two brokers
        assert controller.stats.zk_ops["transaction"] - transactions == 21  # 499 writes and the fence in each
    finally:
        await cluster.close()


def a_state(version: int) -> LeaderAndIsr:
    return LeaderAndIsr(BrokerId(1), LeaderEpoch(0), (BrokerId(1),), ControllerEpoch(1), PartitionEpoch(version))


@pytest.mark.checklist("F4")
@pytest.mark.checklist(7)
async def test_storage_fences_and_reports_conflicts(cluster: Cluster) -> None:
    coordinator = await cluster.connect("someone")
    cluster.zookeeper.poke(Create(paths.CONTROLLER_EPOCH, b"3"))
    stats = ControllerStats()
    storage = Storage(coordinator, Connectivity(coordinator), 0, stats)
    cluster.create_topic("t", dict.fromkeys(range(4), (1,)))
    writes = {TopicPartition("t", p): a_state(-1) for p in range(4)}
    written, conflicts = await storage.write_states(writes, 500)
    assert sorted(written) == sorted(writes) and conflicts == []
    assert all(state.partition_epoch == 0 for state in written.values())
    racing = {TopicPartition("t", p): a_state(5 if p == 2 else 0) for p in range(4)}
    written, conflicts = await storage.write_states(racing, 3)  # two partitions and the fence
    assert sorted(written) == [T0, TopicPartition("t", 1)]
    assert conflicts == [TopicPartition("t", 2), TopicPartition("t", 3)]
    found = await storage.read_states([T0, TopicPartition("t", 9), TopicPartition("no", 0)])
    known = found.states[T0]
    assert known is not None and known.partition_epoch == 1
    assert found.states[TopicPartition("t", 9)] is None and TopicPartition("no", 0) not in found.states
    topics, _ = await storage.read_topics({}, None, again=True)
    (change,), failed = await storage.write_topics([TopicChange("t", topics["t"], ())])
    assert (change.topic.version, failed) == (topics["t"].version + 1, [])
    cluster.zookeeper.poke(SetData(paths.CONTROLLER_EPOCH, b"4"))
    with pytest.raises(ControllerMovedError):
        await storage.write_states({T0: a_state(1)}, 500)
    with pytest.raises(ControllerMovedError):
        await storage.write_topics([change])
    with pytest.raises(ControllerMovedError):
        await storage.verify()
    assert cluster.leader_and_isr("t") == (1, (1,), 0)
    topics, _ = await storage.read_topics({}, None, again=True)
    assert topics["t"].version == change.topic.version
    await coordinator.close()


@pytest.mark.parametrize(("brokers", "rounds"), [(100, 1), (401, 3)])
async def test_registrations_are_read_side_by_side(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, brokers: int, rounds: int
) -> None:
    """One after the other, a failover among a hundred brokers waited for a hundred answers of ZooKeeper."""
    coordinator = await cluster.connect("someone")
    value = broker_znodes.encode_broker(broker_znodes.BrokerZnode(host="host", port=9092, rpc=Endpoint("host", 9192)))
    cluster.zookeeper.poke(*(Create(paths.broker(BrokerId(number)), value) for number in range(brokers)))
    get, answered = coordinator.get, asyncio.Event()
    waiting: list[str] = []
    most: list[int] = []

    async def get_slowly(path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        waiting.append(path)
        await answered.wait()
        return await get(path, watch)

    monkeypatch.setattr(coordinator, "get", get_slowly)
    storage = Storage(coordinator, Connectivity(coordinator), 0, ControllerStats())
    reading = asyncio.ensure_future(storage.read_brokers(lambda: None))
    while not reading.done():
        await until(lambda: bool(waiting) or reading.done())
        await asyncio.sleep(0)
        most.append(len(waiting))
        waiting.clear()
        answered.set()
        answered.clear()
    found, malformed = reading.result()
    assert (len(found), malformed) == (brokers, {})
    assert len([each for each in most if each]) == rounds
    assert max(most) <= READS_AT_ONCE
    await coordinator.close()


@pytest.mark.checklist("F24")
async def test_a_controller_whose_znode_is_anothers_when_it_looks_resigns(cluster: Cluster) -> None:
    """Both happen before the watch of the first is followed."""
    await running(cluster)
    controller = cluster.controllers[1]
    other = cluster_znodes.encode_controller(BrokerId(9), 0)
    cluster.zookeeper.poke(Delete(paths.CONTROLLER), Create(paths.CONTROLLER, other))
    await until(lambda: not controller.is_active and controller.controller_id == 9)


@pytest.mark.checklist("F31")
async def test_a_transaction_is_bounded_in_bytes(cluster: Cluster) -> None:
    """A request of more than a megabyte ends the connection, for all that is under way on it."""
    coordinator = await cluster.connect("someone")
    cluster.zookeeper.poke(Create(paths.CONTROLLER_EPOCH, b"3"))
    stats = ControllerStats()
    storage = Storage(coordinator, Connectivity(coordinator), 0, stats)
    cluster.create_topic("t", dict.fromkeys(range(300), (1,)))
    large = dataclasses.replace(a_state(-1), isr=tuple(map(BrokerId, range(1, 1_500))))
    written, conflicts = await storage.write_states(
        dict.fromkeys((TopicPartition("t", p) for p in range(300)), large), 10_000
    )
    assert (len(written), conflicts) == (300, [])
    size = len(topic_znodes.encode_partition_state(large))
    assert stats.zk_ops["transaction"] > 300 * size // MAX_BYTES
    assert 300 * size > 3 * MAX_BYTES
    await coordinator.close()


async def test_malformed_state_is_reported_and_keeps_brokers_from_setting_replicas_aside(cluster: Cluster) -> None:
    for number in (1, 2):
        await cluster.start_broker(number)
    cluster.create_topic("t", {0: (1, 2), 1: (1, 2)})
    cluster.put_state(T0, 1, (1, 2))
    cluster.put_state(TopicPartition("t", 1), 1, (1, 2))
    cluster.zookeeper.poke(SetData(paths.partition_state(T0), b'{"version":1,"leader":1,"isr":[]}'))
    controller = await cluster.start_controller(1)
    await until(lambda: controller.is_active and len(cluster.brokers[2].of(LeaderAndIsrRequest)) == 1)
    command = cluster.brokers[2].of(LeaderAndIsrRequest)[0]
    assert isinstance(command, LeaderAndIsrRequest)
    assert not command.is_init and [entry.partition for entry in command.partitions] == [1]
    assert "znode.malformed" in [problem.what for problem in at_once(controller.problems())]
    repaired = topic_znodes.encode_partition_state(a_state(0))
    cluster.zookeeper.poke(SetData(paths.partition_state(T0), repaired))
    await cluster.stop_broker(2)
    await cluster.start_broker(2)  # an occasion to look again at what has no leader
    await until(lambda: not at_once(controller.problems()))


async def test_a_znode_that_the_controller_may_not_write_stops_nothing_else(cluster: Cluster) -> None:
    """While zookeeper.set.acl comes into force node by node, a controller meets znodes of an identity that it does not have yet."""
    await running(cluster)
    session = cluster.sessions[1]
    multi_many, refused = session.multi_many, 0

    async def partly(transactions: Sequence[Sequence[Op]]) -> list[list[OpResult] | CoordinatorError]:
        nonlocal refused
        results: list[list[OpResult] | CoordinatorError] = []
        for ops in transactions:
            at = next((at for at, op in enumerate(ops) if op.path.startswith(f"{paths.TOPICS}/closed/")), None)
            if at is not None:
                refused += 1
            results += await multi_many([ops]) if at is None else [MultiFailedError(at, AuthFailedError("code -102"))]
        return results

    session.multi_many = partly  # type: ignore[method-assign]
    cluster.zookeeper.poke(
        *(
            Create(
                paths.topic(name),
                topic_znodes.encode_topic(topic_znodes.TopicZnode(TopicId(name), {0: (BrokerId(1),)})),
            )
            for name in ("closed", "t")
        )
    )
    await until(lambda: cluster.leader_and_isr("t") is not None)
    cluster.create_topic("u", {0: (1, 2)})
    await until(lambda: cluster.leader_and_isr("u") is not None)
    assert 1 <= refused <= 10
    assert cluster.leader_and_isr("closed") is None


@pytest.mark.checklist("C20")
@pytest.mark.parametrize("fate", list(Fate))
async def test_a_request_for_a_partition_survives_a_lost_connection(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fate: Fate
) -> None:
    """The write of the topic's znode was not sent, or not answered: the request stands, and fires no watch again."""
    monkeypatch.setattr(event_loop, "TICK_S", 0.05)
    monkeypatch.setattr(event_loop, "TICKS_PER_FULL_READ", 2**40)
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: T0 in cluster.brokers[3].roles)
    lost = [fate]

    def see(host: str, request: Request) -> Fate:
        ops = request.ops if host == "controller-1" and isinstance(request, ZooKeeperWrite) else ()
        is_it = any(isinstance(op, SetData) and op.path == paths.topic("t") for op in ops)
        return lost.pop() if is_it and lost else Fate.SERVE

    cluster.zookeeper.decide_fate = see
    added = TopicPartition("t", 1)
    if cluster.zookeeper.peek(paths.partitions_add("t")) is None:
        cluster.zookeeper.poke(Create(paths.partitions_add("t")))
    replicas = tuple(map(BrokerId, (1, 2, 3)))
    cluster.zookeeper.poke(Create(paths.partition_add(added), admin_znodes.encode_partition_add(replicas)))
    await until(lambda: added in cluster.brokers[3].roles and not lost)
    assert cluster.zookeeper.peek(paths.partition_add(added)) is None
