"""Keeps one ZooKeeper session open, and tells the node when it has a new one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable

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

    def on_session(self, callback: Callable[[Coordinator], Awaitable[None]]) -> None:
        """Await `callback` for every new session. It must be safe to repeat (it is, when an outcome is unknown)."""
        self._on_session.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call back, synchronously, when the session has expired (not when `close` ends it)."""
        self._on_lost.append(callback)

    def usable(self) -> bool:
        """Whether the server surely still holds our session, with a margin. False means: act as fenced."""
        return self.lease_left() > self._timeout_ms / 1000 * _LEASE_MARGIN

    def lease_left(self) -> float:
        """Seconds; <= 0 without a session. See Coordinator.lease_left."""
        current = self.current
        if current is None or current.state is SessionState.EXPIRED:
            return 0.0
        return current.lease_left()

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
                if attempts & (attempts - 1) == 0:  # 1, 2, 4, 8, …: told, but not for ever
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
            coordinator.on_state(lambda state, of=coordinator: self._changed(of, state))  # type: ignore[misc]
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
        self.current = None
        self._present.clear()
        for callback in list(self._on_lost):
            callback()
        self._end_scope()
        self._ended.set()
