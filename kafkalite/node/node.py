"""The composition root: one node, from its configuration and its environment to a clean stop.

Start: session, cluster id, logs, listeners, registration, candidacy. The node registers when its listeners are bound
(controller design E.5), so that readers of the registration can reach it; it never resumes a leadership on its own (docs/adr/0008). The stop
goes the other way round: leaders move away while everything still serves, the session ends last.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkalite.admin.acls import AclManager
from kafkalite.admin.brokers import BrokerAdmin
from kafkalite.admin.configs import ConfigAdmin, unusable_setting
from kafkalite.admin.disk_balancing import DiskBalancing
from kafkalite.admin.disk_healing import ReplicaSelfHealing, disk_problems
from kafkalite.admin.log_dirs import LogDirAdmin
from kafkalite.admin.partitions import PartitionAdmin
from kafkalite.admin.reassignments import ReassignmentAdmin
from kafkalite.admin.tokens import TokenAdmin
from kafkalite.admin.topic_requests import TopicRequests
from kafkalite.admin.topics import TopicAdmin
from kafkalite.config import (
    BrokerConfig,
    TopicConfig,
    advertised_rpc,
    console_url,
    http_names,
    inter_broker_listener,
    internal_topic_config,
    is_secured,
    kafka_listeners,
    usable_topic_config,
    with_dynamic,
)
from kafkalite.controller.client import ControllerClient
from kafkalite.controller.controller import Controller
from kafkalite.controller.controller_failure_detector import ControllerFailureDetector
from kafkalite.coordination import paths, registration
from kafkalite.coordination.broker_states import closed_among
from kafkalite.coordination.broker_znodes import DOUBTFUL_BYTES, BrokerZnode, with_room
from kafkalite.coordination.coordinator import Coordinator, CoordinatorError, NotSentError
from kafkalite.coordination.session import SessionKeeper
from kafkalite.coordination.topic_configs import BROKERS, CLIENTS, IPS, TOPICS, USERS, TopicConfigs
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.coordinators.draining import Draining
from kafkalite.coordinators.producer_ids import ProducerIds
from kafkalite.env import Env
from kafkalite.env.loop_times import SHOWN_FROM_S, LoopTimes
from kafkalite.env.own_time import OwnTime
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import CannotListen, ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.watching import HealthProblem, HistoryEvent
from kafkalite.features import registered
from kafkalite.http.authentication import HttpAuthenticator
from kafkalite.http.console.pages import POSTS, ConsolePages
from kafkalite.http.overview import Overview
from kafkalite.http.peers import Peers
from kafkalite.http.sampling import Sampler
from kafkalite.http.schemas import SchemaPages
from kafkalite.http.server import HttpServer
from kafkalite.http.status import StatusPages
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.kafka.forwarded import Forwarded
from kafkalite.listeners import kafka_endpoints
from kafkalite.log.log_manager import LogManager
from kafkalite.model import (
    INTERNAL_TOPICS,
    NO_BROKER_EPOCH,
    TRANSACTION_VERSION,
    BrokerEpoch,
    BrokerId,
    Endpoint,
    ListenerAddress,
    ProducerId,
    TopicPartition,
)
from kafkalite.node.extension_handlers import NodeExtension
from kafkalite.node.history_file import HistoryFile
from kafkalite.node.kafka_services import NodeServices
from kafkalite.node.rpc_requests import RpcRequests
from kafkalite.node.znode_acl_check import ZnodeAclCheck
from kafkalite.node.zookeeper_health import ZooKeeperHealth
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.greeting import Identity
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.control import ControlledShutdownRequest, IsrChangedRequest
from kafkalite.rpc.server import RpcServer
from kafkalite.schemas.coordinator import SchemaRegistry
from kafkalite.security.posture import posture
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.security.node_security import NodeSecurity

_log = get_logger(__name__)

T = TypeVar("T")

#: The last sessions of this node, in its first log directory: the holder of the directory's lock may remove the
#: registration that a killed process left behind, instead of waiting for its session to end.
_SESSIONS_FILE = "kafkalite-sessions.json"
_SESSIONS_KEPT = 8
#: Minimum delay between re-registrations.
_REGISTER_AGAIN_S = 1.0
_START_RETRY_S = 0.2
#: Time limit of each step of a stop.
_STOP_STEP_S = 15.0


class Node:
    """One node. `await run()` returns after `stop()`; it raises what made the node unable to go on.

    Attributes:
        ready: set when the node serves.
        endpoints: "kafka", "rpc", "http" -> where it listens; filled when ready. "kafka" is the first Kafka listener, the
            others are "kafka.NAME".
        stopping: whether `stop` was called.
    """

    def __init__(self, config: BrokerConfig, env: Env) -> None:
        #: As it is now; `static_config` is without what was changed since the start.
        self.config = config
        self.static_config = config
        self.security = self._secure(config, env)
        #: With the network of a client of the other nodes' RPC listeners.
        self.env = env
        self.peer_env = self._peer_env(env)
        self.ready = asyncio.Event()
        self.stopping = False
        self.endpoints: dict[str, Endpoint] = {}
        self.broker_id = BrokerId(config.broker_id)
        self.broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
        self.cluster_id = ""
        self.auto_create_topics = config.auto_create_topics_enable
        self._stop = asyncio.Event()
        self._fatal: BaseException | None = None
        self._link_connection: RpcConnection | None = None
        self._dead_sessions: frozenset[int] = frozenset()
        #: Path of settings -> which of them cannot be used. For `admin health`.
        self._unusable: dict[str, str] = {}
        #: Whether internal topics flush before they acknowledge because another topic does.
        self._internal_topics_flush = False
        self._introducing = asyncio.Lock()
        self._introduced: Coordinator | None = None
        self._candidacy: asyncio.Task[None] | None = None
        self.started_ms = env.clock.wall_ms()
        self._exposures = posture(config).exposures
        self._build()

    # --- parts -----------------------------------------------------------------

    def _secure(self, config: BrokerConfig, env: Env) -> NodeSecurity | None:
        """None: plain text everywhere; nothing of it is loaded then. Raises ConfigError."""
        if not is_secured(config):
            return None
        from kafkalite.coordination.scram_users import credential
        from kafkalite.security.node_security import NodeSecurity

        return NodeSecurity(
            config,
            entropy=env.entropy,
            now=env.clock.monotonic,
            credentials=lambda mechanism, user: credential(self.configs.user(user), mechanism),
            wall=lambda: env.clock.wall_ms() / 1000,
            delegated=lambda mechanism, token_id: self.tokens.delegated(mechanism, token_id),
        )

    def _peer_env(self, env: Env) -> Env:
        if self.security is None:
            return env
        from kafkalite.rpc.authenticated import AuthenticatedNetwork

        return dataclasses.replace(env, network=AuthenticatedNetwork(env.network, self.security.to_rpc, env.entropy))

    def _build(self) -> None:
        """The parts, each after those that it uses."""
        self._build_state()
        self._build_admin()
        self._build_listeners()

    def _build_state(self) -> None:
        """The session, what is read from ZooKeeper, the logs, the replicas, the controller."""
        config, env, peer_env = self.config, self.env, self.peer_env
        self.supervisor = Supervisor(self._on_fatal)
        self._own_time = OwnTime(env.clock)
        self.loop_times = LoopTimes(env.clock)
        self.session = SessionKeeper(env, config.zookeeper_connect, config.zookeeper_session_timeout_ms)
        self.zookeeper = ZooKeeperHealth(self.session, env.clock)
        self.znode_acls = ZnodeAclCheck(self.session, env.clock) if config.zookeeper_set_acl else None
        nodes = self.security.principals if self.security is not None else ()
        self.rights = AclManager(config, env.clock, self.zookeeper.ordering, nodes)
        self.tokens = TokenAdmin(
            config,
            env.clock,
            self.zookeeper.ordering,
            env.entropy,
            is_controller=lambda: self.metadata.controller_id == self.broker_id,
            on_gone=self._token_gone,
        )
        self.configs = TopicConfigs(self._config_changed, env.clock.monotonic)
        self.metadata = MetadataCache()
        self.disk_care = ReplicaSelfHealing(self.session, self.broker_id, env.clock.monotonic)
        self.logs = LogManager(
            config,
            env.disk,
            env.clock,
            supervisor=self.supervisor,
            own_time=self._own_time,
            handle_capacity=env.log_files,
        )
        self.link = ControllerClient(self._call_controller, self.identity)
        self.replicas = ReplicaManager(
            config=config,
            env=peer_env,
            supervisor=self.supervisor,
            logs=self.logs,
            session=self.session,
            topic_configs=self.topic_config,
            identity=self.identity,
            cluster_id=lambda: self.cluster_id,
            metadata=self.metadata,
            notify_isr=self.link.notify_isr,
            healing=self.disk_care,
        )
        self.controller = Controller(
            config=config,
            env=peer_env,
            own_time=self._own_time,
            supervisor=self.supervisor,
            identity=self.identity,
            cluster_id=lambda: self.cluster_id,
            topic_config=self.topic_config,
            cluster_settings=lambda: self.configs.broker(None),
            broker_states=self.broker_states,
            live_config=lambda: self.config,
            dead_sessions=lambda: self._dead_sessions,
        )
        self.history_file = HistoryFile(
            {"replica": self.replicas.hosted.history, "controller": self.controller.history}, self.logs, env.disk
        )

    def _build_admin(self) -> None:
        """What administrators may ask of any node."""
        env = self.env
        self.disks = LogDirAdmin(
            self.logs,
            env.disk,
            self.disk_care,
            self.replicas,
            broker_id=self.broker_id,
            cluster_id=lambda: self.cluster_id,
            topic_configs=self.configs.topics,
        )
        self.disk_balancing = DiskBalancing(lambda: self.config, self.logs, env.disk, self.replicas.hosted.history)
        orders = TopicAdmin(self.zookeeper.ordering, lambda: self.config, env.random, self.configs.topic)
        self.orders = TopicRequests(orders, self.metadata)
        self.partition_admin = PartitionAdmin(orders, lambda: self.config, env.random)
        self.reassignment_admin = ReassignmentAdmin(orders)
        self.broker_admin = BrokerAdmin(orders)
        self.config_admin = ConfigAdmin(self.zookeeper.ordering)
        self.producer_ids = ProducerIds(self.reserve_producer_ids)
        self.peers = Peers(self.peer_env.network, self.supervisor, self.metadata, lambda: self.hello("status"))
        self.overview = Overview(self, env.clock, self.peers)
        self.sampler = Sampler(self)
        self.console = ConsolePages(self)

    def _build_listeners(self) -> None:
        env = self.env
        self.extension = NodeExtension(self).handlers()
        self.kafka_services = NodeServices(self)
        self.schemas = SchemaRegistry(self.kafka_services, self.peers.ask, env.disk.run_blocking)
        self.rpc = RpcServer(
            network=env.network,
            supervisor=self.supervisor,
            config=self.config,
            identity=lambda: Identity(self.cluster_id, self.broker_id, self.broker_epoch),
            handlers=RpcRequests(self).handlers(),
            security=self.security.rpc if self.security is not None else None,
            per_ip=self.rights.connection_limits(is_for_nodes=True),
            monotonic=env.clock.monotonic,
        )
        self.kafka = KafkaSide(self.kafka_services)
        self.forwarded = Forwarded(self.kafka.listener, inter_broker_listener(self.config).name)
        self.metadata.on_topics_deleted = self.kafka.topics_deleted
        self.metadata.on_partitions_removed = self.kafka.partitions_removed
        self.draining = Draining(
            env=self.peer_env,
            supervisor=self.supervisor,
            replicas=self.replicas,
            metadata=self.metadata,
            groups=self.kafka.groups,
            hello=lambda: self.hello("draining"),
        )
        http = self.security.http if self.security is not None else None
        self.http = HttpServer(
            env.network,
            {**StatusPages(self).pages(), **self.console.pages()},
            HttpAuthenticator(self.rights.access, http, env.clock, env.disk),
            http.listener.tls if http is not None else None,
            self.rights.connection_limits(),
            POSTS,
            # A browser sends no login for a name that it has not logged in at; the names of a certificate are checked by itself.
            names=http_names(self.config) if http is None else None,
            trees=SchemaPages(self.schemas).trees(),
        )

    def identity(self) -> tuple[BrokerId, BrokerEpoch]:
        """This node's id and its present epoch (-1 while it is not registered)."""
        return self.broker_id, self.broker_epoch

    def broker_states(self) -> dict[BrokerId, str]:
        """The brokers that take no new replicas, with their `broker.state`, as this node has heard."""
        return closed_among({BrokerId(number): own for number, own in self.configs.brokers().items()})

    def topic_config(self, topic: str) -> TopicConfig:
        """A topic's configuration: the broker's defaults with the topic's own settings on top, as far as they can be used."""
        return self.effective_topic_config(topic, self.configs.topic(topic))

    def effective_topic_config(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        """A topic's effective configuration on this node."""
        if topic in INTERNAL_TOPICS:
            return internal_topic_config(self.config.topic, overrides, others_flush=self.configs.any_flushes)
        return usable_topic_config(self.config.topic, overrides)

    def problems(self) -> tuple[HealthProblem, ...]:
        """What this node can see to be wrong."""
        malformed = tuple(
            HealthProblem("znode.malformed", 0, reason, path)
            for path, reason in sorted(
                {**self.configs.malformed, **self.rights.malformed, **self.tokens.malformed, **self._unusable}.items()
            )
        )
        return (
            *self.zookeeper.problems(),
            *(self.znode_acls.problems() if self.znode_acls is not None else ()),
            *(HealthProblem("listener.open", self.started_ms, each.detail, each.name) for each in self._exposures),
            *self.replicas.problems(),
            *self.controller.problems(),
            *disk_problems(self.logs),
            *_held(self.loop_times),
            *malformed,
        )

    def history(self, subjects: Sequence[str]) -> list[HistoryEvent]:
        """What this node remembers of these subjects (see HistoryRequest), the oldest first."""
        events = [
            HistoryEvent(subject, event.at_ms, event.what, event.detail, event.is_earlier)
            for subject in subjects
            for source in (self.replicas.hosted.history, self.controller.history)
            for event in source.of(subject)
        ]
        return sorted(events, key=lambda event: event.at_ms)

    def hello(self, purpose: str) -> HelloRequest:
        """What this node says of itself on a connection to another one."""
        return HelloRequest(self.cluster_id, self.broker_id, self.broker_epoch, client_id=purpose)

    async def allocate_producer_id(self) -> ProducerId:
        """A producer id that nobody has. Raises CoordinatorError."""
        return await self.producer_ids.allocate()

    async def reserve_producer_ids(self) -> tuple[int, int]:
        """A block of producer ids, reserved in ZooKeeper: (first, how many). Raises CoordinatorError."""
        current = self.session.current
        if current is None:
            raise NotSentError("no session with ZooKeeper")
        if away := self.zookeeper.away():
            raise NotSentError(away)
        block = await registration.allocate_producer_ids(current, self.broker_id)
        return block.first, block.last - block.first + 1

    # --- life --------------------------------------------------------------------

    def stop(self) -> None:
        """Ask for a controlled shutdown; `run` returns when it is done."""
        self.stopping = True
        self._stop.set()

    async def run(self) -> None:
        """Start, serve until `stop`, and stop.

        Raises:
            StartupRefused: the directories are another cluster's or node's, or the id is in use.
            OSError: a listener's address cannot be bound.
            KafkaliteError: whatever else the node cannot go on without.
        """
        clean = False
        try:
            starting = self.supervisor.spawn("node.start", self._start())
            waiting = self.supervisor.spawn("node.stop_wanted", self._stop.wait())
            await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and not starting.cancelled() and starting.exception() is None:
                self.ready.set()
                _log.info("node.ready", **{name: str(endpoint) for name, endpoint in self.endpoints.items()})
                await waiting
            clean = self._fatal is None and self.ready.is_set()
        finally:
            await self._shut_down(controlled=clean)
        if self._fatal is not None:
            raise self._fatal

    async def _start(self) -> None:
        self.supervisor.spawn("own_time", self._own_time.run())
        self.supervisor.spawn("loop_times", self.loop_times.run())
        self.supervisor.spawn("session.keeper", self.session.run())
        self.supervisor.spawn("session.watch", self.session.watch())
        await self._in_session(registration.ensure_layout)
        self.cluster_id = await self._in_session(lambda session: registration.cluster_id(session, self.env.random))
        if (security := self.security) is not None:
            key = await self._in_session(lambda session: registration.decoy_key(session, self.env.entropy))
            security.use_decoy_key(key)
        await self._in_session(self.configs.load)
        await self._in_session(self.rights.load)
        await self._in_session(self.tokens.load)
        await self.logs.opening.start(self.cluster_id, self.broker_id, self.configs.topics())
        self._dead_sessions = self._read_sessions()
        if self.security is not None and self.security.remote_keys is not None:
            self.supervisor.spawn("oauth.keys", self.security.remote_keys.run(self._dial_issuer), Policy.ISOLATED)
        self.supervisor.spawn("history.file", self.history_file.run(), Policy.ISOLATED)
        self.replicas.hosted.history.record(str(self.broker_id), "node.started")
        self.replicas.start()
        await self._bind()
        self.supervisor.spawn("logs.housekeeping", self.logs.run_housekeeping())
        self.supervisor.spawn("disks.requests", self.disk_care.run_requests(self.replicas))
        self.supervisor.spawn("disks.balance", self.disk_balancing.run())
        self.supervisor.spawn("disks.care", self.disk_care.run(self.replicas, self.logs))
        self.supervisor.spawn("disks.returns", self.disk_care.run_returns(self.logs, self.disks.take_back))
        self.supervisor.spawn("partitions.draining", self.draining.run())
        self.supervisor.spawn("controller.link", self.link.run())
        self.supervisor.spawn("controller.watch", self._controller_detector().run())
        self.session.on_lost(self.replicas.on_session_lost)
        self.session.on_session(self._introduce)
        await self._in_session(self._introduce)
        self.supervisor.spawn("producer.ids", self.producer_ids.run())
        if self.config.http_port >= 0:
            self.supervisor.spawn("sampler", self.sampler.run(), Policy.ISOLATED)
        if self.tokens.is_enabled:
            self.supervisor.spawn("tokens.run", self.tokens.run())
        if self.znode_acls is not None:
            self.supervisor.spawn("zookeeper.acls", self.znode_acls.run())

    async def _in_session(self, action: Callable[[Coordinator], Awaitable[T]]) -> T:
        """Run `action` in the present session, and again in the next one if that ends meanwhile."""
        while True:
            coordinator = await self.session.wait()
            try:
                return await action(coordinator)
            except CoordinatorError as error:
                _log.info("node.start_retries", error=repr(error))
                await asyncio.sleep(_START_RETRY_S)

    async def _bind(self) -> None:
        """Raises CannotListen."""

        async def http(host: str, port: int) -> Endpoint:
            return Endpoint(*await self.http.start(host, port))

        host = self.config.host
        await self._listen("rpc", "rpc.port", self.rpc.start, host, self.config.rpc_port)
        listeners = kafka_listeners(self.config)
        key = "listeners" if self.config.listeners else "kafka.port"
        for name, each in zip(kafka_endpoints(listeners), listeners, strict=True):
            await self._listen(name, key, partial(self.kafka.start, name=each.name), each.host, each.port)
        self.schemas.start()
        if self.config.http_port >= 0:
            await self._listen("http", "http.port", http, host, self.config.http_port)

    async def _listen(
        self, name: str, key: str, start: Callable[[str, int], Awaitable[Endpoint]], host: str, port: int
    ) -> None:
        """Raises CannotListen."""
        try:
            self.endpoints[name] = await start(host, port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise CannotListen(f"cannot listen on {host}:{port} ({key}): {reason}") from None

    async def _introduce(self, coordinator: Coordinator) -> None:
        """Make a new session ours: settings, registration, candidacy. Safe to repeat for the same session."""
        async with self._introducing:
            if self._introduced is coordinator:
                return
            await self.zookeeper.until_ours(
                coordinator, self.cluster_id, holds_data=not self.logs.opening.holds_nothing()
            )
            await self.configs.load(coordinator)
            await self.rights.load(coordinator)
            await self.tokens.load(coordinator)
            missing = await self.replicas.find_missing_logs(coordinator, is_start=self._introduced is None)
            epoch = await registration.register_broker(
                coordinator,
                self.broker_id,
                self._description(missing),
                session_timeout_ms=self.config.zookeeper_session_timeout_ms,
                dead_sessions=self._dead_sessions,
            )
            self.broker_epoch = epoch
            if self._introduced is not None or not self.logs.pool.unclean_start:
                await self.replicas.on_session(coordinator)  # docs/adr/0008
            self._introduced = coordinator
            self._save_session(coordinator.session_id)
            _log.info("node.registered", broker_epoch=epoch, session=f"{coordinator.session_id:x}")
            self.supervisor.spawn("registration.guard", self._guard_registration(coordinator))
            self.supervisor.spawn("configs.follow", self.configs.follow(coordinator))
            self.supervisor.spawn("security.follow", self.rights.follow(coordinator))
            if self.tokens.is_enabled:
                self.supervisor.spawn("tokens.follow", self.tokens.follow(coordinator))
            self._candidacy = self.supervisor.spawn("controller.session", self.controller.run_session(coordinator))

    async def _guard_registration(self, coordinator: Coordinator) -> None:
        """A registration that was removed or overwritten from outside is created again, in a new session: the cluster
        takes this node for one that has restarted, which is what it looks like from outside."""
        reason = await registration.until_spoilt(coordinator, self.broker_id)
        if reason:
            _log.error("registration.spoilt", reason=reason)
            await asyncio.sleep(_REGISTER_AGAIN_S)
            await coordinator.close()

    def _controller_detector(self) -> ControllerFailureDetector:
        return ControllerFailureDetector(
            config=self.config,
            env=self.peer_env,
            own_time=self._own_time,
            supervisor=self.supervisor,
            session=self.session,
            metadata=self.metadata,
            seen=lambda: self.controller.controller_id,
            broker_id=self.broker_id,
            hello=self.hello("controller-watch"),
        )

    def _addresses(self) -> tuple[ListenerAddress, list[ListenerAddress]]:
        """What clients get: one for readers that know a single address, and that of each listener."""
        listeners = kafka_listeners(self.config)
        bound = [self.endpoints[name].port for name in kafka_endpoints(listeners)]
        addresses = [each.address(port) for each, port in zip(listeners, bound, strict=True)]
        # Kafka's rule: the first one in plain text.
        one = next(
            (a for a, each in zip(addresses, listeners, strict=True) if each.protocol == "PLAINTEXT"), addresses[0]
        )
        return one, addresses

    async def _change_addresses(self, coordinator: Coordinator) -> None:
        """advertised.listeners has changed: the controller hears of it by its watch, and informs all nodes."""
        one, addresses = self._addresses()
        try:
            if await registration.change_addresses(
                coordinator, self.broker_id, one.host, one.port, list(map(str, addresses))
            ):
                _log.info("node.addresses_changed", addresses=",".join(map(str, addresses)))
        except (CoordinatorError, ZnodeError) as error:
            _log.warning("node.addresses_not_changed", error=repr(error))

    def _description(self, missing: frozenset[TopicPartition]) -> BrokerZnode:
        kafka, addresses = self._addresses()
        return BrokerZnode(
            host=kafka.host,
            port=kafka.port,
            endpoints=tuple(map(str, addresses)),
            protocols={each.name: each.protocol for each in kafka_listeners(self.config)},
            rpc=advertised_rpc(self.config, self.endpoints["rpc"].port),
            rack=self.config.broker_rack or None,
            timestamp_ms=self.env.clock.wall_ms(),
            is_empty=self.logs.opening.holds_nothing(),
            missing=frozenset() if self.logs.opening.holds_nothing() else missing,
            doubtful=with_room(self.logs.pool.doubtful(), DOUBTFUL_BYTES),
            keeps_elr=True,
            transaction_version=TRANSACTION_VERSION,
            features=registered(),
            http=console_url(self.config, self.endpoints["http"].port) if "http" in self.endpoints else "",
        )

    async def _shut_down(self, *, controlled: bool) -> None:
        """Each step has a deadline and is logged; a step that fails does not keep the next from being done."""

        def has_others() -> bool:
            return any(broker.broker_id != self.broker_id for broker in self.metadata.brokers())

        if controlled and has_others() and self.config.controlled_shutdown_enable and self.session.usable():
            patience = self.config.controlled_shutdown_max_wait_ms / 1000
            moved = await self.link.controlled_shutdown(patience, has_others)
            _log.info("node.leaders_moved", complete=moved)
        await self._step("kafka", self.kafka.close())
        await self._step("replicas", self.replicas.stop())
        await self._step("http", self.http.close())
        await self._step("console", self.console.close())
        await self._step("peers", self.peers.close())
        await self._step("rpc", self.rpc.close())
        if self._link_connection is not None:
            await self._step("link", self._link_connection.close())
        await self._step("controller", self._resign_controller())
        await self._step("history", self.history_file.close())
        await self._step("logs", self.logs.close(clean=controlled))
        await self._step("session", self.session.close())
        await self._step("tasks", self.supervisor.stop())
        _log.info("node.stopped", clean=controlled)

    async def _resign_controller(self) -> None:
        if self._candidacy is not None:
            self._candidacy.cancel()
            await asyncio.wait([self._candidacy])
        await self.controller.resign()

    async def _step(self, name: str, action: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(_STOP_STEP_S):
                await action
        except (KafkaliteError, OSError, TimeoutError) as error:
            _log.error("node.stop_step_failed", step=name, error=repr(error))

    def _on_fatal(self, error: BaseException) -> None:
        if self._fatal is None:
            self._fatal = error
        self._stop.set()

    # --- news ----------------------------------------------------------------------

    def _config_changed(self, entity_type: str, name: str, settings: dict[str, str]) -> None:
        if entity_type in (TOPICS, BROKERS):
            path = paths.config_entity(entity_type, name)
            self._unusable.pop(path, None)
            if (reason := unusable_setting(entity_type, settings)) is not None:
                self._unusable[path] = f"{reason}; the other settings hold"
                _log.error("config.unusable", path=path, reason=reason)
        if entity_type == TOPICS:
            self.replicas.topic_config_changed(name)
            if self._internal_topics_flush != self.configs.any_flushes:
                self._internal_topics_flush = self.configs.any_flushes
                for internal in sorted(INTERNAL_TOPICS):
                    self.replicas.topic_config_changed(internal)
        elif entity_type in (USERS, CLIENTS, IPS):
            self.rights.config_changed(entity_type, name, settings)
            if self.security is not None and entity_type == USERS:
                self._user_changed(name)
        else:
            self.controller.settings_changed()
            self._take_dynamic_config()

    async def _dial_issuer(
        self,
        host: str,
        port: int,
        is_secure: bool,  # noqa: FBT001 - as `oauth.Dial` has it
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server that has the keys of tokens. Raises OSError."""
        assert self.security is not None
        return await self.env.network.dial(host, port, self.security.issuer_tls() if is_secure else None)

    def _token_gone(self, token_id: str) -> None:
        self.kafka.listener.token_gone(token_id)

    def _user_changed(self, name: str) -> None:
        """Who is logged in with a credential that does not count any more is sent away."""
        try:
            user = paths.desanitize(name)
        except ValueError:
            return  # the quotas of one of a user's clients, or written by hand
        self.kafka.listener.credentials_changed(user)

    def _take_dynamic_config(self) -> None:
        """The settings of all brokers, or this one's, have changed in ZooKeeper: apply what differs."""
        before = self.config
        self.config = with_dynamic(self.static_config, self.configs.broker(None), self.configs.broker(self.broker_id))
        if self.config == before:
            return
        _log.info("node.reconfigured", **_differences(before, self.config))
        self.rpc.max_connections = self.config.max_connections
        self.replicas.resize_fetchers(self.config.num_replica_fetchers)
        self.replicas.limit_listed_replicas(self.config.leader_replication_throttled_rate)
        self.logs.housekeeping.cleaner_backoff_ms = self.config.log_cleaner_backoff_ms
        if self.config.advertised_listeners != before.advertised_listeners and self._introduced is not None:
            self.supervisor.spawn("registration.addresses", self._change_addresses(self._introduced), Policy.ISOLATED)
        self.logs.housekeeping.producer_id_expiration_ms = self.config.producer_id_expiration_ms
        if self.config.topic != before.topic:
            for topic in sorted({partition.topic_partition.topic for partition in self.replicas.hosted.all()}):
                self.replicas.topic_config_changed(topic)

    # --- the controller, wherever it is ---------------------------------------------

    async def _call_controller(self, request: Message, timeout_s: float) -> Message:
        """Send to the present controller. Raises KafkaliteError when there is none or it does not answer."""
        controller_id = self.metadata.controller_id
        if controller_id == self.broker_id:
            async with asyncio.timeout(timeout_s):
                if isinstance(request, IsrChangedRequest):
                    return await self.controller.on_isr_changed(request)
                assert isinstance(request, ControlledShutdownRequest)
                return await self.controller.controlled_shutdown(request)
        endpoint = self.metadata.rpc_endpoint(controller_id)
        if endpoint is None:
            raise api_error(ErrorCode.NOT_CONTROLLER, "no controller is known")
        connection = self._link_connection
        if connection is None or connection.closed or connection.endpoint != endpoint:
            if connection is not None:
                await connection.close()
            self._link_connection = connection = await RpcConnection.open(
                self.peer_env.network,
                endpoint,
                self.hello("controller-link"),
                supervisor=self.supervisor,
                max_frame_bytes=self.config.rpc_max_frame_bytes,
                timeout_s=timeout_s,
            )
        answer, _ = await connection.call(request, timeout_s=timeout_s)
        return answer

    # --- earlier sessions --------------------------------------------------------------

    def _sessions_path(self) -> str:
        return f"{self.config.log_dirs[0]}/{_SESSIONS_FILE}"

    def _read_sessions(self) -> frozenset[int]:
        try:
            return frozenset(int(session, 16) for session in json.loads(self.env.disk.read_file(self._sessions_path())))
        except (OSError, ValueError, TypeError):
            return frozenset()

    def _save_session(self, session_id: int) -> None:
        """Remember our sessions. Not being able to costs time at the next start, no more."""
        kept = [*sorted(self._dead_sessions - {session_id}), session_id][-_SESSIONS_KEPT:]
        self._dead_sessions = frozenset(kept)
        text = json.dumps([f"{session:x}" for session in kept])
        try:
            self.env.disk.write_file_atomic(self._sessions_path(), text.encode(), durable=False)
        except OSError as error:
            _log.warning("sessions_file.not_written", error=str(error))


def _differences(before: BrokerConfig, after: BrokerConfig) -> dict[str, str]:
    """Changed keys (with underscores), as "before -> after"."""
    pairs = [(before.topic, after.topic, field.name) for field in dataclasses.fields(TopicConfig)]
    pairs += [(before, after, field.name) for field in dataclasses.fields(BrokerConfig) if field.metadata]  # type: ignore[misc]
    return {
        name: f"{getattr(old, name)} -> {getattr(new, name)}"
        for old, new, name in pairs
        if getattr(old, name) != getattr(new, name)
    }


def _held(times: LoopTimes) -> tuple[HealthProblem, ...]:
    """Whether something has held the event loop for long in the last minutes."""
    longest = times.longest()
    if longest is None or longest.seconds < SHOWN_FROM_S:
        return ()
    who = f" of client.id {longest.client_id!r} ({longest.principal})" if longest.client_id else ""
    detail = f"{longest.cause}{who} held the event loop for {longest.seconds * 1000:.0f} ms; everybody else waited"
    return (HealthProblem("loop.held", longest.at_ms, detail),)
