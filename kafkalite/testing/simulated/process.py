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


class Process:
    """One life of one program on one host. Made by `SimLoop.process`."""

    def __init__(self, number: int, host: str, incarnation: int) -> None:
        self.number = number
        self.host = host
        #: Counts the programs started on this host, from 1.
        self.incarnation = incarnation
        self.state = ProcessState.RUNNING
        #: What became due while the process was stopped, in order.
        self.held: deque[Handle | TimerHandle] = deque()
        self.context = contextvars.copy_context()
        self.context.run(running.set, self)

    @property
    def alive(self) -> bool:
        """Running or stopped."""
        return self.state is not ProcessState.DEAD

    def __repr__(self) -> str:
        return f"{self.host}#{self.incarnation}"


running: contextvars.ContextVar[Process | None] = contextvars.ContextVar("kafkalite.testing.process", default=None)


def current_process() -> Process | None:
    """The process whose code is running; None is the world outside: the network, the schedule of faults, checkers."""
    return running.get()


class Handle(asyncio.Handle):
    __slots__ = ("process",)

    process: Process | None
    _callback: Any
    _context: contextvars.Context
    _cancelled: bool


class TimerHandle(asyncio.TimerHandle):
    __slots__ = ("process",)

    process: Process | None
    _callback: Any
    _context: contextvars.Context
    _cancelled: bool
    _scheduled: bool


class SimTask(asyncio.Task[Any]):
    """A task that hashes by its number: a TaskGroup keeps a set, and cancels in the set's order."""

    number: int
    process: Process | None
    _log_destroy_pending: bool

    def __init__(self, coro: Coroutine[Any, Any, Any], number: int, process: Process | None, **options: Any) -> None:
        self.number = number  # before Task.__init__, which puts the task into a set
        self.process = process
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other
