"""Nodes that consist of a ReplicaManager and an RPC server on loopback; the test plays the controller."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kafkalite.config import BrokerConfig, TopicConfig, broker_config
from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Create, SetData
from kafkalite.coordination.session import SessionKeeper
from kafkalite.coordination.topic_znodes import TopicZnode, decode_partition_state, encode_partition_state, encode_topic
from kafkalite.env.real import RealClock
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import StorageError
from kafkalite.log.log_manager import LogManager
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.partition_values import FetchedPartition, ProducedPartition
from kafkalite.replica.client_fetch import ClientFetch, FetchTerms
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.replica.rpc_handlers import handlers
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.control import (
    Broker,
    IsrChange,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionState,
    StopPartition,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kafkalite.rpc.server import RpcServer
from kafkalite.testing.simulated.zookeeper import SimZooKeeper
from tests.support.fetching import answered, fetched
from tests.support.logs import build_batch
from tests.support.waiting import until

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
TOPIC_ID = TopicId("t0t0t0t0t0t0t0t0t0t0t0")


class NotingManager(ReplicaManager):
    """Notes the errors that took replicas offline."""

    def __init__(self, errors: list[StorageError], **arguments: Any) -> None:
        self._errors = errors
        super().__init__(**arguments)

    def replica_offline(self, partition: Partition, error: StorageError) -> None:
        self._errors.append(error)
        super().replica_offline(partition, error)


class NoHealing:
    """Nobody recreates replicas."""

    def report(self, topic_partition: TopicPartition, *, online: bool) -> None:
        return

    def schedule(self) -> None:
        return


@dataclass
class TestNode:
    """One broker."""

    __test__ = False

    broker_id: BrokerId
    directory: Path
    config: BrokerConfig
    zookeeper: SimZooKeeper
    seed: int = 0
    changes: list[IsrChange] = field(default_factory=list)
    storage_errors: list[StorageError] = field(default_factory=list)
    fatal: list[BaseException] = field(default_factory=list)
    topic_overrides: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.local = LocalBroker(self.broker_id)
        self.local.cluster_id, self.local.broker_epoch = CLUSTER_ID, BrokerEpoch(0)

    @property
    def broker_epoch(self) -> BrokerEpoch:
        return self.local.broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, epoch: BrokerEpoch) -> None:
        self.local.broker_epoch = epoch

    @property
    def now(self) -> BrokerConfig:
        """As settings: what holds for the node."""
        return self.config

    def topic_config(self, topic: str) -> TopicConfig:
        return replace(self.config.topic, **self.topic_overrides)

    def notify_isr(self, changes: Sequence[IsrChange]) -> None:
        """As the way to the controller."""
        self.changes.extend(changes)

    async def start(self) -> None:
        network = RealNetwork(self.fatal.append)
        self.disk = RealDisk()
        clock = RealClock()
        connector = self.zookeeper.connector(f"node{self.broker_id}")
        self.env = Env(clock, network, self.disk, random.Random(self.seed), connector)
        self.supervisor = Supervisor(self.fatal.append)
        self.session = SessionKeeper(self.env, "sim", self.config.zookeeper_session_timeout_ms)
        self.supervisor.spawn("session", self.session.run())
        await self.session.wait()
        self.metadata = MetadataCache()
        self.logs = LogManager(
            self.config,
            self.disk,
            clock,
            supervisor=self.supervisor,
        )
        await self.logs.opening.start(CLUSTER_ID, self.broker_id, {})
        self.manager = NotingManager(
            self.storage_errors,
            settings=self,
            env=self.env,
            supervisor=self.supervisor,
            logs=self.logs,
            session=self.session,
            local=self.local,
            metadata=self.metadata,
            controller=self,
            healing=NoHealing(),
        )
        await self.manager.session_roles.find_missing_logs(await self.session.wait(), is_start=True)
        self.session.on_lost(self.manager.session_roles.on_session_lost)
        self.server = RpcServer(
            network=network,
            supervisor=self.supervisor,
            config=self.config,
            identity=self.local.greeting,
            handlers=handlers(self.manager),
        )
        self.endpoint: Endpoint = await self.server.start("127.0.0.1", 0)
        self.manager.start()

    async def stop(self) -> None:
        await self.manager.stop()
        await self.server.close()
        await self.logs.close()
        await self.session.close()
        await self.supervisor.stop()
        self.disk.close()
        assert not self.fatal, self.fatal

    # --- what tests ask ------------------------------------------------------------------------

    def partition(self, tp: TopicPartition):
        found = self.manager.hosted.get(tp)
        assert found is not None, f"{tp} is not hosted by {self.broker_id}"
        return found

    async def produce(
        self, tp: TopicPartition, *values: bytes, acks: int = -1, timeout_ms: int = 60_000, batch: bytes | None = None
    ) -> ProducedPartition:
        answer: asyncio.Future[tuple[ProducedPartition, ...]] = asyncio.get_running_loop().create_future()
        records = batch or build_batch([(None, value) for value in values])
        self.manager.producing.produce(acks, timeout_ms, [(tp, records)], answer.set_result)
        return (await answer)[0]

    async def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_wait_ms: int = 0,
        reads_followers: bool = False,
        leader_epoch: int = -1,
    ) -> tuple[FetchedPartition, bytes]:
        answer: asyncio.Future[tuple[FetchedPartition, bytes]] = asyncio.get_running_loop().create_future()
        fetch = ClientFetch()
        fetch.reads_followers = reads_followers
        entry = fetch.list(tp, Offset(offset), 1 << 20, LeaderEpoch(leader_epoch))

        done = answered(lambda: answer.set_result(fetched(entry)))
        self.manager.consuming.fetch(fetch, FetchTerms(max_wait_ms, 1, 1 << 20), done)
        return await answer


#: For tests of followers that fall behind, and of leaders without ZooKeeper.
QUICK = {"replica.lag.time.max.ms": 3_000, "zookeeper.session.timeout.ms": 2_500}


class TestCluster:
    """Nodes 1..n and the znodes that a controller would keep."""

    __test__ = False

    def __init__(self, directory: Path, count: int, **overrides: Any) -> None:
        self.directory = directory
        self.zookeeper = SimZooKeeper(random.Random(1))
        settings = {
            # Long enough that a machine that stands still fences no node in the middle of a test.
            "replica.lag.time.max.ms": 25_000,
            "zookeeper.session.timeout.ms": 20_000,
            "replica.fetch.wait.max.ms": 200,
            "replica.fetch.backoff.ms": 100,
        } | overrides
        self.nodes: dict[int, TestNode] = {}
        for number in range(1, count + 1):
            log_dir = directory / f"node{number}"
            log_dir.mkdir(parents=True, exist_ok=True)
            config, _ = broker_config({"broker.id": number, "log.dirs": str(log_dir), **settings})
            node = TestNode(BrokerId(number), log_dir, config, self.zookeeper, seed=number)
            node.broker_epoch = BrokerEpoch(1000 + number)
            self.nodes[number] = node
        self.controller_epoch = ControllerEpoch(1)

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.stop()

    def node(self, number: int) -> TestNode:
        return self.nodes[number]

    def brokers(self) -> tuple[Broker, ...]:
        return tuple(
            Broker(node.broker_id, node.broker_epoch, "127.0.0.1", 0, node.endpoint.host, node.endpoint.port)
            for node in self.nodes.values()
        )

    def create_topic(self, topic: str, assignment: dict[int, tuple[int, ...]], topic_id: TopicId = TOPIC_ID) -> None:
        znode = TopicZnode(topic_id, {p: tuple(map(BrokerId, replicas)) for p, replicas in assignment.items()})
        if self.zookeeper.peek(paths.TOPICS) is None:
            self.zookeeper.poke(Create("/brokers"), Create(paths.TOPICS), Create(paths.BROKER_IDS))
        self.zookeeper.poke(Create(paths.topic(topic), encode_topic(znode)), Create(paths.topic_partitions(topic), b""))
        for partition in assignment:
            tp = TopicPartition(topic, partition)
            self.zookeeper.poke(Create(paths.partition(tp)))

    def state(self, tp: TopicPartition) -> LeaderAndIsr:
        """As the znode has it now."""
        node = self.zookeeper.peek(paths.partition_state(tp))
        assert node is not None
        return decode_partition_state(node[0], node[1].version)

    def decide(
        self,
        tp: TopicPartition,
        *,
        leader: int,
        isr: tuple[int, ...],
        epoch: int,
        replicas: tuple[int, ...] = (),
        topic_id: TopicId = TOPIC_ID,
    ) -> PartitionState:
        """Write the state znode as a controller would; returns what is to be commanded."""
        members = tuple(map(BrokerId, isr))
        state = LeaderAndIsr(BrokerId(leader), LeaderEpoch(epoch), members, self.controller_epoch, PartitionEpoch(0))
        path = paths.partition_state(tp)
        if self.zookeeper.peek(paths.partition(tp)) is None:
            self.zookeeper.poke(Create(paths.partition(tp)))
        if self.zookeeper.peek(path) is None:
            self.zookeeper.poke(Create(path, encode_partition_state(state)))
        else:
            self.zookeeper.poke(SetData(path, encode_partition_state(state)))
        return PartitionState(
            tp.topic,
            tp.partition,
            topic_id,
            self.controller_epoch,
            state.leader,
            state.leader_epoch,
            members,
            self.state(tp).partition_epoch,
            tuple(map(BrokerId, replicas or isr)),
        )

    async def command(
        self, number: int, *states: PartitionState, is_init: bool = False, **changes: Any
    ) -> LeaderAndIsrResponse:
        node = self.nodes[number]
        request = LeaderAndIsrRequest(
            BrokerId(99), self.controller_epoch, node.broker_epoch, is_init, states, self.brokers()
        )
        return await node.manager.commands.leader_and_isr(replace(request, **changes))

    async def command_all(self, *states: PartitionState) -> None:
        for number in sorted({int(replica) for state in states for replica in state.replicas}):
            answer = await self.command(number, *[state for state in states if number in state.replicas])
            assert answer.error == 0 and not answer.partitions, answer

    async def stop_replica(
        self, number: int, tp: TopicPartition, *, epoch: int, delete: bool, **changes: Any
    ) -> StopReplicaResponse:
        node = self.nodes[number]
        stop = StopPartition(tp.topic, tp.partition, TOPIC_ID, LeaderEpoch(epoch), delete)
        request = StopReplicaRequest(BrokerId(99), self.controller_epoch, node.broker_epoch, (stop,))
        return await node.manager.commands.stop_replica(replace(request, **changes))


@pytest.fixture
async def make_cluster(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[TestCluster]]]:
    clusters: list[TestCluster] = []

    async def make(count: int = 3, **overrides: Any) -> TestCluster:
        cluster = TestCluster(tmp_path / f"cluster{len(clusters)}", count, **overrides)
        clusters.append(cluster)
        await cluster.start()
        return cluster

    yield make
    for cluster in clusters:
        await cluster.stop()


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., Awaitable[None]]:
    return until
