"""The composition root: one node, from its configuration and its environment to a clean stop.

Start: session, cluster id, logs, listeners, registration, candidacy. The node registers when its listeners are bound
(controller design E.5), so that readers of the registration can reach it; it never resumes a leadership on its own (docs/adr/0008). The stop
has the opposite order: leaders move away while everything still serves, and the session ends last.
"""

from __future__ import annotations

import asyncio
import dataclasses
from functools import cached_property, partial
from typing import TYPE_CHECKING

from kafkalite import __version__
from kafkalite.admin.acls import AclManager
from kafkalite.admin.disk_healing import ReplicaSelfHealing, disk_problems
from kafkalite.admin.tokens import TokenAdmin
from kafkalite.config import (
    BrokerConfig,
    http_names,
    inter_broker_listener,
    is_secured,
)
from kafkalite.controller.controller import Controller
from kafkalite.controller.controller_failure_detector import ControllerFailureDetector
from kafkalite.coordination import registration
from kafkalite.coordination.session import SessionKeeper
from kafkalite.coordinators.draining import Draining
from kafkalite.coordinators.producer_ids import ProducerIds
from kafkalite.env import Env
from kafkalite.env.loop_times import LoopTimes
from kafkalite.env.own_time import OwnTime
from kafkalite.env.supervisor import CancelledByNobody, Policy, Supervisor
from kafkalite.errors import CannotListen, StartupRefused
from kafkalite.http.authentication import HttpAuthenticator
from kafkalite.http.console.pages import POSTS, ConsolePages
from kafkalite.http.overview import Overview
from kafkalite.http.sampling import Sampler
from kafkalite.http.schemas import SchemaPages
from kafkalite.http.server import HttpServer
from kafkalite.http.status import StatusPages
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.kafka.forwarded import Forwarded
from kafkalite.listener_settings import HTTP
from kafkalite.log.log_manager import LogManager
from kafkalite.model import SCHEMA_TOPIC, BrokerId, Endpoint
from kafkalite.node.administration import Administration
from kafkalite.node.binding import bind
from kafkalite.node.catching_up import CatchingUp
from kafkalite.node.changed_settings import ChangedSettings
from kafkalite.node.clock_check import ClockCheck
from kafkalite.node.controller_rpc import ControllerRpc
from kafkalite.node.descriptor_watch import DescriptorWatch
from kafkalite.node.earlier_sessions import EarlierSessions
from kafkalite.node.extension_handlers import NodeExtension
from kafkalite.node.health import InSteps, NodeHealth, held, malformed, open_listeners
from kafkalite.node.history_file import HistoryFile
from kafkalite.node.kafka_services import NodeServices
from kafkalite.node.membership import ClusterMembership, Followed
from kafkalite.node.rpc_requests import RpcRequests
from kafkalite.node.seen_brokers import SeenBrokers
from kafkalite.node.settings import CurrentSettings
from kafkalite.node.stop_steps import STEP_S, StopSteps
from kafkalite.node.znode_acl_check import ZnodeAclCheck
from kafkalite.node.zookeeper_health import ZooKeeperHealth
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.peers import Peers
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.replica.startup import topic_ids
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.changes import ACLS, SETTINGS, TOKENS
from kafkalite.rpc.server import RpcServer
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.node.security_health import SecurityHealth
    from kafkalite.schemas.coordinator import SchemaRegistry
    from kafkalite.security.files import WatchedFiles
    from kafkalite.security.node_security import NodeSecurity
    from kafkalite.security.scram import Delegated, ScramCredential

_log = get_logger(__name__)

#: How much longer the logs may take, for each log: without the clean end the next start reads the last segments of all of them.
_STOP_LOG_S = 0.05


