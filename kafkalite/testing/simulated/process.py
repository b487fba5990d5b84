"""A program on the simulated loop: what belongs to it, which one runs now, and its handles and tasks."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Coroutine
from enum import Enum
from typing import Any


class ProcessState(Enum):
    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


class SimProcess:
    """One life of one program on one host. Made by `SimLoop.process`."""

    def __init__(self, number: int, host: str, incarnation: int) -> None:
        self.number = number
        self.host = host
        #: Counts the programs started on this host, from 1.
        self.incarnation = incarnation
        self.name = f"{host}#{incarnation}"
        self.state = ProcessState.RUNNING
        #: What became due while the process was stopped, in order.
        self.held: deque[SimHandle | SimTimerHandle] = deque()
        self.context = contextvars.copy_context()
        self.context.run(running.set, self)

    @property
    def alive(self) -> bool:
        """Running or stopped."""
        return self.state is not ProcessState.DEAD

    def __repr__(self) -> str:
        return self.name


running: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("kafkalite.testing.process", default=None)


def current_process() -> SimProcess | None:
    """The process whose code is running; None is the world outside: the network, the schedule of faults, checkers."""
    return running.get()


class SimHandle(list[Any]):
    """A callback: [function or None (cancelled), arguments, context, process].

    asyncio needs three methods of a handle. A list is made without Python code: a run makes a million of them.
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]

    def cancel(self) -> None:
        self[0] = self[1] = None

    def cancelled(self) -> bool:
        return self[0] is None


class SimTimerHandle(list[Any]):
    """As `SimHandle`, and: when (ns), and the loop while the timer is in its heap."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]

    def cancel(self) -> None:
        if self[0] is not None:
            self[0] = self[1] = None
            if self[5] is not None:
                self[5].timer_cancelled()

    def cancelled(self) -> bool:
        return self[0] is None

    def when(self) -> float:
        when_ns: int = self[4]
        return when_ns / 1e9


class SimTask(asyncio.Task[Any]):
    """A task that hashes by its number: a TaskGroup keeps a set, and cancels in the set's order."""

    number: int
    process: SimProcess | None
    _log_destroy_pending: bool

    def __init__(self, coro: Coroutine[Any, Any, Any], number: int, process: SimProcess | None, **options: Any) -> None:
        self.number = number  # before Task.__init__, which puts the task into a set
        self.process = process
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other
