"""Keeps one ZooKeeper session open, and reports to the node when it has a new one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from kafkalite.coordination.coordinator import (
    Coordinator,
    CoordinatorError,
    NotSentError,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
)
from kafkalite.env.seams import Env
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

_BACKOFF_MIN_S = 0.1
_BACKOFF_MAX_S = 2.0
#: A node acts as fenced when less than this share of the session timeout is left: what it decides now still has to
#: reach others before the server may give its session away.
_LEASE_MARGIN = 0.1
#: ZooKeeper is away if it sends nothing for this share of the session timeout: twice its longest normal silence.
_AWAY_SHARE = 1 / 3
_LOOK_S = 0.5


class SessionKeeper:
    """Holds the current session; when it expires, opens the next one.

    `run` is the one task; it must run for anything to happen. Callbacks of `on_session` are awaited in the order
    of their registration, each repeated while ZooKeeper does not answer it, all cancelled when the session ends.
    """

    def __init__(self, env: Env, connect: str, session_timeout_ms: int) -> None:
        self.current: Coordinator | None = None
        #: How often a session was opened, suspended, connected again, expired: for the metrics.
        self.changes: Counter[str] = Counter()
        self._env = env
        self._connect = connect
        self._timeout_ms = session_timeout_ms
        self._on_session: list[Callable[[Coordinator], Awaitable[None]]] = []
        self._on_lost: list[Callable[[], None]] = []
        self._present = asyncio.Event()
        self._ended = asyncio.Event()
        self._scope: asyncio.Timeout | None = None
        self._closed = False
        #: When (monotonic) ZooKeeper last answered in sessions that are over.
        self._heard_at = env.clock.monotonic()
        #: Since when (monotonic seconds) ZooKeeper has not answered; None while it does. `watch` keeps it.
        self._away_since: float | None = None

    def on_session(self, callback: Callable[[Coordinator], Awaitable[None]]) -> None:
        """Await `callback` for every new session. It must be safe to repeat (it is, when an outcome is unknown)."""
        self._on_session.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call back, synchronously, when the session has expired (not when `close` ends it)."""
        self._on_lost.append(callback)

    def usable(self) -> bool:
        """Whether the server surely still holds our session, with a margin. False means: act as fenced."""
        current = self.current  # an expired session has nothing left
        return current is not None and current.lease_left() > current.timeout_s * _LEASE_MARGIN

    def lease_left(self) -> float:
        """Seconds; <= 0 without a session. See Coordinator.lease_left."""
        current = self.current
        if current is None or current.state is SessionState.EXPIRED:
            return 0.0
        return current.lease_left()

    def _granted_s(self) -> float:
        """The session timeout. ZooKeeper grants less, or more, than was asked for if that is not within its own limits."""
        return self._timeout_ms / 1000 if self.current is None else self.current.timeout_s

    @property
    def connect(self) -> str:
        """The connect string, for people."""
        return self._connect

    def away_s(self) -> float | None:
        """Seconds for which ZooKeeper has not answered; None while it does."""
        return None if self._away_since is None else self._env.clock.monotonic() - self._away_since

    def silent_s(self) -> float:
        """Seconds since ZooKeeper last answered, in whatever session."""
        current = self.current
        before = self._env.clock.monotonic() - self._heard_at
        return before if current is None else min(before, current.silent_s())

    @property
    def is_refused(self) -> bool:
        """See Coordinator.is_refused."""
        return self.current is not None and self.current.is_refused

    async def watch(self) -> None:
        """Until cancelled: one line when ZooKeeper goes away, one when it is back."""
        was_away = False
        while True:
            await asyncio.sleep(_LOOK_S)
            silent_s = self.silent_s()
            is_away = silent_s >= self._granted_s() * _AWAY_SHARE
            if is_away and was_away and self._away_since is None:  # twice: after a pause of ours its answers wait
                self._away_since = self._env.clock.monotonic() - silent_s
                _log.warning(
                    "zookeeper.away",
                    connect=self._connect,
                    silent_s=round(silent_s, 1),
                    lease_s=round(max(self.lease_left(), 0.0), 1),
                    then="leaders and ISRs cannot change, requests of administrators wait and then fail, no broker can start; when the lease ends, a "
                    "leader that is the only in-sync replica, or that no replica follows, accepts no records",
                )
            elif not is_away and (away_s := self.away_s()) is not None:
                self._away_since = None
                _log.info("zookeeper.back", connect=self._connect, away_s=round(away_s, 1))
            was_away = is_away

    async def wait(self) -> Coordinator:
        """The current session, as soon as there is one. Its `on_session` callbacks may still be under way."""
        while self.current is None:
            await self._present.wait()
        return self.current

    async def run(self) -> None:
        """Until `close`. Raises what an on_session callback raises, CoordinatorErrors of a lost session excepted."""
        while not self._closed:
            coordinator = await self._open()
            if coordinator is None:
                return
            with contextlib.suppress(SessionExpiredError):  # the next session will do it
                await self._introduce(coordinator)
            await self._ended.wait()

    async def close(self) -> None:
        """End the session cleanly: ephemerals go at once. `run` returns."""
        self._closed = True
        current, self.current = self.current, None
        self._present.clear()
        if current is not None:
            await current.close()
        self._end_scope()
        self._ended.set()

    async def _open(self) -> Coordinator | None:
        backoff = _BACKOFF_MIN_S
        attempts = 0
        while not self._closed:
            try:
                coordinator = await self._env.connect_coordinator(self._connect, self._timeout_ms)
            except (CoordinatorError, OSError) as error:
                attempts += 1
                if attempts & (attempts - 1) == 0:  # 1, 2, 4, 8, …: reported, but ever less often
                    _log.warning("zookeeper.unreachable", connect=self._connect, attempts=attempts, error=str(error))
                await asyncio.sleep(backoff * self._env.random.uniform(0.5, 1.5))
                backoff = min(backoff * 2, _BACKOFF_MAX_S)
                continue
            if self._closed:
                await coordinator.close()
                return None
            if coordinator.state is SessionState.EXPIRED:
                continue
            self._ended.clear()
            self.current = coordinator
            coordinator.on_state(partial(self._changed, coordinator))
            self._present.set()
            self.changes["opened"] += 1
            _log.info("session.opened", session=f"{coordinator.session_id:x}")
            return coordinator
        return None

    async def _introduce(self, coordinator: Coordinator) -> None:
        for callback in list(self._on_session):
            backoff = _BACKOFF_MIN_S
            while True:
                try:
                    async with asyncio.timeout(None) as self._scope:
                        if coordinator is not self.current:
                            raise SessionExpiredError("expired")
                        await callback(coordinator)
                    break
                except (NotSentError, OutcomeUnknownError) as error:
                    _log.info("session.callback_repeated", error=repr(error))
                except TimeoutError:
                    if coordinator is self.current:
                        raise  # the callback's own
                    raise SessionExpiredError("expired") from None
                finally:
                    self._scope = None
                await asyncio.sleep(backoff * self._env.random.uniform(0.5, 1.5))
                backoff = min(backoff * 2, _BACKOFF_MAX_S)

    def _end_scope(self) -> None:
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    def _changed(self, coordinator: Coordinator, state: SessionState) -> None:
        if coordinator is not self.current:
            return
        self.changes[state.value] += 1
        _log.info(f"session.{state.value}", session=f"{coordinator.session_id:x}")
        if state is not SessionState.EXPIRED:
            return
        self._heard_at = max(self._heard_at, self._env.clock.monotonic() - coordinator.silent_s())
        self.current = None
        self._present.clear()
        for callback in list(self._on_lost):
            callback()
        self._end_scope()
        self._ended.set()
