"""The node as a member of its cluster: what it does in each ZooKeeper session, and its registration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from kafkalite import __version__
from kafkalite.config import advertised_rpc, console_url, kafka_listeners
from kafkalite.controller.controller import Controller
from kafkalite.coordination import registration
from kafkalite.coordination.broker_znodes import DOUBTFUL_BYTES, BrokerZnode, with_room
from kafkalite.coordination.coordinator import Coordinator, CoordinatorError, NotSentError
from kafkalite.coordination.retry import side_by_side
from kafkalite.coordination.session import SessionKeeper
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.seams import Clock
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.features import registered
from kafkalite.listeners import kafka_endpoints
from kafkalite.log.log_manager import LogManager
from kafkalite.model import TRANSACTION_VERSION, BrokerId, Endpoint, ListenerAddress, TopicPartition
from kafkalite.node.earlier_sessions import EarlierSessions
from kafkalite.node.seen_brokers import SeenBrokers
from kafkalite.node.settings import CurrentSettings
from kafkalite.node.zookeeper_health import ZooKeeperHealth
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

T = TypeVar("T")

#: Minimum delay between re-registrations.
_REGISTER_AGAIN_S = 1.0
_START_RETRY_S = 0.2
#: What was read at the start of the node needs only the changes since then, if it is not older than this. Far less than the life of
#: their notifications (`coordination.notifications`).
_LOAD_HOLDS_S = 60.0
#: A node does not wait longer for ZooKeeper when it stops.
_RECORD_STOP_S = 3.0


class Followed(Protocol):
    """What is read from ZooKeeper in each session, and then kept up to date."""

    async def load(self, coordinator: Coordinator) -> None: ...

    async def follow(self, coordinator: Coordinator) -> None: ...

    async def catch_up(self, coordinator: Coordinator) -> None: ...


class ClusterMembership:
    """The node registers when its listeners are bound; then it runs for the election of the controller.

    Args:
        followed: settings, rights, tokens; loaded before the registration.
        endpoints: where the node listens.
    """

    def __init__(
        self,
        *,
        local: LocalBroker,
        settings: CurrentSettings,
        clock: Clock,
        supervisor: Supervisor,
        session: SessionKeeper,
        zookeeper: ZooKeeperHealth,
        sessions: EarlierSessions,
        seen: SeenBrokers,
        followed: Sequence[Followed],
        logs: LogManager,
        replicas: ReplicaManager,
        controller: Controller,
        endpoints: Mapping[str, Endpoint],
    ) -> None:
        self._local = local
        self._settings = settings
        self._clock = clock
        self._supervisor = supervisor
        self._session = session
        self._zookeeper = zookeeper
        self.sessions = sessions
        self._seen = seen
        self._followed = followed
        self._logs = logs
        self._replicas = replicas
        self._controller = controller
        self._endpoints = endpoints
        self._introducing = asyncio.Lock()
        self._introduced: Coordinator | None = None
        #: In which session, and when (time of the loop), what is followed was read.
        self._loaded: tuple[Coordinator | None, float] = (None, 0.0)
        self._candidacy: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read what is followed, before there is a registration."""
        await self.in_session(self._load_followed)

    async def _load_followed(self, coordinator: Coordinator) -> None:
        # None of them needs another one, and on a host without a free processor each answer of ZooKeeper takes a second.
        began = asyncio.get_running_loop().time()
        async with side_by_side() as group:
            for each in self._followed:
                group.create_task(each.load(coordinator))
        self._loaded = coordinator, began

    async def in_session(self, action: Callable[[Coordinator], Awaitable[T]]) -> T:
        """Run `action` in the present session, and again in the next one if that ends meanwhile."""
        while True:
            coordinator = await self._session.wait()
            try:
                return await action(coordinator)
            except CoordinatorError as error:
                _log.info("node.start_retries", error=repr(error))
                await asyncio.sleep(_START_RETRY_S)

    async def introduce(self, coordinator: Coordinator) -> None:
        """Make a new session ours: settings, registration, candidacy. Safe to repeat for the same session."""
        async with self._introducing:
            if self._introduced is coordinator:
                return
            unknown = await self._prepare(coordinator)
            await registration.remember_brokers(coordinator, unknown)
            missing = await self._replicas.session_roles.find_missing_logs(
                coordinator, is_start=self._introduced is None
            )
            epoch = await registration.register_broker(
                coordinator,
                self._local.broker_id,
                self._description(missing),
                session_timeout_ms=self._settings.now.zookeeper_session_timeout_ms,
                dead_sessions=self.sessions.ids(),
            )
            self._local.broker_epoch = epoch
            # Before it leads: from here on a copy of its directories that is older is behind.
            record = self._record_start if self._introduced is None else None
            if self._introduced is not None or not self._logs.pool.unclean_start:
                await self._replicas.session_roles.on_session(coordinator, record)  # docs/adr/0008
            elif record is not None:
                await record(coordinator)
            self._introduced = coordinator
            self.sessions.add(coordinator.session_id)
            _log.info("node.registered", broker_epoch=epoch, session=f"{coordinator.session_id:x}")
            self._supervisor.spawn("registration.guard", self._guard_registration(coordinator))
            for each in self._followed:
                self._supervisor.spawn(f"{type(each).__name__}.follow", each.follow(coordinator))
            self._candidacy = self._supervisor.spawn("controller.session", self._controller.run_session(coordinator))

    async def _prepare(self, coordinator: Coordinator) -> list[BrokerId]:
        """What comes before the first write: this is our ZooKeeper, and what is followed is known. The brokers that it has not heard of."""
        holds_data = not self._logs.opening.holds_nothing()
        until_ours = self._zookeeper.until_ours(coordinator, self._local.cluster_id, holds_data=holds_data)
        session, at = self._loaded
        if session is coordinator and asyncio.get_running_loop().time() - at < _LOAD_HOLDS_S:
            # The start has read this cluster's id and what is followed in this very session: each of these only looks for changes.
            async with side_by_side() as group:
                ours = group.create_task(until_ours)
                unknown = group.create_task(registration.unknown_brokers(coordinator, self._seen.ids))
                for each in self._followed:
                    group.create_task(each.catch_up(coordinator))
            if ours.result():
                return unknown.result()
        else:
            await until_ours
        await self._load_followed(coordinator)
        return await registration.unknown_brokers(coordinator, self._seen.ids)

    async def _guard_registration(self, coordinator: Coordinator) -> None:
        """A registration that was removed or overwritten from outside is created again, in a new session: the cluster
        takes this node for one that has restarted, which is what it looks like from outside."""
        reason = await registration.until_spoilt(coordinator, self._local.broker_id)
        if reason:
            _log.error("registration.spoilt", reason=reason)
            await asyncio.sleep(_REGISTER_AGAIN_S)
            await coordinator.close()

    def settings_changed(self) -> None:
        """advertised.listeners or cordoned.log.dirs: the controller hears of it by its watch, and informs all nodes."""
        if self._introduced is not None:
            self._supervisor.spawn("registration.change", self._change_registration(self._introduced), Policy.ISOLATED)

    async def _change_registration(self, coordinator: Coordinator) -> None:
        one, addresses = self._addresses()
        endpoints = tuple(map(str, addresses))

        def changed(broker: BrokerZnode) -> BrokerZnode:
            is_cordoned = self._logs.pool.is_cordoned
            return replace(broker, host=one.host, port=one.port, endpoints=endpoints, is_cordoned=is_cordoned)

        try:
            if await registration.change_registration(coordinator, self._local.broker_id, changed):
                is_cordoned = self._logs.pool.is_cordoned
                _log.info("node.registration_changed", addresses=",".join(endpoints), is_cordoned=is_cordoned)
        except (CoordinatorError, ZnodeError) as error:
            _log.warning("node.registration_not_changed", error=repr(error))

    def _addresses(self) -> tuple[ListenerAddress, list[ListenerAddress]]:
        """What clients get: one for readers that know a single address, and that of each listener."""
        listeners = kafka_listeners(self._settings.now)
        bound = [self._endpoints[name].port for name in kafka_endpoints(listeners)]
        addresses = [each.address(port) for each, port in zip(listeners, bound, strict=True)]
        # Kafka's rule: the first one in plain text.
        one = next(
            (a for a, each in zip(addresses, listeners, strict=True) if each.protocol == "PLAINTEXT"), addresses[0]
        )
        return one, addresses

    def _description(self, missing: frozenset[TopicPartition]) -> BrokerZnode:
        kafka, addresses = self._addresses()
        return BrokerZnode(
            host=kafka.host,
            port=kafka.port,
            endpoints=tuple(map(str, addresses)),
            protocols={each.name: each.protocol for each in kafka_listeners(self._settings.now)},
            rpc=advertised_rpc(self._settings.now, self._endpoints["rpc"].port),
            rack=self._settings.now.broker_rack or None,
            timestamp_ms=self._clock.wall_ms(),
            is_empty=self._logs.opening.holds_nothing(),
            missing=frozenset() if self._logs.opening.holds_nothing() else missing,
            doubtful=with_room(self._logs.pool.doubtful(), DOUBTFUL_BYTES),
            keeps_elr=True,
            transaction_version=TRANSACTION_VERSION,
            features=registered(),
            http=console_url(self._settings.now, self._endpoints["http"].port) if "http" in self._endpoints else "",
            is_cordoned=self._logs.pool.is_cordoned,
            release=__version__,
        )

    async def _record_start(self, coordinator: Coordinator) -> None:
        await registration.record_starts(coordinator, self._local.broker_id, self._logs.opening.start_number)

    async def record_stop(self, number: int) -> bool:
        """Count a clean stop as a start: a copy of a directory that was made before it is older. Returns whether ZooKeeper has it."""
        coordinator = self._session.current
        if coordinator is None or not self._session.usable():
            return False
        try:
            async with asyncio.timeout(_RECORD_STOP_S):
                await registration.record_starts(coordinator, self._local.broker_id, number)
        except (CoordinatorError, TimeoutError) as error:
            _log.warning("node.stop_not_recorded", error=repr(error))
            return False
        return True

    async def resign_controller(self) -> None:
        """Run for election no more; resign, if this node is the controller."""
        if self._candidacy is not None:
            self._candidacy.cancel()
            await asyncio.wait([self._candidacy])
        await self._controller.resign()

    async def reserve_producer_ids(self) -> tuple[int, int]:
        """A block of producer ids, reserved in ZooKeeper: (first, how many). Raises CoordinatorError."""
        current = self._session.current
        if current is None:
            raise NotSentError("no session with ZooKeeper")
        if away := self._zookeeper.away():
            raise NotSentError(away)
        block = await registration.allocate_producer_ids(current, self._local.broker_id, self._clock.wall_ms())
        return block.first, block.last - block.first + 1
