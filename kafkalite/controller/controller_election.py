"""The race for /controller. One winner; the losers hold one watch each and do nothing else (controller design D; invariant 37).

Winning is one transaction: raise /controller_epoch, make /controller. An answer to it can be lost. Then the znode says whether we are the
controller: it is ours if its owner is our session (invariant F24). A znode whose owner is an earlier session of this node is removed, for
nobody else may be there to miss its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Container

from kafkalite.controller.zk_access import Connectivity
from kafkalite.coordination import cluster_znodes, paths
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Check,
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    SessionExpiredError,
    SetData,
    Stat,
)
from kafkalite.coordination.retry import side_by_side
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.seams import Clock
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, ControllerEpoch
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: /controller_epoch before the first election.
INITIAL_EPOCH = ControllerEpoch(0)


@dataclass(frozen=True, slots=True)
class Won:
    """We are the controller. `vacant_since`: monotonic seconds at which we saw that /controller was missing."""

    epoch: ControllerEpoch
    epoch_version: int
    vacant_since: float


class ControllerElection:
    """One session's part in the race.

    Every method raises SessionExpiredError.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        connectivity: Connectivity,
        broker_id: BrokerId,
        clock: Clock,
        dead_sessions: Callable[[], Container[int]] = tuple,
        latest_epoch: Callable[[], ControllerEpoch] = lambda: ControllerEpoch(-1),
    ) -> None:
        """`dead_sessions`: those of this node's earlier processes, which are surely over. `latest_epoch`: that brokers follow; ZooKeeper has an
        earlier one if it was put back."""
        self._dead_sessions = dead_sessions
        self._latest_epoch = latest_epoch
        self._zk = coordinator
        self._connectivity = connectivity
        self._broker_id = broker_id
        self._clock = clock
        self._changed = asyncio.Event()
        #: The controller's broker id as last seen, None if there is none.
        self.seen: BrokerId | None = None
        coordinator.on_state(lambda _: self.on_change())  # the end of the session wakes those that wait, too

    def on_change(self) -> None:
        """Something about /controller has changed."""
        self._changed.set()

    async def win(self) -> Won:
        """Wait until we are the controller."""
        while True:
            try:
                vacant_since = self._clock.monotonic()
                self._changed.clear()
                async with side_by_side() as group:
                    checking = group.create_task(self._zk.exists(paths.CONTROLLER, self.on_change))
                    reading = group.create_task(self._zk.get_many([paths.CONTROLLER_EPOCH]))
                stat = checking.result()
                if stat is None:
                    self.seen = None
                    won = await self._try_to_win(reading.result()[0], vacant_since)
                    if won is not None:
                        self.seen = self._broker_id
                        return won
                elif stat.ephemeral_owner == self._zk.session_id:
                    data, epoch_stat = await self._zk.get(paths.CONTROLLER_EPOCH)
                    self.seen = self._broker_id
                    return Won(cluster_znodes.decode_controller_epoch(data), epoch_stat.version, vacant_since)
                elif stat.ephemeral_owner not in self._dead_sessions() or not await self._remove_earlier():
                    await self._record_controller()
                    await self._changed.wait()
            except SessionExpiredError:
                raise
            except (NotSentError, OutcomeUnknownError):
                await self._connectivity.wait()
            except NoNodeError:
                continue
            except ZnodeError as error:
                # Only a person can repair it; the fence would not be worth anything with a guessed epoch.
                _log.error("controller.epoch_unreadable", reason=str(error))
                await self._connectivity.wait()

    async def _remove_earlier(self) -> bool:
        """Remove the /controller of an earlier session of this node; False if there is none any more, or it changes hands."""
        # Read first: a controller elected after this raises it, and then our transaction fails.
        _, epoch_stat = await self._zk.get(paths.CONTROLLER_EPOCH)
        stat = await self._zk.exists(paths.CONTROLLER)
        if stat is None or stat.ephemeral_owner not in self._dead_sessions():
            return False
        try:
            await self._zk.multi(
                [Check(paths.CONTROLLER_EPOCH, epoch_stat.version), Delete(paths.CONTROLLER, stat.version)]
            )
        except MultiFailedError as error:
            if not isinstance(error.error, BadVersionError | NoNodeError):
                raise error.error from error
            return False
        _log.info("controller.earlier_life_removed", session=f"{stat.ephemeral_owner:x}")
        return True

    async def _record_controller(self) -> None:
        data, _ = await self._zk.get(paths.CONTROLLER)
        try:
            controller_id = cluster_znodes.decode_controller(data).broker_id
        except ZnodeError:
            controller_id = None
        if controller_id != self.seen:
            _log.info("controller.other_elected", controller=controller_id)
        self.seen = controller_id

    async def _try_to_win(self, last: tuple[bytes, Stat] | None, vacant_since: float) -> Won | None:
        """One attempt. Whatever its result, the znode contains the winner. `last`: /controller_epoch."""
        if last is None:
            with contextlib.suppress(NodeExistsError):
                await self._zk.create(paths.CONTROLLER_EPOCH, cluster_znodes.encode_controller_epoch(INITIAL_EPOCH))
            return None
        data, stat = last
        epoch = ControllerEpoch(max(cluster_znodes.decode_controller_epoch(data), self._latest_epoch()) + 1)
        try:
            version, _ = await self._zk.multi(
                [
                    SetData(paths.CONTROLLER_EPOCH, cluster_znodes.encode_controller_epoch(epoch), stat.version),
                    Create(
                        paths.CONTROLLER,
                        cluster_znodes.encode_controller(self._broker_id, self._clock.wall_ms()),
                        ephemeral=True,
                    ),
                ]
            )
        except MultiFailedError as error:
            if not isinstance(error.error, BadVersionError | NodeExistsError):
                raise error.error from error
            _log.debug("controller.election_lost", reason=repr(error.error))
            return None
        assert isinstance(version, int)
        return Won(epoch, version, vacant_since)

    async def wait_until_lost(self) -> None:
        """Return when this node is not the controller any more."""
        while True:
            try:
                self._changed.clear()
                stat = await self._zk.exists(paths.CONTROLLER, self.on_change)
            except (NotSentError, OutcomeUnknownError):
                await self._connectivity.wait()
                continue
            if stat is None or stat.ephemeral_owner != self._zk.session_id:
                return
            await self._changed.wait()

    async def give_up(self) -> None:
        """Resign: remove /controller if it is ours. Does nothing if the session cannot."""
        try:
            stat = await self._zk.exists(paths.CONTROLLER)
            if stat is not None and stat.ephemeral_owner == self._zk.session_id:
                await self._zk.delete(paths.CONTROLLER, stat.version)
        except CoordinatorError as error:
            _log.info("controller.not_removed", reason=repr(error))
