"""What this node knows of ZooKeeper: whether it is away, or not the cluster's own; orders are refused then."""

from __future__ import annotations

import asyncio

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Coordinator
from kafkalite.coordination.session import SessionKeeper
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.coordination.znodes import decode_cluster_id
from kafkalite.env.seams import Clock
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: The pause before a node checks again whether ZooKeeper has its cluster's data.
_LOOK_AGAIN_S = 1.0


class ZooKeeperHealth:
    """One per node."""

    def __init__(self, session: SessionKeeper, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        #: Why this is not our cluster's ZooKeeper (any more), and since when (wall ms).
        self._foreign = ""
        self._foreign_since_ms = 0

    def away(self) -> str:
        """For people: how long ZooKeeper has not answered; empty if it does."""
        since_ms = self._session.away_since_ms
        if since_ms is None:
            return ""
        silent_s = max(self._clock.wall_ms() - since_ms, 0) / 1000
        return f"ZooKeeper ({self._session.connect}) has not answered for {silent_s:.0f} s"

    def problems(self) -> tuple[HealthProblem, ...]:
        """For `admin health`, the status page and `top`."""
        found: list[HealthProblem] = []
        if away := self.away():
            left = self._session.lease_left()
            lease = f"this node's lease lasts {left:.0f} s more" if left > 0 else "this node's lease has ended"
            found.append(HealthProblem("zookeeper.away", self._session.away_since_ms or 0, f"{away}; {lease}"))
        if self._foreign:
            found.append(HealthProblem("zookeeper.foreign", self._foreign_since_ms, self._foreign))
        return tuple(found)

    async def ordering(self) -> Coordinator:
        """The session for an order of a client. Raises ApiError, at once, while ZooKeeper is away."""
        if cause := self.away() or self._foreign:
            raise api_error(ErrorCode.REQUEST_TIMED_OUT, f"{cause}: nothing can be ordered or read there")
        return await self._session.wait()

    async def until_ours(self, coordinator: Coordinator, cluster_id: str, *, holds_data: bool) -> None:
        """Wait until this ZooKeeper is our cluster's: it may have come back empty, or as another one.

        A node that registered there would find no topics, become controller and announce that. Raises the Coordinator's
        errors.
        """
        while reason := await _foreign(coordinator, cluster_id, holds_data=holds_data):
            if reason != self._foreign:
                _log.error("zookeeper.foreign", connect=self._session.connect, reason=reason)
                self._foreign, self._foreign_since_ms = reason, self._clock.wall_ms()
            await asyncio.sleep(_LOOK_AGAIN_S)
        if self._foreign:
            _log.info("zookeeper.ours_again", connect=self._session.connect)
            self._foreign = ""


async def _foreign(coordinator: Coordinator, cluster_id: str, *, holds_data: bool) -> str:
    """Why this ZooKeeper is not our cluster's; empty if it is, or if this node has nothing to lose."""
    found, topics = await coordinator.get_many([paths.CLUSTER_ID, paths.TOPICS])
    if found is not None:
        try:
            told = decode_cluster_id(found[0])
        except ZnodeError:
            return ""  # written by hand; the directories have the true id
        return "" if told == cluster_id else f"{paths.CLUSTER_ID} names cluster {told}; this node is of {cluster_id}"
    if holds_data and (topics is None or not topics[1].child_count):
        return f"{paths.CLUSTER_ID} and all topics are gone; this node has logs of cluster {cluster_id}"
    return ""
