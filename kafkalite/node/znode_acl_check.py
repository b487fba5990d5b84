"""Whether ZooKeeper's znodes are as closed as zookeeper.set.acl asks for: checked when the node starts, and then from time to time."""

from __future__ import annotations

import asyncio

from kafkalite.coordination.coordinator import Coordinator, CoordinatorError
from kafkalite.coordination.session import SessionKeeper
from kafkalite.coordination.znode_acls import AclReport, as_acls, examine, open_now
from kafkalite.env.seams import Clock
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Pause after a check that found something (health shows soon that it is closed; a long check makes a longer pause), and
#: after one that found nothing.
_AGAIN_OPEN_S = 5.0
_SHARE = 50
_AGAIN_CLOSED_S = 3600.0
#: Pause between looks at the few znodes that show that another node makes open ones.
_LOOK_S = 30.0
#: Of one check. Credentials, rules and settings come first, partitions' states last.
MAX_ZNODES = 200_000


class ZnodeAclCheck:
    """One per node, if zookeeper.set.acl is true."""

    def __init__(self, session: SessionKeeper, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._report: AclReport | None = None
        self._since_ms = 0

    def problems(self) -> tuple[HealthProblem, ...]:
        """For `admin health`."""
        report = self._report
        if report is None or not report.open:
            return ()
        return (HealthProblem("zookeeper.open", self._since_ms, _detail(report), count=report.open),)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            coordinator = await self._session.wait()
            try:
                await self._pause(await self._check(coordinator))
            except CoordinatorError as error:
                _log.info("zookeeper.acls_not_checked", error=repr(error))
                await asyncio.sleep(_AGAIN_OPEN_S)

    async def _pause(self, seconds: float) -> None:
        """Until the next check, or until something new that is open shows that it is needed. Raises CoordinatorError."""
        ends = self._clock.monotonic() + seconds
        while (left := ends - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(left, _LOOK_S))
            if self._report is None or self._report.open:
                continue
            zookeeper = as_acls(await self._session.wait())
            if zookeeper is not None and await open_now(zookeeper):
                return

    async def _check(self, coordinator: Coordinator) -> float:
        """Returns the pause before the next check. Raises CoordinatorError."""
        zookeeper = as_acls(coordinator)
        if zookeeper is None:
            return _AGAIN_CLOSED_S
        began = self._clock.monotonic()
        report = await examine(zookeeper, MAX_ZNODES)
        took_s = self._clock.monotonic() - began
        was_open = self._report is not None and self._report.open > 0
        self._report = report
        if report.open and not was_open:
            self._since_ms = self._clock.wall_ms()
            _log.warning("zookeeper.open", detail=_detail(report), then="kafkalite admin zookeeper secure")
        elif was_open and not report.open:
            _log.info("zookeeper.closed", znodes=report.seen)
        if not report.is_complete:
            _log.info("zookeeper.acls_checked", znodes=report.seen, complete=False)
        return max(_AGAIN_OPEN_S, took_s * _SHARE) if report.open else _AGAIN_CLOSED_S


def _detail(report: AclReport) -> str:
    parts = (
        ("every client that reaches ZooKeeper may change", report.changeable[:3]),
        ("anybody may read", report.readable[:3]),
        ("an identity other than that of zookeeper.auth may change or read", report.others[:3]),
    )
    found = " and ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    rest = report.open - sum(len(names) for _, names in parts)
    more = f" and {rest} more" if rest > 0 else ""
    return f"{found}{more}, although zookeeper.set.acl is true"
