"""A cluster for the controller's tests: a ZooKeeper in memory, brokers that only record their commands, controllers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from kafkalite.config import BrokerConfig, TopicConfig, broker_config
from kafkalite.controller.controller import Controller
from kafkalite.coordination import broker_znodes, config_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import Coordinator, Create, SetData
from kafkalite.env.own_time import OwnTime
from kafkalite.env.real import RealClock
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.rpc.greeting import Identity
from kafkalite.rpc.handling import Reply, RpcRequest
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import HeartbeatRequest, HeartbeatResponse
from kafkalite.rpc.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionError,
    PartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kafkalite.rpc.messages.replication import LogEnd, LogEndsRequest, LogEndsResponse
from kafkalite.rpc.server import RpcServer
from kafkalite.testing.simulated.zookeeper import SimZooKeeper
from tests.support.waiting import until

CLUSTER_ID = "test-cluster"


@dataclass
class FakeBroker:
    """Records the commands it gets, in order, and what follows from them."""

    broker_id: BrokerId
    server: RpcServer
    epoch: BrokerEpoch = BrokerEpoch(-1)
    #: What its registration says.
    registered: BrokerEpoch = BrokerEpoch(-1)
    coordinator: Coordinator | None = None
    commands: list[Message] = field(default_factory=list)
    roles: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    metadata: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    brokers: tuple[int, ...] = ()
    controller_epoch: int = 0
    #: What it deletes may have files there.
    has_offline_disk: bool = False
    #: With which it refuses each partition that it is to host; 0: it does not.
    refuses: int = 0
    #: While set, no command is answered.
    hung: asyncio.Event | None = None
    #: While set, no heartbeat is answered.
    silent: asyncio.Event | None = None
    #: How long it takes for each, in seconds.
    heartbeat_s: float = 0
    #: How many it has answered at once.
    heartbeats: int = 0

    def learn_epoch(self) -> None:
        self.epoch = self.registered

    def of(self, kind: type[Message]) -> list[Message]:
        return [command for command in self.commands if isinstance(command, kind)]


class Cluster:
    """Everything runs on the test's loop."""

    def __init__(self, **settings: Any) -> None:
        self.failures: list[BaseException] = []
        self.supervisor = Supervisor(self.failures.append)
        self.zookeeper = SimZooKeeper(random.Random(1), min_latency_s=0, max_latency_s=0)
        self.settings = {
            "zookeeper.session.timeout.ms": 20_000,
            **{k.replace("_", "."): v for k, v in settings.items()},
        }
        self.config: BrokerConfig = broker_config(self.settings)[0]
        self.brokers: dict[int, FakeBroker] = {}
        self.controllers: dict[int, Controller] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.sessions: dict[int, Coordinator] = {}
        self.topic_configs: dict[str, TopicConfig] = {}
        self.cluster_settings: dict[str, str] = {}
        #: broker.state of those that take no new replicas.
        self.broker_states: dict[BrokerId, str] = {}
        self.network = RealNetwork()
        self.disk = RealDisk()
        for path in paths.PERSISTENT:
            self.zookeeper.poke(Create(path))

    async def close(self) -> None:
        await self.supervisor.stop()
        for session in self.sessions.values():
            await session.close()
        for broker in self.brokers.values():
            await broker.server.close()
            if broker.coordinator is not None:
                await broker.coordinator.close()
        self.disk.close()
        assert not self.failures, self.failures

    def env(self, host: str) -> Env:
        return Env(RealClock(), self.network, self.disk, random.Random(2), self.zookeeper.connector(host))

    async def connect(self, host: str) -> Coordinator:
        return await self.zookeeper.connector(host)("zk", self.config.zookeeper_session_timeout_ms)

    # --- brokers ---------------------------------------------------------------------------------------------

    async def start_broker(
        self,
        number: int,
        *,
        log_ends: tuple[LogEnd, ...] | None = None,
        knows_epoch: bool = True,
        missing: Iterable[TopicPartition] = (),
    ) -> FakeBroker:
        """Listen, then register; its earlier registration is gone. Without `log_ends` it does not know that question. Its logs of `missing` are gone.

        Without `knows_epoch` ZooKeeper's answer to the registration has not arrived: `learn_epoch` lets it arrive.
        """
        broker_id = BrokerId(number)
        broker: FakeBroker

        def identity() -> Identity:
            return Identity(CLUSTER_ID, broker_id, broker.epoch)

        handlers: dict[type[Message], Callable[[Any], Any]] = {
            kind: lambda request: self._answer(broker, request)
            for kind in (LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest)
        }
        handlers[HeartbeatRequest] = lambda request: self._heartbeat(broker)
        if log_ends is not None:
            handlers[LogEndsRequest] = lambda request: self._log_ends(broker, log_ends)
        server = RpcServer(
            network=self.network, supervisor=self.supervisor, config=self.config, identity=identity, handlers=handlers
        )
        broker = FakeBroker(broker_id, server)
        endpoint = await server.start("127.0.0.1", 0)
        broker.coordinator = await self.connect(f"broker-{number}")
        value = broker_znodes.BrokerZnode(
            host="127.0.0.1", port=9092, rpc=Endpoint("127.0.0.1", endpoint.port), rack=None, missing=frozenset(missing)
        )
        _, stat = await broker.coordinator.create(
            paths.broker(broker_id), broker_znodes.encode_broker(value), ephemeral=True
        )
        broker.registered = BrokerEpoch(stat.czxid)
        if knows_epoch:
            broker.learn_epoch()
        self.brokers[number] = broker
        return broker

    def _answer(self, broker: FakeBroker, request: RpcRequest) -> object:
        if broker.hung is not None:
            return self._answer_later(broker, request, broker.hung)
        return Reply(self._apply(broker, request.message))

    def _log_ends(self, broker: FakeBroker, ends: tuple[LogEnd, ...]) -> object:
        if broker.hung is None:
            return Reply(LogEndsResponse(ends))

        async def later(hung: asyncio.Event) -> Reply:
            await hung.wait()
            return Reply(LogEndsResponse(ends))

        return later(broker.hung)

    def _heartbeat(self, broker: FakeBroker) -> object:
        if broker.silent is None and broker.heartbeat_s:
            return self._heartbeat_later(broker.heartbeat_s)
        if broker.silent is None:
            broker.heartbeats += 1
            return Reply(HeartbeatResponse())

        async def later(silent: asyncio.Event) -> Reply:
            await silent.wait()
            return Reply(HeartbeatResponse())

        return later(broker.silent)

    async def _heartbeat_later(self, delay_s: float) -> Reply:
        await asyncio.sleep(delay_s)
        return Reply(HeartbeatResponse())

    async def _answer_later(self, broker: FakeBroker, request: RpcRequest, hung: asyncio.Event) -> Reply:
        await hung.wait()
        return Reply(self._apply(broker, request.message))

    def _apply(self, broker: FakeBroker, command: Message) -> Message:
        assert isinstance(command, LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest)
        broker.commands.append(command)
        code = 0
        if command.controller_epoch < broker.controller_epoch:
            code = 11
        elif command.broker_epoch != broker.epoch:
            code = 77
        else:
            broker.controller_epoch = command.controller_epoch
        match command:
            case LeaderAndIsrRequest():
                if not code:
                    if command.is_init:
                        broker.roles.clear()
                    for entry in command.partitions:
                        partition = TopicPartition(entry.topic, entry.partition)
                        known = broker.roles.get(partition)
                        if known is None or known.leader_epoch < entry.leader_epoch:
                            broker.roles[partition] = entry
                refused = command.partitions if broker.refuses else ()
                return LeaderAndIsrResponse(
                    code, tuple(PartitionError(each.topic, each.partition, broker.refuses) for each in refused)
                )
            case StopReplicaRequest():
                if not code:
                    for stop in command.partitions:
                        broker.roles.pop(TopicPartition(stop.topic, stop.partition), None)
                away = [(stop.topic, stop.partition) for stop in command.partitions] if broker.has_offline_disk else []
                return StopReplicaResponse(code, away=tuple(away))
            case UpdateMetadataRequest():
                if not code:
                    if command.is_full:
                        broker.metadata.clear()
                    for topic, number in command.deleted_partitions:
                        broker.metadata.pop(TopicPartition(topic, number), None)
                    for name in command.deleted_topics:
                        for partition in [each for each in broker.metadata if each.topic == name]:
                            del broker.metadata[partition]
                    for entry in command.partitions:
                        broker.metadata[TopicPartition(entry.topic, entry.partition)] = entry
                    broker.brokers = tuple(each.broker_id for each in command.brokers)
                return UpdateMetadataResponse(code, ControllerEpoch(broker.controller_epoch))

    async def stop_broker(self, number: int) -> None:
        """Its session ends and its listener closes (a crash, as others see it once the session is over)."""
        broker = self.brokers.pop(number)
        self.zookeeper.expire(f"broker-{number}")
        assert broker.coordinator is not None
        await broker.coordinator.close()
        await broker.server.close()

    # --- controllers -----------------------------------------------------------------------------------------

    async def start_controller(
        self, number: int, dead_sessions: Container[int] = (), last_heard: tuple[BrokerId, float] | None = None
    ) -> Controller:
        host = f"controller-{number}"
        own_time = OwnTime(RealClock())
        self.supervisor.spawn(f"{host}.own_time", own_time.run())
        local = LocalBroker(BrokerId(number))
        local.cluster_id, local.broker_epoch = CLUSTER_ID, BrokerEpoch(1)
        controller = Controller(
            config=self.config,
            env=self.env(host),
            own_time=own_time,
            supervisor=self.supervisor,
            local=local,
            topic_config=lambda name: self.topic_configs.get(name, TopicConfig()),
            cluster_settings=lambda: self.cluster_settings,
            broker_states=lambda: self.broker_states,
            live_config=lambda: self.config,
            dead_sessions=lambda: dead_sessions,
            last_heard=lambda: last_heard,
        )
        self.controllers[number] = controller
        session = await self.connect(host)
        self.sessions[number] = session
        self.tasks[number] = self.supervisor.spawn(host, controller.run_session(session))
        return controller

    async def stop_controller(self, number: int) -> None:
        """As a crash, once the session is over."""
        self.tasks.pop(number).cancel()
        self.zookeeper.expire(f"controller-{number}")
        await self.sessions.pop(number).close()
        self.controllers.pop(number)

    # --- topics ----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, assignment: dict[int, tuple[int, ...]], topic_id: str = "") -> None:
        """As an order does: assignment and settings; no states."""
        value = topic_znodes.TopicZnode(TopicId(topic_id or f"id-{name}"), assignment)  # type: ignore[arg-type]
        self.zookeeper.poke(
            Create(paths.topic(name), topic_znodes.encode_topic(value)),
            Create(paths.config_topic(name), config_znodes.encode_config({})),
        )

    def put_state(self, partition: TopicPartition, leader: int, isr: tuple[int, ...], leader_epoch: int = 0) -> None:
        """Write a state behind the controller's back, making the znode if need be."""
        state = LeaderAndIsr(
            BrokerId(leader),
            LeaderEpoch(leader_epoch),
            tuple(map(BrokerId, isr)),
            ControllerEpoch(0),
            PartitionEpoch(0),
        )
        path = paths.partition_state(partition)
        if self.zookeeper.peek(path) is not None:
            self.zookeeper.poke(SetData(path, topic_znodes.encode_partition_state(state)))
            return
        for parent in (paths.topic_partitions(partition.topic), paths.partition(partition)):
            if self.zookeeper.peek(parent) is None:
                self.zookeeper.poke(Create(parent))
        self.zookeeper.poke(Create(path, topic_znodes.encode_partition_state(state)))

    def state(self, partition: TopicPartition) -> LeaderAndIsr | None:
        path = paths.partition_state(partition)
        found = self.zookeeper.peek(path)
        return None if found is None else topic_znodes.decode_partition_state(found[0], found[1].version, path)

    def leader_and_isr(self, topic: str, partition: int = 0) -> tuple[int, tuple[int, ...], int] | None:
        state = self.state(TopicPartition(topic, partition))
        return None if state is None else (state.leader, state.isr, state.leader_epoch)


def resignations(controller: Controller) -> int:
    """How often it has resigned, as `admin history` shows it."""
    return sum(event.what == "controller.resigned" for event in controller.history.of(""))


async def running(cluster: Cluster, brokers: int = 3) -> None:
    """Brokers 1 to `brokers`, and a controller on 1 that has told them of each other."""
    for number in range(1, brokers + 1):
        await cluster.start_broker(number)
    controller = await cluster.start_controller(1)
    everyone = tuple(sorted(cluster.brokers))
    await until(lambda: controller.is_active and all(b.brokers == everyone for b in cluster.brokers.values()))
