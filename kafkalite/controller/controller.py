"""The controller as the node sees it: dormant until its node wins the election, then active until it resigns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Generator, Mapping

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.controller.broker_failure_detector import BrokerFailureDetector
from kafkalite.controller.channels import Channels
from kafkalite.controller.cluster_reading import ClusterReader
from kafkalite.controller.controller_election import ControllerElection, Won
from kafkalite.controller.decisions.events import BalancerSettings, ReassignmentLimits, WantedReplication
from kafkalite.controller.decisions.problems import PartitionCounts, count_partitions, find_problems
from kafkalite.controller.decisions.reassignments import limits_from
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.controller.describing_balance import describe_balance
from kafkalite.controller.event_loop import Balance, ControllerEventLoop
from kafkalite.controller.inbox import Inbox
from kafkalite.controller.load_reports import PAUSE_S, BalancerConfig, LoadReports
from kafkalite.controller.log_ends import LogEnds
from kafkalite.controller.sources import EventSource
from kafkalite.controller.stats import ControllerStats, FailoverPhases
from kafkalite.controller.storage import Storage
from kafkalite.controller.zk_access import Connectivity, ControllerMovedError
from kafkalite.coordination.broker_states import closed_brokers
from kafkalite.coordination.coordinator import Coordinator, SessionExpiredError
from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.balancing import DescribeBalanceRequest, DescribeBalanceResponse
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.model import (
    GROUP_TOPIC,
    NO_LEADER,
    SCHEMA_TOPIC,
    SHARE_TOPIC,
    TRANSACTION_TOPIC,
    BrokerId,
    ControllerEpoch,
)
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    IsrChangedRequest,
    IsrChangedResponse,
)
from kafkalite.telemetry.history import History
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class Controller:
    """One per node; does nothing while another node is the controller.

    Args:
        topic_config: a topic's settings as last heard (unclean.leader.election.enable counts here).
        cluster_settings: the dynamic settings of all brokers (the limits of reassignments count here).
        broker_states: brokers that take no new replicas, with their `broker.state`.
        followed_epoch: the latest controller epoch that this node follows.
        last_heard: the controller that this node has watched until now, and when (own time) it was last heard.
        live_config: the configuration with dynamic settings (`balancer.*` counts here); None: they never change.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Env,
        own_time: OwnTime,
        supervisor: Supervisor,
        local: LocalBroker,
        topic_config: Callable[[str], TopicConfig],
        cluster_settings: Callable[[], Mapping[str, str]] = dict,
        broker_states: Callable[[], Mapping[BrokerId, str]] = dict,
        live_config: Callable[[], BrokerConfig] | None = None,
        dead_sessions: Callable[[], Container[int]] = tuple,
        followed_epoch: Callable[[], ControllerEpoch] = lambda: ControllerEpoch(-1),
        last_heard: Callable[[], tuple[BrokerId, float] | None] = lambda: None,
    ) -> None:
        self.stats = ControllerStats()
        #: By partition, by broker id, and "" for the controller itself; kept across elections.
        self.history = History(env.clock.wall_ms)
        self._config = config
        self._env = env
        self._own_time = own_time
        self._supervisor = supervisor
        self._local = local
        self._topic_config = topic_config
        self._cluster_settings = cluster_settings
        self._broker_states = broker_states
        self._live_config = live_config or (lambda: config)
        self._dead_sessions = dead_sessions
        self._followed_epoch = followed_epoch
        self._last_heard = last_heard
        #: The latest controller epoch that other brokers follow, as far as they have said.
        self._latest_epoch = ControllerEpoch(-1)
        self._reports: LoadReports | None = None
        self._event_loop: ControllerEventLoop | None = None
        self._candidate: ControllerElection | None = None
        #: (what, subject) of a problem -> wall time at which it was noticed.
        self._since: dict[tuple[str, str], int] = {}

    @property
    def is_active(self) -> bool:
        """Whether this node is the controller and has sent the state in ZooKeeper to the brokers."""
        return self._event_loop is not None and self._event_loop.ready

    @property
    def epoch(self) -> ControllerEpoch:
        """The elected epoch of this controller, -1 while dormant."""
        return ControllerEpoch(-1) if self._event_loop is None else self._event_loop.state.epoch

    @property
    def controller_id(self) -> BrokerId:
        """The controller as last seen in ZooKeeper, -1 if unknown."""
        seen = None if self._candidate is None else self._candidate.seen
        return NO_LEADER if seen is None else seen

    @property
    def state(self) -> ControllerState | None:
        """The state of the active controller; None while dormant. For metrics and the status page."""
        return None if self._event_loop is None else self._event_loop.state

    # --- one session -----------------------------------------------------------------------------------------

    async def run_session(self, coordinator: Coordinator) -> None:
        """Run for election for as long as this ZooKeeper session lasts. Cancelling resigns."""
        connectivity = Connectivity(coordinator)
        candidate = ControllerElection(
            coordinator,
            connectivity,
            self._local.broker_id,
            self._env.clock,
            self._dead_sessions,
            lambda: max(self._latest_epoch, self._followed_epoch()),
        )
        self._candidate = candidate
        try:
            while True:
                won = await candidate.win()
                try:
                    await self._act_as_controller(coordinator, connectivity, candidate, won)
                except ControllerMovedError as error:
                    _log.warning("controller.resigned", epoch=won.epoch, reason=str(error))
                    self.history.record("", "controller.resigned", str(error))
                    await candidate.give_up()
                    # A controller that was replaced because it was unreachable would win the next election, being the first to know:
                    # it lets others, who hear each other, go first.
                    candidate.seen = None
                    await asyncio.sleep(self._config.broker_heartbeat_timeout_ms / 1000)
        except SessionExpiredError:
            self._candidate = None
            _log.info("controller.session_over")

    async def resign(self) -> None:
        """Resign cleanly at the node's shutdown: the next controller need not wait for our session to end.

        Cancel `run_session` first.
        """
        if self._candidate is not None:
            await self._candidate.give_up()

    async def _act_as_controller(
        self, coordinator: Coordinator, connectivity: Connectivity, candidate: ControllerElection, won: Won
    ) -> None:
        phases = FailoverPhases("controller", won.vacant_since)
        phases.detected_ms = (self._env.clock.monotonic() - won.vacant_since) * 1000
        _log.info("controller.elected", epoch=won.epoch)
        self.history.record("", "controller.elected", f"controller epoch {won.epoch}")

        inbox = Inbox(self._env.clock)
        storage = Storage(coordinator, connectivity, won.epoch_version, self.stats)
        failure_detector = BrokerFailureDetector(
            config=self._config,
            env=self._env,
            own_time=self._own_time,
            supervisor=self._supervisor,
            hello=self._hello,
            own_id=self._local.broker_id,
            usable=connectivity.holds_lease,
            post=inbox.post,
            last_heard=self._last_heard(),
        )
        reports = LoadReports(
            self._env,
            self._own_time,
            self._supervisor,
            self._hello,
            config=self._balancer_config,
            state=self._present_state,
            closed=self.closed_brokers,
            internal=self._internal_topics,
            post=inbox.post,
        )
        event_loop = ControllerEventLoop(
            state=ControllerState(self._local.broker_id, won.epoch),
            inbox=inbox,
            reader=ClusterReader(
                storage,
                inbox,
                failure_detector,
                LogEnds(self._env, self._own_time, self._supervisor, self._hello),
                topic_config=self._topic_config,
                limits=self._limits,
            ),
            storage=storage,
            channels=Channels(
                config=self._config,
                env=self._env,
                supervisor=self._supervisor,
                stats=self.stats,
                hello=self._hello,
                may_send=connectivity.holds_lease,
                post=inbox.post,
                on_stale=inbox.stale,
            ),
            failure_detector=failure_detector,
            clock=self._env.clock,
            stats=self.stats,
            balance=self._balance(),
            on_moves=reports.moves_went_on,
            phases=phases,
            history=self.history,
        )
        self._event_loop, self._reports = event_loop, reports
        watcher = self._supervisor.spawn(
            "controller.resignation", self._resign_when_replaced(candidate, event_loop), Policy.FATAL
        )
        reporting = self._supervisor.spawn("controller.balancer", self._report_loads(event_loop, reports))
        try:
            await event_loop.run()
        finally:
            self._event_loop = self._reports = None
            self._latest_epoch = max(self._latest_epoch, inbox.latest_epoch)
            reporting.cancel()
            self._since.clear()
            event_loop.close()
            watcher.cancel()

    def _balance(self) -> Balance | None:
        config = self._config
        if not config.auto_leader_rebalance_enable:
            return None
        interval_s = float(config.leader_imbalance_check_interval_seconds)
        return Balance(interval_s, config.leader_imbalance_per_broker_percentage)

    def _internal_topics(self) -> dict[str, WantedReplication]:
        config = self._config
        state_min_isr = config.transaction_state_log_min_isr
        wanted = {
            GROUP_TOPIC: (config.offsets_topic_replication_factor, state_min_isr),
            SCHEMA_TOPIC: (config.offsets_topic_replication_factor, state_min_isr),
            TRANSACTION_TOPIC: (config.transaction_state_log_replication_factor, state_min_isr),
            SHARE_TOPIC: (
                config.share_coordinator_state_topic_replication_factor,
                config.share_coordinator_state_topic_min_isr,
            ),
        }
        return {
            name: WantedReplication(replicas, min_isr, self._topic_config(name).min_insync_replicas)
            for name, (replicas, min_isr) in wanted.items()
        }

    def _balancer_config(self) -> BalancerConfig:
        config = self._live_config()
        return BalancerConfig(
            BalancerSettings(
                config.balancer_mode,
                config.balancer_max_moves,
                config.balancer_throttle_bytes_per_second,
                config.balancer_tolerance_percent / 100,
                config.balancer_max_disk_percent / 100,
                config.leader_imbalance_per_broker_percentage if config.auto_leader_rebalance_enable else None,
            ),
            config.balancer_interval_ms / 1000,
            config.balancer_broker_timeout_ms / 1000,
        )

    async def _report_loads(self, event_loop: ControllerEventLoop, reports: LoadReports) -> None:
        while not event_loop.ready:  # noqa: ASYNC110 - a few moments at the beginning of an elected epoch
            await asyncio.sleep(PAUSE_S)
        await reports.run()

    async def _resign_when_replaced(self, candidate: ControllerElection, event_loop: ControllerEventLoop) -> None:
        """Resign when this node is not the controller any more, for any reason."""
        try:
            await candidate.wait_until_lost()
            event_loop.inbox.resign("this node is not the controller any more")
        except SessionExpiredError:
            event_loop.inbox.expire()

    def _hello(self) -> HelloRequest:
        return self._local.hello("controller")

    def _present_state(self) -> ControllerState:
        """Raises ApiError NOT_CONTROLLER: a request that describes the balance may outlive the elected epoch."""
        if self._event_loop is None:
            raise _not_controller()
        return self._event_loop.state

    def closed_brokers(self) -> Mapping[BrokerId, str]:
        """The brokers that take no new replicas: cordoned, draining, or with cordoned disks only."""
        return closed_brokers(self._broker_states(), self._present_state().brokers.values())

    def _limits(self) -> ReassignmentLimits:
        return limits_from(self._cluster_settings())

    def settings_changed(self) -> None:
        """The cluster's dynamic settings are others: a reassignment that waits for a slot may go on."""
        if self._event_loop is not None:
            self._event_loop.inbox.mark(EventSource.MOVES)
        if self._reports is not None:
            self._reports.kick()

    # --- requests of brokers ---------------------------------------------------------------------------------

    def on_isr_changed(self, request: IsrChangedRequest) -> asyncio.Future[IsrChangedResponse]:
        """A leader has changed ISRs: read them again, and send them to all brokers.

        The response follows when this controller is known to have been active after the notice arrived. Otherwise its
        successor may have read the state before the change, and the leader has to send the notice again, to that one.
        """
        answer: asyncio.Future[IsrChangedResponse] = asyncio.get_running_loop().create_future()
        event_loop = self._event_loop
        if event_loop is None or not event_loop.ready:
            answer.set_result(IsrChangedResponse(ErrorCode.NOT_CONTROLLER))
        elif not event_loop.state.has_broker(request.broker_id, request.broker_epoch):
            answer.set_result(IsrChangedResponse(ErrorCode.STALE_BROKER_EPOCH))
        else:
            event_loop.isr_changed(request, answer)
        return answer

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Move leadership off a broker that is about to stop."""
        event_loop = self._event_loop
        if event_loop is None or not event_loop.ready:
            return ControlledShutdownResponse(ErrorCode.NOT_CONTROLLER)
        answer = event_loop.controlled_shutdown(request.broker_id, request.broker_epoch)
        try:
            return await answer
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it is this request that was cancelled, not the elected epoch that ended
            return ControlledShutdownResponse(ErrorCode.NOT_CONTROLLER)

    async def describe_balance(self, request: DescribeBalanceRequest) -> DescribeBalanceResponse:
        """How even the load is, and what the balancer would move. Raises ApiError NOT_CONTROLLER."""
        event_loop, reports = self._event_loop, self._reports
        if event_loop is None or reports is None or not event_loop.ready:
            raise _not_controller()
        return await describe_balance(request, event_loop.state, reports, self._balancer_config())

    # --- health ----------------------------------------------------------------------------------------------

    def count_partitions(self) -> Generator[None, None, PartitionCounts]:
        """Nothing while dormant. In steps."""
        event_loop = self._event_loop
        return PartitionCounts() if event_loop is None else (yield from count_partitions(event_loop.state))

    def problems(self) -> Generator[None, None, tuple[HealthProblem, ...]]:
        """Problems of the cluster that the active controller sees; nothing while dormant. In steps."""
        event_loop = self._event_loop
        if event_loop is None:
            return ()
        wanted = {name: each.replicas for name, each in self._internal_topics().items()}
        found = yield from find_problems(event_loop.state, event_loop.reader.malformed_brokers, wanted)
        if self._event_loop is not event_loop:  # it has resigned meanwhile
            return ()
        now_ms = self._env.clock.wall_ms()
        self._since = {(what, subject): self._since.get((what, subject), now_ms) for what, subject, _ in found}
        own = [HealthProblem(what, self._since[what, subject], detail, subject) for what, subject, detail in found]
        return (*own, *event_loop.channels.problems(event_loop.state.partitions))


def _not_controller() -> ApiError:
    return api_error(ErrorCode.NOT_CONTROLLER, "this node is not the controller")
