"""Every node asks the controller whether it is there, and deletes /controller when the controller is dead or suspected dead.

The removal is conditional on the controller epoch, so that it can only ever hit the controller that was silent. If it
was only slow, its next write fails, and the fastest node is elected: only a moment is lost.
Silence is counted in own time: a node that got no processor time does not suspect the controller. Nor does one that
hears none of the other nodes either: it is cut off, and would only put itself in the place of a controller that others hear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kafkalite.config import BrokerConfig
from kafkalite.controller.heartbeat import (
    FORGET_S,
    MAX_PATIENCE_FACTOR,
    MIN_WAIT_S,
    Dialler,
    PeerHeartbeat,
    ProbeOutcome,
)
from kafkalite.coordination import broker_znodes, cluster_znodes, paths
from kafkalite.coordination.coordinator import Check, CoordinatorError, Delete, NoNodeError, SessionState
from kafkalite.coordination.session import SessionKeeper
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env import Env
from kafkalite.env.own_time import OwnTime
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError
from kafkalite.model import BrokerEpoch, BrokerId, Endpoint
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.answers import RpcError, RpcRefused
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Number of peers probed to rule out that we are isolated.
MAX_OTHERS = 8
#: After a heartbeat without a response the next one follows soon (seconds).
_AGAIN_S = 0.1
#: How long another node has for an answer where silence never counts otherwise (seconds).
_ANSWER_S = 5.0


class ControllerFailureDetector:
    """One task per node; idle on the controller's own.

    Args:
        seen: the controller according to ZooKeeper, -1 if unknown. Not what a controller has sent: one that cannot
            reach us sends nothing, and is the one to watch.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Env,
        own_time: OwnTime,
        supervisor: Supervisor,
        session: SessionKeeper,
        metadata: MetadataCache,
        seen: Callable[[], BrokerId],
        broker_id: BrokerId,
        hello: Callable[[], HelloRequest],
    ) -> None:
        self._interval_s = config.broker_heartbeat_interval_ms / 1000
        self._timeout_s = config.broker_heartbeat_timeout_ms / 1000
        self._own_time = own_time
        self._supervisor = supervisor
        self._session = session
        self._metadata = metadata
        self._seen = seen
        self._broker_id = broker_id
        self._dialler = Dialler(env.network, supervisor, hello)
        self._heartbeat: PeerHeartbeat | None = None
        self._factor = 1
        self._removed_at = float("-inf")
        self._last_heard: tuple[BrokerId, float] | None = None

    def last_heard(self) -> tuple[BrokerId, float] | None:
        """The controller that this node watches, or has watched until now, and when (own time) it was last heard.

        It is for the moment in which this node becomes the controller; soon after it is None.
        """
        return self._last_heard

    async def run(self) -> None:
        """Until cancelled."""
        if self._timeout_s <= 0:
            return
        heard_at = self._own_time.now()
        watched: tuple[BrokerId, Endpoint] | None = None
        while True:
            controller = await self._read_controller()
            began = self._own_time.now()
            if controller != watched or controller is None:
                watched, heard_at = controller, began
                self._follow(controller)
                if controller is not None:
                    self._last_heard = controller[0], heard_at
            if self._seen() == self._broker_id:
                self._last_heard = None
            if controller is None or self._heartbeat is None:
                await asyncio.sleep(self._interval_s)
                continue
            patience = self._patience_s(began)
            # When it was last heard counts, not when this question was put.
            left = max(heard_at + patience - began, MIN_WAIT_S)
            outcome = await self._heartbeat.beat(left)
            now = self._own_time.now()
            if outcome is ProbeOutcome.ANSWERED:
                heard_at = now
                self._last_heard = controller[0], now
            elif outcome is ProbeOutcome.REFUSED or now - heard_at >= patience:
                if outcome is ProbeOutcome.REFUSED:
                    await self._remove(*controller, "refuses connections")
                elif not await self._hears_others(controller[0]):
                    _log.info(
                        "controller.unheard", controller=controller[0], reason="no other node is reachable either"
                    )
                else:
                    await self._remove(*controller, "does not answer")
                    self._factor = min(MAX_PATIENCE_FACTOR, self._factor * 2)
                self._removed_at = heard_at = self._own_time.now()
            if outcome is ProbeOutcome.ANSWERED:
                await self._heartbeat.pause(self._interval_s)
            else:
                await asyncio.sleep(min(self._interval_s, _AGAIN_S))

    def _follow(self, controller: tuple[BrokerId, Endpoint] | None) -> None:
        if self._heartbeat is not None:
            self._heartbeat.close("no longer watched")
        self._heartbeat = None if controller is None else PeerHeartbeat(self._dialler, self._own_time, *controller)

    async def _read_controller(self) -> tuple[BrokerId, Endpoint] | None:
        controller_id = self._seen()
        if controller_id in (-1, self._broker_id):
            return None
        # A controller that was suspected a moment ago, or that could not reach us yet, is not in what we have received.
        endpoint = self._metadata.rpc_endpoint(controller_id) or await self._registered(controller_id)
        return None if endpoint is None else (controller_id, endpoint)

    async def _registered(self, broker_id: BrokerId) -> Endpoint | None:
        zk = self._session.current
        if zk is None:
            return None
        try:
            data, _ = await zk.get(paths.broker(broker_id))
            return broker_znodes.decode_broker(data).rpc
        except (CoordinatorError, ZnodeError):
            return None

    async def _hears_others(self, controller_id: BrokerId) -> bool:
        """Whether any node but the controller answers within our patience; True if there is no other."""
        others = self._others(controller_id)
        return not others or await self._hears(others, refusals=True)

    async def somebody_answers(self) -> bool:
        """Whether any other node, the controller included, can take over what this one leads: it answers within our patience."""
        return await self._hears(self._others(), refusals=False)

    def _others(self, *but: BrokerId) -> list[BrokerId]:
        return [each.broker_id for each in self._metadata.brokers() if each.broker_id not in (*but, self._broker_id)]

    async def _hears(self, others: Sequence[BrokerId], *, refusals: bool) -> bool:
        """Whether one of these says anything within our patience; with `refusals`, it may be its host that does."""
        tasks = [
            self._supervisor.spawn(f"controller.second_opinion[{each}]", self._answers(each, refusals=refusals))
            for each in others[:MAX_OTHERS]
        ]
        waiting = {*tasks}
        try:
            async with self._own_time.timeout(self._timeout_s or _ANSWER_S):
                while waiting:
                    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    if any(not task.cancelled() and task.result() for task in done):
                        return True
        except TimeoutError:
            pass
        finally:
            for task in tasks:
                task.cancel()
        return False

    async def _answers(self, broker_id: BrokerId, *, refusals: bool) -> bool:
        endpoint = self._metadata.rpc_endpoint(broker_id)
        if endpoint is None:
            return False
        try:
            connection = await self._dialler.open(endpoint)
        except RpcRefused:
            return refusals
        except (RpcError, ApiError, TimeoutError):
            return False
        connection.abort("it is there")
        return True

    def _patience_s(self, now: float) -> float:
        if now - self._removed_at > FORGET_S:
            self._factor = 1
        return self._timeout_s * self._factor

    async def _remove(self, controller_id: BrokerId, endpoint: Endpoint, reason: str) -> None:
        """Remove /controller if it is still that controller's, in the same elected epoch, at the address that was asked."""
        zk = self._session.current
        if zk is None or zk.state is not SessionState.CONNECTED or not self._session.usable():
            return  # we are more likely the partitioned side
        try:
            _, epoch = await zk.get(paths.CONTROLLER_EPOCH)
            data, stat = await zk.get(paths.CONTROLLER)
            if cluster_znodes.decode_controller(data).broker_id != controller_id:
                return
            found = (await zk.get_many([paths.broker(controller_id)]))[0]
            if found is not None:
                info = broker_znodes.decode_broker(found[0]).info(controller_id, BrokerEpoch(found[1].czxid))
                if info.rpc != endpoint:
                    return  # it has restarted, at another address
            await zk.multi([Check(paths.CONTROLLER_EPOCH, epoch.version), Delete(paths.CONTROLLER, stat.version)])
        except NoNodeError:
            return  # it has left already: an election follows, unless all nodes are stopping
        except (CoordinatorError, ZnodeError) as error:
            _log.info("controller.not_unseated", controller=controller_id, error=repr(error))
            return
        _log.warning("controller.unseated", controller=controller_id, reason=reason)