class Node:
    """One node. `await run()` returns after `stop()`; it raises what made the node unable to go on.

    Attributes:
        ready: set when the node serves.
        endpoints: "kafka", "rpc", "http" -> where it listens; filled when ready. "kafka" is the first Kafka listener, the
            others are "kafka.NAME".
        stopping: whether `stop` was called.
    """

    def __init__(self, config: BrokerConfig, env: Env) -> None:
        self.local = LocalBroker(BrokerId(config.broker_id))
        self.security = self._secure(config, env)
        self.env = env
        #: With the network of a client of the other nodes' RPC listeners.
        self.peer_env = self._peer_env(env)
        self.ready = asyncio.Event()
        self.stopping = False
        self._is_discarded = False
        self.endpoints: dict[str, Endpoint] = {}
        self._stop = asyncio.Event()
        self._fatal: BaseException | None = None
        self.started_ms = env.clock.wall_ms()
        self._build_state(config)
        self._build_observation()
        self._build_listeners()

    # --- what others read of it --------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        """As it is now."""
        return self.settings.now

    # --- parts -----------------------------------------------------------------

    def _secure(self, config: BrokerConfig, env: Env) -> NodeSecurity | None:
        """None: plain text everywhere; nothing of it is loaded then. Raises ConfigError."""
        if not is_secured(config):
            return None
        from kafkalite.security.node_security import NodeSecurity

        return NodeSecurity(
            config,
            entropy=env.entropy,
            now=env.clock.monotonic,
            credentials=self._credential,
            wall=self._wall_s,
            delegated=self._delegated,
        )

    def _security_health(self, config: BrokerConfig) -> SecurityHealth | None:
        security = self.security
        if security is None and not config.zookeeper_ssl_client_enable:
            return None

        from kafkalite.node.security_health import SecurityHealth

        return SecurityHealth(
            config,
            security.listeners() if security is not None else (),
            security.unread if security is not None else dict,
            self.env.clock,
            readers=self._readers,
            disk=self.env.disk,
            supervisor=self.supervisor,
        )

    def _readers(self) -> list[WatchedFiles]:
        """What reads files of users, keys and certificates, without the listeners' TLS."""
        readers: list[WatchedFiles] = [] if self.security is None else self.security.readers()
        to_zookeeper = self.env.zookeeper_tls()
        return readers if to_zookeeper is None else [*readers, to_zookeeper]

    def _peer_env(self, env: Env) -> Env:
        if self.security is None:
            return env
        from kafkalite.rpc.authenticated import AuthenticatedNetwork

        return dataclasses.replace(env, network=AuthenticatedNetwork(env.network, self.security.to_rpc, env.entropy))

    def _credential(self, mechanism: str, user: str) -> ScramCredential | None:
        from kafkalite.coordination.scram_users import credential

        return credential(self.settings.configs.user(user), mechanism)

    def _delegated(self, mechanism: str, token_id: str) -> Delegated | None:
        return self.tokens.delegated(mechanism, token_id)

    def _wall_s(self) -> float:
        return self.env.clock.wall_ms() / 1000

    def _is_controller(self) -> bool:
        return self.metadata.controller_id == self.local.broker_id

    def _build_state(self, config: BrokerConfig) -> None:
        """The session, what is read from ZooKeeper, the logs, the replicas, the controller."""
        env, peer_env = self.env, self.peer_env
        self.supervisor = Supervisor(self._on_fatal)
        self._own_time = OwnTime(env.clock)
        self.loop_times = LoopTimes(env.clock)
        self.session = SessionKeeper(env, config.zookeeper_connect, config.zookeeper_session_timeout_ms)
        self.zookeeper = ZooKeeperHealth(self.session, env.clock)
        self.clock_check = ClockCheck(self.session, env.clock)
        self._descriptors = DescriptorWatch(env.descriptors, env.clock)
        self._znode_acls = ZnodeAclCheck(self.session, env.clock) if config.zookeeper_set_acl else None
        nodes = self.security.principals if self.security is not None else ()
        self.rights = AclManager(config, env.clock, self.zookeeper.ordering, nodes)
        self.tokens = TokenAdmin(
            config,
            env.clock,
            self.zookeeper.ordering,
            env.entropy,
            is_controller=self._is_controller,
            on_gone=self._token_gone,
        )
        self.settings = CurrentSettings(config, env.clock, self.rights)
        followed = (self.settings.configs, self.rights, self.tokens)
        self.metadata = MetadataCache()
        healing = ReplicaSelfHealing(self.session, self.local.broker_id, env.clock.monotonic)
        self.logs = LogManager(
            config,
            env.disk,
            env.clock,
            supervisor=self.supervisor,
            own_time=self._own_time,
            handle_capacity=env.log_files,
        )
        sessions = EarlierSessions(env.disk, self.logs.pool)
        self._seen = SeenBrokers(env.disk, self.logs.pool)
        self.controller = Controller(
            config=config,
            env=peer_env,
            own_time=self._own_time,
            supervisor=self.supervisor,
            local=self.local,
            topic_config=self.settings.topic_config,
            cluster_settings=self.settings.cluster,
            broker_states=self.settings.broker_states,
            live_config=self.settings.current,
            dead_sessions=sessions.ids,
            followed_epoch=lambda: self.replicas.commands.controller_epoch,
            last_heard=lambda: self._controller_watch.last_heard(),
        )
        self._controller_watch = ControllerFailureDetector(
            config=config,
            env=peer_env,
            own_time=self._own_time,
            supervisor=self.supervisor,
            session=self.session,
            metadata=self.metadata,
            seen=lambda: self.controller.controller_id,
            broker_id=self.local.broker_id,
            hello=partial(self.local.hello, "controller-watch"),
        )
        self._controller_rpc = ControllerRpc(
            peer_env.network,
            self.supervisor,
            self.local,
            self.metadata,
            self.controller,
            max_frame_bytes=config.rpc_max_frame_bytes,
        )
        self.replicas = ReplicaManager(
            settings=self.settings,
            env=peer_env,
            supervisor=self.supervisor,
            logs=self.logs,
            session=self.session,
            local=self.local,
            metadata=self.metadata,
            controller=self._controller_rpc.client,
            healing=healing,
            own_time=self._own_time,
        )
        self._membership = ClusterMembership(
            local=self.local,
            settings=self.settings,
            clock=env.clock,
            supervisor=self.supervisor,
            session=self.session,
            zookeeper=self.zookeeper,
            sessions=sessions,
            seen=self._seen,
            followed=followed,
            logs=self.logs,
            replicas=self.replicas,
            controller=self.controller,
            endpoints=self.endpoints,
        )
        self.producer_ids = ProducerIds(self._membership.reserve_producer_ids)
        self._security_watch = security = self._security_health(config)
        self.health = NodeHealth(
            (
                self.zookeeper.problems,
                *(() if self._znode_acls is None else (self._znode_acls.problems,)),
                self.clock_check.problems,
                open_listeners(config, self.started_ms),
                InSteps(self.replicas.describing.problems),
                InSteps(self.controller.problems),
                partial(disk_problems, self.logs),
                *(() if security is None else (security.problems,)),
                self._descriptors.problems,
                partial(held, self.loop_times),
                partial(malformed, (*followed, self.producer_ids), self.settings.unusable),
            ),
            self.replicas.describing.problems_of,
            (self.replicas.hosted.history, self.controller.history),
            None if security is None else security.load,
        )
        histories = {"replica": self.replicas.hosted.history, "controller": self.controller.history}
        for history in histories.values():
            history.topic_id_of = lambda subject: self.metadata.topic_id(subject.rpartition("-")[0])
        self._history_file = HistoryFile(histories, self.logs.pool)
        self.admin = Administration(env, self.settings, self.zookeeper, self.logs, self.replicas, healing)

    def _build_observation(self) -> None:
        """What a node shows of itself and of the others."""
        env = self.env
        self.peers = Peers(self.peer_env.network, self.supervisor, self.metadata, partial(self.local.hello, "status"))
        followed: dict[str, Followed] = {SETTINGS: self.settings.configs, ACLS: self.rights, TOKENS: self.tokens}
        self.catching_up = CatchingUp(self.session, followed, self.peers)
        self.overview = Overview(self, env.clock, self.peers, self.settings.broker_states, self.admin.reassignments)
        self.sampler = Sampler(self)
        self.console = ConsolePages(self)

    def _build_listeners(self) -> None:
        env = self.env
        self.extension = NodeExtension(self).handlers()
        self.kafka_services = NodeServices(self)
        self.rpc = RpcServer(
            network=env.network,
            supervisor=self.supervisor,
            config=self.config,
            identity=self.local.greeting,
            handlers=RpcRequests(self).handlers(),
            security=self.security.rpc if self.security is not None else None,
            per_ip=self.rights.connection_limits(is_for_nodes=True),
            monotonic=env.clock.monotonic,
        )
        self.kafka = KafkaSide(self.kafka_services, {SCHEMA_TOPIC: lambda: self.schemas})
        self.forwarded = Forwarded(self.kafka.listener, inter_broker_listener(self.config).name)
        self.settings.events = ChangedSettings(
            settings=self.settings,
            replicas=self.replicas,
            logs=self.logs,
            controller=self.controller,
            membership=self._membership,
            listener=self.kafka.listener,
            rights=self.rights,
        )
        self.metadata.on_topics_deleted = self.kafka.topics_deleted
        self.metadata.on_partitions_removed = self.kafka.partitions_removed
        self.draining = Draining(
            env=self.peer_env,
            supervisor=self.supervisor,
            replicas=self.replicas,
            metadata=self.metadata,
            groups=self.kafka.coordinated_groups,
            hello=partial(self.local.hello, "draining"),
        )
        http = self.security.http if self.security is not None else None
        self.http = HttpServer(
            env.network,
            {**StatusPages(self).pages(), **self.console.pages()},
            HttpAuthenticator(self.rights.access, http, env.clock, env.disk),
            tls=http.listener.tls if http is not None else None,
            per_ip=self.rights.connection_limits(),
            posts=POSTS,
            # A browser sends no login for a name that it has not logged in at; the browser checks the names of a certificate.
            names=http_names(self.config) if http is None else None,
            trees=SchemaPages(lambda: self.schemas).trees(),
            turns=self.kafka.listener.turns,
            max_connections=self.config.per_listener.of(HTTP).get("max_connections"),
        )

    @cached_property
    def schemas(self) -> SchemaRegistry:
        """Made when the cluster has the topic, or somebody asks."""
        from kafkalite.schemas.coordinator import SchemaRegistry

        made = SchemaRegistry(self.kafka_services, self.peers.ask, self.env.disk.run_blocking)
        made.start()
        return made

    # --- life --------------------------------------------------------------------

    def stop(self, *, is_discarded: bool = False) -> None:
        """Ask for a controlled shutdown; `run` returns when it is done.

        `is_discarded`: all directories of the cluster are deleted next, so no leader moves and nothing is made durable.
        """
        self.stopping = True
        self._is_discarded = is_discarded
        self._stop.set()

    async def run(self) -> None:
        """Start, serve until `stop`, and stop.

        Raises:
            StartupRefused: the directories are another cluster's or node's, or the id is in use.
            OSError: a listener's address cannot be bound.
            KafkaliteError: whatever else the node cannot go on without.
        """
        clean = False
        starting = self.supervisor.spawn("node.start", self._start())
        try:
            waiting = self.supervisor.spawn("node.stop_wanted", self._stop.wait())
            await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and not starting.cancelled() and starting.exception() is None:
                self.ready.set()
                _log.info(
                    "node.ready",
                    version=__version__,
                    **{name: str(endpoint) for name, endpoint in self.endpoints.items()},
                )
                await waiting
            clean = self._fatal is None and self.ready.is_set() and not self._is_discarded
        finally:
            if starting.cancel():
                await asyncio.wait([starting])
            await self._shut_down(controlled=clean)
        if self._fatal is not None:
            raise self._fatal

    async def _start(self) -> None:
        self.supervisor.spawn("own_time", self._own_time.run(self.loop_times.ticked))
        self.supervisor.spawn("descriptors", self._descriptors.run())
        self.supervisor.spawn("session.keeper", self.session.run())
        self.supervisor.spawn("session.watch", self.session.watch())
        self.supervisor.spawn("clock.check", self.clock_check.run())
        in_session = self._membership.in_session
        new_id = partial(registration.new_uuid, self.env.random)
        self.local.cluster_id = await in_session(lambda session: registration.join_cluster(session, new_id))
        if (security := self.security) is not None:
            key = await in_session(lambda session: registration.decoy_key(session, self.env.entropy))
            security.use_decoy_key(key)
        if self._security_watch is not None:
            self.supervisor.spawn("security.watch", self._security_watch.run())
        await self._membership.load()
        starts = await in_session(lambda session: registration.starts(session, self.local.broker_id))
        await self.logs.opening.start(
            self.local.cluster_id,
            self.local.broker_id,
            self.settings.configs.topics(),
            lambda names: in_session(lambda session: topic_ids(session, self.local.cluster_id, names)),
            starts,
        )
        self._membership.sessions.load()
        self._seen.load()
        self.supervisor.spawn("brokers.seen", self._seen.follow(self.metadata), Policy.ISOLATED)
        if self.security is not None and self.security.remote_keys is not None:
            self.supervisor.spawn("oauth.keys", self.security.remote_keys.run(self._dial_issuer), Policy.ISOLATED)
        self.supervisor.spawn("history.file", self._history_file.run(), Policy.ISOLATED)
        self.replicas.hosted.history.record(str(self.local.broker_id), "node.started")
        self.replicas.start()
        await bind(self.config, self.rpc, self.kafka, self.http, self.endpoints)
        self.supervisor.spawn("logs.housekeeping", self.logs.run_housekeeping())
        self.admin.start(self.supervisor)
        self.supervisor.spawn("partitions.draining", self.draining.run())
        self.supervisor.spawn("controller.link", self._controller_rpc.client.run())
        self.supervisor.spawn("controller.watch", self._controller_watch.run())
        self.session.on_lost(self.replicas.session_roles.on_session_lost)
        self.session.on_session(self._membership.introduce)
        await in_session(self._membership.introduce)
        self.supervisor.spawn("producer.ids", self.producer_ids.run())
        if self.config.http_port >= 0:
            self.supervisor.spawn("sampler", self.sampler.run(), Policy.ISOLATED)
        if self.tokens.is_enabled:
            self.supervisor.spawn("tokens.run", self.tokens.run())
        if self._znode_acls is not None:
            self.supervisor.spawn("zookeeper.acls", self._znode_acls.run())

    async def _shut_down(self, *, controlled: bool) -> None:
        """Each step has a deadline and is logged; a step that fails does not keep the next from being done."""
        steps = StopSteps(self.env.clock)
        has_others = any(broker.broker_id != self.local.broker_id for broker in self.metadata.brokers())
        if controlled and has_others and self.config.controlled_shutdown_enable and self.session.usable():
            patience_s = self.config.controlled_shutdown_max_wait_ms / 1000
            somebody_answers = self._controller_watch.somebody_answers
            moved = await self._controller_rpc.client.controlled_shutdown(patience_s, somebody_answers)
            _log.info("node.leaders_moved", complete=moved)
            steps.ended("leaders")
        await steps.do("kafka", self.kafka.close())
        await steps.do("replicas", self.replicas.stop())
        await steps.do("http", self.http.close())
        await steps.do("console", self.console.close())
        await steps.do("peers", self.peers.close())
        await steps.do("rpc", self.rpc.close())
        await steps.do("link", self._controller_rpc.close())
        await steps.do("controller", self._membership.resign_controller())
        await steps.do("history", self._history_file.close())
        was_in_service = self.ready.is_set()
        is_refused = isinstance(self._fatal, StartupRefused | CannotListen)
        may_be_clean = controlled or (not was_in_service and (self._fatal is None or is_refused))
        closing = self.logs.close(
            clean=may_be_clean, was_in_service=was_in_service, record_stop=self._membership.record_stop
        )
        are_closed = await steps.do("logs", closing, STEP_S + _STOP_LOG_S * len(self.logs.pool.all()))
        await steps.do("session", self.session.close())
        await steps.do("tasks", self.supervisor.stop())
        steps.finish(clean=controlled and are_closed)

    def _on_fatal(self, error: BaseException) -> None:
        if self._stop.is_set() and isinstance(error, CancelledByNobody):
            return  # what it waited for is closed already; its own turn comes later
        if self._fatal is None:
            self._fatal = error
        self._stop.set()

    async def _dial_issuer(
        self,
        host: str,
        port: int,
        is_secure: bool,  # noqa: FBT001 - as `oauth.Dial` has it
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server that has the keys of tokens. Raises OSError."""
        assert self.security is not None
        return await self.env.network.dial(host, port, self.security.issuer_tls if is_secure else None)

    def _token_gone(self, token_id: str) -> None:
        self.kafka.listener.token_gone(token_id)
