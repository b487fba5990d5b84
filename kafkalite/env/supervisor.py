"""The one place that starts tasks. A task that dies is never silent: its policy says what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

from kafkalite.errors import CannotListen, ConfigError, StartupRefused
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class Policy(Enum):
    """What the end of a task by an exception means."""

    #: The node cannot go on without it: stop the node.
    FATAL = "fatal"
    #: Only this task's peer suffers: log and go on.
    ISOLATED = "isolated"


class CancelledByNobody(RuntimeError):
    """A task has ended by a CancelledError that nobody sent it, as if it had been cancelled. Its cause says where."""


class Supervisor:
    """Starts tasks, holds them, and stops them all.

    Args:
        on_fatal: called with the exception when a FATAL task ends by one, and with each AssertionError.
    """

    def __init__(self, on_fatal: Callable[[BaseException], None]) -> None:
        self._on_fatal = on_fatal
        self._tasks: dict[asyncio.Task[Any], Policy] = {}
        self._stopping = False

    def spawn(self, name: str, coro: Coroutine[Any, Any, Any], policy: Policy = Policy.FATAL) -> asyncio.Task[Any]:
        """Start a task. After `stop` it is cancelled at once."""
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks[task] = policy
        task.add_done_callback(self._ended)
        if self._stopping:
            task.cancel()
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        policy = self._tasks.pop(task, Policy.ISOLATED)
        error = _error_of(task)
        if error is None:
            return
        fields = {"task": task.get_name(), "policy": policy.value, "error": repr(error)}
        if isinstance(error, StartupRefused | CannotListen | ConfigError):
            # Not a bug: the caller prints it in one line, and a traceback does not help.
            _log.info("task.failed", **fields)
        else:
            _log.error("task.failed", **fields, exc_info=error)
        if policy is Policy.FATAL or isinstance(error, AssertionError):
            self._on_fatal(error)

    async def stop(self) -> None:
        """Cancel everything and wait until it has ended."""
        self._stopping = True
        current = asyncio.current_task()
        # Not 0 after a TaskGroup that failed (Python 3.11), and in what a cancelled task does at its end.
        before = 0 if current is None else current.cancelling()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        for task in tasks:
            try:
                await task
            except asyncio.CancelledError:
                if current is not None and current.cancelling() > before:
                    raise
            except Exception as error:  # noqa: BLE001 - _ended has reported it; stop must reach every task
                _log.debug("task.failed_at_stop", task=task.get_name(), error=repr(error))


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    """What ended it; None if it is through, or if somebody cancelled it."""
    if not task.cancelled():
        return task.exception()
    if task.cancelling():
        return None
    error = CancelledByNobody(f"{task.get_name()} was cancelled by nobody")
    try:
        task.result()
    except asyncio.CancelledError as cancelled:
        error.__cause__ = cancelled
    return error
