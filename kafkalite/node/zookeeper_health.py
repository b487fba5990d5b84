"""What this node knows of ZooKeeper: whether it is away, or not the cluster's own; requests of administrators wait for it."""

from __future__ import annotations

import asyncio

from kafkalite.coordination import paths, registration
from kafkalite.coordination.cluster_znodes import decode_cluster_id
from kafkalite.coordination.coordinator import Coordinator
from kafkalite.coordination.patience import refused_at as refused_at_of_the_request
from kafkalite.coordination.session import SessionKeeper
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.seams import Clock
from kafkalite.errors import ErrorCode, StartupRefused, api_error
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: The pause before a node checks again whether ZooKeeper has its cluster's data.
_LOOK_AGAIN_S = 1.0
#: Interval at which a request that waits for ZooKeeper checks for its return.
_RETURN_LOOK_S = 0.1


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
        away_s = self._session.away_s()
        if away_s is None:
            return ""
        refused = (
            " (it closes every connection: it has no quorum, or its data is older than what this node has seen)"
            if self._session.is_refused
            else ""
        )
        return f"ZooKeeper ({self._session.connect}) has not answered for {away_s:.0f} s{refused}"

    def problems(self) -> tuple[HealthProblem, ...]:
        """For `admin health`, the status page and `top`."""
        found: list[HealthProblem] = []
        if away := self.away():
            left = self._session.lease_left()
            lease = f"this node's lease ends in {left:.0f} s" if left > 0 else "this node's lease has ended"
            since_ms = self._clock.wall_ms() - int((self._session.away_s() or 0) * 1000)
            found.append(HealthProblem("zookeeper.away", since_ms, f"{away}; {lease}"))
        if self._foreign:
            found.append(HealthProblem("zookeeper.foreign", self._foreign_since_ms, self._foreign))
        return tuple(found)

    async def ordering(self) -> Coordinator:
        """The session for a request of an administrator. While ZooKeeper is away it waits as long as the request may
        (`coordination.patience`). Raises ApiError after that, and names the cause.
        """
        refused_at = refused_at_of_the_request()
        while cause := self._missing():
            left_s = refused_at - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise api_error(ErrorCode.REQUEST_TIMED_OUT, f"{cause}: the request was not carried out")
            await asyncio.sleep(min(left_s, _RETURN_LOOK_S))
        assert self._session.current is not None
        return self._session.current

    def _missing(self) -> str:
        """Why nothing can be read from or written to ZooKeeper; empty if it can."""
        if cause := self.away() or self._foreign:
            return cause
        return "" if self._session.current is not None else f"no session with ZooKeeper ({self._session.connect})"

    async def until_ours(self, coordinator: Coordinator, cluster_id: str, *, holds_data: bool) -> bool:
        """Wait until this ZooKeeper is our cluster's: it may have come back empty, or as another one. False if it was another one until now.

        A node that registered there would find no topics, become controller and announce that. Raises the Coordinator's
        errors.
        """
        was_ours = True
        while reason := await _foreign(coordinator, cluster_id, holds_data=holds_data):
            if reason != self._foreign:
                _log.error("zookeeper.foreign", connect=self._session.connect, reason=reason)
                self._foreign, self._foreign_since_ms = reason, self._clock.wall_ms()
            was_ours = False
            await asyncio.sleep(_LOOK_AGAIN_S)
        if self._foreign:
            _log.info("zookeeper.ours_again", connect=self._session.connect)
            self._foreign = ""
        return was_ours


async def _foreign(coordinator: Coordinator, cluster_id: str, *, holds_data: bool) -> str:
    """Why this ZooKeeper is not our cluster's; empty if it is, or if this node has nothing to lose.

    If only the id is missing, it is put there again: the next node that starts would give the cluster another one.
    """
    found, topics = await coordinator.get_many([paths.CLUSTER_ID, paths.TOPICS])
    try:
        if found is not None:
            reported = decode_cluster_id(found[0])
        elif topics is not None and topics[1].child_count:
            reported = await registration.cluster_id(coordinator, lambda: cluster_id)
        elif holds_data:
            return f"{paths.CLUSTER_ID} and all topics are missing; this node has logs of cluster {cluster_id}"
        else:
            return ""
    except (ZnodeError, StartupRefused):
        return ""  # written by hand; the directories have the true id
    if reported == cluster_id:
        return ""
    return f"{paths.CLUSTER_ID} names cluster {reported}; this node is of {cluster_id}"
