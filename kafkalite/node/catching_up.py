"""An administrator's change is answered when the live nodes act on it (ADR 63).

The node that has written the change asks every node to read it. A node that does not respond in time is not waited for: it reads
the change when ZooKeeper notifies it, as it does without this.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping

from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordination.session import SessionKeeper
from kafkalite.errors import ErrorCode, KafkaliteError, api_error
from kafkalite.node.membership import Followed
from kafkalite.replica.peers import Peers
from kafkalite.rpc.messages.changes import CatchUpRequest, CatchUpResponse
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: The longest that an answer waits for the nodes.
_WAIT_S = 1.0


class CatchingUp:
    """One per node.

    Args:
        followed: what is read from ZooKeeper, by its name in CatchUpRequest.
    """

    def __init__(self, session: SessionKeeper, followed: Mapping[str, Followed], peers: Peers) -> None:
        self._session = session
        self._followed = followed
        self._peers = peers
        #: One round at a time, by what is read. How many calls there were, and how many of them a finished round has covered.
        self._rounds: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._calls: Counter[str] = Counter()
        self._covered: Counter[str] = Counter()

    async def everywhere(self, what: str) -> None:
        """Return when every live node acts on the changes that were written before this call, or has not answered for _WAIT_S.

        Calls that wait for a round share the next one: a client may have thousands of changes under way.
        """
        self._calls[what] += 1
        number = self._calls[what]
        async with self._rounds[what]:
            if number > self._covered[what]:
                covered = self._calls[what]
                await self._ask_all(what)
                self._covered[what] = covered

    async def _ask_all(self, what: str) -> None:
        answers = await self._peers.every_node(CatchUpRequest(what), timeout_s=_WAIT_S)
        for node, answer in answers.items():
            if isinstance(answer, KafkaliteError):
                _log.warning("change.not_confirmed", node=node, what=what, error=str(answer))

    async def answer(self, request: CatchUpRequest) -> CatchUpResponse:
        """Read the changes here. Raises ApiError: ZooKeeper does not answer, or this node does not know the name."""
        followed, coordinator = self._followed.get(request.what), self._session.current
        if followed is None:
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"{request.what!r} is not known here")
        if coordinator is None:
            raise api_error(ErrorCode.REQUEST_TIMED_OUT, "no session with ZooKeeper")
        try:
            async with asyncio.timeout(_WAIT_S):
                await followed.catch_up(coordinator)
        except TimeoutError:
            raise api_error(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper has not answered in time") from None
        except CoordinatorError as error:
            raise api_error(ErrorCode.REQUEST_TIMED_OUT, str(error)) from None
        return CatchUpResponse()
