"""How many answers of ZooKeeper a controller waits for, one after the other.

On a host without a free processor each of them takes a second. While a controller that is elected waits, nobody gets a leader; and if its
session ends before it is ready, the next one begins again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from kafkalite.config import TopicConfig, broker_config
from kafkalite.controller.controller import Controller
from kafkalite.controller.decisions.state import EndedDeletion
from kafkalite.controller.stats import ControllerStats
from kafkalite.controller.storage import MAX_RESTARTS, Storage
from kafkalite.controller.zk_access import Connectivity
from kafkalite.coordination import config_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import Create
from kafkalite.env.own_time import OwnTime
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.model import BrokerId, TopicId, TopicPartition
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.testing.simulated.clock import SimClock
from kafkalite.testing.simulated.loop import SimLoop
from kafkalite.testing.simulated.zookeeper import SimZooKeeper

#: From a request to its answer.
ROUND_S = 1.0


async def rounds_of_a_takeover(loop: SimLoop) -> tuple[int, int]:
    """Until the controller is elected, and from then until it is ready; with topics, and no live broker."""
    zookeeper = SimZooKeeper(random.Random(1), min_latency_s=0, max_latency_s=0)
    for path in paths.PERSISTENT:
        zookeeper.poke(Create(path))
    zookeeper.poke(Create(paths.CONTROLLER_EPOCH, b"7"))
    for name in ("t", "u"):
        znode = topic_znodes.TopicZnode(TopicId(f"id-{name}"), {0: (BrokerId(1),)})
        zookeeper.poke(Create(paths.topic(name), topic_znodes.encode_topic(znode)))
        zookeeper.poke(Create(paths.config_topic(name), config_znodes.encode_config({})))
    clock, failures = SimClock(loop), list[BaseException]()
    supervisor, disk = Supervisor(failures.append), RealDisk()
    controller = Controller(
        config=broker_config({})[0],
        env=Env(clock, RealNetwork(), disk, random.Random(2), zookeeper.connector("controller")),
        own_time=OwnTime(clock),
        supervisor=supervisor,
        local=LocalBroker(BrokerId(1)),
        topic_config=lambda name: TopicConfig(),
    )
    session = await zookeeper.connector("controller")("zk", 18_000)
    zookeeper.min_latency_s = zookeeper.max_latency_s = ROUND_S / 2
    began = loop.time()
    supervisor.spawn("controller", controller.run_session(session))

    async def until(what: str) -> float:
        while not getattr(controller, what):
            await asyncio.sleep(ROUND_S / 10)
        return loop.time()

    elected = await until("_event_loop")
    ready = await until("is_active")
    await supervisor.stop()
    await session.close()
    disk.close()
    assert not failures
    return round((elected - began) / ROUND_S), round((ready - elected) / ROUND_S)


async def rounds_of(
    loop: SimLoop, znodes: Sequence[str], remove: Callable[[Storage], Awaitable[object]], gone: Sequence[str]
) -> int:
    """How many answers of ZooKeeper `remove` waits for, one after the other; `gone` are away after it."""
    zookeeper = SimZooKeeper(random.Random(1), min_latency_s=0, max_latency_s=0)
    for path in (*paths.PERSISTENT, *znodes):
        zookeeper.poke(Create(path))
    zookeeper.poke(Create(paths.CONTROLLER_EPOCH, b"7"))
    session = await zookeeper.connector("controller")("zk", 18_000)
    storage = Storage(session, Connectivity(session), 0, ControllerStats())
    zookeeper.min_latency_s = zookeeper.max_latency_s = ROUND_S / 2
    began = loop.time()
    left = await remove(storage)
    rounds = round((loop.time() - began) / ROUND_S)
    assert not left and not [path for path in gone if zookeeper.peek(path)]
    await session.close()
    return rounds


def test_removed_partitions_go_side_by_side() -> None:
    """One after the other, each for four answers: nobody was elected while the znodes of a thousand went."""
    partitions = [TopicPartition("t", number) for number in range(1, 81)]
    requests = paths.partitions_remove("t")
    doomed = [f(each) for each in partitions for f in (paths.partition, paths.partition_state, paths.partition_remove)]
    znodes = [paths.topic("t"), paths.topic_partitions("t"), requests, *doomed]
    loop = SimLoop()  # type: ignore[abstract]
    try:
        removing = rounds_of(loop, znodes, lambda storage: storage.remove_partitions(partitions), [*doomed, requests])
        assert loop.run_until_complete(loop.create_task(removing)) == 4
    finally:
        loop.close()


def test_topics_that_are_deleted_together_go_after_few_answers() -> None:
    """One after the other, each for ten answers: nobody was elected while the znodes of a thousand went."""
    topics = [f"t{number}" for number in range(80)]
    doomed = [f(each) for each in topics for f in (paths.topic, paths.config_topic, paths.topic_partitions)]
    for topic in topics:
        partition = TopicPartition(topic, 0)
        doomed += [paths.partition(partition), paths.partition_state(partition)]
    ended = [EndedDeletion(topic, TopicId("")) for topic in topics]
    loop = SimLoop()  # type: ignore[abstract]
    try:
        removing = rounds_of(loop, doomed, lambda storage: storage.remove_topics(ended), doomed)
        assert loop.run_until_complete(loop.create_task(removing)) <= 8
    finally:
        loop.close()


def test_requests_that_are_done_are_removed_side_by_side() -> None:
    """One after the other, 200 requests about dead disks kept a controller from everything else for 200 answers."""
    names = [f"req-{number:010}" for number in range(MAX_RESTARTS)]
    znodes = [f"{paths.RESTART_PARTITIONS}/{name}" for name in names]
    loop = SimLoop()  # type: ignore[abstract]
    try:
        removing = rounds_of(loop, znodes, lambda storage: storage.drop_restarts(names), znodes)
        assert loop.run_until_complete(loop.create_task(removing)) == 1
    finally:
        loop.close()


@pytest.mark.checklist(37)
def test_a_controller_is_elected_and_ready_after_few_answers() -> None:
    """Of what it read before it was ready, each kind waited for the one before: eight answers. Before that it was elected after five: it
    read what it had just written."""
    loop = SimLoop()  # type: ignore[abstract]
    try:
        assert loop.run_until_complete(loop.create_task(rounds_of_a_takeover(loop))) == (2, 4)
    finally:
        loop.close()
