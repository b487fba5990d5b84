"""When the balancer looks, and what it knows of the load: brokers are asked over connections of their own, which are closed again.

A look follows every interval, a changed setting, and the end of a move while there is more to move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kafkalite.controller.decisions.balance_view import DiskRoom, PartitionLoad
from kafkalite.controller.decisions.events import BalancerDue, BalancerSettings, WantedReplication
from kafkalite.controller.decisions.internal_topics import lacks_replicas
from kafkalite.controller.decisions.rebalancing import DRAINING, OFF, ON, missing_brokers
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, BrokerInfo, TopicPartition
from kafkalite.rpc.answers import RpcError
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.load import LoadRequest, LoadResponse
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: The time for all answers together.
WAIT_S = 5.0
#: Least time between two looks.
PAUSE_S = 0.5
#: How much of a rate is the newest sample.
_NEWEST = 0.5
_NEVER_S = 3600.0


@dataclass(frozen=True, slots=True)
class BalancerConfig:
    """`interval_s` between two questions to all brokers; `broker_timeout_s` until a missing broker is lost, 0: never."""

    settings: BalancerSettings
    interval_s: float
    broker_timeout_s: float


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    appended: int
    fetched: int


class LoadReports:
    """One per elected epoch.

    Args:
        state: the controller's.
        closed: brokers that take no new replicas, with their `broker.state`.
        internal: by name, what internal topics should have.
        post: hands an event to the controller.
    """

    def __init__(
        self,
        env: Env,
        own_time: OwnTime,
        supervisor: Supervisor,
        hello: Callable[[], HelloRequest],
        *,
        config: Callable[[], BalancerConfig],
        state: Callable[[], ControllerState],
        closed: Callable[[], Mapping[BrokerId, str]],
        internal: Callable[[], Mapping[str, WantedReplication]],
        post: Callable[[BalancerDue], None],
    ) -> None:
        self._env = env
        self._own_time = own_time
        self._supervisor = supervisor
        self._hello = hello
        self._config = config
        self._state = state
        self._closed = closed
        self._internal = internal
        self._post = post
        self._kicked = asyncio.Event()
        self._asked_at = float("-inf")
        self._samples: dict[TopicPartition, _Sample] = {}
        self.loads: dict[TopicPartition, PartitionLoad] = {}
        self.room: dict[BrokerId, DiskRoom] = {}
        #: Broker that has replicas and is not alive -> when (monotonic seconds) that was noticed.
        self._missing_since: dict[BrokerId, float] = {}

    @property
    def age_s(self) -> float:
        """Seconds since the brokers were last asked; inf: never."""
        return self._env.clock.monotonic() - self._asked_at

    def kick(self) -> None:
        """Something has changed that the balancer may wait for."""
        self._kicked.set()

    def moves_went_on(self) -> None:
        """A reassignment has made a step, or a broker has come: there may be room for the next move."""
        state = self._state()
        if (
            state.is_spreading
            or state.stuck
            or DRAINING in self._closed().values()
            or self._missing_since
            or lacks_replicas(state, self._closed(), self._internal())
        ):
            self._kicked.set()

    async def run(self) -> None:
        """For ever; one look at a time."""
        while True:
            self._kicked.clear()  # what changes from here on is followed by another look
            config = self._config()
            if self._is_wanted(config) and self.age_s >= config.interval_s:
                await self.ask()
                config = self._config()
            if self._is_wanted(config):
                self._post(self.event(config))
            await asyncio.sleep(PAUSE_S)
            try:
                async with asyncio.timeout(max(0.0, config.interval_s - PAUSE_S)):
                    await self._kicked.wait()
            except TimeoutError:
                pass

    def _is_wanted(self, config: BalancerConfig) -> bool:
        if config.settings.mode != OFF or DRAINING in self._closed().values() or self._state().stuck:
            return True
        return lacks_replicas(self._state(), self._closed(), self._internal())

    def event(self, config: BalancerConfig) -> BalancerDue:
        """What is known now."""
        lost = self.lost(config) if config.settings.mode == ON else frozenset()
        return BalancerDue(config.settings, self._closed(), lost, self.loads, self.room, self._internal())

    def lost(self, config: BalancerConfig) -> frozenset[BrokerId]:
        """Brokers that are missing for too long. A new controller begins to count when it is elected."""
        now = self._env.clock.monotonic()
        missing = missing_brokers(self._state())
        self._missing_since = {broker: self._missing_since.get(broker, now) for broker in sorted(missing)}
        if config.broker_timeout_s <= 0:
            return frozenset()
        return frozenset(each for each, since in self._missing_since.items() if now - since >= config.broker_timeout_s)

    def missing_s(self) -> dict[BrokerId, float]:
        """Seconds for which brokers with replicas have not been alive, as far as this controller has seen."""
        now = self._env.clock.monotonic()
        return {broker: now - self._missing_since.get(broker, now) for broker in missing_brokers(self._state())}

    # --- questions -------------------------------------------------------------------------------------------

    async def ask(self) -> None:
        """Ask every live broker, once; one that does not answer in time is left as it was."""
        brokers = self._state().brokers
        self._asked_at = self._env.clock.monotonic()
        tasks = [self._supervisor.spawn(f"controller.load[{id_}]", self._ask(brokers[id_])) for id_ in sorted(brokers)]
        try:
            if tasks:
                async with self._own_time.timeout(WAIT_S):
                    await asyncio.wait(tasks)
        except TimeoutError:
            _log.info("controller.load_missing")
        finally:
            for task in tasks:
                task.cancel()
        assigned = {partition for partition, _ in self._state().assigned()}
        for known in (self._samples, self.loads):
            for partition in known.keys() - assigned:
                del known[partition]
        self.room = {broker: room for broker, room in self.room.items() if broker in self._state().brokers}

    async def _ask(self, broker: BrokerInfo) -> None:
        connection: RpcConnection | None = None
        try:
            connection = await RpcConnection.open(
                self._env.network, broker.rpc, self._hello(), supervisor=self._supervisor, timeout_s=_NEVER_S
            )
            if (connection.peer.node_id, connection.peer.broker_epoch) != (broker.broker_id, broker.broker_epoch):
                return
            answer, _ = await connection.call(LoadRequest(), timeout_s=_NEVER_S)
            assert isinstance(answer, LoadResponse)
            self._take(answer)
        except (RpcError, ApiError) as error:
            _log.info("controller.load_refused", broker=broker.broker_id, error=str(error))
        finally:
            if connection is not None:
                connection.abort("asked")

    def _take(self, report: LoadResponse) -> None:
        now = self._env.clock.monotonic()
        if report.total_bytes > 0:
            self.room[report.broker_id] = DiskRoom(report.total_bytes, report.free_bytes)
        for each in report.led:
            partition = TopicPartition(each.topic, each.partition)
            before, load = self._samples.get(partition), self.loads.get(partition, PartitionLoad())
            self._samples[partition] = _Sample(now, each.appended_bytes, each.fetched_bytes)
            in_rate, out_rate = load.in_rate, load.out_rate
            # Counters that went back, or another leader's: the next sample gives a rate again.
            if before is not None and each.appended_bytes >= before.appended and now > before.at:
                in_rate += _NEWEST * ((each.appended_bytes - before.appended) / (now - before.at) - in_rate)
            if before is not None and each.fetched_bytes >= before.fetched and now > before.at:
                out_rate += _NEWEST * ((each.fetched_bytes - before.fetched) / (now - before.at) - out_rate)
            self.loads[partition] = PartitionLoad(each.size_bytes, in_rate, out_rate)
